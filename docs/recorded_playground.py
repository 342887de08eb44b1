"""For the site: the page of the playground, with a recording in place of a server.

Browsers load neither modules nor JSON from files: modules become one script, and the
recording another, so that the page also works where the site lies in a folder.
"""

import re
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_PAGE = _HERE.parent / "src" / "marginax" / "playground" / "page"
_METAS = """<meta charset="utf-8">
  <meta name="documentation" content="../../">"""
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:class|const|function) ([A-Za-z_]\w*)", re.MULTILINE)


def on_post_build(*, config: Any, **kwargs: Any) -> None:
    """Write the page, its script, its style and its recording."""
    del kwargs
    folder = Path(config["site_dir"]) / "assets" / "playground"
    folder.mkdir(parents=True, exist_ok=True)
    text = (_PAGE / "index.html").read_text(encoding="utf-8")
    for old, new in (
        ('<meta charset="utf-8">', _METAS),
        ("page/style.css", "style.css"),
        (
            '<script type="module" src="page/app.js">',
            '<script defer src="recording.js"></script>\n  <script defer src="app.js">',
        ),
    ):
        assert old in text
        text = text.replace(old, new)
    recording = (_HERE / "assets" / "playground.json").read_text(encoding="utf-8")
    files = {
        "recorded.html": text,
        "style.css": (_PAGE / "style.css").read_text(encoding="utf-8"),
        "app.js": one_script("app"),
        "recording.js": f"globalThis.recording = {recording};\n",
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")


def one_script(name: str) -> str:
    """A module and all that it imports, each in a function of its own."""
    parts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in parts:
            return
        text = (_PAGE / f"{name}.js").read_text(encoding="utf-8")
        for found in _IMPORT.finditer(text):
            add(found[2])
        body = _IMPORT.sub(r"const {\1} = modules.\2;\n", text)
        names = ", ".join(_EXPORT.findall(body))
        body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
        assert not re.search(r"^(import|export)\b", body, re.MULTILINE), name
        parts[name] = (
            f"modules.{name} = (() => {{\n{body}\nreturn {{{names}}};\n}})();\n"
        )

    add(name)
    return '"use strict";\nconst modules = {};\n' + "\n".join(parts.values())

"""For the site: the page of the playground, with a recording in place of a server."""

import shutil
from pathlib import Path
from typing import Any

_PAGE = (
    Path(__file__).resolve().parent.parent / "src" / "marginax" / "playground" / "page"
)
_METAS = """<meta charset="utf-8">
  <meta name="recording" content="../playground.json">
  <meta name="documentation" content="../../">"""


def on_post_build(*, config: Any, **kwargs: Any) -> None:
    """Copy the page; what it shows comes from `assets/playground.json`."""
    del kwargs
    folder = Path(config["site_dir"]) / "assets" / "playground"
    shutil.copytree(_PAGE, folder / "page", dirs_exist_ok=True)
    text = (_PAGE / "index.html").read_text(encoding="utf-8")
    (folder / "page" / "index.html").unlink()
    told = text.replace('<meta charset="utf-8">', _METAS)
    (folder / "recorded.html").write_text(told, encoding="utf-8")

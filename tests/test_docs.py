"""Every Python block in the README and the documentation runs."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(page for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")] if page.exists())
BLOCK = re.compile(r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
NO_RUN = "<!-- no-run -->"


def python_blocks(text: str) -> list[tuple[int, str]]:
    """(line number, code) of each Python block, but those right after a line `<!-- no-run -->`."""
    blocks = []
    for match in BLOCK.finditer(text):
        before = text[: match.start()]
        if not before.rstrip("\n").endswith(NO_RUN):
            blocks.append((before.count("\n") + 2, textwrap.dedent(match["code"])))
    return blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for line, code in python_blocks(page.read_text(encoding="utf-8")):
        padded = "\n" * (line - 1) + code  # a traceback then shows the line of the page
        exec(compile(padded, str(page), "exec"), namespace)  # noqa: S102 our own documentation


def test_blocks_are_found_with_their_lines():
    text = "# Page\n\n```python\na = 1\n```\n\n- item\n\n  ```python\n  b = a\n  ```\n\n```bash\nls\n```\n"
    assert python_blocks(text) == [(4, "a = 1\n"), (10, "b = a\n")]


def test_marked_blocks_are_left_out():
    assert python_blocks(f"{NO_RUN}\n```python\n1 / 0\n```\n```python\nok = 1\n```\n") == [(6, "ok = 1\n")]

"""Run the code of documentation pages and keep the pictures that it draws.

    python docs/draw.py                              # all pages of the course
    python docs/draw.py docs/course/04-hmc.md        # these pages

Pictures go to `docs/images/`, those of the course to its folder there; what the code
prints is printed, for the pages that quote it.
"""

import contextlib
import os
import re
import sys
import tempfile
import textwrap
import time
from pathlib import Path

DOCS = Path(__file__).resolve().parent
NO_RUN = "<!-- no-run -->"
SLOW = "<!-- slow -->"
_BLOCK = re.compile(
    r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
_FIRST_LINES = 4  # front matter may come before


def python_blocks(text: str) -> list[tuple[int, str]]:
    """(line number, code) of each Python block, but those right after NO_RUN."""
    blocks = []
    for match in _BLOCK.finditer(text):
        before = text[: match.start()]
        if not before.rstrip("\n").endswith(NO_RUN):
            blocks.append((before.count("\n") + 2, textwrap.dedent(match["code"])))
    return blocks


def is_slow(text: str) -> bool:
    """Whether one of the page's first lines is `<!-- slow -->`."""
    return SLOW in text.splitlines()[:_FIRST_LINES]


def run_page(page: Path) -> None:
    """Run the page's blocks in order, in one namespace and in the present directory."""
    namespace = {"__name__": "__main__"}
    for line, code in python_blocks(page.read_text(encoding="utf-8")):
        padded = "\n" * (line - 1) + code  # a traceback then shows the line of the page
        exec(compile(padded, str(page), "exec"), namespace)  # noqa: S102 our own documentation


def draw_page(page: Path, pictures: Path) -> None:
    """Run a page elsewhere; keep its pictures with 256 colours, a third of the size."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        began = time.process_time()
        run_page(page)
        seconds = time.process_time() - began
        for picture in sorted(Path(folder).glob("*.png")):
            kept = pictures / picture.name
            drawn = Image.open(picture).convert("RGB")
            small = drawn.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3)
            small.save(kept, optimize=True)
            print(f"  {kept.name}: {kept.stat().st_size / 1000:.0f} kB")
    print(f"  {seconds:.1f} s of processor time")


def main() -> None:
    os.environ.setdefault("MPLBACKEND", "agg")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    named = [Path(name).resolve() for name in sys.argv[1:]]
    pages = named or sorted(DOCS.glob("course/*.md"))
    for page in pages:
        print(f"== {page.relative_to(DOCS)} ==")
        pictures = DOCS / "images" / page.relative_to(DOCS).parent
        pictures.mkdir(parents=True, exist_ok=True)
        draw_page(page, pictures)


if __name__ == "__main__":
    main()

"""Run the code of pages; renew the pictures they show and the output they quote.

    python docs/draw.py                              # all pages of the course
    python docs/draw.py docs/course/04-hmc.md        # these pages

Pictures go to `docs/images/`, those of the course to its folder there. An indented
block right after a block of code quotes what the code prints, and is written anew.
"""

import contextlib
import importlib.util
import io
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
_NEEDS = re.compile(r"<!-- needs (\w+) -->")
_BLOCK = re.compile(
    r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
_QUOTED = re.compile(r"\n\n(?P<output>(?: {4}\S.*\n(?:\n(?= {4}))?| {5,}.*\n)+)")
_FIRST_LINES = 4  # front matter may come before
_WIDTH = 88


def python_blocks(text: str) -> list[tuple[int, str]]:
    """(line number, code) of each Python block, but those right after NO_RUN."""
    return [
        (text.count("\n", 0, match.start()) + 2, textwrap.dedent(match["code"]))
        for match in _blocks(text)
    ]


def _blocks(text: str) -> list[re.Match[str]]:
    found = _BLOCK.finditer(text)
    return [
        each for each in found if not text[: each.start()].rstrip("\n").endswith(NO_RUN)
    ]


def is_slow(text: str) -> bool:
    """Whether one of the page's first lines is `<!-- slow -->`."""
    return SLOW in text.splitlines()[:_FIRST_LINES]


def needed(text: str) -> str | None:
    """A library, or "data", that not everybody has, if the first lines say so."""
    found = _NEEDS.search("\n".join(text.splitlines()[:_FIRST_LINES]))
    return found[1] if found else None


def is_there(name: str) -> bool:
    """Whether a library is installed, or "data": a folder of data sets is named."""
    if name == "data":
        return bool(os.environ.get("MARGINAX_DATA"))
    return importlib.util.find_spec(name) is not None


def run_page(page: Path) -> list[str]:
    """Run the page's blocks in order, in one namespace and in the present directory.

    Returns:
        What each block printed.
    """
    namespace, printed = {"__name__": "__main__"}, []
    for line, code in python_blocks(page.read_text(encoding="utf-8")):
        padded = "\n" * (line - 1) + code  # a traceback then shows the line of the page
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(padded, str(page), "exec"), namespace)  # noqa: S102 our own documentation
        printed.append(output.getvalue())
    return printed


def with_outputs(text: str, printed: list[str]) -> str:
    """The page, quoting what its blocks printed where it quoted them before."""
    for block, output in reversed(list(zip(_blocks(text), printed, strict=True))):
        quoted = _QUOTED.match(text, block.end())
        if quoted and output:
            text = (
                text[: quoted.start("output")]
                + _indented(output)
                + text[quoted.end("output") :]
            )
    return text


def _indented(output: str) -> str:
    """Lines that fit the page; what is folded goes on below the text of its line."""
    lines = []
    for line in output.rstrip().splitlines():
        label = re.match(r"\S+  +", line)
        hang = " " * (label.end() if label else 0)
        lines += textwrap.wrap(line, _WIDTH, subsequent_indent=hang) or [""]
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


def draw_page(page: Path, pictures: Path) -> None:
    """Run a page elsewhere; keep its pictures with 256 colours, a third of the size."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        began = time.process_time()
        text = page.read_text(encoding="utf-8")
        page.write_text(with_outputs(text, run_page(page)), encoding="utf-8")
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

"""For the reference: doctests in docstrings are code, look like it and fit the page."""

import doctest
import re
import subprocess
import sys
import textwrap
from typing import Any

import griffe

_EXAMPLE = re.compile(
    r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*|\n(?P=indent) +\S.*)*", re.MULTILINE
)
_PROMPT = ">>> "
_WIDTH = 88


class Doctests(griffe.Extension):
    """Put a fence around every doctest, before the docstring is taken for Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(found: re.Match[str]) -> str:
    examples = doctest.DocTestParser().get_examples(textwrap.dedent(found[0]))
    code = "".join(_narrow(each.source) + _folded(each.want) for each in examples)
    return textwrap.indent(f"```pycon\n{code}```", found["indent"])


def _narrow(source: str) -> str:
    """With prompts; lines of the source code may be wider than a page."""
    width = _WIDTH - len(_PROMPT)
    if max(map(len, source.splitlines())) > width:
        ruff = [sys.executable, "-m", "ruff", "format", f"--line-length={width}", "-"]
        run = subprocess.run(ruff, input=source, capture_output=True, text=True)
        source = run.stdout or source
    return _PROMPT + "\n... ".join(source.splitlines()) + "\n"


def _folded(want: str) -> str:
    lines = want.splitlines()
    for i, line in enumerate(lines):
        if len(line) > _WIDTH:
            lines[i] = textwrap.fill(line, _WIDTH, subsequent_indent="  ")
    return "".join(f"{line}\n" for line in lines)

"""Every Python block in the README and the documentation runs."""

import re
from pathlib import Path

import pytest
from docs.draw import NO_RUN, SLOW, is_slow, is_there, needed, python_blocks, run_page, with_outputs

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(page for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")] if page.exists())
WIDEST = 88  # characters of code that fit the column of a page
PICTURE = re.compile(r"!\[[^\]]+\]\(\.\./images/course/([\w.-]+)\)")


def _case(page: Path):
    marks = [pytest.mark.slow] if is_slow(page.read_text(encoding="utf-8")) else []
    return pytest.param(page, id=page.relative_to(ROOT).as_posix(), marks=marks)


@pytest.mark.parametrize("page", [_case(page) for page in PAGES])
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    library = needed(page.read_text(encoding="utf-8"))
    if library is not None and not is_there(library):
        pytest.skip(f"{library} is not there")
    run_page(page)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES])
def test_code_fits_the_page(page):
    code = code_lines(page.read_text(encoding="utf-8"))
    assert [f"line {number}: {line}" for number, line in code if len(line) > WIDEST] == []


def test_code_lines_are_fenced_or_indented():
    text = "# Page\n\n  ```bash\n  ls\n  ```\n\ntext\n\n    shown\n- item\n  of a list\n"
    assert code_lines(text) == [(4, "ls"), (9, "shown")]


def code_lines(text: str) -> list[tuple[int, str]]:
    """(line number, code) of every line in a fence, or indented as an output is."""
    lines, fence = [], None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fence = len(line) - len(line.lstrip()) if fence is None else None
        elif fence is not None or line.startswith("    "):
            lines.append((number, line[4 if fence is None else fence :]))
    return lines


def test_blocks_are_found_with_their_lines():
    text = "# Page\n\n```python\na = 1\n```\n\n- item\n\n  ```python\n  b = a\n  ```\n\n```bash\nls\n```\n"
    assert python_blocks(text) == [(4, "a = 1\n"), (10, "b = a\n")]


def test_marked_blocks_are_left_out():
    assert python_blocks(f"{NO_RUN}\n```python\n1 / 0\n```\n```python\nok = 1\n```\n") == [(6, "ok = 1\n")]


def test_outputs_are_quoted_anew_where_they_were_quoted():
    code = "```python\nprint(1)\n```\n"
    text = f"{code}\n    old\n\n      older\n\ntext\n\n{code}\n    - no output\n\n"
    text += f"{NO_RUN}\n{code}\n    kept\n\n{code}text\n"
    note = "note       " + "word " * 20
    new = with_outputs(text, [f"a\n\n{note}\n", "", "nowhere to go\n"])
    folded = f"    note       {('word ' * 15).strip()}\n{' ' * 15}{('word ' * 5).strip()}\n"
    assert new == text.replace("    old\n\n      older\n", f"    a\n\n{folded}")


def test_a_page_is_slow_if_its_first_lines_say_so():
    assert is_slow(f"{SLOW}\n# Page\n\ntext\n")
    assert not is_slow("# Page\n\ntext\n")
    assert not is_slow(f"# Page\n\nSome pages are slow.\n\n{SLOW}\n")


def test_a_page_says_what_it_needs():
    assert needed("<!-- needs torch -->\n# Page\n") == "torch"
    assert needed("# Page\n\ntext\n\nmore\n<!-- needs torch -->\n") is None


def test_pictures_of_the_course_are_drawn_by_the_pages_that_show_them():
    shown = set()
    for page in ROOT.glob("docs/course/*.md"):
        text = page.read_text(encoding="utf-8")
        for name in PICTURE.findall(text):
            assert f'savefig("{name}"' in text, f"{page.name} shows {name} but does not draw it"
            shown.add(name)
    there = {path.name for path in ROOT.glob("docs/images/course/*.png")}
    assert shown == there, "run docs/draw.py, and delete pictures that no page shows"

"""The guides say what is so: tables made from records, a method of at most 60 lines that is right."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.harness import figures, reproductions
from tests.test_docs import python_blocks

from marginax.reproduce import classics, experiment

ROOT = Path(__file__).resolve().parent.parent
NEW_METHOD = python_blocks((ROOT / "docs" / "new-method.md").read_text(encoding="utf-8"))[0][1]


def test_reproductions_are_those_of_the_records():
    written = reproductions.PAGE.read_text(encoding="utf-8")
    assert written == reproductions.page(), "docs/reproductions is out of date: run `python -m benchmarks figures`"
    pictures = reproductions.PICTURES.read_text(encoding="utf-8")
    assert pictures == reproductions.pictures(), "pictures are out of date: run `python -m benchmarks figures`"


def test_every_classic_has_a_lesson_and_a_picture():
    pictures = reproductions.pictures()
    for name in classics():
        assert experiment(name).lesson, f"{name} says no lesson"
        assert re.search(rf"`marginax reproduce {name} --budget (small|full)`", pictures), f"{name} has no record"


def test_figures_that_are_not_reached_are_named():
    rows = [{"what": what, "verdict": verdict} for what, verdict in (("a", "matched"), ("b", "not reached"), ("c", ""))]
    full = ("x-full", {"name": "x", "budget": "full", "rows": rows})
    without = ("y-full", {"name": "y", "budget": "full", "rows": rows[2:]})
    small = ("x-small", {"name": "x", "budget": "small", "rows": rows})
    found = reproductions.standing([full, without, small])
    assert "| x | full |  | 1 | 1: b |" in found
    assert "| y |" not in found
    assert "| small |" not in found
    assert "nothing is claimed" in reproductions.standing([small])


def test_figures_are_those_of_the_records():
    written = figures.PAGE.read_text(encoding="utf-8")
    assert written == figures.page(), "docs/figures.md is out of date: run `python -m benchmarks figures`"


def test_costs_are_those_of_the_record():
    text = figures.CHOOSING.read_text(encoding="utf-8")
    assert text == figures.with_costs(text), "docs/choosing.md is out of date: run `python -m benchmarks figures`"


def test_missed_targets_are_shown_as_missed(tmp_path):
    record = json.loads((figures.RESULTS / "import_time.json").read_text(encoding="utf-8"))
    record["targets"][0] |= {"ratio": 9.0, "met": False}
    (tmp_path / "import_time.json").write_text(json.dumps(record), encoding="utf-8")
    assert "| marginax / jax, equinox, optax | 9 | at most 1.5 | **missed** |" in figures.page(tmp_path)


def test_the_new_method_has_at_most_60_lines_of_code():
    assert len([line for line in NEW_METHOD.splitlines() if line.strip()]) <= 60


@pytest.mark.slow
def test_the_new_method_keeps_all_promises():
    import marginax as mx

    namespace: dict[str, Any] = {"__name__": "__main__"}  # as in the documentation: a class is registered once
    exec(NEW_METHOD, namespace)  # noqa: S102 our own documentation
    method = namespace["EllipticalSlice"](num_warmup=10, num_samples=20)
    mx.testing.check_method(method, mx.testing.linear_regression(3))

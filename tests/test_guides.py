"""The guides say what is so: tables made from records, a method of at most 60 lines that is right."""

import json
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.harness import figures, reproductions
from tests.test_docs import python_blocks

from marginax.reproduce import Record, classics, experiment

ROOT = Path(__file__).resolve().parent.parent
name = attrgetter("name")
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
    beside = {"ours": 2.0, "published": 1.0, "source": "a book"}
    verdicts = (("a", "matched"), ("b", "not reached"), ("c", ""))
    rows = [{"what": what, "verdict": verdict} | beside for what, verdict in verdicts]
    full = ("x-full", {"name": "x", "budget": "full", "rows": rows})
    without = ("y-full", {"name": "y", "budget": "full", "rows": rows[2:]})
    small = ("x-small", {"name": "x", "budget": "small", "rows": rows})
    found = reproductions.standing([full, without, small], {"x, full: b": "it was too late"})
    assert "| x | full |  | 1 | 1 |" in found
    assert "| x, full: b | 2 | 1 (a book) | it was too late |" in found
    assert "| y |" not in found
    assert "| small |" not in found
    assert "nothing is claimed" in reproductions.standing([small])


def test_of_what_is_not_reached_is_said_why():
    reasons = json.loads(reproductions.REASONS.read_text(encoding="utf-8"))
    records = {path.parent.name: Record.read(path.parent) for path in reproductions.FOLDER.glob("*/record.json")}
    missed = {
        f"{record.name}, {record.budget}: {row.what}"
        for record in records.values()
        if record is not None
        for row in record.rows
        if row.verdict == "not reached"
    }
    assert set(reasons) == missed, "docs/reproductions/reasons.json must give a reason for each of these"


@pytest.mark.parametrize("folder", sorted(path.parent for path in reproductions.FOLDER.glob("*/record.json")), ids=name)
def test_records_have_the_settings_of_their_experiments(folder):
    """Those of small budgets may wait for their next run; the page says so of them."""
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    assert folder.name == f"{record['name']}-{record['budget']}"
    command = f"marginax reproduce {record['name']} --budget {record['budget']} --out docs/reproductions/{folder.name}"
    small = record["budget"] == "small"
    assert small or not reproductions.is_outdated(record), f"settings have changed since: run `{command}` again"


def test_records_with_other_settings_are_shown_as_such():
    settings = experiment("bayes-opt").settings["small"]
    record = {"name": "bayes-opt", "budget": "small", "date": "", "rows": [], "remarks": ["a remark"]}
    assert reproductions.OUTDATED not in reproductions.section("x", record | {"settings": settings})
    changed = settings | {"num_seeds": 100}
    assert f"- {reproductions.OUTDATED}" in reproductions.section("x", record | {"settings": changed})


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

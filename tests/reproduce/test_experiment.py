"""Experiments: what is done is not done again, and the record says what was measured."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

import marginax as mx
from marginax.reproduce import Experiment, Record, Row, reproduce
from marginax.testing.conformance import InterruptAt

X = np.linspace(-1, 1, 20)[:, None]
SETTINGS = {"small": {"num_epochs": 5}, "full": {"num_epochs": 10}}


def slope(*, fails=False):
    """A line through the origin, and its slope; it may end after the fit."""

    def run(bench):
        model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian())
        method = mx.infer.MAP(num_epochs=bench.settings["num_epochs"], batch_size=None)
        posterior = bench.fit("line", model, (X, 3 * X[:, 0]), method, key=0)
        if fails:
            raise KeyboardInterrupt
        error = bench.measure("error", lambda: float(np.abs(posterior.predict(X).mean - 3 * X[:, 0]).mean()))
        return [Row("error", error, 0.1, 0.2, "a book", seconds=bench.seconds(posterior))], ["none"], {}, plt.figure()

    return Experiment("slope", "A slope", SETTINGS, run)


def test_the_record_is_what_was_measured(tmp_path):
    record = reproduce(slope(), tmp_path)
    stored = json.loads((tmp_path / "record.json").read_text())
    assert stored["rows"][0]["ours"] == record.row("error").ours > 0
    assert stored["rows"][0]["verdict"] == record.rows[0].verdict
    assert stored["settings"] == {"num_epochs": 5}
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_done_is_not_done_again(tmp_path):
    said = []
    with pytest.raises(KeyboardInterrupt):
        reproduce(slope(fails=True), tmp_path, callback=said.append)
    first = reproduce(slope(), tmp_path, callback=said.append)
    again = reproduce(slope(), tmp_path, callback=said.append)
    assert [text for text in said if not text.startswith("done")] == ["fitting line", "measuring error"]
    assert again.rows == first.rows


def test_an_interrupted_fit_is_not_measured(tmp_path):
    """The first Ctrl-C ends a fit with what it has; the experiment ends there too, and goes on the next time."""

    def run(bench):
        model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian())
        method, hooks = (
            mx.infer.MAP(num_epochs=40, batch_size=None),
            [InterruptAt((("train", 20),))] if interrupts else [],
        )
        posterior = bench.fit("line", model, (X, X[:, 0]), method, key=0, hooks=hooks, chunk_size=10)
        steps = bench.measure("steps", lambda: posterior.record.num_steps["train"])
        return [Row("steps", float(steps))], [], {}, plt.figure()

    experiment, interrupts = Experiment("steps", "Steps", SETTINGS, run), True
    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, tmp_path, progress=False)
    interrupts = False
    assert reproduce(experiment, tmp_path, progress=False).row("steps").ours == 40


def test_a_folder_of_other_settings_is_refused(tmp_path):
    reproduce(slope(), tmp_path)
    with pytest.raises(FileExistsError, match="holds another reproduction"):
        reproduce(slope(), tmp_path, "full")


@pytest.mark.parametrize(
    ("ours", "lower_is_better", "verdict"),
    [(1.0, True, "better"), (1.9, True, "matched"), (2.3, True, "not reached"), (2.3, False, "better")],
)
def test_verdicts_allow_two_standard_errors(ours, lower_is_better, verdict):
    assert Row("it", ours, 0.1, 2.0, lower_is_better=lower_is_better).verdict == verdict


def test_tables_have_what_was_published_beside():
    rows = (Row("error", 1.234567, 0.1, 2.0, "a book"), Row("rest", 3.0), Row("error again", 1.0, None, 2.5, "a paper"))
    record = Record("it", "small", rows, {}, ("a remark",))
    header, lines = record.table()
    assert len(header) == len(lines[0]) == len(lines[1])
    assert lines[0][:4] == ["error", "1.235", "0.1", "2 (1)"]
    assert lines[1][2:4] == ["", ""]
    assert lines[2][3] == "2.5 (2)"
    assert record.notes == ["(1) a book", "(2) a paper", "a remark"]


def test_unknown_names_and_budgets_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"name must be one of .*digits"):
        mx.reproduce.experiment("nothing")
    with pytest.raises(ValueError, match="budget must be one of small, full"):
        reproduce(slope(), tmp_path, "huge")

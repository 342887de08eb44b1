"""Experiments: what is done is not done again, and the record says what was measured."""

import json
import time
from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest
from matplotlib.figure import Figure

import marginax as mx
from marginax.files import RunDirectory
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
        return [Row("error", error, 0.1, 0.2, "a book", seconds=bench.seconds(posterior))], ["none"], {}, Figure()

    return Experiment("slope", "A slope", SETTINGS, run)


def test_the_record_is_what_was_measured(tmp_path):
    record = reproduce(slope(), tmp_path, "full")
    stored = json.loads((tmp_path / "record.json").read_text())
    assert stored["rows"][0]["ours"] == record.row("error").ours > 0
    assert stored["rows"][0]["verdict"] == record.rows[0].verdict
    assert stored["settings"] == {"num_epochs": 10}
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_small_budget_has_no_verdict(tmp_path):
    record = reproduce(slope(), tmp_path)
    assert record.row("error").published == 0.2
    assert record.row("error").verdict == json.loads((tmp_path / "record.json").read_text())["rows"][0]["verdict"] == ""


def test_a_finished_fit_is_kept_without_its_data(tmp_path):
    """And is found again by an experiment that goes on; one that has not finished keeps what it needs."""
    reproduce(slope(), tmp_path)
    kept = {path.relative_to(tmp_path).parts[3] for path in tmp_path.glob("run/fits/line/**/*") if path.is_file()}
    assert "posterior" in kept
    assert not any(name == "setup" or name.startswith("checkpoint") for name in kept)


def test_tasks_in_turn_are_kept_without_their_data(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    tasks = mx.continual.permuted_tasks((x, y), (x, y), 2, seed=0)
    model = mx.Model(mx.nets.MLP(2, (), 2, key=0), mx.likelihoods.Categorical())
    accuracies = []

    def run(bench):
        for _ in range(2):  # the second time from what was kept
            place, method = bench.run.run("tasks").path, mx.infer.VI(num_epochs=2)
            found = mx.continual.learn(model, tasks, method, key=0, directory=place, progress=False)
            bench.keep_all("tasks", found.posteriors)
            accuracies.append(found.accuracy)
        return [], [], {}, Figure()

    reproduce(Experiment("tasks", "Tasks", SETTINGS, run), tmp_path, progress=False)
    np.testing.assert_array_equal(*accuracies)
    assert not list(tmp_path.glob("run/fits/tasks/*/setup"))
    assert len(list(tmp_path.glob("run/fits/tasks/*/posterior"))) == 2


def test_a_run_that_has_not_finished_keeps_its_data(tmp_path):
    place = RunDirectory(tmp_path / "run")
    place.create({"size": 3})
    with pytest.raises(ValueError, match="has not finished"):
        place.keep_result()
    assert place.read().get("size") == 3


def test_seconds_of_a_session_that_was_killed_are_kept(tmp_path):
    """They are written after each thing that was done, not only in the end."""
    seen = []

    def run(bench):
        bench.measure("number", lambda: time.sleep(0.02) or 1.0)
        seen.append(bench.run.value("seconds")["seconds"])
        return [], [], {}, Figure()

    reproduce(Experiment("naps", "Naps", SETTINGS, run), tmp_path)
    assert seen[0] >= 0.02


def test_warnings_of_fits_are_among_the_remarks(tmp_path):
    def run(bench):
        model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian())
        posterior = bench.fit("line", model, (X, X[:, 0]), mx.infer.MAP(num_epochs=2), key=0)
        warned = eqx.tree_at(lambda p: p.record, posterior, replace(posterior.record, warnings=("it is late",)))
        for name in ("one", "two"):
            bench.run.run(name).path.mkdir(parents=True)
            bench.keep_all(name, (warned,))
        return [], ["a remark"], {}, Figure()

    record = reproduce(Experiment("late", "Late", SETTINGS, run), tmp_path, progress=False)
    assert record.remarks[0] == "a remark"
    of_line, *others = record.remarks[1:] or ("",)
    assert of_line.startswith("Warning of line: training took only 2 steps")
    assert others == ["Warning of one, two: it is late"]


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
        return [Row("steps", float(steps))], [], {}, Figure()

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


@pytest.mark.parametrize(("of_runs", "verdict"), [(None, "matched"), (0.01, "not reached")])
def test_verdicts_are_by_runs_where_there_are_several(of_runs, verdict):
    assert Row("it", 1.1, 0.1, 1.0, error_of_runs=of_runs).verdict == verdict


def test_one_run_has_no_verdict_beside_the_same_examples():
    wrong = np.array([[0.0, 1.0, 0.0, 1.0]])
    assert Row.of_runs("it", wrong, 0.9, "a paper").verdict == ""
    several = Row.of_runs("it", np.concatenate([wrong, wrong[:, ::-1], np.ones((1, 4))]), 0.9, "a paper")
    assert several.error_of_runs == pytest.approx(np.std([0.5, 0.5, 1.0], ddof=1) / np.sqrt(3))
    assert several.standard_error == pytest.approx(0.0)
    assert several.verdict == "matched"


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

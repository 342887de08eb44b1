"""Several experiments in a row: what is done is left alone, failures keep nobody from running, time is foreseen."""

import json
import webbrowser
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import marginax as mx
from marginax.cli import app
from marginax.files import FileError
from marginax.reproduce import Experiment, Record, Row, reproduce, reproduce_series
from marginax.reproduce.series import Forecast, foreseen_seconds, is_finished, standing

NOWHERE = Path("nowhere")


def made(name, *, ran=None, error=None, budget="small"):
    """An experiment that measures one number, or ends in an error after that."""

    def run(bench):
        value = bench.measure("number", lambda: (ran if ran is not None else []).append(name) or 1.0)
        if error is not None:
            raise error
        return [Row("number", value, 0.1, 1.5, "a < book")], ["tried <nothing> else"], {}, Figure()

    return Experiment(name, f"The {name}", {budget: {"sizes": (1, 2)}}, run)


def series(experiments, root, said=None, **options):
    said = [] if said is None else said
    found, failures = reproduce_series(experiments, root, records=NOWHERE, callback=said.append, **options)
    return found, failures, said


@pytest.fixture
def registered(monkeypatch):
    """Experiments in place of ours, for the command line."""

    def register(*experiments):
        by_name = {each.name: each for each in experiments}
        monkeypatch.setattr(mx.reproduce, "experiment", by_name.__getitem__)
        monkeypatch.setattr(mx.reproduce, "names", lambda: tuple(by_name))
        monkeypatch.setattr(mx.reproduce, "classics", lambda: tuple(by_name))
        monkeypatch.setattr("marginax.report.reproduction.experiment", by_name.__getitem__)

    return register


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_what_is_finished_is_not_run_again(tmp_path):
    ran = []
    experiments = [made("one", ran=ran), made("two", ran=ran)]
    reproduce(experiments[0], tmp_path / "one-small")
    written = (tmp_path / "one-small" / "record.json").stat().st_mtime_ns
    found, failures, said = series(experiments, tmp_path)
    assert ran == ["one", "two"]
    assert list(found) == ["one", "two"]
    assert not failures
    assert (tmp_path / "one-small" / "record.json").stat().st_mtime_ns == written
    assert said[0].startswith("1 of 2 are done; 1 left")
    assert said[-1] == "nothing is left"


def test_a_record_of_other_settings_or_another_version_is_not_finished(tmp_path):
    experiment = made("one")
    record = reproduce(experiment, tmp_path)
    assert is_finished(record, experiment, "small")
    assert is_finished(Record.read(tmp_path), experiment, "small")
    assert not is_finished(record, replace(experiment, settings={"small": {"sizes": (1, 3)}}), "small")
    assert not is_finished(replace(record, version="0.0"), experiment, "small")
    assert not is_finished(None, experiment, "small")


def test_one_that_fails_keeps_nobody_from_running(tmp_path):
    found, failures, said = series([made("one", error=OSError("no data")), made("two")], tmp_path)
    assert list(found) == ["two"]
    assert str(failures["one"]) == "no data"
    assert "one failed: no data" in said


def test_after_an_interrupt_it_says_what_is_left_and_goes_on(tmp_path):
    ran, said = [], []
    with pytest.raises(KeyboardInterrupt):
        series(
            [made("one", ran=ran), made("two", ran=ran, error=KeyboardInterrupt()), made("three", ran=ran)],
            tmp_path,
            said,
        )
    assert said[-1].endswith("two, three")
    assert standing(tmp_path, "one", "small").startswith("20")
    assert standing(tmp_path, "two", "small") == "begun"
    assert standing(tmp_path, "three", "small") == ""
    found, _, _ = series([made("one", ran=ran), made("two", ran=ran), made("three", ran=ran)], tmp_path)
    assert list(found) == ["one", "two", "three"]
    assert ran == ["one", "two", "three"]  # what was measured before the interrupt is not measured again


def test_seconds_are_those_of_all_sessions(tmp_path):
    with pytest.raises(OSError, match="once"):
        reproduce(made("one", error=OSError("once")), tmp_path)
    record = reproduce(made("one"), tmp_path)
    again = reproduce(made("one"), tmp_path)
    assert 0 < record.seconds < again.seconds


def write(folder, name, *, seconds=0.0, fits=()):
    rows = tuple(Row(f"row {i}", 1.0, seconds=each) for i, each in enumerate(fits))
    (folder / f"{name}-small").mkdir()
    record = Record(name, "small", rows, {}, seconds=seconds)
    (folder / f"{name}-small" / "record.json").write_text(record.to_json())


def test_time_is_foreseen_by_earlier_records_and_by_the_pace_of_this_session(tmp_path):
    write(tmp_path, "one", seconds=120.0)
    write(tmp_path, "two", fits=(60.0, 60.0, 300.0))  # of a version that kept no sum: two rows of one fit, and another
    assert foreseen_seconds(tmp_path, "two", "small") == 360.0
    forecast = Forecast(tmp_path, "small")
    assert (
        forecast.text(["one", "two", "three"]) == "3 left, about 8 min and 1 without an earlier record: one, two, three"
    )
    forecast.note("one", 240.0)  # twice as long as foreseen
    assert forecast.text(["two"]) == "1 left, about 12 min: two"


def test_damaged_records_are_named(tmp_path):
    (tmp_path / "record.json").write_text("{}")
    with pytest.raises(FileError, match=r"record\.json: damaged"):
        Record.read(tmp_path)


def test_the_list_says_title_budgets_and_whether_a_record_is_there(tmp_path, registered):
    registered(made("one"), made("two"))
    reproduce(made("one"), tmp_path / "one-small")
    shown = run("list", "--out", tmp_path, "--records", NOWHERE)
    assert "The one" in shown.stdout
    assert "small: no record" in shown.stdout.splitlines()[1]
    found = json.loads(run("list", "--out", tmp_path, "--records", NOWHERE, "--json").stdout)["experiments"]
    assert found["one"]["budgets"]["small"].startswith("20")
    assert found["two"] == {"title": "The two", "classic": True, "budgets": {"small": ""}}


def test_open_shows_one_file_with_table_and_picture(tmp_path, registered, monkeypatch):
    ran, opened = [], []
    registered(made("one", ran=ran, budget="full"))
    monkeypatch.setattr(webbrowser, "open", opened.append)
    for _ in range(2):  # the second time it is only shown
        found = run("one", "--budget", "full", "--out", tmp_path / "one-full", "--open")
        assert found.exit_code == 0, found.output
    assert ran == ["one"]
    assert opened == [(tmp_path / "one-full" / "page.html").resolve().as_uri()] * 2
    page = (tmp_path / "one-full" / "page.html").read_text()
    assert "1.00\xa0±\xa00.10" in page
    assert "1.5 (a &lt; book)" in page
    assert "tried &lt;nothing&gt; else" in page
    assert 'src="data:image/png;base64,iVBOR' in page
    assert "better" in page


def test_a_series_by_command_ends_with_an_error_if_one_failed(tmp_path, registered, monkeypatch):
    opened = []
    registered(made("one"), made("two", error=OSError("no data")))
    monkeypatch.setattr(webbrowser, "open", opened.append)
    failed = run("classics", "--out", tmp_path, "--records", NOWHERE, "--open", "--json")
    assert failed.exit_code == 1
    found = json.loads(failed.stdout)
    assert list(found["done"]) == ["one"]
    assert found["done"]["one"]["better"] == 0  # a small budget has no verdicts
    assert found["failed"] == {"two": "no data"}
    assert "The one" in (tmp_path / "classics-small.html").read_text()
    assert len(opened) == 1
    registered(made("one"), made("two"))
    done = run("classics", "--out", tmp_path, "--records", NOWHERE)
    assert done.exit_code == 0
    assert "1 of 2 are done" in done.output


def test_an_interrupted_series_says_how_to_go_on(tmp_path, registered):
    registered(made("one", error=KeyboardInterrupt()), made("two"))
    ended = run("classics", "--out", tmp_path, "--records", NOWHERE)
    assert ended.exit_code == 130
    assert "one, two" in ended.output
    assert f"marginax reproduce classics --budget small --out {tmp_path} goes on" in ended.output


def test_a_budget_that_nobody_has_is_named():
    found = run("classics", "--budget", "huge")
    assert found.exit_code == 1
    assert "budget must be one of small, full" in found.output


def test_classics_are_marked_once():
    assert set(mx.reproduce.classics()) < set(mx.reproduce.names())
    assert {"fashion-ood", "guo-calibration", "combined"} < set(mx.reproduce.classics())
    assert list(mx.reproduce.names()) == sorted(mx.reproduce.names())

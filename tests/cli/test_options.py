"""Settings of the command line, and what it says of time and rows."""

import io
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from marginax import estimators
from marginax.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Names, a column that gives the answer away, and one that does not."""
    rng = np.random.default_rng(0)
    height = rng.normal(170, 10, size=80)
    weight = height - 100 + rng.normal(scale=3, size=80)
    names = [f"person {i}" for i in range(80)]
    badge = np.where(np.arange(80) == 3, np.nan, 123456700.0 + np.arange(80))  # with a gap, so that pandas reads floats
    table = pd.DataFrame({"name": names, "badge": badge, "height": height, "pounds": weight / 0.4536, "weight": weight})
    path = tmp_path_factory.mktemp("options") / "people.csv"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def fitted(people):
    out = people.parent / "run"
    cheap = (
        "--method",
        "map",
        "--option",
        "num_epochs=40",
        "-o",
        "batch_size=16",
        "--hidden",
        "",
        "--ignore",
        "pounds",
        "--ignore",
        "badge",
    )
    found = run("fit", people, "--target", "weight", *cheap, "--out", out)
    assert found.exit_code == 0, found.output
    return out, found


def test_settings_of_the_method_are_used(fitted, people):
    again = json.loads(run("evaluate", fitted[0], people, "--json").stdout)
    assert again["rows"] == 16
    report = (fitted[0] / "report.html").read_text(encoding="utf-8")
    assert "num_epochs=40" in report
    assert "pounds" not in report.split("<table")[1]


def test_the_time_is_that_of_the_clock_and_adds_up(fitted):
    line = next(line for line in fitted[1].stdout.splitlines() if line.startswith("time"))
    total, parts = line.removeprefix("time").strip().split(" s (")
    seconds = [float(part.split()[1]) for part in parts.rstrip(")").split(", ")]
    assert [part.split()[0] for part in parts.rstrip(")").split(", ")] == ["start", "fit", "judge", "report"]
    np.testing.assert_allclose(sum(seconds), float(total), atol=0.3)


def test_predictions_say_whose_they_are_with_few_digits(fitted, people):
    text = run("predict", fitted[0], people).stdout
    found = pd.read_csv(io.StringIO(text))
    assert list(found.columns)[:4] == ["name", "badge", "pounds", "mean"]
    pd.testing.assert_frame_equal(found[["name", "badge", "pounds"]], pd.read_csv(people)[["name", "badge", "pounds"]])
    assert max(len(cell) for line in text.splitlines()[1:] for cell in line.split(",")[3:]) < 15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--option", "num_epochs=40"), "--option needs a method"),
        (("--method", "map", "--option", "epochs=40"), "a name out of num_epochs"),
        (("--method", "map", "--option", "num_epochs=many"), "--option num_epochs must be a number"),
        (("--method", "map", "--option", "num_epochs=0"), "num_epochs must be"),
        (("--ignore", "punds"), "ignore 'punds' is no column of .* .did you mean 'pounds'"),
        (("--ignore", "weight"), "ignore must not hold the target"),
        (("--prior", "gauss"), "--prior must be one of flat, horseshoe, laplace, normal, .*'normal.0.5.', got 'gauss'"),
        (("--prior", "normal(wide)"), "--prior: scale of normal must be a number, got 'wide'"),
        (("--prior", "normal(-1)"), "--prior: scale of normal must be > 0, got -1"),
        (("--prior", "flat(1)"), "--prior flat has no setting 'scale'"),
        (("--split-by", "height"), "--split-by must be time:COLUMN or group:COLUMN, got 'height'"),
        (("--split-by", "time:hight"), "no column 'hight' .did you mean 'height'"),
        (("--split-by", "time:name"), "column 'name' must hold dates or numbers, got texts"),
        (("--split-by", "group:weight"), "--split-by must not be the target"),
        (("--time-limit", "0"), "--time-limit must be > 0 seconds, got 0"),
    ],
)
def test_what_cannot_be_meant_is_said(arguments, message, people):
    found = run("fit", people, "--target", "weight", *arguments)
    assert found.exit_code == 1
    assert re.search(message, found.stderr), found.stderr


def test_version():
    found = run("--version")
    assert found.exit_code == 0
    assert found.stdout.startswith("marginax ")


def test_a_second_command_in_one_process_counts_its_own_time_only(monkeypatch):
    import time

    from marginax.cli.output import Output

    Output()
    time.sleep(0.05)
    clock = Output().clock
    clock.note("start")
    assert clock.total < 0.05


def test_the_time_limit_is_that_of_the_estimator(people, tmp_path):
    options = ("--target", "weight", "--method", "map", "--hidden", "", "--time-limit", 30, "--out", tmp_path / "run")
    assert run("fit", people, *options).exit_code == 0
    assert estimators.load(tmp_path / "run" / "fit").time_limit == 30


@pytest.fixture(scope="module")
def final(people):
    """Held out by time, then fitted to all rows, with another prior."""
    out = people.parent / "final"
    options = ("--method", "map", "--hidden", "", "--ignore", "pounds", "--prior", "laplace(0.4)", "--all-rows")
    found = run("fit", people, "--target", "weight", *options, "--split-by", "time:badge", "--out", out, "--json")
    assert found.exit_code == 0, found.output
    return out, json.loads(found.stdout)


def test_the_latest_rows_are_held_out(final):
    assert any(
        "16 of 80 rows, the latest by 'badge', from 123456764.0 on, are held out" in n for n in final[1]["notes"]
    )
    assert final[1]["held_out_rows"] == 16
    assert final[1]["fitted_rows"] == 80


def test_all_rows_are_fitted_after_judging_and_predict(final, people):
    out = final[0]
    judged, fitted = (estimators.load(out / name) for name in ("fit", "all_rows"))
    assert (judged.posterior_.spec.num_examples, fitted.posterior_.spec.num_examples) == (64, 80)
    assert repr(fitted.model_.prior) == repr(judged.model_.prior) == "Laplace(scale=0.4)"
    table = pd.read_csv(people)
    said = pd.read_csv(io.StringIO(run("predict", out, people).stdout))["mean"]
    np.testing.assert_allclose(said, fitted.predict(table[["badge", "height"]]), rtol=1e-5)
    rmse = np.sqrt(np.mean((judged.predict(table[["badge", "height"]])[64:] - table["weight"][64:]) ** 2))
    np.testing.assert_allclose(final[1]["scores"]["rmse"]["value"], rmse, rtol=1e-4)
    assert "before all rows were fitted" in (out / "report.html").read_text(encoding="utf-8")
    assert "all 80 rows of" in run("evaluate", out, people).stderr


def test_a_fit_of_all_rows_that_was_interrupted_is_resumed(final, people, tmp_path):
    out = tmp_path / "cut"
    shutil.copytree(final[0], out)
    shutil.rmtree(out / "all_rows")
    assert "is not finished: `marginax resume" in run("predict", out, people).stderr
    again = json.loads(run("resume", out, "--json").stdout)
    assert again["fitted_rows"] == 80
    assert run("predict", out, people).stdout == run("predict", final[0], people).stdout

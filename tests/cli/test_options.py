"""Settings of the command line, and what it says of time and rows."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

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
    assert again["rows"] == 80
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

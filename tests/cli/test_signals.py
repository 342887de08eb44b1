"""Ctrl-C and SIGTERM anywhere in a command: never lost, said, and the work goes on."""

import json
import os
import shutil
import signal
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import marginax.cli.judging
import marginax.estimators.estimator
import marginax.report
from marginax.cli import app
from marginax.files import FileError, RunDirectory

CHEAP = ("--method", "map", "--hidden", "")
CODES = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "terminated")}
PLACES = {
    "preparing": (marginax.estimators.estimator, "fit"),
    "scoring": (marginax.cli.judging, "evaluate_scores"),
    "reporting": (marginax.report, "write_report"),
}


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def houses(tmp_path_factory):
    rng = np.random.default_rng(0)
    size = rng.uniform(50, 150, size=40).round(1)
    path = tmp_path_factory.mktemp("signals") / "houses.csv"
    pd.DataFrame({"size": size, "price": (3 * size + rng.normal(size=40)).round(1)}).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def whole(houses):
    out = houses.parent / "whole"
    return json.loads(run("fit", houses, "--target", "price", *CHEAP, "--out", out, "--json").stdout)["scores"]


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("place", PLACES)
def test_a_signal_anywhere_is_said_and_the_command_that_is_named_goes_on(
    houses, whole, tmp_path, monkeypatch, place, number
):
    def kill(*args, **options):
        os.kill(os.getpid(), number)
        time.sleep(5)

    command = ("fit", houses, "--target", "price", *CHEAP, "--out", tmp_path / "run", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(*PLACES[place], kill)
        found = run(*command)
    code, word = CODES[number]
    assert (found.exit_code, found.stdout) == (code, "")
    if place == "preparing":
        assert found.stderr.endswith(f"{word}: nothing is kept yet, the same command begins again\n")
        assert not (tmp_path / "run").exists()
        again = run(*command)
    else:
        assert f"{word}: `marginax resume {tmp_path / 'run'}` goes on" in found.stderr
        again = run("resume", tmp_path / "run", "--json")
    assert json.loads(again.stdout)["scores"] == whole


@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_an_interrupt_that_is_swallowed_comes_again(houses, tmp_path, monkeypatch, seconds):
    real = marginax.cli.judging.evaluate_scores

    def swallow(*args, **options):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            pass
        time.sleep(seconds)
        return real(*args, **options)

    monkeypatch.setattr(marginax.cli.judging, "evaluate_scores", swallow)
    began = time.perf_counter()
    found = run("fit", houses, "--target", "price", *CHEAP, "--out", tmp_path / "run")
    assert found.exit_code == 130
    assert "goes on" in found.stderr
    assert time.perf_counter() - began < 20


def test_a_run_that_was_killed_before_its_fit_began_is_begun_by_the_same_command(houses, whole, tmp_path):
    command = ("fit", houses, "--target", "price", *CHEAP, "--out", tmp_path / "run", "--json")
    run(*command)
    shutil.rmtree(tmp_path / "run" / "fit" / "run")
    (tmp_path / "run" / "report.html").unlink()
    early = run("resume", tmp_path / "run")
    assert early.exit_code == 1
    assert "begins again" in early.stderr
    assert json.loads(run(*command).stdout)["scores"] == whole


def test_a_run_in_use_is_refused_in_one_line(houses, tmp_path):
    run("fit", houses, "--target", "price", *CHEAP, "--out", tmp_path / "run")
    with RunDirectory(tmp_path / "run").owned():
        found = run("resume", tmp_path / "run")
    assert found.exit_code == 1
    assert f"is in use by process {os.getpid()} on" in found.stderr


def test_reports_and_predictions_are_replaced_at_once(houses, tmp_path, monkeypatch):
    run("fit", houses, "--target", "price", *CHEAP, "--out", tmp_path / "run")
    before = (tmp_path / "run" / "report.html").read_text("utf-8")
    (tmp_path / "predictions.csv").write_text("old")

    def full(fd, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("marginax.files.single.write_all", full)
        for command in (
            ("report", tmp_path / "run"),
            ("predict", tmp_path / "run", houses, "--out", tmp_path / "predictions.csv"),
        ):
            found = run(*command)
            assert found.exit_code == 1
            assert "no space left on device; nothing was written" in found.stderr
    assert (tmp_path / "run" / "report.html").read_text("utf-8") == before
    assert (tmp_path / "predictions.csv").read_text() == "old"
    with pytest.raises(FileError, match="regular file"):
        marginax.report.write_page(tmp_path, "title", [])

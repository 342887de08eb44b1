"""The command line, on two tiny runs that the tests share."""

import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import marginax as mx
from marginax.cli import app
from marginax.evaluate import rmse

CHEAP = ("--method", "map", "--hidden", "")


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def houses(folder):
    """Numbers: prices that are linear in size and differ by town; one size is missing."""
    rng = np.random.default_rng(0)
    size, town = rng.uniform(50, 150, size=80), rng.choice(["Oslo", "Rome"], size=80)
    price = 3 * size + 40 * (town == "Oslo") + rng.normal(scale=5, size=80)
    table = pd.DataFrame({"size": size.round(1), "town": town, "price": price.round(1)})
    table.loc[3, "size"] = np.nan
    path = folder / "houses.csv"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def house_run(folder, houses):
    out = folder / "house-run"
    found = run("fit", houses, "--target", "price", *CHEAP, "--out", out, "--json", "--level", 0.8)
    assert found.exit_code == 0, found.output
    return out, json.loads(found.stdout)


@pytest.fixture(scope="module")
def flower_run(folder):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 2))
    table = pd.DataFrame({"width": x[:, 0], "length": x[:, 1], "kind": np.where(x.sum(axis=1) > 0, "rose", "lily")})
    table.to_csv(folder / "flowers.csv", index=False)
    out = folder / "flower-run"
    found = run("fit", folder / "flowers.csv", "--target", "kind", *CHEAP, "--out", out, "--quiet")
    assert found.exit_code == 0, found.output
    return out, table, found


def test_fit_prints_one_json_object_and_nothing_else(house_run):
    out, found = house_run
    assert found["run"] == str(out)
    assert found["held_out_rows"] == 16
    assert found["method"].startswith("MAP(")
    assert found["scores"]["rmse"]["value"] < 10
    assert found["scores"]["rmse"]["standard_error"] > 0
    low, high = found["scores"]["coverage"]["interval"]
    assert 0 <= low <= found["scores"]["coverage"]["value"] <= high <= 1
    assert any("chosen at random with seed 0" in note for note in found["notes"])


def test_fit_writes_a_report_in_the_units_of_the_table(house_run):
    out, found = house_run
    text = Path(found["report"]).read_text(encoding="utf-8")
    assert Path(found["report"]) == out / "report.html"
    assert "price, predicted from houses.csv" in text
    assert "80% coverage" in text
    assert "town=Oslo" in text
    sizes = re.findall(r'data-name="inputs">size (\d+\.?\d*)', text)
    assert sizes
    assert all(50 <= float(size) <= 150 for size in sizes)


def test_the_report_knows_the_training_rows_and_can_be_written_again(house_run, folder):
    """Prices are linear, and so is the network: a linear model is as good, and a constant far worse."""
    text = Path(house_run[1]["report"]).read_text(encoding="utf-8")
    row = re.search(r'data-name="score">RMSE</td>(.*?)</tr>', text)[1]
    found = {
        name: float(re.split("\\s", cell)[0]) for name, cell in re.findall(r'data-name="([^w"]*)">(.*?)</td>', row)
    }
    assert abs(found["linear"] - found["this fit"]) < 0.3 * found["this fit"]
    assert found["constant"] > 5 * found["this fit"]
    assert run("report", house_run[0], "--out", folder / "again.html").exit_code == 0
    assert row in (folder / "again.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_warnings_name_options_of_the_command_line(houses, folder):
    """Four networks that are hardly trained: another seed would give another answer, and more of them help."""
    options = (*CHEAP, "--chains", 4, "--option", "num_epochs=2", "--out", folder / "wary")
    found = run("fit", houses, "--target", "price", *options, "--json")
    assert found.exit_code == 0, found.output
    notes = [note for note in json.loads(found.stdout)["notes"] if "another would change" in note]
    assert len(notes) == 1  # and the estimator's own is not there beside it
    assert "--chains" in notes[0]
    assert "num_chains" not in notes[0]
    assert "--chains" in (folder / "wary" / "report.html").read_text(encoding="utf-8")


def test_quiet_prints_the_scores_only(flower_run):
    shown = flower_run[2]
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:-1]] == ["accuracy", "nll", "brier", "ece", "auroc"]
    assert shown.stderr == ""


def test_predict_writes_means_and_intervals(house_run, houses, folder):
    out = folder / "predictions.csv"
    assert run("predict", house_run[0], houses, "--out", out).exit_code == 0
    found, table = pd.read_csv(out), pd.read_csv(houses)
    assert list(found.columns) == ["mean", "std", "lower", "upper", "epistemic", "aleatoric"]
    assert len(found) == len(table)
    assert (found["lower"] < found["mean"]).all()
    assert (found["mean"] < found["upper"]).all()
    whole = table["size"].notna()
    assert np.sqrt(np.mean((found["mean"] - table["price"])[whole] ** 2)) < 10
    wider = run("predict", house_run[0], houses, "--level", 0.99)
    again = pd.read_csv(io.StringIO(wider.stdout))
    assert (again["upper"] > found["upper"]).all()
    np.testing.assert_allclose(again["mean"], found["mean"])


def test_an_empty_row_of_a_sheet_moves_no_prediction(house_run, houses, folder):
    """It is left out, and who a row is stays beside its prediction."""
    named = pd.read_csv(houses).iloc[4:8].assign(id=["a1", "a2", "a3", "a4"])
    pd.concat([named.iloc[:1], named.iloc[:1].map(lambda _: None), named.iloc[1:]]).to_excel(
        folder / "gap.xlsx", index=False
    )
    named.to_csv(folder / "whole.csv", index=False)
    sheet, whole = (
        json.loads(run("predict", house_run[0], folder / name, "--json").stdout) for name in ("gap.xlsx", "whole.csv")
    )
    assert [row["id"] for row in sheet["predictions"]] == ["a1", "a2", "a3", "a4"]
    assert sheet["predictions"] == whole["predictions"]


def test_predict_gives_probabilities_of_classes(flower_run, folder):
    out, table, _ = flower_run
    table.drop(columns="kind").to_csv(folder / "new.csv", index=False)
    found = run("predict", out, folder / "new.csv", "--json")
    rows = pd.DataFrame(json.loads(found.stdout)["predictions"])
    np.testing.assert_allclose(rows["p(lily)"] + rows["p(rose)"], 1, atol=1e-6)
    assert (rows["label"] == table["kind"]).mean() > 0.9
    np.testing.assert_allclose(rows["probability"], rows[["p(lily)", "p(rose)"]].max(axis=1))
    assert (rows["entropy"] >= rows["aleatoric"] - 1e-6).all()


def test_evaluate_agrees_with_the_predictions(house_run, houses, folder):
    table = pd.read_csv(houses)
    predictions = pd.read_csv(io.StringIO(run("predict", house_run[0], houses).stdout))
    found = json.loads(run("evaluate", house_run[0], houses, "--training-rows", "--json").stdout)
    expected = rmse((predictions["mean"].to_numpy(), predictions["std"].to_numpy()), table["price"].to_numpy())
    assert found["rows"] == 80
    np.testing.assert_allclose(found["scores"]["rmse"]["value"], float(expected), rtol=1e-6)


def test_evaluate_leaves_out_rows_without_target(house_run, houses, folder):
    table = pd.read_csv(houses)
    table.loc[:9, "price"] = np.nan
    table.to_csv(folder / "gaps.csv", index=False)
    found = json.loads(run("evaluate", house_run[0], folder / "gaps.csv", "--training-rows", "--json").stdout)
    assert found["rows"] == 70
    assert found["notes"][0] == "note: 10 of 80 rows have no 'price' and are left out"


def test_evaluate_knows_the_rows_of_training_again(house_run, houses, folder):
    """Also where a file writes numbers in another way and rows in another order."""
    table = pd.read_csv(houses).iloc[::-1]
    table["size"] = table["size"].map("{:.3f}".format)
    table.to_csv(folder / "again.csv", index=False)
    found = json.loads(run("evaluate", house_run[0], folder / "again.csv", "--level", 0.8, "--json").stdout)
    assert found["rows"] == 16
    assert found["training_rows"] == 64
    assert "64 of 80 rows were in training; scores are for the other 16" in found["notes"][-1]
    for name, score in house_run[1]["scores"].items():
        np.testing.assert_allclose(found["scores"][name]["value"], score["value"], rtol=1e-4)
    table["price"] += 1
    table.to_csv(folder / "again.csv", index=False)  # other targets: not the same rows
    assert json.loads(run("evaluate", house_run[0], folder / "again.csv", "--json").stdout)["rows"] == 80


def test_report_is_written_again(house_run, folder):
    found = run("report", house_run[0], "--out", folder / "again" / "report.html")
    assert found.stdout.strip() == str(folder / "again" / "report.html")
    assert (folder / "again" / "report.html").read_text("utf-8") == (house_run[0] / "report.html").read_text("utf-8")


def test_resume_of_a_finished_run_gives_its_scores_again(house_run):
    out, before = house_run
    found = json.loads(run("resume", out, "--json").stdout)
    assert found["scores"] == before["scores"]


def test_an_interrupted_fit_says_how_to_go_on(houses, folder, monkeypatch, house_run):
    """Ctrl-C makes the driver return a posterior that is not finished, or raises before there is one."""
    from marginax.estimators import BayesianRegressor

    def stop(self, X, y, *, directory):
        (Path(directory) / "run" / "setup").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(BayesianRegressor, "fit", stop)
    found = run("fit", houses, "--target", "price", *CHEAP, "--out", folder / "stopped run")
    assert found.exit_code == 130
    assert "`marginax resume '" in found.stderr
    early = run("predict", folder / "stopped run", houses)
    assert early.exit_code == 1
    assert "is not finished: `marginax resume" in early.stderr


def test_methods_are_compared_on_the_same_rows(houses, folder, house_run):
    out = folder / "comparison"
    arguments = ("compare", houses, "--target", "price", "--methods", "map,mle", "--hidden", "", "--out", out)
    found = json.loads(run(*arguments, "--json").stdout)
    assert list(found["methods"]) == ["MAP", "MLE"]
    for name, score in house_run[1]["scores"].items():
        if name not in ("coverage", "interval_score"):  # those are of another level
            np.testing.assert_allclose(found["methods"]["MAP"]["scores"][name]["value"], score["value"], rtol=1e-4)
    assert "predicted from houses.csv by 2 methods" in (out / "report.html").read_text(encoding="utf-8")
    again = run(*arguments)  # nothing is fitted twice
    assert again.exit_code == 0
    assert "…" not in again.stdout  # 80 columns
    assert again.stdout.splitlines()[0].split() == ["method", "rmse", "nll", "coverage", "seconds"]
    assert f"{found['methods']['MLE']['seconds']:.1f}" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "prize"), "error: target 'prize' is no column of"),
        (
            ("--target", "price", "--test-fraction", "2"),
            "error: --test-fraction must be strictly between 0 and 1",
        ),
        (("--target", "price", "--hidden", "a"), "error: --hidden must be widths such as 50,50, got 'a'"),
        (
            ("--target", "price", "--method", "magic"),
            "error: method must be an object from",
        ),
        (("--target", "price", "--level", "90"), "error: --level must be strictly between 0 and 1, got 90"),
    ],
)
def test_errors_are_one_line_and_leave_nothing_behind(houses, folder, arguments, message):
    out = folder / "nothing"
    found = run("fit", houses, *arguments, "--out", out, "--quiet")
    assert found.exit_code == 1
    assert found.stderr.startswith(message)
    assert found.stderr.count("\n") == 1
    assert not out.exists()


def test_the_traceback_is_there_when_asked_for(houses, folder):
    plain, debug = (run("evaluate", folder / "no run", houses, *more) for more in ((), ("--debug",)))
    assert plain.exit_code == debug.exit_code == 1
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


def test_a_run_is_never_overwritten(house_run, houses):
    found = run("fit", houses, "--target", "price", *CHEAP, "--out", house_run[0])
    assert found.exit_code == 1
    assert "is not empty: choose another --out" in found.stderr


def test_wrong_usage_is_exit_code_2(houses):
    assert run("fit", houses).exit_code == 2
    assert run("nonsense").exit_code == 2


def test_methods_are_listed(houses):
    found = json.loads(run("methods", "--json").stdout)["methods"]
    assert {"NUTS", "Laplace", "MILE"} <= {entry["name"] for entry in found}
    assert all(entry["use_when"] and entry["cost"] for entry in found)


@pytest.mark.slow
def test_doctor_checks_a_fit_against_the_exact_posterior():
    found = run("doctor", "--json")
    checks = {each["name"]: each["good"] for each in json.loads(found.stdout)["checks"]}
    assert found.exit_code == 0
    assert checks == {"arithmetic": True, "linear fit": True, "files": True}


def test_doctor_notices_a_wrong_fit():
    from marginax.cli.self_check import _against_exact

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    assert not _against_exact(x, y, np.zeros(20), np.ones(20), 0.0).good


def test_help_loads_no_heavy_library():
    heavy = "blackjax matplotlib numpyro pandas sklearn scipy.stats"
    code = (
        "import sys; from typer.testing import CliRunner; from marginax.cli import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def test_held_out_rows_survive_storage(tmp_path):
    from marginax.cli.runs import HeldOut

    dates = pd.to_datetime(["2020-01-01", None, "2021-05-06"])
    x = pd.DataFrame(
        {"a": [1, 2, 3], "b": [1.5, np.nan, 2.0], "c": ["x", None, "z"], "d": dates, "e": [True, False, True]}
    )
    HeldOut(x, pd.Series(["u", "v", "u"], name="y"), "y", "marginax fit", "a.csv", 0.9).save(tmp_path / "run")
    found = HeldOut.load(tmp_path / "run")
    assert found.x["a"].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(found.x["b"], x["b"])
    assert found.x["c"].isna().tolist() == [False, True, False]
    assert found.x["d"].equals(x["d"].astype(found.x["d"].dtype))
    assert found.x["e"].dtype == bool
    assert found.y.tolist() == ["u", "v", "u"]


@pytest.mark.parametrize(
    ("name", "task"),
    [
        pytest.param("student_t", "regression", marks=pytest.mark.slow),
        pytest.param("Poisson", "regression", marks=pytest.mark.slow),
        ("bernoulli", "c"),
    ],
)
def test_a_likelihood_is_chosen_by_name_and_tells_the_task(tmp_path, name, task):
    x = np.linspace(-1, 1, 60)
    target = (x > 0).astype(int) if task == "c" else np.random.default_rng(0).poisson(np.exp(x)) % 4
    pd.DataFrame({"x": x, "y": target}).to_csv(tmp_path / "counts.csv", index=False)
    found = run(
        "fit", tmp_path / "counts.csv", "--target", "y", *CHEAP, "--likelihood", name, "--out", tmp_path / "run"
    )
    assert found.exit_code == 0, found.output
    estimator = mx.estimators.load(tmp_path / "run" / "fit")
    assert type(estimator.model_.likelihood).__name__.lower() == name.replace("_", "").lower()
    assert hasattr(estimator, "classes_") == (task == "c")


def test_an_unknown_likelihood_is_named_with_those_that_there_are(houses):
    found = run("fit", houses, "--target", "price", "--likelihood", "normal")
    assert found.exit_code == 1
    assert "likelihood must be one of bernoulli, categorical, censored_gaussian, evidential" in found.stderr


@pytest.mark.slow
def test_a_fit_that_is_interrupted_is_resumed_to_the_same_scores(houses, folder):
    """By Ctrl-C, in a process of its own."""
    program = [sys.executable, "-m", "marginax.cli"]
    options = ("--target", "price", "--method", "sghmc", "--hidden", "8", "--json")

    def begin(out):
        return subprocess.Popen(
            [*program, "fit", houses, *options, "--out", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    whole, _ = begin(folder / "whole").communicate(timeout=300)
    cut = begin(folder / "cut")
    while not list((folder / "cut" / "fit" / "run").glob("checkpoint-*")) and cut.poll() is None:
        time.sleep(0.05)
    cut.send_signal(signal.SIGINT)
    _, said = cut.communicate(timeout=300)
    assert cut.returncode == 130
    assert "interrupted: `marginax resume" in said
    again = subprocess.run([*program, "resume", folder / "cut", "--json"], capture_output=True, text=True, timeout=300)
    assert json.loads(again.stdout)["scores"] == json.loads(whole)["scores"]


@pytest.mark.slow
def test_concrete_is_fitted_as_well_as_published(data_dir, folder):
    """By default, against MC dropout (Gal & Ghahramani, 2016): RMSE 5.23, NLL 3.04."""
    from marginax.data import load_uci

    data = load_uci("concrete")
    pd.DataFrame(data.x).assign(strength=data.y).to_csv(folder / "concrete.csv", index=False)
    found = run("fit", folder / "concrete.csv", "--target", "strength", "--out", folder / "concrete-run", "--json")
    scores = json.loads(found.stdout)["scores"]
    assert scores["rmse"]["value"] <= 5.23
    assert scores["nll"]["value"] <= 3.04
    assert (folder / "concrete-run" / "report.html").exists()


def test_many_rows_of_texts_are_held_out(tmp_path):
    """More than a document of JSON may hold."""
    from marginax.cli.runs import HeldOut

    texts = pd.Series([f"a text of some length, number {i}" for i in range(300_000)])
    texts[7] = None
    x = pd.DataFrame({"a": texts, "b": texts})
    HeldOut(x, pd.Series(np.arange(300_000.0), name="y"), "y", "marginax fit", "a.csv", 0.9).save(tmp_path / "run")
    again = HeldOut.load(tmp_path / "run")
    assert again.x["a"].isna().sum() == 1
    assert again.x["a"].dropna().tolist() == texts.dropna().tolist()


def test_predictions_hold_no_formulas(flower_run, folder):
    table = pd.read_csv(folder / "flowers.csv").drop(columns="kind").head(2)
    table["name"] = ["=cmd|' /C calc'!A0", "plain"]
    table.to_csv(folder / "formulas.csv", index=False)
    found = run("predict", flower_run[0], folder / "formulas.csv")
    assert found.exit_code == 0, found.stderr
    assert pd.read_csv(io.StringIO(found.stdout))["name"].tolist() == ["'=cmd|' /C calc'!A0", "plain"]

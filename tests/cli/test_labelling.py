"""Labels on the command line: by several people, wrong, missing."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from marginax.cli import app
from marginax.cli.runs import HeldOut

CHEAP = ("--method", "map", "--hidden", "")
SKILLS = {"ann": 0.95, "bob": 0.8, "cy": 0.55}


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def flipped(kinds):
    return np.where(kinds == "rose", "lily", "rose")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Flowers by three people who err, with one label of which a fifth is wrong, and with few labels."""
    folder, rng = tmp_path_factory.mktemp("labels"), np.random.default_rng(0)
    x = rng.normal(size=(160, 2))
    truth = np.where(x.sum(axis=1) > 0, "rose", "lily")
    table = pd.DataFrame({"width": x[:, 0].round(3), "length": x[:, 1].round(3), "truth": truth})
    answers = {
        name: np.where(rng.uniform(size=160) < skill, truth, flipped(truth)).astype(object)
        for name, skill in SKILLS.items()
    }
    crowd = table.assign(**answers)
    crowd[list(SKILLS)] = crowd[list(SKILLS)].mask(rng.uniform(size=(160, 3)) < 0.3)
    silent = crowd[list(SKILLS)].isna().all(axis=1)
    crowd.loc[silent, "bob"] = answers["bob"][silent]
    crowd.loc[:1, list(SKILLS)] = None  # nobody was asked
    crowd.to_csv(folder / "crowd.csv", index=False)
    wrong = rng.uniform(size=160) < 0.2
    table.assign(kind=np.where(wrong, flipped(truth), truth)).to_csv(folder / "noisy.csv", index=False)
    table["truth"] = table["truth"].mask(rng.uniform(size=160) < 0.8)
    table.to_csv(folder / "few.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def crowd_run(folder):
    arguments = ("--annotators", "ann, bob,cy", "--ignore", "truth", *CHEAP, "--out", folder / "crowd-run", "--json")
    found = run("fit", folder / "crowd.csv", *arguments)
    assert found.exit_code == 0, found.output
    return folder / "crowd-run", json.loads(found.stdout)


@pytest.fixture(scope="module")
def noisy_run(folder):
    arguments = ("--target", "kind", "--noisy-labels", "--ignore", "truth", *CHEAP, "--out", folder / "noisy-run")
    found = run("fit", folder / "noisy.csv", *arguments, "--json", "--all-rows")
    assert found.exit_code == 0, found.output
    return folder / "noisy-run", json.loads(found.stdout)


def test_annotators_are_ranked_as_they_are(crowd_run, folder):
    _, found = crowd_run
    quality = found["annotators"]
    assert list(quality) == list(SKILLS)
    assert quality["ann"]["accuracy"] > quality["bob"]["accuracy"] > quality["cy"]["accuracy"]
    assert any("2 of 160 rows have no label by any annotator, the first is row 1" in note for note in found["notes"])
    kept = HeldOut.load(crowd_run[0])
    given = pd.read_csv(folder / "crowd.csv")[list(SKILLS)]
    assert sum(each["labels"] for each in quality.values()) == given.iloc[kept.fitted_rows].notna().to_numpy().sum()


def test_scores_are_of_each_label_that_was_given(crowd_run, folder):
    path, found = crowd_run
    kept = HeldOut.load(path)
    given = pd.read_csv(folder / "crowd.csv")[list(SKILLS)].iloc[kept.rows]
    assert found["held_out_rows"] == len(given)
    share, (low, high) = (found["scores"]["accuracy"][key] for key in ("value", "interval"))
    assert abs(share * given.notna().to_numpy().sum() % 1) < 1e-6  # right ones out of all labels
    assert 0.6 < low < share < high < 0.95  # nobody can do better than the people whose labels these are


def test_the_table_of_labels_names_rows_of_the_file(crowd_run, folder):
    path, found = crowd_run
    labels, table = pd.read_csv(found["labels"]), pd.read_csv(folder / "crowd.csv")
    assert labels["row"].tolist() == list(range(3, 161))  # 1 is the first; the first two have no label
    assert set(labels["part"]) == {"fit", "held out"}
    rows = table.iloc[labels["row"] - 1].reset_index(drop=True)
    assert (labels["label"] == rows["truth"]).mean() > 0.9
    for name in SKILLS:
        assert (labels[f"wrong({name})"].isna() == rows[name].isna()).all()
        certain = labels[f"wrong({name})"] > 0.99
        assert (rows[name] != rows["truth"])[certain].mean() > 0.9
    report = (path / "report.html").read_text(encoding="utf-8")
    assert "Who is how good" in report
    assert re.search(r">ann<.*>bob<.*>cy<", report, re.DOTALL)


def test_the_best_annotator_is_asked_next(crowd_run):
    report = (crowd_run[0] / "report.html").read_text(encoding="utf-8")
    asked = re.findall(r'data-name="ask">([^<]*)<', report)
    assert asked
    assert asked.count("cy") < len(asked) / 4  # who guesses is the last to be asked


def test_new_rows_need_no_labels(crowd_run, folder):
    path, _ = crowd_run
    table = pd.read_csv(folder / "crowd.csv")
    table[["width", "length"]].to_csv(folder / "new.csv", index=False)
    found = run("predict", path, folder / "new.csv", "--json")
    assert found.exit_code == 0, found.output
    predicted = pd.DataFrame(json.loads(found.stdout)["predictions"])
    assert (predicted["label"] == table["truth"]).mean() > 0.9
    found = json.loads(run("evaluate", path, folder / "crowd.csv", "--json").stdout)
    assert found["training_rows"] == len(HeldOut.load(path).fitted_rows)  # which are known again by all labels
    arguments = ("evaluate", path, folder / "crowd.csv", "--training-rows", "--json")
    of_labels, of_truth = (json.loads(run(*arguments, *more).stdout) for more in ((), ("--truth", "truth")))
    assert of_truth["scores"]["accuracy"]["value"] > of_labels["scores"]["accuracy"]["value"] + 0.1


def test_labels_that_are_wrong_are_named(noisy_run, folder):
    path, found = noisy_run
    labels, table = pd.read_csv(found["labels"]), pd.read_csv(folder / "noisy.csv")
    assert labels["row"].tolist() == list(range(1, 161))
    wrong = (table["kind"] != table["truth"]).to_numpy()
    assert abs(found["expected_wrong"] - wrong.sum()) < 4 * np.sqrt(labels["wrong"].mul(1 - labels["wrong"]).sum() + 4)
    first = labels["wrong"].to_numpy().argsort()[::-1][:15]
    assert wrong[first].mean() > 0.8
    assert (labels["given"] == table["kind"]).all()
    report = (path / "report.html").read_text(encoding="utf-8")
    rows = [int(each) for each in re.findall(r'data-name="row">(\d+)</td><td[^>]*data-name="given"', report)]
    assert len(rows) == 15
    assert wrong[np.array(rows) - 1].mean() > 0.8


def test_predictions_are_of_the_true_label_and_scores_of_given_ones(noisy_run, folder):
    path, found = noisy_run
    judged = run("evaluate", path, folder / "noisy.csv", "--truth", "truth", "--training-rows", "--json")
    assert judged.exit_code == 0, judged.output
    truth = json.loads(judged.stdout)["scores"]["accuracy"]["value"]
    assert truth > 0.93
    assert found["scores"]["accuracy"]["value"] < truth
    assert found["fitted_rows"] == 160


def test_rows_without_a_label_are_left_out_or_used(folder):
    few = pd.read_csv(folder / "few.csv")
    num = int(few["truth"].isna().sum())
    left_out = run("fit", folder / "few.csv", "--target", "truth", *CHEAP, "--out", folder / "left-out", "--json")
    assert any(
        f"{num} of 160 rows have no 'truth' and are left out" in each for each in json.loads(left_out.stdout)["notes"]
    )
    arguments = ("--target", "truth", "--unlabelled", 0.1, *CHEAP, "--out", folder / "used", "--json")
    used = run("fit", folder / "few.csv", *arguments)
    assert used.exit_code == 0, used.output
    found = json.loads(used.stdout)
    assert any(f"{num} of 160 rows have no 'truth'" in note and "none is held out" in note for note in found["notes"])
    kept = HeldOut.load(folder / "used")
    assert few["truth"].iloc[kept.rows].notna().all()
    assert len(kept.rows) == found["held_out_rows"] == json.loads(left_out.stdout)["held_out_rows"]
    report = (folder / "used" / "report.html").read_text(encoding="utf-8")
    assert f"{160 - len(kept.rows)} to fit" in report


def test_numbers_with_gross_errors_are_named(folder):
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, size=80)
    y = 2 * x + rng.normal(scale=0.1, size=80)
    y[[10, 40, 70]] += [3, -3, 4]
    pd.DataFrame({"x": x.round(3), "y": y.round(3)}).to_csv(folder / "numbers.csv", index=False)
    arguments = ("--target", "y", "--likelihood", "outliers", *CHEAP, "--out", folder / "numbers-run", "--json")
    found = run("fit", folder / "numbers.csv", *arguments)
    assert found.exit_code == 0, found.output
    labels = pd.read_csv(json.loads(found.stdout)["labels"])
    assert sorted(labels["row"][labels["wrong"].argsort()[::-1][:3]]) == [11, 41, 71]
    assert "gross errors" in (folder / "numbers-run" / "report.html").read_text(encoding="utf-8")


MISTAKES = {
    "unknown": (("crowd", "--annotators", "ann,dan"), "annotator 'dan' is no column of .*did you mean 'ann'"),
    "one": (
        ("crowd", "--annotators", "ann"),
        "--annotators must be two columns or more.*got only 'ann'.*--noisy-labels",
    ),
    "twice": (("crowd", "--annotators", "ann,ann"), "each named once"),
    "other classes": (("crowd", "--annotators", "ann,bob,width"), "whole numbers or texts, got"),
    "both": (("crowd", "--target", "truth", "--annotators", "ann,bob"), "not both"),
    "exclude": (("noisy", "--target", "kind", "--noisy-labels", "--unlabelled", 1), "exclude each other"),
    "numbers": (
        ("noisy", "--target", "width", "--noisy-labels", "-l", "gaussian"),
        "got --likelihood gaussian: .*outliers",
    ),
    "task": (
        ("noisy", "--target", "width", "--noisy-labels", "--task", "regression"),
        "got --task regression: .*outliers",
    ),
    "in two ways": (("mixed", "--annotators", "a,b,c"), "must choose among the same classes, got 0, 1 from 'b'"),
    "infinite": (("mixed", "--annotators", "d,b"), "annotator 'd' must give labels, .* got inf"),
    "weight": (("few", "--target", "truth", "--unlabelled", -1), "weight >= 0"),
    "empty": (("empty", "--annotators", "a,b"), "annotator 'b' has no label in any row"),
    "disjoint": (
        ("disjoint", "--annotators", "a,b"),
        "must choose among the same classes, got no, yes from .a. and 0, 1",
    ),
    "nobody": (("few", "--annotators", "truth,width"), "whole numbers or texts"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_said_at_once(mistake, folder):
    pd.DataFrame({"x": [1.0, 2.5, 3.0], "a": ["u", "v", "u"], "b": [None] * 3}).to_csv(
        folder / "empty.csv", index=False
    )
    pd.DataFrame({"x": [1.0, 2.5, 3.0], "a": ["yes", "no", "yes"], "b": [1, 0, None]}).to_csv(
        folder / "disjoint.csv", index=False
    )
    (folder / "mixed.csv").write_text("x,a,b,c,d\n1.0,yes,1,yes,inf\n2.5,no,0,no,1\n3.0,yes,1,yes,0\n4.0,1,0,no,1\n")
    (name, *arguments), message = MISTAKES[mistake]
    found = run("fit", folder / f"{name}.csv", *arguments, *CHEAP, "--out", folder / "never")
    assert found.exit_code == 1
    assert re.search(message, found.stderr), found.stderr
    assert not (folder / "never").exists()

"""Folders of images through the command line, on one small run that the tests share."""

import io
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.data.pictures import write_labels, write_pictures
from typer.testing import CliRunner

import marginax as mx
from marginax.cli import app, imaging
from marginax.cli.image_runs import ImageRun
from marginax.data import ImageFiles

CHEAP = ("--method", "map", "--option", "num_epochs=15", "--option", "batch_size=16", "--hidden", 16)


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("images")
    labels = write_pictures(place / "pictures", 60, size=(16, 18))
    labels["p001.png"] = {"top": "bottom", "bottom": "top"}[labels["p001.png"]]  # somebody was wrong
    write_labels(place / "labels.csv", labels | {"gone.png": "top"})
    write_labels(place / "new.csv", write_pictures(place / "new", 10, size=(16, 18), seed=1))
    return place


@pytest.fixture(scope="module")
def image_run(folder):
    out = folder / "run"
    found = run("fit", folder / "pictures", "--labels", folder / "labels.csv", *CHEAP, "--out", out, "--json")
    assert found.exit_code == 0, found.output
    return out, json.loads(found.stdout)


def test_fit_judges_held_out_images_and_says_what_was_found(image_run):
    out, found = image_run
    assert found["held_out_rows"] == 12
    assert found["scores"]["accuracy"]["value"] > 0.9
    assert any("1 label is without a file: gone.png" in note for note in found["notes"])
    kept = ImageRun.load(out)
    assert not set(kept.held_out.names) & set(kept.fitted.names)
    assert len(kept.fitted) == 48


def test_the_report_shows_images_as_pictures(image_run):
    text = Path(image_run[1]["report"]).read_text(encoding="utf-8")
    assert "The most uncertain images" in text
    pictures = re.findall(r'<img alt="(p\d+\.png): predicted (\w+)[^"]*" src="data:image/png;base64,(\w+)', text)
    kept = ImageRun.load(image_run[0])
    assert len(pictures) >= 12
    assert {name for name, *_ in pictures} <= set(kept.held_out.names)


def test_the_first_pictures_are_the_most_uncertain_ones(image_run):
    kept = ImageRun.load(image_run[0])
    prediction = kept.posterior(image_run[0]).predict(kept.held_out.pixels())
    order = np.argsort(-prediction.entropy, kind="stable")
    text = Path(image_run[1]["report"]).read_text(encoding="utf-8")
    shown = re.findall(r'<img alt="(p\d+\.png)', text)[: len(order)]
    assert shown == [kept.held_out.names[i] for i in order]


def test_the_report_can_be_written_again(image_run, folder):
    assert run("report", image_run[0], "--out", folder / "again.html").exit_code == 0
    pictures = [
        re.findall(r'base64,([\w+/=]+)"', path.read_text(encoding="utf-8"))
        for path in (folder / "again.html", Path(image_run[1]["report"]))
    ]
    assert pictures[0] == pictures[1]


def test_predict_names_files_and_needs_no_labels(image_run, folder):
    found = run("predict", image_run[0], folder / "new")
    assert found.exit_code == 0, found.output
    table = pd.read_csv(io.StringIO(found.stdout))
    assert list(table.columns) == ["file", "label", "probability", "entropy", "epistemic", "aleatoric", *CLASSES]
    labels = pd.read_csv(folder / "new.csv").set_index("file")["label"]
    assert (table["label"] == labels[table["file"]].to_numpy()).mean() > 0.9
    np.testing.assert_allclose(table[CLASSES].sum(axis=1), 1, atol=1e-6)


CLASSES = ["p(bottom)", "p(top)"]


def test_evaluate_leaves_out_images_of_training(image_run, folder):
    found = run("evaluate", image_run[0], folder / "new", "--labels", folder / "new.csv", "--json")
    assert found.exit_code == 0, found.output
    values = json.loads(found.stdout)
    assert (values["rows"], values["training_rows"]) == (10, 0)
    assert values["scores"]["accuracy"]["value"] > 0.9
    again = run("evaluate", image_run[0], folder / "pictures", "--labels", folder / "labels.csv", "--json")
    values = json.loads(again.stdout)
    assert (values["rows"], values["training_rows"]) == (12, 48)
    assert values["scores"] == image_run[1]["scores"]


def test_classes_that_were_not_in_training_are_refused(image_run, folder, tmp_path):
    labels = dict.fromkeys(write_pictures(tmp_path / "x", 4, size=(16, 18)), "sideways")
    found = run("evaluate", image_run[0], tmp_path / "x", "--labels", write_labels(tmp_path / "x.csv", labels))
    assert found.exit_code == 1
    assert "classes that were not in training: sideways" in found.output


def test_large_images_are_made_smaller_and_it_is_said(tmp_path):
    for name in ("a", "b"):
        write_pictures(tmp_path / "large" / name, 6, size=(100, 80), seed=ord(name), ending=".jpg", colour=True)
    found = run("fit", tmp_path / "large", *CHEAP[:2], "-o", "num_epochs=1", "--out", tmp_path / "run", "--json")
    assert found.exit_code == 0, found.output
    assert ImageRun.load(tmp_path / "run").fitted.shape == (3, 64, 51)
    assert any("Images are resized to 64 x 51 pixels" in note for note in json.loads(found.stdout)["notes"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--target", "x"), "--target is for tables"),
        (("--all-rows",), "--all-rows is for tables"),
        (("--image-size", "0"), "--image-size must be pixels such as 32 or 32x48, got '0'"),
        (("--image-size", "8"), "16 x 16 pixels or more, got 8"),
        (("--hidden", "8,8"), "--hidden must be one width for images"),
        (("--level", "1.5"), "--level must be strictly between"),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, tuple) else "",
)
def test_options_that_cannot_be_meant_are_refused(folder, tmp_path, options, says):
    found = run("fit", folder / "pictures", "--labels", folder / "labels.csv", *options, "--out", tmp_path / "run")
    assert found.exit_code != 0
    assert says in found.output
    assert not (tmp_path / "run").exists()


def test_options_of_images_are_refused_for_tables(folder, tmp_path):
    found = run("fit", folder / "labels.csv", "--target", "label", "--image-size", "28", "--out", tmp_path / "run")
    assert found.exit_code == 2
    assert "is for a folder of" in found.output


def test_images_that_do_not_fit_are_read_batch_by_batch_and_an_interrupted_run_goes_on(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(imaging, "_MOST_IN_MEMORY", 0)
    fit, sources = mx.infer.fit, []

    def ended(model, source, method, **options):
        sources.append(source)
        return fit(model, source, method, **options | {"hooks": [PressesOnce()], "chunk_size": 10})

    monkeypatch.setattr(mx.infer, "fit", ended)
    out = tmp_path / "run"
    found = run("fit", folder / "pictures", "--labels", folder / "labels.csv", *CHEAP, "--out", out)
    assert found.exit_code == 130
    assert f"`marginax resume {out}` goes on" in " ".join(found.output.split())
    assert isinstance(sources[0], ImageFiles)
    assert "is not finished" in run("predict", out, folder / "new").output
    found = run("resume", out, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["scores"]["accuracy"]["value"] > 0.9


PRESSED = []  # when


@mx.register
class PressesOnce(mx.infer.AbstractHook):
    def after_chunk(self, memory, event):
        if event.step >= 10 and not PRESSED:
            PRESSED.append(event.step)
            os.kill(os.getpid(), signal.SIGINT)
        return mx.infer.Verdict(memory, event.states)

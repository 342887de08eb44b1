"""A score is declared once, in its file, and is then everywhere."""

import ast
from pathlib import Path

import numpy as np
import pytest

import marginax as mx
from marginax.evaluate import registered_scores
from marginax.evaluate import score as module
from marginax.evaluate.comparison import better_of
from marginax.evaluate.score import CLASSES, NUMBERS, Score, ScoreEntry, mean_score, score
from marginax.model import Outcome

FOLDER = Path(module.__file__).parent


@pytest.mark.parametrize("name", registered_scores())
def test_every_score_says_what_it_is(name):
    entry = registered_scores()[name]
    assert entry.words
    assert entry.title.format(level=0.9)
    assert entry.outcomes
    assert (entry.function.__doc__ or "").count(">>>") >= 1, f"{name} must have an example that runs"
    assert getattr(mx.evaluate, entry.function.__name__) is entry.function
    assert entry.function.__name__ in mx.evaluate.__all__


def test_whatever_gives_a_score_of_a_prediction_is_declared():
    """Public functions (prediction, y, ...) -> Score of the folder; what needs more than those is exempt."""
    declared = {entry.function.__name__ for entry in registered_scores().values()} | {"pinball"}
    for path in FOLDER.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.returns is not None and not node.name.startswith("_"):
                arguments = [argument.arg for argument in node.args.args]
                if ast.unparse(node.returns) == "Score" and arguments[:2] == ["prediction", "y"]:
                    assert node.name in declared, f"{path.name}: declare {node.name} with @score(...)"


def test_tables_have_the_usual_order():
    table = registered_scores("table", Outcome.REAL)
    usual = ["rmse", "mae", "nll", "crps", "coverage", "interval_score", "sharpness", "calibration_error"]
    assert [name for name in table if name in usual] == usual
    classes = registered_scores("table", Outcome.CLASS)
    assert [name for name in classes if name in ("accuracy", "nll", "brier", "ece", "auroc")] == list(classes)[:5]


def test_directions_are_those_of_the_declarations():
    assert (better_of("nll"), better_of("accuracy"), better_of("ood"), better_of("seconds")) == (
        "less",
        "more",
        "more",
        "less",
    )
    for name in ("coverage", "sharpness", "nothing"):
        with pytest.raises(ValueError, match=f"one that has a best, such as nll or seconds, got '{name}'"):
            better_of(name)


@pytest.fixture
def newcomer(monkeypatch):
    monkeypatch.setattr(module, "_SCORES", dict(module._SCORES))

    @score("worst_error", outcomes=NUMBERS, better="less", shown="headline", words="the largest error; lower is better")
    def worst_error(prediction, y):
        numbers = mx.predict.read_prediction(prediction, y)
        return Score(float(np.abs(numbers.mean - y).max()), float("nan"), len(numbers))

    return worst_error


def test_a_new_score_is_in_the_table_and_has_a_best(newcomer):
    pair = np.zeros(4), np.ones(4)
    assert float(mx.evaluate.scores(pair, [0.0, 1.0, -3.0, 2.0])["worst_error"]) == 3.0
    assert "worst_error" not in mx.evaluate.scores(np.full(4, 0.5), [0, 1, 0, 1])
    assert better_of("worst_error") == "less"
    assert "worst_error" in registered_scores("comparison")


def test_what_a_newcomer_forgot_is_said():
    with pytest.raises(ValueError, match="must have words"):
        score("empty", outcomes=CLASSES, better="less", words="")
    with pytest.raises(ValueError, match="declared twice"):
        score("nll", outcomes=CLASSES, better="less", words="again")(mean_score)
    assert isinstance(registered_scores()["nll"], ScoreEntry)

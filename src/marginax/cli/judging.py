"""Scores of a fitted estimator on rows with targets, and the report of a run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from marginax._extras import require
from marginax.cli.output import Output
from marginax.cli.runs import HeldOut, fit_of
from marginax.data import MISSING, Scaling
from marginax.estimators import BayesianClassifier
from marginax.evaluate import AbstractScore, Proportion, ScoreTable
from marginax.evaluate import scores as evaluate_scores

_BEFORE = ", before all rows were fitted"


@dataclass(frozen=True)
class Judged:
    """Scores, ready to be printed."""

    found: ScoreTable

    def rows(self) -> list[tuple[str, str]]:
        """Name, and value with standard error or interval."""
        return [(name, score.text) for name, score in self.found.items()]

    def as_json(self) -> dict[str, dict[str, Any]]:
        """Numbers; null where there is none."""
        return scores_as_json(self.found)

    @property
    def caption(self) -> str:
        """What the scores are of."""
        return self.found.heading


def scores_as_json(found: Mapping[str, AbstractScore]) -> dict[str, dict[str, Any]]:
    """Numbers; null where there is none. Proportions have an interval, too."""
    return {
        name: {"value": _finite(score.value), "standard_error": _finite(score.standard_error)}
        | ({"interval": score.interval} if isinstance(score, Proportion) else {})
        for name, score in found.items()
    }


def targets_of(estimator: Any, y: Any) -> np.ndarray:
    """Targets as scores and reports take them: numbers, or positions of classes."""
    if isinstance(estimator, BayesianClassifier):
        values, given = y.to_numpy(object if y.ndim == 2 else None), y.notna().to_numpy()
        places = np.full(given.shape, MISSING)
        labels = values[given] if y.ndim == 1 else np.asarray(require("pandas").Series(list(values[given])))
        places[given] = estimator.encode_labels(_as_classes(labels, estimator.classes_))
        return places
    try:
        return y.to_numpy(np.float64)
    except (ValueError, TypeError):
        raise ValueError(f"column {y.name!r} must hold numbers, as it did in fit, got {y.dtype}") from None


def judge(estimator: Any, x: Any, y: Any, level: float, *, truth: bool = False) -> Judged:
    """The usual scores; where labels may be wrong, of predictions of labels as they are given, one by one.

    Args:
        estimator: fitted.
        x: rows.
        y: targets, or labels by annotators.
        level: probability of intervals.
        truth: whether targets are known to be right.
    """
    targets = targets_of(estimator, y)
    if truth:
        return Judged(evaluate_scores(estimator.predict_distribution(x), targets, level=level))
    if not estimator.model_.likelihood.by_annotators:
        return Judged(evaluate_scores(estimator.predict_observed(x), targets, level=level))
    rows, who = np.nonzero(targets != MISSING)
    prediction = estimator.predict_observed(x.iloc[rows], annotator=who)
    return Judged(evaluate_scores(prediction, targets[rows, who], level=level))


def training_rows(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """What a run was fitted to, as the posterior takes inputs and in the units of the target."""
    source = fit_of(run).read().get("source")
    x, y = (np.asarray(part, np.float64) for part in source.examples(source.spec.num_examples))
    scaling = source.spec.scaling
    return x, y if scaling is None or scaling.y_shift is None else scaling.y_shift + scaling.y_factor * y


def write_run_report(estimator: Any, kept: HeldOut, run: Path, path: Path, output: Output) -> Path:
    """The report on the held-out rows, inputs in the units of the table."""
    from marginax.report import NUM_PARTS, write_report

    encoder = estimator.encoder_
    width, num = len(encoder.names_out), len(encoder.mean)
    scaling = Scaling(np.zeros(width), np.ones(width))
    scaling.x_shift[:num], scaling.x_factor[:num] = encoder.mean, encoder.scale
    classes = [str(each) for each in estimator.classes_] if isinstance(estimator, BayesianClassifier) else None
    with output.counting("report", NUM_PARTS) as advance:
        return write_report(
            path,
            posterior=estimator.mixture_,
            x=encoder.encode(kept.x),
            y=targets_of(estimator, kept.y),
            train=training_rows(run),
            scaling=scaling,
            names=encoder.names_out,
            target=kept.target,
            classes=classes,
            annotators=kept.columns if kept.y.ndim == 2 else None,
            rows=kept.fitted_rows,
            title=f"{kept.target}, predicted from {kept.source}" + (_BEFORE if kept.train is not None else ""),
            command=kept.command,
            level=kept.level,
            callback=lambda _: advance(),
        )


def _as_classes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels in the type of the classes: a file may write 1 as 1.0, or as text."""
    if classes.dtype.kind in "iub" and labels.dtype.kind == "f" and np.all(labels == np.round(labels)):
        return labels.astype(classes.dtype)
    return labels.astype(str).astype(classes.dtype) if classes.dtype.kind in "OU" else labels


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

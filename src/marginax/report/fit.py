"""The report of a fit, on held-out rows."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from marginax.data import Scaling
from marginax.posterior.posterior import AbstractPosterior
from marginax.report import gallery, labels, quality, scores, story, uncertainty
from marginax.report.material import Material, gather
from marginax.report.page import AbstractBlock, Items, Section, write_page

_CLAUSE = {
    "as claimed": "as they claim",
    "too narrow": "fewer than they claim: they are too narrow",
    "too wide": "more than they claim: they are too wide",
}

_PARTS: dict[str, Callable[[Material], Section | None]] = {
    "images": gallery.gallery_section,
    "labels": labels.label_section,
    "calibration": quality.calibration_section,
    "cases": quality.prediction_section,
    "uncertainty": uncertainty.uncertainty_section,
    "chains": story.chain_section,
    "cost": story.cost_section,
    "reproduction": story.reproduce_section,
}
NUM_PARTS = len(_PARTS) + 3  # predictions, scores and the page


def write_report(
    path: str | os.PathLike[str],
    *,
    posterior: AbstractPosterior,
    x: Any,
    y: Any,
    train: tuple[Any, Any] | None = None,
    scaling: Scaling | None = None,
    names: Sequence[str] | None = None,
    target: str = "y",
    classes: Sequence[str] | None = None,
    annotators: Sequence[str] | None = None,
    rows: Any = None,
    row_names: Sequence[str] | None = None,
    title: str | None = None,
    command: str | None = None,
    level: float = 0.9,
    callback: Callable[[str], None] | None = None,
) -> Path:
    """Write what was fitted and how good it is as one HTML file, which needs no network.

    Scores with standard errors beside those of a constant and of a linear model, calibration, coverage, predictions
    with bands, the most uncertain rows and why they are so, chains, cost and how to reproduce. Images are shown: the
    most uncertain ones, and those that were confidently wrong. What does not apply is
    left out, and the report says why. Where labels may be wrong, it says which probably are, and of annotators how good
    they are; scores are then of labels as they were given, one by one.

    Args:
        path: of the file; folders are made.
        posterior: from `mx.fit`.
        x: held-out inputs.
        y: held-out targets; classes as integers from 0.
        train: training rows (x, y), which baselines are fitted to; without them there is only a constant beside.
        scaling: how x was scaled, if the posterior does not know; the report shows inputs in the units before.
        names: of the columns of x; by default those of a data frame, or x0, x1, ...
        target: what is predicted.
        classes: names of the classes, in order.
        annotators: names of those who gave labels, with `mx.likelihoods.Annotators`; by default their numbers.
        rows: numbers of the training rows in the user's file, from 0, to name those whose labels are probably wrong.
        row_names: what the held-out rows are called, such as names of files; else they are numbered.
        title: at the top.
        command: that made the fit, to show how to reproduce it.
        level: probability of intervals.
        callback: called with the name of each of the `NUM_PARTS` parts before it is made.

    Returns:
        The path.

    >>> import tempfile, numpy as np, marginax as mx
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> net = mx.nets.MLP(1, (), 1, key=0)
    >>> model = mx.Model(net, likelihood=mx.likelihoods.Gaussian())
    >>> posterior = mx.fit(model, (x[::2], 3 * x[::2, 0]), mx.infer.MAP(num_epochs=20), key=0, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(f"{folder}/report.html", posterior=posterior, x=x[1::2], y=3 * x[1::2, 0])
    ...     "Which inputs are uncertain" in path.read_text(encoding="utf-8")
    True
    """
    announce = callback or (lambda _: None)
    announce("predictions")
    material = gather(
        posterior,
        x,
        y,
        train=train,
        scaling=scaling,
        names=names,
        target=target,
        classes=classes,
        level=level,
        command=command,
        annotators=annotators,
        rows=rows,
        row_names=row_names,
    )
    announce("scores")
    measured = scores.measure(material)
    top: list[AbstractBlock] = [scores.cards(measured, material)]
    warnings = story.warnings_of(material)
    if warnings:
        top.append(Items(warnings, warn=True))
    sections = [story.fitted_section(material), scores.score_section(measured, material)]
    for name, make in _PARTS.items():
        announce(name)
        section = make(material)
        if section is not None:
            sections.append(section)
    announce("page")
    return write_page(path, title or f"Predicting {target}", sections, lead=_lead(material, measured), top=top)


def _lead(material: Material, measured: scores.Measured) -> str:
    """The report in two sentences."""
    table = measured.fit
    method = material.posterior.record.method.split("(")[0] or "An unknown method"
    text = f"{method} on {material.num_fitted:,} rows, judged on {len(material.y):,} held-out {material.unit}."
    if "coverage" in table:
        verdict = quality.judge_coverage(table["coverage"], material.level)
        text += f" Its {material.level:.0%} intervals cover {table['coverage'].value:.0%} of them, {_CLAUSE[verdict]}."
    elif "accuracy" in table:
        text += f" {table['accuracy'].value:.1%} of its answers are right"
        majority = measured.majority
        text += f"; always the commonest class would be in {majority.value:.1%}." if majority is not None else "."
    return text

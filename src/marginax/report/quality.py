"""How good the predictions are on held-out rows: calibration, coverage, and the predictions themselves."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from marginax.evaluate import AbstractScore, Proportion, coverage, ece
from marginax.plot import plot_band, plot_cases, plot_class_cases, plot_coverage, plot_pit, plot_reliability
from marginax.report.classes import class_blocks
from marginax.report.material import FIGURE, HALF, Material, as_label
from marginax.report.page import AbstractBlock, Pair, Picture, Section, Table, Text

_LEVELS = (0.5, 0.8, 0.9, 0.95)


def calibration_section(material: Material) -> Section:
    """Do things happen as often as predicted?"""
    if material.of_classes:
        return _calibration_of_classes(material)
    return _calibration_of_numbers(material)


def judge_coverage(found: AbstractScore, level: float) -> str:
    """Coverage in words: as claimed, too narrow or too wide, by the binomial standard error.

    >>> judge_coverage(Proportion(91, 100), 0.9)
    'as claimed'
    >>> judge_coverage(Proportion(70, 100), 0.9), judge_coverage(Proportion(400, 400), 0.9)
    ('too narrow', 'too wide')
    """
    error = np.sqrt(level * (1 - level) / found.num)
    if abs(found.value - level) <= 2 * error:
        return "as claimed"
    return "too narrow" if found.value < level else "too wide"


def _calibration_of_numbers(material: Material) -> Section:
    levels = sorted({*_LEVELS, material.level})
    found = {level: coverage(material.prediction, material.y, level) for level in levels}
    rows = []
    for level, score in found.items():
        rows.append((f"{100 * level:g}%", score.text, judge_coverage(score, level)))
    verdicts = [judge_coverage(score, level) for level, score in found.items()]
    reach, histogram = Figure(HALF, layout="constrained"), Figure(HALF, layout="constrained")
    plot_coverage(reach.subplots(), material.prediction, material.y)
    num_bins = int(np.clip(len(material.y) // 8, 5, 20))
    plot_pit(histogram.subplots(), material.prediction, material.y, key=0, num_bins=num_bins)
    pictures = Pair(
        (
            Picture(
                reach,
                "Fraction of targets inside of intervals against the probability of the intervals",
                "Coverage. Calibrated predictions lie on the diagonal, within the grey band; below it, intervals are "
                "too narrow.",
            ),
            Picture(
                histogram,
                "Histogram of the probability integral transform",
                "Where in its predicted distribution each target fell. Flat is calibrated, a hump is too wide, high "
                "ends are too narrow.",
            ),
        )
    )
    table = Table(("interval", "covers", "which is"), tuple(rows))
    return Section("Calibration and coverage", (Text(_sentence(verdicts)), table, pictures))


def _sentence(verdicts: list[str]) -> str:
    if all(verdict == "as claimed" for verdict in verdicts):
        return "Intervals cover as often as they claim, as far as these rows can tell."
    narrow, wide = verdicts.count("too narrow"), verdicts.count("too wide")
    if narrow >= wide:
        return (
            f"At {narrow} of {len(verdicts)} levels the intervals are too narrow: the predictions are surer than they "
            "should be. mx.calibrate.recalibrate on further rows, or mx.decide.conformalise, can widen them."
        )
    return (
        f"At {wide} of {len(verdicts)} levels the intervals are too wide: the predictions are less sure than they "
        "could be, which is the safer mistake. mx.calibrate.recalibrate on further rows can narrow them."
    )


def _calibration_of_classes(material: Material) -> Section:
    error = ece(material.prediction, material.y)
    confidence = float(np.mean(material.prediction.confidence))
    right = float(np.mean(material.prediction.labels == material.y))
    gap = confidence - right
    low, high = Proportion(round(right * material.y.size), material.y.size).interval
    if low <= confidence <= high:
        words = "it is as sure as it may be, as far as these rows can tell"
    else:
        words = "it is surer than it should be" if gap > 0 else "it is less sure than it could be"
    figure = Figure(FIGURE, layout="constrained")
    plot_reliability(figure.subplots(), material.prediction, material.y)
    blocks: list[AbstractBlock] = [
        Text(
            f"The mean confidence is {confidence:.1%} and {right:.1%} of the answers are right: {words}. The expected "
            f"calibration error is {error.text}; it is biased upwards, the more so the fewer rows there are."
        ),
        Picture(
            figure,
            "Accuracy against confidence, bin by bin",
            "Reliability. Calibrated is the dashed diagonal; below it the answers are too confident. Bars are 95% "
            "confidence intervals.",
        ),
    ]
    return Section("Calibration", tuple(blocks))


def prediction_section(material: Material) -> Section:
    """Predictions beside observations."""
    figure = Figure(FIGURE, layout="constrained")
    ax = figure.subplots()
    if material.of_classes:
        if material.num_outputs > 1:
            return Section(
                "Predictions", (Text("Left out: rows have several yes-or-no labels, which one picture cannot order."),)
            )
        plot_class_cases(ax, material.prediction, material.y)
        caption = (
            f"The predicted probability of the observed class, for {_how_many(material, 150)}, from the least to "
            "the most expected."
        )
        picture = Picture(figure, "Probability of the observed class, case by case", caption)
        return Section("Predictions", (picture, *class_blocks(material)))
    ax.set_ylabel(as_label(material.target))
    if len(material.names) == 1 and material.has_parts and material.num_outputs == 1:
        grid, prediction = _on_a_grid(material)
        shown = material.to_user(grid[:, None])[:, 0]
        plot_band(ax, shown, prediction, data=(material.shown[:, 0], material.y), level=material.level)
        ax.set_xlabel(as_label(material.names[0]))
        ax.legend(frameon=False, fontsize="small")
        caption = f"Mean and {material.level:.0%} interval over the range of the input; dots are held-out rows."
        return Section("Predictions", (Picture(figure, "Predictions with bands over the input", caption),))
    plot_cases(ax, material.prediction, material.y, level=material.level)
    of_first = f" The first of {material.num_outputs} outputs is shown." if material.num_outputs > 1 else ""
    caption = (
        f"{_how_many(material, 150).capitalize()}, sorted by predicted mean, with {material.level:.0%} intervals; "
        f"about {1 - material.level:.0%} of the dots should be outside.{of_first}"
    )
    return Section("Predictions", (Picture(figure, "Predictions with intervals, case by case", caption),))


def _on_a_grid(material: Material) -> tuple[np.ndarray, Any]:
    low, high = float(material.x.min()), float(material.x.max())
    margin = 0.1 * (high - low or 1.0)
    grid = np.linspace(low - margin, high + margin, 200)
    return grid, material.posterior.predict(grid[:, None])


def _how_many(material: Material, most: int) -> str:
    num = len(material.y)
    return f"all {num} held-out cases" if num <= most else f"{most} of {num} held-out cases, evenly spaced"

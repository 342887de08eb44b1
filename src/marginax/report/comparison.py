"""The report of a comparison of methods."""

import os
from pathlib import Path
from typing import Any

from marginax.evaluate import Comparison
from marginax.plot import draw_comparison
from marginax.report.page import AbstractBlock, Code, Facts, Items, Picture, Section, Table, Text, write_page


def write_comparison(
    path: str | os.PathLike[str],
    comparison: Comparison,
    *,
    data: tuple[Any, Any] | None = None,
    title: str = "Methods side by side",
    command: str | None = None,
) -> Path:
    """Write a comparison of methods as one HTML file, which needs no network.

    Args:
        path: of the file; folders are made.
        comparison: from `mx.evaluate.compare`.
        data: training data (x, y) to show in pictures; by default the test data.
        title: at the top.
        command: that made the comparison, to show how to reproduce it.

    Returns:
        The path.
    """
    header, lines = comparison.table()
    done = [line for line in lines if comparison[line[0]].failure is None]
    best = comparison.best("nll")
    lead = f"{len(done)} methods. {best} has the smallest negative log-likelihood. {comparison.heading}."
    blocks: list[AbstractBlock] = [
        Table(tuple(header), tuple(map(tuple, done))),
        Text(
            "What follows ± is the standard error, brackets are 95% intervals of proportions. Seconds are those of the "
            "fit, compilation included."
        ),
    ]
    failed = {name: row.failure for name, row in comparison.items() if row.failure is not None}
    if failed:
        blocks.append(Items(tuple(f"{name} failed: {why}" for name, why in failed.items()), warn=True))
    sections = [Section("Scores and costs", tuple(blocks))]
    for heading, figure in draw_comparison(comparison, data).items():
        sections.append(Section(f"{heading[0].upper()}{heading[1:]}", (Picture(figure, heading),)))
    sections.append(Section("Methods", (Facts({name: row.method for name, row in comparison.items()}),)))
    warned = tuple(f"{name}: {text}" for name, row in comparison.items() for text in row.warnings)
    if warned:
        sections.append(Section("What to be wary of", (Items(warned),)))
    if command:
        sections.append(Section("How to reproduce", (Code(command),)))
    return write_page(path, title, sections, lead=lead)

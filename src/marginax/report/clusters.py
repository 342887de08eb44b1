"""The report of clusters: how many there are, where they lie, and how sure it is which row is in which."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from marginax._extras import require
from marginax.latent.sizes import SizeChoice
from marginax.plot.chains import COLORS
from marginax.report.material import FIGURE, HALF, as_label
from marginax.report.page import (
    AbstractBlock,
    Card,
    Cards,
    Code,
    Items,
    Pair,
    Picture,
    Section,
    Table,
    Text,
    write_page,
)

_MARKS = "os^DvP*X"
_MOST_POINTS, _SURE, _MOST_COLUMNS = 1500, 0.95, 40


@dataclass(frozen=True, eq=False)
class Clusters:
    """Rows in clusters, the largest first.

    Attributes:
        x: rows, as the mixture saw them (standardised).
        shift: of the columns, in the units of the table.
        factor: of the columns.
        names: of the columns.
        probs: probability of each cluster for each row.
        choice: the sizes that were compared.
    """

    x: Float[np.ndarray, "n d"]
    shift: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, " d"]
    names: tuple[str, ...]
    probs: Float[np.ndarray, "n k"]
    choice: SizeChoice

    @classmethod
    def of(cls, choice: SizeChoice, x: Any, shift: Any, factor: Any, names: Sequence[str]) -> "Clusters":
        """Components that some row is most probably in, sorted by how many rows are."""
        probs = np.asarray(choice.posterior.responsibilities(x), np.float64)
        counts = np.bincount(probs.argmax(axis=1), minlength=probs.shape[1])
        order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
        kept = probs[:, order]
        kept = kept / kept.sum(axis=1, keepdims=True)
        return cls(np.asarray(x, np.float64), np.asarray(shift), np.asarray(factor), tuple(names), kept, choice)

    @property
    def labels(self) -> np.ndarray:
        """From 0, the largest cluster."""
        return self.probs.argmax(axis=1)

    @property
    def confidence(self) -> Float[np.ndarray, " n"]:
        """Probability of the most probable cluster."""
        return self.probs.max(axis=1)

    @property
    def entropy(self) -> Float[np.ndarray, " n"]:
        """Of the assignment, in nats."""
        return -np.sum(self.probs * np.log(np.maximum(self.probs, 1e-300)), axis=1)

    @property
    def num(self) -> int:
        """How many clusters hold rows."""
        return self.probs.shape[1]

    def name(self, label: int) -> str:
        """What a cluster is called: 1 is the largest."""
        return str(label + 1)


def write_clusters(
    path: str | os.PathLike[str], clusters: Clusters, *, title: str = "Clusters", command: str | None = None
) -> Path:
    """Write clusters as one HTML file, which needs no network.

    Args:
        path: of the file; folders are made.
        clusters: what was found.
        title: at the top.
        command: that made it, to show how to reproduce it.

    Returns:
        The path.
    """
    sure, choice = (clusters.confidence >= _SURE).mean(), clusters.choice
    behind = sorted(choice.best.elbo - row.elbo for row in choice.rows if row.size != choice.size)
    cards = Cards(
        (
            Card("clusters", str(clusters.num), words=f"out of {choice.rows[0].size} to {choice.rows[-1].size} tried"),
            Card("rows", f"{len(clusters.x):,}", words=f"{len(clusters.names)} columns of numbers"),
            Card("sure rows", f"{sure:.0%}", words=f"in one cluster with {_SURE:.0%} or more"),
        )
    )
    lead = f"{clusters.num} cluster{'s' * (clusters.num != 1)} in {len(clusters.x):,} rows"
    lead += f"; {behind[0]:,.1f} nats ahead of the next number." if behind else "."
    top: list[AbstractBlock] = [cards]
    if warnings := _warnings(clusters):
        top.append(Items(warnings, warn=True))
    sections = [_map_section(clusters), _size_section(clusters), _sure_section(clusters), _number_section(clusters)]
    if command:
        sections.append(Section("How to reproduce", (Code(command),)))
    return write_page(path, title, sections, lead=lead, top=top)


def _warnings(clusters: Clusters) -> tuple[str, ...]:
    best, rows = clusters.choice.best, clusters.choice.rows
    found = []
    if best.size == rows[-1].size and len(rows) > 1:
        found.append(f"The largest number that was tried, {best.size}, is the best: try more by --most.")
    spread = max(best.elbos) - sorted(best.elbos)[-2] if len(best.elbos) > 1 else 0.0
    if spread > 1.0:
        found.append(f"Only one restart found these; the next is {spread:,.1f} nats behind. Try more by --chains.")
    return tuple(found)


def _map_section(clusters: Clusters) -> Section:
    """Rows along the two directions in which they differ most."""
    if clusters.x.shape[1] == 1:
        return Section("Where they lie", (_histogram(clusters),))
    centred = clusters.x - clusters.x.mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    explained = np.sum(sizes[:2] ** 2) / max(float(np.sum(sizes**2)), 1e-300)
    flat = centred @ axes[:2].T
    figure = require("matplotlib.figure").Figure(FIGURE, layout="constrained")
    ax = figure.subplots()
    shown = np.random.default_rng(0).permutation(len(flat))[:_MOST_POINTS]
    for label in range(clusters.num):
        inside = shown[clusters.labels[shown] == label]
        colour, mark = COLORS[label % len(COLORS)], _MARKS[label % len(_MARKS)]
        faint = 0.25 + 0.6 * (clusters.confidence[inside] - 1 / clusters.num) / max(1 - 1 / clusters.num, 1e-9)
        alpha = np.clip(faint, 0.2, 0.85)
        ax.scatter(*flat[inside].T, s=14, marker=mark, color=colour, alpha=alpha, linewidths=0, rasterized=True)
        members = flat[clusters.labels == label]
        ax.plot([], [], mark, color=colour, label=f"{clusters.name(label)} ({len(members):,})")
        if len(members) > 2:
            _ellipse(ax, members, colour)
    ax.set_xlabel("first principal component")
    ax.set_ylabel("second principal component")
    ax.legend(frameon=False, fontsize="small", ncols=1 + (clusters.num > 4))
    some = f" {_MOST_POINTS:,} of the rows are shown." if len(flat) > _MOST_POINTS else ""
    caption = (
        f"Rows along the two directions in which they differ most, which hold {explained:.0%} of the variance. Faint "
        f"rows could be in another cluster as well. Ellipses hold about 86% of a cluster.{some}"
    )
    return Section("Where they lie", (Picture(figure, "Rows by their first two principal components", caption),))


def _ellipse(ax: Any, members: np.ndarray, colour: str) -> None:
    """Two standard deviations around the mean."""
    values, vectors = np.linalg.eigh(np.cov(members.T))
    turn = np.linspace(0, 2 * np.pi, 100)
    circle = 2 * np.sqrt(np.maximum(values, 0))[:, None] * np.stack([np.cos(turn), np.sin(turn)])
    ax.plot(*(members.mean(axis=0)[:, None] + vectors @ circle), color=colour, linewidth=1.2)


def _histogram(clusters: Clusters) -> Picture:
    figure = require("matplotlib.figure").Figure(FIGURE, layout="constrained")
    ax = figure.subplots()
    values = clusters.shift[0] + clusters.factor[0] * clusters.x[:, 0]
    parts = [values[clusters.labels == label] for label in range(clusters.num)]
    colours = [COLORS[label % len(COLORS)] for label in range(clusters.num)]
    ax.hist(parts, bins=40, stacked=True, color=colours, label=[clusters.name(i) for i in range(clusters.num)])
    ax.set_xlabel(as_label(clusters.names[0]))
    ax.set_ylabel("rows")
    ax.legend(frameon=False, fontsize="small")
    return Picture(figure, "Rows by their value and cluster", "How many rows there are, by value and cluster.")


def _size_section(clusters: Clusters) -> Section:
    """The bound of the evidence against the number of components."""
    choice = clusters.choice
    rows = tuple(
        (
            str(row.size),
            f"{row.elbo:,.1f}",
            f"{choice.best.elbo - row.elbo:,.1f}",
            f"{row.reconstruction:,.1f}",
            f"{row.complexity:,.1f}",
        )
        for row in choice.rows
    )
    blocks: list[AbstractBlock] = [
        Text(
            "A lower bound of the log evidence, in nats: how well the rows are explained (reconstruction), less what "
            "that costs (complexity). A number that is behind by 5 is about 150 times less probable."
        )
    ]
    if len(choice.rows) > 1:
        figure = require("matplotlib.figure").Figure(FIGURE, layout="constrained")
        ax = figure.subplots()
        for row in choice.rows:
            ax.plot([row.size] * len(row.elbos), row.elbos, ".", color="#000000", alpha=0.35)
        sizes = [row.size for row in choice.rows]
        ax.plot(sizes, [row.elbo for row in choice.rows], "-o", color="#0072b2", markersize=4)
        ax.axvline(choice.size, color="#000000", linewidth=0.8, linestyle=":")
        ax.set_xticks(sizes)
        ax.set_xlabel("components")
        ax.set_ylabel("bound of the log evidence")
        caption = "The line is the best restart of each number; dots are all of them. The dotted line is the choice."
        blocks.append(Picture(figure, "Bound of the log evidence against the number of components", caption))
    blocks.append(Table(("components", "bound", "behind", "reconstruction", "complexity"), rows))
    return Section("How many there are", tuple(blocks))


def _sure_section(clusters: Clusters) -> Section:
    """How sure assignments are, over all rows and cluster by cluster."""
    if clusters.num == 1:
        return Section("How sure it is", (Text("There is one cluster: every row is in it."),))
    figure = require("matplotlib.figure").Figure(HALF, layout="constrained")
    ax = figure.subplots()
    ax.hist(clusters.confidence, bins=np.linspace(0, 1, 41), color="#0072b2")
    ax.set_xlim(1 / clusters.num, 1)
    ax.set_xlabel("probability of the cluster")
    ax.set_ylabel("rows")
    shared = np.array([clusters.probs[clusters.labels == label].mean(axis=0) for label in range(clusters.num)])
    pairs = require("matplotlib.figure").Figure(HALF, layout="constrained")
    ax = pairs.subplots()
    image = ax.imshow(shared, cmap="Blues", vmin=0, vmax=1)
    ticks = [clusters.name(label) for label in range(clusters.num)]
    ax.set_xticks(range(clusters.num), ticks)
    ax.set_yticks(range(clusters.num), ticks)
    ax.set_xlabel("may be in")
    ax.set_ylabel("is most probably in")
    pairs.colorbar(image, ax=ax, label="mean probability")
    unsure = int((clusters.confidence < _SURE).sum())
    words = f"{unsure:,} of {len(clusters.x):,} rows could be in more than one cluster (below {_SURE:.0%})."
    pictures = Pair(
        (
            Picture(figure, "Histogram of the probability of the most probable cluster", "All rows; 1 is sure."),
            Picture(pairs, "Mean probability of each cluster, for the rows of each", "Which are taken for which."),
        )
    )
    return Section("How sure it is", (Text(words), pictures))


def _number_section(clusters: Clusters) -> Section:
    """Sizes, and means of the columns in the units of the table."""
    counts = np.bincount(clusters.labels, minlength=clusters.num)
    user = clusters.shift + clusters.factor * clusters.x
    names = clusters.names[:_MOST_COLUMNS]
    rows = []
    for label in range(clusters.num):
        inside = clusters.labels == label
        row = {
            "cluster": clusters.name(label),
            "rows": f"{counts[label]:,}",
            "share": f"{counts[label] / len(user):.0%}",
        }
        row["sure"] = f"{(clusters.confidence[inside] >= _SURE).mean():.0%}"
        means, spreads = user[inside].mean(axis=0), user[inside].std(axis=0)
        row |= {name: f"{mean:.3g} ± {spread:.2g}" for name, mean, spread in zip(names, means, spreads, strict=False)}
        rows.append(row)
    left = len(clusters.names) - len(names)
    caption = "Means of the columns and, after ±, standard deviations between the rows of a cluster."
    caption += f" {left} further columns are left out." if left else ""
    return Section("The clusters in numbers", (Table.of(rows, caption=caption),))

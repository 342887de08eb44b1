"""Labels that may be wrong: which of them probably are, and how good those are who gave them."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from marginax.data import MISSING, majority_vote
from marginax.plot import plot_annotators, plot_label_errors
from marginax.posterior.hidden_labels import Confusion
from marginax.report.material import HALF, Material, as_label
from marginax.report.page import AbstractBlock, Pair, Picture, Section, Table, Text

_NUM_CASES = 15
_MOST_CLASSES = 8  # whose matrix fits on the page
_MOST_ASKED = 1000  # rows among which it is said whom to ask


def label_section(material: Material) -> Section | None:
    """Of the rows that were fitted; None where targets are taken as they are."""
    likelihood = getattr(material.posterior.model, "likelihood", None)
    if likelihood is None or not likelihood.may_be_wrong:
        return None
    heading = "Who is how good, and what is true" if likelihood.by_annotators else "Which labels are probably wrong"
    if material.given is None:
        return Section(heading, (Text("Left out: the report was given no training rows (train=)."),))
    return Section(heading, tuple((_of_annotators if likelihood.by_annotators else _of_labels)(material)))


def _of_labels(material: Material) -> list[AbstractBlock]:
    """Of one label in each row."""
    assert material.given is not None, "checked above"
    x, y = material.given
    posterior = material.posterior
    wrong = posterior.label_errors(x, y)
    what = "labels" if material.of_classes else "targets"
    is_wrong = "be wrong" if material.of_classes else "have gross errors"
    text = (
        f"Of {wrong.size:,} {what} that were fitted {wrong.sum():.1f} are expected to {is_wrong} ({wrong.mean():.1%}); "
        f"{np.sum(wrong > 0.5):,} are more probably wrong than right. Probabilities are given inputs and {what}, "
        "averaged over the posterior. If far fewer are expected than you believe, the network has learned them by "
        "heart: a smaller network or a stronger prior helps."
    )
    blocks: list[AbstractBlock] = [Text(text), _picture_of_errors(wrong)]
    blocks.append(_suspicious(material, wrong.reshape(len(wrong), -1).max(axis=1)))
    if material.of_classes:
        blocks.append(_matrix(material, posterior.confusion(level=material.level)))
    return blocks


def _suspicious(material: Material, wrong: np.ndarray) -> Table:
    """The labels that are most probably wrong, and what would be right."""
    assert material.given is not None, "checked above"
    x, y = material.given
    order = np.argsort(-wrong, kind="stable")[:_NUM_CASES]
    rows = [{"row": material.row(int(i))} for i in order]
    if material.of_classes:
        true: Any = material.posterior.consensus(x[order], y[order])
        for row, i, label, sure in zip(rows, order, true.labels, true.confidence, strict=True):
            row |= {"given": material.name_class(int(y[i])), "probably wrong": f"{wrong[i]:.1%}"}
            row["best guess"] = f"{material.name_class(int(label))} ({sure:.0%})"
    else:
        prediction: Any = material.posterior.predict(x[order])
        mean, std = (np.reshape(part, (len(order), -1))[:, 0] for part in (prediction.mean, prediction.std))
        for place, (row, i) in enumerate(zip(rows, order, strict=True)):
            row |= {"given": f"{np.reshape(y[i], -1)[0]:.4g}", "probably wrong": f"{wrong[i]:.1%}"}
            row["predicted without error"] = f"{mean[place]:.4g} ± {std[place]:.4g}"
    return Table.of(rows, caption=f"The {len(order)} rows whose targets are most probably wrong. {material.row_words}")


def _matrix(material: Material, found: Confusion) -> Table:
    """Rates of errors, all of them where there are few classes."""
    mean, (low, high) = found.mean, found.interval
    num, level = len(mean), f"{material.level:.0%} intervals"
    name = material.name_class
    if num > _MOST_CLASSES:
        rows = []
        for k in range(num):
            other = int(np.argmax(np.where(np.arange(num) == k, -1, mean[k])))
            row = {"true label": name(k), "given as it is": _interval(mean[k, k], low[k, k], high[k, k])}
            rows.append(row | {"most often given instead": f"{name(other)} ({mean[k, other]:.1%})"})
        return Table.of(rows, caption=f"How labels are given, with {level}.")
    rows = [
        {"true label": name(k)} | {f"given {name(j)}": _interval(mean[k, j], low[k, j], high[k, j]) for j in range(num)}
        for k in range(num)
    ]
    return Table.of(rows, caption=f"How labels are given: a row for each true label, with {level}.")


def _of_annotators(material: Material) -> list[AbstractBlock]:
    """Of the labels of several people."""
    assert material.given is not None, "checked above"
    x, answers = material.given
    posterior = material.posterior
    quality = posterior.confusion(level=material.level)
    consensus = posterior.consensus(x, answers)
    votes = majority_vote(answers, quality.draws.shape[-1])
    other = votes[np.arange(len(votes)), consensus.labels] == 0
    num = int(np.sum(answers != MISSING))
    text = (
        f"{answers.shape[1]} annotators gave {num:,} labels of {len(answers):,} rows that were fitted, "
        f"{num / len(answers):.1f} each. The consensus is the true label given inputs and labels: it differs from the "
        f"vote in {other.sum():,} rows, and is less than 90% sure in {np.sum(consensus.confidence < 0.9):,}. Accuracy "
        "is the mean over classes of how often a label is right."
    )
    figure = Figure(figsize=HALF, layout="constrained")
    ax = plot_annotators(figure.subplots(), quality)
    if len(ax.get_xticklabels()):
        places = [int(text.get_text()) for text in ax.get_xticklabels()]
        names = [as_label(material.name_annotator(place)) for place in places]
        ax.set_xticks(ax.get_xticks(), names, rotation=90 if max(map(len, names)) > 3 else 0)
    pictures = Pair(
        (
            Picture(figure, "Accuracy of each annotator with intervals", "Accuracy of each, the best first."),
            _picture_of_errors(posterior.label_errors(x, answers)),
        )
    )
    return [Text(text), pictures, _quality(material, quality, answers), _unsure(material, consensus)]


def _quality(material: Material, quality: Confusion, answers: np.ndarray) -> Table:
    rows, (low, high), mean = [], quality.accuracy_interval, quality.mean
    counts = np.sum(answers != MISSING, axis=0)
    name = material.name_class
    for a in np.argsort(-quality.accuracy, kind="stable"):
        errors = np.where(np.eye(mean.shape[-1], dtype=bool), -1.0, mean[a])
        true, seen = np.unravel_index(int(np.argmax(errors)), errors.shape)
        row = {"annotator": material.name_annotator(int(a)), "labels": f"{counts[a]:,}"}
        row["accuracy"] = _interval(quality.accuracy[a], low[a], high[a])
        row["most frequent error"] = f"{name(int(seen))} for {name(int(true))} ({errors[true, seen]:.0%})"
        rows.append(row)
    return Table.of(rows, caption=f"Annotators, the best first, with {material.level:.0%} intervals.")


def _unsure(material: Material, consensus: Any) -> AbstractBlock:
    """The rows that most needs to be asked about, and whom to ask of those who were not."""
    assert material.given is not None, "checked above"
    x, answers = material.given
    if not np.any(answers == MISSING):
        return Text("Every annotator has labelled every row: there is nobody left to ask.")
    order = np.argsort(-consensus.entropy, kind="stable")[:_MOST_ASKED]
    information = material.posterior.expected_information(x[order], answers[order])
    information = np.where(answers[order] == MISSING, information, -np.inf)
    best = np.argsort(-information.max(axis=1), kind="stable")[:_NUM_CASES]
    rows = []
    for place in best[np.isfinite(information[best].max(axis=1))]:
        i, who = int(order[place]), int(information[place].argmax())
        counts = np.bincount(answers[i][answers[i] != MISSING].astype(int), minlength=consensus.probs.shape[1])
        said = ", ".join(f"{material.name_class(k)} {num}x" for k, num in enumerate(counts) if num)
        label = f"{material.name_class(int(consensus.labels[i]))} ({consensus.confidence[i]:.0%})"
        row = {"row": material.row(i), "labels": said, "consensus": label, "ask": material.name_annotator(who)}
        rows.append(row | {"nats": f"{information[place, who]:.3f}"})
    caption = (
        f"The {len(rows)} rows where one more label is expected to say most about the true one, and by whom; nats are "
        f"the mutual information. {material.row_words}"
    )
    return Table.of(rows, caption=caption)


def _picture_of_errors(wrong: np.ndarray) -> Picture:
    figure = Figure(figsize=HALF, layout="constrained")
    plot_label_errors(figure.subplots(), wrong)
    return Picture(
        figure,
        "Expected number of wrong labels among the most suspicious",
        "How many wrong ones are expected among those that are looked at first.",
    )


def _interval(mean: Any, low: Any, high: Any) -> str:
    """A share with its interval; alone where that has no width.

    >>> _interval(0.9, 0.85, 0.94), _interval(0.9, 0.9, 0.9)
    ('0.90 [0.85, 0.94]', '0.90')
    """
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]" if high - low > 1e-6 else f"{mean:.2f}"

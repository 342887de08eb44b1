"""Scores on held-out rows, beside those of a constant and of a linear model: a number says little by itself."""

from dataclasses import dataclass

import numpy as np

from marginax.evaluate import AbstractScore, baselines, registered_scores, scores
from marginax.evaluate.score import ScoreTable
from marginax.report.material import Material
from marginax.report.page import AbstractBlock, Card, Cards, Section, Table, Text


@dataclass(frozen=True, eq=False)
class Measured:
    """Scores of the fit, and of what it has to beat.

    Attributes:
        fit: scores of the prediction.
        beside: scores of baselines, by name.
        words: what the baselines are.
    """

    fit: ScoreTable
    beside: dict[str, ScoreTable]
    words: str

    @property
    def majority(self) -> AbstractScore | None:
        """How often always answering the commonest class is right; None for numbers."""
        return self.beside["constant"].get("accuracy") if "constant" in self.beside else None


def measure(material: Material) -> Measured:
    """The scores that suit the prediction."""
    found = scores(material.prediction, material.y, level=material.level)
    if material.of_classes and material.num_outputs > 1:
        return Measured(found, {}, "There is no baseline: rows have several labels.")
    num_classes = material.num_classes if material.of_classes else None
    train = (material.x, material.y) if material.train is None else material.train
    predictions = baselines(train, material.x, num_classes=num_classes)
    if material.train is None:
        predictions.pop("linear", None)  # it would have seen the rows that it is judged by
    beside = {name: scores(each, material.y, level=material.level) for name, each in predictions.items()}
    return Measured(found, beside, _words(material, beside))


def _words(material: Material, beside: dict[str, ScoreTable]) -> str:
    rows = "these very rows" if material.train is None else "the training rows"
    if material.of_classes:
        texts = [f"Constant: the rates of the classes in {rows}, whose answer is always the commonest."]
        linear = "a logistic regression"
    else:
        texts = [f"Constant: a normal distribution with the mean and the standard deviation of {rows}."]
        linear = "a ridge regression with Gaussian noise"
    if "linear" in beside:
        texts.append(f"Linear: {linear}, fitted to the training rows.")
    elif not material.names:
        texts.append("A linear model is left out, since inputs are not the columns of a table.")
    elif material.train is None:
        texts.append("A linear model is left out, since the report was given no training rows (train=).")
    return " ".join(texts)


def cards(measured: Measured, material: Material) -> Cards:
    """The headline."""
    found = []
    for name, (title, words) in _meanings(material, "headline").items():
        if name in measured.fit:
            others = ", ".join(
                f"{which} {table[name].texts[0]}" for which, table in measured.beside.items() if name in table
            )
            found.append(Card(title, *measured.fit[name].texts, f"{words}. {_capital(others)}." if others else words))
    return Cards(tuple(found))


def score_section(measured: Measured, material: Material) -> Section:
    """All scores, with how well they are known and what they mean."""
    known = _meanings(material, "never")
    rows = [
        (
            known[name][0],
            score.text,
            *(table[name].texts[0] if name in table else "" for table in measured.beside.values()),
            known[name][1],
        )
        for name, score in measured.fit.items()
    ]
    blocks: list[AbstractBlock] = [
        Text(
            f"On {len(material.y)} held-out {material.unit}{_as_given(material)}. What follows ± is the standard "
            f"error: how much a score would change with other held-out {material.unit} of the same number. Brackets "
            "are 95% intervals of proportions (Wilson's)."
        ),
        Table(("score", "this fit", *measured.beside, "what it means"), tuple(rows)),
        Text(measured.words),
    ]
    if not material.of_classes:
        blocks.append(Text(_spread(material)))
    blocks += [Text(f"Left out: {name}, because {why}.") for name, why in measured.fit.left_out.items()]
    return Section("Scores", tuple(blocks))


def _as_given(material: Material) -> str:
    likelihood = getattr(material.posterior.model, "likelihood", None)
    wrong = likelihood is not None and likelihood.may_be_wrong
    return ", as they were given, wrong ones included" if wrong else ""


def _spread(material: Material) -> str:
    """What errors are to be compared with."""
    y = np.asarray(material.y, np.float64).reshape(len(material.y), -1)
    first = " (the first of its numbers)" if y.shape[1] > 1 else ""
    return (
        f"The target{first} has the mean {y[:, 0].mean():.4g} and the standard deviation {y[:, 0].std():.4g} in the "
        f"held-out rows, from {y[:, 0].min():.4g} to {y[:, 0].max():.4g}."
    )


def _meanings(material: Material, shown: str) -> dict[str, tuple[str, str]]:
    """Titles and words of scores."""
    entries = registered_scores(shown)
    return {name: (entry.title.format(level=material.level), entry.words) for name, entry in entries.items()}


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"

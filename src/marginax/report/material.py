"""What a report is about: a posterior, held-out rows, and what they are called."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginax.data import MISSING, Scaling
from marginax.posterior.posterior import AbstractPosterior
from marginax.predict.checks import check_level

FIGURE, HALF = (5.4, 3.3), (4.2, 3.2)  # inches: letters stay legible on a phone, whose width is about 3.7


@dataclass(frozen=True, eq=False)
class Material:
    """The fit, the held-out rows and the prediction at them, checked.

    Attributes:
        posterior: what was fitted.
        x: held-out inputs, as the posterior takes them.
        scaling: how they are scaled, if the user knows them in other units than the posterior takes.
        y: held-out targets.
        train: training inputs and targets; None if they were not given.
        prediction: at x.
        names: of the columns of x; empty if x is not a table.
        target: what is predicted.
        classes: names of the classes, in order; empty for numbers.
        level: probability of intervals.
        command: what was typed to get here.
        given: training inputs and targets as they were fitted, where they may be wrong; labels by annotators have a
            column each, and in `y` and `train` a row each.
        annotators: their names; empty where there are none.
        rows: what the training rows are called; empty if they are numbered.
        row_names: what the held-out rows are called; empty if they are numbered.
    """

    posterior: AbstractPosterior
    x: np.ndarray
    scaling: Scaling | None
    y: np.ndarray
    train: tuple[np.ndarray, np.ndarray] | None
    prediction: Any
    names: tuple[str, ...]
    target: str
    classes: tuple[str, ...]
    level: float
    command: str | None
    given: tuple[np.ndarray, np.ndarray] | None = None
    annotators: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    row_names: tuple[str, ...] = ()

    @property
    def of_classes(self) -> bool:
        """Whether a class is predicted, and not numbers."""
        return self.prediction.outcome.is_class

    @property
    def num_outputs(self) -> int:
        """Numbers (or yes-or-no labels) per row."""
        return 1 if self.y.ndim == 1 else self.y.shape[1]

    @property
    def num_classes(self) -> int:
        """How many classes a row may be in."""
        return max(self.prediction.probs.shape[1], 2)

    @property
    def num_fitted(self) -> int:
        """Rows that the posterior was fitted to."""
        spec = self.posterior.spec
        return 0 if spec is None else spec.num_examples

    @property
    def shown(self) -> np.ndarray:
        """Inputs in the units that the user knows."""
        return self.to_user(self.x)

    def to_user(self, x: np.ndarray) -> np.ndarray:
        """Inputs of the posterior in the units that the user knows."""
        return x if self.scaling is None else np.asarray(self.scaling.x_shift + self.scaling.x_factor * x)

    @property
    def distances(self) -> np.ndarray:
        """How far each input is from the mean of the training data, in its standard deviations, with sign.

        Where the data were not standardised, mean and deviation are those of the held-out rows.
        """
        if self.scaling is not None:
            return self.x
        scaling = None if self.posterior.spec is None else self.posterior.spec.scaling
        if scaling is not None:
            return np.asarray(scaling.transform_x(self.x))
        spread = self.x.std(axis=0)
        return (self.x - self.x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)

    @property
    def is_standardised(self) -> bool:
        """Whether mean and standard deviation of the training inputs are known."""
        return self.scaling is not None or (self.posterior.spec is not None and self.posterior.spec.scaling is not None)

    @property
    def has_parts(self) -> bool:
        """Whether the uncertainty is split into epistemic and aleatoric."""
        return self.prediction.knows_draws

    @property
    def unit(self) -> str:
        """What is judged one by one."""
        return "labels" if self.annotators else "images" if self.shows_images else "rows"

    @property
    def shows_images(self) -> bool:
        """Whether inputs are images of one channel or of red, green and blue."""
        return self.x.ndim == 4 and self.x.shape[1] in (1, 3)

    def name_row(self, place: int) -> str:
        """A held-out row in the user's words."""
        return self.row_names[place] if self.row_names else str(place)

    def row(self, place: int) -> str:
        """A training row as the user knows it."""
        return f"{self.rows[place] + 1 if self.rows else place:,}"

    @property
    def row_words(self) -> str:
        """How rows are counted."""
        return "Row 1 is the first one of the file." if self.rows else "Rows of the training data are counted from 0."

    def name_annotator(self, place: int) -> str:
        """An annotator in the user's words."""
        return self.annotators[place]

    def name_class(self, label: int) -> str:
        """A class in the user's words."""
        return self.classes[label] if self.classes else str(label)


def gather(
    posterior: AbstractPosterior,
    x: Any,
    y: Any,
    *,
    train: tuple[Any, Any] | None,
    scaling: Scaling | None,
    names: Sequence[str] | None,
    target: str,
    classes: Sequence[str] | None,
    level: float,
    command: str | None,
    annotators: Sequence[str] | None = None,
    rows: Any = None,
    row_names: Sequence[str] | None = None,
) -> Material:
    """Check what came, and predict."""
    if not isinstance(posterior, AbstractPosterior):
        raise TypeError(f"posterior must be one that mx.fit returned, got {type(posterior).__name__}")
    if posterior.spec is None:
        raise ValueError("posterior has no data spec: only one that mx.fit returned can be reported")
    level = check_level(level)
    if names is None:
        names = list(getattr(x, "columns", ()))
    inputs = posterior.spec.check_x(x)
    targets = np.asarray(y)
    likelihood = getattr(posterior.model, "likelihood", None)
    if likelihood is not None and likelihood.by_annotators:
        if targets.ndim != 2:
            raise ValueError(
                f"y must have a column of labels for each annotator, {MISSING} where there is none, got shape "
                f"{targets.shape}"
            )
    elif annotators is not None:
        raise ValueError("annotators must be None: only a posterior with mx.likelihoods.Annotators(...) has any")
    if len(targets) != len(inputs):
        raise ValueError(f"x and y must have the same number of rows, got {len(inputs)} and {len(targets)}")
    if train is not None:
        train = (posterior.spec.check_x(train[0]), np.asarray(train[1]))
        if len(train[0]) != len(train[1]) or train[1].shape[1:] != targets.shape[1:]:
            raise ValueError(f"train must be rows (x, y) as the held-out ones, got shapes {[e.shape for e in train]}")
    may_be_wrong = likelihood is not None and likelihood.may_be_wrong
    given, who = train if may_be_wrong else None, None
    if likelihood is not None and likelihood.by_annotators:
        annotators = [str(i) for i in range(targets.shape[1])] if annotators is None else annotators
        if len(annotators) != targets.shape[1]:
            raise ValueError(
                f"annotators must have {targets.shape[1]} names, one per column of y, got {len(annotators)}"
            )
        inputs, targets, who = _one_by_one(inputs, targets)
        train = None if train is None else _one_by_one(*train)[:2]
    elif likelihood is not None and likelihood.takes_missing and train is not None:
        train = tuple(part[train[1] != MISSING] for part in train)
    if rows is not None and given is not None and len(rows) != len(given[1]):
        raise ValueError(f"rows must have {len(given[1])} entries, one per training row, got {len(rows)}")
    if row_names is not None and len(row_names) != len(targets):
        raise ValueError(f"row_names must have {len(targets)} entries, one per held-out row, got {len(row_names)}")
    if inputs.ndim == 2 and not len(names):
        names = [f"x{i}" for i in range(inputs.shape[1])]
    if inputs.ndim == 2 and len(names) != inputs.shape[1]:
        raise ValueError(f"names must have {inputs.shape[1]} entries, one per column of x, got {len(names)}")
    return Material(
        posterior=posterior,
        x=inputs,
        scaling=scaling,
        y=targets,
        train=train,
        prediction=posterior.predict_observed(inputs, annotator=who) if may_be_wrong else posterior.predict(inputs),
        names=tuple(map(str, names)) if inputs.ndim == 2 else (),
        target=target,
        classes=tuple(map(str, classes or ())),
        level=level,
        command=command,
        given=given,
        annotators=tuple(map(str, annotators or ())),
        rows=() if rows is None else tuple(int(each) for each in rows),
        row_names=() if row_names is None else tuple(map(str, row_names)),
    )


def _one_by_one(x: np.ndarray, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A row for each label that was given: its inputs, what it is, and by whom."""
    rows, who = np.nonzero(answers != MISSING)
    return x[rows], answers[rows, who].astype(np.int64), who


def as_label(text: str) -> str:
    r"""A name as matplotlib shall show it: a dollar sign begins no formula.

    >>> as_label("price in $")
    'price in \\$'
    """
    return text.replace("$", r"\$")

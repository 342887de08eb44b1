"""What a score is: a number, its standard error, and how many rows are behind it."""

import inspect
import math
import numbers
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Float, Shaped

from marginax.files import register
from marginax.model.outcome import Outcome

NUMBERS = (Outcome.REAL, Outcome.COUNT)
CLASSES = (Outcome.CLASS, Outcome.LABELS)
_LEVELS_SHOWN = ("never", "table", "comparison", "headline")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class AbstractScore:
    """A number with its standard error, which goes where a float goes: `float`, formatting, comparison.

    There is no arithmetic: scores of the same rows depend on each other, so the error of a difference is not known
    from the errors of its parts.
    """

    value: float
    standard_error: float
    num: int

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    @property
    def texts(self) -> tuple[str, str]:
        """The value, and how well it is known, in as many digits as that has to say; "" where that is not known."""
        value, error = digits(self.value, self.standard_error)
        return value, f"± {error}" if error else ""

    @property
    def text(self) -> str:
        """Both, as every table and report writes them."""
        return " ".join(filter(None, self.texts))

    def __repr__(self) -> str:
        return f"{self.text} (n={self.num})"

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return self.value == float(other) if isinstance(other, AbstractScore | numbers.Real) else NotImplemented

    def __lt__(self, other: Any) -> bool:
        return self.value < float(other) if isinstance(other, AbstractScore | numbers.Real) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self.value <= float(other) if isinstance(other, AbstractScore | numbers.Real) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self.value > float(other) if isinstance(other, AbstractScore | numbers.Real) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self.value >= float(other) if isinstance(other, AbstractScore | numbers.Real) else NotImplemented


@register("score/score")
@dataclass(frozen=True, eq=False, repr=False)
class Score(AbstractScore):
    """A score over rows.

    >>> score = Score(0.1234, 0.0042, 200)
    >>> score
    0.123 ± 0.004 (n=200)
    >>> float(score), f"{score:.2f}", score < 0.2
    (0.1234, '0.12', True)

    Attributes:
        value: the score.
        standard_error: of the value, over data sets of as many rows; NaN where the rows cannot tell.
        num: how many rows.
    """

    value: float
    standard_error: float
    num: int


@dataclass(frozen=True, eq=False)
class ScoreEntry:
    """A score as it was declared with `@score`.

    Attributes:
        name: in tables.
        function: of a prediction, and where it asks for them of targets y and the level of intervals.
        outcomes: that it is for.
        better: "less" or "more", or None where there is no best.
        words: what it means, in a line.
        title: in reports.
        shown: "headline" (everywhere), "comparison" (in tables of methods), "table" (in `mx.evaluate.scores`), "never".
        place: in tables, small ones first.
    """

    name: str
    function: Callable[..., AbstractScore]
    outcomes: tuple[Outcome, ...]
    better: Literal["less", "more"] | None
    words: str
    title: str
    shown: str
    place: int

    def __call__(self, prediction: Any, y: Any, *, level: float) -> AbstractScore:
        parameters = inspect.signature(self.function).parameters
        wanted = {"y": y, "level": level}
        given = {name: wanted[name] for name in wanted if name in parameters and parameters[name].default is not None}
        return self.function(prediction, **given)


_SCORES: dict[str, ScoreEntry] = {}


def score(
    name: str,
    *,
    outcomes: Collection[Outcome],
    better: Literal["less", "more"] | None,
    words: str,
    title: str | None = None,
    shown: str = "table",
    place: int = 100,
) -> Callable[[_Function], _Function]:
    """Declare a score, once, where it is defined: tables, comparisons, reports and exports find it by this.

    Args:
        name: in tables.
        outcomes: `NUMBERS`, `CLASSES` or both.
        better: "less" or "more", or None where there is no best.
        words: what it means, in a line.
        title: in reports, where {level} is the level of intervals; by default the name.
        shown: "headline", "comparison", "table" or "never", each including what follows.
        place: in tables, small ones first.
    """
    if shown not in _LEVELS_SHOWN or better not in ("less", "more", None) or not words:
        raise ValueError(f"score {name!r} must have words, a direction and one of {_LEVELS_SHOWN}, got {shown!r}")

    def declare(function: _Function) -> _Function:
        if name in _SCORES:
            raise ValueError(f"score {name!r} is declared twice")
        text = name.replace("_", " ") if title is None else title
        _SCORES[name] = ScoreEntry(name, function, tuple(outcomes), better, words, text, shown, place)
        return function

    return declare


def registered_scores(shown: str = "never", outcome: Outcome | None = None) -> dict[str, ScoreEntry]:
    """Scores by name, in the order of tables.

    Args:
        shown: those that are shown here, or more widely.
        outcome: those for it; all by default.
    """
    least = _LEVELS_SHOWN.index(shown)
    entries = sorted(_SCORES.values(), key=lambda entry: (entry.place, entry.name))
    return {
        entry.name: entry
        for entry in entries
        if _LEVELS_SHOWN.index(entry.shown) >= least and (outcome is None or outcome in entry.outcomes)
    }


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTable(Mapping[str, AbstractScore]):
    """Scores by name; print it.

    >>> ScoreTable({"rmse": Score(1.21, 0.052, 80), "crps": Score(0.6811, 0.0312, 80)}, "80 rows")
    80 rows
    rmse  1.21 ± 0.05
    crps  0.68 ± 0.03

    Attributes:
        scores: by name, in the order of the table.
        heading: the first line.
        left_out: scores that this prediction cannot have, and why.
    """

    scores: Mapping[str, AbstractScore]
    heading: str
    left_out: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> AbstractScore:
        if name not in self.scores:
            why = self.left_out.get(name, f"the names are {', '.join(self.scores)}")
            raise KeyError(f"{name} is not in this table: {why}")
        return self.scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        cells = {name: score.texts for name, score in self.scores.items()}
        width = max(map(len, cells), default=0)
        left = max((len(value) for value, _ in cells.values()), default=0)
        lines = [f"{name:<{width}}  {value:>{left}} {error}".rstrip() for name, (value, error) in cells.items()]
        return "\n".join([self.heading, *lines, *(f"no {name}: {why}" for name, why in self.left_out.items())])


def mean_score(values: Shaped[np.ndarray, "n *rest"], *, name: str, groups: Any = None) -> Score:
    """The mean over rows and the standard error of that mean; several values of a row are averaged first.

    Args:
        values: of the rows.
        name: for errors.
        groups: of each row, such as its patient: groups are independent, rows of one are not. By default all rows are.

    >>> mean_score(np.array([1.0, 2.0, 3.0, 4.0]), name="mae")
    2.5 ± 0.6 (n=4)
    >>> mean_score(np.array([1.0, 1.0, 3.0, 4.0]), name="mae", groups=["a", "a", "b", "c"])
    2.2 ± 1.0 (n=4)
    """
    rows = row_means(values)
    check_rows(rows, name=name)
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        off = rows - rows.mean()
        if groups is not None:
            groups = np.asarray(groups)
            if groups.shape != rows.shape:
                raise ValueError(f"groups must have one entry for each of the {len(rows)} rows, got {groups.shape}")
            off = np.bincount(np.unique(groups, return_inverse=True)[1], weights=off)
        num = len(off)
        error = math.sqrt(num / (num - 1) * np.sum(off**2)) / len(rows) if num > 1 else math.nan
    return Score(float(rows.mean()), float(error), len(rows))


def row_means(values: Shaped[np.ndarray, "n *rest"]) -> Float[np.ndarray, " n"]:
    """The mean of each row, in float64."""
    return np.asarray(values, np.float64).reshape(len(values), -1).mean(axis=1)


def check_rows(rows: Float[np.ndarray, " n"], *, name: str) -> None:
    """Refuse a score whose rows are not all numbers."""
    missing = np.flatnonzero(np.isnan(rows))
    if len(missing):
        raise ValueError(
            f"prediction gives no {name} in {len(missing)} of {len(rows)} rows, the first of them row {missing[0]}: "
            "it is NaN there, or the number that is asked for does not exist (a mean of very heavy tails)"
        )


def jackknife_error(without: Float[np.ndarray, " n"]) -> float:
    r"""Standard error from the scores without each row in turn, $\frac{n-1}{n} \sum_i (s_{-i} - \bar s)^2$, rooted.

    Of a mean it is the usual standard error.

    >>> x = np.array([1.0, 2.0, 4.0])
    >>> round(jackknife_error((x.sum() - x) / 2), 6), round(x.std(ddof=1) / np.sqrt(3), 6).item()
    (0.881917, 0.881917)
    """
    num = len(without)
    if num < 2:
        return math.nan
    return float(np.sqrt((num - 1) / num * np.sum((without - without.mean()) ** 2)))


def digits(value: float, error: float) -> tuple[str, str]:
    """A value and its error in as many digits as the error has to say; "" for an error that is not known.

    The error has one digit, or two where rounding to one would change it much (below 3.55, as in particle physics).

    >>> digits(0.1234, 0.00417), digits(0.1234, 0.0017), digits(1234.6, 35.2), digits(0.5, float("nan"))
    (('0.123', '0.004'), ('0.1234', '0.0017'), ('1235', '35'), ('0.5', ''))
    """
    if not math.isfinite(error):
        return f"{value:.4g}", ""
    if error <= 1e-12 * abs(value):  # none, but for rounding
        return f"{value:.3f}", "0.000"
    exponent = math.floor(math.log10(error))
    places = max(0, -exponent + (error < 3.55 * 10.0**exponent))
    return (f"{value:.{places}f}", f"{error:.{places}f}") if places < 12 else (f"{value:.4g}", f"{error:.1g}")

"""What a careless case is, and how it is judged: an answer that is worth something, or a refusal that helps."""

import dataclasses
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

ANSWER, REFUSAL, EITHER = "answer", "refusal", "either"
ANSWERED, REFUSED, WRONG = "answered well", "refused well", "wrong"

MARGIN = 0.1
"""Nats per fresh row by which an answer may be worse than a constant, the Student law of the training targets."""
LINEAR_MARGIN = 0.15
"""Nats per fresh row by which an answer may be worse than a linear model, where the data are linear."""
LEAST_COVERAGE = 0.7
"""Share of fresh targets that 90% intervals must cover."""
MOST_WIDTH = 20.0
"""Standard deviations of fresh targets that 90% intervals may be wide, in their median, unless a constant's are half
as wide: its exact intervals from two rows are 15."""
MOST_SECONDS = 2.0
"""Of processor time in which a refusal must come."""
LONGEST = 500
"""Characters of a refusal."""

_COMPILED = "/jax/core/compile/backend_compile_duration"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came back, as figures; gains are nats per fresh row over a constant.

    Args:
        finite: whether all that was predicted is.
        gain: of the answer; None if only its being finite counts.
        linear_gain: of a linear model; None if the data are not linear.
        coverage: of 90% intervals, for numbers.
        width: their median, in standard deviations of the fresh targets.
        at_least: the gain that is asked for.
        constant_width: that of the intervals of a constant.
    """

    finite: bool
    gain: float | None = None
    linear_gain: float | None = None
    coverage: float | None = None
    width: float | None = None
    at_least: float = -MARGIN
    constant_width: float = 0.0

    def complaint(self) -> str | None:
        """What is wrong with it, if anything."""
        if not self.finite:
            return "predictions are not finite"
        if self.gain is not None and not self.gain >= self.at_least:
            return f"gain over a constant {self.gain:.3g} nats, at least {self.at_least:g} asked for"
        if self.linear_gain is not None and not (self.gain or 0.0) >= self.linear_gain - LINEAR_MARGIN:
            return f"gain {self.gain:.3g} nats, that of a linear model {self.linear_gain:.3g}"
        if self.coverage is not None and not self.coverage >= LEAST_COVERAGE:
            return f"90% intervals cover {self.coverage:.0%}"
        if self.width is not None and not self.width <= max(MOST_WIDTH, 2 * self.constant_width):
            return f"90% intervals are {self.width:.3g} standard deviations wide"
        return None

    def __str__(self) -> str:
        figures = {"gain": self.gain, "linear": self.linear_gain, "coverage": self.coverage, "width": self.width}
        return ", ".join(f"{name} {value:.3g}" for name, value in figures.items() if value is not None) or "finite"


class Refusal(Exception):  # noqa: N818  an outcome, not an error of the programme
    """How the command line refuses; the Python interface raises its own errors."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One careless input.

    Args:
        kind: scale, type, missing, ...
        name: what is careless about it; with the kind, unique.
        run: does it, and gives figures; whatever it raises is an outcome.
        expect: an answer, a refusal, or either of them.
        mentions: what the message of a refusal must hold: the argument or column, the value, the remedy.
        warns: what a warning must hold; an answer that says so need only be finite.
        given: what must be there before, such as a fitted estimator; handed to `run`.
        dear: fits with `method="auto"`, which takes up to a minute.
    """

    kind: str
    name: str
    run: Callable[[Any], Answer]
    expect: str = ANSWER
    mentions: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()
    given: Callable[[], Any] = lambda: None
    dear: bool = False


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How a case came out: the word for it, what happened, and the seconds of all."""

    case: Case
    word: str
    story: str
    seconds: float


class Compilations:
    """Counts what JAX compiles, or finds compiled, while it is counted."""

    count = 0

    def __init__(self) -> None:
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, name: str, seconds: float, **_: Any) -> None:
        self.count += name == _COMPILED


def judge(case: Case, compilations: Compilations) -> Verdict:
    """Run a case."""
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        word, story = _outcome(case, compilations, said)
    noise = [str(each.message) for each in said if issubclass(each.category, RuntimeWarning)]
    if word != WRONG and noise:
        word, story = WRONG, f"{story}; NumPy complains on the way: {noise[0]}"
    return Verdict(case, word, story, time.perf_counter() - began)


def _outcome(case: Case, compilations: Compilations, said: list[Any]) -> tuple[str, str]:
    try:
        given = case.given()
    except Exception as error:
        return WRONG, f"refused before it came to that: {_named(error)}"
    processor, compiled = time.process_time(), compilations.count
    try:
        answer = case.run(given)
    except Exception as error:
        seconds, compiled = time.process_time() - processor, compilations.count - compiled
        return _judge_refusal(case, error, seconds, compiled)
    if case.expect == REFUSAL:
        return WRONG, f"not refused; {answer}"
    if case.warns:
        warned = [str(each.message) for each in said if all(text in str(each.message) for text in case.warns)]
        if not warned:
            return WRONG, f"answered without a warning that holds {case.warns}; {answer}"
        return (ANSWERED, f"with a warning: {warned[0]}") if answer.finite else (WRONG, "predictions are not finite")
    complaint = answer.complaint()
    return (ANSWERED, str(answer)) if complaint is None else (WRONG, complaint)


def _judge_refusal(case: Case, error: Exception, seconds: float, compiled: int) -> tuple[str, str]:
    message = str(error)
    if case.expect == ANSWER:
        return WRONG, f"refused: {_named(error)}"
    if not isinstance(error, ValueError | TypeError | Refusal):
        return WRONG, f"raised {_named(error)}"
    if missing := [text for text in case.mentions if text not in message]:
        return WRONG, f"the message does not hold {missing[0]!r}: {_named(error)}"
    if len(message) > LONGEST:
        return WRONG, f"a message of {len(message)} characters: {_named(error)}"
    if compiled:
        return WRONG, f"compiled {compiled} programs before it refused: {_named(error)}"
    if seconds > MOST_SECONDS:
        return WRONG, f"took {seconds:.1f} s to refuse: {_named(error)}"
    return REFUSED, message


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


# ---- what answers are compared with


def constant_gain_of_normal(log_probs: np.ndarray, y: np.ndarray, y_new: np.ndarray) -> float:
    """Nats per fresh row over the Student law that the mean and spread of the training targets give."""
    y_new = np.asarray(y_new, np.float64)
    return float(np.mean(log_probs) - np.mean(student_law(y).logpdf(y_new)))


def student_law(y: np.ndarray) -> Any:
    """What is known of a target from others of one normal distribution, without a prior."""
    from scipy import stats

    y = np.asarray(y, np.float64)
    num, spread = len(y), max(float(np.std(y, ddof=1)), 1e-12 * float(np.abs(y).max()), 1e-300)
    return stats.t(num - 1, y.mean(), spread * np.sqrt(1 + 1 / num))


def constant_gain_of_classes(log_probs: np.ndarray, places: np.ndarray, places_new: np.ndarray, num: int) -> float:
    """Nats per fresh row over the frequencies of the classes, each counted once more than it occurs."""
    counts = np.bincount(places, minlength=num) + 1.0
    return float(np.mean(log_probs) - np.mean(np.log(counts / counts.sum())[places_new]))

r"""Decisions under expected loss, and what it would be worth to know more.

The best action at an input is $a^* = \arg\min_a E[L(a, y)]$ over the predictive distribution. Knowing the target first
would save $\min_a E[L(a, y)] - E[\min_a L(a, y)]$, the expected value of perfect information (EVPI). Knowing the
parameters first would save $\min_a E[L(a, y)] - E_\theta \min_a E[L(a, y) \mid \theta]$ (EVPPI): the part that more
training data could bring; what is left is noise (Raiffa & Schlaifer, 1961).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from marginax._keys import Key, as_key
from marginax.model.outcome import Outcome
from marginax.predict import AbstractNumberPrediction
from marginax.predict.checks import check_array, check_count
from marginax.predict.reading import outcome_of, read_draw_probs, read_numbers, read_one_class

_CHUNK = 2**23  # sampled targets to have in memory at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Decision:
    """What to do at each input, and what it is expected to cost; from `choose`.

    Attributes:
        actions: what can be done, a sequence.
        expected_loss: of each input and action.
        value_of_perfect_information: how much the loss of each input would fall if its target were known first (EVPI).
    """

    actions: Any
    expected_loss: Float[np.ndarray, "n actions"]
    value_of_perfect_information: Float[np.ndarray, " n"]
    _value_of_learning: Float[np.ndarray, " n"] | None = None

    def __len__(self) -> int:
        return len(self.expected_loss)

    @property
    def best(self) -> Int[np.ndarray, " n"]:
        """The position in `actions` of the one with the smallest expected loss; the first of equals."""
        return np.argmin(self.expected_loss, axis=1)

    @property
    def chosen(self) -> Any:
        """The action of each input: an array if the actions are one, otherwise a list."""
        if isinstance(self.actions, np.ndarray):
            return self.actions[self.best]
        return [self.actions[index] for index in self.best]

    @property
    def risk(self) -> Float[np.ndarray, " n"]:
        """Expected loss of the best action."""
        return np.min(self.expected_loss, axis=1)

    @property
    def value_of_learning(self) -> Float[np.ndarray, " n"]:
        """How much the loss of each input would fall if the parameters were known first (EVPPI)."""
        if self._value_of_learning is None:
            raise ValueError(
                "value_of_learning needs the prediction of each draw: give choose an array (s, n, k) of the class "
                "probabilities of s draws, a prediction of numbers by a posterior, or targets of shape (s, num, n)"
            )
        return self._value_of_learning


def choose(
    prediction: Any,
    loss: Any,
    actions: Sequence[Any] | np.ndarray | None = None,
    *,
    num_targets: int = 200,
    key: Key | None = None,
) -> Decision:
    """Choose the action with the smallest expected loss at each input.

    To gain utility, give its negative as the loss. An option not to answer is one more action.

    Args:
        prediction: with a loss matrix, a `ClassificationPrediction`, or class probabilities (n, k), or (s, n, k) for
            each of s draws. With a loss function, a prediction of classes or numbers, a pair (mean, std), or sampled
            targets (num, n), or (s, num, n) for each of s draws.
        loss: a matrix with a row for each action and a column for each class, or a function (action, y) of one of the
            actions and an array of targets, which returns the loss of each target. A target of several outputs has
            them on the last axis of y.
        actions: names of the matrix' rows (by default their numbers), or what the function takes.
        num_targets: to draw from each draw's distribution of a prediction of numbers.
        key: an int seed or a JAX key, needed for those.

    Returns:
        The decision: `.chosen`, `.expected_loss`, `.risk`, and the values of information.

    >>> loss = [[0.0, 10.0], [1.0, 1.0]]  # to do nothing, to treat; for the healthy and the ill
    >>> decision = choose([[0.95, 0.05], [0.8, 0.2]], loss, ["wait", "treat"])
    >>> decision.chosen, decision.value_of_perfect_information.round(3).tolist()
    (['wait', 'treat'], [0.45, 0.8])
    """
    outcome = outcome_of(prediction)
    of_numbers = outcome is not None and outcome.is_number
    if not of_numbers and key is not None:
        raise ValueError("key is of use with a prediction of numbers only: leave it out")
    if callable(loss):
        if actions is None or not len(actions):
            raise ValueError(f"actions must be given with a loss function, one or more, got {actions!r}")
        if of_numbers:
            numbers = read_numbers(prediction, name="decisions")
            return _from_draws(numbers, loss, actions, check_count(num_targets, "num_targets"), key)
        if outcome is Outcome.CLASS:
            probs = read_one_class(prediction, name="decisions").probs
            labels = np.arange(probs.shape[1])
            return _from_probs(
                probs, np.stack([_losses(loss, action, labels, labels.shape) for action in actions]), actions
            )
        if outcome is not None:
            raise TypeError(f"prediction must be one of numbers or classes, got {prediction!r}")
        targets = check_array(prediction, "prediction")
        if targets.ndim not in (2, 3):
            raise ValueError(
                "prediction must hold targets of shape (num, n) or (s, num, n) with a loss function, "
                f"got shape {targets.shape}"
            )
        weights = np.full(len(targets), 1 / len(targets)) if targets.ndim == 3 else np.ones(1)
        parts = _average(targets.reshape(-1, *targets.shape[-2:]), weights, loss, actions)
        return _decide(actions, *parts, per_draw=targets.ndim == 3)
    matrix = check_array(loss, "loss")
    if of_numbers:
        raise TypeError("loss must be a function (action, y) for a prediction of numbers, got a matrix")
    by_draw = outcome is None and np.ndim(prediction) == 3
    probs = read_draw_probs(prediction) if by_draw else read_one_class(prediction, name="decisions").probs
    if matrix.ndim != 2 or matrix.shape[1] != probs.shape[-1]:
        raise ValueError(f"loss must have a row per action and {probs.shape[-1]} columns, got shape {matrix.shape}")
    if actions is None:
        actions = range(len(matrix))
    elif len(actions) != len(matrix):
        raise ValueError(f"actions must have one entry for each of the {len(matrix)} rows of loss, got {len(actions)}")
    return _from_probs(probs, matrix, actions)


def _from_probs(probs: Float[np.ndarray, "*s n k"], matrix: Float[np.ndarray, "a k"], actions: Any) -> Decision:
    by_draw = probs if probs.ndim == 3 else probs[None]
    average = by_draw.mean(axis=0)
    known = np.mean([np.min(draw @ matrix.T, axis=1) for draw in by_draw], axis=0)
    return _decide(actions, average @ matrix.T, known, average @ matrix.min(axis=0), per_draw=probs.ndim == 3)


def _from_draws(
    prediction: AbstractNumberPrediction, loss: Callable[..., Any], actions: Any, num: int, key: Key | None
) -> Decision:
    """Targets from every draw's distribution, a chunk of inputs at a time."""
    if key is None:
        raise TypeError("key must be an int seed or a JAX key to sample from a prediction of numbers, got None")
    weights = prediction.weights
    num_outputs = max(1, int(np.prod(prediction.y_shape)))
    size = max(1, _CHUNK // (num * len(weights) * num_outputs))
    parts = []
    for i, start in enumerate(range(0, len(prediction), size)):
        targets = prediction[start : start + size].sample_by_draw(num, key=jax.random.fold_in(as_key(key), i))
        parts.append(_average(targets, weights, loss, actions))
    together = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _decide(actions, *together, per_draw=prediction.knows_draws)


def _average(
    targets: Float[np.ndarray, "s num n *d"],
    weights: Float[np.ndarray, " s"],
    loss: Callable[..., Any],
    actions: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expected loss of each action, with the parameters known first, and with the target known first."""
    expected, known, perfect = [], np.inf, np.inf
    for action in actions:
        losses = _losses(loss, action, targets, targets.shape[:3])
        by_draw = losses.mean(axis=1)
        expected.append(weights @ by_draw)
        known, perfect = np.minimum(known, by_draw), np.minimum(perfect, losses)
    return np.stack(expected, axis=1), weights @ known, weights @ np.mean(perfect, axis=1)


def _decide(actions: Any, expected: np.ndarray, known: np.ndarray, perfect: np.ndarray, *, per_draw: bool) -> Decision:
    """Differences, of which rounding must not change the signs."""
    least = expected.min(axis=1)
    of_perfect = np.maximum(least - perfect, 0.0)
    of_learning = np.clip(least - known, 0.0, of_perfect) if per_draw else None
    return Decision(actions, expected, of_perfect, of_learning)


def _losses(loss: Callable[..., Any], action: Any, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    losses = np.asarray(loss(action, y))
    if losses.shape != shape:
        raise ValueError(f"loss must return one number per target, shape {shape}, got shape {losses.shape}")
    return check_array(losses, f"loss of action {action!r}")

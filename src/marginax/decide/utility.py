r"""Decisions under expected loss, and what it would be worth to know more.

The best action at an input is $a^* = \arg\min_a E[L(a, y)]$ over the predictive distribution. Knowing the target first
would save $\min_a E[L(a, y)] - E[\min_a L(a, y)]$, the expected value of perfect information (EVPI). Knowing the
parameters first would save $\min_a E[L(a, y)] - E_\theta \min_a E[L(a, y) \mid \theta]$ (EVPPI): the part that more
training data could bring; what is left is noise (Raiffa & Schlaifer, 1961).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from marginax._keys import Key, as_key
from marginax.decide.reading import is_prediction, read_numbers, read_probs
from marginax.predict import ClassificationPrediction, RegressionPrediction

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
                "probabilities of s draws, a RegressionPrediction, or targets of shape (s, num, n)"
            )
        return self._value_of_learning


def choose(
    prediction: Any,
    loss: Any,
    actions: Sequence[Any] | np.ndarray | None = None,
    *,
    num_samples: int = 200,
    key: Key | None = None,
) -> Decision:
    """Choose the action with the smallest expected loss at each input.

    To gain utility, give its negative as the loss. An option not to answer is one more action.

    Args:
        prediction: with a loss matrix, a `ClassificationPrediction`, or class probabilities (n, k), or (s, n, k) for
            each of s draws. With a loss function, any prediction of ours, or sampled targets (num, n), or
            (s, num, n) for each of s draws.
        loss: a matrix with a row for each action and a column for each class, or a function (action, y) of one of the
            actions and an array of targets, which returns the loss of each target. A target of several outputs has
            them on the last axis of y.
        actions: names of the matrix' rows (by default their numbers), or what the function takes.
        num_samples: targets to draw from each draw's distribution of a `RegressionPrediction`.
        key: an int seed or a JAX key, needed for a `RegressionPrediction`.

    Returns:
        The decision: `.chosen`, `.expected_loss`, `.risk`, and the values of information.

    >>> loss = [[0.0, 10.0], [1.0, 1.0]]  # to do nothing, to treat; for the healthy and the ill
    >>> decision = choose([[0.95, 0.05], [0.8, 0.2]], loss, ["wait", "treat"])
    >>> decision.chosen, decision.value_of_perfect_information.round(3).tolist()
    (['wait', 'treat'], [0.45, 0.8])
    """
    if not isinstance(prediction, RegressionPrediction) and key is not None:
        raise ValueError("key is of use with a RegressionPrediction only: leave it out")
    if callable(loss):
        if actions is None or not len(actions):
            raise ValueError(f"actions must be given with a loss function, one or more, got {actions!r}")
        if isinstance(prediction, ClassificationPrediction):
            labels = np.arange(prediction.probs.shape[1])
            matrix = [_losses(loss, action, labels, labels.shape) for action in actions]
            return _from_probs(read_probs(prediction), np.stack(matrix), actions)
        if isinstance(prediction, RegressionPrediction):
            return _from_mixture(prediction, loss, actions, num_samples, key)
        if is_prediction(prediction):
            raise TypeError(f"prediction must be one of numbers or classes, got {prediction!r}")
        targets = read_numbers(prediction, "prediction")
        if targets.ndim not in (2, 3):
            raise ValueError(
                "prediction must hold targets of shape (num, n) or (s, num, n) with a loss function, "
                f"got shape {targets.shape}"
            )
        weights = np.full(len(targets), 1 / len(targets)) if targets.ndim == 3 else np.ones(1)
        parts = _average(targets.reshape(-1, *targets.shape[-2:]), weights, loss, actions)
        return _decide(actions, *parts, per_draw=targets.ndim == 3)
    matrix = read_numbers(loss, "loss")
    if isinstance(prediction, RegressionPrediction):
        raise TypeError("loss must be a function (action, y) for a prediction of numbers, got a matrix")
    probs = read_probs(prediction)
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


def _from_mixture(
    prediction: RegressionPrediction, loss: Callable[..., Any], actions: Any, num: int, key: Key | None
) -> Decision:
    """Targets from every draw's distribution, a chunk of inputs at a time."""
    if key is None:
        raise TypeError("key must be an int seed or a JAX key to sample from a RegressionPrediction, got None")
    if num < 1:
        raise ValueError(f"num_samples must be >= 1, got {num}")
    weights = np.exp(prediction.mixture.log_weights)
    num_outputs = max(1, int(np.prod(prediction.y_shape)))
    size = max(1, _CHUNK // (num * len(weights) * num_outputs))
    parts = []
    for i, start in enumerate(range(0, len(prediction), size)):
        part = prediction[start : start + size]
        keys = jax.random.split(jax.random.fold_in(as_key(key), i), (len(weights), num))
        shape = (len(weights), num, len(part), num_outputs)
        targets = np.broadcast_to(np.asarray(_sample(part.mixture.components, keys), np.float64), shape)
        if not part.mixture.discrete:
            targets = np.ravel(part.y_shift) + np.ravel(part.y_factor) * targets
        parts.append(_average(targets.reshape(*shape[:3], *part.y_shape), weights, loss, actions))
    return _decide(actions, *(np.concatenate(each) for each in zip(*parts, strict=True)), per_draw=True)


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
    return read_numbers(losses, f"loss of action {action!r}")


@eqx.filter_jit
def _sample(components: PyTree, keys: Any) -> Array:
    def of_draw(component: Any, keys: Any) -> Array:
        return jax.vmap(component.sample)(keys)

    return eqx.filter_vmap(of_draw)(components, keys)

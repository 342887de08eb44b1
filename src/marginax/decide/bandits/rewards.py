"""What an arm gives, by the class of a row: drawn, and expected."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax.files import register
from marginax.predict.checks import check_array

_EAT, _REWARD, _POISON = 1, 5.0, -35.0


class AbstractRewards(eqx.Module):
    """The law of the reward of every arm, given the class of a row."""

    @abc.abstractmethod
    def draw(self, y: Int[Array, ""], arm: Int[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """A reward; with one key, arms of one law give the same."""

    @property
    @abc.abstractmethod
    def expected(self) -> Float[np.ndarray, "classes arms"]:
        """The mean reward of every arm for every class."""

    @property
    def num_classes(self) -> int:
        """Classes of rows."""
        return self.expected.shape[0]

    @property
    def num_arms(self) -> int:
        """Arms that there are to pull."""
        return self.expected.shape[1]


@register("bandit/reward_table")
class RewardTable(AbstractRewards):
    """One of a few rewards, with known probabilities.

    Args:
        values: of shape (classes, arms) where rewards are certain, else (classes, arms, outcomes).
        probs: of the outcomes, in the shape of the values; left out where rewards are certain.

    >>> RewardTable.mushrooms().expected.tolist()
    [[0.0, 5.0], [0.0, -15.0]]
    """

    values: Float[np.ndarray, "classes arms outcomes"]
    probs: Float[np.ndarray, "classes arms outcomes"]

    def __init__(self, values: Any, probs: Any = None):
        values = check_array(values, "values")
        if values.ndim not in (2, 3):
            raise ValueError(f"values must have shape (classes, arms) or (classes, arms, outcomes), got {values.shape}")
        self.values = values.reshape(*values.shape[:2], -1)
        if probs is None and self.values.shape[-1] > 1:
            raise ValueError("probs must be given where an arm has several outcomes, got None")
        self.probs = np.ones(self.values.shape) if probs is None else check_array(probs, "probs")
        if self.probs.shape != self.values.shape:
            raise ValueError(f"probs must have the shape of values, {self.values.shape}, got {self.probs.shape}")
        if (self.probs < 0).any() or not np.allclose(self.probs.sum(-1), 1):
            raise ValueError("probs must be >= 0 and sum to 1 over the outcomes of an arm")

    @classmethod
    def for_classes(cls, num_classes: int) -> "RewardTable":
        """An arm for each class: 1 for the right one, 0 for the others.

        >>> RewardTable.for_classes(2).expected.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        return cls(np.eye(num_classes))

    @classmethod
    def mushrooms(cls) -> "RewardTable":
        """To eat (arm 1) or not (0): an edible one (class 0) gives 5; a poisonous one -35 or 5, each half the time."""
        values, probs = np.zeros((2, 2, 2)), np.full((2, 2, 2), 0.5)
        values[0, _EAT] = _REWARD
        values[1, _EAT] = _POISON, _REWARD
        return cls(values, probs)

    def draw(self, y: Int[Array, ""], arm: Int[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        real = jax.dtypes.canonicalize_dtype(float)
        below = jnp.asarray(np.cumsum(self.probs, axis=-1)[..., :-1], real)[y, arm]
        outcome = jnp.sum(jax.random.uniform(key, dtype=real) >= below)
        return jnp.asarray(self.values, real)[y, arm, outcome]

    @property
    def expected(self) -> Float[np.ndarray, "classes arms"]:
        return np.sum(self.values * self.probs, axis=-1)


@register("bandit/gaussian_rewards")
class GaussianRewards(AbstractRewards):
    """Normal around a mean for every class and arm.

    Args:
        mean: of shape (classes, arms).
        scale: standard deviation.

    >>> GaussianRewards([[0.0, 1.0]], 0.5).num_arms
    2
    """

    mean: Float[np.ndarray, "classes arms"]
    scale: float

    def __init__(self, mean: Any, scale: float):
        self.mean, self.scale = check_array(mean, "mean"), float(scale)
        if self.mean.ndim != 2:
            raise ValueError(f"mean must have shape (classes, arms), got {self.mean.shape}")
        if not self.scale >= 0:
            raise ValueError(f"scale must be >= 0, got {scale}")

    def draw(self, y: Int[Array, ""], arm: Int[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        real = jax.dtypes.canonicalize_dtype(float)
        return jnp.asarray(self.mean, real)[y, arm] + self.scale * jax.random.normal(key, dtype=real)

    @property
    def expected(self) -> Float[np.ndarray, "classes arms"]:
        return self.mean

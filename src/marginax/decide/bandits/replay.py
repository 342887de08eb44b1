"""Rows of a data set as the rounds of a contextual bandit: a context is shown, an arm is pulled, its reward is seen."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from jaxtyping import Key as Keys

from marginax.data.arrays import as_numeric
from marginax.decide.bandits.rewards import AbstractRewards, RewardTable
from marginax.files import register
from marginax.predict.checks import check_labels


class Rounds(eqx.Module):
    """Some rounds in a row, or one of them. Agents look at `x`, and at the rewards of the arms that they pull.

    Attributes:
        x: contexts.
        y: classes of their rows.
        keys: of the rewards.
        rewards: what arms give.
    """

    x: Float[Array, "*b d"]
    y: Int[Array, "*b"]
    keys: Keys[Array, "*b"]
    rewards: AbstractRewards

    def pull(self, arms: Int[Array, "*b"]) -> Float[Array, "*b"]:
        """The rewards of these arms, one of each round."""
        draw = lambda y, arm, key: self.rewards.draw(y, arm, key=key)  # noqa: E731
        return (jax.vmap(draw) if self.y.ndim else draw)(self.y, arms, self.keys)

    def at(self, x: Float[Array, "b p"]) -> "Rounds":
        """The same rounds with other contexts, such as features of them."""
        return Rounds(x, self.y, self.keys, self.rewards)


@register("bandit/replay")
class ReplayBandit(eqx.Module):
    """A data set as a contextual bandit.

    A round shows the inputs of a row. Rows come in random order, all of them before any comes again.

    Args:
        x: contexts, (n, d), as agents see them: standardise them first, or take them from `mx.data.load_bandit`.
        y: classes 0, 1, ... of the rows, (n,).
        rewards: what an arm gives, by class: `RewardTable.for_classes(num)` by default, 1 for the right class.

    >>> bandit = ReplayBandit(np.eye(3), [0, 1, 2])
    >>> bandit
    ReplayBandit(n=3, contexts of 3, arms=3)
    """

    x: Float[np.ndarray, "n d"]
    y: Int[np.ndarray, " n"]
    rewards: AbstractRewards

    def __init__(self, x: Any, y: Any, rewards: AbstractRewards | None = None):
        self.x = np.asarray(as_numeric(x, name="x"), jax.dtypes.canonicalize_dtype(float))
        if self.x.ndim != 2:
            raise ValueError(f"x must have shape (n, inputs), got {self.x.shape}")
        labels = as_numeric(y, name="y")
        rewards = RewardTable.for_classes(int(labels.max()) + 1) if rewards is None else rewards
        if not isinstance(rewards, AbstractRewards):
            raise TypeError(f"rewards must be an object such as mx.decide.RewardTable(values), got {rewards!r}")
        self.rewards = rewards
        self.y = check_labels(labels, (len(self.x),), rewards.num_classes).astype(np.int32)

    def __repr__(self) -> str:
        return f"ReplayBandit(n={len(self)}, contexts of {self.x.shape[1]}, arms={self.num_arms})"

    def __len__(self) -> int:
        return len(self.x)

    @property
    def num_arms(self) -> int:
        """Arms that there are to pull."""
        return self.rewards.num_arms

    def order(self, num_steps: int, *, key: PRNGKeyArray) -> Int[np.ndarray, " num_steps"]:
        """The row of every round."""
        passes = -(-num_steps // len(self))
        keys = [jax.random.fold_in(key, i) for i in range(passes)]
        shuffled = [np.asarray(jax.random.permutation(each, len(self))) for each in keys]
        return np.concatenate(shuffled)[:num_steps].astype(np.int64)

    def rounds(self, rows: Int[np.ndarray, " b"], keys: Keys[Array, " b"]) -> Rounds:
        """Of these rows."""
        return Rounds(jnp.asarray(self.x[rows]), jnp.asarray(self.y[rows]), keys, self.rewards)

    def expected(self, rows: Int[np.ndarray, " b"]) -> Float[np.ndarray, "b arms"]:
        """The mean reward of every arm in these rows."""
        return self.rewards.expected[self.y[rows]]

"""Forecasts as paths into the future: each follows one network, with noise that is drawn anew at every step."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from marginax.estimators.series import Windows
from marginax.predict import AbstractFunctions, AbstractFunctionSet
from marginax.predict.checks import check_level

_PATHS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Forecast:
    """What may come, as many paths.

    Attributes:
        paths: in the user's units; steps of a path belong together.
        conditional: the distribution of each step of each path given the steps before it, in the units of the model.
        offsets: what belongs to it in the user's units, y = offset + factor * (value).
        factor: the same.
        index: dates of the steps, where the series has dates.
    """

    paths: Float[np.ndarray, "paths horizon"]
    conditional: Any
    offsets: Float[np.ndarray, "paths horizon"]
    factor: float
    index: Any = None

    @property
    def horizon(self) -> int:
        """Steps."""
        return self.paths.shape[1]

    @property
    def mean(self) -> Float[np.ndarray, " horizon"]:
        """Expected values."""
        return self.paths.mean(axis=0)

    @property
    def std(self) -> Float[np.ndarray, " horizon"]:
        """Standard deviations, of noise and of what is not known about the network together."""
        return self.paths.std(axis=0, ddof=1)

    def quantile(self, q: float) -> Float[np.ndarray, " horizon"]:
        """A quantile of each step."""
        return np.quantile(self.paths, q, axis=0)

    def interval(self, level: float = 0.9) -> tuple[Float[np.ndarray, " horizon"], Float[np.ndarray, " horizon"]]:
        """Lower and upper ends of the central interval of each step."""
        level = check_level(level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def log_prob(self, y: Any) -> Float[np.ndarray, " horizon"]:
        """Log density of each step by itself: the mean over paths of that given the path before it; NaN where y is."""
        y = np.asarray(y, np.float64)
        values = jnp.asarray((np.nan_to_num(y) - self.offsets) / self.factor)
        each = np.asarray(_log_prob(self.conditional, values), np.float64)
        found = np.logaddexp.reduce(each, axis=0) - np.log(len(each)) - np.log(self.factor)
        return np.where(np.isnan(y), np.nan, found)

    def crps(self, y: Any) -> Float[np.ndarray, " horizon"]:
        """Continuous ranked probability score of each step, unbiased for few paths; NaN where y is missing."""
        y, num = np.asarray(y, np.float64), len(self.paths)
        ranks = 2 * np.arange(1, num + 1) - num - 1
        spread = (ranks[:, None] * np.sort(self.paths, axis=0)).sum(axis=0) / (num * (num - 1))
        return np.abs(self.paths - y).mean(axis=0) - spread


@eqx.filter_jit
def _log_prob(conditional: Any, values: Float[Array, "paths horizon"]) -> Float[Array, "paths horizon"]:
    return jax.vmap(jax.vmap(lambda each, value: each.log_prob(value[None])[..., 0]))(conditional, values)


def simulate(
    functions: AbstractFunctionSet,
    windows: Windows,
    z: Float[np.ndarray, " length"],
    known: Float[np.ndarray, "rows columns"],
    horizon: int,
    num_paths: int,
    *,
    key: PRNGKeyArray,
) -> tuple[Float[np.ndarray, "paths horizon"], Any]:
    """Paths in the units of the model, and the distribution of each step given those before it.

    Every path keeps one function all along; functions have paths by their weights.

    Args:
        functions: drawn from a posterior.
        windows: what they are shown.
        z: the last values that are known.
        known: columns from the second step of the window up to the last step.
        horizon: steps.
        num_paths: how many.
        key: of the choice of functions and of noise.
    """
    for_choice, for_noise = jax.random.split(key)
    weights = np.exp(functions.normalised_log_weights())
    edges = (np.arange(num_paths) + float(jax.random.uniform(for_choice))) / num_paths
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), edges), len(weights) - 1)
    keys, first, found = jax.random.split(for_noise, num_paths), 0, []
    for member in functions.members:
        last = first + member.num_draws
        mine = (chosen >= first) & (chosen < last)
        if mine.any():
            places = jnp.asarray(chosen[mine] - first)
            found.append(_simulate(member, windows, places, jnp.asarray(z), jnp.asarray(known), horizon, keys[mine]))
        first = last
    parts = [conditional for _, conditional in found]
    if len({jax.tree.structure(part) for part in parts}) > 1:
        raise TypeError("forecasts need functions of one kind: choose a method whose posterior has one")
    return (
        np.concatenate([np.asarray(values, np.float64) for values, _ in found]),
        jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts),
    )


@eqx.filter_jit
def _simulate(
    functions: AbstractFunctions,
    windows: Windows,
    places: Int[Array, " paths"],
    z: Array,
    known: Array,
    horizon: int,
    keys: Key[Array, " paths"],
) -> tuple[Array, PyTree]:
    def path(which: tuple[Array, PRNGKeyArray]) -> tuple[Array, PyTree]:
        place, key = which
        draw = functions.prepare(jax.tree.map(lambda leaf: leaf[place][None], functions.draws))
        draw = jax.tree.map(lambda leaf: leaf[0], draw)
        if windows.num_ahead > 1:
            return at_once(draw, key)

        def step(window: Array, k: Array) -> tuple[Array, tuple[Array, PyTree]]:
            seen = jax.lax.dynamic_slice_in_dim(known, k, windows.length)
            conditional = functions.distribution(draw, windows.inputs(window, seen)[None])
            value = conditional.sample(noise_key(key, k))[0, 0]
            after = jnp.concatenate([window[1:], value[None].astype(window.dtype)])
            return after, (value, full(conditional, 1))

        _, (values, conditionals) = jax.lax.scan(step, z, jnp.arange(horizon))
        return values, conditionals

    def at_once(draw: PyTree, key: PRNGKeyArray) -> tuple[Array, PyTree]:
        conditional = functions.distribution(draw, windows.inputs(z, known)[None])
        values = conditional.sample(key)[0]
        every = full(conditional, windows.num_ahead)
        return values[:horizon], jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1)[:horizon], every)

    return jax.lax.map(path, (places, keys), batch_size=min(_PATHS_AT_ONCE, len(keys)))


def noise_key(key: PRNGKeyArray, k: Array) -> PRNGKeyArray:
    """The key of the noise of a path at a step."""
    return jax.random.fold_in(key, k)


def full(distribution: Any, num: int) -> Any:
    """Every parameter of a distribution of one row in the shape (1, num, ...) of the row; for one step (1, ...)."""

    def whole(leaf: Array) -> Array:
        leaf = leaf if leaf.ndim > 2 else jnp.broadcast_to(leaf, (1, num))
        return leaf[0] if num == 1 else leaf

    return jax.tree.map(whole, distribution)

"""The mixture of the draws' conditional distributions: moments, densities, quantiles and samples.

Components live on the host and go to the device a chunk of rows at a time. The arithmetic is in float64: a
mixture averages many small numbers, and quantiles need distribution functions that resolve the tails.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray, PyTree

from marginax._compilation import compiled
from marginax.model.outcome import Outcome
from marginax.predict.root import find_quantile, find_smooth_quantile
from marginax.predict.workload import chunk_size

_LIVE_ARRAYS = 6
_BLOCK_BYTES = 64 * 2**20  # of components that are brought together at a time
_LEAST_ROWS = 256
CACHE_BYTES = 4 * 2**20  # of the components and what is made of them where a loop goes over them again and again


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """One distribution per draw and row, and the weights of the draws.

    Attributes:
        components: a distribution whose array leaves have a leading axis of draws, then (most of them) rows.
        row_axes: for each array leaf, whether its second axis runs over rows.
        log_weights: normalised, one per draw.
        num_rows: how many inputs.
        max_bytes: memory to use at a time.
    """

    components: PyTree
    row_axes: tuple[bool, ...]
    log_weights: Float[np.ndarray, " draws"]
    num_rows: int
    max_bytes: int

    @property
    def num_draws(self) -> int:
        """How many components per row."""
        return len(self.log_weights)

    @property
    def discrete(self) -> bool:
        """Whether the components live on the integers."""
        return getattr(self.components, "outcome", Outcome.REAL) is Outcome.COUNT

    def rows(self, index: Any) -> "Mixture":
        """The same mixture at some of the rows; index is a slice or an array of positions."""
        picked = self._map(lambda leaf: leaf[:, index], lambda leaf: leaf)
        num_rows = len(np.arange(self.num_rows)[index])
        return dataclasses.replace(self, components=picked, num_rows=num_rows)

    def averaged(self, num: int) -> "Mixture":
        """Every `num` rows as one, which is the mixture of theirs."""
        num_rows = self.num_rows // num

        def split(leaf: np.ndarray) -> np.ndarray:
            return np.moveaxis(leaf.reshape(len(leaf), num_rows, num, *leaf.shape[2:]), 2, 1)

        def merged(leaf: np.ndarray) -> np.ndarray:
            return leaf.reshape(len(leaf) * num, *leaf.shape[2:])

        components = self._map(lambda leaf: merged(split(leaf)), lambda leaf: np.repeat(leaf, num, axis=0))
        log_weights = np.repeat(self.log_weights, num) - np.log(num)
        return dataclasses.replace(self, components=components, log_weights=log_weights, num_rows=num_rows)

    def mean(self) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
        """The mean of the mixture, and the variance over draws of the components' means."""
        return self.by_rows(_mean)

    def means(self) -> Float[np.ndarray, "draws n d"]:
        """The means of the components."""
        if hasattr(type(self.components), "epistemic_variance"):
            raise TypeError(
                "prediction must average draws of networks to have a mean under each, got a linearised one: "
                "fit with predictive=mx.predict.ThroughNetwork()"
            )
        return np.swapaxes(self.by_rows(_means), 0, 1)

    def mean_covariance(self) -> Float[np.ndarray, "n d d"]:
        """The covariance over draws of the components' means."""
        return self.by_rows(_mean_covariance)

    def mean_variance(self) -> Float[np.ndarray, "n d"]:
        """The mean over draws of the components' variances."""
        return self.by_rows(_mean_variance)

    def cdf(self, y: Num[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Marginal distribution functions at y."""
        return self.by_rows(_cdf, y)

    def log_prob(self, y: Num[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Log density of each row, joint over outputs within each draw."""
        return self.by_rows(_log_prob, y)

    def quantiles(
        self, levels: Float[np.ndarray, " l"], mean: Float[np.ndarray, "n d"], std: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, "l n d"]:
        """Marginal quantiles at levels that are the same in all rows; the moments tell where to look, or are NaN."""
        q = np.broadcast_to(np.asarray(levels, np.float64)[None, :, None], (len(mean), len(levels), mean.shape[1]))
        return np.moveaxis(self.quantile_by_row(q, mean, std), 1, 0)

    def quantile_by_row(
        self, q: Float[np.ndarray, "n l d"], mean: Float[np.ndarray, "n d"], std: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, "n l d"]:
        """The same, with levels for each row and output."""
        if self.discrete:
            return self.by_rows(_count_quantiles, q, mean, std)
        found, sure = self.by_rows(_smooth_quantiles, q, mean, std, max_bytes=CACHE_BYTES)
        rest = np.flatnonzero(~sure.all(axis=(1, 2)))
        if rest.size:
            found[rest] = self.rows(rest).by_rows(_quantiles, q[rest], mean[rest], std[rest])
        return found

    def sample(self, num: int, *, key: PRNGKeyArray) -> Num[np.ndarray, "num n d"]:
        """Pick a draw, then sample its distribution at all rows; `num` times."""
        pick_key, noise_key = jax.random.split(key)
        ladder = np.cumsum(np.exp(self.log_weights))
        uniform = np.asarray(jax.random.uniform(pick_key, (num,)), np.float64)
        return self._sampled(np.searchsorted(ladder, uniform * ladder[-1], side="right"), noise_key)

    def sample_each(self, *, key: PRNGKeyArray) -> Num[np.ndarray, "draws n d"]:
        """One sample of the distribution of every draw, at all rows."""
        return self._sampled(np.arange(self.num_draws), key)

    def _sampled(self, picks: Int[np.ndarray, " num"], key: PRNGKeyArray) -> Num[np.ndarray, "num n d"]:
        num = len(picks)
        keys = jax.random.split(key, num)
        size = chunk_size(num, self._limit(self.num_rows))
        parts = []
        for start in range(0, num, size):
            rows = np.minimum(np.arange(start, start + size), num - 1)
            take = functools.partial(np.take, indices=picks[rows], axis=0)
            chunk = self._map(take, take)
            parts.append(np.asarray(_sample(chunk, keys[rows]))[: num - start])
        return np.concatenate(parts)

    def sample_by_draw(self, num: int, *, key: PRNGKeyArray) -> Num[Array, "draws num n d"]:
        """Samples of the distribution of every draw."""
        return _sample_by_draw(self.components, jax.random.split(key, (self.num_draws, num)))

    def cdf_at(self, rows: Int[np.ndarray, " m"], points: Float[np.ndarray, "m q d"]) -> Float[np.ndarray, "m q d"]:
        """Distribution functions of some rows (a row may appear often) at several points each, in blocks of rows."""
        most = max(_LEAST_ROWS, _power_of_two(_BLOCK_BYTES // (24 * self.num_draws * points.shape[2])) // 2)
        parts = []
        for start in range(0, len(rows), most):
            num = min(most, len(rows) - start)
            length = max(_LEAST_ROWS, _power_of_two(num))  # few lengths: few compilations
            at = np.minimum(np.arange(start, start + length), len(rows) - 1)
            parts.append(self.rows(rows[at]).by_rows(_cdf_points, points[at])[:num])
        return np.concatenate(parts)

    def scaled(self, factor: float, centre: Float[np.ndarray, "n d"] | None = None) -> "Mixture":
        """Every component moved and scaled, so that the mixture is scaled around its mean, or around a given centre."""
        shift = (1 - factor) * (self.mean()[0] if centre is None else centre)
        with jax.enable_x64(True):
            moved = eqx.filter_vmap(lambda component: component.affine(shift, factor))(self.components)
        arrays, rest = eqx.partition(moved, lambda leaf: isinstance(leaf, np.ndarray | jax.Array))
        leaves, treedef = jax.tree.flatten(arrays)
        before = [leaf for leaf in jax.tree.leaves(self.components) if isinstance(leaf, np.ndarray | jax.Array)]
        pairs = list(zip(leaves, before, self.row_axes, strict=True))
        row_axes = tuple(had or new.shape != old.shape for new, old, had in pairs)  # a shift of its own for every row
        found = [np.asarray(new).astype(old.dtype) for new, old, _ in pairs]
        components = eqx.combine(jax.tree.unflatten(treedef, found), rest)
        return dataclasses.replace(self, components=components, row_axes=row_axes)

    def by_rows(self, function: Callable[..., Any], *row_args: np.ndarray, max_bytes: int | None = None) -> Any:
        """A jitted function of (components, log weights, row arguments), a chunk of rows at a time."""
        size = chunk_size(self.num_rows, self._limit(self.num_draws, max_bytes))
        parts = []
        for start in range(0, self.num_rows, size):
            if size == self.num_rows:
                components, args = self._map(_double, _double), row_args
            else:
                rows = np.minimum(np.arange(start, start + size), self.num_rows - 1)
                components = self._map(lambda leaf, rows=rows: _double(leaf[:, rows]), _double)
                args = [arg[rows] for arg in row_args]
            with jax.enable_x64(True):
                result = function(components, self.log_weights, *map(_double, args))
            parts.append(jax.tree.map(np.asarray, result))
        if size == self.num_rows:
            return jax.tree.map(np.array, parts[0])
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: self.num_rows], *parts)

    def _limit(self, repeats: int, max_bytes: int | None = None) -> int:
        """How many rows (or samples) fit, when each is `repeats` times the numbers of one component."""
        arrays = [leaf for leaf in jax.tree.leaves(self.components) if eqx.is_array(leaf)]
        numbers = sum(math.prod(leaf.shape[1 + has :]) for leaf, has in zip(arrays, self.row_axes, strict=True))
        return min(self.max_bytes, max_bytes or self.max_bytes) // (8 * _LIVE_ARRAYS * max(1, numbers) * repeats)

    def _map(self, with_rows: Callable[[Any], Any], without: Callable[[Any], Any]) -> PyTree:
        leaves, treedef = jax.tree.flatten(self.components)
        row_axes = iter(self.row_axes)
        mapped = [((with_rows if next(row_axes) else without)(leaf) if eqx.is_array(leaf) else leaf) for leaf in leaves]
        return jax.tree.unflatten(treedef, mapped)


def _double(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _over_draws(components: PyTree, name: str, *args: Any) -> Array:
    """A property or method of the component of each draw."""
    kind = type(components)
    if not hasattr(kind, name):
        raise NotImplementedError(f"{kind.__name__} has no {name}, so this cannot be predicted with it")
    if isinstance(getattr(kind, name), property):
        return eqx.filter_vmap(lambda c: getattr(c, name))(components)
    return eqx.filter_vmap(lambda c: getattr(c, name)(*args))(components)


def _average(values: Float[Array, "draws *rest"], log_weights: Float[Array, " draws"]) -> Float[Array, "*rest"]:
    """Weighted mean over draws; a draw of weight zero does not count, not even an infinite one."""
    weights = jnp.exp(log_weights).reshape(-1, *[1] * (values.ndim - 1))
    return jnp.sum(jnp.where(weights > 0, weights * values, 0), axis=0)


@compiled
def _mean(components: PyTree, log_weights: Array) -> tuple[Array, Array]:
    means = _over_draws(components, "mean")
    mean = _average(means, log_weights)
    spread = jnp.square(means - mean)
    if hasattr(type(components), "epistemic_variance"):  # components that know how sure they are of their own mean
        spread = spread + _over_draws(components, "epistemic_variance")
    return mean, _average(spread, log_weights)


@compiled
def _means(components: PyTree, log_weights: Array) -> Array:
    return jnp.swapaxes(_over_draws(components, "mean"), 0, 1)


@compiled
def _mean_covariance(components: PyTree, log_weights: Array) -> Array:
    means = _over_draws(components, "mean")
    centred = means - _average(means, log_weights)
    between = jnp.einsum("s,snd,sne->nde", jnp.exp(log_weights), centred, centred)
    if hasattr(type(components), "epistemic_variance"):
        between = between + _average(components.covariance, log_weights)
    return between


@compiled
def _mean_variance(components: PyTree, log_weights: Array) -> Array:
    return _average(_over_draws(components, "variance"), log_weights)


@compiled
def _cdf(components: PyTree, log_weights: Array, y: Array) -> Array:
    return _average(_over_draws(components, "cdf", y), log_weights)


@compiled
def _log_prob(components: PyTree, log_weights: Array, y: Array) -> Array:
    log_probs = _over_draws(components, "log_prob", y)
    joint = jnp.sum(log_probs.reshape(*log_probs.shape[:2], -1), axis=-1)
    return jax.nn.logsumexp(joint + log_weights[:, None], axis=0)


@compiled
def _smooth_quantiles(components: PyTree, log_weights: Array, q: Array, mean: Array, std: Array) -> tuple[Array, Array]:
    rough, rough_weights = jax.tree.map(_single, (components, log_weights))

    def solve(level: Array) -> tuple[Array, Array]:
        return find_smooth_quantile(
            lambda y: _cdf(components, log_weights, y), lambda y: _cdf(rough, rough_weights, y), level, mean, std
        )

    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), jax.lax.map(solve, jnp.moveaxis(q, 1, 0)))


@compiled
def _quantiles(
    components: PyTree, log_weights: Array, q: Array, mean: Array, std: Array, *, discrete: bool = False
) -> Array:
    def solve(level: Array) -> Array:
        return find_quantile(lambda y: _cdf(components, log_weights, y), level, mean, std, discrete=discrete)

    return jnp.moveaxis(jax.lax.map(solve, jnp.moveaxis(q, 1, 0)), 0, 1)


_count_quantiles = functools.partial(_quantiles, discrete=True)


def _single(leaf: Any) -> Any:
    is_double = eqx.is_array(leaf) and leaf.dtype == jnp.float64
    return leaf.astype(jnp.float32) if is_double else leaf


@compiled
def _sample(components: PyTree, keys: Any) -> Array:
    if not hasattr(type(components), "sample"):
        raise NotImplementedError(f"{type(components).__name__} has no sample, so nothing can be drawn from it")
    return eqx.filter_vmap(lambda c, key: c.sample(key))(components, keys)


@compiled
def _sample_by_draw(components: PyTree, keys: Any) -> Array:
    return eqx.filter_vmap(lambda component, keys: jax.vmap(component.sample)(keys))(components, keys)


@compiled
def _cdf_points(components: PyTree, log_weights: Array, points: Float[Array, "m q d"]) -> Float[Array, "m q d"]:
    at = jax.lax.map(lambda y: _cdf(components, log_weights, y), jnp.moveaxis(points, 1, 0))
    return jnp.moveaxis(at, 0, 1)


def _power_of_two(number: int) -> int:
    """The smallest one that is no smaller."""
    return 1 << max(0, number - 1).bit_length()

"""Log likelihood of each row under each draw of a posterior, a block of rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._keys import Key, as_key
from marginax.data.arrays import Arrays, as_numeric
from marginax.model.outcome import Outcome
from marginax.posterior import AbstractPosterior, Draws
from marginax.posterior.posterior import DEFAULT_NUM_SAMPLES
from marginax.predict import DrawnOutputs, LinearPart
from marginax.predict.workload import chunk_sizes, measure_workload


@dataclass(frozen=True, eq=False)
class PointwiseLikelihood:
    """What is needed to compute log likelihoods, in the units of the user's data; the draws are fixed.

    Attributes:
        model: gives the distribution of the targets under one draw.
        params: the draws, along a leading axis.
        log_weights: of the draws, normalised.
        x: inputs, in the units of the model.
        y: targets, in the units of the model.
        log_factor: what the units of the user's targets add to a log density, with the opposite sign.
        chains: (chains, draws per chain) where draws come from Markov chains, else None.
        max_bytes: memory for a block.
    """

    model: Any
    params: PyTree
    log_weights: Float[np.ndarray, " s"]
    x: np.ndarray
    y: np.ndarray
    log_factor: float
    chains: tuple[int, int] | None
    max_bytes: int

    @property
    def num_draws(self) -> int:
        """How many draws."""
        return len(self.log_weights)

    def blocks(self) -> Iterator[Float[np.ndarray, "s r"]]:
        """Log likelihoods of all draws at the next rows, in float64."""
        first = jax.ShapeDtypeStruct(self.x.shape, jnp.asarray(self.x[:1]).dtype)
        workload = measure_workload(self.model, self.params, first)
        draws, rows = chunk_sizes(self.num_draws, len(self.x), workload, self.max_bytes)
        rows = min(rows, max(1, self.max_bytes // (32 * self.num_draws)))
        shapes, static = eqx.partition(workload.outcome, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        for start in range(0, len(self.x), rows):
            at = np.minimum(np.arange(start, start + rows), len(self.x) - 1)
            x, y = jnp.asarray(self.x[at]), self.y[at]
            block = np.empty((self.num_draws, min(rows, len(self.x) - start)))
            for begin in range(0, self.num_draws, draws):
                chosen = np.minimum(np.arange(begin, begin + draws), self.num_draws - 1)
                params = jax.tree.map(lambda leaf, chosen=chosen: jnp.asarray(leaf[chosen]), self.params)
                leaves = [_double(leaf) for leaf in _components(self.model, params, x)]
                components = eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), leaves), static)
                with jax.enable_x64(True):
                    values = np.asarray(_log_probs(components, _double(y)))
                block[begin : begin + draws] = values[: self.num_draws - begin, : block.shape[1]]
            yield block - self.log_factor


def pointwise_likelihood(
    posterior: AbstractPosterior, data: Any, *, num_samples: int | None, key: Key | None, max_bytes: int
) -> PointwiseLikelihood:
    """Check that data and posterior belong together.

    Args:
        posterior: with a data spec, as `mx.fit` makes them.
        data: a pair (x, y) in the units of the training data, or the standardised data themselves.
        num_samples: draws to use; by default all, or 100 of a continuous posterior.
        key: seed for drawing them; by default that of predictions.
        max_bytes: memory for a block.
    """
    spec = posterior.spec
    if spec is None:
        raise ValueError("this posterior was not made by mx.fit and has no data spec: pass spec= when building it")
    if isinstance(data, Arrays):
        scaled, x, y = data.scaling is not None, np.asarray(data.x), np.asarray(data.y)
    elif isinstance(data, tuple | list) and len(data) == 2:
        scaled, x, y = False, spec.check_x(data[0]), as_numeric(data[1], name="y")
    else:
        raise TypeError(f"data must be a pair (x, y), got {type(data).__name__}")
    if y.shape != (len(x), *spec.y_shape):
        raise ValueError(f"y must have shape {(len(x), *spec.y_shape)}, as in the training data, got {y.shape}")
    model = posterior.model
    model.likelihood.check(model.output_size(spec.x_shape, jax.dtypes.canonicalize_dtype(np.float64)), y)
    log_factor = 0.0
    if spec.scaling is not None:
        if not scaled:
            x, y = np.asarray(spec.scaling.transform_x(x)), np.asarray(spec.scaling.transform_y(y))
        if spec.scaling.y_factor is not None:
            factor = np.broadcast_to(np.abs(np.asarray(spec.scaling.y_factor, np.float64)), spec.y_shape)
            log_factor = float(np.log(factor).sum())
    base = posterior.key if key is None else as_key(key)
    base = jax.random.key(0) if base is None else base
    linear = posterior.linear_parts()
    if linear is None:
        predictive, (params, log_weights) = posterior.predictive_model(), posterior.support(num_samples, key=base)
    else:
        predictive, params, log_weights = _drawn_outputs(*linear[:2], num_samples, x, base)
    num = jax.tree.leaves(params)[0].shape[0]
    if num < 2:
        raise ValueError(f"posterior must have at least 2 draws to leave data out, got {posterior.describe()}")
    chains = None
    if isinstance(posterior, Draws) and num == posterior.num_chains * posterior.num_draws:
        chains = posterior.num_chains, posterior.num_draws
    weights = np.full(num, -np.log(num)) if log_weights is None else np.asarray(log_weights, np.float64)
    weights = weights - np.logaddexp.reduce(weights)
    return PointwiseLikelihood(predictive, params, weights, x, y, log_factor, chains, max_bytes)


def _drawn_outputs(
    parts: tuple[LinearPart, ...], log_weights: np.ndarray, num_samples: int | None, x: np.ndarray, key: PRNGKeyArray
) -> tuple[DrawnOutputs, PyTree, np.ndarray]:
    """Draws of the outputs of linearised posteriors, as their predictions would take them."""
    num = max(2, (DEFAULT_NUM_SAMPLES if num_samples is None else num_samples) // len(parts))
    width = parts[0].model.output_size(x.shape[1:], jnp.asarray(x[:1]).dtype)
    noise = jax.random.normal(key, (len(parts), num, width)).reshape(-1, width)
    number = jnp.repeat(jnp.arange(len(parts)), num)
    return DrawnOutputs(parts), (number, noise), np.repeat(log_weights - np.log(num), num)


@eqx.filter_jit
def _components(model: Any, params: PyTree, x: Array) -> list[Array]:
    """The arrays of each draw's distribution."""
    found = eqx.filter_vmap(lambda p: eqx.filter(model.predictive(p, x, key=None), eqx.is_array))(params)
    return jax.tree.leaves(found)


@eqx.filter_jit
def _log_probs(components: PyTree, y: Array | np.ndarray) -> Float[Array, "s r"]:
    def one(distribution: Any) -> Array:
        if getattr(distribution, "outcome", Outcome.REAL) is Outcome.CLASS:
            return distribution.log_prob(y)
        values = distribution.log_prob(y.reshape(len(y), -1))
        return jnp.sum(values.reshape(len(y), -1), axis=-1)

    return eqx.filter_vmap(one)(components)


def _double(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array

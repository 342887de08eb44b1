"""Log likelihood of each row under each draw of a posterior, a block of rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax._keys import Key
from marginax.data.arrays import Arrays, as_numeric
from marginax.model.outcome import Outcome
from marginax.posterior import AbstractPosterior, Draws
from marginax.predict import DrawLoop
from marginax.predict.loop import components
from marginax.predict.observed import observed


@dataclass(frozen=True, eq=False)
class PointwiseLikelihood:
    """What is needed to compute log likelihoods, in the units of the user's data; the draws are fixed.

    Attributes:
        loop: over draws and inputs.
        y: targets, in the units of the model.
        log_factor: what the units of the user's targets add to a log density, with the opposite sign.
        chains: (chains, draws per chain) where draws come from Markov chains, else None.
    """

    loop: DrawLoop
    y: np.ndarray
    log_factor: float
    chains: tuple[int, int] | None

    @property
    def num_draws(self) -> int:
        """How many draws."""
        return self.loop.num_draws

    @property
    def log_weights(self) -> Float[np.ndarray, " s"]:
        """Of the draws, normalised."""
        return self.loop.log_weights

    def blocks(self) -> Iterator[Float[np.ndarray, "s r"]]:
        """Log likelihoods of all draws at the next rows, in float64."""
        most = max(1, self.loop.max_bytes // (32 * self.num_draws))
        block = np.empty((0, 0))
        for draws, rows, leaves in self.loop.run(components, rows_first=True, max_rows=most):
            if draws.start == 0:
                block = np.empty((self.num_draws, rows.stop - rows.start))
            doubles = [to_double(leaf) for leaf in jax.tree.leaves(leaves)]
            num_rows = next(d.shape[1] for d, has in zip(doubles, self.loop.row_axes, strict=True) if has)
            y = self.y[np.minimum(np.arange(rows.start, rows.start + num_rows), len(self.y) - 1)]
            with jax.enable_x64(True):
                values = np.asarray(log_likelihoods(self.loop.rebuild(doubles), to_double(y)))
            block[draws] = values[: draws.stop - draws.start, : block.shape[1]]
            if draws.stop == self.num_draws:
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
    spec = posterior.data_spec()
    if isinstance(data, Arrays):
        scaled, x, y = data.scaling is not None, np.asarray(data.x), np.asarray(data.y)
    elif isinstance(data, tuple | list) and len(data) == 2:
        scaled, x, y = False, spec.check_x(data[0]), as_numeric(data[1], name="y")
    else:
        raise TypeError(f"data must be a pair (x, y), got {type(data).__name__}")
    if y.shape != (len(x), *spec.y_shape):
        raise ValueError(f"y must have shape {(len(x), *spec.y_shape)}, as in the training data, got {y.shape}")
    model: Any = posterior.model
    if not model.likelihood.is_density:
        raise TypeError(
            f"{type(model.likelihood).__name__} has terms that are no likelihood of data, to leave rows out of"
        )
    model.likelihood.check(model.output_size(spec.x_shape, jax.dtypes.canonicalize_dtype(np.float64)), y)
    log_factor = 0.0
    if spec.scaling is not None:
        y = y if scaled else np.asarray(spec.scaling.transform_y(y))
        if spec.scaling.y_factor is not None:
            factor = np.broadcast_to(np.abs(np.asarray(spec.scaling.y_factor, np.float64)), spec.y_shape)
            log_factor = float(np.log(factor).sum())
    functions = observed(posterior.functions(num_samples, key=posterior.prediction_key(key)))
    if functions.num_draws < 2:
        raise ValueError(f"posterior must have at least 2 draws to leave data out, got {posterior.describe()}")
    chains = None
    if isinstance(posterior, Draws) and functions.num_draws == posterior.num_chains * posterior.num_draws:
        chains = posterior.num_chains, posterior.num_draws
    loop = DrawLoop(functions, x, spec=None if scaled else spec, max_bytes=max_bytes)
    return PointwiseLikelihood(loop, y, log_factor, chains)


@eqx.filter_jit
def log_likelihoods(components: PyTree, y: Array | np.ndarray) -> Float[Array, "s r"]:
    """Of each row under each of a stack of distributions; outputs of a row are added up."""

    def one(distribution: Any) -> Array:
        values = distribution.log_prob(y if distribution.outcome is Outcome.CLASS else y.reshape(len(y), -1))
        return jnp.sum(values.reshape(len(y), -1), axis=-1)

    return eqx.filter_vmap(one)(components)


def to_double(leaf: Any) -> np.ndarray:
    """Floats as float64, for sums of many log likelihoods."""
    array = np.asarray(leaf)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array

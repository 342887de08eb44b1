"""What every posterior of a model with unobserved parts can be asked."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, PyTree

from marginax.data import Batch, Rows
from marginax.data.arrays import as_numeric
from marginax.model.conjugate import AbstractConjugate, posterior_draws
from marginax.posterior import AbstractPosterior


@dataclass(frozen=True)
class AbstractQueries:
    """Questions to a posterior.

    Args:
        posterior: of any method.
    """

    posterior: AbstractPosterior

    def log_likelihood(self, data: Any) -> np.ndarray:
        r"""Log density of each example of new data: $\log \frac1S \sum_s p(x \mid \theta_s)$.

        The average is over all draws, or 100 of a continuous posterior.
        """
        model: Any = self.posterior.model
        return np.asarray(_log_likelihood(model, posterior_draws(self.posterior), as_batch(model, data)))

    def mean_of(self, function: Any) -> np.ndarray:
        """The mean of a function of parameters and model; of a posterior in closed form, its value in the middle."""
        known = hasattr(self.posterior, "belief")
        draws = self.posterior.starting_points(1) if known else posterior_draws(self.posterior)
        return averaged(function, draws, self.posterior.model)


def as_rows(data: Any) -> Rows:
    """One array, or nested lists, of observations."""
    return data if isinstance(data, Rows) else Rows(as_numeric(data, name="data"))


def as_batch(model: Any, data: Any) -> Batch:
    """New data as the model reads them, all at once."""
    rows = model.read(data)
    model.check_rows(rows.tree)
    return Batch(jax.tree.map(jnp.asarray, rows.tree), jnp.arange(rows.num_examples), rows.num_examples)


@eqx.filter_jit
def _log_likelihood(model: AbstractConjugate, draws: PyTree, batch: Batch) -> Array:
    values = jax.lax.map(lambda params: model.log_likelihood(params, batch), draws)
    return logsumexp(values, axis=0) - jnp.log(values.shape[0])


def averaged(function: Any, stacked: PyTree, *args: Any) -> np.ndarray:
    """The mean over the leading axis of what a function of its parts gives, one part at a time."""
    return np.asarray(_averaged(function, stacked, args))


@eqx.filter_jit
def _averaged(function: Any, stacked: PyTree, args: PyTree) -> PyTree:
    parts = jax.lax.map(lambda part: function(part, *args), stacked)
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), parts)

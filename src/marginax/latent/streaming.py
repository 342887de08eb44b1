r"""Data that come in parts, each seen once.

The statistics of a new part, expected under the belief so far, are added to those before it (Neal & Hinton, 1998):

$S \leftarrow S + \sum_{i \in \text{part}} E_{q} [t(x_i, z_i)], \quad
q(\theta) \propto p(\theta) \exp \langle \eta(\theta), S \rangle$

Where nothing is unobserved, this is exact: two halves of the data in turn equal all of them at once.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from marginax.data import Batch
from marginax.latent.queries import as_batch
from marginax.model.conjugate import AbstractConjugate, Statistics
from marginax.posterior import Conjugate


def seen_statistics(posterior: Conjugate, data: Any) -> Statistics:
    """What the data say about the parameters, under a belief that was fitted to them."""
    return _expected(posterior.model, posterior.belief, as_batch(posterior.model, data))


def absorb(posterior: Conjugate, statistics: Statistics, data: Any) -> tuple[Conjugate, Statistics]:
    """The posterior, and the statistics, with new data; the bound of a stream is not known."""
    model = posterior.model
    new = _expected(model, posterior.belief, as_batch(model, data))
    statistics = jax.tree.map(jnp.add, statistics, new)
    belief = eqx.filter_jit(model.conjugate)(statistics)
    moved = Conjugate(model, belief, -jnp.inf, posterior.elbos, posterior.spec, posterior.record, posterior.key)
    return moved, statistics


@eqx.filter_jit
def _expected(model: AbstractConjugate, belief: PyTree, batch: Batch) -> Statistics:
    return model.expect(model.expected_natural(jax.tree.map(jnp.asarray, belief)), batch).statistics

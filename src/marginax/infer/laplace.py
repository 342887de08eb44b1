r"""The Laplace approximation: a normal posterior around the mode, as wide as the curvature there allows.

$p(\theta \mid D) \approx N\big(\hat\theta, (\sum_n J_n^\top F_n J_n + \Lambda)^{-1}\big)$, with the generalised
Gauss-Newton matrix for the likelihood and $\Lambda$ the curvature of the prior (MacKay, 1992; Daxberger et al., 2021).
Predictions are linearised in the weights around the mode, which is where the normal is accurate (Immer et al., 2021).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax.curvature import AbstractStructure, Kronecker, add_batch, covariance_of, start_sums
from marginax.data import Batch
from marginax.files import register
from marginax.infer._method import AbstractMethod, Infos, Phase
from marginax.infer._train import begin_by_training, training_memory
from marginax.infer.map import MAP
from marginax.model import Model, Params
from marginax.posterior import AbstractPosterior, Gaussian, Mixture


class LaplaceState(eqx.Module):
    """The mode as it is found, then the curvature as it is summed."""

    params: Params
    training: PyTree
    sums: PyTree
    count: Array


class LaplaceInfo(eqx.Module):
    """How many examples the curvature has seen."""

    num_seen: Array


@register
class Laplace(AbstractMethod):
    """A normal distribution around the mode.

    Trains by MAP first, unless `init=` gives a network or posterior: then that is taken as the mode.

    Args:
        structure: what to keep of the curvature: `mx.curvature.Kronecker()` or `Diagonal()`.
        training: how the mode is found.
    """

    structure: AbstractStructure = eqx.field(default_factory=Kronecker)
    training: MAP | None = eqx.field(default_factory=MAP)

    def __check_init__(self):
        if not isinstance(self.structure, AbstractStructure):
            raise TypeError(f"structure must be mx.curvature.Kronecker() or Diagonal(), got {self.structure!r}")

    @property
    def batch_size(self) -> int | None:
        """As in training."""
        return 128 if self.training is None else self.training.batch_size

    def continued(self) -> "Laplace":
        """From a given start there is nothing to train."""
        return Laplace(structure=self.structure, training=None)

    def init(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> LaplaceState:
        """Start where the chain starts, with empty sums."""
        training = None
        if self.training is not None:
            training = training_memory(self.training.init(model, params, batch, key=key))
        return LaplaceState(params, training, start_sums(self.structure, model), jnp.zeros((), jnp.int32))

    @property
    def needs_full_batch(self) -> bool:
        """As in training."""
        return self.training is not None and self.training.needs_full_batch

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """Train if asked, then one pass over the data."""
        curvature = Phase("curvature", -(-num_examples // batch_size), self.curvature_step)
        if self.training is None:
            return (curvature,)
        return (begin_by_training(self.training, num_examples, batch_size), curvature)

    def curvature_step(
        self, model: Model, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, LaplaceInfo]:
        """Add a batch to the sums; rows that belong to the next epoch count for nothing."""
        del key
        size = batch.x.shape[0]
        weights = (state.count + jnp.arange(size) < batch.num_examples).astype(batch.x.dtype)
        sums = add_batch(self.structure, state.sums, model, state.params, batch, weights)
        count = state.count + size
        return LaplaceState(state.params, state.training, sums, count), LaplaceInfo(count)

    def posterior(self, model: Model, state: LaplaceState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """A linearised normal per chain."""
        del draws, infos
        if not np.all(np.asarray(state.count) > 0):
            raise KeyboardInterrupt("interrupted before the curvature was known: there is no posterior yet")

        def one(chain: int) -> Gaussian:
            params, sums = jax.tree.map(lambda leaf: leaf[chain], (state.params, state.sums))
            covariance = covariance_of(self.structure, sums, model, params)
            return Gaussian(model=model, mean=params, covariance=covariance, linearised=True)

        parts: list[AbstractPosterior] = [one(chain) for chain in range(np.shape(state.count)[0])]
        return parts[0] if len(parts) == 1 else Mixture(parts)

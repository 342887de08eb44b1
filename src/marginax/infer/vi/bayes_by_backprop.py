r"""Bayes by Backprop (Blundell, Cornebise, Kavukcuoglu & Wierstra, 2015), as published.

Independent normal weights $w = \mu + \log(1 + e^\rho)\,\epsilon$, one draw per minibatch, a prior that mixes a wide
and a narrow normal, both log densities at the draw, and more of the divergence in the first batches of an epoch than in
the last. `VI()` is what has been learned since.
"""

import equinox as eqx
from jaxtyping import Array

from marginax.infer.catalogue import register_method
from marginax.infer.method import AbstractMethod, AbstractRecipe
from marginax.infer.optimisers import AbstractOptimiser, Adam, as_optimiser
from marginax.infer.vi.divergences import AbstractWeighting, BlundellWeights, MonteCarlo
from marginax.infer.vi.families import MeanField
from marginax.infer.vi.gradients import AbstractEstimator, Reparameterisation
from marginax.infer.vi.vi import VI
from marginax.model import AbstractModel
from marginax.model.priors import AbstractPrior, ScaleMixture


@register_method(
    "method/bayes_by_backprop",
    gives="VI as published in 2015",
    use_when="variational inference as published in 2015; many weights to prune",
    cost="20,000 steps",
    order=130,
)
class BayesByBackprop(AbstractRecipe):
    """The recipe of the paper, by `VI`.

    Args:
        prior: in place of the model's; None keeps that.
        weighting: of the divergence over minibatches: `BlundellWeights()` as published, or `Uniform()`.
        estimator: `Reparameterisation()` as published; `LocalReparameterisation()` is quieter and cheaper.
        num_particles: draws of the weights per step.
        temperature: of the posterior; 1 as published.
        num_epochs: as in VI.
        batch_size: as in VI.
        optimiser: as in VI.
    """

    prior: AbstractPrior | None = eqx.field(default_factory=ScaleMixture)
    weighting: AbstractWeighting = eqx.field(default_factory=BlundellWeights)
    estimator: AbstractEstimator = eqx.field(default_factory=Reparameterisation)
    num_particles: int = 1
    temperature: float | Array = 1.0
    num_epochs: int | None = None
    batch_size: int | None = 128
    optimiser: AbstractOptimiser = eqx.field(default_factory=Adam, converter=as_optimiser)

    def __check_init__(self):
        if self.prior is not None and not isinstance(self.prior, AbstractPrior):
            raise TypeError(f"prior must be such as mx.priors.ScaleMixture() or None, got {self.prior!r}")
        assert self.inner  # its own checks

    @property
    def needs_layers(self) -> bool:
        """Its prior takes the place of a network's."""
        return self.prior is not None or self.inner.needs_layers

    @property
    def inner(self) -> AbstractMethod:
        return VI(
            family=MeanField(),
            estimator=self.estimator,
            divergence=MonteCarlo(),
            weighting=self.weighting,
            num_particles=self.num_particles,
            kl_warmup=0.0,
            temperature=self.temperature,
            num_epochs=self.num_epochs,
            batch_size=self.batch_size,
            optimiser=self.optimiser,
        )

    def prepare_model(self, model: AbstractModel) -> AbstractModel:
        return model if self.prior is None else eqx.tree_at(lambda m: m.prior, model, self.prior)

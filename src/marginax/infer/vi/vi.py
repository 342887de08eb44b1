r"""Variational inference: the member of a family that is nearest to the posterior.

Maximises $\mathrm{ELBO}(q) = E_q[\log p(D \mid w)] - \mathrm{KL}(q \,\|\, p(w))$, a lower bound of the log evidence, by
stochastic gradients: the first term from a minibatch (scaled by N/B in the model) and random weights, the second in
closed form where there is one. All unknowns take part: weights, noise level, hyperparameters of the prior.

With a temperature T the target is the posterior to the power 1/T, and the bound is
$E_q[\log p(D, w)] + T\,H(q)$.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import derive
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.method import Infos, check_count, mixture_of_chains, num_steps_for
from marginax.infer.optimisers import AbstractOptimiser, Adam, as_optimiser
from marginax.infer.training import AbstractOptimised
from marginax.infer.vi.divergences import AbstractDivergence, AbstractWeighting, ClosedForm, Uniform
from marginax.infer.vi.families import AbstractApproximation, AbstractFamily, MeanField
from marginax.infer.vi.gradients import AbstractEstimator, LocalReparameterisation, Reparameterisation
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior

_KL_EVERY = 10  # steps between values of the divergence: they are for people, and sums over all weights cost time


class VIState(eqx.Module):
    """The approximation, the optimiser's memory, the number of steps, and the divergence when it was last computed."""

    approximation: AbstractApproximation
    optimiser: PyTree
    count: Array
    kl: Array

    @property
    def params(self) -> Params:
        """The centre of the approximation."""
        return self.approximation.mean


class VIInfo(eqx.Module):
    """The bound and its two parts: how well the data are explained, and what that costs (computed every 10 steps)."""

    elbo: Array
    log_likelihood: Array
    kl: Array


@register_method(
    "method/vi",
    gives="a normal (or a flow), nearest to the posterior",
    use_when="a normal posterior of independent weights, trained",
    cost="20,000 steps of two MAP steps each",
    order=120,
)
class VI(AbstractOptimised):
    """Variational inference.

    Args:
        family: `MeanField()`, `LowRank(rank)`, `FullRank()` or `Flow()`.
        estimator: of the gradient: `LocalReparameterisation()`, `Flipout()` or `Reparameterisation()`; by default the
            first for `MeanField` and `LowRank` of a network's weights, and the last for all else.
        divergence: `ClosedForm()`, `MonteCarlo()` or `StickingTheLanding()`.
        weighting: of the divergence over minibatches: `Uniform()` or `BlundellWeights()`.
        num_particles: draws of the weights per step.
        kl_warmup: fraction of the steps during which the weight of the divergence rises from 0 to 1.
        temperature: of the posterior; 1 is Bayes, less is sharper.
        num_epochs: passes over the data; by default at least 10 and enough for 20,000 steps.
        batch_size: rows per step, None for all.
        optimiser: `Adam`, `SGD`, `Optax(...)`, or an Optax transformation.
    """

    family: AbstractFamily = eqx.field(default_factory=MeanField)
    estimator: AbstractEstimator | None = None
    divergence: AbstractDivergence = eqx.field(default_factory=ClosedForm)
    weighting: AbstractWeighting = eqx.field(default_factory=Uniform)
    num_particles: int = 1
    kl_warmup: float | Array = 0.5
    temperature: float | Array = 1.0
    optimiser: AbstractOptimiser = eqx.field(
        default_factory=lambda: Adam(learning_rate=1e-2), converter=as_optimiser, kw_only=True
    )

    def __check_init__(self):
        for name, kind in (
            ("family", AbstractFamily),
            ("divergence", AbstractDivergence),
            ("weighting", AbstractWeighting),
        ):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be an object such as those in mx.infer, got {getattr(self, name)!r}")
        if self.estimator is not None and not isinstance(self.estimator, AbstractEstimator):
            raise TypeError(f"estimator must be such as mx.infer.Flipout() or None, got {self.estimator!r}")
        check_count("num_particles", self.num_particles)
        if isinstance(self.kl_warmup, float) and not 0 <= self.kl_warmup < 1:
            raise ValueError(f"kl_warmup must be in [0, 1), got {self.kl_warmup}")
        if isinstance(self.temperature, float) and not self.temperature > 0:
            raise ValueError(f"temperature must be > 0, got {self.temperature}")
        if self.estimator is not None:
            self.estimator.check(self.family)

    @property
    def needs_layers(self) -> bool:
        return self.divergence.needs_layers or (self.estimator is not None and self.estimator.needs_layers)

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> VIState:
        approximation = self.family.start(params, key=key)
        memory = self.first_memory(eqx.filter(approximation, eqx.is_inexact_array))
        return VIState(approximation, memory, jnp.zeros((), jnp.int32), jnp.zeros(()))

    def num_steps(self, num_examples: int, batch_size: int) -> int:
        least = 20_000 if self.num_epochs is None else 1
        return max(least, num_steps_for(self.num_epochs, num_examples, batch_size))

    def step(self, model: AbstractModel, state: VIState, batch: Batch, *, key: PRNGKeyArray) -> tuple[VIState, VIInfo]:
        num_steps = self.num_steps(batch.num_examples, batch.size)
        num_batches = -(-batch.num_examples // batch.size)
        weight = self.weighting.factor(state.count, num_batches)
        warmth = jnp.minimum(1.0, (state.count + 1) / jnp.maximum(self.kl_warmup * num_steps, 1.0))
        trained, fixed = eqx.partition(state.approximation, eqx.is_inexact_array)

        def loss(trained: AbstractApproximation) -> tuple[Float[Array, ""], Array]:
            log_likelihood, entropy, log_prior = self.terms(model, eqx.combine(trained, fixed), batch, key=key)
            bound = log_likelihood + weight * warmth * (log_prior + self.temperature * entropy)
            return -bound / batch.num_examples, log_likelihood

        gradient, log_likelihood = jax.grad(loss, has_aux=True)(trained)
        due = state.count % _KL_EVERY == 0
        kl = jax.lax.cond(due, lambda: self._kl(model, state, batch, key), lambda: state.kl)
        trained, memory = self.descend(gradient, state.optimiser, trained, batch)
        new = VIState(eqx.combine(trained, fixed), memory, state.count + 1, kl)
        return new, VIInfo(log_likelihood - kl, log_likelihood, kl)

    def _kl(self, model: AbstractModel, state: VIState, batch: Batch, key: PRNGKeyArray) -> Float[Array, ""]:
        _, entropy, log_prior = self.terms(model, state.approximation, batch, key=key)
        return -entropy - log_prior

    def terms(
        self, model: AbstractModel, approximation: AbstractApproximation, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """Expected log likelihood, entropy and expected log prior, each estimated from the same draws."""
        estimator = self.estimator
        if estimator is None:
            layerwise = self.family.is_layerwise and hasattr(model, "network")
            estimator = LocalReparameterisation() if layerwise else Reparameterisation()

        def once(key: PRNGKeyArray) -> tuple[Float[Array, ""], ...]:
            draw, log_prob = approximation.sample_with_log_prob(key=derive(key, 0))
            any_model: Any = model  # an estimator that needs a network has refused others
            log_likelihood = estimator.log_likelihood(any_model, approximation, draw, batch, key=derive(key, 1))
            return log_likelihood, *self.divergence.terms(model, approximation, draw, log_prob)

        if self.num_particles == 1:
            log_likelihood, entropy, log_prior = once(key)
        else:
            keys = jax.vmap(lambda i: derive(key, i, stream=1))(jnp.arange(self.num_particles))
            log_likelihood, entropy, log_prior = (jnp.mean(values) for values in jax.vmap(once)(keys))
        return log_likelihood, entropy, log_prior

    def posterior(self, model: AbstractModel, state: VIState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        return mixture_of_chains(partial(_posterior, model), state.approximation)


@eqx.filter_jit
def _posterior(model: AbstractModel, approximation: AbstractApproximation) -> AbstractPosterior:
    return approximation.posterior(model)

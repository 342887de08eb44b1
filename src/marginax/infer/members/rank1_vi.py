r"""Rank-1 Bayesian networks (Dusenberry et al., 2020): variational inference over factors, not over weights.

Weights are $W \circ s r^\top$. The factors have priors $N(1, s_0^2)$ and, for each member m of a mixture, variational
laws $r \sim N(\mu_m, \sigma_m^2)$, $s$ likewise; the shared $W$ is at its mode, and so are the biases that each member
has of its own. The bound is

$\frac{1}{M} \sum_m \big[ E_{q_m} \log p(D \mid W, r, s) - \mathrm{KL}(q_m \,\|\, N(1, s_0^2)) \big] + \log p(W)$,

which leaves out what the members being different is worth (the entropy of a mixture is at least the mean of its
members'). Rows of a batch are dealt to the members in turn, and each has factors of its own draw: a step costs little
more than one of MAP. In prediction a draw has one member and one set of factors: it is a function.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from marginax._kernels.random import derive
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.members.batch_ensemble import Factors, dealt, first_factors, with_factors
from marginax.infer.members.shared_weights import AbstractSharedWeights, SharedState
from marginax.infer.method import Infos
from marginax.infer.vi.divergences import divergence_from_normal
from marginax.infer.vi.families import softplus
from marginax.model import Model, Params
from marginax.nets import RankOneFactors
from marginax.posterior import AbstractPosterior, Stochastic


@register_method(
    "method/rank1_vi",
    gives="members with normal factors, shared weights at their mode",
    use_when="variational inference for large networks: few more unknowns than MAP",
    cost="1 training run",
    order=115,
)
class Rank1VI(AbstractSharedWeights):
    """Variational inference over rank-1 factors: a mixture of normal laws, one for each member.

    Layers are treated as by `BatchEnsemble`, whose members are these without spread.

    Takes what every `AbstractSharedWeights` takes, and:

    Args:
        prior_scale: $s_0$, how far from 1 a factor is expected to be. The means of the members start as draws of that.
        initial_scale: of the factors around their means at the start.
    """

    prior_scale: float = 0.3
    initial_scale: float = 0.1

    def __check_init__(self):
        for name in ("prior_scale", "initial_scale"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")

    def first_own(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> Factors:
        """Factors whose scales are held as rho of softplus(rho)."""
        rho = jnp.log(jnp.expm1(jnp.asarray(self.initial_scale)))

        def with_spread(factors: RankOneFactors) -> RankOneFactors:
            inputs, outputs = (jnp.full_like(mean, rho) for mean in (factors.inputs, factors.outputs))
            return replace(factors, input_scale=inputs, output_scale=outputs)

        own = first_factors(model, params, self.num_members, self.prior_scale, key=key)
        return tuple(factors and with_spread(factors) for factors in own)

    def members(self, model: Model, params: Params, own: Factors) -> Params:
        """At the means of the factors."""
        return jax.vmap(lambda one: with_factors(params, one, RankOneFactors.applied_to))(own)

    def log_likelihood(
        self, model: Model, params: Params, own: Factors, batch: Batch, first: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        return batch.total(
            model.log_likelihood(params, batch, key=derive(key, 1), noise=dealt(normal_factors(own), first))
        )

    def log_prior(self, model: Model, params: Params, own: Factors, first: Int[Array, ""]) -> Float[Array, ""]:
        """Of the shared weights and the members' biases, less the divergence of the factors."""

        def of_member(own: Factors) -> Float[Array, ""]:
            with_biases = with_factors(params, own, RankOneFactors.with_bias)
            return model.log_prior(with_biases) - divergence(normal_factors(own), self.prior_scale)

        return jnp.mean(jax.vmap(of_member)(own))

    def posterior(self, model: Model, state: SharedState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """A network with random factors for each member of each chain."""
        params, noise = _networks(self.num_members, state.params, state.own)
        return Stochastic(model=model, params=params, noise=noise)


def normal_factors(own: Factors) -> Factors:
    """Rho as standard deviations."""

    def with_scales(factors: RankOneFactors) -> RankOneFactors:
        inputs, outputs = jax.tree.map(softplus, (factors.input_scale, factors.output_scale))
        return replace(factors, input_scale=inputs, output_scale=outputs)

    return tuple(factors and with_scales(factors) for factors in own)


def divergence(own: Factors, prior_scale: float | Array) -> Float[Array, ""]:
    """Of all factors from their prior."""
    total = jnp.zeros(())
    for factors in filter(None, own):
        for mean, scale in ((factors.inputs, factors.input_scale), (factors.outputs, factors.output_scale)):
            if scale is not None:
                total = total + divergence_from_normal(mean, scale, 1.0, prior_scale)
    return total


@eqx.filter_jit
def _networks(num_members: int, params: Params, own: Factors) -> tuple[Params, Factors]:
    """Shared weights and factors of all members of all chains along one axis."""
    repeated = jax.tree.map(lambda leaf: jnp.repeat(leaf, num_members, axis=0), params)
    factors = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), normal_factors(own))
    return repeated, factors

"""Training in turn with the choice of the prior, and of augmentation, by evidence (Immer et al., 2021, 2022)."""

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.data import Batch
from marginax.files import register
from marginax.infer.laplace.passes import LaplaceInfo, LaplaceState, Passes, restarted
from marginax.infer.laplace.strengths import LearnedStrengths, Strengths, with_strengths
from marginax.infer.laplace.tuning import Evidence, rescale_noise, with_factors
from marginax.infer.map import MAP
from marginax.infer.method import check_count
from marginax.infer.optimisers import AbstractOptimiser, Adam
from marginax.infer.training import AbstractTraining
from marginax.model import Model, Params


@register("tuning/online")
class Online(eqx.Module):
    """Choose prior precisions and noise by evidence several times during training, then train to the end with them.

    Args:
        num_rounds: how often.
        rule: what shares a factor, and how it is found.
        strengths: how strengths of the augmentation of a model (see `mx.augment`) are learned; None to keep them.
    """

    num_rounds: int = 5
    rule: Evidence = eqx.field(default_factory=Evidence)
    strengths: Strengths | None = None

    def __check_init__(self):
        check_count("num_rounds", self.num_rounds)
        if not isinstance(self.rule, Evidence):
            raise TypeError(f"rule must be mx.infer.Evidence(...), got {self.rule!r}")
        if not isinstance(self.strengths, Strengths | None):
            raise TypeError(f"strengths must be mx.infer.Strengths(...) or None, got {self.strengths!r}")

    def shares(self, num_steps: int, epoch: int) -> list[int]:
        """Steps of training before each choice, and after the last: half of them before the first; whole epochs.

        >>> Online(num_rounds=3).shares(4000, 7)
        [2002, 672, 672, 672]
        """
        first, others = -(-num_steps // 2), -(-num_steps // (2 * self.num_rounds))
        return [-(-share // epoch) * epoch for share in (first, *[others] * self.num_rounds)]


class CurrentPrior(eqx.Module):
    """The prior as it is now: logs of factors by leaf, and whether the noise is still learned with the weights.

    And strengths of augmentation, where they are learned.
    """

    log_factors: Float[Array, " leaves"]
    learns_noise: Float[Array, ""]
    strengths: LearnedStrengths | None = None

    def tuned(self, more: Float[Array, " leaves"]) -> "CurrentPrior":
        """Other factors; from now on the noise is chosen by evidence too."""
        return CurrentPrior(self.log_factors + more, jnp.zeros_like(self.learns_noise), self.strengths)


@register("method/online_training")
class OnlineTraining(AbstractTraining):
    """MAP under a prior that changes."""

    num_epochs: int | None = None
    batch_size: int | None = 128
    optimiser: AbstractOptimiser = eqx.field(default_factory=Adam)
    strengths: Strengths | None = None

    @classmethod
    def of(cls, training: MAP, strengths: Strengths | None = None) -> "OnlineTraining":
        """As this one."""
        return cls(training.num_epochs, training.batch_size, training.optimiser, strengths)

    def extra(self, model: Model, params: Params, *, key: PRNGKeyArray) -> CurrentPrior:
        learned = None if self.strengths is None else LearnedStrengths.of(model, self.strengths)
        return CurrentPrior(jnp.zeros(len(model.leaves)), jnp.ones(()), learned)

    def objective(
        self, model: Model, params: Params, batch: Batch, extra: CurrentPrior, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        model = with_strengths(with_factors(model, extra.log_factors), extra.strengths)
        unknowns = {
            name: extra.learns_noise * value + stop_gradient((1 - extra.learns_noise) * value)
            for name, value in params.likelihood.items()
        }
        return model.log_density(Params(params.network, unknowns, params.prior), batch, key=key)


class Tune(eqx.Module):
    """Prior precisions and noise of largest evidence, between two spells of training."""

    passes: Passes
    tuning: Online

    def step(
        self, model: Model, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, LaplaceInfo]:
        """Once, after the curvature."""
        memory, extra = state.training
        mode = self.passes.mode(model, state)
        factors = self.tuning.rule.factors(with_factors(model, extra.log_factors), state.params, mode)
        params, _ = rescale_noise(model, state.params, mode, factors.noise)
        training = memory, extra.tuned(factors.prior)
        new = eqx.tree_at(lambda s: (s.params, s.training), state, (params, training))
        sums = self.passes.start(model, params, batch, key=key)
        return restarted(new, sums, jnp.zeros_like(state.num_passes))


def under_current_prior(model: Model, state: LaplaceState) -> Model:
    """The model under the prior of a state."""
    return with_factors(model, state.training[1].log_factors)

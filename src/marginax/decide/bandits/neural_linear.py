"""Neural-linear Thompson sampling (Riquelme, Tucker & Snoek, 2018).

A network is trained on all rounds now and then. Bayesian linear regressions of the rewards on its last hidden layer are
exact given that layer, and learn after every round; after a training they are made anew from all rounds.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from jaxtyping import Key as Keys

from marginax.decide.bandits.agent import AbstractAgent, History
from marginax.decide.bandits.linear import LinearThompson, Regressions
from marginax.decide.bandits.network import check_network_agent, model_of_arms, with_arm
from marginax.decide.bandits.replay import Rounds
from marginax.decide.refit import refit
from marginax.files import register
from marginax.infer import MAP, AbstractMethod
from marginax.infer.catalogue import as_method
from marginax.model import Model
from marginax.nets.layers import last_layer_inputs
from marginax.posterior import AbstractPosterior


class NeuralLinearState(eqx.Module):
    """The network, and what is believed given its features."""

    belief: Regressions
    posterior: AbstractPosterior | None
    in_size: int = eqx.field(static=True)


@register("bandit/features_belief")
class FeaturesBelief(eqx.Module):
    """What is left of a state without its posterior."""

    belief: Regressions
    in_size: int


@register("agent/neural_linear")
class NeuralLinear(AbstractAgent):
    """Exact linear Thompson sampling on features of a network that is trained now and then.

    Before the first training the features are those of the network as it is.

    Args:
        model: a network with an output for each arm, a likelihood of its reward, and a prior.
        method: how to train it; of a posterior with many networks, the first is taken.
        head: the regressions.
        refit_every: rounds from one training to the next.
        reward_scale: rewards are divided by it before the network sees them; the regressions see them as they are.
        warm_start: whether a training begins where the last one ended.
    """

    model: Model
    method: AbstractMethod = eqx.field(default_factory=MAP, converter=as_method)
    head: LinearThompson = eqx.field(default_factory=LinearThompson, kw_only=True)
    refit_every: int = eqx.field(default=50, kw_only=True)
    reward_scale: float = eqx.field(default=1.0, kw_only=True)
    warm_start: bool = eqx.field(default=True, kw_only=True)

    def __check_init__(self):
        check_network_agent(self)

    def init(self, in_size: int, num_arms: int) -> NeuralLinearState:
        model_of_arms(self.model, in_size, num_arms)  # it complains
        found = jax.eval_shape(lambda x: last_layer_inputs(self.model.network, x), jnp.zeros((1, in_size)))
        return NeuralLinearState(self.head.init(found.shape[1], num_arms), None, in_size)

    def refit(
        self, state: NeuralLinearState, history: History, capacity: int, *, key: PRNGKeyArray
    ) -> NeuralLinearState:
        num_arms = len(state.belief.mean)
        model = model_of_arms(self.model, state.in_size, num_arms)
        data = with_arm(history.x, history.arms, num_arms), history.rewards / self.reward_scale
        init = state.posterior if self.warm_start else None
        posterior = refit(model, data, self.method, init=init, capacity=capacity, key=key)
        # padded, so that one program serves all lengths: rounds of no arm teach nothing
        room = max(0, capacity - len(history.x))
        padded = [np.concatenate([each, np.full((room, *each.shape[1:]), -1, each.dtype)]) for each in history]
        features = np.asarray(self._features(posterior, jnp.asarray(padded[0])))
        return NeuralLinearState(self.head.learned(features, padded[1], padded[2], num_arms), posterior, state.in_size)

    def play(
        self, state: NeuralLinearState, rounds: Rounds, keys: Keys[Array, " b"]
    ) -> tuple[NeuralLinearState, Int[Array, " b"], Float[Array, " b"]]:
        features = self._features(state.posterior, rounds.x)
        belief, arms, rewards = self.head.play(state.belief, rounds.at(features), keys)
        return NeuralLinearState(belief, state.posterior, state.in_size), arms, rewards

    def _features(self, posterior: AbstractPosterior | None, x: Float[Array, "b d"]) -> Float[Array, "b p"]:
        if posterior is None:
            return _inputs(self.model.network, x)
        model: Any = posterior.model
        params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[0]), posterior.starting_points(1))
        return _inputs(model.network_of(params).network, x)

    # ---- files

    def posterior_model(self, in_size: int, num_arms: int) -> Any:
        return self.method.prepare_model(model_of_arms(self.model, in_size, num_arms))

    def posterior(self, state: NeuralLinearState) -> AbstractPosterior | None:
        return state.posterior

    def without_posterior(self, state: NeuralLinearState) -> PyTree:
        return FeaturesBelief(state.belief, state.in_size)

    def with_posterior(self, state: FeaturesBelief, posterior: AbstractPosterior | None) -> NeuralLinearState:
        return NeuralLinearState(state.belief, posterior, state.in_size)


@eqx.filter_jit
def _inputs(network: Any, x: Float[Array, "b d"]) -> Float[Array, "b p"]:
    return last_layer_inputs(eqx.nn.inference_mode(network), x)

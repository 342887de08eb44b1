"""Agents whose belief about rewards is a posterior of a network, inferred again now and then by any method."""

import abc
import inspect
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from jaxtyping import Key as Keys

from marginax.decide.bandits.agent import AbstractAgent, History, uniform_arms
from marginax.decide.bandits.replay import Rounds
from marginax.decide.refit import refit
from marginax.files import register
from marginax.infer import MAP, AbstractMethod
from marginax.infer.catalogue import as_method
from marginax.model import Model
from marginax.posterior import AbstractPosterior
from marginax.predict import DrawLoop
from marginax.predict.checks import check_count


@register("bandit/per_arm")
class PerArm(eqx.Module):
    """A network with an output for each arm, asked for one of them: inputs are a context and an indicator of the arm.

    Args:
        network: from contexts to a reward of each arm.
        num_arms: outputs.
    """

    network: Any
    num_arms: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, " p"], *, key: PRNGKeyArray | None = None) -> Float[Array, " 1"]:
        """The reward of the arm."""
        keyed = key is not None and "key" in inspect.signature(type(self.network).__call__).parameters
        outputs = self.network(x[: -self.num_arms], **({"key": key} if keyed else {}))
        return jnp.sum(outputs * x[-self.num_arms :], keepdims=True)

    @property
    def stochastic(self) -> bool:
        """Whether a key makes it random."""
        return getattr(self.network, "stochastic", True)


def with_arm(x: np.ndarray, arms: np.ndarray, num_arms: int) -> Float[np.ndarray, "n p"]:
    """Contexts and indicators of arms."""
    return np.concatenate([x, np.eye(num_arms, dtype=x.dtype)[arms]], axis=1)


def model_of_arms(model: Model, in_size: int, num_arms: int) -> Model:
    """A model of the reward of one arm, from one of the rewards of all."""
    found = model.output_size((in_size,), jax.dtypes.canonicalize_dtype(float))
    if found != num_arms:
        raise ValueError(f"model must have an output for each of the {num_arms} arms, got {found}")
    return Model(PerArm(model.network, num_arms), model.likelihood, model.prior, model.subset)


class NetworkState(eqx.Module):
    """The posterior of the last refit, None before the first; and sizes of the bandit."""

    posterior: AbstractPosterior | None
    in_size: int = eqx.field(static=True)
    num_arms: int = eqx.field(static=True)


@register("bandit/sizes")
class Sizes(eqx.Module):
    """What is left of a state without its posterior."""

    in_size: int
    num_arms: int


class AbstractNetworkAgent(AbstractAgent):
    """An agent with a model of rewards; until its first fit it pulls any arm.

    Fields: `model`, with an output for each arm and a likelihood of numbers or of yes and no; `method`, how to infer;
    `refit_every`, rounds from one fit to the next; `reward_scale`, by which rewards are divided before the model sees
    them; `warm_start`, whether a fit begins where the last one ended.
    """

    if TYPE_CHECKING:

        @property
        def model(self) -> Model: ...

        @property
        def method(self) -> AbstractMethod: ...

        @property
        def reward_scale(self) -> float: ...

        @property
        def warm_start(self) -> bool: ...

    else:
        model: eqx.AbstractVar[Model]
        method: eqx.AbstractVar[AbstractMethod]
        reward_scale: eqx.AbstractVar[float]
        warm_start: eqx.AbstractVar[bool]

    def init(self, in_size: int, num_arms: int) -> NetworkState:
        model_of_arms(self.model, in_size, num_arms)  # it complains
        return NetworkState(None, in_size, num_arms)

    def refit(self, state: NetworkState, history: History, capacity: int, *, key: PRNGKeyArray) -> NetworkState:
        model = model_of_arms(self.model, state.in_size, state.num_arms)
        data = with_arm(history.x, history.arms, state.num_arms), history.rewards / self.reward_scale
        init = state.posterior if self.warm_start else None
        posterior = refit(model, data, self.method, init=init, capacity=capacity, key=key)
        return NetworkState(posterior, state.in_size, state.num_arms)

    def play(
        self, state: NetworkState, rounds: Rounds, keys: Keys[Array, " b"]
    ) -> tuple[NetworkState, Int[Array, " b"], Float[Array, " b"]]:
        if state.posterior is None:
            arms = uniform_arms(keys, state.num_arms)
        else:
            arms = jnp.asarray(self.choose(state.posterior, np.asarray(rounds.x), state.num_arms, keys))
        return state, arms, rounds.pull(arms)

    @abc.abstractmethod
    def choose(
        self, posterior: AbstractPosterior, x: Float[np.ndarray, "b d"], num_arms: int, keys: Keys[Array, " b"]
    ) -> Int[np.ndarray, " b"]:
        """An arm for each context."""

    def posterior_model(self, in_size: int, num_arms: int) -> Any:
        return self.method.prepare_model(model_of_arms(self.model, in_size, num_arms))

    def posterior(self, state: NetworkState) -> AbstractPosterior | None:
        return state.posterior

    def without_posterior(self, state: NetworkState) -> PyTree:
        return Sizes(state.in_size, state.num_arms)

    def with_posterior(self, state: Sizes, posterior: AbstractPosterior | None) -> NetworkState:
        return NetworkState(posterior, state.in_size, state.num_arms)


def check_network_agent(agent: Any) -> None:
    """Refuse fields that cannot be meant."""
    if not isinstance(agent.model, Model):
        raise TypeError(f"model must be an mx.Model, got {agent.model!r}")
    if not isinstance(agent.method, AbstractMethod):
        raise TypeError(f"method must be an object such as mx.infer.MAP(), got {agent.method!r}")
    check_count(agent.refit_every, "refit_every")
    if not agent.reward_scale > 0:
        raise ValueError(f"reward_scale must be > 0, got {agent.reward_scale}")


@register("agent/thompson")
class Thompson(AbstractNetworkAgent):
    """Thompson sampling with a posterior over networks: for every decision a draw, and the arm that is best in it.

    Args:
        model: a network with an output for each arm, a likelihood of its reward, and a prior.
        method: how to infer, from `mx.infer`; or its name.
        refit_every: rounds from one fit to the next, and of random arms before the first.
        reward_scale: rewards are divided by it before the model sees them: about their spread.
        warm_start: whether a fit begins where the last one ended, if the method trains from a given start, too.
        num_samples: draws that those of the decisions are taken from; by default all of a posterior that is made of
            them, 100 of a continuous one.
    """

    model: Model
    method: AbstractMethod = eqx.field(converter=as_method)
    refit_every: int = eqx.field(default=50, kw_only=True)
    reward_scale: float = eqx.field(default=1.0, kw_only=True)
    warm_start: bool = eqx.field(default=True, kw_only=True)
    num_samples: int | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        check_network_agent(self)

    def choose(
        self, posterior: AbstractPosterior, x: Float[np.ndarray, "b d"], num_arms: int, keys: Keys[Array, " b"]
    ) -> Int[np.ndarray, " b"]:
        values, log_weights = reward_draws(posterior, x, num_arms, num=self.num_samples, key=keys[0])
        picked = jax.vmap(lambda key: jax.random.categorical(key, jnp.asarray(log_weights)))(keys)
        return np.argmax(values[np.asarray(picked), np.arange(len(x))], axis=-1)


@register("agent/greedy")
class Greedy(AbstractNetworkAgent):
    """The arm with the highest expected reward: what is not known is not looked for.

    Args:
        model: a network with an output for each arm, a likelihood of its reward, and a prior.
        method: how to infer; `mx.infer.MAP()` by default.
        refit_every: rounds from one fit to the next, and of random arms before the first.
        reward_scale: rewards are divided by it before the model sees them.
        warm_start: whether a fit begins where the last one ended.
    """

    model: Model
    method: AbstractMethod = eqx.field(default_factory=MAP, converter=as_method)
    refit_every: int = eqx.field(default=50, kw_only=True)
    reward_scale: float = eqx.field(default=1.0, kw_only=True)
    warm_start: bool = eqx.field(default=True, kw_only=True)

    def __check_init__(self):
        check_network_agent(self)

    def choose(
        self, posterior: AbstractPosterior, x: Float[np.ndarray, "b d"], num_arms: int, keys: Keys[Array, " b"]
    ) -> Int[np.ndarray, " b"]:
        values, log_weights = reward_draws(posterior, x, num_arms, num=None, key=posterior.prediction_key())
        return np.argmax(np.tensordot(np.exp(log_weights), values, axes=1), axis=-1)


def reward_draws(
    posterior: AbstractPosterior, x: Float[np.ndarray, "b d"], num_arms: int, *, num: int | None, key: PRNGKeyArray
) -> tuple[Float[np.ndarray, "s b arms"], Float[np.ndarray, " s"]]:
    """Expected rewards under each draw, and the log weights of the draws."""
    inputs = with_arm(np.repeat(x, num_arms, axis=0), np.tile(np.arange(num_arms), len(x)), num_arms)
    loop = DrawLoop(posterior.functions(num, key=key), inputs, spec=posterior.data_spec())
    if loop.like.outcome.is_class and loop.num_classes != 2:
        raise TypeError("model must have a likelihood of numbers, such as mx.likelihoods.Gaussian(), or Bernoulli()")
    (values,) = loop.collect(_mean)
    return values.reshape(len(values), len(x), num_arms), loop.log_weights


def _mean(distributions: PyTree, log_weights: Array) -> Float[Array, "s n"]:
    return jax.vmap(lambda distribution: distribution.mean[..., 0])(distributions)

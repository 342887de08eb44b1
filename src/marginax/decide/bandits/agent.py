"""Who pulls the arms: what every agent can do, and the one that learns nothing."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from jaxtyping import Key as Keys

from marginax.decide.bandits.replay import Rounds
from marginax.files import register
from marginax.posterior import AbstractPosterior

State = Any  # what an agent has learned: a pytree of arrays


class History(NamedTuple):
    """All rounds so far."""

    x: Float[np.ndarray, "t d"]
    arms: Int[np.ndarray, " t"]
    rewards: Float[np.ndarray, " t"]


class AbstractAgent(eqx.Module):
    """How to choose arms.

    An agent is a frozen object; what it has learned is its state. It plays some rounds at a time, in each of which it
    knows the rewards of the rounds before (or, if it learns only now and then, those up to the last `refit`).
    """

    @property
    def refit_every(self) -> int | None:
        """Rounds from one `refit` to the next; None if there is none."""
        return None

    @abc.abstractmethod
    def init(self, in_size: int, num_arms: int) -> State:
        """Before anything is known."""

    @abc.abstractmethod
    def play(
        self, state: State, rounds: Rounds, keys: Keys[Array, " b"]
    ) -> tuple[State, Int[Array, " b"], Float[Array, " b"]]:
        """What is known after some rounds, and arms and rewards of each; `keys` are the agent's own, one a round."""

    def refit(self, state: State, history: History, capacity: int, *, key: PRNGKeyArray) -> State:
        """Learn from all rounds so far; `capacity` is how many there will be at most."""
        return state

    # ---- files: a posterior is stored by itself, the rest of a state as a tree

    def posterior(self, state: State) -> AbstractPosterior | None:
        """The posterior in a state, if there is one."""
        return None

    def without_posterior(self, state: State) -> PyTree:
        """The rest."""
        return state

    def with_posterior(self, state: PyTree, posterior: AbstractPosterior | None) -> State:
        """The state of both."""
        return state

    def posterior_model(self, in_size: int, num_arms: int) -> Any:
        """The model of its posteriors, None if it has none."""
        return None


class AbstractSequential(AbstractAgent):
    """An agent that learns after every round: all rounds are one compiled loop."""

    @abc.abstractmethod
    def choose(self, state: State, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Int[Array, ""]:
        """An arm."""

    @abc.abstractmethod
    def update(self, state: State, x: Float[Array, " d"], arm: Int[Array, ""], reward: Float[Array, ""]) -> State:
        """What is known after its reward was seen."""

    def play(
        self, state: State, rounds: Rounds, keys: Keys[Array, " b"]
    ) -> tuple[State, Int[Array, " b"], Float[Array, " b"]]:
        return _scanned(self, state, rounds, keys)


@eqx.filter_jit
def _scanned(agent: AbstractSequential, state: State, rounds: Rounds, keys: Keys[Array, " b"]) -> Any:
    def step(state: State, now: Any) -> Any:
        x, y, reward_key, key = now
        arm = agent.choose(state, x, key=key)
        reward = Rounds(x, y, reward_key, rounds.rewards).pull(arm)
        return agent.update(state, x, arm, reward), (arm, reward)

    state, (arms, rewards) = jax.lax.scan(step, state, (rounds.x, rounds.y, rounds.keys, keys))
    return state, arms, rewards


@register("agent/uniform")
class Uniform(AbstractAgent):
    """Any arm, each with the same probability: what the others have to beat."""

    def init(self, in_size: int, num_arms: int) -> State:
        return ()

    def play(
        self, state: State, rounds: Rounds, keys: Keys[Array, " b"]
    ) -> tuple[State, Int[Array, " b"], Float[Array, " b"]]:
        arms = uniform_arms(keys, rounds.rewards.num_arms)
        return state, arms, rounds.pull(arms)


def uniform_arms(keys: Keys[Array, " b"], num_arms: int) -> Int[Array, " b"]:
    """One for each key."""
    return jax.vmap(lambda key: jax.random.randint(key, (), 0, num_arms))(keys)

"""An agent and a bandit, round after round; what they leave on disk.

    play/setup/             bandit, agent, number of rounds, key: written once
    play/state/             arms and rewards so far, what the agent knows: replaced after every block of rounds
    play/posterior-0, -1    of the last two refits of the agent, in turn

A posterior is written before the state that counts it, into the place that the state on disk does not use.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from jaxtyping import Key as Keys

from marginax._keys import Key, as_key
from marginax.decide.bandits.agent import AbstractAgent, History
from marginax.decide.bandits.replay import ReplayBandit
from marginax.files import RunDirectory, register
from marginax.files.disk import well_formed
from marginax.posterior import load
from marginax.predict.checks import check_count

_ROWS, _REWARDS, _AGENT, _REFIT = range(4)  # streams of keys
_BLOCK = 1000  # rounds between two looks at the host, of an agent that is never refitted


@register("bandit/played")
class Played(eqx.Module):
    """What happened, round by round.

    Attributes:
        rows: of the data that were shown.
        arms: that were pulled.
        rewards: that were seen.
        expected: mean rewards of these arms, which nobody saw.
        best: the mean reward of the best arm for each row.
    """

    rows: Int[np.ndarray, " t"]
    arms: Int[np.ndarray, " t"]
    rewards: Float[np.ndarray, " t"]
    expected: Float[np.ndarray, " t"]
    best: Float[np.ndarray, " t"]

    def __len__(self) -> int:
        return len(self.arms)

    @property
    def regret(self) -> Float[np.ndarray, " t"]:
        """Up to each round: what the best arms are expected to give, less what the pulled ones are expected to."""
        return np.cumsum(self.best - self.expected)

    @property
    def cumulative_reward(self) -> Float[np.ndarray, " t"]:
        """Rewards up to each round, as they were seen."""
        return np.cumsum(self.rewards)


@register("bandit/state")
class PlayState(eqx.Module):
    """Where it stands."""

    arms: Int[np.ndarray, " t"]
    rewards: Float[np.ndarray, " t"]
    num_refits: int
    learned: PyTree


def play(
    bandit: ReplayBandit,
    agent: AbstractAgent,
    num_steps: int,
    *,
    key: Key,
    directory: str | os.PathLike[str] | None = None,
) -> Played:
    """Play some rounds of a bandit.

    Rows, and the luck of rewards, depend on the key alone: agents that are played with one key are compared on the same
    rows, and one that pulls the same arm sees the same reward.

    Args:
        bandit: `ReplayBandit(x, y, rewards)`.
        agent: `LinearThompson()`, `NeuralLinear(model)`, `Thompson(model, method)`, `Greedy(model)`, ...
        num_steps: rounds.
        key: int seed or JAX key.
        directory: where to keep it, so that `resume_play(directory)` can go on.

    >>> bandit = ReplayBandit(np.eye(2), [0, 1])
    >>> from marginax.decide import LinearUCB
    >>> play(bandit, LinearUCB(), 100, key=0).regret[-1].item() < 10
    True
    """
    if not isinstance(bandit, ReplayBandit):
        raise TypeError(f"bandit must be an mx.decide.ReplayBandit, got {bandit!r}")
    if not isinstance(agent, AbstractAgent):
        raise TypeError(f"agent must be an object such as mx.decide.LinearThompson(), got {agent!r}")
    check_count(num_steps, "num_steps")
    game = _Game(bandit, agent, int(num_steps), as_key(key))
    if directory is None:
        return game.execute()
    game.files = _directory(directory)
    with game.files.owned():
        parts = {"bandit": bandit, "agent": agent, "num_steps": int(num_steps), "key": game.key}
        game.files.create(parts, optional={"agent": None})
        return game.execute()


def resume_play(directory: str | os.PathLike[str], *, agent: AbstractAgent | None = None) -> Played:
    """Go on with a play; what comes out is what an uninterrupted one gives, bit for bit.

    Args:
        directory: that was given to `play`.
        agent: needed only if its network is a class or function of yours that is not registered.
    """
    files = _directory(directory)
    files.check_begun()
    with files.owned():
        with well_formed(directory):
            setup = files.read()
            game = _Game(
                setup.get("bandit", of=ReplayBandit),
                setup.get("agent", agent, argument="agent", of=AbstractAgent),
                setup.get("num_steps", of=int),
                setup.get("key", of=PRNGKeyArray),
                files,
            )
            game.restore()
        return game.execute()


@dataclass
class _Game:
    """A play in progress."""

    bandit: ReplayBandit
    agent: AbstractAgent
    num_steps: int
    key: PRNGKeyArray
    files: RunDirectory | None = None

    def __post_init__(self):
        self.rows = self.bandit.order(self.num_steps, key=self._stream(_ROWS))
        self.state = self.agent.init(self.bandit.x.shape[1], self.bandit.num_arms)
        real = jax.dtypes.canonicalize_dtype(float)
        self.arms, self.rewards, self.num_refits = np.zeros(0, np.int64), np.zeros(0, real), 0

    def execute(self) -> Played:
        """Rounds, until there are enough."""
        every = self.agent.refit_every
        while (now := len(self.arms)) < self.num_steps:
            refitted = every is not None and now > 0 and now % every == 0
            if refitted:
                history = History(self.bandit.x[self.rows[:now]], self.arms, self.rewards)
                key = jax.random.fold_in(self._stream(_REFIT), now)
                self.state = self.agent.refit(self.state, history, self.num_steps, key=key)
                self.num_refits += 1
            end = min(self.num_steps, (now // (every or _BLOCK) + 1) * (every or _BLOCK))
            rounds = self.bandit.rounds(self.rows[now:end], self._keys(_REWARDS, now, end))
            self.state, arms, rewards = self.agent.play(self.state, rounds, self._keys(_AGENT, now, end))
            self.arms, self.rewards = np.append(self.arms, np.asarray(arms)), np.append(self.rewards, rewards)
            self._save(refitted)
        means = self.bandit.expected(self.rows)
        expected = np.take_along_axis(means, self.arms[:, None], axis=1)[:, 0]
        return Played(self.rows, self.arms, self.rewards, expected, means.max(axis=1))

    def restore(self) -> None:
        """Go to where it was."""
        found: Any = self.files and self.files.value("state", of=PlayState)
        if found is None:
            return
        posterior = None
        if found.num_refits and self.files is not None:
            model = self.agent.posterior_model(self.bandit.x.shape[1], self.bandit.num_arms)
            posterior = load(self._posterior(found.num_refits), model=model)
        self.arms, self.rewards, self.num_refits = found.arms, found.rewards, found.num_refits
        self.state = self.agent.with_posterior(found.learned, posterior)

    def _save(self, refitted: bool) -> None:
        if self.files is None:
            return
        posterior = self.agent.posterior(self.state)
        if refitted and posterior is not None:
            posterior.save(self._posterior(self.num_refits), overwrite=True)
        learned = self.agent.without_posterior(self.state)
        self.files.replace("state", PlayState(self.arms, self.rewards, self.num_refits, learned))

    def _posterior(self, num_refits: int) -> Path:
        assert self.files is not None
        return self.files.at(f"posterior-{num_refits % 2}")

    def _stream(self, number: int) -> PRNGKeyArray:
        return jax.random.fold_in(self.key, number)

    def _keys(self, stream: int, start: int, end: int) -> Keys[Array, " b"]:
        """One for each round."""
        return jax.vmap(lambda i: jax.random.fold_in(self._stream(stream), i))(jnp.arange(start, end))


def _directory(path: str | os.PathLike[str]) -> RunDirectory:
    return RunDirectory(
        Path(path), "play", "mx.decide.play(..., directory=...)", "choose another, or resume_play it", kind="play"
    )

r"""Sums, maxima and draws over the paths of a Markov chain with a finite number of states.

A path $z_1, \dots, z_T$ has log weight

$\log \pi_{z_1} + \sum_{t>1} \log A_{z_{t-1} z_t} + \sum_t \ell_t(z_t).$

Weights need not sum to one, as expectations of logarithms do not. Messages are scaled to sum to one at every step
(Rabiner, 1989). Steps at or after the length of a sequence change nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


class Chain(NamedTuple):
    """Log weights of paths of one sequence: of the first state, of pairs, and of states given what is observed."""

    log_initial: Float[Array, " k"]
    log_transition: Float[Array, "k k"]
    log_observed: Float[Array, "t k"]
    length: Int[Array, ""]


class Smoothed(NamedTuple):
    """What is known of the states of a sequence, given all of it: log total weight, states, and summed pairs."""

    log_total: Float[Array, ""]
    states: Float[Array, "t k"]
    pairs: Float[Array, "k k"]


def smooth(chain: Chain) -> Smoothed:
    """Forward and backward.

    >>> even = jnp.log(jnp.full((2, 2), 0.5))
    >>> chain = Chain(even[0], even, jnp.log(jnp.array([[0.9, 0.1], [0.5, 0.5]])), jnp.asarray(2))
    >>> smooth(chain).states.round(2).tolist()
    [[0.90, 0.10], [0.50, 0.50]]
    """
    log_total, filtered, observed = _forward(chain)
    transition = jnp.exp(chain.log_transition)
    steps = jnp.arange(len(observed))

    def back(carry: tuple, at: tuple) -> tuple[tuple, Array]:
        after, pairs = carry
        step, now, seen_next = at
        weight = seen_next * after
        message = transition @ weight
        joint = now[:, None] * transition * weight
        inside = step + 1 < chain.length
        pairs = pairs + jnp.where(inside, joint / jnp.maximum(jnp.sum(joint), _TINY), 0.0)
        after = jnp.where(inside, message / jnp.maximum(jnp.sum(message), _TINY), after)
        both = now * after
        return (after, pairs), both / jnp.maximum(jnp.sum(both), _TINY)

    start = jnp.ones_like(filtered[0]), jnp.zeros_like(transition)
    seen_next = jnp.concatenate([observed[1:], jnp.ones_like(observed[:1])])
    (_, pairs), states = jax.lax.scan(back, start, (steps, filtered, seen_next), reverse=True)
    return Smoothed(log_total, jnp.where((steps < chain.length)[:, None], states, 0.0), pairs)


def log_total(chain: Chain) -> Float[Array, ""]:
    """Log of the summed weight of all paths."""
    return _forward(chain)[0]


def most_probable(chain: Chain) -> Int[Array, " t"]:
    """The path of largest weight (Viterbi, 1967); past the length, its last state."""
    steps = jnp.arange(len(chain.log_observed))

    def forward(best: Array, at: tuple) -> tuple[Array, Array]:
        step, seen = at
        scores = best[:, None] + chain.log_transition
        inside = step < chain.length
        came = jnp.where(inside, jnp.argmax(scores, axis=0), jnp.arange(len(best)))
        return jnp.where(inside, jnp.max(scores, axis=0) + seen, best), came

    first = chain.log_initial + chain.log_observed[0]
    best, came = jax.lax.scan(forward, first, (steps[1:], chain.log_observed[1:]))

    def back(state: Array, came: Array) -> tuple[Array, Array]:
        return came[state], state

    last = jnp.argmax(best)
    first_state, others = jax.lax.scan(back, last, came, reverse=True)
    return jnp.concatenate([first_state[None], others])


def draw_path(chain: Chain, *, key: PRNGKeyArray) -> Int[Array, " t"]:
    """A path drawn by its weight: filter forward, draw backward; past the length, its last state."""
    _, filtered, _ = _forward(chain)
    steps = jnp.arange(len(filtered))
    keys = jax.random.split(key, len(filtered))

    def back(after: Array, at: tuple) -> tuple[Array, Array]:
        step, now, key = at
        logs = jnp.log(now) + jnp.where(step + 1 < chain.length, chain.log_transition[:, after], 0.0)
        state = jax.random.categorical(key, logs)
        return state, state

    _, path = jax.lax.scan(back, jnp.zeros((), int), (steps, filtered, keys), reverse=True)
    last = path[chain.length - 1]
    return jnp.where(steps < chain.length, path, last)


_TINY = 1e-37


def _forward(chain: Chain) -> tuple[Array, Array, Array]:
    """Log total weight, filtered states, and weights of what is observed, the largest at each step being one."""
    most = jnp.max(chain.log_observed, axis=1, keepdims=True)
    observed = jnp.exp(chain.log_observed - most)
    transition = jnp.exp(chain.log_transition)
    steps = jnp.arange(len(observed))

    def step(before: Array, at: tuple) -> tuple[Array, tuple[Array, Array]]:
        index, seen = at
        inside = index < chain.length
        now = jnp.where(index == 0, before, before @ transition) * seen
        total = jnp.where(inside, jnp.sum(now), 1.0)
        now = jnp.where(inside, now / total, before)
        return now, (now, jnp.log(total))

    shift = jnp.max(chain.log_initial)
    _, (filtered, totals) = jax.lax.scan(step, jnp.exp(chain.log_initial - shift), (steps, observed))
    inside = steps < chain.length
    return shift + jnp.sum(totals) + jnp.sum(jnp.where(inside, most[:, 0], 0.0)), filtered, observed

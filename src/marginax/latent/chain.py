r"""Sums, maxima and draws over the paths of a Markov chain with a finite number of states.

A path $z_1, \dots, z_T$ has log weight

$\log \pi_{z_1} + \sum_{t>1} \log A_{z_{t-1} z_t} + \sum_t \ell_t(z_t).$

Weights need not sum to one, as expectations of logarithms do not. Messages are scaled to sum to one at every step
(Rabiner, 1989). Steps at or after the length of a sequence change nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class Chain(NamedTuple):
    """Log weights of paths: of the first state, of pairs, and of states given what is observed.

    Of one sequence, or of many along the last axis, where a step of all of them is one product with the transitions.
    """

    log_initial: Float[Array, " k"]
    log_transition: Float[Array, "k k"]
    log_observed: Float[Array, "t k *sequences"]
    length: Int[Array, "*sequences"]

    @property
    def inside(self) -> Bool[Array, "t *sequences"]:
        """Whether a step is before the end of its sequence."""
        steps = jnp.arange(len(self.log_observed))
        return steps.reshape(-1, *[1] * self.length.ndim) < self.length


class Smoothed(NamedTuple):
    """What is known of the states given whole sequences: log total weights, states, and pairs, summed over all."""

    log_total: Float[Array, "*sequences"]
    states: Float[Array, "t k *sequences"]
    pairs: Float[Array, "k k"]


def smooth(chain: Chain) -> Smoothed:
    """Forward and backward, in one loop from both ends.

    >>> even = jnp.log(jnp.full((2, 2), 0.5))
    >>> chain = Chain(even[0], even, jnp.log(jnp.array([[0.9, 0.1], [0.5, 0.5]])), jnp.asarray(2))
    >>> smooth(chain).states.round(2).tolist()
    [[0.90, 0.10], [0.50, 0.50]]
    """
    observed, transition, inside = _Observed.of(chain), jnp.exp(chain.log_transition), chain.inside
    first, last = observed.first(chain), jnp.ones_like(observed.weights[0])

    def step(carry: tuple[Array, Array], at: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], tuple]:
        (before, after), (seen, seen_after, is_inside) = carry, at
        before = _forward_step(transition, before, seen)
        weight = after * seen_after
        after = jnp.where(is_inside, _times(transition, weight) / _positive(jnp.sum(weight, 0)), 1.0)
        return (before, after), (before, after)

    seen = observed.weights[1:]
    _, (forward, backward) = jax.lax.scan(step, (first, last), (seen, seen[::-1], inside[1:][::-1]))
    forward = jnp.concatenate([first[None], forward])
    backward = jnp.concatenate([backward[::-1], last[None]])
    both = forward * backward
    states = jnp.where(inside[:, None], both / _positive(jnp.sum(both, 1, keepdims=True)), 0.0)

    weight = seen * backward[1:]
    totals = jnp.sum(forward[:-1] * jax.vmap(_times, (None, 0))(transition, weight), 1, keepdims=True)
    scaled = jnp.where(inside[1:, None], forward[:-1] / _positive(totals), 0.0)
    pairs = transition * jnp.einsum("tj...,tk...->jk", scaled, weight)
    return Smoothed(_log_total(chain, observed, forward), states, pairs)


def log_total(chain: Chain) -> Float[Array, "*sequences"]:
    """Log of the summed weight of all paths."""
    return _log_total(chain, *_forward(chain))


def most_probable(chain: Chain) -> Int[Array, " t"]:
    """The path of largest weight of one sequence (Viterbi, 1967); past the length, its last state."""
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
    """A path of one sequence drawn by its weight: filter forward, draw backward; past the length, its last state."""
    _, filtered = _forward(chain)
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


class _Observed(NamedTuple):
    """Weights of what is observed, the largest at each step being one, and its logarithm."""

    weights: Float[Array, "t k *sequences"]
    log_largest: Float[Array, "t *sequences"]

    @classmethod
    def of(cls, chain: Chain) -> "_Observed":
        largest = jnp.max(chain.log_observed, axis=1)
        return cls(jnp.exp(chain.log_observed - largest[:, None]), largest)

    def first(self, chain: Chain) -> Float[Array, "k *sequences"]:
        """The forward message of the first step."""
        initial = jnp.exp(chain.log_initial - jnp.max(chain.log_initial))
        return initial.reshape(-1, *[1] * chain.length.ndim) * self.weights[0]


def _forward(chain: Chain) -> tuple[_Observed, Float[Array, "t k *sequences"]]:
    """Weights of what is observed, and forward messages, which sum to what their step adds to the total."""
    observed, transition = _Observed.of(chain), jnp.exp(chain.log_transition)

    def step(before: Array, seen: Array) -> tuple[Array, Array]:
        now = _forward_step(transition, before, seen)
        return now, now

    first = observed.first(chain)
    _, forward = jax.lax.scan(step, first, observed.weights[1:])
    return observed, jnp.concatenate([first[None], forward])


def _forward_step(transition: Float[Array, "k k"], before: Array, seen: Array) -> Array:
    return _times(transition.T, before) / _positive(jnp.sum(before, 0)) * seen


def _log_total(
    chain: Chain, observed: _Observed, forward: Float[Array, "t k *sequences"]
) -> Float[Array, "*sequences"]:
    logs = jnp.log(jnp.sum(forward, 1)) + observed.log_largest
    return jnp.max(chain.log_initial) + jnp.sum(jnp.where(chain.inside, logs, 0.0), 0)


def _times(matrix: Float[Array, "k k"], states: Float[Array, "k *sequences"]) -> Float[Array, "k *sequences"]:
    """A product by sums, which become one loop with what is around them where there are few states."""
    if len(matrix) > _FEW_STATES:
        return jnp.tensordot(matrix, states, 1)
    return jnp.sum(matrix.reshape(*matrix.shape, *[1] * (states.ndim - 1)) * states, 1)


_FEW_STATES = 16


def _positive(total: Array) -> Array:
    return jnp.maximum(total, _TINY)


_TINY = 1e-37

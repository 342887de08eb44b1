r"""The No-U-Turn sampler (Hoffman & Gelman, 2014; multinomial variant of Betancourt, 2017): exact, full batch.

A trajectory is doubled, forwards or backwards in time at random, until it turns back on itself or its energy diverges;
the next state is drawn from its points with weights $e^{-H}$, those of later doublings preferred. Subtrees are built
without recursion: U-turns between the ends of every subtree are found from $O(\log n)$ stored velocities (Phan, Pradhan
& Jankowiak, 2019). The tests compare its trajectories with those of BlackJAX's kernel.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from marginax._kernels.random import normal, uniform
from marginax.infer.catalogue import register_method
from marginax.infer.flat import Density, Vector
from marginax.infer.mcmc.adaptation import MetricSqrt, choose
from marginax.infer.mcmc.integrators import MAX_ENERGY_ERROR, HMCState, IntegratorState, leapfrog
from marginax.infer.mcmc.sampler import AbstractSampler, SamplerInfo, Tuning
from marginax.infer.method import check_count

_DIRECTIONS, _LEAVES, _TREES = 1, 2, 3  # streams of random numbers within a trajectory


@register_method(
    "method/nuts",
    gives="draws of the posterior itself",
    use_when="small data and network, and you want the posterior itself",
    cost="10^4 to 10^6 gradients per chain",
    order=280,
)
class NUTS(AbstractSampler):
    """No-U-Turn sampler with window adaptation of step size and scale.

    Takes what every `AbstractSampler` takes, and:

    Args:
        max_tree_depth: trajectories have at most 2^max_tree_depth leapfrog steps.
    """

    max_tree_depth: int = 10

    def __check_init__(self):
        check_count("max_tree_depth", self.max_tree_depth)

    lockstep: ClassVar[bool] = False  # trajectories differ in length

    def move(
        self, density: Density, state: HMCState, tuning: Tuning, *, key: PRNGKeyArray
    ) -> tuple[HMCState, SamplerInfo, PyTree]:
        """Draw a velocity, grow a trajectory, draw a point of it."""
        start = IntegratorState(state, normal(key, state.position.shape, state.position.dtype))
        tree = grow(density, start, tuning.step_size, tuning.metric_sqrt, self.max_tree_depth, key=key)
        num = jnp.maximum(tree.num_leaves, 1)
        info = SamplerInfo(
            log_density=tree.chosen.log_density,
            acceptance=tree.acceptance / num,
            energy=tree.chosen_energy,
            diverging=tree.diverging,
            num_leapfrog=tree.num_leaves,
            step_size=tuning.step_size,
        )
        return tree.chosen, info, None


class Tree(eqx.Module):
    """A part of a trajectory: its two ends, the point drawn from it, and sums over its points."""

    first: IntegratorState
    last: IntegratorState
    chosen: HMCState
    chosen_energy: Float[Array, ""]
    log_weight: Float[Array, ""]
    velocities: Vector
    acceptance: Float[Array, ""]
    num_leaves: Int[Array, ""]
    turning: Bool[Array, ""]
    diverging: Bool[Array, ""]

    @property
    def ended(self) -> Bool[Array, ""]:
        """No point in going on."""
        return self.turning | self.diverging


def grow(
    density: Density,
    start: IntegratorState,
    step_size: Array,
    metric_sqrt: MetricSqrt,
    max_tree_depth: int,
    *,
    key: PRNGKeyArray,
) -> Tree:
    """Double the trajectory until it turns, diverges or is long enough."""
    zero, no = jnp.zeros_like(start.energy), jnp.zeros((), bool)
    tree = Tree(start, start, start.state, start.energy, zero, start.velocity, zero, jnp.zeros((), jnp.int32), no, no)

    def double(carry: tuple[Array, Tree]) -> tuple[Array, Tree]:
        depth, tree = carry
        forward = uniform(key, depth, stream=_DIRECTIONS) < 0.5
        edge = choose(forward, tree.last, tree.first)
        signed = jnp.where(forward, step_size, -step_size)
        branch = subtree(
            density, edge, start.energy, signed, metric_sqrt, depth, tree.num_leaves, max_tree_depth, key=key
        )
        return depth + 1, _joined(tree, branch, forward, uniform(key, depth, stream=_TREES))

    def goes_on(carry: tuple[Array, Tree]) -> Array:
        return (carry[0] < max_tree_depth) & ~carry[1].ended

    return jax.lax.while_loop(goes_on, double, (jnp.zeros((), jnp.int32), tree))[1]


def subtree(
    density: Density,
    edge: IntegratorState,
    energy: Float[Array, ""],
    step_size: Array,
    metric_sqrt: MetricSqrt,
    depth: Int[Array, ""],
    num_before: Int[Array, ""],
    max_tree_depth: int,
    *,
    key: PRNGKeyArray,
) -> Tree:
    """2^depth leapfrog steps from an edge, fewer if a part of them turns or diverges; `first` is the oldest point."""
    zero, no = jnp.zeros_like(energy), jnp.zeros((), bool)
    nothing = jnp.zeros_like(edge.velocity)
    empty = Tree(edge, edge, edge.state, energy, zero - jnp.inf, nothing, zero, jnp.zeros((), jnp.int32), no, no)
    stored = jnp.zeros((max_tree_depth, edge.velocity.size), edge.velocity.dtype)

    def add(carry: tuple[Tree, Array, Array]) -> tuple[Tree, Array, Array]:
        tree, velocities, sums = carry
        leaf = tree.num_leaves
        new = leapfrog(density, tree.last, step_size, metric_sqrt)
        error = new.energy - energy
        error = jnp.where(jnp.isnan(error), jnp.inf, error)
        log_weight = jnp.logaddexp(tree.log_weight, -error)
        taken = jnp.log(uniform(key, num_before + leaf, stream=_LEAVES)) < -error - log_weight
        total = tree.velocities + new.velocity
        level, lowest = _levels(leaf)
        turning = (leaf % 2 == 1) & _any_turn(velocities, sums, new.velocity, total, lowest, level)
        even = leaf % 2 == 0
        velocities = velocities.at[level].set(jnp.where(even, new.velocity, velocities[level]))
        sums = sums.at[level].set(jnp.where(even, total, sums[level]))
        grown = Tree(
            first=choose(leaf == 0, new, tree.first),
            last=new,
            chosen=choose(taken, new.state, tree.chosen),
            chosen_energy=jnp.where(taken, new.energy, tree.chosen_energy),
            log_weight=log_weight,
            velocities=total,
            acceptance=tree.acceptance + jnp.exp(jnp.minimum(0.0, -error)),
            num_leaves=leaf + 1,
            turning=turning,
            diverging=error > MAX_ENERGY_ERROR,
        )
        return grown, velocities, sums

    def goes_on(carry: tuple[Tree, Array, Array]) -> Array:
        return (carry[0].num_leaves < 2**depth) & ~carry[0].ended

    return jax.lax.while_loop(goes_on, add, (empty, stored, stored))[0]


def _levels(leaf: Int[Array, ""]) -> tuple[Array, Array]:
    """The level at which an even leaf is stored; for an odd one, highest and lowest level whose subtrees end there."""
    level = jax.lax.population_count(leaf >> 1)
    num_subtrees = jax.lax.population_count(leaf & ~(leaf + 1))  # trailing ones
    return level, level - num_subtrees + 1


def _any_turn(velocities: Array, sums: Array, velocity: Vector, total: Vector, lowest: Array, highest: Array) -> Array:
    """Whether any of the subtrees that end here turns back between its ends."""
    between = total - sums + 0.5 * (velocities - velocity)
    turns = (jnp.sum(between * velocities, axis=1) <= 0) | (between @ velocity <= 0)
    level = jnp.arange(velocities.shape[0])
    return jnp.any(turns & (lowest <= level) & (level <= highest))


def _joined(tree: Tree, branch: Tree, forward: Array, draw: Array) -> Tree:
    """The whole trajectory after a doubling; a branch that ended early lends nothing but its statistics."""
    whole = ~branch.ended
    taken = whole & (jnp.log(draw) < branch.log_weight - tree.log_weight)
    first = choose(forward, tree.first, branch.last)
    last = choose(forward, branch.last, tree.last)
    velocities = tree.velocities + branch.velocities
    between = velocities - 0.5 * (first.velocity + last.velocity)
    turning = (jnp.vdot(between, first.velocity) <= 0) | (jnp.vdot(between, last.velocity) <= 0)
    return Tree(
        first=first,
        last=last,
        chosen=choose(taken, branch.chosen, tree.chosen),
        chosen_energy=jnp.where(taken, branch.chosen_energy, tree.chosen_energy),
        log_weight=jnp.logaddexp(tree.log_weight, branch.log_weight),
        velocities=velocities,
        acceptance=tree.acceptance + branch.acceptance,
        num_leaves=tree.num_leaves + branch.num_leaves,
        turning=branch.turning | (whole & turning),
        diverging=branch.diverging,
    )

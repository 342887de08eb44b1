r"""Samplers that move on minibatches: what they share.

Each trains to the mode first (unless `init=` says where to start), then lets its dynamics run: a warm-up from which
nothing is kept, and sampling. The gradient of a batch is scaled by N/B in the model, so a step size means the same for
every batch size; noise is that of `marginax._kernels.random`, one normal per weight and step.

None of them has an accept step, so the step size is what bounds the error. Where it is not given, it is set from the
largest curvature $\lambda$ of the log density at the start, found by power iteration on a batch: a fixed fraction of
$1/\lambda$ keeps the discretised law within some percent of the posterior in the stiffest direction, and nearer in all
others.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import normal_like
from marginax.data import Batch
from marginax.files import register
from marginax.infer.chain import AbstractChain
from marginax.infer.map import MAP
from marginax.infer.method import Phase, check_count
from marginax.infer.training import begin_by_training, training_memory
from marginax.model import AbstractModel
from marginax.model.abstract import Params

_POWER_ITERATIONS = 20


@register("schedule/polynomial_decay")
class PolynomialDecay(eqx.Module):
    r"""A step size that decreases: $\epsilon_t = a (1 + t / b)^{-\gamma}$.

    With $\gamma \in (1/2, 1]$ it meets the two conditions for a law without discretisation error in the limit (Welling
    & Teh, 2011): $\sum_t \epsilon_t = \infty$, so that the chain can reach any place, and
    $\sum_t \epsilon_t^2 < \infty$, so that the error vanishes.

    Args:
        first: $a$, the first step size.
        delay: $b$, steps until it has begun to fall.
        power: $\gamma$ in (0.5, 1].

    >>> [round(float(PolynomialDecay(0.1, delay=10.0, power=1.0)(t)), 3) for t in (0, 10, 90)]
    [0.1, 0.05, 0.01]
    """

    first: float
    delay: float = 1000.0
    power: float = 0.55

    def __check_init__(self):
        for name in ("first", "delay"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")
        if not 0.5 < self.power <= 1:
            raise ValueError(
                f"power must be in (0.5, 1]: otherwise a sum diverges or converges wrongly, got {self.power}"
            )

    def __call__(self, step: Array | int) -> Array:
        """The step size at a step."""
        return jnp.asarray(self.first * (1.0 + step / self.delay) ** -self.power)


@register("sgmcmc/control_variates")
class ControlVariates(eqx.Module):
    r"""Gradients with less noise (Baker, Fearnhead, Fox & Nemeth, 2019).

    $\hat g(\theta) = g(\hat\theta) + \hat g_B(\theta) - \hat g_B(\hat\theta)$, with $\hat\theta$ the place where
    sampling starts and $g(\hat\theta)$ its gradient on all data, found in one pass. Twice the cost of a step; pays
    where the posterior is narrow around $\hat\theta$.
    """


StepSizeChoice = float | PolynomialDecay | None


class Anchor(eqx.Module):
    """The centre of control variates, its gradient as far as it is summed, and examples seen."""

    params: Params
    gradient: Params
    count: Array


class StochasticState(eqx.Module):
    """Where a chain is, what its dynamics carry along, and what was learned before it started."""

    params: Params
    memory: PyTree
    curvature: Float[Array, ""]
    count: Array
    anchor: Anchor | None = None
    training: PyTree = None


class StochasticInfo(eqx.Module):
    """Numbers for people. Temperature is that of the velocities, if there are any: it should be near the one asked."""

    log_density: Array
    step_size: Array
    temperature: Array | None = None
    acceptance: Array | None = None


class AbstractStochasticSampler(AbstractChain):
    """A diffusion driven by gradients of minibatches; it says how to update.

    Args:
        step_size: a number, `PolynomialDecay(...)`, or None for the sampler's own choice.
        temperature: of the posterior; 1 is Bayes, 0 is gradient ascent.
        num_warmup: steps from which nothing is kept.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
        batch_size: examples per step, or None for all.
        variance_reduction: None, or `ControlVariates()`.
        training: how the start is found when `init=` does not give one.
    """

    step_size: StepSizeChoice = None
    temperature: float = eqx.field(default=1.0, kw_only=True)
    num_warmup: int = eqx.field(default=1000, kw_only=True)
    num_samples: int = eqx.field(default=100, kw_only=True)
    thin: int = eqx.field(default=50, kw_only=True)
    batch_size: int | None = eqx.field(default=128, kw_only=True)
    variance_reduction: ControlVariates | None = eqx.field(default=None, kw_only=True)
    training: MAP | None = eqx.field(default_factory=MAP, kw_only=True)

    def __check_init__(self):
        check_count("num_warmup", self.num_warmup, least=0)
        check_count("batch_size", self.batch_size, optional=True)
        if not isinstance(self.step_size, PolynomialDecay) and self.step_size is not None and not self.step_size > 0:
            raise ValueError(f"step_size must be > 0, mx.infer.PolynomialDecay(...) or None, got {self.step_size}")
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if self.variance_reduction is not None and not isinstance(self.variance_reduction, ControlVariates):
            raise TypeError(f"variance_reduction must be mx.infer.ControlVariates(), got {self.variance_reduction!r}")

    # ---- what a sampler says

    @abc.abstractmethod
    def update(
        self, params: Params, memory: PyTree, gradient: Params, step_size: Array, temperature: Any, key: PRNGKeyArray
    ) -> tuple[Params, PyTree, dict[str, Array]]:
        """One step of the dynamics; what it reports goes to fields of `StochasticInfo`."""

    @abc.abstractmethod
    def default_step_size(self, curvature: Array, num_examples: int) -> Array:
        """Step size where it is not given, from the largest curvature of the log density of so many examples."""

    def first_memory(self, params: Params, num_examples: int) -> PyTree:
        """What the dynamics carry besides the position."""

    # ---- the protocol

    def warm_started(self) -> "AbstractStochasticSampler":
        """From a given start there is nothing to train."""
        return self if self.training is None else eqx.tree_at(lambda m: m.training, self, None)

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> StochasticState:
        zero = jnp.zeros((), jnp.int32)
        anchor = training = None
        if self.variance_reduction is not None:
            anchor = Anchor(params, jax.tree.map(jnp.zeros_like, params), zero)
        if self.training is not None:
            training = training_memory(self.training.init(model, params, batch, key=key))
        memory = self.first_memory(params, batch.num_examples)
        return StochasticState(params, memory, jnp.ones(()), zero, anchor, training)

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """Train, look at the curvature, find the anchor, warm up, sample; what is not needed is left out."""
        phases = self.preparation(num_examples, batch_size)
        if self.num_warmup:
            phases += (Phase("warmup", self.num_warmup, self.step, as_next=True),)
        return (*phases, self.sampling(self.step))

    def preparation(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """What comes before the dynamics."""
        phases = ()
        if self.training is not None:
            phases += (begin_by_training(self.training, num_examples, batch_size),)
        if self.step_size is None:
            phases += (look_at_curvature(),)
        if self.variance_reduction is not None:
            phases += (Phase("anchor", -(-num_examples // batch_size), self.anchor_step),)
        return phases

    def step(
        self, model: AbstractModel, state: StochasticState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[StochasticState, StochasticInfo]:
        """One step of the dynamics with the step size of its time."""
        return self.move(model, state, batch, self.step_size_at(state, batch), self.temperature, key=key)

    def move(
        self,
        model: AbstractModel,
        state: StochasticState,
        batch: Batch,
        step_size: Array,
        temperature: Any,
        *,
        key: Any,
        longest: Array | None = None,
    ) -> tuple[StochasticState, StochasticInfo]:
        """One step of the dynamics, with a gradient that is not longer than `longest`."""
        value, gradient = self.gradient(model, state, batch)
        gradient = bounded(gradient, longest)
        params, memory, noted = self.update(state.params, state.memory, gradient, step_size, temperature, key)
        new = StochasticState(params, memory, state.curvature, state.count + 1, state.anchor, state.training)
        return new, StochasticInfo(value, step_size, **noted)

    def step_size_at(self, state: StochasticState, batch: Batch) -> Array:
        """The step size at this time."""
        if self.step_size is None:
            return self.default_step_size(state.curvature, batch.num_examples)
        given: Any = self.step_size
        return given(state.count) if isinstance(given, PolynomialDecay) else jnp.asarray(given)

    def gradient(self, model: AbstractModel, state: StochasticState, batch: Batch) -> tuple[Float[Array, ""], Params]:
        """Log density and its gradient, estimated from a batch."""
        value, gradient = jax.value_and_grad(lambda p: model.log_density(p, batch))(state.params)
        if state.anchor is not None:
            there = jax.grad(lambda p: model.log_density(p, batch))(state.anchor.params)
            gradient = jax.tree.map(lambda a, b, c: a - b + c, gradient, there, state.anchor.gradient)
        return value, gradient

    # ---- before the dynamics

    def anchor_step(
        self, model: AbstractModel, state: StochasticState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[StochasticState, StochasticInfo]:
        """Add a batch to the gradient at the anchor; rows that belong to the next epoch count for nothing."""
        assert state.anchor is not None
        seen, size = state.anchor.count, batch.size
        weights = (seen + jnp.arange(size) < batch.num_examples).astype(batch.x.dtype)

        def part(params: Params) -> Float[Array, ""]:
            prior = jnp.where(seen == 0, model.log_prior(params), 0.0)
            return prior + jnp.sum(weights * model.log_likelihood(params, batch))

        value, gradient = jax.value_and_grad(part)(state.params)
        total = jax.tree.map(jnp.add, state.anchor.gradient, gradient)
        anchor = Anchor(state.params, total, seen + size)
        return eqx.tree_at(lambda s: s.anchor, state, anchor), StochasticInfo(value, self.step_size_at(state, batch))


def bounded(gradient: Params, longest: Array | None) -> Params:
    """The gradient, shortened where it is longer."""
    if longest is None:
        return gradient
    factor = jnp.minimum(1.0, longest / optax.tree.norm(gradient))
    return jax.tree.map(lambda leaf: factor * leaf, gradient)


class AtRest(eqx.Module):
    """A chain that looks around before it moves."""

    params: Params
    curvature: Array


class CurvatureInfo(eqx.Module):
    """What it has seen."""

    log_density: Array
    curvature: Array


def look_at_curvature() -> Phase:
    """A phase of one step, for any state with `params` and `curvature`."""
    return Phase("curvature", 1, curvature_step, enter=_at_rest, leave=_with_curvature)


def _at_rest(state: Any) -> AtRest:
    return AtRest(state.params, state.curvature)


def _with_curvature(state: Any, part: AtRest) -> Any:
    return eqx.tree_at(lambda s: (s.params, s.curvature), state, (part.params, part.curvature))


def curvature_step(
    model: AbstractModel, state: AtRest, batch: Batch, *, key: PRNGKeyArray
) -> tuple[AtRest, CurvatureInfo]:
    """The largest curvature, by power iteration."""
    curvature = largest_curvature(model, state.params, batch, key=key)
    return AtRest(state.params, curvature), CurvatureInfo(model.log_density(state.params, batch), curvature)


def largest_curvature(model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> Float[Array, ""]:
    """Largest absolute eigenvalue of the Hessian of the log density on a batch."""
    gradient = jax.grad(lambda p: model.log_density(p, batch))

    def iterate(_: Array, carry: tuple[Params, Array]) -> tuple[Params, Array]:
        vector, _ = carry
        image = jax.jvp(gradient, (params,), (vector,))[1]
        norm = tree_norm(image)
        return jax.tree.map(lambda leaf: leaf / jnp.maximum(norm, 1e-30), image), norm

    start = normal_like(key, params)
    start = jax.tree.map(lambda leaf: leaf / tree_norm(start), start)
    norm = jax.lax.fori_loop(0, _POWER_ITERATIONS, iterate, (start, jnp.ones(())))[1]
    return jnp.maximum(norm, 1e-6)


def tree_norm(tree: PyTree) -> Float[Array, ""]:
    """Euclidean norm over all leaves."""
    return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree)))


def mean_square(tree: PyTree) -> Float[Array, ""]:
    """Mean of squares over all leaves."""
    return tree_norm(tree) ** 2 / sum(leaf.size for leaf in jax.tree.leaves(tree))

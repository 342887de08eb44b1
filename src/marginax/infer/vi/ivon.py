r"""Improved variational online Newton (Shen et al., 2024): variational inference at about the cost of Adam.

$q = N(m, s^2)$ with independent weights and $s^2 = T / (N (h + \delta))$; $\delta = 1 / (N s_0^2)$ is the prior's part
of the curvature, h the data's. One gradient g of the mean loss at a draw $m + s\,\epsilon$ serves both:

$\bar g \leftarrow \beta_1 \bar g + (1 - \beta_1) g, \quad
 \hat h = g\,\epsilon / s, \quad
 h \leftarrow \beta_2 h + (1 - \beta_2) \hat h + \tfrac12 (1 - \beta_2)^2 \frac{(h - \hat h)^2}{h + \delta}, \quad
 m \leftarrow m - \alpha \frac{\bar g + \delta m}{h + \delta}$

The quadratic term keeps $h + \delta$ positive. One draw says little of what is further away than it reached, so no step
moves m by more than s, nor changes $h + \delta$ by more than the quadratic at $\pm 1$ (a half to 2.5 times). Without
that bound, which the paper does not have (its radius is one for all weights), a rare gradient where h is small throws
m far out, the curvature there throws the next, and float32 overflows. Late small steps are inside: the optimum is the
same. For priors that are not normal, $\delta$ and $\delta m$ are the curvature and
slope of minus their log density at m; unknowns besides the weights have no $\delta$, and their prior is part of the
loss.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import normal_like
from marginax.curvature import DiagonalCovariance
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.method import AbstractMethod, Infos, Phase, check_count, mixture_of_chains, num_steps_for
from marginax.infer.optimisers import Cosine, Schedule
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, Gaussian

_TINY = 1e-8
_LEAST_STEPS = 10_000  # five memories of the curvature: after one or two, scales are still those of the start
_RADIUS = 1.0  # of a step: of m in units of s, of h + delta relative to itself


class IVONState(eqx.Module):
    """Mean, momentum of the gradient, standard deviation and curvature of the data, and two counts."""

    params: Params
    momentum: Params
    curvature: Params
    scale: Params
    count: Array


class IVONInfo(eqx.Module):
    """The log likelihood at the draw."""

    log_likelihood: Array


@register_method(
    "method/ivon",
    gives="a normal by natural gradients",
    use_when="variational inference for large networks",
    cost="1 training run",
    order=150,
)
class IVON(AbstractMethod):
    """Variational inference by natural gradients.

    Args:
        learning_rate: of the mean.
        b1: decay of the gradient.
        b2: decay of the curvature, whose memory is 1 / (1 - b2) steps.
        initial_curvature: of the mean loss; larger is narrower and slower at the start.
        temperature: of the posterior.
        schedule: how the learning rate changes over the run.
        num_epochs: by default at least 10, and at least 10,000 steps, five memories of the curvature.
        batch_size: as in MAP.
    """

    learning_rate: float = 0.1
    b1: float = 0.9
    b2: float = 0.9995
    initial_curvature: float = 1.0
    temperature: float = 1.0
    schedule: Schedule = eqx.field(default_factory=lambda: Cosine(warmup=0.05))
    num_epochs: int | None = None
    batch_size: int | None = 128

    def __check_init__(self):
        for name in ("learning_rate", "initial_curvature", "temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")
        for name in ("b1", "b2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        check_count("num_epochs", self.num_epochs, optional=True)
        check_count("batch_size", self.batch_size, optional=True)

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> IVONState:
        curvature = jax.tree.map(lambda leaf: jnp.full(leaf.shape, self.initial_curvature, leaf.dtype), params)
        delta = prior_curvature(model, params, batch.num_examples)
        inverse = jax.tree.map(lambda h, d: 1.0 / (h + d), curvature, delta)
        scale = self._scale(inverse, batch.num_examples / self.temperature)
        return IVONState(params, jax.tree.map(jnp.zeros_like, params), curvature, scale, jnp.zeros((), jnp.int32))

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        num_steps = num_steps_for(self.num_epochs, num_examples, batch_size, _LEAST_STEPS)
        return (Phase("train", num_steps, self.step, can_end=True),)

    def step(
        self, model: AbstractModel, state: IVONState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[IVONState, IVONInfo]:
        """One gradient at a draw; momentum, curvature and mean from it."""
        num_examples, mean = batch.num_examples, state.params
        noise = normal_like(key, mean)
        draw = jax.tree.map(lambda m, s, e: m + s * e, mean, state.scale, noise)

        def loss(draw: Params, centre: PyTree) -> tuple[Float[Array, ""], Array]:
            """The prior pulls weights at their mean, and what it is learned with sees them as they are drawn."""
            drawn = jax.lax.stop_gradient(draw)
            pull = model.log_prior(model.with_weights(drawn, centre))
            log_prior = model.log_prior(model.with_weights(draw, model.weights(drawn)))
            log_likelihood = model.scaled_log_likelihood(draw, batch)
            return -(log_likelihood + log_prior + pull) / num_examples, log_likelihood

        (gradient, pull), log_likelihood = jax.grad(loss, argnums=(0, 1), has_aux=True)(draw, model.weights(mean))
        pull = model.with_weights(jax.tree.map(jnp.zeros_like, mean), pull)
        delta = prior_curvature(model, mean, num_examples)
        num_steps = num_steps_for(self.num_epochs, num_examples, batch.size, _LEAST_STEPS)
        rate = self.learning_rate * self.schedule.factor(state.count / num_steps)
        unbias = 1.0 / (1.0 - self.b1 ** (state.count + 1))
        momentum = jax.tree.map(lambda a, g: self.b1 * a + (1.0 - self.b1) * g, state.momentum, gradient)
        weight = num_examples / self.temperature
        learn = partial(self._curvature, weight)
        curvature = jax.tree.map(learn, state.curvature, delta, gradient, noise, state.scale)
        inverse = jax.tree.map(lambda h, d: 1.0 / (h + d), curvature, delta)  # one division serves mean and scale
        scale = self._scale(inverse, weight)
        move = partial(self._moved, rate, unbias)
        params = jax.tree.map(move, mean, momentum, pull, inverse, scale)
        return IVONState(params, momentum, curvature, scale, state.count + 1), IVONInfo(log_likelihood)

    def _curvature(
        self, weight: Array | float, h: Array, delta: Array, gradient: Array, noise: Array, s: Array
    ) -> Array:
        """Where 1 / s^2 = weight (h + delta), so that nothing has to be divided."""
        variance = s * s * weight
        change = (1.0 - self.b2) * (gradient * noise * s * weight - h * variance)
        change = jnp.clip(change, -_RADIUS, _RADIUS)
        return jnp.maximum(h + (h + delta) * (change + 0.5 * change**2), 0.5 / variance - delta)

    def _moved(self, rate: Array, unbias: Array, m: Array, a: Array, r: Array, inverse: Array, s: Array) -> Array:
        """A Newton step, no further than the draws that it was learned from reach."""
        return m - jnp.clip(rate * (a * unbias + r) * inverse, -_RADIUS * s, _RADIUS * s)

    def _scale(self, inverse: Params, weight: Array | float) -> Params:
        return jax.tree.map(lambda i: jnp.sqrt(i * (1.0 / weight)), inverse)

    def posterior(self, model: AbstractModel, state: IVONState, draws: PyTree, infos: Infos) -> AbstractPosterior:

        def build(chain: tuple[Params, Params]) -> Gaussian:
            mean, scale = chain
            return Gaussian(model=model, mean=mean, covariance=DiagonalCovariance(ravel_pytree(scale)[0]))

        return mixture_of_chains(build, (state.params, state.scale))


def prior_curvature(model: AbstractModel, params: Params, num_examples: int) -> Params:
    """Minus the second derivative of the log prior of every weight, per example; next to nothing for other unknowns."""
    weights = jax.tree.map(lambda leaf: jnp.maximum(leaf / num_examples, _TINY), model.prior_precision(params))
    return model.with_weights(jax.tree.map(lambda leaf: jnp.full_like(leaf, _TINY), params), weights)

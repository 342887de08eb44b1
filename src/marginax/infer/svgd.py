r"""Stein variational gradient descent (Liu & Wang, 2016): particles that climb together and keep apart.

$\theta_i \leftarrow \theta_i + \epsilon\,\phi_i, \quad
 \phi_i = \frac1n \sum_j k(\theta_j, \theta_i) \nabla \log p(\theta_j \mid D) + \nabla_{\theta_j} k(\theta_j, \theta_i)$

with $k(a, b) = \exp(-\|a - b\|^2 / h)$ and h from the median distance of the particles. A chain is a whole swarm, so
that chains stay independent. Particles spread too little in many dimensions: think of an ensemble whose members repel.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import derive, normal_like
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.method import Infos, check_count
from marginax.infer.training import AbstractOptimised
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, Draws

_APART = 0.01  # for what has no fresh values (biases, vectors): particles at one place would not repel each other


class SVGDState(eqx.Module):
    """Particles, stacked, and the optimiser's memory."""

    params: Params
    optimiser: PyTree


class SVGDInfo(eqx.Module):
    """Mean log density of the particles, and the median squared distance between them."""

    log_density: Array
    distance: Array


@register_method(
    "method/svgd",
    gives="particles that repel each other",
    use_when="an ensemble whose members keep apart",
    cost="20 training runs",
    order=160,
)
class SVGD(AbstractOptimised):
    """Particles that follow the gradient of the log density and repel each other.

    Takes what every `AbstractOptimised` takes, and:

    Args:
        num_particles: in a swarm (a chain).
        jitter: how far particles start from a network that `init=` gives; without it each has weights of its own.
    """

    num_particles: int = 20
    jitter: float | None = None

    def __check_init__(self):
        check_count("num_particles", self.num_particles, least=2)
        if self.jitter is not None and not self.jitter > 0:
            raise ValueError(f"jitter must be > 0 or None, got {self.jitter}")

    def warm_started(self) -> "SVGD":
        return dataclasses.replace(self, jitter=self.jitter or 0.1)

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> SVGDState:
        """The first particle where the chain starts, the others at fresh weights or nearby."""

        def place(index: Array) -> Params:
            at = derive(key, index)
            other = model.reinitialise(params, key=at) if self.jitter is None else params
            spread = _APART if self.jitter is None else self.jitter
            other = jax.tree.map(lambda p, e: p + spread * e, other, normal_like(at, params))
            return jax.tree.map(lambda a, b: jnp.where(index == 0, a, b), params, other)

        particles = jax.vmap(place)(jnp.arange(self.num_particles))
        return SVGDState(particles, self.first_memory(particles))

    def step(
        self, model: AbstractModel, state: SVGDState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[SVGDState, SVGDInfo]:
        values, gradients = jax.vmap(jax.value_and_grad(lambda p: model.log_density(p, batch)))(state.params)
        unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], state.params))[1]
        direction, distance = stein_direction(_matrix(state.params), _matrix(gradients))
        uphill = jax.tree.map(lambda leaf: -leaf / batch.num_examples, jax.vmap(unravel)(direction))
        params, memory = self.descend(uphill, state.optimiser, state.params, batch)
        return SVGDState(params, memory), SVGDInfo(jnp.mean(values), distance)

    def posterior(self, model: AbstractModel, state: SVGDState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        return Draws(model=model, params=jax.tree.map(np.asarray, state.params))


def stein_direction(
    particles: Float[Array, "n size"], gradients: Float[Array, "n size"]
) -> tuple[Float[Array, "n size"], Float[Array, ""]]:
    """Where the particles go, and their median squared distance.

    >>> apart, _ = stein_direction(jnp.array([[-0.5], [0.5]]), jnp.zeros((2, 1)))
    >>> bool(apart[0, 0] < 0 < apart[1, 0])
    True
    """
    num = particles.shape[0]
    centred = particles - jnp.mean(particles, axis=0)
    norms = jnp.sum(centred**2, axis=1)
    squares = jnp.maximum(norms[:, None] + norms[None, :] - 2.0 * centred @ centred.T, 0.0)
    distance = jnp.median(squares[np.triu_indices(num, 1)])
    width = jnp.maximum(distance / np.log(num + 1.0), 1e-12)
    kernel = jnp.exp(-squares / width)
    repulsion = 2.0 / width * (jnp.sum(kernel, axis=1)[:, None] * centred - kernel @ centred)
    return (kernel @ gradients + repulsion) / num, distance


def _matrix(stacked: PyTree) -> Float[Array, "n size"]:
    leaves = jax.tree.leaves(stacked)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)

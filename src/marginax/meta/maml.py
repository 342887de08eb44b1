r"""Model-agnostic meta-learning (Finn, Abbeel & Levine, 2017): weights from which a few gradient steps lead far.

$\theta_t = \mu - \alpha \nabla_\mu \tfrac{1}{2 n} \sum_i (y_i - f_\mu(x_i))^2$ on some points of a task (or several
such steps), and the log likelihood is that of the other points. A few steps from $\mu$ are an estimate of the mode of
$\theta_t$ under a prior around $\mu$ (Grant et al., 2018): `Hierarchy` has that prior, and its uncertainty.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import row_keys
from marginax.data import Batch
from marginax.files import register
from marginax.latent.neural_process.tasks import Points, check_sizes, split_tasks
from marginax.meta.tasks import AbstractTasks, check_tasks_model
from marginax.model.abstract import Params
from marginax.model.distributions import Normal

_MEAN_SCALE, _LOG_NOISE = 10.0, Normal(-1.5, 2.0)


@register("meta/maml")
class MAML(AbstractTasks):
    """A start that a few gradient steps adapt to a task; predictions carry the noise and nothing epistemic.

    Args:
        network: with one output, called on one point.
        noise: standard deviation of an observation, None to learn it.
        step_size: of a gradient step on the mean squared error.
        num_steps: gradient steps.
        num_context: fewest and most points that a step sees in training; the others are to be predicted.
    """

    network: eqx.Module
    noise: float | None
    step_size: float
    num_steps: int = eqx.field(static=True)
    num_context: tuple[int, int | None] = eqx.field(static=True)

    def __init__(
        self,
        network: Any,
        *,
        noise: float | None = None,
        step_size: float = 0.01,
        num_steps: int = 1,
        num_context: tuple[int, int | None] = (5, 10),
    ):
        self.network = check_tasks_model(network, noise, num_steps)
        self.noise = None if noise is None else float(noise)
        if not step_size > 0:
            raise ValueError(f"step_size must be > 0, got {step_size}")
        self.step_size, self.num_steps = float(step_size), num_steps
        self.num_context = check_sizes(num_context)

    def init_more(self) -> dict[str, Any]:
        return {}

    def log_prior(self, params: Params) -> Float[Array, ""]:
        """Wide normal distributions of the weights, and of the log of the noise."""
        leaves = jax.tree.leaves(params["mean"])
        total = sum((jnp.sum(Normal(0.0, _MEAN_SCALE).log_prob(leaf)) for leaf in leaves), start=jnp.zeros(()))
        return total if self.noise is not None else total + _LOG_NOISE.log_prob(params["log_noise"])

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        """Of the points of each task that no step has seen: without a key, always the same ones."""
        base = jax.random.key(0) if key is None else key
        points = Points(batch.data["x"], batch.data["y"], jnp.asarray(batch.data["mask"], batch.data["x"].dtype))
        contexts, targets = split_tasks(points, self.num_context, row_keys(base, batch.index))

        def one(x: Array, y: Array, context: Array, target: Array) -> Float[Array, ""]:
            weights = self.stepped(params, {"x": x, "y": y, "mask": context})
            each = Normal(self.outputs(weights, x), self.noise_of(params)).log_prob(y[:, 0])
            return jnp.sum(target * each)

        return jax.vmap(one)(points.x, points.y, contexts, targets)

    def stepped(self, params: Params, task: PyTree) -> PyTree:
        """The weights after the steps."""
        mask = jnp.asarray(task["mask"], task["x"].dtype)

        def loss(weights: PyTree) -> Float[Array, ""]:
            misses = jnp.square(task["y"][:, 0] - self.outputs(weights, task["x"]))
            return 0.5 * jnp.sum(mask * misses) / jnp.maximum(jnp.sum(mask), 1.0)

        weights = params["mean"]
        for _ in range(self.num_steps):
            weights = jax.tree.map(lambda w, g: w - self.step_size * g, weights, jax.grad(loss)(weights))
        return weights

    def adapted(
        self, params: Params, task: PyTree, x: Float[Array, "m d"]
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        mean = self.outputs(self.stepped(params, task), x)
        return mean, jnp.zeros_like(mean)

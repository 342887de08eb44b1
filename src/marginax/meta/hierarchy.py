r"""Hierarchical Bayes: the weights of tasks come from one normal distribution, which is learned.

$\theta_t \sim N(\mu, \mathrm{diag}(\sigma^2)), \quad y_{ti} = f_{\theta_t}(x_{ti}) + s\,\epsilon$

The log likelihood of a task has its weights integrated out, with the network linearised at $\theta^*$:

$y_t \sim N\big(f_{\theta^*} + J(\mu - \theta^*),\; J \mathrm{diag}(\sigma^2) J^\top + s^2 I\big)$,

which is exact for networks that are linear in their weights. By default $\theta^* = \mu$; further linearisations are
Gauss-Newton steps towards the mode, where this is Laplace's approximation of the evidence (Grant et al., 2018):

$\theta^* \leftarrow \mu + D J^\top (J D J^\top + s^2 I)^{-1} (y - f_{\theta^*} + J(\theta^* - \mu)), \quad
D = \mathrm{diag}(\sigma^2)$.

Steps are not damped: where noise is small and scales are wide, many of them need not settle. Matrices are as large as
a task has points, so tasks should be small.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.files import register
from marginax.meta.tasks import AbstractTasks, check_tasks_model
from marginax.model.abstract import Params
from marginax.model.distributions import Normal

_LOG_SCALE, _LOG_NOISE = Normal(-1.0, 2.0), Normal(-1.5, 2.0)  # wide, in units of the data
_MEAN_SCALE = 10.0


class _Linearised(NamedTuple):
    """A task, linearised."""

    mode: Float[Array, " p"]
    mean: Float[Array, " p"]  # mu
    variance: Float[Array, " p"]  # D
    jacobian: Float[Array, "n p"]  # J, 0 where there is no point
    root: Float[Array, "n n"]  # of J D J' + s^2 I
    residual: Float[Array, " n"]


@register("meta/hierarchy")
class Hierarchy(AbstractTasks):
    """Tasks whose networks have weights from one normal distribution: its mean and its scales are learned.

    `mx.fit(Hierarchy(network), tasks, mx.infer.MAP(batch_size=16), key=0)` learns them, and
    `posterior.adapt((x_few, y_few)).predict(x_new)` is the posterior of a new task under that prior.

    Args:
        network: with one output, called on one point.
        noise: standard deviation of an observation, None to learn it.
        per_weight: whether every weight has a scale of its own, or every array of weights.
        num_steps: linearisations of a task, the first at the common mean, each further one a Gauss-Newton step on.

    >>> import marginax as mx
    >>> import numpy as np
    >>> tasks = [(np.zeros((4, 1)), np.full(4, level)) for level in (-1.0, 0.0, 1.0)]
    >>> net, fast = mx.nets.MLP(1, (), 1, key=0), mx.infer.LBFGS()
    >>> posterior = mx.fit(Hierarchy(net, noise=0.1), tasks, mx.infer.MAP(60, batch_size=None, optimiser=fast), key=0)
    >>> posterior.adapt(([0.0], [0.8])).predict([0.0]).mean.round(1).tolist()
    [0.8]
    """

    network: eqx.Module
    noise: float | None
    per_weight: bool = eqx.field(static=True)
    num_steps: int = eqx.field(static=True)

    def __init__(self, network: Any, *, noise: float | None = None, per_weight: bool = True, num_steps: int = 1):
        self.network = check_tasks_model(network, noise, num_steps)
        self.noise = None if noise is None else float(noise)
        self.per_weight, self.num_steps = bool(per_weight), num_steps

    def init_more(self) -> dict[str, Any]:
        start = lambda leaf: jnp.full(leaf.shape if self.per_weight else (), -1.0, leaf.dtype)  # noqa: E731
        return {"log_scale": jax.tree.map(start, self.weights_of_network)}

    def log_prior(self, params: Params) -> Float[Array, ""]:
        """Wide normal distributions of the mean, and of the logs of scales and noise."""
        total = jnp.zeros(())
        for leaf in jax.tree.leaves(params["mean"]):
            total = total + jnp.sum(Normal(0.0, _MEAN_SCALE).log_prob(leaf))
        for leaf in jax.tree.leaves(params["log_scale"]):
            total = total + jnp.sum(_LOG_SCALE.log_prob(leaf))
        return total if self.noise is not None else total + _LOG_NOISE.log_prob(params["log_noise"])

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        """Log density of all points of each task, its weights integrated out."""

        def one(task: PyTree) -> Float[Array, ""]:
            found = self._linearised(params, task)
            white = solve_triangular(found.root, found.residual, lower=True)
            each = Normal(0.0, 1.0).log_prob(white) - jnp.log(jnp.diagonal(found.root))
            return jnp.sum(jnp.where(task["mask"] > 0, each, 0.0))

        return jax.vmap(one)(batch.data)

    def adapted(
        self, params: Params, task: PyTree, x: Float[Array, "m d"]
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """By Bayes' rule for normal weights, with the network linearised where that of the task is."""
        found = self._linearised(params, task)
        value, jacobian = self._outputs_and_jacobian(params, found.mode, x)
        white = solve_triangular(found.root, (found.jacobian * found.variance) @ jacobian.T, lower=True)
        known = solve_triangular(found.root, found.residual, lower=True)
        mean = value + jacobian @ (found.mean - found.mode) + white.T @ known
        variance = jnp.sum(jnp.square(jacobian) * found.variance, axis=1) - jnp.sum(jnp.square(white), axis=0)
        return mean, jnp.maximum(variance, 0.0)

    def scale_of(self, params: Params) -> PyTree:
        """Standard deviations of the weights over tasks, in the shape of the weights."""
        spread = lambda mean, log: jnp.broadcast_to(jnp.exp(log), mean.shape)  # noqa: E731
        return jax.tree.map(spread, params["mean"], params["log_scale"])

    def mode_of(self, params: Params, task: PyTree) -> PyTree:
        """The weights at which the network of a task is linearised last."""
        return ravel_pytree(params["mean"])[1](self._linearised(params, task).mode)

    def _outputs_and_jacobian(
        self, params: Params, flat: Float[Array, " p"], x: Float[Array, "n d"]
    ) -> tuple[Float[Array, " n"], Float[Array, "n p"]]:
        unravel = ravel_pytree(params["mean"])[1]
        function = lambda weights: self.outputs(unravel(weights), x)  # noqa: E731
        return function(flat), jax.jacrev(function)(flat)

    def _linearised(self, params: Params, task: PyTree) -> _Linearised:
        mean, mask = ravel_pytree(params["mean"])[0], jnp.asarray(task["mask"], params_dtype(params))
        variance = jnp.square(ravel_pytree(self.scale_of(params))[0])
        noise = jnp.square(self.noise_of(params))

        def around(mode: Float[Array, " p"]) -> _Linearised:
            value, jacobian = self._outputs_and_jacobian(params, mode, task["x"])
            jacobian = jacobian * mask[:, None]
            residual = mask * (task["y"][:, 0] - value) + jacobian @ (mode - mean)
            covariance = (jacobian * variance) @ jacobian.T + jnp.diag(jnp.where(mask > 0, noise, 1.0))
            return _Linearised(mode, mean, variance, jacobian, jnp.linalg.cholesky(covariance), residual)

        found = around(mean)
        for _ in range(self.num_steps - 1):
            found = around(mean + variance * (found.jacobian.T @ cho_solve((found.root, True), found.residual)))
        return found


def params_dtype(params: Params) -> Any:
    """Of the weights."""
    return jax.tree.leaves(params["mean"])[0].dtype

"""What models of tasks share: a network whose weights differ from task to task, and how tasks are read."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import AbstractSource, Rows
from marginax.latent.neural_process.tasks import as_tasks
from marginax.meta.queries import MetaQueries
from marginax.model.abstract import AbstractModel, Params
from marginax.nets import as_network, call_batched, is_weight, reinitialise


class AbstractTasks(AbstractModel):
    """A model whose examples are tasks, with a network for each; a task is some points of a function, as for `CNP`.

    Unknowns are a dict with "mean", the weights that tasks begin from, and "log_noise" where the noise is not known.

    Fields: `network`, with one output; `noise`, its standard deviation, None to learn it.
    """

    network: eqx.AbstractVar[eqx.Module]
    noise: eqx.AbstractVar[float | None]

    queries: ClassVar[type] = MetaQueries

    # ---- data

    def read(self, data: Any) -> Rows:
        """Tasks as arrays of one length, with a mask."""
        return data if isinstance(data, Rows) else Rows(as_tasks(data))

    def check(self, source: AbstractSource) -> None:
        tasks = as_tasks(source.examples(source.spec.num_examples))
        if tasks["y"].shape[2] != 1:
            raise ValueError(f"y of tasks must have one column, got {tasks['y'].shape[2]}")
        shape = jax.eval_shape(lambda x: self.outputs(self.weights_of_network, x), jnp.asarray(tasks["x"][0])).shape
        if shape != tasks["x"].shape[1:2]:
            raise ValueError(f"network must give one output for a point, got {shape} for {tasks['x'].shape[1]} points")

    # ---- unknowns

    @property
    def weights_of_network(self) -> PyTree:
        """The network's own."""
        return eqx.filter(self.network, is_weight(self.network))

    def init(self, source: AbstractSource) -> Params:
        noise = {} if self.noise is not None else {"log_noise": jnp.asarray(-1.0)}
        return {"mean": self.weights_of_network, **self.init_more(), **noise}

    @abc.abstractmethod
    def init_more(self) -> dict[str, Any]:
        """Where its other unknowns start."""

    def reinitialise(self, params: Params, *, key: PRNGKeyArray) -> Params:
        """Fresh weights in the middle."""
        return {**params, "mean": eqx.filter(reinitialise(self.network, key=key), is_weight(self.network))}

    def noise_of(self, params: Params) -> Float[Array, ""]:
        """Standard deviation of an observation."""
        real = jax.dtypes.canonicalize_dtype(float)
        return jnp.exp(params["log_noise"]) if self.noise is None else jnp.asarray(self.noise, real)

    def outputs(self, weights: PyTree, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Of the network with these weights."""
        return call_batched(eqx.nn.inference_mode(eqx.combine(weights, self.network)), x).reshape(-1)

    @abc.abstractmethod
    def adapted(
        self, params: Params, task: PyTree, x: Float[Array, "m d"]
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and variance of the function at inputs, given the points of a task."""

    @property
    def structure(self) -> list[list[Any]]:
        return [[str(i), list(np.shape(leaf))] for i, leaf in enumerate(jax.tree.leaves(self.weights_of_network))]


def check_tasks_model(network: Any, noise: Any, num_steps: Any) -> eqx.Module:
    """The network, if all is as it should be."""
    if noise is not None and not noise > 0:
        raise ValueError(f"noise must be > 0, or None to learn it, got {noise}")
    if isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1:
        raise ValueError(f"num_steps must be an int >= 1, got {num_steps!r}")
    return as_network(network)

"""What posteriors of models of tasks can be asked: adapt to a few points of a new task, then predict."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax.latent.neural_process.tasks import as_columns, as_pair
from marginax.latent.queries import AbstractQueries
from marginax.model.conjugate import posterior_draws
from marginax.model.normal_outputs import NormalOutputs
from marginax.posterior import AbstractPosterior
from marginax.predict import MAX_BYTES, RegressionPrediction
from marginax.predict.mixture import Mixture


@dataclass(frozen=True)
class MetaQueries(AbstractQueries):
    """Questions to a posterior of what tasks have in common."""

    def adapt(self, points: Any) -> "AdaptedNetwork":
        """The network for a new task, given a few of its points.

        Args:
            points: a pair (x, y), shapes (points,) or (points, columns); there may be none.
        """
        x, y = as_pair(points, name="points")
        if not len(x):
            x, y = np.zeros((0, x.shape[1])), np.zeros((0, 1))
        if y.shape[1] != 1:
            raise ValueError(f"y of points must have one column, got {y.shape[1]}")
        return AdaptedNetwork(self.posterior, x, y)


@dataclass(frozen=True)
class AdaptedNetwork:
    """A network that knows some points of a task.

    Attributes:
        posterior: of what tasks have in common.
        x: inputs of the points.
        y: outputs of the points.
    """

    posterior: AbstractPosterior
    x: Float[np.ndarray, "n dx"]
    y: Float[np.ndarray, "n dy"]

    def __repr__(self) -> str:
        return f"AdaptedNetwork(points={len(self.x)})"

    def predict(self, x: Any, *, max_bytes: int = MAX_BYTES) -> RegressionPrediction:
        """The distribution of the task's outputs at inputs x; the epistemic part is what its points leave open.

        Args:
            x: inputs, (n,) or (n, dx).
            max_bytes: memory for what is asked of the prediction.
        """
        at = as_columns(x, name="x")
        if not len(at):
            raise ValueError("x must have at least one input, got none")
        model: Any = self.posterior.model
        draws = jax.tree.map(jnp.asarray, posterior_draws(self.posterior))
        # a point that is masked: there may be no other
        rows, values = np.concatenate([self.x, at[:1]]), np.concatenate([self.y, np.zeros((1, 1))])
        real = jax.dtypes.canonicalize_dtype(float)
        mask = np.arange(len(rows)) < len(self.x)
        task = {"x": jnp.asarray(rows, real), "y": jnp.asarray(values, real), "mask": jnp.asarray(mask)}
        mean, variance, noise = (
            np.asarray(each, float) for each in _adapted(model, draws, task, jnp.asarray(at, real))
        )
        num = len(mean)
        with jax.enable_x64(True):
            law = NormalOutputs(
                mean[..., None], variance[..., None, None], np.broadcast_to(noise, mean.shape)[..., None]
            )
        law = jax.tree.map(np.asarray, law)
        mixture = Mixture(law, (True, True, True), np.full(num, -np.log(num)), len(at), max_bytes)
        return RegressionPrediction(mixture, y_shape=())


@eqx.filter_jit
def _adapted(model: Any, draws: PyTree, task: PyTree, x: Float[Array, "m d"]) -> tuple[Array, Array, Array]:
    def one(params: PyTree) -> tuple[Array, Array, Array]:
        mean, variance = model.adapted(params, task, x)
        return mean, variance, model.noise_of(params)[None]

    return jax.lax.map(one, draws)

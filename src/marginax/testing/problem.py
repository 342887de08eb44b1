"""What an exact problem is: a model, data, and the truth to compare with."""

import abc
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from marginax.model import Model, Params

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class ExactPrediction:
    """Exact moments of the target at some inputs, in the words of `mx.predict`.

    Args:
        mean: of the target.
        epistemic: variance of the conditional mean over the posterior.
        aleatoric: posterior mean of the conditional variance.
    """

    mean: Float[np.ndarray, " n"]
    epistemic: Float[np.ndarray, " n"]
    aleatoric: Float[np.ndarray, " n"]

    @property
    def variance(self) -> Float[np.ndarray, " n"]:
        """Total variance."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Float[np.ndarray, " n"]:
        """Total standard deviation."""
        return np.sqrt(self.variance)


@runtime_checkable
class HasModelAndData(Protocol):
    """Something to run a method on; nothing need be known about the answer."""

    @property
    def model(self) -> Model:
        """What is inferred."""
        ...

    @property
    def data(self) -> Any:
        """A pair (x, y)."""
        ...


class AbstractProblem(abc.ABC):
    """A model and data whose posterior is known. All truth is computed on first use, in float64 NumPy.

    Coordinates of the truth are the unconstrained parameters, raveled leaf by leaf: weights in the order of
    `model.leaves`, then the likelihood's unknowns.

    Attributes:
        name: for messages and the names of tests.
        model: what is inferred.
        x: inputs; single precision holds them exactly, so that the truth is that of what the model sees.
        y: targets, of which the same is true.
        x_new: inputs at which predictions are compared.
    """

    name: str
    model: Model
    x: Float[np.ndarray, "n ..."]
    y: Num[np.ndarray, " n"]
    x_new: Float[np.ndarray, "m ..."]

    # ---- the truth

    @abc.abstractmethod
    def log_joint(self, theta: Float[np.ndarray, "*s d"]) -> Float[np.ndarray, "*s"]:
        """Log prior plus log likelihood in the coordinates of the truth, written without the model."""

    @property
    @abc.abstractmethod
    def log_evidence(self) -> float:
        """Log marginal likelihood of the targets."""

    @abc.abstractmethod
    def predictive(self, x: Float[np.ndarray, "m ..."]) -> ExactPrediction:
        """Exact moments of targets at inputs x."""

    @property
    def mean(self) -> Float[np.ndarray, " d"]:
        """Posterior mean."""
        raise self._missing("mean")

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Posterior covariance."""
        raise self._missing("covariance")

    @property
    def mode(self) -> Float[np.ndarray, " d"]:
        """The maximum of `log_joint`."""
        raise self._missing("mode")

    def conditional_mean(self, output: Float[np.ndarray, "*s m k"]) -> Float[np.ndarray, "*s m"]:
        """Expected target given the network's outputs."""
        return output[..., 0]

    # ---- between parameters and coordinates

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets, as `mx.fit` takes them."""
        return self.x, self.y

    @cached_property
    def start(self) -> Params:
        """The model's own starting point."""
        return self.model.initial(self.model.output_size(self.x.shape[1:], jnp.asarray(self.x).dtype))

    @property
    def size(self) -> int:
        """How many parameters are random."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.start))

    def flatten(self, params: Params) -> Float[np.ndarray, "*s d"]:
        """Parameters, stacked along any leading axes, as rows of coordinates."""
        like, leaves = jax.tree.leaves(self.start), jax.tree.leaves(params)
        if len(like) != len(leaves):
            raise ValueError(f"params must be those of the model of {self.name}: it has {len(like)} leaves")
        num_axes = leaves[0].ndim - like[0].ndim
        rows = [np.asarray(leaf, np.float64).reshape(*leaf.shape[:num_axes], -1) for leaf in leaves]
        return np.concatenate(rows, axis=-1)

    def unflatten(self, theta: Float[np.ndarray, "*s d"]) -> Params:
        """The inverse of `flatten`."""
        leaves, treedef = jax.tree.flatten(self.start)
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = np.split(np.asarray(theta), ends, axis=-1)
        shaped: list[Array] = [
            jnp.asarray(part.reshape(*part.shape[:-1], *leaf.shape), leaf.dtype)
            for part, leaf in zip(parts, leaves, strict=True)
        ]
        return jax.tree.unflatten(treedef, shaped)

    def __repr__(self) -> str:
        return self.name

    def _missing(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{self.name} has no {what}: compare its predictions and its evidence")


def single(values: np.ndarray) -> Float[np.ndarray, "*shape"]:
    """Values that single precision holds exactly, as doubles."""
    return np.asarray(values, np.float32).astype(np.float64)


def log_normal(value: np.ndarray, loc: np.ndarray | float, scale: np.ndarray | float) -> np.ndarray:
    """Log density of a normal distribution, per element."""
    return np.asarray(-0.5 * ((value - loc) / scale) ** 2 - np.log(scale) - 0.5 * LOG_2PI)


def moments(
    theta: Float[np.ndarray, "k d"], weights: Float[np.ndarray, " k"]
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Mean and covariance of points with normalised weights."""
    mean = weights @ theta
    centred = theta - mean
    return mean, (weights[:, None] * centred).T @ centred

r"""What is believed of a function that was evaluated at some points: a Gaussian process, or a posterior over networks.

Both see points of the unit cube, stretched to have variance 1 there, and standardised values. A belief gives the joint
moments of the function at some points, which can be differentiated, and draws of the function at them.
"""

import abc
import contextlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from marginax.decide.refit import refit
from marginax.files import register
from marginax.infer import MAP, AbstractMethod, Adam, Constant, fit
from marginax.infer.catalogue import as_method
from marginax.model import GaussianProcess, Model
from marginax.model.abstract import Params
from marginax.model.gaussian_process import covariance_root, kernel
from marginax.predict.checks import check_count
from marginax.predict.functions import AbstractFunctions

_ROOM = 16  # rows are filled up to a multiple of it
_JITTER = 1e-5
_STRETCH = np.sqrt(12.0)  # of uniform points, to variance 1


class AbstractBelief(eqx.Module):
    """What is believed of the values of a function."""

    @abc.abstractmethod
    def joint(self, u: Float[Array, "m d"]) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
        """Mean and covariance of the function at points of the unit cube, without noise."""

    def draws(self, u: Float[Array, "m d"], num: int, *, key: PRNGKeyArray) -> Float[Array, "num m"]:
        """Functions drawn, at these points."""
        mean, covariance = self.joint(u)
        scale = _JITTER * jnp.maximum(jnp.max(jnp.diagonal(covariance)), _JITTER)
        values, vectors = jnp.linalg.eigh(covariance + scale * jnp.eye(len(u), dtype=mean.dtype))
        noise = jax.random.normal(key, (num, len(u)), mean.dtype)
        return mean + (noise * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T


class AbstractSurrogate(eqx.Module):
    """How to come to a belief about a function."""

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """In which to learn, and to ask what was learned."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def learn(
        self, u: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"], capacity: int, *, key: PRNGKeyArray
    ) -> AbstractBelief:
        """From standardised values at points of the unit cube; `capacity` is how many there will be."""


def stretched(u: Any) -> Any:
    """Points of the unit cube, as models see them."""
    return _STRETCH * (u - 0.5)


# ---- Gaussian processes


class ProcessBelief(AbstractBelief):
    """A Gaussian process given its kernel."""

    params: Params
    rows: Float[Array, "n d"]
    present: Bool[Array, " n"]
    weights: Float[Array, " n"]
    root: Float[Array, "n n"]

    def joint(self, u: Float[Array, "m d"]) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
        x = stretched(u)
        cross = kernel(self.params, x, self.rows) * self.present
        white = solve_triangular(self.root, cross.T, lower=True)
        return cross @ self.weights, kernel(self.params, x, x) - white.T @ white


@register("surrogate/gaussian_process")
class ProcessSurrogate(AbstractSurrogate):
    """A Gaussian process (`mx.GaussianProcess`) at the most probable numbers of its kernel.

    Args:
        method: how to find them: any `mx.infer.MAP(batch_size=None)`.
    """

    method: AbstractMethod = eqx.field(
        default_factory=lambda: MAP(num_epochs=100, batch_size=None, optimiser=Adam(0.1, schedule=Constant())),
        converter=as_method,
    )

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """float64: values without noise have covariances that float32 cannot factorise."""
        return jax.enable_x64(True)

    def learn(
        self, u: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"], capacity: int, *, key: PRNGKeyArray
    ) -> ProcessBelief:
        room = _ROOM * -(-max(capacity, len(u)) // _ROOM)
        rows, values = np.zeros((room, u.shape[1])), np.zeros(room)
        rows[: len(u)], values[: len(u)] = stretched(u), y
        process = GaussianProcess(rows, values, present=np.arange(room) < len(u))
        posterior = fit(process, None, self.method, key=key, progress=False)
        params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[0]), posterior.starting_points(1))
        return _conditioned(params, process)


@eqx.filter_jit
def _conditioned(params: Params, process: GaussianProcess) -> ProcessBelief:
    dtype = params["noise"].dtype
    rows, present = jnp.asarray(process.data.x, dtype), jnp.asarray(process.present)
    root = covariance_root(params, rows, present)
    values = jnp.asarray(process.data.y, dtype) * present
    weights = solve_triangular(root, solve_triangular(root, values, lower=True), lower=True, trans=1)
    return ProcessBelief(params, rows, present, weights, root)


# ---- networks


class NetworkBelief(AbstractBelief):
    """Functions drawn from a posterior, and their weights."""

    members: tuple[AbstractFunctions, ...]
    prepared: tuple[Any, ...]
    weights: Float[Array, " s"]

    def values(self, u: Float[Array, "m d"]) -> Float[Array, "s m"]:
        """Every function at these points."""
        x = stretched(u)
        parts = [
            jax.vmap(lambda draw, member=member: member.distribution(draw, x).mean[:, 0])(draws)
            for member, draws in zip(self.members, self.prepared, strict=True)
        ]
        return jnp.concatenate(parts)

    def joint(self, u: Float[Array, "m d"]) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
        values = self.values(u)
        mean = self.weights @ values
        away = values - mean
        return mean, (away * self.weights[:, None]).T @ away

    def draws(self, u: Float[Array, "m d"], num: int, *, key: PRNGKeyArray) -> Float[Array, "num m"]:
        picked = jax.random.categorical(key, jnp.log(self.weights), shape=(num,))
        return self.values(u)[picked]


@register("surrogate/network")
class NetworkSurrogate(AbstractSurrogate):
    """A posterior over networks, inferred anew at every ask.

    Args:
        model: a network with one output, a likelihood of numbers, and a prior.
        method: how to infer, from `mx.infer`; or its name.
        num_samples: functions that stand for the posterior; by default all draws, or 100 of a continuous one.
    """

    model: Model
    method: AbstractMethod = eqx.field(converter=as_method)
    num_samples: int | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        if not isinstance(self.model, Model):
            raise TypeError(f"model must be an mx.Model, got {self.model!r}")
        if not isinstance(self.method, AbstractMethod):
            raise TypeError(f"method must be an object such as mx.infer.DeepEnsemble(), got {self.method!r}")
        if self.num_samples is not None:
            check_count(self.num_samples, "num_samples")

    def learn(
        self, u: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"], capacity: int, *, key: PRNGKeyArray
    ) -> NetworkBelief:
        posterior = refit(self.model, (stretched(u), y), self.method, init=None, capacity=capacity, key=key)
        functions = posterior.functions(self.num_samples, key=posterior.prediction_key())
        weights = jnp.asarray(np.exp(functions.normalised_log_weights()))
        members = tuple(
            jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, member)
            for member in functions.members
        )
        return NetworkBelief(members, tuple(member.prepare(member.draws) for member in members), weights)

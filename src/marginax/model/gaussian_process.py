r"""Gaussian-process regression: the model whose functions are integrated out, so that few unknowns are left.

$f \sim GP(0, k)$ and $y = f(x) + \epsilon$, with $\epsilon \sim N(0, s^2)$ and

$k(x, x') = a^2 \exp\big(-\tfrac12 \sum_j r_j^2 (x_j - x'_j)^2 / \ell^2\big) + b^2\, x^\top x' / p + c^2$:

a smooth part with a relevance for every input (Rasmussen & Williams, 2006, section 5.1) and a linear one, which is all
that is left where the data say no more.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from marginax.data import AbstractSource, Arrays, Batch, as_arrays
from marginax.files import register
from marginax.model.abstract import AbstractModel, Params
from marginax.model.distributions import Normal
from marginax.model.normal_outputs import NormalOutputs

_SPREADS = {"amplitude": 1.0, "length": 1.0, "noise": 1.5, "offset": 1.0, "relevance": 0.7, "slope": 1.0}
_JITTER = 1e-6


@register("model/gaussian_process")
class GaussianProcess(AbstractModel):
    """A Gaussian process given all rows, whose unknowns are the logs of the kernel's numbers and of the noise.

    `mx.fit(mx.GaussianProcess(x, y), None, mx.infer.NUTS(), key=0)` averages over them. Inputs and targets are best
    standardised: pass `mx.data.standardise((x, y))` as one argument. The cost of a step grows with the cube of the
    number of rows.

    Args:
        x: inputs (n, p), or both as `Arrays`.
        y: targets (n,) or (n, d), which share a kernel.
        present: which rows count, all by default; the others fill up, so that processes of growing data share programs.

    >>> x = jnp.linspace(-2, 2, 20)[:, None]
    >>> process = GaussianProcess(x, jnp.sin(x[:, 0]))
    >>> y = process.predictive(process.init(None), jnp.array([[0.5], [50.0]]))
    >>> (jnp.abs(y.mean[0, 0] - jnp.sin(0.5)) < 0.1).item(), (y.epistemic_variance[1, 0] > 0.5).item()
    (True, True)
    """

    data: Arrays
    present: Bool[np.ndarray, " n"] | Bool[Array, " n"] | None = None

    def __init__(self, x: Any, y: Any = None, *, present: Any = None):
        """Check the rows."""
        self.data = as_arrays(x if y is None else (x, y))
        if self.data.x.ndim != 2:
            raise ValueError(f"x must have shape (n, inputs), got {self.data.x.shape}")
        self.present = None if present is None else np.asarray(present, bool)
        if self.present is not None and self.present.shape != (self.data.num_examples,):
            raise ValueError(f"present must have shape ({self.data.num_examples},), got {self.present.shape}")

    def init(self, source: AbstractSource | None) -> Params:
        """The medians of the prior."""
        return self._medians(jax.dtypes.canonicalize_dtype(float))

    def log_prior(self, params: Params) -> Float[Array, ""]:
        """Normal in the logs."""
        centre = self._medians(params["noise"].dtype)
        return sum(
            (jnp.sum(Normal(centre[name], spread).log_prob(params[name])) for name, spread in _SPREADS.items()),
            start=jnp.zeros((), params["noise"].dtype),
        )

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        """Log density of each row given those before it; their sum is the log marginal likelihood."""
        x, y = self._rows(batch.x, batch.y, params)
        root = covariance_root(params, x, self.present)
        away = solve_triangular(root, y, lower=True)
        each = jnp.sum(Normal(0.0, 1.0).log_prob(away) - jnp.log(jnp.diagonal(root))[:, None], axis=1)
        return each if self.present is None else jnp.where(self.present, each, 0.0)

    def predictive(self, params: Params, x: Float[Array, "m p"], *, key: PRNGKeyArray | None = None) -> NormalOutputs:
        """The distribution at inputs, given the rows."""
        rows, y = self._rows(self.data.x, self.data.y, params)
        root = covariance_root(params, rows, self.present)
        inverse = solve_triangular(root, jnp.eye(len(root), dtype=root.dtype), lower=True)
        if self.present is not None:  # rows that only fill up say nothing about others
            inverse = inverse * self.present
        return conditional(params, rows, inverse.T @ (inverse @ y), inverse, x)

    def check(self, source: AbstractSource) -> None:
        """All rows at once: each depends on the others."""
        if source.batch_size != self.data.num_examples:
            raise ValueError("mx.GaussianProcess needs all rows at every step: use a method with batch_size=None")

    def read(self, data: Any) -> Arrays:
        """The rows that it was made with."""
        if data is not None and data is not self.data:
            raise ValueError("data must be None for mx.GaussianProcess: it holds its rows")
        return self.data

    def _rows(self, x: Any, y: Any, params: Params) -> tuple[Array, Array]:
        dtype = params["noise"].dtype
        y = jnp.asarray(y, dtype).reshape(len(x), -1)
        return jnp.asarray(x, dtype), y if self.present is None else y * jnp.asarray(self.present)[:, None]

    def _medians(self, dtype: Any) -> Params:
        num = self.data.x.shape[1]
        centre = {"length": 0.5 * math.log(num) + 0.5, "noise": -1.5, "slope": -0.5, "offset": -1.0}
        logs = {name: jnp.asarray(centre.get(name, 0.0), dtype) for name in _SPREADS}
        return {**logs, "relevance": jnp.zeros(num, dtype)}

    @property
    def draw_name(self) -> str:
        return "kernel"

    @property
    def structure(self) -> list[list[Any]]:
        return [[name, list(value.shape)] for name, value in sorted(self.init(None).items())]


def kernel(params: Params, a: Float[Array, "n p"], b: Float[Array, "m p"]) -> Float[Array, "n m"]:
    """Covariance of the function's values at two sets of inputs."""
    relevance = jnp.exp(params["relevance"] - params["length"])
    left, right = a * relevance, b * relevance
    square = jnp.sum(left**2, 1)[:, None] + jnp.sum(right**2, 1) - 2.0 * left @ right.T
    smooth = jnp.exp(2.0 * params["amplitude"] - 0.5 * jnp.maximum(square, 0.0))
    return smooth + jnp.exp(2.0 * params["slope"]) / a.shape[1] * (a @ b.T) + jnp.exp(2.0 * params["offset"])


def covariance_root(
    params: Params, x: Float[Array, "n p"], present: Bool[Array, " n"] | Bool[np.ndarray, " n"] | None = None
) -> Float[Array, "n n"]:
    """Cholesky factor of the covariance of the targets; that of rows that are not present is one of the identity."""
    if present is None:
        return jnp.linalg.cholesky(_covariance(params, x))
    covariance = kernel(params, x, x)
    mask = jnp.asarray(present, covariance.dtype)
    mean = jnp.sum(mask * jnp.diagonal(covariance)) / jnp.sum(mask)
    noise = jnp.exp(2.0 * params["noise"]) + _JITTER * mean
    return jnp.linalg.cholesky(covariance * mask[:, None] * mask + jnp.diag(jnp.where(mask > 0, noise, 1.0)))


def _covariance(params: Params, x: Float[Array, "n p"]) -> Float[Array, "n n"]:
    """Of the targets."""
    covariance = kernel(params, x, x)
    noise = jnp.exp(2.0 * params["noise"]) + _JITTER * jnp.mean(jnp.diagonal(covariance))
    return covariance + noise * jnp.eye(len(x), dtype=covariance.dtype)


def log_evidence(
    params: Params, x: Float[Array, "n p"], y: Float[Array, "n d"] | Float[Array, " n"]
) -> Float[Array, ""]:
    """Log density of all targets: the sum of `log_likelihood`, whose slope takes a sixth of the time."""
    return _normal_log_density(_covariance(params, x), y.reshape(len(y), -1))


@jax.custom_vjp
def _normal_log_density(covariance: Float[Array, "n n"], y: Float[Array, "n d"]) -> Float[Array, ""]:
    return _with_inverse(covariance, y)[0]


def _with_inverse(covariance: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
    """The density; inverse covariance, and inverse covariance times targets."""
    root = jnp.linalg.cholesky(covariance)
    inverse = cho_solve((root, True), jnp.eye(len(y), dtype=root.dtype))
    weights = inverse @ y
    log_scale = jnp.sum(jnp.log(jnp.diagonal(root))) + 0.5 * len(y) * math.log(2.0 * math.pi)
    return -0.5 * jnp.sum(weights * y) - y.shape[1] * log_scale, (inverse, weights)


def _slopes(found: tuple[Array, Array], outer: Array) -> tuple[Array, Array]:
    """In closed form, where the derivative of a factor would need several more of its size."""
    inverse, weights = found
    return 0.5 * outer * (weights @ weights.T - weights.shape[1] * inverse), -outer * weights


_normal_log_density.defvjp(_with_inverse, _slopes)


def conditional(
    params: Params,
    rows: Float[Array, "n p"],
    weights: Float[Array, "n d"],
    root_inverse: Float[Array, "n n"],
    x: Float[Array, "m p"],
) -> NormalOutputs:
    """The distribution of targets at x given rows: `weights` is the inverse covariance times their targets."""
    cross = kernel(params, x, rows)
    own = jnp.exp(2.0 * params["amplitude"]) + jnp.exp(2.0 * params["offset"])
    own = own + jnp.exp(2.0 * params["slope"]) / x.shape[1] * jnp.sum(x**2, axis=1)
    variance = jnp.maximum(own - jnp.sum((cross @ root_inverse.T) ** 2, axis=1), 0.0)
    mean = cross @ weights
    covariance = variance[:, None, None] * jnp.eye(weights.shape[1], dtype=mean.dtype)
    return NormalOutputs(mean, covariance, jnp.broadcast_to(jnp.exp(params["noise"]), mean.shape))

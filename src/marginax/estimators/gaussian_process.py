"""A Gaussian process at the numbers of its kernel that the data make most probable, in double precision."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax._extras import require
from marginax.data import DataSpec
from marginax.files import register
from marginax.model.abstract import Params
from marginax.model.gaussian_process import GaussianProcess, conditional, covariance_root, log_evidence
from marginax.model.normal_outputs import NormalOutputs
from marginax.posterior import AbstractPosterior, FitRecord
from marginax.predict import AbstractFunctions

_MOST_STEPS = 60
_FARTHEST = 3.5  # from the medians of the prior, in logs: beyond, there may be no factor in double precision


@register("posterior/conditioned_process")
class ConditionedProcess(AbstractPosterior):
    """A Gaussian process given its rows, for one setting of its kernel.

    Factors of the covariance are computed once, in double precision, and used in single: the covariance of a smooth
    kernel with little noise has no factor in single precision.

    Args:
        model: the process.
        params: logs of the kernel's numbers.
        weights: inverse covariance of the targets times the targets.
        root_inverse: inverse of its Cholesky factor.
        spec: shapes and scaling of the data.
        record: the story of the fit.
        key: seed of predictions.
    """

    model: GaussianProcess
    params: Params
    weights: np.ndarray
    root_inverse: np.ndarray
    spec: DataSpec | None = None
    record: FitRecord = eqx.field(default_factory=FitRecord)
    key: PRNGKeyArray | None = None

    def functions(self, num: int | None = None, *, key: PRNGKeyArray) -> "ProcessFunctions":
        """All functions that it may be, as one normal distribution."""
        draw = {"params": self.params, "weights": self.weights, "root_inverse": self.root_inverse}
        return ProcessFunctions(self.model.data.x, jax.tree.map(lambda leaf: np.asarray(leaf)[None], draw))

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        return self.starting_points(num)

    def starting_points(self, num: int) -> Params:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.asarray(leaf), (num, *np.shape(leaf))), self.params)

    @property
    def is_point(self) -> bool:
        return False

    def describe(self) -> str:
        return f"a Gaussian process given {self.model.data.num_examples} rows"


class ProcessFunctions(AbstractFunctions):
    """Gaussian processes given rows, each as one normal distribution.

    Args:
        rows: inputs of the rows.
        draws: settings of the kernel, with their factors.
        log_weights: of the settings.
    """

    rows: Any
    draws: PyTree
    log_weights: np.ndarray | None = None

    def distribution(self, draw: PyTree, x: Array) -> NormalOutputs:
        return conditional(draw["params"], jnp.asarray(self.rows), draw["weights"], draw["root_inverse"], x)


def fit_gaussian_process(data: Any) -> ConditionedProcess:
    """Climb to the most probable numbers of the kernel, then condition on the rows.

    Factors of some hundred rows are computed by one thread: several wait for each other, on a busy machine ten times
    as long as they compute.

    Args:
        data: inputs and targets in standard units, as `Arrays`.
    """
    optimize = require("scipy.optimize")
    one_thread = require("threadpoolctl").threadpool_limits(1, user_api="blas")
    with one_thread, jax.enable_x64(True):
        model = GaussianProcess(data)
        start, unravel = ravel_pytree(model.init(None))
        rows = jnp.asarray(data.x, float), jnp.asarray(data.y, float)

        def loss(position: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = _loss(model, unravel(jnp.asarray(position)), *rows)
            return float(value), np.asarray(ravel_pytree(slope)[0])

        centre = np.asarray(start)
        bounds = list(zip(centre - _FARTHEST, centre + _FARTHEST, strict=True))
        options = {"maxiter": _MOST_STEPS}
        found = optimize.minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        params = unravel(jnp.asarray(found.x))
        weights, root_inverse = _factors(params, *rows)
    params, weights, root_inverse = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float32), (params, weights, root_inverse)
    )
    record = FitRecord(method="GaussianProcess by evidence", num_chains=1)
    return ConditionedProcess(model, params, weights, root_inverse, data.spec, record)


@eqx.filter_jit
def _loss(model: GaussianProcess, params: Params, x: Array, y: Array) -> tuple[Array, Params]:
    return jax.value_and_grad(lambda p: -(model.log_prior(p) + log_evidence(p, x, y)) / len(x))(params)


@eqx.filter_jit
def _factors(params: Params, x: Array, y: Array) -> tuple[Array, Array]:
    root = covariance_root(params, x)
    inverse = jax.scipy.linalg.solve_triangular(root, jnp.eye(len(root), dtype=root.dtype), lower=True)
    return inverse.T @ (inverse @ y.reshape(len(y), -1)), inverse

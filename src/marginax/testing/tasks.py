r"""Functions drawn from a Gaussian process, seen at random points with noise, and what is exactly true of them.

$y = f(x) + s \epsilon, \quad f \sim GP(0, k)$, with $k$ squared exponential, $\exp(-\tfrac12 (x - x')^2 / \ell^2)$, or
periodic, $\exp(-2 \sin^2(\pi (x - x') / p) / \ell^2)$.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from marginax._keys import Key

Kernel = Callable[[np.ndarray], np.ndarray]


def squared_exponential(length: float = 0.5) -> Kernel:
    """A kernel of differences.

    >>> round(float(squared_exponential(1.0)(np.array(1.0))), 4)
    0.6065
    """
    return lambda difference: np.exp(-0.5 * (difference / length) ** 2)


def periodic(period: float = 1.0, length: float = 1.0) -> Kernel:
    """A kernel of differences.

    >>> float(periodic(2.0)(np.array(4.0)).round(4))
    1.0
    """
    return lambda difference: np.exp(-2.0 * np.sin(np.pi * difference / period) ** 2 / length**2)


def gaussian_process_tasks(
    num_tasks: int,
    num_points: int,
    kernel: Kernel | None = None,
    *,
    noise: float = 0.1,
    low: float = -2.0,
    high: float = 2.0,
    key: Key,
) -> dict[str, np.ndarray]:
    """Tasks for neural processes, all with the same number of points at uniform inputs.

    Args:
        num_tasks: functions.
        num_points: of each.
        kernel: of differences of inputs; by default `squared_exponential()`.
        noise: standard deviation.
        low: end of the inputs.
        high: the other end.
        key: an int seed.

    >>> gaussian_process_tasks(3, 7, key=0)["y"].shape
    (3, 7, 1)
    """
    rng = np.random.default_rng(key)  # pyright: ignore[reportArgumentType]
    x = rng.uniform(low, high, size=(num_tasks, num_points))
    root = np.linalg.cholesky(_covariance(x, kernel, noise))
    y = np.einsum("bij,bj->bi", root, rng.normal(size=x.shape))
    return {"x": x[..., None], "y": y[..., None], "mask": np.ones(x.shape, bool)}


def gaussian_process_predictive(
    context: tuple[Any, Any], x: Any, kernel: Kernel | None = None, *, noise: float = 0.1
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Exact mean and standard deviation of new observations given a context.

    >>> mean, std = gaussian_process_predictive(([0.0], [1.0]), [0.0, 9.0], noise=0.1)
    >>> mean.round(2).tolist(), std.round(2).tolist()
    ([0.99, 0.0], [0.14, 1.0])
    """
    x_context, y_context, x = (np.asarray(a, np.float64).reshape(-1) for a in (*context, x))
    kernel = squared_exponential() if kernel is None else kernel
    cross = kernel(x[:, None] - x_context)
    gain = np.linalg.solve(_covariance(x_context[None], kernel, noise)[0], cross.T).T
    variance = kernel(np.zeros(len(x))) + noise**2 - np.sum(gain * cross, 1)
    return gain @ y_context, np.sqrt(variance)


def _covariance(x: np.ndarray, kernel: Kernel | None, noise: float) -> np.ndarray:
    kernel = squared_exponential() if kernel is None else kernel
    return kernel(x[:, :, None] - x[:, None]) + noise**2 * np.eye(x.shape[1])

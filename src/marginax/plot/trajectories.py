"""Leapfrog trajectories on a density in the plane: what Hamiltonian Monte Carlo does, for teaching."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax._keys import Key, as_key
from marginax.plot.chains import COLORS

_MOST_ENERGY = 1000.0  # a trajectory whose energy is off by more has diverged, as in NUTS


def plot_trajectories(
    ax: Any,
    log_density: Callable[[Array], Array],
    starts: Any,
    step_size: float | int,
    num_steps: int,
    *,
    momenta: Any = None,
    key: Key | None = None,
    extent: Sequence[float | int] | None = None,
    num_grid: int = 160,
) -> Any:
    """Contours of a density, and on them the leapfrog steps of a particle that rolls on its negative logarithm.

    Open circles are starts, arrows the momenta there, dots the steps, filled circles ends, a red cross the place where
    a trajectory diverged. Contours are where a normal density would have 1, 2, 3, ... standard deviations.

    Args:
        ax: matplotlib Axes, which are returned.
        log_density: of a point (2,), in JAX, up to a constant.
        starts: points of shape (n, 2), or one of shape (2,).
        step_size: of the leapfrog.
        num_steps: steps per trajectory.
        momenta: at the starts, same shape; by default drawn from the standard normal with `key`.
        key: seed of the momenta, needed where they are not given.
        extent: (left, right, bottom, top) of the picture; by default it holds all trajectories.
        num_grid: points per axis for the contours.
    """
    starts = np.atleast_2d(np.asarray(starts, float))
    if starts.ndim != 2 or starts.shape[1] != 2:
        raise ValueError(f"starts must have shape (n, 2) or (2,), got {starts.shape}")
    if momenta is None and key is None:
        raise ValueError("momenta or key must be given: trajectories start with a momentum")
    if momenta is None and key is not None:
        momenta = jax.random.normal(as_key(key), starts.shape)
    momenta = np.atleast_2d(np.asarray(momenta, float))
    if momenta.shape != starts.shape:
        raise ValueError(f"momenta must have the shape of starts, {starts.shape}, got {momenta.shape}")
    if not step_size > 0 or num_steps < 1:
        raise ValueError(f"step_size must be > 0 and num_steps >= 1, got {step_size} and {num_steps}")
    if extent is not None and not (len(extent) == 4 and extent[0] < extent[1] and extent[2] < extent[3]):
        raise ValueError(f"extent must be (left, right, bottom, top), got {extent}")
    run = jax.jit(jax.vmap(lambda q, p: leapfrog(log_density, q, p, step_size, num_steps)))
    positions, _, errors = (np.asarray(part) for part in run(jnp.asarray(starts), jnp.asarray(momenta)))
    wrong = ~(np.abs(errors) < _MOST_ENERGY)
    diverged = [bool(bad.any()) for bad in wrong]
    paths = [path[: bad.argmax() + 1 if bad.any() else None] for path, bad in zip(positions, wrong, strict=True)]
    if extent is None:
        extent = _extent(starts, [path[:-1] if bad else path for path, bad in zip(paths, diverged, strict=True)])
    _draw_contours(ax, log_density, extent, num_grid)
    length = 0.2 * min(extent[1] - extent[0], extent[3] - extent[2]) / max(np.linalg.norm(momenta, axis=1).max(), 1e-9)
    for i, (path, bad) in enumerate(zip(paths, diverged, strict=True)):
        color = COLORS[i % 8]
        shown = path[np.isfinite(path).all(axis=1)]
        ax.plot(*shown.T, "-o", color=color, lw=1.2, ms=2.5, zorder=3)
        tip = starts[i] + length * momenta[i]
        ax.annotate("", tip, starts[i], arrowprops={"arrowstyle": "-|>", "color": "black", "lw": 1.0}, zorder=4)
        ax.plot(*starts[i], "o", color="white", mec=color, mew=1.6, ms=7, zorder=5)
        if bad:
            inside = shown[_inside(shown, extent)]
            place = inside[-1] if len(inside) else starts[i]
            ax.plot(*place, "X", color="#C00000", mec="white", ms=10, zorder=6)
        else:
            ax.plot(*shown[-1], "o", color=color, mec="white", mew=0.8, ms=8, zorder=5)
    ax.set(xlim=extent[:2], ylim=extent[2:])
    ax.set_aspect("equal")
    return ax


def leapfrog(
    log_density: Callable[[Array], Array], start: Array, momentum: Array, step_size: float | int, num_steps: int
) -> tuple[Float[Array, "point d"], Float[Array, "point d"], Float[Array, " point"]]:
    """Positions, momenta and energy errors along a trajectory with unit masses, the start included.

    >>> path, _, error = leapfrog(lambda q: -0.5 * q @ q, jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]), 0.1, 63)
    >>> path.shape, bool(jnp.abs(path[-1] - path[0]).max() < 0.02), bool(jnp.abs(error).max() < 0.01)
    ((64, 2), True, True)
    """
    gradient = jax.grad(log_density)

    def step(at: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        q, p = at
        p = p + 0.5 * step_size * gradient(q)
        q = q + step_size * p
        p = p + 0.5 * step_size * gradient(q)
        return (q, p), (q, p)

    _, (positions, momenta) = jax.lax.scan(step, (start, momentum), None, length=num_steps)
    positions, momenta = jnp.concatenate([start[None], positions]), jnp.concatenate([momentum[None], momenta])
    energy = 0.5 * jnp.sum(momenta**2, axis=1) - jax.vmap(log_density)(positions)
    return positions, momenta, energy - energy[0]


def _extent(starts: np.ndarray, paths: list[np.ndarray]) -> tuple[float, float, float, float]:
    """A box around all points, with a margin."""
    points = np.concatenate([starts, *paths])
    points = points[np.isfinite(points).all(axis=1)]
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.25 * float((high - low).max()) or 1.0
    return float(low[0] - margin), float(high[0] + margin), float(low[1] - margin), float(high[1] + margin)


def _inside(points: np.ndarray, extent: Sequence[float | int]) -> np.ndarray:
    left, right, bottom, top = extent
    return (points[:, 0] > left) & (points[:, 0] < right) & (points[:, 1] > bottom) & (points[:, 1] < top)


def _draw_contours(ax: Any, log_density: Callable, extent: Sequence[float | int], num_grid: int) -> None:
    x, y = np.linspace(extent[0], extent[1], num_grid), np.linspace(extent[2], extent[3], num_grid)
    points = np.stack(np.meshgrid(x, y), axis=-1)
    heights = np.asarray(jax.jit(jax.vmap(jax.vmap(log_density)))(jnp.asarray(points)))
    heights = np.where(np.isfinite(heights), heights, -np.inf)
    levels = heights.max() - 0.5 * np.arange(6, 0, -1) ** 2
    floor = np.maximum(heights, levels[0] - 1.0)  # contours of minus infinity would leave holes
    shades = [str(shade) for shade in np.linspace(0.97, 0.82, len(levels))]
    ax.contourf(x, y, floor, [*levels, np.inf], colors=shades, zorder=0)
    ax.contour(x, y, floor, levels, colors="0.6", linewidths=0.7, linestyles="solid", zorder=1)

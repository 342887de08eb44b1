"""Samplers on a banana and on two modes: who gets how far for the same number of gradients.

Both densities have moments in closed form, so that every sampler is checked as well as timed. Steps are counted, not
seconds: of Metropolis-Hastings evaluations of the density, of MCLMC two gradients a step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

SETTINGS = {"small": {"num_samples": 1000, "num_chains": 4}, "full": {"num_samples": 20_000, "num_chains": 4}}
_BEND, _WIDTH = 0.25, 2.0  # of the banana
_APART, _SHARE = 3.0, 0.7  # of the modes from the origin, and of the right one
_BATCHES = 20  # of a chain, for standard errors
_PATH, _CLOUD = 60, 600  # draws of the picture: the first of a chain, in order, and of all chains
_STUCK = 99.0  # R-hat of chains that do not move


class _Target(NamedTuple):
    log_prob: Callable[[jax.Array], jax.Array]
    quantities: Callable[[np.ndarray], np.ndarray]
    truth: tuple[float, ...]
    extent: tuple[float, float, float, float]


def _banana(z: jax.Array) -> jax.Array:
    """The first coordinate is normal, the second normal around a parabola of the first."""
    return -0.5 * (z[0] / _WIDTH) ** 2 - 0.5 * (z[1] - _BEND * (z[0] ** 2 - _WIDTH**2)) ** 2


def _two_modes(z: jax.Array) -> jax.Array:
    centres, shares = jnp.array([-_APART, _APART]), jnp.array([1 - _SHARE, _SHARE])
    return jax.nn.logsumexp(jnp.log(shares) - 0.5 * (z[0] - centres) ** 2) - 0.5 * z[1] ** 2


_TARGETS = {
    "banana": _Target(
        _banana,
        lambda z: np.stack([z[..., 0], z[..., 1], z[..., 0] ** 2, z[..., 1] ** 2], -1),
        (0.0, 0.0, _WIDTH**2, 1.0 + 2.0 * _BEND**2 * _WIDTH**4),
        (-7, 7, -5, 10),
    ),
    "two modes": _Target(
        _two_modes,
        lambda z: np.stack([z[..., 0] > 0, z[..., 1], z[..., 0] ** 2], -1).astype(float),
        (_SHARE + (1 - 2 * _SHARE) * 0.0013498980316301, 0.0, 1.0 + _APART**2),  # a tail beyond three sigmas
        (-6.5, 6.5, -4, 4),
    ),
}


def _samplers(num: int) -> dict[str, tuple[Any, Callable[[Any], float]]]:
    """Each with how many gradients (or densities) a posterior of it took, after warming up."""

    def leapfrogs(posterior: Any) -> float:
        return float(posterior.record.info["sample"]["num_leapfrog"].sum())

    def steps(per_step: int) -> Callable[[Any], float]:
        return lambda posterior: float(per_step * posterior.record.num_steps["sample"] * posterior.record.num_chains)

    infer = mx.infer
    return {
        "Metropolis-Hastings": (infer.MetropolisHastings(2000, num, thin=10), steps(1)),
        "MALA": (infer.MALA(2000, num, thin=5), leapfrogs),
        "HMC": (infer.HMC(500, num), leapfrogs),
        "NUTS": (infer.NUTS(500, num), leapfrogs),
        "MCLMC": (infer.MCLMC(4000, num, thin=5), steps(2)),
    }


def _judged(posterior: Any, target: _Target, num_gradients: float) -> dict[str, Any]:
    """The fewest effective draws among the quantities and their tails, their worst error, and R-hat."""
    values = target.quantities(np.asarray(posterior.params, np.float64))
    found = mx.evaluate.measure_convergence(values)
    num_chains, num_draws, num = values.shape
    kept = values[:, : num_draws - num_draws % _BATCHES]
    batches = kept.reshape(num_chains * _BATCHES, -1, num).mean(1)  # means of squares have tails that ranks do not see
    error = np.maximum(batches.std(0, ddof=1) / np.sqrt(len(batches)), 1e-9)
    return {
        "ess": float(np.nan_to_num([found.bulk_ess, found.tail_ess], nan=1.0).min()),  # of what never changes, one
        "gradients": num_gradients,
        "r_hat": float(np.nan_to_num(found.r_hat, nan=_STUCK, posinf=_STUCK).max()),
        "z": float(np.max(np.abs(values.mean((0, 1)) - target.truth) / error)),
        "first": [float(values[..., 0].mean()), float(error[0])],
    }


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Every sampler on both."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    rows, curves, shown, total = [], {}, {}, settings["num_chains"] * settings["num_samples"]
    for where, target in _TARGETS.items():
        for name, (method, count) in _samplers(settings["num_samples"]).items():
            model = mx.Density(target.log_prob, jnp.array([0.5, 0.0]))
            label = f"{name}, {where}"

            def walk(
                model: Any = model, method: Any = method, target: Any = target, count: Any = count
            ) -> dict[str, Any]:
                posterior = mx.fit(model, None, method, num_chains=settings["num_chains"], key=0, progress=False)
                draws = np.asarray(posterior.params, np.float64)
                cloud = draws.reshape(-1, 2)[:: max(1, total // _CLOUD)]
                seen = {"path": draws[0, :_PATH].tolist(), "cloud": cloud.tolist()}
                return _judged(posterior, target, count(posterior)) | {"seconds": bench.seconds(posterior)} | seen

            found = bench.measure(label, walk)
            seconds = found["seconds"]
            shown[label] = {part: np.array(found[part]) for part in ("path", "cloud")}
            curves[label] = {part: value for part, value in found.items() if part not in shown[label]}
            per = 1000 * found["ess"] / found["gradients"]
            rows.append(
                Row(f"{label}: effective draws per 1,000 gradients", per, lower_is_better=False, seconds=seconds)
            )
            rows.append(Row(f"{label}: worst error, in standard errors", found["z"], seconds=seconds))
            if where == "two modes":
                share, error = found["first"]
                rows.append(Row(f"{label}: share at the right, {_SHARE:g} is true", share, error, seconds=seconds))
    remarks = [
        f"{settings['num_chains']} chains of {settings['num_samples']} draws, all from one place, after the warm-up, "
        "whose steps are not counted.",
        "Effective draws are the fewest, in bulk and tails, among both coordinates and their squares (two modes: among "
        f"the share at the right, the other coordinate, and a square). Standard errors are of means of {_BATCHES} "
        "parts of each chain; where chains stay in one mode for long, errors may be larger than these say.",
        "MCLMC is not adjusted: its error holds a bias that its energy error bounds.",
    ]
    return rows, remarks, curves, _picture(drawing, shown)


def _picture(drawing: Any, shown: dict[str, dict[str, np.ndarray]]) -> Any:
    """The first draws of a chain, in order, on contours of the density."""
    names = list(_samplers(1))
    figure = drawing.Figure(figsize=(2.5 * len(names), 5.2), layout="constrained")
    axes = figure.subplots(len(_TARGETS), len(names), squeeze=False)
    for row, (where, target) in zip(axes, _TARGETS.items(), strict=True):
        left, right, bottom, top = target.extent
        grid = np.meshgrid(np.linspace(left, right, 160), np.linspace(bottom, top, 160))
        heights = jax.vmap(target.log_prob)(jnp.stack([each.ravel() for each in grid], -1)).reshape(grid[0].shape)
        for ax, name in zip(row, names, strict=True):
            draws = shown[f"{name}, {where}"]
            ax.contour(
                *grid, np.asarray(heights - heights.max()), levels=[-8, -4.5, -2, -0.5], colors="0.6", linewidths=0.8
            )
            ax.plot(*draws["cloud"].T, ".", ms=1, color="C0", alpha=0.5)
            ax.plot(*draws["path"].T, "o-", ms=2, lw=0.6, color="C3")
            ax.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[])
            ax.set_title(f"{name}", fontsize=9)
        row[0].set_ylabel(where)
    return figure


_LESSON = (
    "A sampler is a walk, and how well it walks depends on the ground: what is quick on one density is stuck "
    "on another."
)
EXPERIMENT = Experiment("mcmc-zoo", "Samplers on a banana and on two modes", SETTINGS, run, _LESSON)

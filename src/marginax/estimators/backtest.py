"""Rolling origins: how forecasts from several places in the past fared, beside two simple ways to forecast."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from sklearn.base import clone

from marginax.estimators.estimator import as_seed
from marginax.estimators.forecast import Forecast
from marginax.estimators.forecaster import BayesianForecaster, as_columns, as_series
from marginax.estimators.series import Units, Windows, dates_of, following
from marginax.model.distributions import Normal

SCORES = ("crps", "nll", "coverage", "rmse")
LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class Backtest:
    """Scores by way to forecast: `scores["crps"]["forecaster"]` has axes of origins (of all series) and of steps.

    Attributes:
        scores: CRPS and NLL (less is better), whether the 90% interval covers, and squared errors as "rmse".
        forecasts: of each origin, of each series.
        origins: number of known steps at each.
    """

    scores: dict[str, dict[str, Float[np.ndarray, "origins horizon"]]]
    forecasts: tuple[tuple[Forecast, ...], ...]
    origins: tuple[int, ...]

    def mean(self, score: str, way: str = "forecaster") -> float:
        """Over origins and steps; the root of the mean square for "rmse"."""
        value = float(np.nanmean(self.scores[score][way]))
        return float(np.sqrt(value)) if score == "rmse" else value

    def error(self, score: str, way: str = "forecaster") -> float:
        """Standard error of the mean over origins, whose steps belong together; NaN for one origin."""
        each = np.nanmean(self.scores[score][way], axis=1)
        if len(each) < 2:
            return float("nan")
        found = each.std(ddof=1) / np.sqrt(len(each))
        return float(found / (2 * self.mean(score, way)) if score == "rmse" else found)

    def __str__(self) -> str:
        lines = [f"{'':21}" + "".join(f"{name:>16}" for name in SCORES)]
        for way in self.scores[SCORES[0]]:
            cells = [f"{self.mean(name, way):.3g} ± {self.error(name, way):.2g}" for name in SCORES]
            lines.append(f"{way:21}" + "".join(f"{cell:>16}" for cell in cells))
        return "\n".join(lines)


def backtest(
    forecaster: BayesianForecaster, y: Any, x: Any, *, horizon: int, num_origins: int, step: int | None, refit: bool
) -> Backtest:
    """See `BayesianForecaster.backtest`."""
    series, several = as_series(y)
    given = list(y) if several else [y]
    columns = as_columns(x, series, several)
    step = horizon if step is None else step
    if min(horizon, num_origins, step) < 1:
        raise ValueError(f"horizon, num_origins and step must be >= 1, got {horizon}, {num_origins} and {step}")
    back = [horizon + j * step for j in reversed(range(num_origins))]
    found: dict[str, dict[str, list[np.ndarray]]] = {name: {} for name in SCORES}
    fitted: Any = None
    forecasts, origins = [], []
    for number, each in enumerate(back):
        cuts = [len(values) - each for values in series]
        past = [first(whole, cut) for whole, cut in zip(given, cuts, strict=True)]
        if fitted is None or refit:
            before = [None if c is None else c[:cut] for c, cut in zip(columns, cuts, strict=True)]
            fitted = clone(forecaster)
            fitted.fit(past if several else past[0], None if x is None else (before if several else before[0]))
        whole = [None if c is None else c[: cut + horizon] for c, cut in zip(columns, cuts, strict=True)]
        known = None if x is None else (whole if several else whole[0])
        seed = as_seed(forecaster.random_state) + number
        ours = fitted.predict(horizon, known, y=past if several else past[0], random_state=seed)
        forecasts.append(tuple(ours) if several else (ours,))
        origins.append(cuts[0])
        for i, cut in enumerate(cuts):
            actual, rng = series[i][cut : cut + horizon], np.random.default_rng([seed, i])
            ways = {"forecaster": forecasts[-1][i]}
            ways["seasonal naive" if forecaster.season else "naive"] = naive(
                series[i][:cut], forecaster.season or 1, horizon, rng, forecaster.num_paths
            )
            ways["linear autoregression"] = linear(fitted, i, series[i][:cut], given[i], whole[i], horizon, rng)
            for way, forecast in ways.items():
                for name, values in _scores(forecast, actual).items():
                    found[name].setdefault(way, []).append(values)
    scores = {name: {way: np.stack(rows) for way, rows in each.items()} for name, each in found.items()}
    return Backtest(scores, tuple(forecasts), tuple(origins))


def first(y: Any, num: int) -> Any:
    """The first steps, by place, with their dates."""
    return y.iloc[:num] if hasattr(y, "iloc") else y[:num]


def _scores(forecast: Forecast, actual: np.ndarray) -> dict[str, np.ndarray]:
    lower, upper = forecast.interval(LEVEL)
    covers = np.where(np.isnan(actual), np.nan, (lower <= actual) & (actual <= upper))
    return {
        "crps": forecast.crps(actual),
        "nll": -forecast.log_prob(actual),
        "coverage": covers,
        "rmse": np.square(forecast.mean - actual),
    }


def naive(y: np.ndarray, season: int, horizon: int, rng: np.random.Generator, num_paths: int) -> Forecast:
    """The last value of the same season, with the noise of its changes: as many as seasons have passed."""
    changes = y[season:] - y[:-season]
    scale = float(np.sqrt(np.nanmean(np.square(changes)))) or 1e-12
    z = scale * rng.normal(size=(num_paths, horizon))
    paths, offsets = Units(season, 0.0, 1.0).offsets(y, z)
    shape = (num_paths, horizon, 1)
    return Forecast(paths, Normal(jnp.zeros(shape), jnp.full(shape, scale)), offsets, 1.0)


def linear(
    fitted: BayesianForecaster, i: int, y: np.ndarray, given: Any, columns: Any, horizon: int, rng: np.random.Generator
) -> Forecast:
    """Least squares on the same lags, differences and known columns; its weights and noise are taken as known."""
    windows = Windows(fitted.windows_.lags, False, False)
    units, num = fitted.units_[i], len(y)
    dates = dates_of(given)
    dates = None if dates is None else dates[:num].append(following(dates[:num], horizon))
    known = fitted.known_.columns(columns, dates, 0, num + horizon)
    z = units.to_model(y)
    start = units.lag
    inputs, targets = windows.rows(z[start:], known[start:num])
    design = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    weights, *_ = np.linalg.lstsq(design, targets[:, 0], rcond=None)
    free = max(len(design) - np.linalg.matrix_rank(design), 1)
    scale = float(np.sqrt(np.sum(np.square(targets[:, 0] - design @ weights)) / free)) or 1e-12
    places = windows.length - np.array(windows.lags)
    window = np.tile(np.nan_to_num(z[-windows.length :]), (fitted.num_paths, 1))
    locs, values = (np.zeros((fitted.num_paths, horizon)) for _ in range(2))
    for k in range(horizon):
        row = np.concatenate(
            [window[:, places], np.tile(np.append(known[num + k], 1.0), (fitted.num_paths, 1))], axis=1
        )
        locs[:, k] = row @ weights
        values[:, k] = locs[:, k] + scale * rng.normal(size=fitted.num_paths)
        window = np.concatenate([window[:, 1:], values[:, k : k + 1]], axis=1)
    paths, offsets = units.offsets(y, values)
    loc = jnp.asarray(locs[..., None])
    return Forecast(paths, Normal(loc, jnp.full(loc.shape, scale)), offsets, units.factor)

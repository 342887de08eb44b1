"""Time series as a network sees them: differences in standard units, windows of what came before, and what is known."""

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax._extras import require
from marginax.estimators.calendar import cycles_of, encode_cycles
from marginax.files import register

_HARMONICS = 2
_DAY = np.timedelta64(1, "D")


@register("series/units")
class Units(eqx.Module):
    """How a series becomes what is modelled: its differences over `lag` steps (0: none), standardised."""

    lag: int
    shift: float
    factor: float

    @classmethod
    def of(cls, y: Float[np.ndarray, " n"], lag: int, standardise: bool) -> "Units":
        """Mean and deviation of the differences that are known."""
        z = _difference(y, lag)
        z = z[np.isfinite(z)]
        if not standardise:
            return cls(lag, 0.0, 1.0)
        if not z.size:
            raise ValueError("y has no two values that are the lag of difference= apart")
        return cls(lag, float(z.mean()), _factor(z.std(), np.abs(y[np.isfinite(y)]).max()))

    def to_model(self, y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """What is modelled; NaN where it is not known."""
        return (_difference(y, self.lag) - self.shift) / self.factor

    def offsets(
        self, y: Float[np.ndarray, " n"], z: Float[np.ndarray, "paths h"]
    ) -> tuple[Float[np.ndarray, "paths h"], Float[np.ndarray, "paths h"]]:
        """Paths in the user's units, and what is added there to factor * z at each step."""
        ys = np.zeros(z.shape)
        offsets = np.full(z.shape, self.shift)
        before = np.tile(_last_known(y, self.lag, self.shift), (len(z), 1)) if self.lag else np.zeros((len(z), 0))
        for k in range(z.shape[1]):
            if self.lag:
                offsets[:, k] += before[:, k] if k < self.lag else ys[:, k - self.lag]
            ys[:, k] = offsets[:, k] + self.factor * z[:, k]
        return ys, offsets


@register("series/windows")
class Windows(eqx.Module):
    """What a network is shown of the past.

    Attributes:
        lags: steps back that it sees.
        as_sequence: whether it reads the window step by step (all lags up to the longest), or sees the lags at once.
        masks: whether it is told which values are missing.
        num_ahead: steps whose known columns it sees; more than one for several steps at once.
    """

    lags: tuple[int, ...]
    as_sequence: bool
    masks: bool
    num_ahead: int = 1

    @property
    def length(self) -> int:
        """Steps of a window."""
        return max(self.lags)

    def shape(self, num_known: int) -> tuple[int, ...]:
        """Of the inputs."""
        width = 1 + self.masks
        if self.as_sequence:
            return (self.length, width + num_known)
        return (len(self.lags) * width + num_known * self.num_ahead,)

    def inputs(self, z: Float[Array, " length"], known: Float[Array, "rows columns"]) -> Float[Array, "*shape"]:
        """Of one step: the window before it, the latest value last, and columns known up to it (and ahead)."""
        missing = jnp.isnan(z)
        values = jnp.where(missing, 0.0, z)
        seen = [values, missing.astype(values.dtype)] if self.masks else [values]
        if self.as_sequence:
            return jnp.concatenate([jnp.stack(seen, axis=1), known[: self.length]], axis=1)
        places = self.length - jnp.array(self.lags)
        return jnp.concatenate([*(part[places] for part in seen), known[self.length - 1 :].reshape(-1)])

    def rows(
        self, z: Float[np.ndarray, " n"], known: Float[np.ndarray, "n columns"]
    ) -> tuple[Float[np.ndarray, "rows ..."], Float[np.ndarray, "rows ahead"]]:
        """Inputs and targets of all steps of a series whose targets are known and some of whose past is."""
        length, ahead = self.length, self.num_ahead
        inputs, targets = [], []
        for t in range(length, len(z) - ahead + 1):
            window, target = z[t - length : t], z[t : t + ahead]
            if np.isfinite(target).all() and np.isfinite(window[length - np.array(self.lags)]).any():
                inputs.append(self._row(window, known[t - length + 1 : t + ahead]))
                targets.append(target)
        if not inputs:
            return np.zeros((0, *self.shape(known.shape[1]))), np.zeros((0, ahead))
        return np.stack(inputs), np.stack(targets)

    def _row(self, z: np.ndarray, known: np.ndarray) -> np.ndarray:
        """As `inputs`, by NumPy: many small arrays."""
        missing = np.isnan(z)
        values = np.where(missing, 0.0, z)
        seen = [values, missing.astype(float)] if self.masks else [values]
        if self.as_sequence:
            return np.concatenate([np.stack(seen, axis=1), known[: self.length]], axis=1)
        places = self.length - np.array(self.lags)
        return np.concatenate([*(part[places] for part in seen), known[self.length - 1 :].reshape(-1)])


@register("series/known")
class Known(eqx.Module):
    """Columns that are known in advance: the user's, the calendar and waves of a season.

    Attributes:
        num_columns: of the user.
        shift, factor: of them.
        cycles: of the calendar, where series have dates.
        season: steps after which things repeat, or None.
    """

    num_columns: int
    shift: np.ndarray
    factor: np.ndarray
    cycles: tuple[str, ...]
    season: int | None

    @classmethod
    def of(cls, xs: Sequence[np.ndarray | None], dates: Sequence[Any], season: int | None) -> "Known":
        """Units of the user's columns, and the cycles that dates go through."""
        given = [x for x in xs if x is not None]
        if given and (len(given) < len(xs) or len({x.shape[1] for x in given}) > 1):
            raise ValueError("x must have the same columns for every series")
        num = given[0].shape[1] if given else 0
        whole = np.concatenate(given) if given else np.zeros((1, 0))
        days = [_days(each) for each in dates if each is not None]
        cycles = cycles_of(np.concatenate(days)) if len(days) == len(dates) else ()
        size = np.abs(whole).max(axis=0, initial=0.0)
        factor = np.array([_factor(*each) for each in zip(whole.std(axis=0), size, strict=True)])
        return cls(num, whole.mean(axis=0), factor, cycles, season)

    def columns(self, x: np.ndarray | None, dates: Any, start: int, num: int) -> Float[np.ndarray, "num columns"]:
        """Of `num` steps from place `start` of the series."""
        parts = [] if x is None else [(x - self.shift) / self.factor]
        if self.cycles:
            parts.append(encode_cycles(_days(dates), self.cycles))
        if self.season is not None:
            turns = 2 * np.pi * np.arange(start, start + num)[:, None] * np.arange(1, _HARMONICS + 1) / self.season
            parts += [np.sin(turns), np.cos(turns)]
        return np.concatenate(parts, axis=1) if parts else np.zeros((num, 0))


@register("series/dates")
class Dates(eqx.Module):
    """The dates of a series, as it is stored.

    Attributes:
        nanoseconds: since 1970, in UTC.
        frequency: as pandas writes it, where the index has one.
        zone: of time, where the index has one.
    """

    nanoseconds: np.ndarray
    frequency: str | None
    zone: str | None

    @classmethod
    def of(cls, index: Any) -> "Dates | None":
        """Those of a DatetimeIndex; None if there is none."""
        if index is None:
            return None
        zone = None if index.tz is None else str(index.tz)
        if zone is not None:
            try:
                index.tz_convert(zone)
            except Exception as error:  # of pandas, zoneinfo or dateutil
                raise ValueError(
                    f"y has dates in a zone that has no name to be read again, {zone!r}: {error}"
                ) from None
        return cls(index.to_numpy("datetime64[ns]").astype(np.int64), index.freqstr, zone)

    def index(self) -> Any:
        """The DatetimeIndex again."""
        found = require("pandas").DatetimeIndex(self.nanoseconds.astype("datetime64[ns]"))
        found = found if self.zone is None else found.tz_localize("UTC").tz_convert(self.zone)
        with contextlib.suppress(ValueError):  # holidays of one's own have no name that says them
            found.freq = self.frequency
        return found


def split_series(table: Any, *, target: str, series: str | None = None, time: str | None = None) -> tuple[Any, Any]:
    """A long table as what `BayesianForecaster.fit` takes: series in order of time, and columns known in advance.

    Args:
        table: a DataFrame with a row for each step of each series.
        target: the column to forecast.
        series: the column that says which series a row belongs to; None if there is one only.
        time: the column of dates or numbers to sort by; dates become the index of the series.

    Returns:
        A list of series, and a list of tables of the other columns, or None if there are none.
    """
    names = [name for name in (target, series, time) if name is not None]
    if missing := [name for name in names if name not in table.columns]:
        raise ValueError(f"table has no column {missing[0]!r}, only {', '.join(map(str, table.columns))}")
    groups = [table] if series is None else [group for _, group in table.groupby(series, sort=True)]
    others = [name for name in table.columns if name not in names]
    ys, xs = [], []
    for each in groups:
        group = each if time is None else each.sort_values(time)
        if time is not None and require("pandas.api.types").is_datetime64_any_dtype(group[time].dtype):
            group = group.set_index(time)
        ys.append(group[target])
        xs.append(group[others])
    return ys, xs if others else None


def dates_of(y: Any) -> Any:
    """The dates of a pandas Series, if its index has any."""
    index = getattr(y, "index", None)
    return index if type(index).__name__ == "DatetimeIndex" else None


def following(dates: Any, num: int) -> Any:
    """The next dates: at the frequency of the index, or at its usual step."""
    if dates is None:
        return None
    pd = require("pandas")
    frequency = dates.freq
    if frequency is None and len(dates) > 2:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas is about to give another type, which is taken as well
            frequency = pd.infer_freq(dates[-50:])
    if frequency is not None:
        return pd.date_range(dates[-1], periods=num + 1, freq=frequency)[1:]
    step = np.median(np.diff(dates.to_numpy("datetime64[ns]")))
    return pd.DatetimeIndex(dates[-1] + pd.to_timedelta(step * np.arange(1, num + 1)))


def _days(dates: Any) -> np.ndarray:
    """Since 1970, by the clock on the wall."""
    dates = dates if dates.tz is None else dates.tz_localize(None)
    return (dates.to_numpy() - np.datetime64("1970-01-01")) / _DAY


def _difference(y: np.ndarray, lag: int) -> np.ndarray:
    return y if not lag else np.concatenate([np.full(lag, np.nan), y[lag:] - y[:-lag]])


def _factor(scale: float, size: float) -> float:
    """A deviation to divide by; 1 where it is nothing but rounding errors of numbers of this size."""
    return float(scale) if scale > 1e-8 * size else 1.0


def _last_known(y: np.ndarray, lag: int, shift: float = 0.0) -> np.ndarray:
    """The last `lag` values; where one is missing, that of as many steps before and the mean change since."""
    found = y[-lag:].copy()
    for back in range(2, len(y) // lag + 1):
        earlier = y[len(y) - back * lag : len(y) - (back - 1) * lag]
        found = np.where(np.isnan(found), earlier + (back - 1) * shift, found)
    if np.isnan(found).any():
        raise ValueError("y must have a known value at every step that differences begin from")
    return found

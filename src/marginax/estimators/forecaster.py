"""Time series into the future."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from marginax._compilation import use_compilation_cache
from marginax.data import Arrays
from marginax.estimators.choice import method_named
from marginax.estimators.estimator import as_seed
from marginax.estimators.forecast import Forecast, simulate
from marginax.estimators.regressor import out_size_of
from marginax.estimators.series import Dates, Known, Units, Windows, dates_of, following
from marginax.estimators.storage import read_estimator, read_posterior, write_estimator
from marginax.infer import AbstractMethod, fit
from marginax.model import Model
from marginax.model.likelihoods import AbstractLikelihood, Gaussian
from marginax.model.outcome import Outcome
from marginax.nets import GRU, LSTM, MLP

NETWORKS = ("mlp", "gru", "lstm")


class BayesianForecaster(BaseEstimator):
    """A Bayesian network for time series: autoregression, one step ahead, or several steps at once.

    The network gives the distribution of the next value, given the last ones and what is known in advance. Forecasts
    are paths: one network for all of a path, and noise drawn anew at every step, so that what is not known about the
    network makes all steps of a path err together, and noise does not. Several series share one network, each in its
    own units.

    Values may be missing (NaN): the network is told which, and no target is made up.

    Args:
        method: how to infer: an object from `mx.infer` or the name of one.
        network: "mlp", which sees the lags at once, or "gru" or "lstm", which read the window step by step.
        hidden: widths of the layers of an MLP; one of the state of a GRU or LSTM. `()` is a linear autoregression.
        activation: of an MLP, a function.
        lags: how many of the last steps are seen, or which ones, such as (1, 2, 12).
        season: steps after which things repeat: two sine waves of it are known in advance; None if there are none.
            Dates in the index of a series give the cycles of the calendar besides.
        difference: steps whose differences are modelled, 1 for changes, 12 for changes within a year of months; 0 for
            the values themselves.
        standardise: whether what is modelled has mean 0 and deviation 1 in each series.
        direct: how many steps are predicted at once, each with noise of its own; None for one after the other.
        likelihood: of numbers, from `mx.likelihoods`, in the units of the model.
        prior: from `mx.priors`; by default that of `mx.Model`.
        num_paths: of a forecast.
        num_chains: independent runs; by default what the method does by itself.
        random_state: int seed, `numpy.random.RandomState` or None.
        progress: show a progress bar.

    Attributes:
        posterior_: of the network.
        method_: the method that was used.
        units_: of each series.
        windows_: what the network is shown.
        known_: what is known in advance.

    >>> import marginax as mx
    >>> y = np.sin(np.arange(60) / 3)
    >>> forecaster = BayesianForecaster(method="laplace", hidden=(), lags=2).fit(y)
    >>> forecast = forecaster.predict(4)
    >>> lower, upper = forecast.interval(0.9)
    >>> forecast.mean.shape, bool((lower < upper).all())
    ((4,), True)
    """

    fitted: ClassVar[dict[str, Any]] = {  # what a fit leaves behind
        "columns_": list[np.ndarray | None],
        "dates_": list[Dates | None],
        "known_": Known,
        "method_": AbstractMethod,
        "series_": list[np.ndarray],
        "several_": bool,
        "units_": list[Units],
        "windows_": Windows,
    }

    def __init__(
        self,
        *,
        method: Any = "deep_ensemble",
        network: Any = "mlp",
        hidden: Any = (32,),
        activation: Any = jax.nn.tanh,
        lags: Any = 12,
        season: Any = None,
        difference: Any = 0,
        standardise: Any = True,
        direct: Any = None,
        likelihood: Any = None,
        prior: Any = None,
        num_paths: Any = 1000,
        num_chains: Any = None,
        random_state: Any = 0,
        progress: Any = False,
    ):
        self.method = method
        self.network = network
        self.hidden = hidden
        self.activation = activation
        self.lags = lags
        self.season = season
        self.difference = difference
        self.standardise = standardise
        self.direct = direct
        self.likelihood = likelihood
        self.prior = prior
        self.num_paths = num_paths
        self.num_chains = num_chains
        self.random_state = random_state
        self.progress = progress

    def fit(self, y: Any, x: Any = None) -> "BayesianForecaster":
        """Infer the posterior.

        Args:
            y: a series (an array, or a pandas Series, whose index may hold dates), or a list of them; NaN is missing.
                `split_series` makes them from a long table.
            x: columns that are known in advance, a row for each step; a list of them for a list of series.
        """
        use_compilation_cache()
        self._check()
        series, several = as_series(y)
        columns = as_columns(x, series, several)
        self.several_ = several
        dates = [dates_of(each) for each in (y if several else [y])]
        lags = tuple(range(1, self.lags + 1)) if isinstance(self.lags, int) else tuple(sorted(set(self.lags)))
        self.units_ = [Units.of(each, self.difference, self.standardise) for each in series]
        values = [units.to_model(each) for units, each in zip(self.units_, series, strict=True)]
        masks = any(np.isnan(each[self.difference :]).any() for each in values)
        self.windows_ = Windows(lags, self.network != "mlp", masks, self.direct or 1)
        self.known_ = Known.of(columns, dates, self.season)
        known = [self.known_.columns(c, d, 0, len(v)) for c, d, v in zip(columns, dates, values, strict=True)]
        rows = [
            self.windows_.rows(v[self.difference :], k[self.difference :]) for v, k in zip(values, known, strict=True)
        ]
        inputs, targets = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        if len(inputs) < 2:
            raise ValueError(
                f"y must have more than {self.windows_.length + self.difference + self.windows_.num_ahead} steps for "
                f"lags={self.lags!r}, got {max(map(len, series))} with {len(inputs)} known targets"
            )
        self.series_, self.columns_, self.dates_ = series, columns, [Dates.of(each) for each in dates]
        self.method_ = self.method if isinstance(self.method, AbstractMethod) else method_named(self.method)
        targets = targets[:, 0] if self.windows_.num_ahead == 1 else targets
        self.posterior_ = fit(
            self._model(inputs.shape[1:]),
            Arrays(inputs, targets),
            self.method_,
            key=as_seed(self.random_state),
            num_chains=self.num_chains,
            progress=self.progress,
        )
        return self

    def predict(self, horizon: int, x: Any = None, *, y: Any = None, random_state: Any = None) -> Any:
        """What follows each series.

        Args:
            horizon: steps.
            x: the columns that are known in advance, of these steps.
            y: other histories than those of `fit`, longer or shorter, that begin when they began; with columns of their
                own, x has those of all steps, past ones too.
            random_state: int seed, `numpy.random.RandomState`; None for that of the estimator.

        Returns:
            A `Forecast`, or a list of them for a list of series.
        """
        check_is_fitted(self)
        if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
            raise ValueError(f"horizon must be an int >= 1, got {horizon!r}")
        if self.direct is not None and horizon > self.direct:
            raise ValueError(f"horizon must be at most direct={self.direct}, got {horizon}")
        seed = as_seed(self.random_state if random_state is None else random_state)
        histories, dates, columns = self._histories(horizon, x, y)
        keys = jax.random.split(jax.random.key(seed), len(histories) + 1)
        functions = self.posterior_.functions(self.num_paths, key=keys[-1])
        found = []
        for i, history in enumerate(histories):
            found.append(self._forecast(i, history, columns[i], dates[i], horizon, functions, keys[i]))
        return found if self.several_ else found[0]

    def backtest(
        self, y: Any, x: Any = None, *, horizon: int, num_origins: int = 5, step: int | None = None, refit: bool = True
    ) -> Any:
        """Forecasts from several origins in the past, and how they fared, beside two simple ways to forecast.

        Args:
            y: as in `fit`.
            x: as in `fit`.
            horizon: steps of each forecast.
            num_origins: how many; the last one is `horizon` steps before the end.
            step: steps from one origin to the next; by default `horizon`.
            refit: whether to fit at each origin; else once, at the first. Nothing after an origin is seen in any case.

        Returns:
            A `Backtest`: CRPS, NLL, coverage and RMSE by origin and step; printed, it is a table.
        """
        from marginax.estimators.backtest import backtest

        return backtest(self, y, x, horizon=horizon, num_origins=num_origins, step=step, refit=refit)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted forecaster, with its series, to a directory of data-only files; `load` reads it back."""
        check_is_fitted(self)
        write_estimator(self, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "BayesianForecaster":
        """Read what `save` wrote."""
        use_compilation_cache()
        forecaster = read_estimator(path, cls)
        forecaster.posterior_ = read_posterior(path)
        return forecaster

    @staticmethod
    def fault_of(values: Mapping[str, Any]) -> str | None:
        """What is wrong with attributes that were read from a file."""
        names = ("columns_", "dates_", "series_", "units_")
        return None if len({len(values[name]) for name in names}) == 1 else f"with other numbers of {', '.join(names)}"

    def _check(self) -> None:
        if self.network not in NETWORKS:
            raise ValueError(f"network must be one of {', '.join(NETWORKS)}, got {self.network!r}")
        lags = self.lags if isinstance(self.lags, int) else min(self.lags, default=0)
        if isinstance(self.lags, bool) or lags < 1:
            raise ValueError(f"lags must be a number >= 1 or several of them, got {self.lags!r}")
        for name, least in (("difference", 0), ("num_paths", 2), ("direct", 1), ("season", 2)):
            value = getattr(self, name)
            if name in ("direct", "season") and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be an int >= {least}, got {value!r}")
        if self.direct is not None and self.direct > 1 and self.network != "mlp":
            raise ValueError(f"direct must be None for network={self.network!r}: only an 'mlp' sees what is ahead")
        likelihood = self._likelihood
        if not isinstance(likelihood, AbstractLikelihood) or likelihood.outcome(1) is not Outcome.REAL:
            raise TypeError(
                f"likelihood must be one of real numbers, such as mx.likelihoods.Gaussian(), got {likelihood!r}"
            )

    @property
    def _likelihood(self) -> AbstractLikelihood:
        return Gaussian() if self.likelihood is None else self.likelihood

    def _model(self, in_shape: tuple[int, ...]) -> Model:
        out_size = out_size_of(self._likelihood, self.windows_.num_ahead)
        seed = as_seed(self.random_state)
        if self.network == "mlp":
            hidden = (self.hidden,) if isinstance(self.hidden, int) else tuple(self.hidden)
            network: Any = MLP(in_shape[0], hidden, out_size, activation=self.activation, key=seed)
        else:
            width = self.hidden if isinstance(self.hidden, int) else self.hidden[0]
            kind = GRU if self.network == "gru" else LSTM
            network = kind(in_shape[1], width, out_size=out_size, every_step=False, key=seed)
        return Model(network, self._likelihood) if self.prior is None else Model(network, self._likelihood, self.prior)

    def _histories(self, horizon: int, x: Any, y: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Series, dates and columns of past and future steps."""
        if y is None:
            series, past = self.series_, self.columns_
            dates = [None if each is None else each.index() for each in self.dates_]
        else:
            series, several = as_series(y)
            if several != self.several_ or len(series) != len(self.series_):
                raise ValueError(f"y must have {len(self.series_)} series, as in fit, got {len(series)}")
            dates, past = [dates_of(each) for each in (y if several else [y])], [None] * len(series)
        if self.known_.num_columns == 0 and x is not None:
            raise ValueError("x must be None: fit had no columns that are known in advance")
        if self.known_.num_columns and x is None:
            raise ValueError(
                f"x must have the {self.known_.num_columns} columns of fit for {horizon} steps ahead, got None"
            )
        if x is None:
            return list(series), list(dates), [None] * len(series)
        ahead = [np.asarray(each, np.float64) for each in (x if self.several_ else [x])]
        ahead = [each.reshape(len(each), -1) for each in ahead]
        whole = [a if p is None else np.concatenate([p, a]) for p, a in zip(past, ahead, strict=True)]
        for each, columns in zip(series, whole, strict=True):
            if columns.shape != (len(each) + horizon, self.known_.num_columns) or not np.isfinite(columns).all():
                raise ValueError(
                    f"x must have {self.known_.num_columns} finite columns and {horizon} rows ahead (with y=, after "
                    f"those of its {len(each)} steps), got {len(columns) - (0 if y is not None else len(each))} rows"
                )
        return list(series), list(dates), whole

    def _forecast(
        self, i: int, history: np.ndarray, columns: Any, dates: Any, horizon: int, functions: Any, key: Any
    ) -> Forecast:
        num_ahead = max(horizon, self.windows_.num_ahead)
        z, known, index = self._at(i, history, columns, dates, num_ahead)
        if np.isnan(z).any() and not self.windows_.masks:
            raise ValueError("y has missing values among the last ones, and had none in fit: the network knows none")
        values, conditional = simulate(functions, self.windows_, z, known, horizon, self.num_paths, key=key)
        paths, offsets = self.units_[i].offsets(history, values)
        return Forecast(paths, conditional, offsets, self.units_[i].factor, None if index is None else index[:horizon])

    def _at(
        self, i: int, history: np.ndarray, columns: Any, dates: Any, num_ahead: int
    ) -> tuple[np.ndarray, np.ndarray, Any]:
        """The window at the end of a history, the columns known from its second step on, and the dates ahead."""
        length, num = self.windows_.length, len(history)
        if num < length + self.difference:
            raise ValueError(f"y must have {length + self.difference} steps or more before a forecast, got {num}")
        z = self.units_[i].to_model(history)[-length:]
        index = following(dates, num_ahead)
        whole = None if dates is None else dates.append(index)
        if columns is not None and len(columns) < num + num_ahead:  # of steps that direct= sees, but are not asked for
            columns = np.pad(columns, ((0, num + num_ahead - len(columns)), (0, 0)), mode="edge")
        known = self.known_.columns(columns, whole, 0, num + num_ahead)
        return z, known[num - length + 1 :], index


def as_series(y: Any) -> tuple[list[np.ndarray], bool]:
    """Series as arrays of floats, and whether there is a list of them."""
    several = isinstance(y, list | tuple) and len(y) > 0 and not np.isscalar(y[0])
    found = []
    for each in y if several else [y]:
        try:
            values = np.asarray(each, np.float64)
        except (ValueError, TypeError) as error:
            raise ValueError(f"y must hold numbers, or be a list of series of them: {error}") from None
        if values.ndim != 1 or not values.size:
            raise ValueError(f"y must be one series (n,), or a list of them, got shape {values.shape}")
        if np.isinf(values).any():
            raise ValueError(f"y has infinite values, the first in step {int(np.flatnonzero(np.isinf(values))[0])}")
        found.append(values)
    return found, several


def as_columns(x: Any, series: Sequence[np.ndarray], several: bool) -> list[np.ndarray | None]:
    """Columns that are known in advance as arrays (n, columns), one for each series."""
    if x is None:
        return [None] * len(series)
    tables = list(x) if several else [x]
    if len(tables) != len(series):
        raise ValueError(f"x must have a table for each of {len(series)} series, got {len(tables)}")
    found = []
    for table, y in zip(tables, series, strict=True):
        values = np.asarray(table, np.float64)
        values = values.reshape(len(values), -1)
        if len(values) != len(y) or not np.isfinite(values).all():
            raise ValueError(
                f"x must have a row of finite numbers for each of {len(y)} steps, got shape {values.shape}"
            )
        found.append(values)
    return found

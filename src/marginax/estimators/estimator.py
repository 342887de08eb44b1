"""What regressor and classifier share: columns to numbers, a network, a method, a posterior."""

import abc
import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from marginax._compilation import use_compilation_cache
from marginax._extras import require
from marginax.data import Arrays
from marginax.estimators.choice import Budget, choose_method, choose_stack, method_named
from marginax.estimators.columns import ColumnEncoder, check_names
from marginax.estimators.stack import Stack, Stacked
from marginax.estimators.storage import (
    RUN,
    estimator_directory,
    owning,
    pack,
    parts_of,
    read_estimator,
    read_posterior,
    unpack,
    write_estimator,
)
from marginax.estimators.weights import row_weights
from marginax.infer import AbstractMethod, fit, resume
from marginax.model import AbstractModel, Model, priors
from marginax.model.likelihoods import AbstractLikelihood
from marginax.nets import MLP
from marginax.posterior import AbstractPosterior
from marginax.predict import Prediction

ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid", "softplus", "elu", "leaky_relu")
_LEAST_ROWS, _MOST_ROWS = 64, 4096


class BayesianEstimator(BaseEstimator, abc.ABC):
    """Constructor, files and the path from a table to a prediction; see the regressor for the arguments."""

    fitted: ClassVar[dict[str, Any]] = {  # what a fit leaves behind
        "classes_": np.ndarray | None,
        "encoder_": ColumnEncoder,
        "feature_names_in_": np.ndarray | None,
        "method_": AbstractMethod,
        "n_features_in_": int,
        "reason_": str,
        "stack_": Stack | None,
    }
    stack_: Stack | None = None  # some files are older than it

    def __init__(
        self,
        *,
        method: Any = "auto",
        hidden: Any = (16, 16, 16),
        activation: Any = "relu",
        likelihood: Any = None,
        prior: Any = None,
        num_chains: Any = None,
        time_limit: Any = None,
        random_state: Any = 0,
        progress: Any = None,
    ):
        self.method = method
        self.hidden = hidden
        self.activation = activation
        self.likelihood = likelihood
        self.prior = prior
        self.num_chains = num_chains
        self.time_limit = time_limit
        self.random_state = random_state
        self.progress = progress

    @owning
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, directory: str | os.PathLike[str] | None = None
    ) -> "BayesianEstimator":
        """Infer the posterior.

        Args:
            X: a pandas DataFrame (numbers, booleans, texts, dates, missing values), or an array.
            y: the target.
            sample_weight: what the log likelihood of each row is multiplied by: a row with weight 2 counts as two. The
                units of columns and target are those of all rows alike.
            directory: where to keep checkpoints, new or empty, so that `resume(directory)` can go on after a crash.
        """
        use_compilation_cache()
        files = None if directory is None else estimator_directory(directory)
        if files is not None:
            files.check_vacant()
        seed, budget = as_seed(self.random_state), Budget(self.time_limit)
        model, data = self._begin(X, y, sample_weight, seed)
        self.method_, self.reason_ = self._choose(data.num_examples, model)
        self.stack_ = None
        if self.method == "auto" and self.likelihood is None:
            self.stack_, story = choose_stack(model, data, self.method_, budget, seed)
            self.reason_ = f"{self.reason_} {story}"
        if files is not None:
            files.create(parts_of(self))
        self.posterior_ = fit(
            model,
            data,
            self.method_,
            key=seed,
            num_chains=self.num_chains,
            hooks=budget.hooks(),
            directory=None if files is None else files.path / RUN,
            progress=self.progress,
        )
        self._warn_of_chains()
        return self

    def prepare(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Model, Arrays]:
        """The model and the data that `fit` would use, for `mx.fit` and `mx.evaluate.compare`.

        It leaves `encoder_` behind (and `classes_`), for `encoder_.encode(X)` of further rows.
        """
        return self._begin(X, y, sample_weight, as_seed(self.random_state))

    @classmethod
    def resume(cls, directory: str | os.PathLike[str], *, progress: bool | None = None) -> Any:
        """Go on with a `fit(X, y, directory=...)` that was interrupted; the result is that of an uninterrupted one.

        Args:
            directory: the directory that was given to `fit`.
            progress: show a progress bar; by default when standard error is a terminal.
        """
        use_compilation_cache()
        files = estimator_directory(directory)
        files.check_begun()
        estimator = read_estimator(directory, cls)
        estimator.posterior_ = resume(files.at(RUN), progress=progress)
        estimator._warn_of_chains()
        return estimator

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted estimator to a directory of data-only files; `load` reads it back."""
        check_is_fitted(self)
        write_estimator(self, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Any:
        """Read what `save`, or a finished `fit(X, y, directory=...)`, wrote."""
        use_compilation_cache()
        estimator = read_estimator(path, cls)
        estimator.posterior_ = read_posterior(path)
        return estimator

    def predict_distribution(self, X: Any) -> Prediction:
        """The distribution of the target at new rows, in the user's units: what `mx.evaluate`, `mx.decide` take."""
        check_is_fitted(self)
        return self._predict_table(self._table(X, fitting=False))

    def predict_observed(self, X: Any, annotator: Any = None) -> Prediction:
        """As `predict_distribution`, of the target as data have it, where that may be wrong; else the same.

        Args:
            X: rows, as in `fit`.
            annotator: with `mx.likelihoods.Annotators`, whose label: the place of a column, or one for each row.
        """
        check_is_fitted(self)
        table = self._table(X, fitting=False)
        model: Any = self.model_
        if annotator is not None and not model.likelihood.by_annotators:
            raise TypeError(
                "annotator must be None: only with likelihood=mx.likelihoods.Annotators(...) has it a meaning"
            )
        if not model.likelihood.may_be_wrong:
            return self._predict_table(table)
        who = None
        if model.likelihood.by_annotators:
            given = np.asarray(annotator)
            if given.dtype.kind not in "iu" or given.shape not in ((), (len(table),)):
                raise ValueError(
                    f"annotator must be the place of a column of y, or one for each of {len(table)} rows, got "
                    f"{annotator!r:.80}"
                )
            who = np.broadcast_to(given, (len(table),))
        return self._predict_table(table, self.posterior_.predict_observed, annotator=who)

    @staticmethod
    def fault_of(values: Mapping[str, Any]) -> str | None:
        """What is wrong with attributes that were read from a file."""
        encoder = dataclasses.replace(values["encoder_"])  # which asks what its constructor asks
        knows_others = len(encoder.names) != values["n_features_in_"]
        return "that knows other columns than it has learned from" if knows_others else None

    @property
    def model_(self) -> AbstractModel:
        """Network, likelihood and prior."""
        return self.posterior_.model

    @property
    def mixture_(self) -> AbstractPosterior:
        """What predictions come from: the posterior of the network, mixed with what stands beside it."""
        return self.posterior_ if self.stack_ is None else Stacked(self.posterior_, self.stack_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return {name: pack(value) for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: unpack(value) for name, value in state.items()})

    def _warn_of_chains(self) -> None:
        """Say what `posterior_.summary()` warns of; that a point estimate is one, the user has asked for."""
        for text in () if self.posterior_.is_point else self.posterior_.summary().warnings:
            warnings.warn(text, ConvergenceWarning, stacklevel=3)

    # ---- what the two kinds of estimator say differently

    @abc.abstractmethod
    def _check_targets(self, y: Any) -> np.ndarray:
        """Targets as an array of numbers."""

    @abc.abstractmethod
    def _prepare(self, x: np.ndarray, targets: np.ndarray) -> tuple[Arrays, AbstractLikelihood, int]:
        """Data as the model sees them, the likelihood, and how many outputs the network needs."""

    # ---- the path of the data

    def _begin(self, X: Any, y: Any, sample_weight: Any, seed: int) -> tuple[Model, Arrays]:
        table = self._table(X, y, fitting=True)
        targets = self._check_targets(y)
        check_consistent_length(table, targets)
        self.encoder_ = ColumnEncoder.fit(table)
        x = self.encoder_.encode(table)
        data, likelihood, out_size = self._prepare(x, targets)
        data = data.weighted(row_weights(sample_weight, getattr(self, "class_weight", None), table, y))
        return self._model(x.shape[1], out_size, likelihood, seed), data

    def _table(self, X: Any, y: Any = "no_validation", *, fitting: bool) -> Any:
        """A DataFrame, checked as scikit-learn checks."""
        pd = require("pandas")

        least = 2 if fitting else 1
        if _is_dict(X):
            raise TypeError(f"X must be a table or an array, got {type(X).__name__}: pass pandas.DataFrame(X)")
        if _has_one_axis(X):  # scikit-learn would print all of it
            raise ValueError(
                f"Expected 2D array, got 1D array instead: X has {len(X)} values. Reshape your data: X.reshape(-1, 1), "
                "in pandas X.to_frame(), if it is one column, X.reshape(1, -1) if it is one row"
            )
        if isinstance(X, pd.DataFrame):
            check_names(X)
            if not X.shape[1]:
                raise ValueError(f"Found array with 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
            if len(X) < least:
                raise ValueError(f"Found array with {len(X)} sample(s) while a minimum of {least} is required.")
        else:
            options: Any = {"dtype": None, "ensure_all_finite": False}  # numbers, texts and gaps are told apart later
            X = check_array(X, ensure_min_samples=least, estimator=self, **options)
        table: Any = X
        validate_data(self, table, y, reset=fitting, skip_check_array=True)
        return table if isinstance(table, pd.DataFrame) else pd.DataFrame(table)

    def _model(self, in_size: int, out_size: int, likelihood: AbstractLikelihood, seed: int) -> Model:
        activation = self.activation
        if isinstance(activation, str):
            if activation not in ACTIVATIONS:
                names = ", ".join(ACTIVATIONS)
                raise ValueError(f"activation must be one of {names}, or a function, got {activation!r}")
            activation = getattr(jax.nn, activation)
        hidden = [self.hidden] if isinstance(self.hidden, int | np.integer) else self.hidden
        widths = tuple(int(width) if isinstance(width, np.integer) else width for width in hidden)
        network = MLP(in_size, widths, out_size, activation=activation, linear=True, key=seed)
        return Model(network, likelihood, _default_prior() if self.prior is None else self.prior)

    def _choose(self, num_rows: int, model: Model) -> tuple[AbstractMethod, str]:
        if isinstance(self.method, AbstractMethod):
            return self.method, "It was given as method=."
        if not isinstance(self.method, str):
            raise TypeError(f"method must be 'auto', a name, or an object from mx.infer, got {self.method!r}")
        if self.method == "auto":
            return choose_method(num_rows, sum(int(np.prod(leaf.shape)) for leaf in model.leaves))
        return method_named(self.method), "It was given as method=."

    def _predict_table(self, table: Any, predict: Any = None, **each: Any) -> Prediction:
        """Averaged, where something is unknown, over what it may be; `each` has arguments with entries for rows."""
        several = self.encoder_.encode_unknown(table)
        if several is None:
            return self._predict_rows(self.encoder_.encode(table), predict, each)
        num = several.shape[1]
        each = {name: values if values is None else np.repeat(values, num) for name, values in each.items()}
        return self._predict_rows(several.reshape(-1, several.shape[2]), predict, each).averaged(num)

    def _predict_rows(self, x: np.ndarray, predict: Any, each: dict[str, Any]) -> Prediction:
        """Padded to a power of two rows, so that tables of many lengths share few compiled programs."""
        num = len(x)
        more = (max(_LEAST_ROWS, 1 << (num - 1).bit_length()) if num <= _MOST_ROWS else num) - num
        each = {name: value if value is None else np.pad(value, (0, more), mode="edge") for name, value in each.items()}
        predict = self.mixture_.predict if predict is None else predict
        prediction = predict(np.pad(x, ((0, more), (0, 0)), mode="edge"), **each)
        return prediction if not more else prediction[:num]

    def _blocks(self, X: Any) -> Iterator[Any]:
        """Predictions of some thousand rows at a time, since those of all draws at all rows may not fit in memory."""
        check_is_fitted(self)
        table = self._table(X, fitting=False)
        for start in range(0, len(table), _MOST_ROWS):
            yield self._predict_table(table.iloc[start : start + _MOST_ROWS])


def _is_dict(X: Any) -> bool:
    return isinstance(X, Mapping) and not hasattr(X, "shape")  # as some sparse arrays are, which have one


def _has_one_axis(X: Any) -> bool:
    try:
        return (X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim) == 1
    except ValueError:  # rows of several lengths
        return False


def _default_prior() -> priors.AbstractPrior:
    """That of `mx.Model`, and a line whose slope is of the size of the target: hidden units do the rest."""
    return priors.ByPath({"linear/*": priors.Normal(priors.FanIn(1.0))}, default=priors.default_prior())


def as_seed(random_state: Any) -> int:
    """An int as it is; a number drawn from what else scientists pass for randomness."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise ValueError(f"random_state must be an int, a RandomState or None: {error}") from None

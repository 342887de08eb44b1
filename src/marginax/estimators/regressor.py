"""Numbers."""

import warnings
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array

from marginax.data import Arrays, Scaling, moments_of, warn_of_far_values
from marginax.estimators.estimator import BayesianEstimator, as_seed
from marginax.estimators.targets import check_numbers
from marginax.model.likelihoods import AbstractLikelihood, FromNetwork, Gaussian
from marginax.model.outcome import Outcome


class BayesianRegressor(RegressorMixin, BayesianEstimator):
    """A Bayesian neural network for numbers, with scikit-learn's manners.

    Columns of `X` may be numbers, booleans, texts, dates, and have missing values (see `ColumnEncoder`); targets are
    standardised, and predictions are in the user's units.

    Args:
        method: how to infer: an object from `mx.infer`, the name of one ("laplace", "deep_ensemble"), or "auto", which
            looks at the size of data and network, and mixes the network with simpler models; `reason_` says why.
        hidden: width of each hidden layer.
        activation: a name such as "relu", "tanh" or "gelu", or a function.
        likelihood: from `mx.likelihoods`; by default a Gaussian whose scale the network gives, too. It is that of the
            standardised targets, except for Poisson, which counts.
        prior: from `mx.priors`; by default that of `mx.Model`, and a narrower one for the linear part of the network.
        num_chains: independent runs; by default what the method does by itself.
        time_limit: seconds for all of the fit; None for as long as it takes.
        random_state: int seed, `numpy.random.RandomState`, or None for another result every time.
        progress: show a progress bar; None shows it when there is somebody to see it: at a terminal or in a notebook.

    Attributes:
        posterior_: that of the network, for `mx.evaluate`, `summary()` and all else.
        stack_: with "auto", other models that stand beside the network, and their weights; None if it is better alone.
        method_: the method that was used.
        reason_: why, in a sentence.
        encoder_: how columns become numbers.
        model_: network, likelihood and prior.
        n_features_in_: columns of `X`.
        feature_names_in_: their names, if they are texts.

    >>> import marginax as mx
    >>> X = np.linspace(-1, 1, 40)[:, None]
    >>> regressor = mx.estimators.BayesianRegressor(method="map", hidden=(8,)).fit(X, 3 * X[:, 0])
    >>> mean, std = regressor.predict([[0.5]], return_std=True)
    >>> lower, upper = regressor.predict_interval([[0.5]], level=0.9)
    >>> bool(lower[0] < 1.5 < upper[0])
    True
    """

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Expected target of each row.

        Args:
            X: rows, as in `fit`.
            return_std: whether to return the standard deviations, noise included, too.

        Returns:
            The means, or means and standard deviations.
        """
        found = [(block.mean, block.std if return_std else block.mean) for block in self._blocks(X)]
        mean, std = (np.concatenate(each) for each in zip(*found, strict=True))
        return (mean, std) if return_std else mean

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end, for each row, of the central interval that holds `level` of the probability."""
        found = [block.interval(level) for block in self._blocks(X)]
        lower, upper = (np.concatenate(each) for each in zip(*found, strict=True))
        return lower, upper

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Targets drawn from the predictive distribution, as `GaussianProcessRegressor.sample_y` gives them.

        Args:
            X: rows, as in `fit`.
            n_samples: how many of each row. Each takes one network for all rows.
            random_state: int seed, `numpy.random.RandomState` or None.

        Returns:
            Shape (n_rows, n_samples), or (n_rows, n_outputs, n_samples).
        """
        return np.moveaxis(self.predict_distribution(X).sample(n_samples, key=as_seed(random_state)), 0, -1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check_targets(self, y: Any) -> np.ndarray:
        check_numbers(y)
        return check_array(y, ensure_2d=False, dtype="float64", input_name="y", estimator=self)

    def _prepare(self, x: np.ndarray, targets: np.ndarray) -> tuple[Arrays, AbstractLikelihood, int]:
        likelihood = Gaussian(scale=FromNetwork()) if self.likelihood is None else self.likelihood
        if not isinstance(likelihood, AbstractLikelihood) or likelihood.outcome(1).is_class:
            raise TypeError(f"likelihood must be one of numbers, such as mx.likelihoods.Gaussian(), got {likelihood!r}")
        out_size = out_size_of(likelihood, 1 if targets.ndim == 1 else targets.shape[1])
        if likelihood.outcome(out_size) is Outcome.COUNT:  # counts have no unit to change
            return Arrays(x, targets), likelihood, out_size
        shift, factor, constant = moments_of(targets, name="y")
        if constant.any():
            warnings.warn("y is constant: there is nothing to learn (check the column)", stacklevel=5)
        for column, values in enumerate(targets.reshape(len(targets), -1).T):
            warn_of_far_values(values, "y" if targets.ndim == 1 else f"column {column} of y", stacklevel=5)
        scaling = Scaling(np.zeros(x.shape[1]), np.ones(x.shape[1]), shift, factor)
        return Arrays(x, (targets - shift) / factor, scaling=scaling), likelihood, out_size


def out_size_of(likelihood: AbstractLikelihood, num_targets: int) -> int:
    """How many outputs describe this many targets."""
    for size in range(num_targets, 30 * num_targets + 1):
        try:
            if likelihood.num_targets(size) == num_targets:
                return size
        except ValueError:
            continue
    raise ValueError(f"likelihood {likelihood!r} cannot describe {num_targets} targets")

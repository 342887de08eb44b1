"""Classes."""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from marginax.data import MISSING, Arrays
from marginax.estimators.estimator import BayesianEstimator, as_seed
from marginax.estimators.targets import check_labels, labels_with_gaps
from marginax.model.likelihoods import AbstractLikelihood, Categorical
from marginax.model.outcome import Outcome


class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    """A Bayesian neural network for classes, with scikit-learn's manners.

    Columns of `X` may be numbers, booleans, texts, dates, and have missing values (see `ColumnEncoder`); classes may be
    numbers, texts or booleans.

    Args:
        method: as in `BayesianRegressor`.
        hidden: as in `BayesianRegressor`.
        activation: as in `BayesianRegressor`.
        likelihood: from `mx.likelihoods`; by default Categorical; Bernoulli for two classes. With `Annotators(...)`, y
            has a column for each annotator, with gaps; with `EntropyRegularised(...)` or `ConsistencyRegularised(...)`
            y may have gaps. A gap is None or NaN.
        prior: as in `BayesianRegressor`.
        class_weight: what the rows of each class count: "balanced" (classes count alike, however many rows they have),
            a dict such as {"rare": 10, "common": 1}, or None for 1.
        num_chains: as in `BayesianRegressor`.
        time_limit: as in `BayesianRegressor`.
        random_state: as in `BayesianRegressor`.
        progress: as in `BayesianRegressor`.

    Attributes:
        classes_: the classes, in order; labels of `predict_distribution` are positions in it.
        posterior_, stack_, method_, reason_, encoder_, model_: as in `BayesianRegressor`.
        n_features_in_, feature_names_in_: as in `BayesianRegressor`.

    >>> import marginax as mx
    >>> X = np.linspace(-1, 1, 40)[:, None]
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> classifier = mx.estimators.BayesianClassifier(method="map", hidden=(8,)).fit(X, y)
    >>> print(classifier.predict([[-0.9], [0.9]]))
    ['no' 'yes']
    >>> classifier.predict_proba([[0.0]]).shape
    (1, 2)
    """

    def __init__(
        self,
        *,
        method: Any = "auto",
        hidden: Any = (16, 16, 16),
        activation: Any = "relu",
        likelihood: Any = None,
        prior: Any = None,
        class_weight: Any = None,
        num_chains: Any = None,
        time_limit: Any = None,
        random_state: Any = 0,
        progress: Any = False,
    ):
        BayesianEstimator.__init__(
            self,
            method=method,
            hidden=hidden,
            activation=activation,
            likelihood=likelihood,
            prior=prior,
            num_chains=num_chains,
            time_limit=time_limit,
            random_state=random_state,
            progress=progress,
        )
        self.class_weight = class_weight

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        labels = np.concatenate([block.labels for block in self._blocks(X)])
        return self.classes_[labels]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, in the order of `classes_`."""
        probs = np.concatenate([block.probs for block in self._blocks(X)])
        return probs / probs.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of the probability of each class."""
        return np.log(self.predict_proba(X))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Classes drawn from the predictive distribution, of shape (n_rows, n_samples).

        Args:
            X: rows, as in `fit`.
            n_samples: how many of each row.
            random_state: int seed, `numpy.random.RandomState` or None.
        """
        return self.classes_[self.predict_distribution(X).sample(n_samples, key=as_seed(random_state)).T]

    def encode_labels(self, y: Any) -> np.ndarray:
        """Classes as positions in `classes_`, which is how `predict_distribution(X).log_prob` takes them."""
        labels = np.asarray(column_or_1d(y))
        places = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        if unknown := sorted({str(label) for label in labels[self.classes_[places] != labels]}):
            raise ValueError(f"y holds classes that were not in the training data: {', '.join(unknown[:5])}")
        return places

    def encode_answers(self, y: Any) -> np.ndarray:
        """Classes as positions in `classes_`, in the shape of y, and -1 where one is missing."""
        given, labels = labels_with_gaps(y)
        places = np.full(given.shape, MISSING)
        places[given] = self.encode_labels(labels)
        return places

    def _check_targets(self, y: Any) -> np.ndarray:
        if isinstance(self.likelihood, AbstractLikelihood) and self.likelihood.takes_missing:
            return self._check_gaps(y, self.likelihood)
        check_labels(y)
        labels = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y", estimator_name=type(self).__name__)
        check_classification_targets(labels)
        self.classes_, places = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {self.classes_[0]!r}")
        return places

    def _check_gaps(self, y: Any, likelihood: AbstractLikelihood) -> np.ndarray:
        """Labels of which some are missing, of each row by several annotators or by one."""
        given, labels = labels_with_gaps(y)
        assert_all_finite(labels, input_name="y", estimator_name=type(self).__name__)
        check_classification_targets(labels)
        axes, what = (2, "(n, annotators)") if likelihood.by_annotators else (1, "(n,)")
        if given.ndim != axes:
            raise ValueError(f"y must have shape {what} for {type(likelihood).__name__}, got {given.shape}")
        if self.class_weight is not None:
            raise ValueError("class_weight must be None where labels are missing: their classes are not known")
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least 2 classes, got {len(self.classes_)}")
        wanted = getattr(likelihood, "num_classes", len(self.classes_))
        if wanted != len(self.classes_):
            raise ValueError(
                f"likelihood must have as many classes as y, {len(self.classes_)}, got "
                f"{type(likelihood).__name__}(num_classes={wanted})"
            )
        has_gaps = given.size > len(labels)
        if len(self.classes_) > 2 and np.any(self.classes_ == MISSING) and not has_gaps:
            raise ValueError(f"y must have None or NaN where a label is missing, got {MISSING}, which is a class here")
        return self.encode_answers(y)

    def _prepare(self, x: np.ndarray, targets: np.ndarray) -> tuple[Arrays, AbstractLikelihood, int]:
        likelihood = Categorical() if self.likelihood is None else self.likelihood
        num = len(self.classes_)
        if not isinstance(likelihood, AbstractLikelihood) or not likelihood.outcome(1).is_class:
            raise TypeError(
                f"likelihood must be one of classes, such as mx.likelihoods.Categorical(), got {likelihood!r}"
            )
        yes_or_no = likelihood.outcome(2) is Outcome.LABELS  # one output for two classes
        if yes_or_no and num > 2:
            raise ValueError(f"likelihood Bernoulli() is for 2 classes, y has {num}: use mx.likelihoods.Categorical()")
        return Arrays(x, targets), likelihood, 1 if yes_or_no or _has_one_output(likelihood) else num


def _has_one_output(likelihood: AbstractLikelihood) -> bool:
    """Whether it has classes of one number, in order, and not a number for each class."""
    try:
        return likelihood.num_targets(1) == 1 and not likelihood.has_logits
    except ValueError:
        return False

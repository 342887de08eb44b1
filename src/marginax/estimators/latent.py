"""Mixtures, hidden Markov models, topics and principal components with scikit-learn's manners."""

import abc
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from marginax.estimators.estimator import as_seed
from marginax.infer import CoordinateAscent, fit
from marginax.latent import HMM, LDA, PCA, GaussianMixture
from marginax.latent.streaming import absorb, seen_statistics
from marginax.model.conjugate import AbstractConjugate
from marginax.posterior import Conjugate


class AbstractLatent(BaseEstimator):
    """What they share: `fit`, `partial_fit`, `score_samples` and `score`."""

    method: Any
    num_chains: int
    random_state: Any
    progress: Any

    @abc.abstractmethod
    def _model(self) -> AbstractConjugate:
        """The model that the arguments describe."""

    def fit(self, X: Any, y: Any = None) -> Any:
        """Infer the posterior from all of `X`; `y` is ignored."""
        method = CoordinateAscent() if self.method is None else self.method
        options = {"key": as_seed(self.random_state), "num_chains": self.num_chains, "progress": self.progress}
        self.posterior_ = fit(self._model(), X, method, **options)
        self._seen = None
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Any:
        """Infer the posterior from more data; the first call fits, the later ones add what they see once.

        Only for the posteriors of `mx.infer.CoordinateAscent`.
        """
        if not hasattr(self, "posterior_"):
            self.fit(X)
            self._first = X
            return self
        if not isinstance(self.posterior_, Conjugate):
            raise TypeError("partial_fit needs a posterior in closed form: use method=mx.infer.CoordinateAscent()")
        if self._seen is None:
            if getattr(self, "_first", None) is None:
                raise ValueError("partial_fit must be called from the first data on, not after fit")
            self._seen, self._first = seen_statistics(self.posterior_, self._first), None
        self.posterior_, self._seen = absorb(self.posterior_, self._seen, X)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Log density of each example, averaged over the posterior."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.log_likelihood(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of an example."""
        return float(np.mean(self.score_samples(X)))

    def _asked(self) -> Any:
        check_is_fitted(self, "posterior_")
        return self.posterior_


class BayesianMixture(ClusterMixin, AbstractLatent):
    """Clusters of rows, by a mixture of normal distributions.

    Args:
        num_components: at most; what is not needed stays empty.
        covariance: "full", "tied", "diagonal" or "spherical".
        weights: `mx.latent.Dirichlet(...)` or `StickBreaking(...)`.
        method: from `mx.infer`, by default `CoordinateAscent()`.
        num_chains: restarts, of which the best is taken.
        random_state: int seed, `numpy.random.RandomState`, or None.
        progress: show a progress bar.

    >>> X = np.concatenate([np.arange(10.0), 50.0 + np.arange(10.0)])[:, None]
    >>> mixture = BayesianMixture(4, num_chains=2, random_state=0).fit(X)
    >>> labels = mixture.predict(X)
    >>> bool((labels[:10] == labels[0]).all() and (labels[10:] != labels[0]).all())
    True
    """

    def __init__(
        self,
        num_components: int = 10,
        covariance: Any = "full",
        weights: Any = None,
        method: Any = None,
        num_chains: int = 5,
        random_state: Any = None,
        progress: Any = False,
    ):
        self.num_components, self.covariance, self.weights = num_components, covariance, weights
        self.method, self.num_chains, self.random_state, self.progress = method, num_chains, random_state, progress

    def _model(self) -> AbstractConjugate:
        return GaussianMixture(self.num_components, self.covariance, self.weights)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable component of each row."""
        return self._asked().labels(X)

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and the most probable component of each row."""
        return self.fit(X).predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each component for each row."""
        return self._asked().responsibilities(X)

    def sample(self, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """New rows, each under parameters of its own draw from the posterior."""
        return self._asked().simulate(n_samples, key=as_seed(random_state))


class BayesianHMM(AbstractLatent):
    """States of sequences: a list of arrays with a leading axis of steps, or what `mx.latent.HMM` takes.

    Args:
        num_states: how many.
        emissions: "normal", "poisson", "categorical", or an object from `mx.latent`.
        method: from `mx.infer`, by default `CoordinateAscent()`.
        num_chains: restarts, of which the best is taken.
        random_state: int seed, `numpy.random.RandomState`, or None.
        progress: show a progress bar.
    """

    def __init__(
        self,
        num_states: int = 2,
        emissions: Any = "normal",
        method: Any = None,
        num_chains: int = 5,
        random_state: Any = None,
        progress: Any = False,
    ):
        self.num_states, self.emissions = num_states, emissions
        self.method, self.num_chains, self.random_state, self.progress = method, num_chains, random_state, progress

    def _model(self) -> AbstractConjugate:
        return HMM(self.num_states, self.emissions)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable path of states, (sequence, step)."""
        return self._asked().path(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each state at each step, (sequence, step, state)."""
        return self._asked().states(X)

    def sample(self, n_steps: int = 100, random_state: Any = 0) -> tuple[np.ndarray, np.ndarray]:
        """A new sequence: its states, and its observations."""
        return self._asked().simulate(n_steps, key=as_seed(random_state))


class BayesianTopics(TransformerMixin, AbstractLatent):
    """Topics of documents that are rows of word counts.

    Args:
        num_topics: how many.
        method: from `mx.infer`, by default `CoordinateAscent()`.
        num_chains: restarts, of which the best is taken.
        random_state: int seed, `numpy.random.RandomState`, or None.
        progress: show a progress bar.
    """

    def __init__(
        self,
        num_topics: int = 10,
        method: Any = None,
        num_chains: int = 1,
        random_state: Any = None,
        progress: Any = False,
    ):
        self.num_topics = num_topics
        self.method, self.num_chains, self.random_state, self.progress = method, num_chains, random_state, progress

    def _model(self) -> AbstractConjugate:
        return LDA(self.num_topics)

    def transform(self, X: Any) -> np.ndarray:
        """Mean proportions of topics in each document."""
        return self._asked().proportions(X)

    def perplexity(self, X: Any) -> float:
        """Of new documents; less is better."""
        return self._asked().perplexity(X)


class BayesianPCA(TransformerMixin, AbstractLatent):
    """A few factors of rows, of which entries may be missing: NaN, or a dict with "x" and "mask".

    Args:
        num_factors: how many.
        outcome: "normal", "binary" or "poisson".
        method: from `mx.infer`, by default `CoordinateAscent()`.
        num_chains: restarts, of which the best is taken.
        random_state: int seed, `numpy.random.RandomState`, or None.
        progress: show a progress bar.
    """

    def __init__(
        self,
        num_factors: int = 2,
        outcome: str = "normal",
        method: Any = None,
        num_chains: int = 1,
        random_state: Any = None,
        progress: Any = False,
    ):
        self.num_factors, self.outcome = num_factors, outcome
        self.method, self.num_chains, self.random_state, self.progress = method, num_chains, random_state, progress

    def _model(self) -> AbstractConjugate:
        return PCA(self.num_factors, self.outcome)

    def fit(self, X: Any, y: Any = None) -> "BayesianPCA":
        """Infer the posterior; NaN are missing entries."""
        return super().fit(_masked(X))

    def partial_fit(self, X: Any, y: Any = None) -> "BayesianPCA":
        """Infer the posterior from more rows."""
        return super().partial_fit(_masked(X))

    def score_samples(self, X: Any) -> np.ndarray:
        """Log density of what is observed of each row."""
        return super().score_samples(_masked(X))

    def transform(self, X: Any) -> np.ndarray:
        """Mean factors of each row."""
        return self._asked().factors(_masked(X))

    def impute(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, ...]:
        """Mean of every entry, and the ends of its interval; observed entries are as they are."""
        return self._asked().impute(_masked(X), level)


def _masked(X: Any) -> Any:
    if isinstance(X, dict):
        return X
    x = np.asarray(X, np.float64)
    return {"x": x, "mask": ~np.isnan(x)}

"""A posterior is a distribution over networks. A draw from it is a network you can call."""

import abc
import os
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax._keys import Key, as_key
from marginax.data import DataSpec
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior.record import FitRecord
from marginax.posterior.storage import save_posterior
from marginax.posterior.summary import Summary, summarise
from marginax.predict import (
    MAX_BYTES,
    AbstractFunctionSet,
    ClassificationPrediction,
    ParameterDraws,
    Prediction,
    Predictor,
    make_predictor,
)

if TYPE_CHECKING:
    from marginax.posterior.hidden_labels import Confusion

DEFAULT_NUM_SAMPLES = 100


class AbstractPosterior(eqx.Module):
    """What every method returns: draw networks from it, predict with it, save it.

    Fields: `model`, and what the driver adds: `spec` (shapes and scaling of the data), `record` (the story of the
    fit) and `key` (the seed of predictions, so that they are the same every time and after reloading).
    """

    if TYPE_CHECKING:  # abstract fields: fields or properties in subclasses, and no arguments of their constructors

        @property
        def model(self) -> AbstractModel: ...

        @property
        def spec(self) -> DataSpec | None: ...

        @property
        def record(self) -> FitRecord: ...

        @property
        def key(self) -> PRNGKeyArray | None: ...

    else:
        model: eqx.AbstractVar[AbstractModel]
        spec: eqx.AbstractVar[DataSpec | None]
        record: eqx.AbstractVar[FitRecord]
        key: eqx.AbstractVar[PRNGKeyArray | None]

    def __getattr__(self, name: str) -> Any:
        """What can be asked of posteriors of this model, such as `responsibilities` of a mixture."""
        queries = None if name.startswith("_") or name == "model" else self.model.queries
        if queries is None or not hasattr(queries, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(queries(self), name)

    @abc.abstractmethod
    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        """Parameters drawn from the posterior, stacked along a leading axis of `num`."""

    @abc.abstractmethod
    def starting_points(self, num: int) -> Params:
        """Typical parameters to start `num` chains from, stacked: draws evenly spaced, or means."""

    def mean_params(self) -> Params:
        """The mean of the parameters, where the posterior lies around one place; else an error."""
        raise ValueError(f"this posterior has no single mean ({self.describe()}): take a draw of it, with key=")

    def functions(self, num: int | None = None, *, key: PRNGKeyArray) -> AbstractFunctionSet:
        """Draws as functions of inputs, which stand for the posterior in averages.

        By default all draws of a posterior that is made of them, 100 of a continuous one.
        """
        return ParameterDraws(self.model, self.sample_params(DEFAULT_NUM_SAMPLES if num is None else num, key=key))

    @property
    @abc.abstractmethod
    def is_point(self) -> bool:
        """Whether all of its mass is on a single network."""

    @abc.abstractmethod
    def describe(self) -> str:
        """One line: what kind of distribution this is."""

    def sample(self, num: int, *, key: Key) -> Any:
        """Networks drawn from the posterior: one module whose array leaves have a leading axis of `num`.

        Call one with `jax.tree.map(lambda a: a[0], nets)(x)`, all with `eqx.filter_vmap(lambda net: net(x))(nets)`.
        Where predictions are linearised, so are the networks. A model without a network gives its unknowns.
        """
        if isinstance(num, bool) or not isinstance(num, int) or num < 1:
            raise ValueError(f"num must be an int >= 1, got {num!r}")
        return self.draw(num, key=as_key(key))

    def draw(self, num: int, *, key: PRNGKeyArray) -> Any:
        """What `sample` gives."""
        return self.model.sampled(self.sample_params(num, key=key))

    def predict(
        self, x: Any, *, num_samples: int | None = None, key: Key | None = None, max_bytes: int = MAX_BYTES
    ) -> Prediction:
        """Average over networks: the distribution of the target at new inputs, in the user's units.

        Args:
            x: inputs, as in the training data.
            num_samples: networks to average over; by default all draws, or 100 of a continuous posterior. Linearised
                predictions draw outputs instead, where they have no closed form.
            key: seed for drawing them; by default the same ones every time.
            max_bytes: memory for intermediate results; inputs and draws are taken in chunks that fit.
        """
        spec = self.data_spec()
        functions = self._predicting_functions(num_samples, key)
        return functions.predict(spec.check_x(x), spec=spec, max_bytes=max_bytes)

    def predictor(
        self,
        x_shape: tuple[int, ...],
        *,
        num_samples: int | None = None,
        key: Key | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Predictor:
        """`predict` for services: compiled here, for inputs of one shape, with the draws kept on the device.

        Calls take arrays of that shape, or with fewer rows, and give the same predictions as `predict`. What a
        prediction works out when it is asked (moments, quantiles) is compiled when it is asked first. At one row and
        1,000 draws of a network 16-16-16, a call took 0.5 ms where `predict` took 2.0 ms (median of 200, on a CPU).

        Args:
            x_shape: of the inputs: the most rows of a call, then the shape of one input.
            num_samples: as for `predict`.
            key: as for `predict`.
            max_bytes: as for `predict`; draws that take more are brought to the device at every call.

        >>> import marginax as mx
        >>> x = np.linspace(-1, 1, 20)[:, None]
        >>> model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.1))
        >>> posterior = mx.fit(model, (x, 3 * x[:, 0]), mx.infer.Laplace(), key=0)
        >>> predict = posterior.predictor((4, 1))
        >>> bool(np.allclose(predict(x[:3]).mean, posterior.predict(x[:3]).mean))
        True
        """
        functions = self._predicting_functions(num_samples, key)
        return make_predictor(functions, x_shape, spec=self.data_spec(), max_bytes=max_bytes)

    def predict_observed(
        self,
        x: Any,
        *,
        annotator: Any = None,
        num_samples: int | None = None,
        key: Key | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Prediction:
        """`predict` of targets as data have them, wrong ones included; the same where targets are taken as they are.

        Args:
            x: inputs, as in the training data.
            annotator: with `mx.likelihoods.Annotators`, whose answer: a number, or one for each row.
            num_samples: as for `predict`.
            key: as for `predict`.
            max_bytes: as for `predict`.
        """
        from marginax.posterior.hidden_labels import predict_observed

        return predict_observed(self, x, annotator, num_samples=num_samples, key=key, max_bytes=max_bytes)

    def label_errors(
        self,
        x: Any,
        y: Any,
        *,
        new: bool = False,
        num_samples: int | None = None,
        key: Key | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> np.ndarray:
        """Probability that each target is wrong, in the shape of y: for likelihoods of targets that may be.

        Of `NoisyLabels` that the true label is another one, of `Annotators` the same for every answer (NaN where
        nobody was asked), of `Outliers` that the target has a gross error.

        Args:
            x: inputs, as in the training data.
            y: their targets.
            new: whether the rows are others than those of the training data, which the posterior has seen already.
            num_samples: as for `predict`.
            key: as for `predict`.
            max_bytes: as for `predict`.

        >>> import marginax as mx
        >>> x = np.linspace(-2, 2, 40)[:, None]
        >>> y = (x[:, 0] > 0).astype(int)
        >>> y[30] = 0  # one that is wrong
        >>> likelihood = mx.likelihoods.NoisyLabels(mx.likelihoods.Categorical())
        >>> model = mx.Model(mx.nets.MLP(1, (), 2, key=0), likelihood)
        >>> posterior = mx.fit(model, (x, y), mx.infer.MAP(num_epochs=500), key=0)
        >>> int(posterior.label_errors(x, y).argmax())
        30
        """
        from marginax.posterior.hidden_labels import label_errors

        return label_errors(self, x, y, new=new, num_samples=num_samples, key=key, max_bytes=max_bytes)

    def consensus(
        self,
        x: Any,
        y: Any,
        *,
        new: bool = False,
        num_samples: int | None = None,
        key: Key | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> ClassificationPrediction:
        """The true label of each row given its labels, of one or of several annotators, and its inputs.

        Arguments are as for `label_errors`; of new rows, what draws say apart is not known.
        """
        from marginax.posterior.hidden_labels import consensus

        return consensus(self, x, y, new=new, num_samples=num_samples, key=key, max_bytes=max_bytes)

    def confusion(self, *, level: float = 0.9, num_samples: int = 1000) -> "Confusion":
        """The learned matrix of transitions of `NoisyLabels`, or of each of the `Annotators`, with intervals.

        Where a method finds the likelihood's unknowns as a point (`MAP`, `Laplace`), intervals have no width.

        Args:
            level: of the intervals.
            num_samples: draws of a continuous posterior; of one that is made of draws, all are taken.
        """
        from marginax.posterior.hidden_labels import confusion

        return confusion(self, level=level, num_samples=num_samples)

    def expected_information(
        self, x: Any, y: Any, *, num_samples: int | None = None, key: Key | None = None
    ) -> np.ndarray:
        """What each annotator's answer is expected to say about the true label of each row, in nats.

        The mutual information of label and answer given the answers so far, 0 for those who answered already.

        Args:
            x: inputs, as in the training data.
            y: answers so far, -1 where nobody was asked; a row may have none.
            num_samples: as for `predict`.
            key: as for `predict`.
        """
        from marginax.posterior.hidden_labels import expected_information

        return expected_information(self, x, y, num_samples=num_samples, key=key)

    def _predicting_functions(self, num_samples: int | None, key: Key | None) -> AbstractFunctionSet:
        if num_samples is not None and (isinstance(num_samples, bool) or num_samples < 1):
            raise ValueError(f"num_samples must be an int >= 1, got {num_samples!r}")
        return self.functions(num_samples, key=self.prediction_key(key))

    def data_spec(self) -> DataSpec:
        """Shapes and scaling of the data, or an error where they are not known or there are no inputs."""
        if hasattr(self.model, "prior_predictive"):
            raise TypeError("a program has arguments in place of inputs: use posterior.sample_predictive(arguments)")
        if hasattr(self.model.queries, "condition"):
            raise TypeError("predictions are given a few points: use posterior.condition((x, y)).predict(x_new)")
        if not hasattr(self.model, "predictive"):
            raise TypeError(
                f"{type(self.model).__name__} says nothing about new data, so there is nothing to predict: "
                "use posterior.sample(num, key=...)"
            )
        if self.spec is None:
            raise ValueError("this posterior was not made by mx.fit and has no data spec: pass spec= when building it")
        return self.spec

    def prediction_key(self, key: Key | None = None) -> PRNGKeyArray:
        """The seed of predictions: the one given, or the posterior's own, so that they are the same every time."""
        base = self.key if key is None else as_key(key)
        return jax.random.key(0) if base is None else base

    def update(
        self,
        data: Any,
        *,
        key: Key,
        method: Any = None,
        scale: Any = 1.0,
        family: Any = None,
        num_chains: int | None = None,
        hooks: Any = (),
        directory: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> "AbstractPosterior":
        """The posterior after new data: the same method, with this posterior as prior. The data before are not needed.

        Exact where this posterior is (a normal one of a linear model); else what is lost in it stays lost. New data
        are scaled as the first were, and are the `spec` of the result.

        Args:
            data: new rows, in the units of the first data.
            key: int seed or JAX key.
            method: by default the one by which this posterior was found.
            scale: of the prior, as in `mx.priors.FromPosterior`; above 1, what is old counts for less.
            family: of the prior, as in `mx.priors.FromPosterior`.
            num_chains: as in `mx.fit`; by default as many as there were.
            hooks: as in `mx.fit`.
            directory: as in `mx.fit`.
            progress: as in `mx.fit`.

        >>> import marginax as mx
        >>> x = np.linspace(-1, 1, 20)[:, None]
        >>> model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(0.1), mx.priors.Normal(1.0))
        >>> first = mx.fit(model, (x[::2], x[::2, 0]), mx.infer.Laplace(mx.curvature.Dense()), key=0)
        >>> both = first.update((x[1::2], x[1::2, 0]), key=1)
        >>> bool(both.predict([[0.0]]).std < first.predict([[0.0]]).std)
        True
        """
        from marginax.infer.updating import update

        options = {"scale": scale, "family": family, "num_chains": num_chains, "hooks": hooks}
        return update(self, data, key=key, method=method, directory=directory, progress=progress, **options)

    def summary(self) -> Summary:
        """What was run, how long it took, and what to be wary of; print it."""
        return summarise(self)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the posterior to a directory of data-only files; `mx.load` reads it back."""
        save_posterior(self, path, overwrite=overwrite)

    @property
    def sites(self) -> dict[str, np.ndarray]:
        """Of an `mx.Program`: values of its unknowns and deterministic sites by name, axes (chain, draw, ...).

        Deterministic sites that depend on data are in `sample_predictive`. A posterior that is not made of draws is
        represented by 1,000 draws in one chain.
        """
        from marginax.posterior.sites import site_values

        return site_values(self)

    def sample_predictive(
        self,
        arguments: Any = None,
        *,
        data: Any = None,
        num_samples: int | None = None,
        key: Key | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> dict[str, np.ndarray]:
        """Of an `mx.Program`: draws of what it would observe, axes (draw, ...); deterministic sites, too.

        Args:
            arguments: of the program by name; those that it observes may be left out, and are drawn in any case.
            data: as in `mx.fit`, needed where a discrete site is shared by all examples: it is drawn given them. Where
                a guide draws unknowns of each example, the rows that they are drawn given, the same as in `arguments`;
                without them they come from their prior, as those of new examples.
            num_samples: of draws; by default all that there are, or 1,000 of a continuous posterior.
            key: seed for drawing unknowns and what is observed given them; by default the same draws every time. Where
                all draws of a posterior are taken, it decides what is observed.
            max_bytes: memory for intermediate results: draws are taken in chunks that fit.
        """
        from marginax.posterior.sites import draw_predictive

        return draw_predictive(self, arguments, data, num_samples, self.prediction_key(key), max_bytes)

    def to_arviz(self, data: Any = None) -> Any:
        """The posterior as arviz.InferenceData, with the random weights (of a program, its sites) by name.

        Args:
            data: of an `mx.Program`, as in `mx.fit`: their log likelihood under each draw is added.
        """
        from marginax.posterior.arviz import to_arviz

        return to_arviz(self, data)


def take(tree: PyTree, index: Any) -> PyTree:
    """Index the leading axis (or axes) of every leaf."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def stack_of(params: PyTree) -> int:
    """Length of the leading axis."""
    return jax.tree.leaves(params)[0].shape[0]


def merge_axes(leaf: Array | np.ndarray) -> Array | np.ndarray:
    """Fold (chain, draw) into one axis."""
    return leaf.reshape((leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]))

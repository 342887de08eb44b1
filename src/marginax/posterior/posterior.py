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
from marginax.predict import Linearised, LinearPart, Prediction, predict, predict_linearised

DEFAULT_NUM_SAMPLES = 100
LinearParts = tuple[tuple[LinearPart, ...], np.ndarray, Linearised]


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

    @abc.abstractmethod
    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        """Parameters drawn from the posterior, stacked along a leading axis of `num`."""

    @abc.abstractmethod
    def support(self, num: int | None, *, key: PRNGKeyArray) -> tuple[PyTree, np.ndarray | None]:
        """Stacked parameters that stand for the posterior in averages, with log weights (None: equal).

        With `num=None` a posterior made of draws gives all of them.
        """

    @abc.abstractmethod
    def centres(self, num: int) -> Params:
        """Typical parameters to start `num` chains from, stacked: draws evenly spaced, or means."""

    def linear_parts(self) -> LinearParts | None:
        """Normals with their log weights, and how to predict, if predictions are linearised; None if by draws."""
        return None

    def predictive_model(self) -> Any:
        """What turns an element of the support into a predictive distribution."""
        return self.model

    @property
    @abc.abstractmethod
    def is_point(self) -> bool:
        """Whether all of its mass is on a single network."""

    @abc.abstractmethod
    def describe(self) -> str:
        """One line: what kind of distribution this is."""

    def sample(self, num: int, *, key: Key) -> eqx.Module:
        """Networks drawn from the posterior: one module whose array leaves have a leading axis of `num`.

        Call one with `jax.tree.map(lambda a: a[0], nets)(x)`, all with `eqx.filter_vmap(lambda net: net(x))(nets)`.
        """
        if isinstance(num, bool) or not isinstance(num, int) or num < 1:
            raise ValueError(f"num must be an int >= 1, got {num!r}")
        return self.draw_networks(num, key=as_key(key))

    def draw_networks(self, num: int, *, key: PRNGKeyArray) -> eqx.Module:
        """What `sample` gives."""
        return self.model.sampled(self.sample_params(num, key=key))

    def predict(
        self, x: Any, *, num_samples: int | None = None, key: Key | None = None, max_bytes: int = 256 * 2**20
    ) -> Prediction:
        """Average over networks: the distribution of the target at new inputs, in the user's units.

        Args:
            x: inputs, as in the training data.
            num_samples: networks to average over; by default all draws, or 100 of a continuous posterior. Linearised
                predictions draw outputs instead, where they have no closed form.
            key: seed for drawing them; by default the same ones every time.
            max_bytes: memory for intermediate results; inputs and draws are taken in chunks that fit.
        """
        if self.spec is None:
            raise ValueError("this posterior was not made by mx.fit and has no data spec: pass spec= when building it")
        if num_samples is not None and (isinstance(num_samples, bool) or num_samples < 1):
            raise ValueError(f"num_samples must be an int >= 1, got {num_samples!r}")
        x = self.spec.check_x(x)
        base = self.key if key is None else as_key(key)
        base = jax.random.key(0) if base is None else base
        linear = self.linear_parts()
        if linear is not None:
            parts, weights, predictive = linear
            num = max(1, (num_samples or DEFAULT_NUM_SAMPLES) // len(parts))
            return predict_linearised(
                parts,
                x,
                spec=self.spec,
                link=predictive.link,
                log_weights=weights,
                num_samples=num,
                key=base,
                max_bytes=max_bytes,
            )
        params, log_weights = self.support(num_samples, key=base)
        return predict(self.predictive_model(), params, x, spec=self.spec, log_weights=log_weights, max_bytes=max_bytes)

    def summary(self) -> Summary:
        """What was run, how long it took, and what to be wary of; print it."""
        return summarise(self)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the posterior to a directory of data-only files; `mx.load` reads it back."""
        save_posterior(self, path, overwrite=overwrite)

    def to_arviz(self) -> Any:
        """The posterior as arviz.InferenceData, with the random weights by name."""
        from marginax.posterior.arviz import to_arviz

        return to_arviz(self)


def take(tree: PyTree, index: Any) -> PyTree:
    """Index the leading axis (or axes) of every leaf."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def stack_of(params: PyTree) -> int:
    """Length of the leading axis."""
    return jax.tree.leaves(params)[0].shape[0]


def merge_axes(leaf: Array | np.ndarray) -> Array | np.ndarray:
    """Fold (chain, draw) into one axis."""
    return leaf.reshape((leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]))

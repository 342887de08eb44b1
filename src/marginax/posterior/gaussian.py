"""A normal distribution over weights: Laplace, SWAG and variational posteriors."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.curvature import AbstractCovariance
from marginax.data import DataSpec
from marginax.files import register
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior.mode import AbstractTuning, Mode
from marginax.posterior.posterior import DEFAULT_NUM_SAMPLES, AbstractPosterior, LinearParts
from marginax.posterior.record import FitRecord
from marginax.predict import AbstractPredictive, Linearised, LinearPart, ThroughNetwork


@register("posterior/gaussian")
class Gaussian(AbstractPosterior):
    """Normal over the raveled parameters, with a structured covariance.

    Args:
        model: the model whose parameters these are.
        mean: parameters at the centre.
        covariance: `Diagonal`, `LowRank`, `Dense`, ... over the raveled parameters.
        spec: shapes and scaling of the data.
        record: the story of the fit.
        key: seed of predictions.
        predictive: how it predicts: `mx.predict.ThroughNetwork()`, or `Linearised()` as Laplace wants.
        mode: what a Laplace approximation knows besides: the curvature and the likelihood at the mean.
    """

    model: AbstractModel
    mean: Params
    covariance: AbstractCovariance
    spec: DataSpec | None = None
    record: FitRecord = eqx.field(default_factory=FitRecord)
    key: PRNGKeyArray | None = None
    predictive: AbstractPredictive = eqx.field(default_factory=ThroughNetwork)
    mode: Mode | None = None

    @property
    def is_point(self) -> bool:
        """Never: a covariance has spread."""
        return False

    def describe(self) -> str:
        """Kind and size."""
        return f"a normal distribution over {self.covariance.size} parameters ({type(self.covariance).__name__})"

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        """Mean plus noise of the covariance."""
        return _draw(self.mean, self.covariance, num, key)

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log density at one setting of the parameters."""
        return self.covariance.log_prob(ravel_pytree(params)[0] - ravel_pytree(self.mean)[0])

    def support(self, num: int | None, *, key: PRNGKeyArray) -> tuple[PyTree, np.ndarray | None]:
        """Fresh draws, 100 unless told otherwise."""
        return self.sample_params(DEFAULT_NUM_SAMPLES if num is None else num, key=key), None

    def centres(self, num: int) -> Params:
        """The mean."""
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), self.mean)

    def linear_parts(self) -> LinearParts | None:
        """Itself, where predictions are linearised."""
        if not isinstance(self.predictive, Linearised):
            return None
        moves = None if self.mode is None else self.mode.moves
        return (LinearPart(self.model, self.mean, self.covariance, moves),), np.zeros(1), self.predictive

    def using(self, predictive: AbstractPredictive) -> "Gaussian":
        """The same distribution with another way to predict: `ThroughNetwork()` or `Linearised(link=...)`."""
        return eqx.tree_at(lambda p: p.predictive, self, predictive)

    def log_evidence(self) -> Float[Array, ""]:
        r"""Laplace's approximation of $\log p(D)$: how well the model, prior included, predicted the data.

        Given the unknowns of likelihood and prior, and weights outside the subset, at their mode.
        """
        if self.mode is None:
            raise ValueError("only posteriors of mx.infer.Laplace know the evidence: fit one with init= this posterior")
        return self.mode.log_evidence(self.model, self.mean, self.covariance)

    def tuned(self, rule: AbstractTuning) -> "Gaussian":
        """The posterior under the prior (and noise) that a rule prefers: `mx.infer.Evidence()`, `HeldOut(data)`.

        The mean stays: train again from here for the mode under the new prior.
        """
        if self.mode is None:
            raise ValueError("only posteriors of mx.infer.Laplace can be tuned: fit one with init= this posterior")
        return rule.tune(self)


@eqx.filter_jit
def _draw(mean: Params, covariance: AbstractCovariance, num: int, key: PRNGKeyArray) -> Params:
    centre, unravel = ravel_pytree(mean)
    return jax.vmap(unravel)(centre + covariance.sample(key, num))


@register("posterior/mixture")
class Mixture(AbstractPosterior):
    """Several posteriors of one model, with weights: a mixture of Laplaces, multi-SWAG, stacked methods.

    Args:
        components: posteriors of the same model.
        weights: positive, normalised here; equal by default.
        spec: shapes and scaling of the data (that of the first component by default).
        record: the story of the fit.
        key: seed of predictions.
    """

    components: tuple[AbstractPosterior, ...]
    weights: np.ndarray
    spec: DataSpec | None
    record: FitRecord
    key: PRNGKeyArray | None

    def __init__(
        self,
        components: tuple[AbstractPosterior, ...] | list[AbstractPosterior],
        weights: np.ndarray | None = None,
        *,
        spec: DataSpec | None = None,
        record: FitRecord | None = None,
        key: PRNGKeyArray | None = None,
    ):
        """Check that the components belong together."""
        self.components = tuple(components)
        if not self.components:
            raise ValueError("components must hold at least one posterior, got none")
        first = jax.tree.structure(self.components[0].model)
        if any(jax.tree.structure(c.model) != first for c in self.components):
            raise ValueError("components must be posteriors of the same model")
        if len({c.linear_parts() is None for c in self.components}) > 1:
            raise ValueError("components must all be linearised, or none of them")
        values = np.ones(len(self.components)) if weights is None else np.asarray(weights, np.float64)
        if values.shape != (len(self.components),) or not np.all(values > 0):
            raise ValueError(f"weights must be {len(self.components)} positive numbers, got {weights!r}")
        self.weights = values / values.sum()
        self.spec = self.components[0].spec if spec is None else spec
        self.record = self.components[0].record if record is None else record
        self.key = self.components[0].key if key is None else key

    @property
    def model(self) -> AbstractModel:
        """The model that all components share."""
        return self.components[0].model

    def centres(self, num: int) -> Params:
        """The components' centres, in turn."""
        chosen = np.linspace(0, len(self.components) - 1, num).round().astype(int)
        parts = [self.components[i].centres(int((chosen == i).sum())) for i in np.unique(chosen)]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    def predictive_model(self) -> Any:
        """That of the components."""
        return self.components[0].predictive_model()

    def linear_parts(self) -> LinearParts | None:
        """Those of the components."""
        found = [component.linear_parts() for component in self.components]
        parts, log_weights = [], []
        for inner, weight in zip(found, self.weights, strict=True):
            if inner is None:
                return None
            parts.extend(inner[0])
            log_weights.extend(inner[1] + np.log(weight))
        assert found[0] is not None
        return tuple(parts), np.array(log_weights), found[0][2]

    def tuned(self, rule: AbstractTuning) -> "Mixture":
        """Each component under its own best prior; see `Gaussian.tuned`."""
        tuned = tuple(component.tuned(rule) for component in self.components if isinstance(component, Gaussian))
        if len(tuned) < len(self.components):
            raise ValueError("only posteriors of mx.infer.Laplace can be tuned")
        return Mixture(tuned, self.weights, spec=self.spec, record=self.record, key=self.key)

    @property
    def is_point(self) -> bool:
        """Only if it is one point."""
        return len(self.components) == 1 and self.components[0].is_point

    def describe(self) -> str:
        """Count and kind."""
        return f"a mixture of {len(self.components)}: {self.components[0].describe()}"

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        """Choose a component by weight for each draw, then draw from it."""
        choosing, drawing = jax.random.split(key)
        chosen = np.asarray(jax.random.choice(choosing, len(self.components), (num,), p=jnp.asarray(self.weights)))
        parts, order = [], []
        for i, component in enumerate(self.components):
            places = np.flatnonzero(chosen == i)
            if len(places):
                parts.append(component.sample_params(len(places), key=jax.random.fold_in(drawing, i)))
                order.append(places)
        back = np.argsort(np.concatenate(order))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[back], *parts)

    def support(self, num: int | None, *, key: PRNGKeyArray) -> tuple[PyTree, np.ndarray | None]:
        """The components' own supports, weighted."""
        share = None if num is None else max(1, num // len(self.components))
        parts, log_weights = [], []
        for i, component in enumerate(self.components):
            params, inner = component.support(share, key=jax.random.fold_in(key, i))
            size = jax.tree.leaves(params)[0].shape[0]
            inner = np.full(size, -np.log(size)) if inner is None else inner
            parts.append(params)
            log_weights.append(inner + np.log(self.weights[i]))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts), np.concatenate(log_weights)

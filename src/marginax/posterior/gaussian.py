"""A normal distribution over weights: Laplace, SWAG and variational posteriors."""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.curvature import AbstractCovariance
from marginax.data import DataSpec
from marginax.files import register
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior.mode import AbstractTuning, Mode
from marginax.posterior.posterior import DEFAULT_NUM_SAMPLES, AbstractPosterior
from marginax.posterior.record import FitRecord
from marginax.predict import (
    AbstractFunctionSet,
    AbstractPredictive,
    JoinedFunctions,
    Linearised,
    LinearisedFunctions,
    LinearisedMixture,
    ParameterDraws,
    ThroughNetwork,
)


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
        moves: which of the model's random leaves have any spread, where it is not all of them (or those of the mode).
    """

    model: AbstractModel
    mean: Params
    covariance: AbstractCovariance
    spec: DataSpec | None = None
    record: FitRecord = eqx.field(default_factory=FitRecord)
    key: PRNGKeyArray | None = None
    predictive: AbstractPredictive = eqx.field(default_factory=ThroughNetwork)
    mode: Mode | None = None
    moves: tuple[bool, ...] | None = eqx.field(static=True, default=None)

    @property
    def is_point(self) -> bool:
        """Never: a covariance has spread."""
        return False

    def describe(self) -> str:
        return f"a normal distribution over {self.covariance.size} parameters ({type(self.covariance).__name__})"

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        return _draw(self.mean, self.covariance, num, key)

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log density at one setting of the parameters."""
        return self.covariance.log_prob(ravel_pytree(params)[0] - ravel_pytree(self.mean)[0])

    def starting_points(self, num: int) -> Params:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), self.mean)

    def mean_params(self) -> Params:
        return self.mean

    def functions(self, num: int | None = None, *, key: PRNGKeyArray) -> AbstractFunctionSet:
        """Networks with weights that are drawn, or linear in those."""
        num = DEFAULT_NUM_SAMPLES if num is None else num
        if not self.is_linearised:
            return ParameterDraws(self.model, self.sample_params(num, key=key))
        moves = self.moves if self.mode is None else self.mode.moves
        keys = jax.random.split(key, num)
        model, predictive = cast(Any, (self.model, self.predictive))
        return LinearisedFunctions(model, self.mean, self.covariance, predictive, keys, key, moves=moves)

    def draw(self, num: int, *, key: PRNGKeyArray) -> Any:
        functions: Any = self.functions(num, key=key)
        return functions.networks() if self.is_linearised else self.model.sampled(functions.draws)

    @property
    def is_linearised(self) -> bool:
        """Whether predictions, and with them draws, are linear in the weights."""
        return isinstance(self.predictive, Linearised) and hasattr(self.model, "network")

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
        self.components = tuple(components)
        if not self.components:
            raise ValueError("components must hold at least one posterior, got none")
        first = jax.tree.structure(self.components[0].model)
        if any(jax.tree.structure(c.model) != first for c in self.components):
            raise ValueError("components must be posteriors of the same model")
        if len({getattr(c, "is_linearised", False) for c in self.components}) > 1:
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

    def starting_points(self, num: int) -> Params:
        chosen = np.linspace(0, len(self.components) - 1, num).round().astype(int)
        parts = [self.components[i].starting_points(int((chosen == i).sum())) for i in np.unique(chosen)]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    def mean_params(self) -> Params:
        return self.components[0].mean_params() if len(self.components) == 1 else super().mean_params()

    def functions(self, num: int | None = None, *, key: PRNGKeyArray) -> JoinedFunctions:
        """Those of the components, weighted; `num` of them in all, about."""
        linear = getattr(self.components[0], "is_linearised", False)
        share = DEFAULT_NUM_SAMPLES if num is None and linear else num
        share = None if share is None else max(1, share // len(self.components))
        parts = tuple(
            component.functions(share, key=jax.random.fold_in(key, i)) for i, component in enumerate(self.components)
        )
        if linear:
            return LinearisedMixture(parts, self.weights, key=key)
        return JoinedFunctions(parts, self.weights)

    def draw(self, num: int, *, key: PRNGKeyArray) -> Any:
        """As a component draws, each by its weight."""
        choosing, drawing = jax.random.split(key)
        parts, back = self._drawn(
            num, choosing, lambda i, size: self.components[i].draw(size, key=jax.random.fold_in(drawing, i))
        )
        return jax.tree.map(lambda *leaves: _joined(leaves, back), *parts)

    def tuned(self, rule: AbstractTuning) -> "Mixture":
        """Each component under its own best prior; see `Gaussian.tuned`."""
        tuned = tuple(component.tuned(rule) for component in self.components if isinstance(component, Gaussian))
        if len(tuned) < len(self.components):
            raise ValueError("only posteriors of mx.infer.Laplace can be tuned")
        return Mixture(tuned, self.weights, spec=self.spec, record=self.record, key=self.key)

    @property
    def is_point(self) -> bool:
        return len(self.components) == 1 and self.components[0].is_point

    def describe(self) -> str:
        return f"a mixture of {len(self.components)}: {self.components[0].describe()}"

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        """Choose a component by weight for each draw, then draw from it."""
        choosing, drawing = jax.random.split(key)
        parts, back = self._drawn(
            num, choosing, lambda i, size: self.components[i].sample_params(size, key=jax.random.fold_in(drawing, i))
        )
        return jax.tree.map(lambda *leaves: _joined(leaves, back), *parts)

    def _drawn(self, num: int, key: PRNGKeyArray, draw: Callable[[int, int], Any]) -> tuple[list[Any], np.ndarray]:
        chosen = np.asarray(jax.random.choice(key, len(self.components), (num,), p=jnp.asarray(self.weights)))
        places = {i: found for i in range(len(self.components)) if len(found := np.flatnonzero(chosen == i))}
        parts = [draw(i, len(found)) for i, found in places.items()]
        return parts, np.argsort(np.concatenate(list(places.values())))


def _joined(leaves: tuple[Any, ...], back: np.ndarray) -> Any:
    return jnp.concatenate(leaves)[back] if eqx.is_array(leaves[0]) else leaves[0]

r"""Predictions with the network linearised in its weights.

$f_\theta(x) \approx f_{\hat\theta}(x) + J(x)(\theta - \hat\theta)$: normal weights then give normal outputs,
$N(f_{\hat\theta}(x),\, J(x) \Sigma J(x)^\top)$, in closed form and without draws of weights (Immer et al., 2021). For
normal noise the prediction is normal too; for classes a link averages the softmax; for everything else functions are
drawn, each of them the linearised network at a draw of the weights, so that a draw is joint over inputs.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from marginax._compilation import compiled
from marginax.curvature import AbstractCovariance, output_jacobian
from marginax.data import DataSpec
from marginax.files import register
from marginax.model import Model, Params
from marginax.predict.fresh import FreshFunctions
from marginax.predict.functions import MAX_BYTES, AbstractFunctions, JoinedFunctions, ParameterDraws
from marginax.predict.links import AbstractLink, MonteCarlo
from marginax.predict.loop import DrawLoop
from marginax.predict.predictive import Prediction, averaging, empty_averages, mixture_of
from marginax.predict.workload import measure_workload


class AbstractPredictive(eqx.Module):
    """How a normal distribution of weights is turned into predictions."""


@register("predictive/network")
class ThroughNetwork(AbstractPredictive):
    """Draw weights and call the network with each."""


@register("predictive/linearised")
class Linearised(AbstractPredictive):
    """Linearise the network at the mean of the weights.

    Args:
        link: how class probabilities are averaged: `MonteCarlo()`, `Probit()` or `LaplaceBridge()`. Not used where
            the targets are numbers.
    """

    link: AbstractLink = eqx.field(default_factory=MonteCarlo)

    def __check_init__(self):
        if not isinstance(self.link, AbstractLink):
            raise TypeError(f"link must be mx.predict.MonteCarlo(), Probit() or LaplaceBridge(), got {self.link!r}")


class LinearisedNetwork(eqx.Module):
    """A network that is linear in its weights: a draw of a linearised posterior, called like any network.

    Args:
        network: at the mean of the weights.
        step: of the weights from there; None for leaves that do not move.
    """

    network: Any
    step: PyTree

    def __call__(self, x: Array) -> Array:
        """The output at the mean, and its derivative along the step."""
        moving, fixed = eqx.partition(
            self.network, jax.tree.map(lambda leaf: leaf is not None, self.step, is_leaf=_none)
        )
        value, change = jax.jvp(lambda w: eqx.combine(w, fixed)(x), (moving,), (self.step,))
        return value + change


def _none(leaf: Any) -> bool:
    return leaf is None


class LinearisedFunctions(AbstractFunctions):
    """A normal distribution of weights, as functions that are linear in them.

    Args:
        model: with likelihood and network.
        mean: where it is linearised.
        covariance: of the raveled parameters.
        predictive: how to predict without drawing, where that is possible.
        draws: a key for each function.
        key: for what is drawn in place of functions.
        log_weights: of the draws.
        moves: which random leaves have any spread; all by default.
    """

    model: Model
    mean: Params
    covariance: AbstractCovariance
    predictive: Linearised
    draws: Key[Array, " draws"]
    key: PRNGKeyArray
    log_weights: np.ndarray | None = None
    moves: tuple[bool, ...] | None = eqx.field(static=True, default=None)

    # ---- functions

    @property
    def is_prepared(self) -> bool:
        return True

    def prepare(self, draws: Key[Array, " draws"]) -> Params:
        _, unravel = ravel_pytree(self.mean)
        return jax.vmap(lambda key: unravel(self.covariance.sample(key, 1)[0]))(draws)

    def distribution(self, draw: Params, x: Array) -> Any:
        """The likelihood's, at the outputs of the linearised network."""
        output, change = jax.jvp(
            lambda weights: self.model.output(self.model.with_weights(self.mean, weights), x),
            (self.mean.network,),
            (draw.network,),
        )
        unknowns = jax.tree.map(jnp.add, self.mean.likelihood, draw.likelihood)
        return self.model.likelihood.distribution(output + change, unknowns)

    def networks(self) -> LinearisedNetwork:
        """The functions as networks, stacked."""
        steps = self.prepare(self.draws).network
        whole = self.model.network_of(self.mean)
        stacked = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.num_draws, *leaf.shape)) if eqx.is_array(leaf) else leaf, whole
        )
        return LinearisedNetwork(stacked, steps)

    # ---- moments

    def centred(self) -> ParameterDraws:
        return ParameterDraws(self.model, jax.tree.map(lambda leaf: leaf[None], self.mean))

    def outputs(self, x: Array) -> tuple[Float[Array, "n k"], Float[Array, "n k k"]]:
        """Mean and covariance of the outputs at some inputs."""
        mean, jacobian = output_jacobian(self.model, self.mean, x, self.moves)
        covariance = self.covariance.spread(jacobian)
        return mean, 0.5 * (covariance + covariance.swapaxes(1, 2))

    def averaging(
        self, x: Any, *, spec: DataSpec, max_bytes: int = MAX_BYTES, keep_draws: bool = False
    ) -> Callable[[Any], Prediction]:
        options = {"spec": spec, "max_bytes": max_bytes, "keep_draws": keep_draws}
        return averaging_linearised((self,), np.ones(1), x, key=self.key, **options)


class LinearisedMixture(JoinedFunctions):
    """Several linearised normals: predictions are in closed form where one of them has one.

    Args:
        key: for what is drawn in place of functions.
    """

    key: PRNGKeyArray = eqx.field(kw_only=True)

    def averaging(
        self, x: Any, *, spec: DataSpec, max_bytes: int = MAX_BYTES, keep_draws: bool = False
    ) -> Callable[[Any], Prediction]:
        members: Any = self.members
        weights = np.exp(self.normalised_log_weights())
        ends = np.cumsum([member.num_draws for member in members])
        of_members = np.array([part.sum() for part in np.split(weights, ends[:-1])])
        options = {"spec": spec, "max_bytes": max_bytes, "keep_draws": keep_draws}
        return averaging_linearised(members, of_members, x, key=self.key, **options)


class _Moments(AbstractFunctions):
    """Moments of the outputs in place of draws: one "draw", whose distribution is that of normal outputs."""

    functions: LinearisedFunctions
    draws: np.ndarray
    log_weights: np.ndarray | None = None

    def distribution(self, draw: Array, x: Array) -> Any:
        mean, covariance = self.functions.outputs(x)
        closed = self.functions.model.likelihood.marginal(mean, covariance, self.functions.mean.likelihood)
        return (mean, covariance) if closed is None else closed


def averaging_linearised(
    members: tuple[LinearisedFunctions, ...],
    weights: np.ndarray,
    x: Any,
    *,
    spec: DataSpec,
    key: PRNGKeyArray,
    max_bytes: int,
    keep_draws: bool,
) -> Callable[[Any], Prediction]:
    """The way to predictions of a mixture of normal distributions of weights, each linearised at its own mean.

    Args:
        members: of one model.
        weights: of the members, summing to one.
        x: inputs (n, ...) in the user's units.
        spec: shapes and scaling of the training data.
        key: seed of what is drawn where there is no formula.
        max_bytes: memory for intermediate results.
        keep_draws: whether what is needed again stays on the device.
    """
    options = {"spec": spec, "max_bytes": max_bytes, "keep_draws": keep_draws}
    first = members[0]
    moments = JoinedFunctions(tuple(_Moments(_lean(m), np.zeros(1, np.float32)) for m in members), weights)
    loop = DrawLoop(moments, x, **options)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), first.mean)
    num_classes = measure_workload(ParameterDraws(first.model, shapes), loop.x_like).num_classes
    by_link = num_classes and first.model.likelihood.has_logits
    if not by_link and isinstance(loop.like, tuple):
        return averaging(JoinedFunctions(members, weights), x, **options)
    if not by_link:
        return lambda x: mixture_of(loop.at(x), spec, FreshFunctions(members, weights, x, spec, max_bytes))
    width, num_draws = loop.like[0].shape[-1], first.num_draws
    noise = jax.random.normal(key, (len(members), num_draws, width), loop.like[0].dtype)

    def classify(x: Any) -> Prediction:
        at = loop.at(x)
        averages = empty_averages(at, num_classes)
        for draws, rows, (mean, covariance) in at.run(_first):
            weight = jnp.asarray(at.log_weights[draws.start], mean.dtype)
            link = first.predictive.link
            averages.add(rows, _class_summary(link, mean, covariance, noise[draws.start], weight, averages.is_full))
        return averages.prediction(num_draws=len(members) * num_draws, max_bytes=max_bytes)

    return classify


def _first(moments: Any, log_weights: Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], moments)


@compiled
def _class_summary(link: AbstractLink, mean: Array, covariance: Array, noise: Array, weight: Array, full: bool) -> Any:
    if mean.shape[-1] == 1:
        pair = jnp.array(link.pair, mean.dtype)
        mean, covariance, noise = mean * pair, covariance * pair[:, None] * pair, noise * jnp.ones(2, noise.dtype)
    return link.summary(mean, covariance, noise, weight, full=full)


def _lean(functions: LinearisedFunctions) -> LinearisedFunctions:
    return eqx.tree_at(lambda f: f.draws, functions, None)

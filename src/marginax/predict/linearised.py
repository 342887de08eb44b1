r"""Predictions with the network linearised in its weights.

$f_\theta(x) \approx f_{\hat\theta}(x) + J(x)(\theta - \hat\theta)$: normal weights then give normal outputs,
$N(f_{\hat\theta}(x),\, J(x) \Sigma J(x)^\top)$, in closed form and without draws of weights (Immer et al., 2021). For
normal noise the prediction is normal too; for classes a link averages the softmax; for everything else the outputs, not
the weights, are drawn.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.curvature import AbstractCovariance, plan_for, pull_back
from marginax.data import DataSpec
from marginax.files import register
from marginax.model import Model, Params
from marginax.model.likelihoods import Bernoulli, Categorical, FromNetwork, Gaussian
from marginax.predict.classification import ClassAverages, ClassSummary
from marginax.predict.links import AbstractLink, MonteCarlo, draw_outputs
from marginax.predict.mixture import Mixture
from marginax.predict.multilabel import MultiLabelPrediction
from marginax.predict.normal_outputs import NormalOutputs
from marginax.predict.predictive import Prediction, predict_numbers
from marginax.predict.workload import MAX_ROWS, PROBE_ROWS, chunk_size, numbers_per_row


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


class LinearPart(eqx.Module):
    """A normal distribution of weights around which the network is linearised.

    Args:
        model: with likelihood and network.
        mean: where it is linearised.
        covariance: of the raveled parameters.
        moves: which random leaves have any spread; all by default.
    """

    model: Model
    mean: Params
    covariance: AbstractCovariance
    moves: tuple[bool, ...] | None = eqx.field(static=True, default=None)

    def outputs(self, x: Array) -> tuple[Float[Array, "n k"], Float[Array, "n k k"]]:
        """Mean and covariance of the outputs at some inputs."""
        plan = plan_for(self.model, self.mean, x.shape[1:], x.dtype, self.moves)
        mean, jacobian = pull_back(self.model, self.mean, plan, x, None, _each_output)
        covariance = self.covariance.spread(jacobian)
        return mean, 0.5 * (covariance + covariance.swapaxes(1, 2))


class DrawnOutputs(eqx.Module):
    """Linearised parts as a model whose parameters are draws: (number of the part, standard normal noise).

    Args:
        parts: of one model.
    """

    parts: tuple[LinearPart, ...]

    def predictive(self, params: tuple[Array, Array], x: Array, *, key: Any = None) -> Any:
        """The likelihood's distribution at one draw of the outputs."""
        del key
        number, noise = params
        drawn = [draw_outputs(*part.outputs(x), noise[None])[0] for part in self.parts]
        output = jnp.stack(drawn)[number]
        unknowns = jax.tree.map(lambda *leaves: jnp.stack(leaves)[number], *(p.mean.likelihood for p in self.parts))
        return self.parts[0].model.likelihood.distribution(output, unknowns)


def _each_output(output: Array, y: Any, key: Any) -> Array:
    del y, key
    return jnp.eye(output.shape[0], dtype=output.dtype)


def predict_linearised(
    parts: tuple[LinearPart, ...],
    x: Any,
    *,
    spec: DataSpec,
    link: AbstractLink,
    log_weights: np.ndarray,
    num_samples: int,
    key: PRNGKeyArray,
    max_bytes: int = 256 * 2**20,
) -> Prediction:
    """Predictions of a mixture of normal distributions of weights, each linearised at its own mean.

    Args:
        parts: of one model.
        x: inputs (n, ...) in the user's units.
        spec: shapes and scaling of the training data.
        link: for class probabilities.
        log_weights: of the parts, normalised.
        num_samples: draws of the outputs of each part, where they are needed.
        key: seed of those.
        max_bytes: memory for intermediate results.
    """
    job = _Job(parts, x, spec, log_weights, max_bytes)
    likelihood = parts[0].model.likelihood
    noise = jax.random.normal(key, (len(parts), num_samples, job.width), job.dtype)
    if isinstance(likelihood, Categorical) or (isinstance(likelihood, Bernoulli) and job.width == 1):
        return _classify(job, link, noise)
    if isinstance(likelihood, Gaussian) and not isinstance(likelihood.scale, FromNetwork):
        mixture = _collect(job, _closed_form, job.dummy_noise(), log_weights)
    else:
        mixture = _collect(job, _drawn, noise, np.repeat(log_weights - math.log(num_samples), num_samples))
    if isinstance(likelihood, Bernoulli):
        return MultiLabelPrediction(mixture)
    return predict_numbers(mixture, spec)


class _Job:
    """The work, cut in chunks of rows of one size."""

    def __init__(self, parts: tuple[LinearPart, ...], x: Any, spec: DataSpec, log_weights: np.ndarray, max_bytes: int):
        if len(x) == 0:
            raise ValueError("x must have at least one row, got none")
        self.parts, self.x, self.scaling = parts, x, spec.scaling
        self.log_weights, self.max_bytes, self.num_rows = log_weights, max_bytes, len(x)
        first = jax.eval_shape(lambda: jnp.asarray(self._standardise(slice(0, 1))))
        rows = jax.ShapeDtypeStruct((PROBE_ROWS, *first.shape[1:]), first.dtype)
        jaxpr, shapes = jax.make_jaxpr(lambda x: parts[0].outputs(x), return_shape=True)(rows)
        self.width, self.dtype = shapes[0].shape[1], shapes[0].dtype
        limit = max_bytes // (4 * 4 * max(numbers_per_row(jaxpr.jaxpr), math.prod(first.shape[1:])))
        self.size = chunk_size(self.num_rows, min(MAX_ROWS, limit))

    def dummy_noise(self) -> Array:
        """One row per part: nothing is drawn."""
        return jnp.zeros((len(self.parts), 1, self.width), self.dtype)

    def chunks(self) -> Iterator[tuple[slice, Array]]:
        """Rows and inputs, the last chunk filled up with copies of its last row."""
        for start in range(0, self.num_rows, self.size):
            rows = slice(start, min(start + self.size, self.num_rows))
            chunk = np.asarray(self._standardise(rows))
            missing = self.size - len(chunk)
            yield rows, jnp.asarray(np.concatenate([chunk, np.repeat(chunk[-1:], missing, 0)]) if missing else chunk)

    def _standardise(self, rows: slice) -> Any:
        chunk = self.x[rows]
        return chunk if self.scaling is None else self.scaling.transform_x(chunk)


@eqx.filter_jit
def _class_summary(
    part: LinearPart, x: Array, link: AbstractLink, noise: Array, weight: Array, full: bool
) -> ClassSummary:
    mean, covariance = part.outputs(x)
    if mean.shape[-1] == 1:
        pair = jnp.array(link.pair, mean.dtype)
        mean, covariance, noise = mean * pair, covariance * pair[:, None] * pair, noise * jnp.ones(2, noise.dtype)
    return link.summary(mean, covariance, noise, weight, full=full)


def _classify(job: _Job, link: AbstractLink, noise: Array) -> Prediction:
    num_classes = max(2, job.width)
    full = job.num_rows * num_classes**2 * 8 <= job.max_bytes
    averages = ClassAverages.empty(job.num_rows, num_classes, full=full)
    for rows, x in job.chunks():
        for part, draws, weight in zip(job.parts, noise, job.log_weights, strict=True):
            averages.add(rows, _class_summary(part, x, link, draws, jnp.asarray(weight, job.dtype), full))
    return averages.prediction(num_draws=noise.shape[0] * noise.shape[1], max_bytes=job.max_bytes)


@eqx.filter_jit
def _closed_form(part: LinearPart, x: Array, noise: Array) -> NormalOutputs:
    del noise
    mean, covariance = part.outputs(x)
    likelihood: Any = part.model.likelihood
    scale = likelihood.location_and_scale(mean, part.mean.likelihood)[1]
    return NormalOutputs(mean[None], covariance[None], scale[None])


@eqx.filter_jit
def _drawn(part: LinearPart, x: Array, noise: Array) -> Any:
    outputs = draw_outputs(*part.outputs(x), noise)
    return eqx.filter_vmap(lambda output: part.model.likelihood.distribution(output, part.mean.likelihood))(outputs)


def _collect(job: _Job, components_of: Callable[..., Any], noise: Array, log_weights: np.ndarray) -> Mixture:
    """The components of all parts at all rows, on the host."""
    probe = jax.ShapeDtypeStruct((PROBE_ROWS, *job.x.shape[1:]), job.dtype)
    shapes = eqx.filter_eval_shape(components_of, job.parts[0], probe, noise[0])
    row_axes = tuple(leaf.shape[1:2] == (PROBE_ROWS,) for leaf in jax.tree.leaves(shapes))
    by_part: list[list[Any]] = [[] for _ in job.parts]
    for rows, x in job.chunks():
        for found, part, draws in zip(by_part, job.parts, noise, strict=True):
            leaves, treedef = jax.tree.flatten(components_of(part, x, draws))
            num = rows.stop - rows.start
            kept = [np.asarray(leaf)[:, :num] if has else leaf for leaf, has in zip(leaves, row_axes, strict=True)]
            found.append(treedef.unflatten(kept))

    def join(*leaves: Any, has_rows: bool) -> Any:
        return np.concatenate(leaves, axis=1) if has_rows else leaves[0]

    wholes = []
    for found in by_part:
        treedef = jax.tree.structure(found[0])
        columns = zip(*(jax.tree.leaves(chunk) for chunk in found), strict=True)
        joined = [functools.partial(join, has_rows=has)(*c) for c, has in zip(columns, row_axes, strict=True)]
        wholes.append(treedef.unflatten(joined))
    components = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *wholes)
    return Mixture(components, row_axes, log_weights, job.num_rows, job.max_bytes)

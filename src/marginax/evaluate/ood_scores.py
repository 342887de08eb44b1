"""Out-of-distribution scores that look inside the network: at its logits, and at the inputs of its last layer."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy import special

from marginax.data.arrays import as_numeric
from marginax.evaluate.out_of_distribution import AbstractOODScore
from marginax.model.outcome import Outcome
from marginax.nets.layers import layers_of, replace_layers
from marginax.posterior import AbstractPosterior
from marginax.predict.workload import chunk_size, chunk_sizes, measure_workload

_MAX_BYTES = 256 * 2**20
_ROWS = 1024


class Energy(AbstractOODScore):
    r"""$-T \log \sum_k e^{\bar z_k / T}$ of the logits averaged over draws (Liu et al., 2020).

    The logit z of two classes counts as the pair $\pm z/2$; several yes-or-no labels are averaged.

    Args:
        temperature: $T$.
    """

    temperature: float = 1.0

    def __check_init__(self):
        if not self.temperature > 0:
            raise ValueError(f"temperature must be > 0, got {self.temperature!r}")

    def scores(self, posterior: AbstractPosterior, x: Any) -> Float[np.ndarray, " n"]:
        """From the posterior's draws, or for linearised predictions its means."""
        logits = mean_logits(posterior, x)[:, None]
        if _outcome(posterior) is Outcome.LABELS or logits.shape[-1] == 1:
            logits = logits[:, 0, :, None] * np.array([-0.5, 0.5])
        total = np.asarray(special.logsumexp(logits / self.temperature, axis=-1))
        return -self.temperature * total.mean(axis=1)


class Mahalanobis(AbstractOODScore):
    r"""Squared Mahalanobis distance of features to the nearest class mean (Lee et al., 2018).

    Features are the input of the layer that is called last, in the first network that stands for the posterior (its
    mean, or its first draw). $\min_c (h - \mu_c)^\top \Sigma^{-1} (h - \mu_c)$, with the means of the classes and one
    covariance within classes, from the training data. Where targets are numbers, there is one mean.

    Args:
        data: a pair (x, y) of training data, in the units of the data.
        shrinkage: share of the covariance that is replaced by its mean diagonal, so that it can be inverted.
    """

    data: tuple[Any, Any]
    shrinkage: float = 1e-6

    def __check_init__(self):
        if not isinstance(self.data, tuple | list) or len(self.data) != 2:
            raise TypeError(f"data must be a pair (x, y), got {type(self.data).__name__}")
        if not 0 <= self.shrinkage <= 1:
            raise ValueError(f"shrinkage must be in [0, 1], got {self.shrinkage!r}")

    def scores(self, posterior: AbstractPosterior, x: Any) -> Float[np.ndarray, " n"]:
        seen = features(posterior, self.data[0])
        labels = _classes_of(posterior, self.data[1], len(seen))
        return class_distances(seen, labels, features(posterior, x), shrinkage=self.shrinkage)


def class_distances(
    seen: Float[np.ndarray, "n f"], labels: np.ndarray, new: Float[np.ndarray, "m f"], *, shrinkage: float
) -> Float[np.ndarray, " m"]:
    """Squared Mahalanobis distances to the nearest class mean, with one covariance within classes.

    >>> seen = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    >>> class_distances(seen, np.zeros(4, int), np.array([[1.0, 1.0], [3.0, 1.0]]), shrinkage=0.0).tolist()
    [0.0, 4.0]
    """
    names, place = np.unique(labels, return_inverse=True)
    means = np.stack([seen[place == i].mean(axis=0) for i in range(len(names))])
    centred = seen - means[place]
    covariance = centred.T @ centred / len(seen)
    width = np.trace(covariance) / len(covariance)
    covariance = (1 - shrinkage) * covariance + shrinkage * width * np.eye(len(covariance))
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise ValueError(
            f"data must have features that vary within classes in every direction, or shrinkage be larger than "
            f"{shrinkage:g}"
        ) from None
    whiten = np.linalg.inv(root).T
    white, centres = new @ whiten, means @ whiten
    return np.min([np.sum((white - centre) ** 2, axis=1) for centre in centres], axis=0)


def features(posterior: AbstractPosterior, x: Any) -> Float[np.ndarray, "n f"]:
    """What comes into the layer that is called last, in float64.

    Args:
        posterior: whose first network is asked.
        x: inputs, as in the training data.
    """
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), posterior.centres(1))
    network = eqx.nn.inference_mode(posterior.model.network_of(params))
    if not layers_of(network):
        raise TypeError(f"network must have linear or convolutional layers to have features: {type(network).__name__}")
    inputs = _standard_inputs(posterior, x)
    size = chunk_size(len(inputs), _ROWS)
    parts = []
    for start in range(0, len(inputs), size):
        rows = np.minimum(np.arange(start, start + size), len(inputs) - 1)
        parts.append(np.asarray(_last_inputs(network, jnp.asarray(inputs[rows])), np.float64)[: len(inputs) - start])
    return np.concatenate(parts)


def mean_logits(posterior: AbstractPosterior, x: Any) -> Float[np.ndarray, "n k"]:
    """Logits averaged over draws; of linearised predictions, those at the means.

    Args:
        posterior: of classes.
        x: inputs, as in the training data.
    """
    model = posterior.model
    if not _outcome(posterior).is_class:
        raise TypeError(
            f"posterior must be of classes for Energy(), got {type(model.likelihood).__name__} targets: use Std()"
        )
    inputs = _standard_inputs(posterior, x)
    linear = posterior.linear_parts()
    if linear is not None:
        parts, log_weights = linear[:2]
        predictive, params = model, jax.tree.map(lambda *leaves: jnp.stack(leaves), *(part.mean for part in parts))
    else:
        key = jax.random.key(0) if posterior.key is None else posterior.key
        predictive, (params, log_weights) = posterior.predictive_model(), posterior.support(None, key=key)
    num = jax.tree.leaves(params)[0].shape[0]
    weights = np.full(num, 1 / num) if log_weights is None else np.exp(log_weights - np.logaddexp.reduce(log_weights))
    workload = measure_workload(predictive, params, jax.eval_shape(lambda: jnp.asarray(inputs[:1])))
    draw_size, row_size = chunk_sizes(num, len(inputs), workload, _MAX_BYTES)
    total = np.zeros((len(inputs), workload.outcome.logits.shape[-1]))
    for begin in range(0, num, draw_size):
        chosen = np.minimum(np.arange(begin, begin + draw_size), num - 1)
        share = np.where(np.arange(begin, begin + draw_size) < num, weights[chosen], 0.0)
        some = jax.tree.map(lambda leaf, chosen=chosen: jnp.asarray(leaf[chosen]), params)
        for start in range(0, len(inputs), row_size):
            rows = np.minimum(np.arange(start, start + row_size), len(inputs) - 1)
            part = np.asarray(_weighted_logits(predictive, some, jnp.asarray(inputs[rows]), jnp.asarray(share)))
            total[start : start + row_size] += part[: len(inputs) - start]
    return total


@eqx.filter_jit
def _weighted_logits(model: Any, params: PyTree, x: Array, weights: Array) -> Float[Array, "n k"]:
    logits = eqx.filter_vmap(lambda p: model.predictive(p, x, key=None).logits)(params)
    return jnp.tensordot(weights.astype(logits.dtype), logits, axes=1)


class _Listener(eqx.Module):
    """A layer that notes what comes in."""

    layer: Any
    heard: list[Array] = eqx.field(static=True)

    def __call__(self, x: Array, *, key: Any = None) -> Array:
        del key
        self.heard.append(x)
        return self.layer(x)


@eqx.filter_jit
def _last_inputs(network: Any, xs: Array) -> Float[Array, "n f"]:
    def one(x: Array) -> Array:
        heard: list[Array] = []
        replace_layers(network, [_Listener(layer, heard) for layer in layers_of(network)])(x)
        return heard[-1].ravel()

    return jax.vmap(one)(xs)


def _outcome(posterior: AbstractPosterior) -> Outcome:
    if posterior.spec is None:
        raise ValueError("this posterior was not made by mx.fit and has no data spec: pass spec= when building it")
    model = posterior.model
    return model.likelihood.outcome(model.output_size(posterior.spec.x_shape, jnp.zeros(0).dtype))


def _standard_inputs(posterior: AbstractPosterior, x: Any) -> np.ndarray:
    if posterior.spec is None:
        raise ValueError("this posterior was not made by mx.fit and has no data spec: pass spec= when building it")
    x = posterior.spec.check_x(x)
    scaling = posterior.spec.scaling
    return np.asarray(x if scaling is None else scaling.transform_x(x))


def _classes_of(posterior: AbstractPosterior, y: Any, num: int) -> np.ndarray:
    """Labels, or one class for everything where targets are not labels."""
    targets = as_numeric(y, name="the y of data")
    if len(targets) != num:
        raise ValueError(f"data must have as many targets as inputs, {num}, got {len(targets)}")
    of_classes = _outcome(posterior).is_class and targets.size == num
    return targets.reshape(num).astype(int) if of_classes else np.zeros(num, int)

"""Out-of-distribution scores that look inside the network: at its logits, and at the inputs of its last layer."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy import special

from marginax.data.arrays import as_numeric
from marginax.evaluate.out_of_distribution import AbstractOODScore
from marginax.model.outcome import Outcome
from marginax.nets.layers import last_layer_inputs, layers_of
from marginax.posterior import AbstractPosterior
from marginax.predict import AbstractFunctions, DrawLoop
from marginax.predict.loop import components


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
    model: Any = posterior.model
    if not layers_of(model.network):
        kind = type(model.network).__name__
        raise TypeError(f"network must have linear or convolutional layers to have features: {kind}")
    spec = posterior.data_spec()
    (found,) = DrawLoop(_Features(model, posterior.starting_points(1)), spec.check_x(x), spec=spec).collect(components)
    return found[0].astype(np.float64)


def mean_logits(posterior: AbstractPosterior, x: Any) -> Float[np.ndarray, "n k"]:
    """Logits averaged over draws; of linearised predictions, those at the means.

    Args:
        posterior: of classes.
        x: inputs, as in the training data.
    """
    spec = posterior.data_spec()
    functions = posterior.functions(key=posterior.prediction_key()).centred()
    loop = DrawLoop(functions, spec.check_x(x), spec=spec)
    if not loop.like.outcome.is_class:
        model: Any = posterior.model
        kind = type(model.likelihood).__name__
        raise TypeError(f"posterior must be of classes for Energy(), got {kind} targets: use Std()")
    num_logits = eqx.filter_eval_shape(lambda like: like.logits, loop.like).shape[-1]
    total = np.zeros((loop.num_rows, num_logits))
    for _, rows, part in loop.run(_weighted_logits):
        total[rows] += np.asarray(part)[: rows.stop - rows.start]
    return total


def _weighted_logits(distributions: PyTree, log_weights: Array) -> Float[Array, "n k"]:
    logits = distributions.logits
    return jnp.tensordot(jnp.exp(log_weights).astype(logits.dtype), logits, axes=1)


class _Features(AbstractFunctions):
    """Networks, as functions that give the input of the layer that is called last."""

    model: Any
    draws: PyTree
    log_weights: np.ndarray | None = None

    def distribution(self, draw: PyTree, x: Array) -> Float[Array, "n f"]:
        return last_layer_inputs(eqx.nn.inference_mode(self.model.network_of(draw)), x)


def _outcome(posterior: AbstractPosterior) -> Outcome:
    if posterior.spec is None:
        raise ValueError("this posterior was not made by mx.fit and has no data spec: pass spec= when building it")
    model: Any = posterior.model
    return model.likelihood.outcome(model.output_size(posterior.spec.x_shape, jnp.zeros(0).dtype))


def _classes_of(posterior: AbstractPosterior, y: Any, num: int) -> np.ndarray:
    """Labels, or one class for everything where targets are not labels."""
    targets = as_numeric(y, name="the y of data")
    if len(targets) != num:
        raise ValueError(f"data must have as many targets as inputs, {num}, got {len(targets)}")
    of_classes = _outcome(posterior).is_class and targets.size == num
    return targets.reshape(num).astype(int) if of_classes else np.zeros(num, int)

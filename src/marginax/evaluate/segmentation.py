r"""How well sampled masks of an image are like those of several graders.

The distance of two masks is $d = 1 - \mathrm{IoU}$, one minus the intersection over the union of their pixels; two
empty masks are the same, at distance 0. Where several images are of one patient, `groups` gives standard errors over
patients.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from scipy.optimize import linear_sum_assignment

from marginax._keys import Key
from marginax.evaluate.score import Score, mean_score, score
from marginax.model.outcome import Outcome

_SAMPLES = 16


@score(
    "energy_distance",
    outcomes=(Outcome.LABELS,),
    better="less",
    title="squared energy distance of masks",
    shown="never",
    words="distance of sampled masks from several graders', by 1 - IoU; lower is better",
)
def energy_distance(
    prediction: Any, y: Any, *, groups: Any = None, num_samples: int = _SAMPLES, key: Key | None = None
) -> Score:
    r"""Squared generalised energy distance, $2 E\,d(S, Y) - E\,d(S, S') - E\,d(Y, Y')$ (Kohl et al., 2018).

    Means are over all pairs, those of a mask with itself included, as published ones are.

    Args:
        prediction: of masks, or samples of them with axes (sample, image, ...).
        y: masks of the graders, axes (image, grader, ...).
        groups: of each image, such as its patient: images of a group are not independent, and standard errors know.
        num_samples: masks to draw from a prediction.
        key: seed of them; not needed for samples.

    >>> graders = [[[1, 1, 0], [0, 0, 0]]]
    >>> same, one = [[[1, 1, 0]], [[0, 0, 0]]], [[[1, 1, 0]]]
    >>> float(energy_distance(same, graders)), float(energy_distance(one, graders))
    (0.0, 0.5)
    """
    samples, masks = _read(prediction, y, num_samples, key)
    return mean_score(energy_distances(samples, masks), name="energy_distance", groups=groups)


@score(
    "hungarian_iou",
    outcomes=(Outcome.LABELS,),
    better="more",
    title="Hungarian-matched IoU",
    shown="never",
    words="IoU of sampled masks with the graders' that they are matched with; higher is better",
)
def hungarian_iou(
    prediction: Any, y: Any, *, groups: Any = None, num_samples: int = _SAMPLES, key: Key | None = None
) -> Score:
    """Mean IoU of the best matching of samples with graders, each as often as needed to make them as many.

    Kohl et al. (2019). Two empty masks have an IoU of 1.

    Args:
        prediction: of masks, or samples of them with axes (sample, image, ...).
        y: masks of the graders, axes (image, grader, ...).
        groups: of each image, as for `energy_distance`.
        num_samples: masks to draw from a prediction.
        key: seed of them; not needed for samples.

    >>> graders = [[[1, 1, 0], [0, 0, 0]]]
    >>> float(hungarian_iou([[[0, 0, 0]], [[1, 0, 0]]], graders))
    0.75
    """
    samples, masks = _read(prediction, y, num_samples, key)
    return mean_score(hungarian_ious(samples, masks), name="hungarian_iou", groups=groups)


def energy_distances(samples: Float[np.ndarray, "s n d"], masks: Float[np.ndarray, "n g d"]) -> Float[np.ndarray, " n"]:
    """The squared distance of every image."""
    values = np.empty(len(masks))
    for i, graders in enumerate(masks):
        drawn = samples[:, i]
        across, within, between = iou(drawn, graders), iou(drawn, drawn), iou(graders, graders)
        values[i] = 2 * (1 - across.mean()) - (1 - within.mean()) - (1 - between.mean())
    return values


def hungarian_ious(samples: Float[np.ndarray, "s n d"], masks: Float[np.ndarray, "n g d"]) -> Float[np.ndarray, " n"]:
    """The mean IoU of matched masks of every image."""
    values = np.empty(len(masks))
    num = math.lcm(len(samples), masks.shape[1])
    for i, graders in enumerate(masks):
        pairs = iou(samples[:, i], graders)
        pairs = np.repeat(np.repeat(pairs, num // len(pairs), 0), num // len(graders), 1)
        values[i] = pairs[linear_sum_assignment(pairs, maximize=True)].mean()
    return values


def iou(first: Shaped[np.ndarray, "s d"], second: Shaped[np.ndarray, "g d"]) -> Float[np.ndarray, "s g"]:
    """Intersection over union of all pairs of masks.

    >>> iou(np.array([[1, 1, 0], [0, 0, 0]]), np.array([[1, 0, 0], [0, 0, 0]])).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    both = first @ second.T
    either = first.sum(1)[:, None] + second.sum(1) - both
    return np.where(either > 0, both / np.maximum(either, 1), 1.0)


def _read(prediction: Any, y: Any, num_samples: int, key: Key | None) -> tuple[np.ndarray, np.ndarray]:
    """Samples (s, n, d) and masks (n, g, d) of 0 and 1."""
    if hasattr(prediction, "outcome"):
        if prediction.outcome is not Outcome.LABELS:
            raise ValueError(f"prediction must be of masks, got a prediction of a {prediction.outcome.value}")
        if key is None:
            raise ValueError("key must be given, as masks are sampled from the prediction: key=0")
        prediction = prediction.sample(num_samples, key=key)
    samples, masks = np.asarray(prediction), np.asarray(y)
    if samples.ndim < 3 or masks.ndim < 3:
        raise ValueError(
            "samples must have axes (sample, image, ...) and y (image, grader, ...), with pixels behind, "
            f"got {samples.shape} and {masks.shape}"
        )
    samples, masks = samples.reshape(*samples.shape[:2], -1), masks.reshape(*masks.shape[:2], -1)
    if samples.shape[1:] != (len(masks), masks.shape[2]):
        raise ValueError(f"samples of {samples.shape[1:]} images and pixels do not fit y of {masks[:, 0].shape}")
    for name, values in (("samples", samples), ("y", masks)):
        if not np.isin(values, (0, 1)).all():
            raise ValueError(f"{name} must hold 0 and 1, got {values[~np.isin(values, (0, 1))][0]}")
    return samples.astype(np.float64), masks.astype(np.float64)

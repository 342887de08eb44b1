"""Scores of sampled masks: by hand, and what they are of."""

import numpy as np
import pytest

import marginax as mx
from marginax.evaluate.score import mean_score
from marginax.evaluate.segmentation import energy_distances, hungarian_ious, iou

A, B, C, NONE = [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]


def test_overlaps_by_hand():
    found = iou(np.array([A, B, NONE]), np.array([A, C, NONE]))
    np.testing.assert_allclose(found, [[1, 0, 0], [0.5, 0, 0], [0, 0, 1]])


def test_energy_distance_by_hand():
    """Samples A, B against graders A, NONE: across 1 - (1 + 0 + .5 + 0) / 4, within .25, between .5."""
    found = mx.evaluate.energy_distance([[A], [B]], [[A, NONE]])
    np.testing.assert_allclose(float(found), 2 * (1 - 1.5 / 4) - 0.25 - 0.5)
    assert float(mx.evaluate.energy_distance([[A], [NONE]], [[NONE, A]])) == 0
    assert float(mx.evaluate.energy_distance([[NONE]], [[NONE, NONE]])) == 0
    np.testing.assert_allclose(float(mx.evaluate.energy_distance([[A]], [[C, C, C]])), 2)


def test_matching_by_hand():
    """Each grader goes to as many samples as the other: greedy matching of the first sample would be worse."""
    found = mx.evaluate.hungarian_iou([[A], [B]], [[A, C]])
    np.testing.assert_allclose(float(found), max(1 + 0, 0 + 0.5) / 2)
    found = mx.evaluate.hungarian_iou([[A], [B], [B], [NONE]], [[B, NONE]])
    np.testing.assert_allclose(float(found), (1 + 1 + 1 + 0) / 4)
    found = mx.evaluate.hungarian_iou([[A], [B], [NONE]], [[A, NONE]])  # three by two: each counts as six
    np.testing.assert_allclose(float(found), (2 * 1 + 2 * 1 + 0.5 + 0) / 6)


def test_images_are_apart_and_masks_may_have_any_shape():
    rng = np.random.default_rng(0)
    samples, masks = rng.integers(0, 2, (5, 7, 3, 2)), rng.integers(0, 2, (7, 4, 3, 2))
    flat = samples.reshape(5, 7, 6).astype(float), masks.reshape(7, 4, 6).astype(float)
    for score, each in (
        (mx.evaluate.energy_distance, energy_distances),
        (mx.evaluate.hungarian_iou, hungarian_ious),
    ):
        alone = [float(score(samples[:, i : i + 1], masks[i : i + 1])) for i in range(7)]
        np.testing.assert_allclose(each(*flat), alone)
        found = score(samples, masks)
        np.testing.assert_allclose(found.value, np.mean(alone))
        np.testing.assert_allclose(found.standard_error, np.std(alone, ddof=1) / np.sqrt(7))


def test_standard_errors_over_groups():
    rng = np.random.default_rng(0)
    values = rng.normal(size=5)
    repeated, groups = np.repeat(values, 4), np.repeat(np.arange(5), 4)
    single = mean_score(values, name="it")
    found = mean_score(repeated, name="it", groups=groups)
    np.testing.assert_allclose((found.value, found.standard_error), (single.value, single.standard_error))
    apart = mean_score(repeated, name="it", groups=np.arange(20))
    np.testing.assert_allclose(apart.standard_error, mean_score(repeated, name="it").standard_error)
    with pytest.raises(ValueError, match="groups must have one entry for each of the 5 rows"):
        mean_score(values, name="it", groups=[0, 1])


def test_the_standard_error_over_groups_of_unequal_size_is_that_of_repetition():
    rng = np.random.default_rng(0)
    sizes = np.array([1, 2, 3, 6] * 50)
    groups = np.repeat(np.arange(200), sizes)
    found = []
    for _ in range(400):
        values = rng.normal(size=200)[groups] + 0.5 * rng.normal(size=len(groups))
        found.append(mean_score(values, name="it", groups=groups))
    spread, said = np.std([s.value for s in found]), np.mean([s.standard_error for s in found])
    assert abs(said / spread - 1) < 4.9 / np.sqrt(2 * 400)


def test_what_does_not_fit_is_named():
    score = mx.evaluate.energy_distance
    with pytest.raises(ValueError, match=r"axes \(sample, image, ...\) and y \(image, grader, ...\)"):
        score([A, B], [[A]])
    with pytest.raises(ValueError, match="do not fit y"):
        score([[A]], [[A[:3]]])
    with pytest.raises(ValueError, match="samples must hold 0 and 1, got 2"):
        score([[[2, 0]]], [[[1, 0]]])
    x = np.zeros((4, 1))
    network = mx.nets.MLP(1, (), 2, key=0)
    posterior = mx.fit(
        mx.Model(network, mx.likelihoods.Bernoulli()),
        (x, np.eye(4, 2, dtype=int)),
        mx.infer.MAP(num_epochs=1),
        key=0,
        progress=False,
    )
    masks = np.ones((4, 3, 2), int)
    with pytest.raises(ValueError, match="key must be given"):
        score(posterior.predict(x), masks)
    first = score(posterior.predict(x), masks, num_samples=5, key=3)
    drawn = posterior.predict(x).sample(5, key=3)
    assert first == score(drawn, masks)

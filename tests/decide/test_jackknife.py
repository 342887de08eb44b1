"""Jackknife+: the interval of its definition, with coverage of about the level, never below 2 level - 1."""

import jax.numpy as jnp
import numpy as np
import pytest

from marginax.decide import jackknife, jackknife_plus
from marginax.files import load_tree, save_tree
from marginax.model.distributions import Normal
from marginax.predict import RegressionPrediction
from marginax.predict.mixture import Mixture

NUM, SIZE, NUM_NEW = 40, 5, 50


def data(rng, num):
    x = rng.normal(size=(num, SIZE))
    return x, x @ np.arange(SIZE) + rng.standard_t(3, size=num)


def fit(x, y):
    return np.linalg.lstsq(x, y, rcond=None)[0]


def members(rng, x, y, sampling):
    """Coefficients of models (members, SIZE), and which rows each has seen."""
    num = len(y)
    if sampling == "one out":
        rows = [np.delete(np.arange(num), i) for i in range(num)]
    elif sampling == "folds":
        rows = [np.setdiff1d(np.arange(num), fold) for fold in np.array_split(rng.permutation(num), 8)]
    else:
        rows = [rng.integers(num, size=num) for _ in range(25)]
    return np.stack([fit(x[each], y[each]) for each in rows]), np.stack([np.isin(np.arange(num), r) for r in rows])


def by_definition(predictions, y, seen, new, level):
    """In loops, with the order statistics of Barber et al."""
    num, ends = len(y), []
    without = [[predictions[b] for b in range(len(seen)) if not seen[b, i]] for i in range(num)]
    new_without = [[new[b] for b in range(len(seen)) if not seen[b, i]] for i in range(num)]
    residuals = [abs(y[i] - np.mean([p[i] for p in without[i]])) for i in range(num)]
    for j in range(new.shape[1]):
        centres = [np.mean([p[j] for p in new_without[i]]) for i in range(num)]
        below = sorted(c - r for c, r in zip(centres, residuals, strict=True))
        above = sorted(c + r for c, r in zip(centres, residuals, strict=True))
        ends.append(
            (
                below[int(np.floor((num + 1) * (1 - level) + 1e-9)) - 1],
                above[int(np.ceil((num + 1) * level - 1e-9)) - 1],
            )
        )
    return np.transpose(ends)


def check_definition(sampling, level):
    rng = np.random.default_rng(0)
    (x, y), (new, _) = data(rng, NUM), data(rng, 10)
    weights, seen = members(rng, x, y, sampling)
    ours = jackknife_plus(weights @ x.T, y, seen).interval(weights @ new.T, level)
    np.testing.assert_allclose(ours, by_definition(weights @ x.T, y, seen, weights @ new.T, level))
    if sampling == "one out":
        of_each = np.einsum("nd,nd->n", weights, x)
        np.testing.assert_allclose(jackknife_plus(of_each, y).interval(weights @ new.T, level), ours)


@pytest.mark.parametrize("sampling", ["one out", "folds", "bootstrap"])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_intervals_are_those_of_the_definition(sampling, level, monkeypatch):
    monkeypatch.setattr(jackknife, "_CHUNK", 3 * NUM)  # several chunks of new inputs
    check_definition(sampling, level)


@pytest.mark.parametrize("sampling", ["one out", "folds", "bootstrap"])
@pytest.mark.parametrize("level", [0.6, 0.9])
def test_coverage_is_about_the_level(sampling, level):
    rng, coverage = np.random.default_rng(0), []
    for _ in range(200):
        (x, y), (new, y_new) = data(rng, NUM), data(rng, NUM_NEW)
        weights, seen = members(rng, x, y, sampling)
        lower, upper = jackknife_plus(weights @ x.T, y, seen).interval(weights @ new.T, level)
        coverage.append(np.mean((lower <= y_new) & (y_new <= upper)))
    error = np.std(coverage) / np.sqrt(len(coverage))
    assert np.mean(coverage) > 2 * level - 1
    assert abs(np.mean(coverage) - level) < 0.02 + 4.9 * error


def test_memorising_models_are_covered_too():
    # Nearest neighbours fit the training rows exactly, so that naive residuals are all zero.
    rng, coverage = np.random.default_rng(0), []
    for _ in range(100):
        (x, y), (new, y_new) = data(rng, NUM), data(rng, NUM_NEW)
        apart = np.linalg.norm(x[:, None] - x, axis=-1)
        np.fill_diagonal(apart, np.inf)
        nearest = y[np.argmin(apart, axis=1)]
        to_new = np.linalg.norm(x[:, None] - new, axis=-1)
        at_new = np.stack(
            [y[np.argmin(np.where(np.arange(NUM)[:, None] == i, np.inf, to_new), axis=0)] for i in range(NUM)]
        )
        lower, upper = jackknife_plus(nearest, y).interval(at_new, 0.9)
        coverage.append(np.mean((lower <= y_new) & (y_new <= upper)))
    assert np.mean(coverage) > 0.8


def test_draws_of_a_prediction_are_members():
    rng = np.random.default_rng(0)
    (x, y), (new, _) = data(rng, NUM), data(rng, 10)
    weights, seen = members(rng, x, y, "bootstrap")

    def predict(inputs):
        means = (weights @ inputs.T)[:, :, None]
        mixture = Mixture(
            Normal(jnp.asarray((means - 3) / 2, jnp.float32), jnp.ones(means.shape)),
            (True, True),
            np.full(25, -np.log(25)),
            len(inputs),
            10**8,
        )
        return RegressionPrediction(mixture, (), y_shift=np.array(3.0), y_factor=np.array(2.0))

    ours = jackknife_plus(predict(x), y, seen).interval(predict(new), 0.8)
    expected = jackknife_plus(weights @ x.T, y, seen).interval(weights @ new.T, 0.8)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_it_can_be_stored(tmp_path):
    rng = np.random.default_rng(0)
    calibrated = jackknife_plus(rng.normal(size=20), rng.normal(size=20))
    save_tree(tmp_path / "kept", "conformal", calibrated)
    new = rng.normal(size=(20, 3))
    assert np.array_equal(load_tree(tmp_path / "kept", "conformal").interval(new), calibrated.interval(new))


def test_too_few_rows_give_infinite_intervals():
    calibrated = jackknife_plus(np.zeros(8), np.arange(8.0))
    with pytest.warns(
        UserWarning, match=r"level=0\.9 needs 9 training rows or more, got 8: the intervals are infinite"
    ):
        assert np.isinf(calibrated.interval(np.zeros((8, 2)), 0.9)).all()


def test_bad_arguments_are_refused():
    seen = np.ones((3, 20), bool)
    seen[0, 4:] = False
    for arguments, message in (
        ((np.zeros(20), np.zeros(19)), r"y must have shape \(20,\)"),
        ((np.full(20, np.nan), np.zeros(20)), "predictions has 20 values that are NaN or infinite, the first in row 0"),
        ((np.zeros((3, 20)), np.zeros(20)), r"or \(members, n\) with seen=, got \(3, 20\) and seen=None"),
        ((np.zeros(20), np.zeros(20), seen), r"got \(20,\) and seen=an array"),
        ((np.zeros((3, 20)), np.zeros(20), seen.astype(int)), "seen must be boolean of shape"),
        ((np.zeros((3, 20)), np.zeros(20), seen[:2]), r"seen must be boolean of shape \(3, 20\)"),
        ((np.zeros((3, 20)), np.zeros(20), seen), "all members saw row 0 and 3 others: use more members"),
    ):
        with pytest.raises(ValueError, match=message):
            jackknife_plus(*arguments)
    calibrated = jackknife_plus(np.zeros(20), np.zeros(20))
    with pytest.raises(ValueError, match=r"predictions must have shape \(20, m\), one row per member, got \(5, 20\)"):
        calibrated.interval(np.zeros((5, 20)))
    with pytest.raises(ValueError, match="level must be a number strictly between 0 and 1, got 2"):
        calibrated.interval(np.zeros((20, 5)), 2.0)
    two = Mixture(Normal(jnp.zeros((1, 4, 2)), jnp.ones((1, 4, 2))), (True, True), np.zeros(1), 4, 10**6)
    with pytest.raises(ValueError, match="predictions must have one output, got RegressionPrediction"):
        jackknife_plus(RegressionPrediction(two, (2,)), np.zeros(4))

"""What a prediction has to beat: known answers of the constant and of the linear model."""

import numpy as np
import pytest

from marginax.evaluate import baselines, scores


def test_a_linear_truth_is_found_with_its_noise():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 3)) * [1.0, 100.0, 0.01] + 7
    y = x @ [1.0, 0.02, 30.0] + 0.5 * rng.normal(size=2000)
    found = baselines((x[:1500], y[:1500]), x[1500:])
    mean, std = found["constant"]
    np.testing.assert_allclose([mean[0], std[0]], [y[:1500].mean(), y[:1500].std(ddof=1)])
    mean, std = found["linear"]
    np.testing.assert_allclose(std, 0.5, rtol=0.06)
    assert np.sqrt(np.mean((mean - y[1500:]) ** 2)) < 0.55
    assert scores(found["linear"], y[1500:])["nll"] < scores(found["constant"], y[1500:])["nll"]


def test_useless_inputs_are_as_good_as_a_constant():
    """Thirty columns of noise for forty rows: a least-squares fit would be far worse than the mean."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(240, 30)), rng.normal(size=240)
    found = baselines((x[:40], y[:40]), x[40:])
    errors = {name: scores(each, y[40:])["rmse"].value for name, each in found.items()}
    assert errors["linear"] < 1.15 * errors["constant"]


def test_outputs_have_their_own_noise():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(800, 2))
    y = np.stack([x[:, 0] + 0.1 * rng.normal(size=800), 5 * x[:, 1] + 2.0 * rng.normal(size=800)], axis=1)
    _, std = baselines((x, y), x[:3])["linear"]
    np.testing.assert_allclose(std, [[0.1, 2.0]] * 3, rtol=0.1)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_classes_have_their_rates_and_a_logistic_regression(num_classes):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(600, 2))
    y = np.minimum((x[:, 0] + 0.3 * rng.normal(size=600) > 0.5) * 1 + (x[:, 0] > 1.2), num_classes - 1)
    found = baselines((x[:400], y[:400]), x[400:], num_classes=num_classes)
    np.testing.assert_allclose(found["constant"][0], np.bincount(y[:400]) / 400, atol=0.003)
    table = {name: scores(each, y[400:]) for name, each in found.items()}
    assert table["constant"]["accuracy"].value == np.mean(y[400:] == np.bincount(y[:400]).argmax())
    assert table["linear"]["accuracy"] > table["constant"]["accuracy"].value + 0.1
    assert table["linear"]["nll"] < table["constant"]["nll"]


def test_a_class_without_training_rows_has_some_probability():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(50, 2)), rng.integers(0, 2, size=50)
    for probs in baselines((x, y), x[:4], num_classes=3).values():
        assert probs.shape == (4, 3)
        assert (probs > 0).all()
        np.testing.assert_allclose(probs.sum(axis=1), 1)


def test_images_have_only_the_constant():
    found = baselines((np.zeros((6, 4, 4)), np.arange(6.0)), np.zeros((2, 4, 4)))
    assert list(found) == ["constant"]

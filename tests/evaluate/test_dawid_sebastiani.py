"""The Dawid-Sebastiani score: against the normal density, proper, and found wherever scores are."""

import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.evaluate import dawid_sebastiani, nll

RNG = np.random.default_rng(0)


def test_of_normals_it_is_twice_the_negative_log_density_without_its_constant():
    mean, std, y = RNG.normal(size=50), RNG.uniform(0.2, 3.0, 50), RNG.normal(size=50)
    found, density = dawid_sebastiani((mean, std), y), nll((mean, std), y)
    np.testing.assert_allclose(float(found), 2 * float(density) - np.log(2 * np.pi), rtol=1e-12)
    np.testing.assert_allclose(found.standard_error, 2 * density.standard_error, rtol=1e-12)


@pytest.mark.parametrize(("shift", "factor"), [(0.3, 1.0), (0.0, 0.7), (0.0, 1.4)])
def test_the_truth_scores_best(shift, factor):
    y = RNG.normal(size=20_000)
    zeros, ones = np.zeros(len(y)), np.ones(len(y))
    assert float(dawid_sebastiani((zeros, ones), y)) < float(dawid_sebastiani((zeros + shift, factor * ones), y))


def test_samples_have_it_and_points_do_not():
    samples = RNG.normal(size=(5000, 3))
    assert abs(float(dawid_sebastiani(samples, np.zeros(3)))) < 0.1
    with pytest.raises(ValueError, match="standard deviations > 0"):
        dawid_sebastiani(samples[:1], np.zeros(3))


@pytest.mark.slow
def test_tables_comparisons_and_reports_find_it():
    x = np.linspace(-1, 1, 40)[:, None]
    model = mx.Model(mx.nets.MLP(1, (), 1, activation=jnp.tanh, key=0), mx.likelihoods.Gaussian(scale=0.1))
    method = mx.infer.MAP(num_epochs=20)
    comparison = mx.evaluate.compare(model, (x, x[:, 0]), [method], test=(x, x[:, 0]), key=0)
    assert "dawid_sebastiani" in comparison["MAP"].scores
    assert comparison.best("dawid_sebastiani") == "MAP"
    assert mx.evaluate.registered_scores()["dawid_sebastiani"].better == "less"

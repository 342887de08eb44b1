"""Draws of programs: what decides them, what they are given, and what cannot be drawn."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.model.test_program import coin, everything, schools, shared_switch

import marginax as mx

SEEN = {"x": np.array([1.8, 2.2, 2.4, -0.3], np.float32)}
CENTRE, NUM = 2.0, 4000


def log_normal(x, centre):
    return -0.5 * (x - centre) ** 2


def prob_of_sign():
    """Of the switch being on, given the centre and the data, by summing labels by hand."""
    weights = []
    for prior, p in ((0.7, 0.2), (0.3, 0.7)):
        rows = (1 - p) * np.exp(log_normal(SEEN["x"], 0.0)) + p * np.exp(log_normal(SEEN["x"], CENTRE))
        weights.append(prior * np.prod(rows))
    return weights[1] / sum(weights)


def switches():
    program = mx.Program(shared_switch).bind(SEEN)
    return mx.posterior.Draws(program, {"centre": np.full((1, NUM), CENTRE)})


def test_discrete_sites_that_all_examples_share_are_drawn_given_the_data():
    drawn = switches().sample_predictive({"x": np.zeros(7)}, data=SEEN, key=0)
    prob = prob_of_sign()
    assert abs(prob - 0.3) > 0.1  # so that the prior is another law
    np.testing.assert_allclose(drawn["sign"].mean(), prob, atol=4.9 * np.sqrt(prob * (1 - prob) / NUM))
    on = drawn["sign"] == 1
    for chosen, p in ((on, 0.7), (~on, 0.2)):  # new labels go with the switch that was drawn
        labels = drawn["label"][chosen]
        np.testing.assert_allclose(labels.mean(), p, atol=4.9 * np.sqrt(p * (1 - p) / labels.size))


def test_without_the_data_such_sites_are_refused():
    with pytest.raises(ValueError, match=r"'sign' is discrete and shared by all examples.* pass data="):
        switches().sample_predictive({"x": np.zeros(7)})
    with pytest.raises(ValueError, match=r"data must be those of the fit, where 'x' has shape \(4,\), got \(2,\)"):
        switches().sample_predictive({"x": np.zeros(7)}, data={"x": np.zeros(2)})
    posterior = mx.posterior.Draws(mx.Program(coin).bind({"flips": np.ones(3)}), {"heads_prob": np.zeros((1, 2))})
    with pytest.raises(ValueError, match="data must be left out"):
        posterior.sample_predictive({"flips": np.ones(3)}, data={"flips": np.ones(3)})


def test_the_key_decides_unknowns_and_observations():
    program = mx.Program(coin).bind({"flips": np.ones(3)})
    posterior = mx.posterior.Draws(program, {"heads_prob": np.linspace(-1, 1, 200)[None]})

    def draw(key):
        return posterior.sample_predictive({"flips": np.zeros(20)}, num_samples=20, key=key)

    one, again, other = draw(1), draw(1), draw(2)
    for name in ("odds", "heads"):
        np.testing.assert_array_equal(one[name], again[name])
        assert not np.array_equal(one[name], other[name])
    unknowns = posterior.sample(20, key=1)["heads_prob"]
    np.testing.assert_allclose(one["odds"], unknowns / (1 - jnp.asarray(unknowns)), rtol=1e-5)


def test_draws_of_an_improper_prior_are_refused_by_name():
    with pytest.raises(ValueError, match=r"'ordered' has an improper prior \(ImproperUniform\)"):
        mx.Program(everything).prior_predictive(3, key=0)


def test_a_batch_size_for_a_program_that_sees_all_data_at_once_is_refused():
    data = {"errors": np.ones(8), "effects": np.arange(8.0)}
    with pytest.raises(ValueError, match=r"batch_size must be left out or None .* got 4: put what is observed"):
        mx.fit(mx.Program(schools), data, mx.infer.MAP(batch_size=4), key=0)
    for method in (mx.infer.MAP(num_epochs=2), mx.infer.MAP(num_epochs=2, batch_size=None)):
        assert mx.fit(mx.Program(schools), data, method, key=0, progress=False).record.finished

"""Is the mixture of chains stable? What another seed would change, what is said about it, and where."""

import jax
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.data import DataSpec
from marginax.evaluate import diagnose_chains
from marginax.evaluate.remedies import COMMAND_LINE
from marginax.evaluate.stability import MOST_NATS, measure_stability
from marginax.posterior import Draws, FitRecord
from marginax.posterior.summary import summarise

X = np.linspace(-1, 1, 8, dtype=np.float32)[:, None]


MODELS = {
    scale: mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=scale))
    for scale in (0.3, 1.0, 1.5, 20.0)
}


def _posterior(heights, *, scale=1.0, num_steps=None):
    """Networks that say the same everywhere, (chain, draw); one number per chain has draws around it."""
    heights = np.asarray(heights, np.float32)
    if heights.ndim == 1:
        heights = heights[:, None] + 0.1 * np.random.default_rng(0).normal(size=(len(heights), 200))
    model = MODELS[scale]
    start = model.initial(1)
    leaves = [np.zeros((*heights.shape, 1, 1), np.float32), np.asarray(heights, np.float32)[:, :, None]]
    params = type(start)(jax.tree.unflatten(jax.tree.structure(start.network), leaves), start.likelihood, start.prior)
    record = FitRecord(method="?", num_steps=num_steps or {"sample": 200}, probes=X)
    return Draws(model, params, DataSpec(x_shape=(1,), y_shape=(), num_examples=8), record)


TRAINED = {"train": 100, "sample": 200}


def _two_seeds(first, second, scale=1.0):
    """Exactly what a second ensemble of constants changes: the mean over targets of the first."""
    y = np.linspace(-8, 8, 801)

    def log_density(heights):
        return np.logaddexp.reduce(stats.norm.logpdf(y[:, None], heights.ravel(), scale), axis=1) - np.log(heights.size)

    weight = np.exp(log_density(first))
    return np.sum(weight * np.abs(log_density(first) - log_density(second))) / np.sum(weight)


@pytest.mark.parametrize("num_members", [4, 5, 10])
def test_the_number_is_what_another_seed_changes(num_members):
    """Members that are normal around 0: two ensembles of them differ, on average, as much as one of them says."""
    rng = np.random.default_rng(0)
    heights = rng.normal(size=(10, num_members, 1))
    said = [measure_stability(_posterior(each), X, None) for each in heights]
    found = [_two_seeds(*rng.normal(size=(2, num_members))) for _ in range(300)]
    assert 0.6 < np.mean(said) / np.mean(found) < 1.4  # halves of two members say a little less


def test_more_members_are_stabler_by_the_square_root():
    rng = np.random.default_rng(1)
    few, many = (
        np.mean([measure_stability(_posterior(rng.normal(size=(num, 1))), X, None) for _ in range(6)])
        for num in (10, 160)
    )
    assert 3 < few / many < 6


def test_inputs_in_the_units_of_the_data_give_the_same_number():
    posterior = _posterior([0.0, 0.3, -0.2, 0.5])
    spec = DataSpec((1,), (), 8, mx.data.Scaling(np.array([100.0], np.float32), np.array([10.0], np.float32)))
    here, there = measure_stability(posterior, X, None), measure_stability(posterior, 100 + 10 * X, spec)
    np.testing.assert_allclose(here, there, rtol=1e-3)


def test_one_chain_is_compared_with_itself():
    still = np.random.default_rng(0).normal(size=(1, 401))
    drifting = still + np.linspace(0, 4, 401)
    assert measure_stability(_posterior(still), X, None) < MOST_NATS
    assert measure_stability(_posterior(drifting), X, None) > MOST_NATS


def test_classes_are_compared_too():
    model = mx.Model(mx.nets.MLP(1, (), 3, key=0), likelihood=mx.likelihoods.Categorical())
    rng = np.random.default_rng(0)
    draw = {
        size: jax.tree.map(lambda leaf: (size * rng.normal(size=(6, 1, *leaf.shape))).astype(np.float32), start)  # noqa: B023
        for start in [model.initial(3)]
        for size in (0.01, 2.0)
    }
    record = FitRecord(probes=X)
    calm, wild = (measure_stability(Draws(model, draw[size], record=record), X, None) for size in (0.01, 2.0))
    assert calm < 0.02 < MOST_NATS < wild


# ---- what is said


def test_members_that_differ_are_fine_where_their_mixture_is_stable():
    """Modes and R-hat of an ensemble whose members became chains are as they should be."""
    posterior = _posterior(np.repeat([-0.25, 0.25], 5), num_steps=TRAINED)
    found = diagnose_chains(posterior)
    assert found.predictions.worst_r_hat > 1.5
    assert len(found.modes) > 1
    assert found.stability < MOST_NATS
    assert found.warnings == ()
    assert f"known to {found.stability:.2g} nats" in found.notes[-1]
    assert "another seed would change log predictive densities by" in str(posterior.summary())


def test_the_same_chains_of_a_sampler_are_flagged():
    """One that claims to draw from one distribution sits in several modes, however little that matters at the data."""
    warnings = diagnose_chains(_posterior(np.repeat([-0.25, 0.25], 5))).warnings
    assert any("separate modes" in text for text in warnings)


@pytest.mark.parametrize("trained", [True, False])
def test_a_mixture_that_depends_on_the_seed_is_a_warning_with_what_helps(trained):
    posterior = _posterior(
        np.random.default_rng(0).normal(size=(4, 1 if trained else 50)).cumsum(axis=1),
        scale=0.3,
        num_steps=TRAINED if trained else None,
    )
    in_python, on_the_line = (
        "\n".join(posterior.summary().warnings),
        "\n".join(summarise(posterior, COMMAND_LINE).warnings),
    )
    assert "another" in in_python
    if trained:
        assert "(num_chains=16)" in in_python
        assert "(--chains 16)" in on_the_line
    else:
        assert "num_samples=100" in in_python
        assert "--option num_samples=100" in on_the_line
        assert "(--seed)" in on_the_line
    assert "num_chains=" not in on_the_line
    assert "init=" not in on_the_line


def test_the_chains_that_are_asked_for_are_enough():
    """As many as are said bring the number to the limit."""
    rng = np.random.default_rng(3)
    few = _posterior(0.5 * rng.normal(size=(5, 1)), scale=1.5)
    wanted = int(summarise(few).warnings[0].split("num_chains=")[1].rstrip(")"))
    many = np.mean(
        [measure_stability(_posterior(0.5 * rng.normal(size=(wanted, 1)), scale=1.5), X, None) for _ in range(4)]
    )
    assert wanted > 5
    assert 0.4 * MOST_NATS < many < 1.6 * MOST_NATS


def test_a_slight_disagreement_of_a_sampler_is_a_note_and_a_gross_one_a_warning():
    """Large noise hides both from the predictive density, but the epistemic part is wrong in the second."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4, 200))
    slight, gross = (
        diagnose_chains(_posterior(draws + size * np.array([[-1.0], [0.0], [0.5], [1.0]]), scale=20.0))
        for size in (0.5, 0.8)
    )
    assert 1.05 < slight.predictions.worst_r_hat < 1.1 < gross.predictions.worst_r_hat
    assert max(slight.stability, gross.stability) < MOST_NATS
    assert slight.warnings == ()
    assert "less than would change an answer" in slight.notes[-1]
    assert "chains disagree in their predictions" in gross.warnings[0]


def test_models_that_predict_nothing_have_no_number():
    density = mx.Density(lambda z: -0.5 * z @ z, np.zeros(2, np.float32))
    draws = np.random.default_rng(0).normal(size=(4, 50, 2)).astype(np.float32)
    assert measure_stability(Draws(density, draws), X, None) is None
    assert diagnose_chains(Draws(density, draws)).stability is None

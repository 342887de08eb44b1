"""What every prediction offers, whatever it is made of; and what users pass in its place."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.evaluate.laws import predict_classes, predict_law, some_classes, some_params

from marginax.model import Outcome
from marginax.model import distributions as dist
from marginax.model.distributions import Normal
from marginax.predict import (
    AbstractPrediction,
    ClassificationPrediction,
    NormalPrediction,
    RegressionPrediction,
    SampledPrediction,
    read_prediction,
)
from marginax.predict.mixture import Mixture
from marginax.predict.reading import as_given, outcome_of, read_classes, read_draw_probs, read_numbers
from marginax.predict.recalibrated import RecalibratedPrediction

N = 6
NUMBERS = {
    "mixture": lambda: predict_law(dist.Normal, *some_params(3, N)),
    "counts": lambda: predict_law(dist.Poisson, np.full((2, N, 1), 3.0, np.float32)),
    "normal": lambda: NormalPrediction(np.arange(6.0), np.ones(N)),
    "samples": lambda: SampledPrediction(np.random.default_rng(0).normal(size=(50, N))),
    "recalibrated": lambda: RecalibratedPrediction(
        NormalPrediction(np.zeros(N), np.ones(N)), np.array([0.2, 0.8]), np.array([0.3, 0.7])
    ),
}
CLASSES = {
    "classes": lambda: predict_law(dist.Bernoulli, np.random.default_rng(0).normal(size=(3, N, 1)).astype(np.float32)),
    "labels": lambda: predict_law(dist.Bernoulli, jnp.ones((2, N, 2)), several=True),
    "probabilities": lambda: ClassificationPrediction.from_probs(some_classes(N, 3)[0]),
}
OUTCOMES = {"counts": Outcome.COUNT, "classes": Outcome.CLASS, "probabilities": Outcome.CLASS, "labels": Outcome.LABELS}


@pytest.mark.parametrize("kind", [*NUMBERS, *CLASSES])
def test_all_share_the_protocol(kind):
    prediction = {**NUMBERS, **CLASSES}[kind]()
    assert isinstance(prediction, AbstractPrediction)
    assert prediction.outcome is OUTCOMES.get(kind, Outcome.REAL)
    assert len(prediction) == N
    assert len(prediction[2:4]) == 2
    assert prediction.num_draws >= 1
    assert type(prediction).__name__ in repr(prediction)
    np.testing.assert_allclose(prediction.std**2, prediction.variance, rtol=1e-9)
    drawn = prediction.sample(4000, key=0)
    assert drawn.shape[1] == N
    if prediction.outcome.is_number or prediction.outcome is Outcome.LABELS:
        np.testing.assert_allclose(drawn.std(axis=0), prediction.std, rtol=0.15)
    else:
        indicators = drawn[..., None] == np.arange(prediction.num_classes)
        np.testing.assert_allclose(indicators.std(axis=0), prediction.std, atol=0.05)
    y = prediction.check(drawn[0])
    if kind != "samples":
        assert prediction.log_prob(y).shape == (N,)


@pytest.mark.parametrize("kind", [*NUMBERS, *CLASSES])
def test_parts_are_there_or_say_what_to_do(kind):
    prediction = {**NUMBERS, **CLASSES}[kind]()
    if prediction.knows_draws:
        total = prediction.variance if prediction.outcome.is_number else prediction.entropy
        np.testing.assert_allclose(prediction.epistemic + prediction.aleatoric, total, rtol=1e-5)
        assert (prediction.epistemic_variance <= prediction.variance + 1e-9).all()
    else:
        remedy = "use std" if prediction.outcome.is_number else r"use entropy, .* shape \(s, n, k\)"
        for name in ("epistemic", "aleatoric", "epistemic_variance"):
            with pytest.raises(TypeError, match=f"must know its draws to have .*: {remedy}"):
                getattr(prediction, name)


def test_distribution_functions_of_many_rows_are_those_of_their_blocks(monkeypatch):
    """256 rows at a time, the last block being shorter; a row may appear often."""
    monkeypatch.setattr("marginax.predict.mixture._BLOCK_BYTES", 1)
    prediction = predict_law(dist.Normal, *some_params(3, N))
    rows = np.random.default_rng(0).integers(0, N, 600)
    points = np.random.default_rng(1).normal(size=(600, 2))
    found = prediction.cdf_at(rows, points)
    assert found.shape == (600, 2)
    for row in range(N):
        one = rows == row
        expected = np.stack([prediction[row : row + 1].cdf(np.array([y])) for y in points[one, 0]])
        np.testing.assert_allclose(found[one, 0], expected[:, 0], rtol=1e-6)


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_have_quantiles_and_distribution_functions(kind):
    prediction = NUMBERS[kind]()
    lower, upper = prediction.interval(0.8)
    np.testing.assert_allclose(prediction.quantile([0.1, 0.9]), [lower, upper], rtol=1e-9)
    lower -= 100
    assert (prediction.interval(0.8)[0] > lower).all()  # what was given out may be changed
    y = prediction.quantile(0.5)
    rows = np.arange(N)
    np.testing.assert_allclose(prediction.cdf_at(rows, y[:, None])[:, 0], prediction.cdf(y), rtol=1e-9)
    assert (prediction.cdf_below(y) <= prediction.cdf(y)).all()
    if prediction.can_scale:
        wide = prediction.scaled(2.0)
        np.testing.assert_allclose(wide.mean, prediction.mean, atol=1e-5)
        np.testing.assert_allclose(wide.std, 2 * prediction.std, rtol=1e-5)
    else:
        with pytest.raises(TypeError, match="to be scaled"):
            prediction.scaled(2.0)


def test_normals_are_those_of_scipy():
    mean, std, y = np.array([0.0, 2.0]), np.array([1.0, 0.5]), np.array([0.3, 1.0])
    normal, law = NormalPrediction(mean, std), stats.norm(mean, std)
    np.testing.assert_allclose(normal.log_prob(y), law.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(normal.cdf(y), law.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(normal.quantile([0.1, 0.7]), law.ppf(np.array([[0.1], [0.7]])), rtol=1e-12)


@pytest.mark.parametrize("shared", [False, True], ids=["noise by row", "one noise for all rows"])
def test_rows_that_are_averaged_are_the_mean_of_their_distributions(shared):
    """Also where draws have weights: a row of several is their mixture under each draw, with that draw's weight."""
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=(3, 4, 1)), np.exp(rng.normal(size=(3, 1) if shared else (3, 4, 1)))
    weights = np.array([0.6, 0.3, 0.1])
    normals = Normal(jnp.zeros(()), jnp.ones(()))
    normals = eqx.tree_at(lambda n: (n.loc, n.scale), normals, (loc, scale))  # on the host, as predictions are
    prediction = RegressionPrediction(Mixture(normals, (True, not shared), np.log(weights), 4, 10**6), ())
    found = prediction.averaged(2)
    scales = np.broadcast_to(scale[:, None] if shared else scale, loc.shape)
    by_hand = np.tensordot(weights, stats.norm.cdf(0.3, loc, scales)[..., 0], 1).reshape(2, 2).mean(axis=1)
    np.testing.assert_allclose(found.cdf(np.full(2, 0.3)), by_hand, rtol=1e-5)
    np.testing.assert_allclose(found.mean, np.tensordot(weights, loc[..., 0], 1).reshape(2, 2).mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(found.aleatoric, (weights @ (scales[..., 0] ** 2)).reshape(2, 2).mean(axis=1), rtol=1e-5)


def test_probabilities_of_draws_are_averaged():
    draws = np.stack([some_classes(N, 3, seed=seed)[0] for seed in range(4)])
    prediction = read_classes(draws, name="BALD()", by_draw=True)
    np.testing.assert_allclose(prediction.probs, draws.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(prediction.epistemic_variance, draws.var(axis=0), rtol=1e-9)
    np.testing.assert_allclose(prediction.expected_entropy, -(draws * np.log(draws)).sum(-1).mean(0), rtol=1e-9)
    assert prediction.num_draws == 4
    assert read_draw_probs(draws).shape == draws.shape
    with pytest.raises(ValueError, match="average over draws first"):
        read_classes(draws, name="accuracy")


def test_arrays_are_read_as_what_they_say():
    probs, labels = some_classes(N, 3)
    assert read_prediction(probs, labels).outcome is Outcome.CLASS
    assert read_prediction(np.full(N, 0.5), labels).num_classes == 2
    assert read_prediction((np.zeros(N), np.ones(N)), np.zeros(N)).is_normal
    assert read_prediction(np.zeros((9, N)), np.zeros(N)).samples.shape == (9, N)
    assert [outcome_of(given) for given in (probs, (0, 1), predict_classes(probs))] == [
        None,
        Outcome.REAL,
        Outcome.CLASS,
    ]
    slightly_off = probs * (1 + 5e-5)
    np.testing.assert_allclose(read_classes(slightly_off, name="nll").probs.sum(axis=1), 1, rtol=1e-12)
    with pytest.raises(ValueError, match=r"the std of prediction must be > 0, got 0\.0"):
        read_numbers((np.zeros(N), np.zeros(N)), name="nll")
    assert read_numbers((np.zeros(N), np.zeros(N)), name="Normalised()", allow_point=True).std.max() == 0


def test_answers_come_in_the_form_of_the_question():
    probs, _ = some_classes(N, 2)
    found = read_classes(probs, name="recalibration")
    assert as_given(probs[:, 1], found).shape == (N,)
    assert as_given(probs, found).shape == (N, 2)
    assert as_given(found, found) is found
    pair = np.zeros(N), np.ones(N)
    assert [part.tolist() for part in as_given(pair, read_numbers(pair, name="x").scaled(2.0))[1:]] == [[2.0] * N]

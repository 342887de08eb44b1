"""Targets that may be wrong: what a posterior says of them against sums by hand, and against planted truth."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.evaluate.pointwise import pointwise_likelihood

L, I = mx.likelihoods, mx.infer
MATRIX = np.array([[0.75, 0.2, 0.05], [0.05, 0.9, 0.05], [0.1, 0.25, 0.65]])
NUTS = I.NUTS(num_warmup=250, num_samples=250)


def draw(rng, probs):
    return (probs.cumsum(axis=-1) < rng.uniform(size=(*probs.shape[:-1], 1))).sum(axis=-1)


def softmax(logits):
    probs = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return probs / probs.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def noisy():
    """Three classes, linear logits, labels through a matrix that is learned."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 2))
    truth = draw(rng, softmax(x @ np.array([[3.0, -2.0, 0.0], [0.0, 2.5, -3.0]])))
    y = draw(rng, MATRIX[truth])
    model = mx.Model(mx.nets.MLP(2, (), 3, key=0), L.NoisyLabels(L.Categorical()), mx.priors.Normal(scale=3.0))
    return x, truth, y, mx.fit(model, (x, y), NUTS, key=0, num_chains=2, progress=False)


CONFUSIONS = np.array([[[0.95, 0.05], [0.1, 0.9]], [[0.7, 0.3], [0.2, 0.8]], [[0.55, 0.45], [0.45, 0.55]],
                       [[0.6, 0.4], [0.02, 0.98]], [[0.2, 0.8], [0.75, 0.25]]])  # fmt: skip


@pytest.fixture(scope="module")
def crowd():
    """Five annotators, of whom one says the contrary of what is true, each asked about three in five items."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 1))
    truth = draw(rng, softmax(np.concatenate([-1.5 * x, 1.5 * x], axis=1)))
    answers = np.stack([draw(rng, matrix[truth]) for matrix in CONFUSIONS], axis=1)
    answers[rng.uniform(size=answers.shape) < 0.4] = -1
    asked = (answers >= 0).any(axis=1)
    x, truth, answers = x[asked], truth[asked], answers[asked]
    model = mx.Model(mx.nets.MLP(1, (), 2, key=0), L.Annotators(2, 5), mx.priors.Normal(scale=3.0))
    return x, truth, answers, mx.fit(model, (x, answers), NUTS, key=0, num_chains=2, progress=False)


def draws_of(posterior, x):
    """Logits and matrices of every draw, by NumPy."""
    params = posterior.flat()
    weight, bias = (np.asarray(leaf) for leaf in jax.tree.leaves(params.network))
    return np.einsum("skd,nd->snk", weight, x) + bias[:, None], posterior.confusion().draws


def z_of(found, truth):
    low = (found.draws.mean(axis=0) - truth) / found.draws.std(axis=0)
    return np.abs(low).max()


def test_a_planted_transition_is_recovered(noisy):
    *_, posterior = noisy
    found = posterior.confusion(level=0.99)
    assert z_of(found, MATRIX) < 3.5
    low, high = found.interval
    assert np.mean((low < MATRIX) & (high > MATRIX)) > 0.8
    assert (high - low).max() < 0.3  # the data say something
    assert abs(found.accuracy - np.trace(MATRIX) / 3) < 0.06


def test_planted_annotators_are_recovered(crowd):
    *_, posterior = crowd
    found = posterior.confusion()
    assert found.mean.shape == (5, 2, 2)
    assert z_of(found, CONFUSIONS) < 3.5
    order = np.argsort(found.accuracy)
    assert (order[0], order[-1]) == (4, 0)
    low, high = found.accuracy_interval
    assert np.all(low < high)


@pytest.mark.parametrize("data", ["noisy", "crowd"])
def test_probabilities_of_errors_are_calibrated(data, request):
    x, truth, y, posterior = request.getfixturevalue(data)
    errors = posterior.label_errors(x, y)
    assert errors.shape == y.shape
    wrong = y != (truth if y.ndim == 1 else truth[:, None])
    seen = y >= 0
    assert np.isnan(errors[~seen]).all()
    errors, wrong = errors[seen], wrong[seen]
    edges = [0, 0.05, 0.3, 0.7, 1.0]
    for low, high in itertools.pairwise(edges):
        some = (errors >= low) & (errors < high)
        spread = np.sqrt(np.sum(errors[some] * (1 - errors[some])) + 1)
        assert abs(errors[some].sum() - wrong[some].sum()) < 4 * spread, (low, high)
    assert errors[wrong].mean() > 2 * errors[~wrong].mean()
    consensus = posterior.consensus(x, y)
    np.testing.assert_allclose(consensus.probs.sum(axis=1), 1)
    assert (consensus.labels == truth).mean() > (posterior.predict(x).labels == truth).mean() - 0.01
    if y.ndim == 1:
        np.testing.assert_allclose(1 - consensus.probs[np.arange(len(y)), y], posterior.label_errors(x, y), atol=1e-5)


@pytest.mark.parametrize("data", ["noisy", "crowd"])
def test_averages_over_draws_are_those_by_hand(data, request):
    x, _, y, posterior = request.getfixturevalue(data)
    x, y = x[:5], y[:5]
    logits, matrices = draws_of(posterior, x)
    joint = softmax(logits)
    matrices = matrices[:, None] if y.ndim == 1 else matrices
    for i, row in enumerate(y.reshape(5, -1)):
        for a, label in enumerate(row):
            if label >= 0:
                joint[:, i] *= matrices[:, a, :, label]
    evidence = joint.sum(axis=-1)
    hidden = joint / evidence[..., None]
    np.testing.assert_allclose(posterior.consensus(x, y).probs, hidden.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(
        posterior.consensus(x, y, new=True).probs, joint.sum(axis=0) / evidence.sum(axis=0)[:, None], atol=1e-5
    )
    weighted = (hidden * (evidence / evidence.sum(axis=0))[..., None]).sum(axis=0)
    errors, of_new = posterior.label_errors(x, y), posterior.label_errors(x, y, new=True)
    for place in np.argwhere(y >= 0):
        label = y[tuple(place)]
        np.testing.assert_allclose(errors[tuple(place)], 1 - hidden.mean(axis=0)[place[0], label], atol=1e-5)
        np.testing.assert_allclose(of_new[tuple(place)], 1 - weighted[place[0], label], atol=1e-5)
    job = pointwise_likelihood(posterior, (x, y), num_samples=None, key=None, max_bytes=2**28)
    np.testing.assert_allclose(np.concatenate(list(job.blocks()), axis=1), np.log(evidence), rtol=1e-4, atol=1e-4)


def test_predictions_are_of_the_true_label(noisy):
    x, _, _, posterior = noisy
    logits, matrices = draws_of(posterior, x[:4])
    probs = softmax(logits)
    np.testing.assert_allclose(posterior.predict(x[:4]).probs, probs.mean(axis=0), atol=1e-5)
    seen = np.einsum("snk,skj->snj", probs, matrices).mean(axis=0)
    np.testing.assert_allclose(posterior.predict_observed(x[:4]).probs, seen, atol=1e-5)


def test_answers_are_predicted_for_those_who_give_them(crowd):
    x, _, _, posterior = crowd
    logits, matrices = draws_of(posterior, x[:5])
    who = np.array([4, 0, 2, 2, 1])
    given = np.einsum("snk,snkj->snj", softmax(logits), matrices[:, who]).mean(axis=0)
    np.testing.assert_allclose(posterior.predict_observed(x[:5], annotator=who).probs, given, atol=1e-5)
    alone = np.einsum("snk,skj->snj", softmax(logits), matrices[:, 4]).mean(axis=0)
    np.testing.assert_allclose(posterior.predict_observed(x[:5], annotator=4).probs, alone, atol=1e-5)


def test_a_tempered_crowd_is_one_too():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(30, 1)), rng.integers(0, 2, size=(30, 5))
    model = mx.Model(mx.nets.Intercept(2), L.Tempered(L.Annotators(2, 5), temperature=2.0))
    posterior = mx.fit(model, (x, y), I.MAP(num_epochs=5, batch_size=None), key=0, progress=False)
    assert posterior.predict_observed(x[:3], annotator=1).probs.shape == (3, 2)
    assert posterior.expected_information(x[:3], np.full((3, 5), -1)).shape == (3, 5)
    with pytest.raises(ValueError, match="an answer is somebody's"):
        posterior.predict_observed(x)


def test_whom_to_ask_is_the_mutual_information_by_enumeration(crowd):
    x, _, y, posterior = crowd
    x, y = x[:6], y[:6].copy()
    y[5] = -1  # nobody was asked yet
    logits, matrices = draws_of(posterior, x)
    found = posterior.expected_information(x, y)
    for i, row in enumerate(y):
        hidden = softmax(logits[:, i])
        for a, label in enumerate(row):
            if label >= 0:
                hidden = hidden * matrices[:, a, :, label]
        hidden /= hidden.sum(axis=1, keepdims=True)
        for a, label in enumerate(row):
            table = (hidden[:, :, None] * matrices[:, a]).mean(axis=0)
            apart = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
            expected = 0.0 if label >= 0 else np.sum(table * np.log(table / apart))
            np.testing.assert_allclose(found[i, a], expected, atol=1e-5)
    assert (found[5].argmax(), found[5].argmin()) == (0, 2)  # who is mostly right, and who guesses


def test_gross_errors_are_found():
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, size=(300, 1))
    wrong = rng.uniform(size=300) < 0.1
    y = 5 + 3 * x[:, 0] + 0.3 * rng.normal(size=300) + np.where(wrong, 6 * rng.normal(size=300), 0)
    data = mx.data.standardise((x, y))
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), L.Outliers())
    posterior = mx.fit(model, data, NUTS, key=0, num_chains=2, progress=False)
    errors = posterior.label_errors(x, y)
    for low, high in ((0, 0.2), (0.2, 0.8), (0.8, 1)):
        some = (errors >= low) & (errors <= high)
        spread = np.sqrt(np.sum(errors[some] * (1 - errors[some])) + 1)
        assert abs(errors[some].sum() - wrong[some].sum()) < 4 * spread, (low, high)
    unknowns = posterior.flat().likelihood
    share = 1 / (1 + np.exp(-np.asarray(unknowns["logit_share"])))
    assert abs(share.mean() - wrong.mean()) < 4 * share.std()
    clean, seen = posterior.predict(x[:3]), posterior.predict_observed(x[:3])
    scale = np.exp(np.asarray(unknowns["log_scale"])) * y.std()
    assert abs(scale.mean() - 0.3) < 4 * scale.std()
    assert np.all(clean.std < 0.4)
    assert np.all(seen.std > 1)
    np.testing.assert_allclose(clean.mean, seen.mean, rtol=1e-4)


METHODS = {
    "ensemble": I.DeepEnsemble(2, I.MAP(num_epochs=30, batch_size=None)),
    "vi": I.VI(num_epochs=20, batch_size=None),
    "sghmc": I.SGHMC(num_warmup=40, num_samples=10, batch_size=16),
    "laplace": I.Laplace(training=I.MAP(num_epochs=30, batch_size=None)),
    "dropout": I.MCDropout(0.1, num_epochs=20, batch_size=None),
}
X = np.random.default_rng(3).normal(size=(30, 2))
YES = (X[:, 0] > 0).astype(int)
KINDS = {
    "noisy": (L.NoisyLabels(L.Categorical(), L.SymmetricTransition()), 2, YES),
    "bernoulli": (L.NoisyLabels(L.Bernoulli()), 1, YES),
    "crowd": (L.Annotators(2, 3), 2, np.stack([YES, 1 - YES, np.where(X[:, 1] > 0, YES, -1)], axis=1)),
    "outliers": (L.Outliers(), 1, X[:, 0] + X[:, 1] ** 2),
}
FAST = {("ensemble", "outliers"), ("laplace", "crowd")}


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        pytest.param(m, k, marks=() if (m, k) in FAST else pytest.mark.slow, id=f"{m}, {k}")
        for m in METHODS
        for k in KINDS
    ],
)
def test_every_method_answers(method, kind, tmp_path):
    likelihood, size, y = KINDS[kind]
    model = mx.Model(mx.nets.MLP(2, (4,), size, activation=jnp.tanh, key=0), likelihood)
    posterior = mx.fit(model, (X, y), METHODS[method], key=0, progress=False)
    errors = posterior.label_errors(X, y)
    assert errors.shape == y.shape
    known = (y >= 0) | (kind != "crowd")
    assert np.all((errors[known] >= 0) & (errors[known] <= 1))
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(mx.load(tmp_path / "run").label_errors(X, y), errors)
    assert len(posterior.predict(X[:3])) == 3
    if kind != "outliers":
        np.testing.assert_allclose(posterior.confusion().mean.sum(axis=-1), 1, atol=1e-5)
        assert posterior.consensus(X, y).probs.shape == (30, 2)


@pytest.mark.parametrize("name", ["bluebirds", "snow_rte"])
def test_consensus_of_real_crowds_is_better_than_a_vote(name, data_dir):
    found = mx.data.load_crowd(name)
    vote = mx.data.majority_vote(found.answers, 2)[np.arange(len(found.gold)), found.gold].mean()
    assert round(100 * vote, 1) == {"bluebirds": 75.9, "snow_rte": 89.7}[name]
    x = np.zeros((len(found.gold), 1))
    model = mx.Model(mx.nets.Intercept(2), L.Annotators(2, found.answers.shape[1]))
    posterior = mx.fit(model, (x, found.answers), I.MAP(num_epochs=400, batch_size=None), key=0, progress=False)
    right = (posterior.consensus(x, found.answers).labels == found.gold).mean()
    assert right > vote + {"bluebirds": 0.05, "snow_rte": 0.02}[name]


def test_what_cannot_be_answered_is_said(noisy, crowd):
    x, _, y, posterior = noisy
    with pytest.raises(ValueError, match=r"y must have shape \(3,\)"):
        posterior.label_errors(x[:3], y[:2])
    with pytest.raises(ValueError, match="between 0 and 2"):
        posterior.label_errors(x[:1], np.array([3]))
    with pytest.raises(TypeError, match="whom to ask"):
        posterior.expected_information(x, y)
    plain = mx.fit(mx.Model(mx.nets.MLP(2, (), 3, key=0), L.Categorical()), (x, y), I.MAP(num_epochs=1), key=0)
    with pytest.raises(TypeError, match=r"Categorical takes targets as they are.*NoisyLabels"):
        plain.label_errors(x, y)
    with pytest.raises(TypeError, match="takes labels as they are"):
        plain.confusion()
    with pytest.raises(TypeError, match="targets of Categorical are nobody's answers"):
        plain.predict_observed(x, annotator=0)
    with pytest.raises(ValueError, match="num_samples must be an int >= 1"):
        posterior.predict_observed(x, num_samples=0)
    x, _, y, posterior = crowd
    for wrong in (None, 5, -1, 0.5, [0, 1]):
        with pytest.raises(ValueError, match="annotator must be a number from 0 to 4, or one for each of"):
            posterior.predict_observed(x, annotator=wrong)
    model = mx.Model(mx.nets.Intercept(2), L.Annotators(2, 5))
    with pytest.raises(ValueError, match="1 rows without any answer, the first is row 1"):
        mx.fit(model, (np.zeros((2, 1)), np.array([[0, 1, 0, 0, 0], [-1] * 5])), I.MAP(), key=0)

"""Acquisition: scores are what enumeration and closed forms give, and batches are chosen jointly."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.decide import (
    BALD,
    EPIG,
    BatchBALD,
    Entropy,
    PredictiveVariance,
    Random,
    VariationRatios,
    draw_probs,
)
from marginax.decide.information import greedy_normal_batch
from marginax.model.distributions import Bernoulli, Normal
from marginax.predict import MultiLabelPrediction, RegressionPrediction
from marginax.predict.classification import ClassAverages, summarise
from marginax.predict.mixture import Mixture

S, N, K = 5, 6, 3


@pytest.fixture
def probs():
    return np.random.default_rng(0).dirichlet(0.5 * np.ones(K), size=(S, N))


def entropy(p):
    return -sum(value * np.log(value) for value in np.ravel(p) if value > 0)


def joint_of(probs, rows, weights=None):
    """The table of probabilities of all labellings of some inputs."""
    weights = np.full(len(probs), 1 / len(probs)) if weights is None else weights
    table = np.zeros([probs.shape[2]] * len(rows))
    for labels in itertools.product(range(probs.shape[2]), repeat=len(rows)):
        by_draw = [np.prod([p[row, label] for row, label in zip(rows, labels, strict=True)]) for p in probs]
        table[labels] = weights @ by_draw
    return table


def information_of(probs, rows, weights=None):
    """Mutual information of the labels of a batch and the draw, by enumeration."""
    weights = np.full(len(probs), 1 / len(probs)) if weights is None else weights
    given = sum(w * sum(entropy(p[row]) for row in rows) for w, p in zip(weights, probs, strict=True))
    return entropy(joint_of(probs, rows, weights)) - given


def prediction_of(probs):
    averages = ClassAverages.empty(probs.shape[1], probs.shape[2], full=True)
    averages.add(slice(0, probs.shape[1]), summarise(jnp.log(probs), jnp.full(len(probs), -np.log(len(probs)))))
    return averages.prediction(num_draws=len(probs), max_bytes=10**8)


# ---- one input at a time


def test_entropy_variation_ratios_and_variance_are_enumerated(probs):
    mean = probs.mean(axis=0)
    expected = {
        Entropy(): [entropy(row) for row in mean],
        VariationRatios(): [1 - max(row) for row in mean],
        PredictiveVariance(): [sum(np.var(probs[:, i, k]) for k in range(K)) for i in range(N)],
        BALD(): [information_of(probs, [i]) for i in range(N)],
    }
    for rule, scores in expected.items():
        np.testing.assert_allclose(rule.scores(probs), scores, atol=1e-12)
        np.testing.assert_allclose(rule.scores(prediction_of(probs)), scores, atol=2e-6)


def test_bald_finds_a_border_by_halving():
    """All borders are equally probable and labels are sure: the best question leaves half of them."""
    x, borders = np.arange(64), np.arange(0.5, 64)
    for truth in borders[::7]:
        left = borders
        for questions in range(1, 7):
            upper = (x > left[:, None]).astype(float)
            row = np.argmax(BALD().scores(np.stack([1 - upper, upper], axis=-1)))
            left = left[(x[row] > left) == (x[row] > truth)]
            assert len(left) == 64 / 2**questions
        assert left.tolist() == [truth]


def test_certain_classes_have_no_score():
    sure = np.broadcast_to([[1.0, 0.0]], (3, 4, 2))
    for rule in (Entropy(), VariationRatios(), PredictiveVariance(), BALD()):
        assert np.array_equal(rule.scores(sure), np.zeros(4))


def of_numbers(means, scale):
    means = jnp.asarray(means, jnp.float32)
    weights = np.full(len(means), -np.log(len(means)))
    mixture = Mixture(Normal(means, jnp.full(means.shape, scale)), (True, True), weights, means.shape[1], 10**8)
    return RegressionPrediction(mixture, means.shape[2:])


def test_variance_of_numbers_is_the_trace_of_their_covariance():
    means = np.random.default_rng(0).normal(size=(7, 4, 2))
    prediction = of_numbers(means, 0.5)
    scores = PredictiveVariance().scores(prediction)
    np.testing.assert_allclose(scores, means.var(axis=0).sum(axis=1) + 2 * 0.25, rtol=1e-5)
    np.testing.assert_allclose(scores, np.trace(prediction.covariance, axis1=1, axis2=2), rtol=1e-5)


def test_information_of_numbers_is_that_of_normals():
    means = np.random.default_rng(0).normal(size=(7, 4, 1))
    expected = 0.5 * np.log1p(means[..., 0].var(axis=0) / 0.25)
    np.testing.assert_allclose(BALD().scores(of_numbers(means, 0.5)), expected, rtol=1e-5)


def test_a_batch_of_numbers_has_the_information_of_its_covariance():
    rng = np.random.default_rng(3)
    means, noise = rng.normal(size=(7, 5, 2)), rng.uniform(0.1, 1.0, size=(5, 2))
    weights = rng.dirichlet(np.ones(7))
    rows, totals = greedy_normal_batch(means, noise, 5, weights=weights)
    assert sorted(rows) == list(range(5))
    for num in range(1, 6):
        expected = 0.0
        for output in range(2):
            picked = means[:, rows[:num], output]
            covariance = np.cov(picked.T, aweights=weights, ddof=0).reshape(num, num)
            expected += 0.5 * np.linalg.slogdet(np.eye(num) + covariance / noise[rows[:num], output])[1]
        assert totals[num - 1] == pytest.approx(expected, rel=1e-10)
    first = [greedy_normal_batch(means[:, [i]], noise[[i]], 1, weights=weights)[1][0] for i in range(5)]
    assert rows[0] == np.argmax(first)


def test_a_batch_of_numbers_does_not_ask_the_same_twice():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=50), 0.5 * rng.normal(size=50)
    means = np.stack([one, one, other], axis=1)[..., None]
    rows, _ = greedy_normal_batch(means, np.full((3, 1), 0.01), 2, weights=np.full(50, 0.02))
    assert rows.tolist() == [0, 2]


@pytest.mark.slow
def test_a_query_of_numbers_uses_the_means_of_the_draws():
    x = np.array([[0.0], [0.5], [4.0], [-3.0]])
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.1))
    data = mx.data.standardise((np.linspace(-1, 1, 12)[:, None], np.linspace(5, 9, 12)))
    posterior = mx.fit(model, data, mx.infer.AnchoredEnsemble(20, num_epochs=200), key=0)
    prediction = posterior.predict(x)
    np.testing.assert_allclose(prediction.means.mean(axis=0), prediction.mean, rtol=1e-5)
    np.testing.assert_allclose(prediction.means.var(axis=0), prediction.epistemic, rtol=1e-4)
    query = mx.decide.PredictiveCovariance().query(posterior, x, 1, key=0)
    assert query.rows.tolist() == [2]
    np.testing.assert_allclose(query.scores, mx.decide.BALD().scores(prediction)[2], rtol=1e-4)
    linear = mx.fit(model, data, mx.infer.Laplace(training=mx.infer.MAP(num_epochs=5)), key=0)
    with pytest.raises(TypeError, match="ThroughNetwork"):
        mx.decide.PredictiveCovariance().query(linear, x, 1, key=0)


def test_several_labels_are_added_up():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4, 2)), jnp.float32)
    prediction = MultiLabelPrediction(Mixture(Bernoulli(logits), (True,), np.full(5, -np.log(5)), 4, 10**8))
    np.testing.assert_allclose(Entropy().scores(prediction), prediction.entropy.sum(axis=1))
    np.testing.assert_allclose(BALD().scores(prediction), prediction.mutual_information.sum(axis=1))


# ---- several inputs


def test_a_batch_of_one_is_chosen_as_by_bald(probs):
    query = BatchBALD().choose(probs, 1, key=0)
    scores = BALD().scores(probs)
    assert query.rows.tolist() == [np.argmax(scores)]
    np.testing.assert_allclose(query.scores, scores.max())


@pytest.mark.parametrize("weights", [None, np.array([0.1, 0.2, 0.3, 0.15, 0.25])], ids=["equal", "weighted"])
def test_a_batch_has_its_joint_information_and_is_the_greedy_one(probs, weights):
    query = BatchBALD(num_configurations=K**4).choose(probs, 4, weights=weights, key=0)
    rows = query.rows.tolist()
    for size in range(1, 5):
        np.testing.assert_allclose(query.scores[size - 1], information_of(probs, rows[:size], weights))
        rest = [information_of(probs, [*rows[: size - 1], i], weights) for i in range(N) if i not in rows[: size - 1]]
        np.testing.assert_allclose(query.scores[size - 1], max(rest))


def test_sampled_labellings_give_the_same_information():
    probs = np.random.default_rng(1).dirichlet(np.ones(10), size=(S, 4))
    exact = BatchBALD(num_configurations=10**4).choose(probs, 4, key=0)
    drawn = [BatchBALD(num_configurations=500).choose(probs, 4, key=key) for key in range(40)]  # pairs are enumerated
    for query in drawn:
        np.testing.assert_allclose(query.scores[:3], exact.scores[:3], rtol=1e-9)
    errors = np.array([query.scores[3] - exact.scores[3] for query in drawn])
    assert 0 < errors.std() < 0.1
    assert abs(errors.mean()) < 4.9 * errors.std() / np.sqrt(len(errors))


def test_a_batch_is_not_fooled_by_duplicates():
    twins = np.array([[0.95, 0.05], [0.95, 0.05], [0.95, 0.05], [0.3, 0.7]])
    other = np.array([[0.05, 0.95], [0.05, 0.95], [0.05, 0.95], [0.3, 0.7]])
    third = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.9, 0.1]])
    probs = np.stack([twins, other, third])
    best = set(np.argsort(-BALD().scores(probs))[:2].tolist())
    assert best <= {0, 1, 2}
    for key in range(5):
        assert 3 in BatchBALD().choose(probs, 2, key=key).rows


def test_information_about_targets_is_enumerated(probs):
    targets = np.random.default_rng(1).dirichlet(np.ones(K), size=(S, 4))
    weights = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    both = np.concatenate([probs, targets], axis=1)
    for given in (None, weights):
        expected = np.zeros(N)
        for i, j in itertools.product(range(N), range(4)):
            joint = joint_of(both, [i, N + j], given)
            expected[i] += (entropy(joint.sum(1)) + entropy(joint.sum(0)) - entropy(joint)) / 4
        np.testing.assert_allclose(EPIG(np.zeros((4, 1))).scores(probs, targets, weights=given), expected, atol=1e-12)


def test_what_says_nothing_about_targets_is_not_asked():
    informative = [[[0.9, 0.1], [0.99, 0.01]], [[0.1, 0.9], [0.99, 0.01]]] * 2
    irrelevant = [[[0.01, 0.99]], [[0.01, 0.99]], [[0.99, 0.01]], [[0.99, 0.01]]]
    probs = np.concatenate([irrelevant, np.array(informative)[:, :1]], axis=1)
    targets = np.array(informative)[:, :1]
    assert np.argmax(BALD().scores(probs)) == 0
    assert np.argmax(EPIG(np.zeros((1, 1))).scores(probs, targets)) == 1


def test_chunks_leave_no_trace(probs, monkeypatch):
    whole = BatchBALD(27).choose(probs, 4, key=0), EPIG(np.zeros((1, 1))).scores(probs, probs[:, :2])
    monkeypatch.setattr("marginax.decide.information._CHUNK", 1)
    parts = BatchBALD(27).choose(probs, 4, key=0), EPIG(np.zeros((1, 1))).scores(probs, probs[:, :2])
    assert np.array_equal(whole[0].rows, parts[0].rows)
    np.testing.assert_allclose(whole[0].scores, parts[0].scores)
    np.testing.assert_allclose(whole[1], parts[1])


# ---- from posteriors


@pytest.fixture(scope="module")
def posterior():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    model = mx.Model(mx.nets.MLP(2, (), 3, key=0), likelihood=mx.likelihoods.Categorical())
    return mx.fit(model, (x, np.arange(20) % 3), mx.infer.DeepEnsemble(5, mx.infer.MAP(num_epochs=2)), key=0)


def test_probabilities_of_draws_average_to_the_prediction(posterior):
    x = np.random.default_rng(1).normal(size=(30, 2))
    whole, weights = draw_probs(posterior, x)
    assert whole.shape == (5, 30, 3)
    np.testing.assert_allclose(weights, 0.2)
    np.testing.assert_allclose(whole.mean(axis=0), posterior.predict(x).probs, atol=1e-5)
    np.testing.assert_allclose(draw_probs(posterior, x, max_bytes=2000)[0], whole, atol=1e-6)
    assert draw_probs(posterior, x, num_samples=2)[0].shape == (2, 30, 3)


def test_queries_ask_about_the_highest_scores(posterior):
    x = np.random.default_rng(1).normal(size=(30, 2)).astype(np.float32)
    probs = draw_probs(posterior, x)[0]
    for rule in (Entropy(), VariationRatios(), BALD(), PredictiveVariance()):
        query = rule.query(posterior, x, 4, key=0)
        scores = rule.scores(posterior.predict(x))
        assert query.rows.tolist() == np.argsort(-scores)[:4].tolist()
        np.testing.assert_allclose(query.scores, np.sort(scores)[::-1][:4])
    query = EPIG(x[:3]).query(posterior, x, 4, key=0)
    expected = EPIG(x[:3]).scores(probs, probs[:, :3])
    np.testing.assert_allclose(query.scores, np.sort(expected)[::-1][:4], atol=1e-6)
    query = BatchBALD().query(posterior, x, 4, key=0)
    assert query.rows.tolist() == BatchBALD().choose(probs, 4, key=0).rows.tolist()


def test_random_queries_are_uniform_and_ties_are_broken_at_random():
    x = np.zeros((10, 1))
    counts = np.zeros(10)
    for key in range(500):
        rows = Random().query(None, x, 3, key=key).rows
        assert len(set(rows.tolist())) == 3
        counts[rows] += 1
    assert (np.abs(counts - 150) < 4.9 * np.sqrt(500 * 0.3 * 0.7)).all()
    assert len({Random().query(None, x, 1, key=key).rows[0] for key in range(50)}) > 5


def test_bad_arguments_are_refused(posterior, probs, as_users_run):
    x = np.zeros((4, 2))
    with pytest.raises(ValueError, match="num must be an int from 1 to the number of candidates, 4, got 5"):
        BALD().query(posterior, x, 5, key=0)
    with pytest.raises(TypeError, match=r"must know its draws .* shape \(s, n, k\)"):
        BALD().scores(probs[0])
    with pytest.raises(ValueError, match="rows that sum to one"):
        Entropy().scores(0.5 * probs)
    with pytest.raises(ValueError, match="num_configurations must be an int >= 2, got 1"):
        BatchBALD(num_configurations=1)
    with pytest.raises(ValueError, match="x_target has 1 values that are NaN"):
        EPIG([[np.nan]])
    with pytest.raises(ValueError, match="x_target must have rows of shape"):
        EPIG(np.zeros((3, 7))).query(posterior, x, 1, key=0)
    with pytest.raises(ValueError, match="targets must have the draws and classes"):
        EPIG(np.zeros((3, 2))).scores(probs, probs[:2])
    with pytest.raises(TypeError, match="must be one of classes"):
        VariationRatios().scores(of_numbers(np.zeros((2, 3, 1)), 1.0))

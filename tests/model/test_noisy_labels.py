"""Labels that may be wrong: the hidden one summed out against enumeration, priors and information by their laws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.model.likelihoods.annotators import Annotators
from marginax.model.transitions import (
    FullTransition,
    KnownTransition,
    PerClassTransition,
    SymmetricTransition,
    as_transition,
)

L = mx.likelihoods
RNG = np.random.default_rng(0)
MATRIX = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.0, 0.7]])
PAIR = np.array([[0.8, 0.2], [0.35, 0.65]])
LEARNED = {
    "full": FullTransition(0.7, 6.0),
    "per class": PerClassTransition(0.6, 8.0),
    "one": SymmetricTransition(0.75),
}
INNER = {
    "categorical": (L.Categorical(), 3, MATRIX),
    "bernoulli": (L.Bernoulli(), 1, PAIR),
    "ordinal": (L.Ordinal(num_classes=3), 1, MATRIX),
}


def moved(unknowns):
    """Away from where they start."""
    return {name: value + RNG.normal(size=value.shape) for name, value in unknowns.items()}


@pytest.mark.parametrize("name", INNER)
def test_the_hidden_label_is_summed_out_as_by_hand(name):
    inner, size, matrix = INNER[name]
    likelihood = L.NoisyLabels(inner, transition=matrix)
    output = jnp.asarray(RNG.normal(size=(6, size)))
    unknowns = moved(likelihood.init(size))
    truth = np.stack([inner.log_prob(output, jnp.full(6, k), unknowns) for k in range(len(matrix))], axis=1)
    for seen in range(len(matrix)):
        by_hand = [sum(np.exp(truth[i, k]) * matrix[k, seen] for k in range(len(matrix))) for i in range(6)]
        found = likelihood.log_prob(output, jnp.full(6, seen), unknowns)
        np.testing.assert_allclose(np.exp(found), by_hand, rtol=2e-5)
        chances = np.exp(truth) * matrix[:, seen]
        wrong = 1 - chances[:, seen] / chances.sum(axis=1)
        errors = likelihood.observed(output, unknowns).label_errors(jnp.full(6, seen))
        np.testing.assert_allclose(errors, wrong, rtol=2e-4, atol=1e-6)
    np.testing.assert_array_equal(
        likelihood.distribution(output, unknowns).class_logits, inner.distribution(output, unknowns).class_logits
    )


@pytest.mark.parametrize("name", ["categorical", "bernoulli"])
def test_information_is_the_mean_of_squared_scores(name):
    inner, size, matrix = INNER[name]
    likelihood = L.NoisyLabels(inner, transition=matrix)
    output = jnp.asarray(RNG.normal(size=(4, size)))
    unknowns = moved(likelihood.init(size))

    @jax.jit
    def both(f):
        labels = jnp.arange(len(matrix))
        value, score = jax.vmap(
            jax.value_and_grad(lambda f, y: likelihood.log_prob(f[None], y[None], unknowns)[0]), (None, 0)
        )(f, labels)
        root = likelihood.fisher_root(f, unknowns)
        return jnp.einsum("j,ja,jb->ab", jnp.exp(value), score, score), root, likelihood.fisher(f[None], unknowns)[0]

    for f in output:
        expected, root, found = both(f)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(root @ root.T, expected, rtol=1e-3, atol=1e-5)
        assert root.shape[1] <= size


def test_no_noise_is_no_change():
    plain, noisy = L.Categorical(), L.NoisyLabels(L.Categorical(), transition=np.eye(3))
    output, y = jnp.asarray(RNG.normal(size=(5, 3))), jnp.array([0, 1, 2, 0, 1])
    np.testing.assert_allclose(noisy.log_prob(output, y, {}), plain.log_prob(output, y, {}), rtol=1e-5)
    found = jax.jit(lambda f: (noisy.fisher(f, {}), plain.fisher(f, {})))(output)
    np.testing.assert_allclose(*found, atol=1e-5)


def test_priors_are_those_of_dirichlet_and_beta_in_unconstrained_coordinates():
    with jax.enable_x64(True):
        full = LEARNED["full"]
        ratios = RNG.normal(size=(3, 2))
        unknowns = {"transition": jnp.asarray(ratios)}
        matrix = np.exp(full.log_matrix(unknowns, 3))
        np.testing.assert_allclose(matrix.sum(axis=1), 1)
        expected = 0.0
        slopes = jax.jit(jax.jacobian(lambda u: jnp.exp(full.log_matrix({"transition": u}, 3))))(unknowns["transition"])
        for k in range(3):
            alpha = np.full(3, 6.0 * 0.3 / 2)
            alpha[k] = 6.0 * 0.7
            off = [j for j in range(3) if j != k]
            slope = np.asarray(slopes)[k, off, k]
            expected += stats.dirichlet(alpha).logpdf(matrix[k]) + np.log(abs(np.linalg.det(slope)))
        np.testing.assert_allclose(full.log_prior(unknowns), expected, rtol=1e-10)
        for prior, num in ((LEARNED["per class"], 3), (LEARNED["one"], 1)):
            logits = RNG.normal(size=num)
            rate = 1 / (1 + np.exp(-logits))
            law = stats.beta(prior.strength * (1 - prior.accuracy), prior.strength * prior.accuracy)
            expected = np.sum(law.logpdf(rate) + np.log(rate * (1 - rate)))
            np.testing.assert_allclose(prior.log_prior({"transition": jnp.asarray(logits)}), expected, rtol=1e-10)
            matrix = np.exp(prior.log_matrix({"transition": jnp.asarray(logits)}, 3))
            np.testing.assert_allclose(1 - np.diag(matrix), np.broadcast_to(rate, 3))
            np.testing.assert_allclose(matrix.sum(axis=1), 1)
            off = matrix[~np.eye(3, dtype=bool)].reshape(3, 2)
            np.testing.assert_allclose(off[:, 0], off[:, 1])


@pytest.mark.parametrize("name", LEARNED)
def test_learned_matrices_start_near_the_identity(name):
    prior = LEARNED[name]
    for shape in ((), (4,)):
        matrix = np.exp(prior.log_matrix(prior.init(3, shape), 3))
        assert matrix.shape == (*shape, 3, 3)
        np.testing.assert_allclose(np.diagonal(matrix, axis1=-2, axis2=-1), prior.accuracy, rtol=1e-5)


def test_answers_of_a_crowd_are_summed_out_as_by_hand():
    confusion = RNG.dirichlet(np.ones(3), size=(4, 3))
    crowd = L.Annotators(3, 4, confusion=confusion)
    output = jnp.asarray(RNG.normal(size=(3, 3)))
    answers = jnp.array([[0, 1, 2, 1], [2, -1, -1, 0], [-1, -1, 1, -1]])
    truth = np.exp(jax.nn.log_softmax(output))
    log_prob = np.asarray(crowd.log_prob(output, answers, {}))
    errors = np.asarray(crowd.observed(output, {}).label_errors(answers))
    for i, row in enumerate(np.asarray(answers)):
        chances = [
            truth[i, k] * np.prod([confusion[a, k, label] for a, label in enumerate(row) if label >= 0])
            for k in range(3)
        ]
        np.testing.assert_allclose(np.exp(log_prob[i]), sum(chances), rtol=1e-4)
        for a, label in enumerate(row):
            expected = np.nan if label < 0 else 1 - chances[label] / sum(chances)
            np.testing.assert_allclose(errors[i, a], expected, rtol=1e-4)
    everything = jnp.array(list(itertools.product(range(3), repeat=4)))
    total = np.exp(crowd.log_prob(jnp.repeat(output[:1], len(everything), 0), everything, {})).sum()
    np.testing.assert_allclose(total, 1, rtol=1e-4)


def test_information_of_answers_depends_on_who_was_asked():
    confusion = RNG.dirichlet(np.ones(3), size=(4, 3))
    crowd = L.Annotators(3, 4, confusion=confusion)
    output, asked = jnp.array([0.5, -0.3, 0.1]), jnp.array([0, -1, 2, -1])
    expected = np.zeros((3, 3))
    every = jnp.array([[first, -1, second, -1] for first, second in itertools.product(range(3), repeat=2)])
    value_and_score = jax.jit(
        jax.vmap(jax.value_and_grad(lambda f, y: crowd.log_prob(f[None], y[None], {})[0]), (None, 0))
    )
    for log_prob, score in zip(*value_and_score(output, every), strict=True):
        expected += float(np.exp(log_prob)) * np.outer(score, score)
    keys = jax.random.split(jax.random.key(0), 300)
    roots = jax.jit(jax.vmap(lambda key: crowd.fisher_root_given(output, asked, {}, key)))(keys)
    draws = np.asarray(roots @ roots.swapaxes(1, 2))
    z = (draws.mean(axis=0) - expected) / (draws.std(axis=0) / np.sqrt(len(draws)))
    assert np.abs(z).max() < 4.9
    none = crowd.fisher_root_given(output, jnp.full(4, -1), {}, jax.random.key(0))
    np.testing.assert_allclose(none, 0, atol=1e-6)


def test_answers_are_drawn_by_their_law():
    crowd = L.Annotators(2, 2, confusion=np.stack([PAIR, PAIR[::-1, ::-1]]))
    drawn = np.asarray(crowd.observed(jnp.array([[0.4, 0.0]]), {}).sample(jax.random.key(0), (40_000,)))[:, 0]
    every = jnp.array(list(itertools.product(range(2), repeat=2)))
    chances = np.exp(crowd.log_prob(jnp.tile(jnp.array([[0.4, 0.0]]), (4, 1)), every, {}))
    for answers, chance in zip(np.asarray(every), chances, strict=True):
        share = (drawn == answers).all(axis=1).mean()
        assert abs(share - chance) < 4.9 * np.sqrt(chance * (1 - chance) / len(drawn))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: L.NoisyLabels(L.Categorical(), transition=[[0.9, 0.2], [0.1, 0.9]]), ValueError, "sum to 1, got 1.1"),
        (lambda: L.NoisyLabels(L.Categorical(), transition=[[1.1, -0.1], [0, 1]]), ValueError, "probabilities"),
        (lambda: L.NoisyLabels(L.Categorical(), transition=[[0.5, 0.5]]), ValueError, "square"),
        (lambda: L.NoisyLabels(L.Categorical(), transition=None), TypeError, "must be a matrix"),
        (lambda: L.NoisyLabels(L.CensoredGaussian()), TypeError, "one of classes"),
        (lambda: L.NoisyLabels(L.Gaussian()).check(1, np.zeros(3)), ValueError, "one of classes"),
        (lambda: L.NoisyLabels(L.Categorical(), PAIR).check(3, np.zeros(3, int)), ValueError, r"shape \(3, 3\)"),
        (lambda: L.NoisyLabels(L.NoisyLabels(L.Categorical())), TypeError, "one of classes"),
        (lambda: L.NoisyLabels(L.Categorical()).check(3, np.array([0, 3])), ValueError, "between 0 and 2"),
        (lambda: FullTransition(accuracy=1.0), ValueError, "accuracy must be > 0 and < 1"),
        (lambda: SymmetricTransition(strength=0.0), ValueError, "strength must be > 0"),
        (lambda: Annotators(1, 3), ValueError, "num_classes must be an int >= 2"),
        (lambda: Annotators(2, 0), ValueError, "num_annotators must be an int >= 1"),
        (lambda: Annotators(2, 3, confusion=np.stack([PAIR, PAIR])), ValueError, r"shape \(3, 2, 2\)"),
        (lambda: Annotators(2, 3).check(3, np.zeros((4, 3), int)), ValueError, "must give 2 logits"),
        (lambda: Annotators(2, 3).check(2, np.zeros(4, int)), ValueError, r"shape \(n, 3\).*as_answers"),
        (lambda: Annotators(2, 3).check(2, np.zeros((4, 2), int)), ValueError, r"shape \(n, 3\)"),
        (lambda: Annotators(2, 3).check(2, np.full((4, 3), 2)), ValueError, "labels from 0 to 1.*row 0, column 0"),
        (lambda: Annotators(2, 3).check(2, np.full((4, 3), -2)), ValueError, "got -2"),
        (lambda: Annotators(2, 3).check(2, np.full((4, 3), 0.5)), ValueError, "whole numbers"),
        (lambda: Annotators(2, 3).check_training(np.array([[0, 1, 0], [-1, -1, -1]])), ValueError, "row 1: leave"),
        (lambda: L.Graders(L.NoisyLabels(L.Categorical())), TypeError, "Annotators"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_a_stack_of_known_matrices_is_one_for_each_annotator():
    assert isinstance(as_transition(PAIR), KnownTransition)
    crowd = Annotators(2, 3, confusion=PAIR)  # one for all
    assert crowd.confusion({}, 2).shape == (3, 2, 2)

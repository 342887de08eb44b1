"""Topic models: planted topics, the bound, and scikit-learn on the same documents."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import digamma, gammaln

import marginax as mx
from marginax.data import Batch
from marginax.latent import LDA, Dirichlet
from marginax.latent.documents import as_documents


def planted(num=200, seed=0, length=40):
    """Three topics of four words each."""
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(3), np.full(4, 0.23)) + 0.01
    topics /= topics.sum(1, keepdims=True)
    shares = rng.dirichlet(np.full(3, 0.3), size=num)
    return topics, np.stack([rng.multinomial(length, share @ topics) for share in shares])


@pytest.mark.slow
@pytest.mark.parametrize(("length", "most", "fall"), [(40, 0.2, 0.0), (800, 0.03, 0.1)])
def test_planted_topics_are_found_and_the_bound_rises(length, most, fall):
    """In short documents mean field takes rare words of a topic for words of another.

    That is no matter of chance: with 40 words the error is 0.15 for 200 documents and 0.14 for 1,000, where counts of
    known topics would be wrong by 0.02. It goes with the length of documents: with 800 words it is 0.015.

    The bound never falls while proportions of documents rest in one place. They start anew in every pass, and in a long
    document they may have two such places, of which another is found as topics move; that can cost some hundredths of
    a nat out of 337,235.
    """
    with jax.enable_x64(True):
        topics, counts = planted(length=length)
        method = mx.infer.CoordinateAscent(100, tolerance=0.0)
        lda = mx.fit(LDA(3), counts, method, num_chains=2, key=0, progress=False)
        found = lda.topics()
        error = min(np.abs(found[list(order)] - topics).sum(1).max() for order in itertools.permutations(range(3)))
        assert error < most
        elbos = lda.record.info["iterate"]["elbo"]
        assert np.diff(elbos, axis=1).min() > -fall - 1e-12 * np.abs(elbos).max()  # the latter is rounding


def test_blocks_of_sorted_documents_are_all_documents_at_once():
    """Against products with all words, on documents of very different length, more than one block of them."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        rates = np.exp(rng.normal(-3.0, 2.0, size=(300, 1)))
        counts = rng.poisson(rates, size=(300, 200))
        counts[counts.sum(1) == 0, 3] = 1
        model = LDA(4, num_words=200)
        words = rng.dirichlet(np.ones(200), size=4)
        rows = jax.tree.map(jnp.asarray, model.read(counts).tree)
        found = eqx.filter_jit(model.expect)(jnp.log(words), Batch(rows, jnp.arange(300), 300))
        belief = np.ones((300, 4))
        for _ in range(3000):
            shares = np.exp(digamma(belief))
            belief = 0.25 + shares * ((counts / (shares @ words)) @ words.T)
        shares = np.exp(digamma(belief) - digamma(belief.sum(1, keepdims=True)))
        np.testing.assert_allclose(
            found.statistics, words * (shares.T @ (counts / (shares @ words))), rtol=1e-4, atol=1e-6
        )
        assert float(found.reconstruction) == pytest.approx(np.sum(counts * np.log(shares @ words)), rel=1e-8)
        proportions = eqx.filter_jit(model.proportions)(jnp.log(words), rows)
        np.testing.assert_allclose(proportions, belief / belief.sum(1, keepdims=True), atol=1e-5)
        logs = eqx.filter_jit(model.log_likelihood)(
            model.topics_prior.maximise(jnp.asarray(words)), Batch(rows, jnp.arange(300), 300)
        )
        assert float(jnp.sum(logs)) == pytest.approx(float(found.reconstruction - found.complexity), rel=1e-6)


def test_sparse_counts_are_dense_ones():
    _, counts = planted(20)
    for name, value in as_documents(csr_matrix(counts)).items():
        np.testing.assert_array_equal(value, as_documents(counts)[name])


def test_perplexity_agrees_with_importance_sampling_of_proportions():
    """The bound of a document is below its likelihood, by little."""
    topics, counts = planted(12, seed=1)
    model = LDA(3, Dirichlet(0.3), num_words=12)
    params = model.topics_prior.maximise(jnp.asarray(topics, jnp.float32))
    posterior = mx.posterior.Draws(model=model, params=params[None, None])
    rng, logs, errors = np.random.default_rng(2), [], []
    bounds = posterior.log_likelihood(counts)
    belief = 0.3 + 40 * posterior.proportions(counts)
    for document, gamma in zip(counts, belief, strict=True):
        prior = np.full(3, 0.3)
        both = [
            rng.dirichlet(each, size=20_000) for each in (prior, gamma)
        ]  # half from the prior: no tail is forgotten
        theta = np.maximum(np.concatenate(both), 1e-300)
        proposal = np.logaddexp(dirichlet(theta, prior), dirichlet(theta, gamma)) - np.log(2)
        weight = np.log(theta @ topics) @ document + dirichlet(theta, prior) - proposal
        ratio = np.exp(weight - weight.max())
        logs.append(np.log(ratio.mean()) + weight.max())
        errors.append(ratio.std() / ratio.mean() / np.sqrt(len(ratio)))
    logs, errors = np.array(logs), np.array(errors)
    assert errors.max() < 0.05
    assert np.all(bounds < logs + 4.9 * errors)
    assert np.all(bounds > logs - 1.5)
    sampled = np.exp(-logs.sum() / counts.sum())
    assert sampled < posterior.perplexity(counts) < 1.02 * sampled


def dirichlet(theta, concentration):
    """Log densities."""
    constant = gammaln(concentration.sum()) - gammaln(concentration).sum()
    return constant + np.log(theta) @ (concentration - 1)


def test_one_topic_has_the_evidence_in_closed_form():
    with jax.enable_x64(True):
        counts = np.array([[3, 1, 0], [2, 2, 5]])
        lda = mx.fit(LDA(1, topics=Dirichlet(0.7)), counts, mx.infer.CoordinateAscent(3), key=0, progress=False)
        seen = 0.7 + counts.sum(0)
        evidence = gammaln(seen).sum() - gammaln(seen.sum()) - 3 * gammaln(0.7) + gammaln(2.1)
        assert lda.elbo == pytest.approx(evidence, abs=1e-8)


@pytest.mark.parametrize("concentration", [None, 0.2, 6.0])
def test_proportions_are_the_fixed_point_under_the_prior_that_is_given(concentration):
    topics, counts = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]), np.array([[6, 3, 1], [1, 0, 4]])
    prior = 0.5 if concentration is None else concentration
    belief = np.ones((2, 2))
    for _ in range(2000):
        shares = np.exp(digamma(belief) - digamma(belief.sum(1, keepdims=True)))
        belief = prior + shares * ((counts / (shares @ topics)) @ topics.T)
    model = LDA(2, proportions=None if concentration is None else Dirichlet(concentration))
    with jax.enable_x64(True):
        found = model.proportions(jnp.log(topics), as_documents(counts))
    np.testing.assert_allclose(found, belief / belief.sum(1, keepdims=True), atol=2e-3)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="a word in every document, got none in row 1"):
        mx.fit(LDA(2), np.array([[1, 2], [0, 0]]), mx.infer.CoordinateAscent(), key=0)
    with pytest.raises(ValueError, match="must hold counts, whole numbers >= 0, got -1"):
        mx.fit(LDA(2), np.array([[1, 2], [-1, 0]]), mx.infer.CoordinateAscent(), key=0)
    with pytest.raises(ValueError, match="must have the 12 words of the fit, one in each column, got 3 columns"):
        LDA(2, num_words=12).check_rows(as_documents(np.ones((2, 3))))


SPLIT, DELAY = 19, 4.0
"""Seed of the documents that are compared on, written down before they were looked at, and the one setting that was
chosen: out of delays 1, 4, 10 and 64, by documents of the training part alone (1,500 to fit, 1,500 to judge by)."""


def news(folder, num):
    """Documents of 20 newsgroups, 1,995 words, at random out of both of its parts: to fit, and to judge by."""
    stored = np.load(folder / "text" / "20news_1995words.npz", allow_pickle=False)
    parts = []
    for part in ("train", "test"):
        counts = np.zeros((int(stored[f"{part}_documents"]), len(stored["vocab"])), np.int32)
        np.add.at(counts, (stored[f"{part}_doc"], stored[f"{part}_word"]), stored[f"{part}_count"])
        parts.append(counts[counts.sum(1) > 0])
    unseen = np.random.default_rng(20261117).permutation(len(parts[0]))[3000:]  # by the choice of the setting
    counts = np.concatenate([parts[0][unseen], parts[1]])
    order = np.random.default_rng(SPLIT).permutation(len(counts))
    return counts[order[:num]], counts[order[num : 2 * num]]


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 256])
def test_held_out_perplexity_is_not_above_that_of_scikit_learn(data_dir, batch_size):
    """Over four seeds, with the same number of topics and passes, by one measure for the topics of both."""
    from sklearn.decomposition import LatentDirichletAllocation

    train, test = news(data_dir, 1500)
    passes, num_topics, ours, theirs = 5, 20, [], []
    options = {"learning_method": "batch"} if batch_size is None else {"learning_method": "online", "batch_size": 256}
    num_steps = passes if batch_size is None else passes * -(-len(train) // batch_size)
    method = mx.infer.CoordinateAscent(num_steps, tolerance=0.0, batch_size=batch_size, delay=DELAY)
    model = LDA(num_topics)
    for seed in range(4):
        peer = LatentDirichletAllocation(num_topics, max_iter=passes, random_state=seed, **options).fit(train)
        params = model.topics_prior.maximise(jnp.asarray(peer.components_, jnp.float32))
        theirs.append(mx.posterior.Draws(model=model, params=params[None, None]).perplexity(test))
        ours.append(mx.fit(model, train, method, key=seed, progress=False).perplexity(test))
    print(f"batch_size {batch_size}: perplexity {np.round(ours)}, scikit-learn {np.round(theirs)}")
    assert np.mean(ours) <= np.mean(theirs)

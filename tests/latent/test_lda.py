"""Topic models: planted topics, the bound, and scikit-learn on the same documents."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln

import marginax as mx
from marginax.latent import LDA, Dirichlet


def planted(num=200, seed=0):
    """Three topics of four words each, documents of forty words."""
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(3), np.full(4, 0.23)) + 0.01
    topics /= topics.sum(1, keepdims=True)
    shares = rng.dirichlet(np.full(3, 0.3), size=num)
    return topics, np.stack([rng.multinomial(40, share @ topics) for share in shares])


@pytest.mark.slow
def test_planted_topics_are_found_and_the_bound_rises():
    with jax.enable_x64(True):
        topics, counts = planted()
        method = mx.infer.CoordinateAscent(60, tolerance=0.0)
        lda = mx.fit(LDA(3), counts, method, num_chains=2, key=0, progress=False)
        found = lda.topics()
        error = min(np.abs(found[list(order)] - topics).sum(1).max() for order in itertools.permutations(range(3)))
        assert error < 0.2
        assert np.diff(lda.record.info["iterate"]["elbo"], axis=1).min() > -1e-2  # proportions settle to 1e-3


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
        found = model.proportions(jnp.log(topics), jnp.asarray(counts))
    np.testing.assert_allclose(found, belief / belief.sum(1, keepdims=True), atol=2e-3)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="a word in every document, got none in row 1"):
        mx.fit(LDA(2), np.array([[1, 2], [0, 0]]), mx.infer.CoordinateAscent(), key=0)
    with pytest.raises(ValueError, match="must hold counts, whole numbers >= 0, got -1"):
        mx.fit(LDA(2), np.array([[1, 2], [-1, 0]]), mx.infer.CoordinateAscent(), key=0)


def news(folder, num):
    """The first documents of 20 newsgroups, 1,995 words: training and test."""
    stored = np.load(folder / "text" / "20news_1995words.npz", allow_pickle=False)
    parts = []
    for part in ("train", "test"):
        counts = np.zeros((int(stored[f"{part}_documents"]), len(stored["vocab"])), np.int32)
        np.add.at(counts, (stored[f"{part}_doc"], stored[f"{part}_word"]), stored[f"{part}_count"])
        parts.append(counts[counts.sum(1) > 0][:num])
    return parts


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 256])
def test_held_out_perplexity_is_not_above_that_of_scikit_learn(data_dir, batch_size):
    """Over four seeds, with the same number of topics and passes, by one measure for the topics of both."""
    from sklearn.decomposition import LatentDirichletAllocation

    train, test = news(data_dir, 1500)
    passes, num_topics, ours, theirs = 5, 20, [], []
    options = {"learning_method": "batch"} if batch_size is None else {"learning_method": "online", "batch_size": 256}
    num_steps = passes if batch_size is None else passes * -(-len(train) // batch_size)
    method = mx.infer.CoordinateAscent(num_steps, tolerance=0.0, batch_size=batch_size, delay=10.0)
    model = LDA(num_topics)
    for seed in range(4):
        peer = LatentDirichletAllocation(num_topics, max_iter=passes, random_state=seed, **options).fit(train)
        params = model.topics_prior.maximise(jnp.asarray(peer.components_, jnp.float32))
        theirs.append(mx.posterior.Draws(model=model, params=params[None, None]).perplexity(test))
        ours.append(mx.fit(model, train, method, key=seed, progress=False).perplexity(test))
    print(f"batch_size {batch_size}: perplexity {np.round(ours)}, scikit-learn {np.round(theirs)}")
    assert np.mean(ours) <= np.mean(theirs)

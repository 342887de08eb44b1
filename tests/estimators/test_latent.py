"""Estimators of models with unobserved parts."""

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import marginax as mx
from marginax.estimators import BayesianHMM, BayesianMixture, BayesianPCA, BayesianTopics
from marginax.latent.streaming import absorb, seen_statistics


def clusters(num=60):
    return np.random.default_rng(0).normal(size=(num, 2)) + 8.0 * (np.arange(num) % 2)[:, None]


@pytest.mark.slow
def test_a_mixture_has_scikit_learns_manners():
    x = clusters()
    mixture = clone(BayesianMixture(3, num_chains=2, random_state=0))
    with pytest.raises(NotFittedError):
        mixture.predict(x)
    labels = mixture.fit_predict(x)
    assert (labels[::2] == labels[0]).all()
    assert (labels[1::2] != labels[0]).all()
    np.testing.assert_allclose(mixture.predict_proba(x).sum(1), 1, rtol=1e-5)
    assert mixture.score(x) > mixture.score(x + 30.0)
    assert mixture.sample(5).shape == (5, 2)


@pytest.mark.slow
def test_two_halves_in_turn_are_all_at_once_where_nothing_is_unobserved():
    with jax.enable_x64(True):
        x, method = clusters(), mx.infer.CoordinateAscent(2)
        prior = mx.latent.NormalWishart(np.zeros(2), np.eye(2), 1.0, 3.0)
        model = mx.latent.GaussianMixture(1, prior=prior)
        first = mx.fit(model, x[:20], method, key=0, progress=False)
        both, _ = absorb(first, seen_statistics(first, x[:20]), x[20:])
        whole = mx.fit(model, x, method, key=0, progress=False)
        for found, wanted in zip(jax.tree.leaves(both.belief), jax.tree.leaves(whole.belief), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.slow
def test_parts_end_near_all_rows():
    x = clusters(400)
    mixture = BayesianMixture(2, num_chains=1, random_state=0)
    for part in np.split(x, 8):
        mixture.partial_fit(part)
    centres = np.sort(mixture.posterior_.components()["means"][:, 0])
    np.testing.assert_allclose(centres, [x[::2, 0].mean(), x[1::2, 0].mean()], atol=0.2)
    with pytest.raises(ValueError, match="must be called from the first data on, not after fit"):
        BayesianMixture(2, num_chains=1).fit(x).partial_fit(x)


@pytest.mark.slow
def test_the_others_run():
    rng = np.random.default_rng(0)
    sequences = [clusters(12), clusters(7)]
    hmm = BayesianHMM(2, num_chains=1, random_state=0).fit(sequences)
    assert hmm.predict(sequences).shape == (2, 12)
    assert hmm.predict_proba(sequences).shape == (2, 12, 2)
    assert np.isfinite(hmm.score(sequences))
    counts = rng.poisson(3.0, size=(20, 6)) + 1
    topics = BayesianTopics(3, random_state=0)
    np.testing.assert_allclose(topics.fit_transform(counts).sum(1), 1, rtol=1e-5)
    rows = clusters()
    rows[3, 1] = np.nan
    pca = BayesianPCA(1, random_state=0).fit(rows)
    assert pca.transform(rows).shape == (60, 1)
    mean, lower, upper = pca.impute(rows)
    assert lower[3, 1] < mean[3, 1] < upper[3, 1]

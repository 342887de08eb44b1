"""Exact models against their closed forms."""

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

import marginax as mx
from marginax.latent import BetaBinomial, DirichletMultinomial, GammaPoisson


def test_evidence_and_predictive_are_those_of_scipy():
    with jax.enable_x64(True):
        method = mx.infer.CoordinateAscent(2)
        flips = np.array([[7, 3], [2, 2]])
        coin = mx.fit(BetaBinomial(2.0, 3.0), flips, method, key=0, progress=False)
        evidence = betaln(11, 8) - betaln(2, 3) + np.log(120.0) + np.log(6.0)
        assert coin.elbo == pytest.approx(evidence, abs=1e-9)
        assert coin.predictive([[4, 1]]) == pytest.approx(stats.betabinom(5, 11, 8).logpmf(4), abs=1e-9)

        throws = np.array([[3, 1, 0], [2, 2, 5]])
        die = mx.fit(DirichletMultinomial(0.7), throws, method, key=0, progress=False)
        law = stats.dirichlet_multinomial([5.7, 3.7, 5.7], 4)
        assert die.predictive([[1, 1, 2]]) == pytest.approx(law.logpmf([1, 1, 2]), abs=1e-9)

        counter = mx.fit(GammaPoisson(2.0, 1.5), np.array([[3], [4]]), method, key=0, progress=False)
        assert counter.predictive([[5]]) == pytest.approx(stats.nbinom(9, 3.5 / 4.5).logpmf(5), abs=1e-9)
        first = stats.nbinom(2, 1.5 / 2.5).logpmf(3) + stats.nbinom(5, 2.5 / 3.5).logpmf(4)
        assert counter.elbo == pytest.approx(first, abs=1e-9)


def test_draws_are_those_of_the_posterior():
    coin = mx.fit(BetaBinomial(), np.array([[7, 3]]), mx.infer.CoordinateAscent(2), key=0, progress=False)
    chance = 1 / (1 + np.exp(-np.asarray(coin.sample(20_000, key=1))[:, 0]))
    assert stats.kstest(chance, stats.beta(8, 4).cdf).pvalue > 1e-4


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="must hold counts, whole numbers >= 0, got -1"):
        mx.fit(BetaBinomial(), np.array([[-1, 2]]), mx.infer.CoordinateAscent(), key=0)

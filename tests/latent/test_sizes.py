"""The size with the highest bound is the planted one, for every kind of model that has a size."""

import numpy as np
import pytest
from tests.latent.test_lda import planted as documents
from tests.latent.test_pca import planted as rows

import marginax as mx
from marginax.latent import HMM, LDA, PCA, GaussianMixture, choose_size


def clusters(num=240, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])[np.arange(num) % 3] + rng.normal(size=(num, 2))


def sequences(seed=0):
    rng = np.random.default_rng(seed)
    states = [np.cumsum(rng.random(60) < 0.1) % 3 for _ in range(6)]
    return [rng.poisson(np.array([1.0, 8.0, 25.0])[each])[:, None] for each in states]


CASES = {
    "mixture": (GaussianMixture, (2, 3, 4), clusters, 3),
    "states": (lambda k: HMM(k, "poisson"), (2, 3, 4), sequences, 3),
    "topics": (LDA, (2, 3, 4), lambda: documents(150)[1], 3),
    "factors": (PCA, (1, 2, 3), lambda: rows(200, seed=3)[1], 2),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "mixture" else pytest.mark.slow) for name in CASES]
)
def test_the_planted_size_has_the_highest_bound(name):
    build, sizes, data, wanted = CASES[name]
    method = mx.infer.CoordinateAscent(200)
    choice = choose_size(build, sizes, data(), method, key=0, num_chains=3, progress=False)
    assert choice.size == wanted
    assert choice.posterior.elbo == max(row.elbo for row in choice.rows) == choice.best.elbo
    for row in choice.rows:
        assert len(row.elbos) == 3
        assert row.elbo == pytest.approx(row.reconstruction - row.complexity, rel=1e-5)
    assert f"{wanted:>4}  {choice.best.elbo:>12.1f}  {0.0:>9.1f}" in str(choice)


@pytest.mark.parametrize(
    ("sizes", "method", "text"),
    [
        ((), None, r"sizes must be different whole numbers >= 1, such as range\(1, 9\), got \[\]"),
        ((0, 1), None, r"sizes must be different whole numbers >= 1, .* got \[0, 1\]"),
        ((2, 2), None, r"sizes must be different"),
        ((1, 2), mx.infer.EM(), "method must be mx.infer.CoordinateAscent"),
        ((1, 2), mx.infer.CoordinateAscent(batch_size=8), "method must be .* with batch_size=None"),
    ],
)
def test_mistakes_are_named(sizes, method, text):
    with pytest.raises(ValueError, match=text):
        choose_size(GaussianMixture, sizes, clusters(), method, key=0)

"""Data that cannot be meant are refused by name, with a remedy, before anything compiles: in under a second."""

import time

import numpy as np
import pytest

import marginax as mx
from marginax.latent import (
    HMM,
    LDA,
    PCA,
    BetaBinomial,
    GammaPoisson,
    GaussianMixture,
    LinearRegression,
    LogisticRegression,
    Mixture,
)

NAN, ROWS = np.array([[0.0, 1.0], [np.nan, 2.0], [1.0, 1.0]]), np.arange(6.0).reshape(3, 2)
CASES = [
    (lambda: GaussianMixture(2), NAN, "data has 1 values that are NaN or infinite, the first in row 1"),
    (lambda: GaussianMixture(2), np.zeros((0, 2)), "data .*(empty|at least one|no rows|0 rows)"),
    (lambda: GaussianMixture(2), np.zeros((1, 2)), "num_components must be at most the 1 rows of the data, got 2"),
    (lambda: GaussianMixture(2), np.zeros(5), r"data must have shape \(n, axes\) for normal components"),
    (lambda: GaussianMixture(2), [["a", "b"], ["c", "d"]], "data must be numeric|data must be a numeric array"),
    (lambda: Mixture(2, "poisson"), -ROWS.astype(int), "whole numbers >= 0"),
    (lambda: Mixture(2, "poisson"), ROWS + 0.5, "whole numbers >= 0"),
    (lambda: HMM(2), [], "data must hold at least one sequence, got none"),
    (lambda: HMM(2), [np.zeros((3, 1)), np.zeros((0, 1))], "length >= 1, got length 0 in sequence 1"),
    (lambda: HMM(2), [NAN], 'NaN in sequence 0: pass {"x": ..., "mask": ...}'),
    (lambda: HMM(2), {"x": NAN[None], "mask": np.ones((1, 3))}, "NaN in sequence 0"),
    (lambda: HMM(2), {"x": ROWS[None], "mask": np.zeros((1, 3))}, "num_states must be at most the 0 observed steps"),
    (lambda: HMM(2, "poisson"), [-ROWS.astype(int)], "whole numbers >= 0"),
    (lambda: LDA(2), NAN, "data has 1 values that are NaN or infinite"),
    (lambda: LDA(2), np.zeros((0, 4)), "data .*(empty|at least one|no rows|0 rows)"),
    (lambda: LDA(2), ROWS + 0.5, "must hold counts, whole numbers >= 0"),
    (lambda: LDA(2), -ROWS, "must hold counts, whole numbers >= 0, got -5"),
    (lambda: LDA(2), ROWS * [[0], [1], [1]], "a word in every document, got none in row 0: leave it out"),
    (lambda: PCA(1), NAN, 'NaN in row 1: pass {"x": ..., "mask": ...} if an entry is missing'),
    (lambda: PCA(1), np.zeros((0, 3)), "data .*(empty|at least one|no rows|0 rows)"),
    (lambda: PCA(2), np.zeros((1, 3)), "num_factors must be at most 1 for data 1 x 3, got 2"),
    (lambda: PCA(1), np.zeros(5), r"data must have shape \(n, columns\), got \(5,\)"),
    (lambda: PCA(1), {"x": ROWS, "mask": np.zeros((3, 2))}, "mask must be True .* no entry is observed"),
    (lambda: PCA(1, "binary"), ROWS, "must hold 0 and 1 for outcome='binary'"),
    (lambda: PCA(1, "poisson"), -ROWS, "counts, whole numbers >= 0, for outcome='poisson', got -5 at least"),
    (lambda: BetaBinomial(), np.array([[-1, 2]]), "must hold counts, whole numbers >= 0, got -1"),
    (lambda: BetaBinomial(), NAN, "data has 1 values that are NaN or infinite"),
    (lambda: GammaPoisson(), np.zeros((0, 1)), "data .*(empty|at least one|no rows|0 rows)"),
    (lambda: LinearRegression(), (NAN, np.zeros(3)), "x has 1 values that are NaN or infinite, the first in row 1"),
    (lambda: LinearRegression(), (ROWS, [0.0, np.nan, 1.0]), "y has 1 values that are NaN or infinite"),
    (lambda: LinearRegression(), (ROWS, np.zeros(2)), "x and y must have the same number of rows, got 3 and 2"),
    (lambda: LinearRegression(), (np.zeros((0, 2)), np.zeros(0)), "x .*(empty|at least one|no rows|0 rows)"),
    (lambda: LogisticRegression(), (ROWS, np.array([1, 2, 1])), r"y must hold labels 0 and 1, got \[1, 2\]"),
]


@pytest.fixture(scope="module", autouse=True)
def started():
    """The first call of a process also starts JAX."""
    with pytest.raises(ValueError, match="NaN"):
        mx.fit(GaussianMixture(2), NAN, mx.infer.CoordinateAscent(), key=0)


@pytest.mark.parametrize(("build", "data", "text"), CASES, ids=[f"{i}" for i in range(len(CASES))])
def test_bad_data_are_refused_by_name_in_under_a_second(build, data, text):
    began = time.perf_counter()
    with pytest.raises((ValueError, TypeError), match=text):
        mx.fit(build(), data, mx.infer.CoordinateAscent(), key=0, progress=False)
    assert time.perf_counter() - began < 1.0


def test_one_row_is_enough_where_it_says_something():
    method = mx.infer.CoordinateAscent(3)
    for model, data in (
        (GaussianMixture(1), np.zeros((1, 2))),
        (HMM(1), [np.zeros((1, 2))]),
        (LDA(2), np.array([[1, 2, 0]])),
        (PCA(1), np.array([[1.0, 2.0]])),
        (LinearRegression(), (np.zeros((1, 1)), np.zeros(1))),
    ):
        assert np.isfinite(mx.fit(model, data, method, key=0, progress=False).elbo)

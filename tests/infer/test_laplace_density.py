"""Laplace on a model without a network: exact for a normal density, evidence included; what needs layers is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.curvature import (
    EKFAC,
    GGN,
    BlockDiagonal,
    Dense,
    Diagonal,
    EmpiricalFisher,
    Hessian,
    Kronecker,
    LowRank,
    MonteCarloFisher,
)
from marginax.infer import LBFGS, MAP, Evidence, Laplace

RNG = np.random.default_rng(0)
MEAN, ROOT = RNG.normal(size=5), RNG.normal(size=(5, 5)) / 2 + np.eye(5)
PRECISION, CONSTANT = ROOT @ ROOT.T, 1.7
TRAINING = MAP(num_epochs=60, batch_size=None, optimiser=LBFGS())


def _log_prob(params):
    flat = jnp.concatenate([params["a"]["u"].ravel(), params["b"]["v"], params["b"]["w"][None]]) - MEAN
    return CONSTANT - 0.5 * flat @ jnp.asarray(PRECISION, flat.dtype) @ flat


@pytest.fixture(scope="module")
def density():
    start = {"a": {"u": np.zeros((1, 2))}, "b": {"v": np.zeros(2), "w": 0.0}}
    return mx.Density(_log_prob, start)


def _evidence(precision):
    return CONSTANT + 2.5 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]


def _expected(structure):
    """The precision that the structure keeps."""
    if isinstance(structure, Diagonal):
        return np.diag(np.diag(PRECISION))
    if isinstance(structure, BlockDiagonal):
        same = np.array([0, 0, 1, 1, 1])
        return np.where(same[:, None] == same, PRECISION, 0.0)
    if isinstance(structure, LowRank) and structure.rank < 5:
        values, vectors = np.linalg.eigh(PRECISION)
        values = np.maximum(values, values[-structure.rank])
        return (vectors * values) @ vectors.T
    return PRECISION


STRUCTURES = [Dense(), Diagonal(), BlockDiagonal(), LowRank(), LowRank(3, num_passes=8)]


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: f"{type(s).__name__}{getattr(s, 'rank', '')}")
def test_a_normal_density_has_its_own_covariance_and_evidence(density, structure):
    posterior = mx.fit(density, None, Laplace(structure=structure, kind=Hessian(), training=TRAINING), key=0)
    exact = _expected(structure)
    np.testing.assert_allclose(jax.flatten_util.ravel_pytree(posterior.mean)[0], MEAN, atol=1e-3)
    np.testing.assert_allclose(posterior.covariance.dense(), np.linalg.inv(exact), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(float(posterior.log_evidence()), _evidence(exact), atol=1e-4)


def test_it_starts_at_a_given_place_and_a_subset_leaves_the_rest_there(density):
    mode = {"a": {"u": MEAN[None, :2]}, "b": {"v": MEAN[2:4], "w": MEAN[4]}}
    method = Laplace(structure=Dense(), kind=Hessian(), subset=mx.Paths("b/*"))
    posterior = mx.fit(density, None, method, init=mode, key=0)
    dense = np.asarray(posterior.covariance.dense())
    np.testing.assert_allclose(dense[2:, 2:], np.linalg.inv(PRECISION[2:, 2:]), rtol=1e-4)
    assert not dense[:2].any()
    draws = posterior.sample_params(4000, key=jax.random.key(1))
    np.testing.assert_array_equal(np.asarray(draws["a"]["u"]), np.broadcast_to(np.float32(MEAN[:2]), (4000, 1, 2)))
    error = 4.9 * np.sqrt(dense[4, 4] / 4000)
    assert abs(float(draws["b"]["w"].mean()) - MEAN[4]) < error


def test_single_weights_of_largest_variance(density):
    method = Laplace(structure=Dense(), kind=Hessian(), subset=mx.LargestVariance(2), training=TRAINING)
    variances = np.asarray(mx.fit(density, None, method, key=0).covariance.variances())
    assert set(np.flatnonzero(variances)) == set(np.argsort(np.diag(PRECISION))[:2])


REFUSED = [
    {"structure": Kronecker(), "kind": Hessian()},
    {"structure": EKFAC(), "kind": Hessian()},
    *({"structure": Dense(), "kind": kind} for kind in (GGN(), EmpiricalFisher(), MonteCarloFisher())),
    {},
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_what_needs_layers_is_refused_in_one_sentence(density, options):
    message = (
        r"needs the layers of a network, which Density has not: use structure=mx.curvature.Dense\(\), Diagonal\(\) or "
        r"LowRank\(\) with kind=mx.curvature.Hessian\(\)"
    )
    with pytest.raises(TypeError, match=message):
        mx.fit(density, None, Laplace(**options), key=0)
    with pytest.raises(TypeError, match=message):
        Laplace(**options).cost(density, None)


def test_tuning_needs_a_prior_of_weights(density):
    with pytest.raises(TypeError, match="tuning needs the layers of a network, which Density has not"):
        mx.fit(density, None, Laplace(structure=Dense(), kind=Hessian(), tuning=Evidence()), key=0)


def test_the_cost_is_known_before(density):
    assert Laplace(structure=Dense(), kind=Hessian()).cost(density, None).num_bytes == 4 * 4 * 5**2


def test_a_subset_of_single_weights_is_not_for_models():
    with pytest.raises(ValueError, match="subset of a model must be whole leaves"):
        mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(), subset=mx.LargestVariance(1))

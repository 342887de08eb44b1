"""Every kind of posterior has its joint law over inputs: covariance matrices against exact ones, kind by kind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import marginax as mx
from marginax.calibrate import Calibrated, VarianceScaling
from marginax.curvature import EKFAC, Dense, DenseCovariance, Kronecker, LowRank
from marginax.data import DataSpec
from marginax.estimators.stack import Stack, Stacked
from marginax.nets.noise import Dropout
from marginax.posterior import AbstractPosterior, Conjugate, Draws, Gaussian, Guided, Mixture, Stochastic, Transformed
from marginax.posterior.flow import AutoregressiveFlow

NUM, NOISE = 4000, 0.3
AT = np.array([[-1.0, 0.5], [-0.6, 0.4], [0.8, 0.3], [1.0, -1.2]], np.float32)
SPEC = DataSpec((2,), (), 30)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2)).astype(np.float32)
Y = np.sin(2 * X[:, 0]) + NOISE * RNG.normal(size=30)

# Margins only, as `RegressionPrediction.sample` says.
WITHOUT = {"ConditionedProcess"}


@dataclass(frozen=True)
class Law:
    """Samples (num, inputs) with the exact mean and covariance, and of how many functions they are made."""

    samples: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    num_functions: float = np.inf


def model_of(hidden: tuple[int, ...] = (), likelihood: Any = None) -> mx.Model:
    network = mx.nets.MLP(2, hidden, 1, activation=jnp.tanh, key=0)
    return mx.Model(network, likelihood or mx.likelihoods.Gaussian(scale=NOISE))


def outputs(model: mx.Model, params: Any) -> np.ndarray:
    return np.asarray(jax.vmap(lambda p: model.output(p, jnp.asarray(AT))[:, 0])(params), np.float64)


def of_functions(values: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of targets whose means are these functions."""
    weights = np.full(len(values), 1 / len(values)) if weights is None else weights
    mean = weights @ values
    return mean, (values - mean).T * weights @ (values - mean) + NOISE**2 * np.eye(len(AT))


def some_draws(model: mx.Model, num: int, seed: int, scale: float = 0.5) -> Draws:
    rng = np.random.default_rng(seed)

    def spread(leaf: Any) -> np.ndarray:
        return np.asarray(leaf) + scale * rng.normal(size=(1, num, *leaf.shape)).astype(np.float32)

    return Draws(model, jax.tree.map(spread, model.initial(1)), SPEC)


def sampled(posterior: AbstractPosterior, num_functions: int | None = None) -> np.ndarray:
    return posterior.predict(AT, num_samples=num_functions, key=3).sample(NUM, key=1).astype(np.float64)


def draws() -> Law:
    posterior = some_draws(model_of((3,)), 40, 1)
    return Law(sampled(posterior), *of_functions(outputs(posterior.model, posterior.flat())))


def normal_moments(posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of the outputs of a linearised normal: J S J' with the Jacobian written out."""
    flat, unravel = ravel_pytree(posterior.mean)
    function = lambda w: posterior.model.output(unravel(w), jnp.asarray(AT))[:, 0]  # noqa: E731
    jacobian = np.asarray(jax.jacobian(function)(flat), np.float64)
    return np.asarray(function(flat), np.float64), jacobian @ np.asarray(posterior.covariance.dense()) @ jacobian.T


def laplace(structure: Any, likelihood: Any = None) -> Any:
    model, method = model_of((3,), likelihood), mx.infer.Laplace(structure=structure, training=None)
    return mx.fit(model, (X, Y), method, init=model.network, key=0, progress=False)


def linearised(structure: Any) -> Law:
    posterior = laplace(structure)
    mean, covariance = normal_moments(posterior)
    return Law(sampled(posterior), mean, covariance + NOISE**2 * np.eye(len(AT)))


def linearised_by_functions() -> Law:
    """Without a closed form: the means under each draw are the functions."""
    posterior = laplace(Kronecker(), mx.likelihoods.StudentT(scale=NOISE))
    means = posterior.predict(AT, num_samples=NUM, key=3).means.astype(np.float64)
    return Law(means, *normal_moments(posterior))


def through_the_network() -> Law:
    model = model_of()
    start = model.initial(1)
    root = np.tril(RNG.normal(size=(3, 3))).astype(np.float32)
    posterior = Gaussian(model, start, DenseCovariance(jnp.asarray(root)), SPEC)
    mean, covariance = normal_moments(posterior)
    return Law(sampled(posterior, NUM), mean, covariance + NOISE**2 * np.eye(len(AT)), NUM)


def mixture() -> Law:
    parts = [laplace(Dense()), some_draws(model_of((3,)), 1, 4, 1.0)]
    shifted = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), parts[1].params)
    parts[1] = Gaussian(parts[0].model, shifted, parts[0].covariance, SPEC, predictive=parts[0].predictive)
    weights = np.array([0.3, 0.7])
    means, covariances = zip(*map(normal_moments, parts), strict=True)
    mean = weights @ np.stack(means)
    away = np.stack(means) - mean
    covariance = np.tensordot(weights, np.stack(covariances) + away[:, :, None] * away[:, None, :], 1)
    return Law(sampled(Mixture(parts, weights, spec=SPEC)), mean, covariance + NOISE**2 * np.eye(len(AT)))


def mixture_of_draws() -> Law:
    parts = [some_draws(model_of((3,)), num, seed) for num, seed in ((20, 1), (7, 2))]
    values = [outputs(part.model, part.flat()) for part in parts]
    weights = np.repeat([0.2 / 20, 0.8 / 7], [20, 7])
    posterior = Mixture(parts, np.array([0.2, 0.8]))
    return Law(sampled(posterior), *of_functions(np.concatenate(values), weights))


def dropout() -> Law:
    """A linear network with inputs dropped: cov(f(x), f(x')) = p / (1 - p) sum_i w_i^2 x_i x_i'."""
    model, rate = model_of(), 0.3
    params = jax.tree.map(lambda leaf: leaf[None], model.initial(1))
    layer = model.network.layers[0]
    weight = np.asarray(layer.weight, np.float64)[0]
    covariance = rate / (1 - rate) * (AT * weight**2) @ AT.T + NOISE**2 * np.eye(len(AT))
    mean = AT @ weight + float(layer.bias[0])
    return Law(sampled(Stochastic(model, params, (Dropout(rate),), SPEC), NUM), mean, covariance, NUM)


def flow() -> Law:
    """Against draws of the weights by another key."""
    model = model_of()
    start = model.initial(1)
    bent = AutoregressiveFlow(3, 2, key=jax.random.key(1))
    bent = jax.tree.map(lambda leaf: 20.0 * leaf, bent)
    posterior = Transformed(model, start, jax.tree.map(lambda leaf: 0.0 * leaf + 0.5, start), bent, SPEC)
    many = outputs(model, posterior.sample_params(100_000, key=jax.random.key(9)))
    return Law(sampled(posterior, NUM), *of_functions(many), NUM)


def line(x, y):
    weight = numpyro.sample("weight", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ weight, NOISE), obs=y)


def line_guide(x, y):
    numpyro.sample("weight", dist.Normal(jnp.array([1.0, -0.5]), jnp.array([0.4, 0.8])).to_event(1))


def guided(key: int | None) -> Law:
    """Also as it comes, where one key draws the unknowns and what they cause."""
    program = mx.Program(line).bind({"x": X, "y": Y.astype(np.float32)})
    drawn = Guided(program, line_guide, {}).sample_predictive({"x": AT}, num_samples=NUM, key=key)["y"]
    covariance = (AT * np.array([0.4, 0.8]) ** 2) @ AT.T + NOISE**2 * np.eye(len(AT))
    return Law(np.asarray(drawn, np.float64), AT @ np.array([1.0, -0.5]), covariance)


def conjugate() -> Law:
    """Weights of three components are jointly Dirichlet."""
    x = np.concatenate([np.full(12, -5.0), np.full(6, 0.0), np.full(3, 5.0)])[:, None] + 0.1 * RNG.normal(size=(21, 1))
    mix = mx.fit(mx.latent.GaussianMixture(3), x, mx.infer.CoordinateAscent(), key=0, progress=False)
    assert isinstance(mix, Conjugate)
    alpha = np.asarray(mix.belief["weights"], np.float64)
    share = alpha / alpha.sum()
    drawn = mix.sample_params(NUM, key=jax.random.key(1))["weights"]
    logs = jax.vmap(mix.model.weights_prior.natural)(drawn)
    exact = (np.diag(share) - np.outer(share, share)) / (alpha.sum() + 1)
    return Law(np.exp(np.asarray(logs, np.float64)), share, exact)


def regression(noise_scale: float | None) -> Law:
    """Exact predictions of a line: normal where the noise is known, else Student t."""
    model = mx.latent.LinearRegression(noise_scale=noise_scale)
    line = mx.fit(model, (X[:6], Y[:6]), mx.infer.CoordinateAscent(), key=0, progress=False)
    assert isinstance(line, Conjugate)
    belief = {name: np.asarray(leaf, np.float64) for name, leaf in line.belief.items()}
    phi = np.asarray(line.model.features(jnp.asarray(AT)), np.float64)
    variance = noise_scale**2 if noise_scale else float(np.ravel(belief["b"] / (belief["a"] - 1.0))[0])
    covariance = variance * (phi @ np.linalg.inv(belief["precision"][0]) @ phi.T + np.eye(len(AT)))
    return Law(sampled(line), (phi @ belief["mean"].T)[:, 0], covariance)


def calibrated() -> Law:
    posterior = laplace(Dense())
    mean, covariance = normal_moments(posterior)
    wider = Calibrated(posterior, VarianceScaling(factor=2.0))
    return Law(sampled(wider), mean, 4.0 * (covariance + NOISE**2 * np.eye(len(AT))))


def stacked() -> Law:
    network, other = some_draws(model_of((3,)), 20, 1), some_draws(model_of(), 30, 2)
    posterior = Stacked(network, Stack(("network", "line"), (other,), np.array([0.6, 0.4]), True, np.zeros(3)))
    values = np.concatenate([outputs(part.model, part.flat()) for part in (network, other)])
    return Law(sampled(posterior), *of_functions(values, np.repeat([0.6 / 20, 0.4 / 30], [20, 30])))


KINDS: dict[str, tuple[str, Callable[[], Law]]] = {
    "draws": ("Draws", draws),
    "normal, through the network": ("Gaussian", through_the_network),
    "linearised, dense": ("Gaussian", lambda: linearised(Dense())),
    "linearised, Kronecker": ("Gaussian", lambda: linearised(Kronecker())),
    "linearised, EKFAC": ("Gaussian", lambda: linearised(EKFAC())),
    "linearised, low rank": ("Gaussian", lambda: linearised(LowRank(rank=3))),
    "linearised, without a closed form": ("Gaussian", linearised_by_functions),
    "mixture, linearised": ("Mixture", mixture),
    "mixture of draws": ("Mixture", mixture_of_draws),
    "dropout": ("Stochastic", dropout),
    "flow": ("Transformed", flow),
    "guide": ("Guided", lambda: guided(None)),
    "guide, with a key": ("Guided", lambda: guided(2)),
    "conjugate": ("Conjugate", conjugate),
    "regression, known noise": ("Conjugate", lambda: regression(0.5)),
    "regression": ("Conjugate", lambda: regression(None)),
    "calibrated": ("Calibrated", calibrated),
    "stack": ("Stacked", stacked),
}


def assert_joint(law: Law, samples: np.ndarray) -> None:
    """Every entry of mean and covariance matrix, in standard errors."""
    away = samples - law.mean
    products = away[:, :, None] * away[:, None, :]
    for values, exact in ((away, 0.0), (products, law.covariance)):
        error = values.std(axis=0) * np.sqrt(1 / len(samples) + 1 / law.num_functions)
        assert (np.abs(values.mean(axis=0) - exact) < 4.9 * error).all()


@pytest.mark.parametrize("name", KINDS)
def test_samples_have_the_joint_law_over_inputs(name):
    law = KINDS[name][1]()
    assert_joint(law, law.samples)
    shuffled = np.random.default_rng(1)  # of this test alone, whatever ran before
    alone = np.stack([shuffled.permutation(column) for column in law.samples.T], axis=1)
    with pytest.raises(AssertionError):  # the check can fail: margins as they are, inputs independent
        assert_joint(law, alone)


def test_no_kind_of_posterior_is_left_out():
    def concrete(kind: type) -> set[str]:
        below = set().union(*map(concrete, kind.__subclasses__()))
        ours = kind.__module__.startswith("marginax.") and not kind.__name__.startswith("Abstract")
        return below | ({kind.__name__} if ours else set())

    assert concrete(AbstractPosterior) == {kind for kind, _ in KINDS.values()} | WITHOUT

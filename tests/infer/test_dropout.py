"""Dropout and its relatives as inference: closed forms on linear networks, functions as draws, learned rates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.infer import (
    MAP,
    ConcreteDropout,
    DropConnect,
    GaussianDropout,
    MCDropout,
    StochasticActivations,
)
from marginax.nets.noise import Dropout
from marginax.posterior import Stochastic

NUM = 20_000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5]) + 0.1 * RNG.normal(size=60)).astype(np.float32)


def linear_model(scale: float = 0.3) -> mx.Model:
    return mx.Model(mx.nets.MLP(3, (), 1, key=0), mx.likelihoods.Gaussian(scale=scale))


def curve_model(**options) -> mx.Model:
    return mx.Model(mx.nets.MLP(3, (20, 10), 1, key=0, **options), mx.likelihoods.Gaussian(scale=0.3))


@pytest.mark.parametrize(
    ("method", "factor", "kurtosis"),
    [(MCDropout(0.2, num_epochs=200), 0.25, 5.0), (GaussianDropout(0.3, num_epochs=200), 0.3, 3.0)],
    ids=["dropout", "gaussian dropout"],
)
def test_predictive_variance_of_a_linear_network_is_the_closed_form(method, factor, kurtosis):
    posterior = mx.fit(linear_model(), (X, Y), method, key=0)
    weight = np.asarray(posterior.params.network.layers[0].weight)[0, 0]
    exact = factor * (X[:8] ** 2 @ weight**2)
    prediction = posterior.predict(X[:8], num_samples=NUM, key=1)
    assert (np.abs(prediction.epistemic / exact - 1) < 4.9 * np.sqrt((kurtosis - 1) / NUM)).all()
    mean = X[:8] @ weight + np.asarray(posterior.params.network.layers[0].bias)[0, 0]
    assert (np.abs(prediction.mean - mean) < 4.9 * np.sqrt(exact / NUM)).all()


def test_dropout_in_training_shrinks_weights_as_ridge_regression_does():
    """On a linear network the expected loss is that of ridge regression with penalty p / (1 - p) times sum of x^2."""
    rate, scale = 0.3, 0.3
    model = mx.Model(mx.nets.MLP(3, (), 1, key=0), mx.likelihoods.Gaussian(scale=scale), mx.priors.Flat())
    posterior = mx.fit(model, (X, Y), MCDropout(rate, num_epochs=20_000, batch_size=None), key=0)
    design = np.concatenate([X, np.ones((60, 1))], axis=1)
    penalty = np.diag([*(rate / (1 - rate) * (X**2).sum(axis=0)), 0.0])
    wanted = np.linalg.solve(design.T @ design + penalty, design.T @ Y)
    layer = posterior.params.network.layers[0]
    found = np.concatenate([np.asarray(layer.weight)[0, 0], np.asarray(layer.bias)[0]])
    np.testing.assert_allclose(found, wanted, atol=0.02)


METHODS = {
    "MCDropout": MCDropout(0.1, num_epochs=100),
    "GaussianDropout": GaussianDropout(num_epochs=100),
    "ConcreteDropout": ConcreteDropout(num_epochs=100),
    "DropConnect": DropConnect(num_epochs=100),
    "StochasticActivations": StochasticActivations(num_epochs=100),
}


DEFAULT = ("MCDropout", "GaussianDropout")
PARAMS = [pytest.param(m, id=name, marks=[] if name in DEFAULT else pytest.mark.slow) for name, m in METHODS.items()]


@pytest.mark.parametrize("method", PARAMS)
def test_a_draw_is_a_network_and_predictions_average_draws(method):
    posterior = mx.fit(curve_model(), (X, Y), method, key=0, num_chains=2)
    assert isinstance(posterior, Stochastic)
    networks = posterior.sample(40, key=posterior.key)
    outputs = eqx.filter_vmap(lambda net: jax.vmap(net)(jnp.asarray(X)))(networks)[..., 0]
    prediction = posterior.predict(X, num_samples=40, key=posterior.key)
    np.testing.assert_allclose(prediction.mean, outputs.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(prediction.epistemic, outputs.var(axis=0), rtol=1e-3, atol=1e-6)
    assert prediction.epistemic.min() > 0


@pytest.mark.slow
def test_dropout_of_the_network_itself_is_used_and_stays_on():
    posterior = mx.fit(curve_model(dropout=0.2), (X, Y), MCDropout(num_epochs=50), key=0)
    assert posterior.noise == ()
    assert posterior.predict(X).epistemic.min() > 0
    with pytest.raises(ValueError, match="rate must be None"):
        mx.fit(curve_model(dropout=0.2), (X, Y), MCDropout(0.1), key=0)


@pytest.mark.slow
def test_dropout_layers_of_equinox_are_used():
    net = eqx.nn.Sequential(
        [
            eqx.nn.Linear(3, 16, key=jax.random.key(0)),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Dropout(0.3),
            eqx.nn.Linear(16, 1, key=jax.random.key(1)),
        ]
    )
    posterior = mx.fit(mx.Model(net, mx.likelihoods.Gaussian(0.3)), (X, Y), MCDropout(num_epochs=30), key=0)
    assert posterior.noise == ()
    assert posterior.predict(X).epistemic.min() > 0


def test_every_chain_has_the_noise_that_it_learned():
    """Two networks of equal weights, one without noise and one with much: the spread is that of one half."""
    model = linear_model()
    weight = np.asarray(model.network.layers[0].weight)[0]
    params = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), model.initial(1))
    posterior = Stochastic(model, params, (Dropout(jnp.array([0.0, 0.5])),), mx.data.DataSpec((3,), (), 60))
    prediction = posterior.predict(X[:8], num_samples=NUM, key=1)
    exact = 0.5 * X[:8] ** 2 @ weight**2
    assert (np.abs(prediction.epistemic / exact - 1) < 4.9 * np.sqrt(5.0 / NUM)).all()
    nets = posterior.sample(2000, key=2)
    outputs = np.asarray(eqx.filter_vmap(lambda net: jax.vmap(net)(jnp.asarray(X[:8])))(nets), np.float64)[:, :, 0]
    assert np.ptp(outputs[::2], axis=0).max() < 1e-5
    assert (np.abs(outputs[1::2].var(axis=0) / (2 * exact) - 1) < 4.9 * np.sqrt(2.0 / 1000)).all()


def test_only_layers_with_random_weights_are_disturbed():
    model = mx.Model(curve_model().network, mx.likelihoods.Gaussian(scale=0.3), subset=mx.LastLayer())
    posterior = mx.fit(model, (X, Y), MCDropout(0.1, num_epochs=5), key=0)
    assert [rule is None for rule in posterior.noise] == [True, True, False]


@pytest.mark.slow
def test_rates_are_learned_low_where_data_are_plenty_and_high_where_they_are_few():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 3)).astype(np.float32)
    y = np.sin(2 * x[:, 0]).astype(np.float32)
    rates = []
    for num in (30, 3000):
        posterior = mx.fit(curve_model(), (x[:num], y[:num]), ConcreteDropout(num_epochs=None), key=0)
        rates.append(np.mean([float(np.ravel(rule.rate)[0]) for rule in posterior.noise if rule is not None]))
    assert rates[1] < 0.5 * rates[0]


@pytest.mark.slow
def test_units_learn_how_sure_they_are():
    """With little data factors stay near their prior, with much they do not."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 3)).astype(np.float32)
    y = np.sin(2 * x[:, 0]).astype(np.float32)
    scales = []
    for num in (10, 2000):
        posterior = mx.fit(curve_model(), (x[:num], y[:num]), StochasticActivations(), key=0)
        scales.append(np.mean([np.mean(rule.scale) for rule in posterior.noise if rule is not None]))
    assert scales[1] < 0.7 * scales[0]


@pytest.mark.slow
def test_averaging_beats_weight_scaling_where_the_network_is_unsure():
    """Two classes that overlap: the average over dropout has a better likelihood than one pass with scaled weights."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)).astype(np.float32)
    y = (x[:, 0] + 0.8 * rng.normal(size=400) > 0).astype(np.int32)
    model = mx.Model(mx.nets.MLP(2, (50, 50), 2, key=0), mx.likelihoods.Categorical(), mx.priors.Normal(3.0))
    posterior = mx.fit(model, (x[:200], y[:200]), MCDropout(0.5, num_epochs=400), key=0)
    scaled = jax.tree.map(lambda a: a[:, None], posterior.params)
    scaled = mx.posterior.Draws(model=model, params=scaled, spec=posterior.spec)
    averaged, single = (-np.mean(p.predict(x[200:]).log_prob(y[200:])) for p in (posterior, scaled))
    assert averaged < single


def test_a_network_without_layers_is_refused_with_advice():
    model = mx.Model((jnp.ones(3), lambda w, x: w @ x), mx.likelihoods.Gaussian(0.3))
    with pytest.raises(ValueError, match=r"no layers that can be disturbed.*VI\(\)"):
        mx.fit(model, (X, Y), MCDropout(0.1), key=0)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: MCDropout(1.0), r"rate must be in \(0, 1\)"),
        (lambda: DropConnect(0.0), r"rate must be in \(0, 1\)"),
        (lambda: GaussianDropout(0.0), "variance must be > 0"),
        (lambda: ConcreteDropout(0.0), "initial_rate must be in"),
        (lambda: StochasticActivations(prior_scale=0.0), "prior_scale must be > 0"),
    ],
)
def test_bad_settings_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_training_without_noise_is_map():
    """The rate going to zero, the objective is that of MAP."""
    options = {"num_epochs": 50, "batch_size": None}
    noisy = mx.fit(linear_model(), (X, Y), GaussianDropout(1e-12, **options), key=0)
    plain = mx.fit(linear_model(), (X, Y), MAP(**options), key=0)
    np.testing.assert_allclose(
        noisy.params.network.layers[0].weight, plain.params.network.layers[0].weight[:, 0], rtol=1e-3, atol=1e-4
    )


def test_what_comes_before_the_noise_is_computed_once_for_all_draws():
    """In the program for 7 draws, the first layer's product has no axis of draws, and the second's has."""
    posterior = mx.fit(curve_model(), (X, Y), MCDropout(0.1, num_epochs=1), key=0)
    noisy = posterior.functions(7, key=jax.random.key(0))
    program = jax.make_jaxpr(jax.vmap(lambda draw: noisy.distribution(draw, jnp.asarray(X)).mean))(noisy.draws)
    shapes = [eqn.outvars[0].aval.shape for eqn in program.jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert len(shapes) == 3
    assert [7 in shape for shape in shapes] == [False, True, True]


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_the_price_of_concrete_dropout_is_that_of_the_paper(rate):
    """Gal, Hron & Kendall (2017): sum over layers of K H(p) - l^2 (1 - p) |M|^2 / 2, with M = w / (1 - p) kept."""
    scale = 0.7
    model = mx.Model(mx.nets.MLP(3, (5, 4), 1, key=0), mx.likelihoods.Gaussian(scale=0.3), mx.priors.Normal(scale))
    method, params = ConcreteDropout(initial_rate=rate), model.initial(1)
    noise = method.first_noise(model)
    assert [logit is None for logit in noise] == [True, False, False]
    exact = 0.0
    for layer, logit in zip(params.network.layers, noise, strict=True):
        weight, bias = np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)
        constant = 0.5 * (weight.size + bias.size) * np.log(2 * np.pi * scale**2)
        penalty = np.sum(weight**2) if logit is None else (1 - rate) * np.sum((weight / (1 - rate)) ** 2)
        entropy = 0.0 if logit is None else -rate * np.log(rate) - (1 - rate) * np.log(1 - rate)
        exact += weight.shape[1] * entropy - 0.5 * (penalty + np.sum(bias**2)) / scale**2 - constant
    np.testing.assert_allclose(float(method.log_prior(model, params, noise)), exact, rtol=1e-5)

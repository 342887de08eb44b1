"""Rules by path: their order is the user's, in and out of compiled programs; and what has no order is refused."""

from fnmatch import fnmatchcase

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.model.priors import ByPath, Flat, HalfNormal, Horseshoe, Laplace, Normal

RULES = {
    "narrow before wide": {"layers/0/*": Laplace(0.01), "*": Normal(5.0)},
    "against the alphabet": {"layers/2/*": Normal(0.1), "layers/1/weight": Normal(3.0), "*": Normal(7.0)},
    "learned and not": {"layers/1/*": Normal(HalfNormal(1.0)), "*/bias": Flat(), "*": Horseshoe(0.1)},
    "within each other": {"layers/0/*": ByPath({"*/weight": Normal(0.2), "*": Normal(9.0)}), "*": Normal(2.0)},
}


def model_with(prior):
    return mx.Model(mx.nets.MLP(3, (4, 4), 1, key=0), mx.likelihoods.Gaussian(), prior=prior)


@pytest.mark.parametrize("name", RULES)
def test_the_first_pattern_decides_in_and_out_of_jit(name):
    model = model_with(ByPath(RULES[name]))
    params = model.initial(1)
    by_hand = model.likelihood.log_prior(params.likelihood)
    for leaf, value in zip(model.leaves, jax.tree.leaves(params.network), strict=True):
        rule = next(prior for pattern, prior in RULES[name].items() if fnmatchcase(leaf.path, pattern))
        rule, hyper = rule.at(leaf.path), params.prior.get(leaf.path, {})
        by_hand += rule.log_prob(value, leaf, hyper) + rule.log_hyperprior(leaf, hyper)
    eager = model.log_prior(params)
    jitted = eqx.filter_jit(lambda model, params: model.log_prior(params))(model, params)
    np.testing.assert_allclose([eager, jitted], by_hand, rtol=1e-5)
    if name != "learned and not":  # Flat cannot be sampled
        draw = eqx.filter_jit(lambda model, params, key: model.sample_prior(params, key=key))
        assert jax.tree.structure(draw(model, params, jax.random.key(0))) == jax.tree.structure(params)


@pytest.mark.parametrize(
    "method",
    [
        mx.infer.MAP(num_epochs=3),
        pytest.param(mx.infer.NUTS(5, 5), marks=pytest.mark.slow),
        pytest.param(mx.infer.VI(num_epochs=3), marks=pytest.mark.slow),
    ],
)
def test_rules_with_mixed_hyperpriors_are_fitted_and_stored(method, tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 3))
    model = model_with(ByPath(RULES["learned and not"]))
    posterior = mx.fit(model, (x, x[:, 0]), method, key=0, num_chains=1)
    posterior.save(tmp_path / "run")
    again = mx.load(tmp_path / "run")
    assert again.model.prior.patterns == tuple(RULES["learned and not"])
    np.testing.assert_array_equal(again.predict(x).mean, posterior.predict(x).mean)


def test_a_pattern_that_never_decides_is_an_error(as_users_run):
    with pytest.raises(ValueError, match=r"'layers/0/\*' decides about no leaf: .* from the particular to the general"):
        model_with(ByPath({"*": Normal(1.0), "layers/0/*": Flat()}))
    with pytest.raises(TypeError, match="rules must be patterns and priors"):
        ByPath({"*": 3.0})


# ---- the last layer


class Named(eqx.Module):
    """Layers in a dict, which JAX sorts."""

    parts: dict

    def __call__(self, x):
        return self.parts["a head"](jax.nn.relu(self.parts["body"](x)))


def _keys(num):
    return jax.random.split(jax.random.key(0), num)


def test_the_last_of_layers_without_an_order_must_be_named():
    parts = {"body": eqx.nn.Linear(3, 4, key=_keys(2)[0]), "a head": eqx.nn.Linear(4, 1, key=_keys(2)[1])}
    pair = ({"w1": jnp.ones((3, 4)), "w2": jnp.ones((4, 1))}, lambda p, x: jax.nn.relu(x @ p["w1"]) @ p["w2"])
    for network in (Named(parts), pair):
        with pytest.raises(ValueError, match=r"cannot tell which of \[.*\] comes last, since the keys of a dict"):
            mx.Model(network, mx.likelihoods.Gaussian(), subset=mx.LastLayer())
        x = np.random.default_rng(0).normal(size=(20, 3))
        laplace = mx.infer.Laplace(subset=mx.LastLayer(), training=mx.infer.MAP(num_epochs=2))
        with pytest.raises(ValueError, match="cannot tell which of"):
            mx.fit(mx.Model(network, mx.likelihoods.Gaussian()), (x, x[:, 0]), laplace, key=0)
    model = mx.Model(Named(parts), mx.likelihoods.Gaussian(), subset=mx.Paths("parts/a head/*"))
    assert [leaf.shape for leaf in model.leaves] == [(1, 4), (1,)]
    one_layer = ({"weight": jnp.ones((3, 1)), "bias": jnp.ones(1)}, lambda p, x: x @ p["weight"] + p["bias"])
    assert len(mx.Model(one_layer, mx.likelihoods.Gaussian(), subset=mx.LastLayer()).leaves) == 2


# ---- a trained network as a start


def _linear(num_in, num_out, key):
    return eqx.nn.Linear(num_in, num_out, key=jax.random.key(key))


NETWORKS = {
    "equinox": lambda key: eqx.nn.MLP(3, 1, width_size=4, depth=2, key=jax.random.key(key)),
    "with a function of one's own": lambda key: eqx.nn.MLP(
        3, 1, width_size=4, depth=1, activation=lambda x: jnp.sin(x), key=jax.random.key(key)
    ),
    "ours": lambda key: mx.nets.MLP(3, (4,), 1, key=key),
    "sequential": lambda key: eqx.nn.Sequential(
        [
            eqx.nn.Linear(3, 4, key=jax.random.key(key)),
            eqx.nn.Lambda(jnp.tanh),
            eqx.nn.Linear(4, 1, key=jax.random.key(key)),
        ]
    ),
}


@pytest.mark.parametrize("name", [n if n == "equinox" else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS])
@pytest.mark.parametrize("subset", [mx.All(), mx.LastLayer()])
def test_a_trained_network_is_a_start(name, subset):
    x = np.random.default_rng(0).normal(size=(20, 3))
    trained = NETWORKS[name](1)
    whole = isinstance(subset, mx.All)
    model = mx.Model(NETWORKS[name](0 if whole else 1), mx.likelihoods.Gaussian(scale=0.5), subset=subset)
    start = mx.fit(model, (x, x[:, 0]), mx.infer.Laplace(mx.curvature.Dense()), init=trained, key=0)
    np.testing.assert_allclose(
        start.predict(x).mean, np.asarray(jax.vmap(trained)(jnp.asarray(x, jnp.float32)))[:, 0], rtol=1e-4, atol=1e-5
    )
    chains = mx.fit(model, (x, x[:, 0]), mx.infer.NUTS(3, 3), init=trained, key=0, num_chains=2)
    assert np.isfinite(chains.predict(x).mean).all()


def test_a_start_that_would_be_used_in_part_is_refused():
    x = np.random.default_rng(0).normal(size=(20, 3))
    model = mx.Model(NETWORKS["ours"](0), mx.likelihoods.Gaussian(), subset=mx.LastLayer())
    with pytest.raises(ValueError, match="make the model of the trained network"):
        mx.fit(model, (x, x[:, 0]), mx.infer.Laplace(), init=NETWORKS["ours"](1), key=0)
    with pytest.raises(ValueError, match="same architecture"):
        mx.fit(model, (x, x[:, 0]), mx.infer.Laplace(), init=mx.nets.MLP(3, (5,), 1, key=0), key=0)


# ---- state is no weight


def test_statistics_of_normalisation_are_not_random():
    nnx = pytest.importorskip("flax.nnx")
    rngs = nnx.Rngs(0)
    network = nnx.Sequential(
        nnx.Linear(3, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs), nnx.relu, nnx.Linear(8, 1, rngs=rngs)
    )
    x = np.random.default_rng(0).normal(1.0, 2.0, size=(40, 3)).astype(np.float32)
    network.train()
    for _ in range(200):
        network(jnp.asarray(x))  # the module's own statistics
    network.eval()
    expected = np.asarray(network(jnp.asarray(x)))[:, 0]
    model = mx.Model(network, mx.likelihoods.Gaussian(scale=0.1))
    assert [leaf.shape for leaf in model.leaves] == [(8,), (3, 8), (8,), (8,), (1,), (8, 1)]
    params = model.initial(1)
    np.testing.assert_allclose(model.output(params, jnp.asarray(x))[:, 0], expected, rtol=1e-4, atol=1e-5)
    posterior = mx.fit(
        model,
        (x, x[:, 0]),
        mx.infer.SGLD(num_warmup=5, num_samples=5, training=mx.infer.MAP(num_epochs=5)),
        key=0,
        num_chains=2,
    )
    drawn = posterior.sample(3, key=0)
    statistics = jax.tree.leaves(drawn.rest)
    assert all(np.ptp(np.asarray(leaf), axis=0).max() == 0 for leaf in statistics if leaf.dtype.kind == "f")

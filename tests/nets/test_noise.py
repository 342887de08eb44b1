"""Noise in networks: each rule has the law it should, for one example, for many, and for a network drawn once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.nets import (
    ConcreteFactor,
    Dropout,
    FlipoutPerturbation,
    GaussianFactor,
    LocalNormal,
    Perturbed,
    WeightDropout,
    layer_shapes,
    layers_of,
    replace_layers,
)

NUM = 40_000


def linear(weight: list[float], bias: float = 0.5) -> eqx.nn.Linear:
    """One output."""
    layer = eqx.nn.Linear(len(weight), 1, key=jax.random.key(0))
    return eqx.tree_at(lambda at: (at.weight, at.bias), layer, (jnp.array([weight]), jnp.array([bias])))


WEIGHT, SCALE, X = [1.0, -2.0, 0.5], [0.3, 0.1, 0.4], [2.0, 1.0, -3.0]
PLAIN = linear(WEIGHT)


def law(rule, network=PLAIN) -> tuple[float, float]:
    """Mean and variance of the output at X over many examples."""
    outputs = Perturbed(network, (rule,)).call_batch(jnp.tile(jnp.array(X), (NUM, 1)), key=jax.random.key(3))
    return float(outputs.mean()), float(outputs.var())


products = np.array(WEIGHT) * np.array(X)
VARIANCES = {
    "dropout": (Dropout(0.3), 0.3 / 0.7 * (products**2).sum()),
    "gaussian": (GaussianFactor(0.4), 0.16 * (products**2).sum()),
    "gaussian by unit": (GaussianFactor(jnp.array(SCALE)), ((products * SCALE) ** 2).sum()),
    "local": (LocalNormal(linear(SCALE, 0.2)), ((np.array(SCALE) * X) ** 2).sum() + 0.04),
}


@pytest.mark.parametrize("case", VARIANCES.values(), ids=VARIANCES)
def test_outputs_have_the_mean_of_the_layer_and_the_variance_of_the_rule(case):
    rule, variance = case
    mean, found = law(rule)
    assert abs(mean - (products.sum() + 0.5)) < 4.9 * np.sqrt(variance / NUM)
    assert abs(found / variance - 1) < 4.9 * np.sqrt(3.0 / NUM)


def test_a_concrete_coin_is_nearly_a_coin():
    hot, cold = (law(ConcreteFactor(jnp.log(0.3 / 0.7), t)) for t in (0.1, 0.01))
    variance = 0.3 / 0.7 * (products**2).sum()
    assert abs(cold[1] / variance - 1) < 0.05
    assert abs(hot[1] / variance - 1) < 0.2


def test_signs_give_every_example_the_law_of_the_shift_and_no_correlation():
    shift = linear([0.3, -0.1, 0.4], 0.2)
    x = jnp.array(X)
    outputs = Perturbed(PLAIN, (FlipoutPerturbation(shift),)).call_batch(jnp.tile(x, (NUM, 1)), key=jax.random.key(0))[
        :, 0
    ]
    deviation = np.asarray(outputs - PLAIN(x)[0])
    variance = ((np.array([0.3, -0.1, 0.4]) * X) ** 2).sum() + 0.04
    assert abs(deviation.mean()) < 4.9 * np.sqrt(variance / NUM)
    assert abs((deviation**2).mean() / variance - 1) < 4.9 * np.sqrt(3.0 / NUM)
    assert abs(np.mean(deviation[::2] * deviation[1::2])) < 4.9 * variance / np.sqrt(NUM / 2)


def network() -> mx.nets.MLP:
    return mx.nets.MLP(3, (8, 6), 2, activation=jnp.tanh, key=0)


RULES = {
    "dropout": (None, Dropout(0.4), Dropout(0.4)),
    "weights": (WeightDropout(0.3), None, WeightDropout(0.3)),
    "gaussian": (None, GaussianFactor(0.3), None),
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_network_with_a_key_is_one_function(rules):
    x = jax.random.normal(jax.random.key(0), (9, 3))
    drawn = Perturbed(network(), rules, key=jax.random.key(5))
    together = drawn.call_batch(x)
    np.testing.assert_allclose(together, jax.vmap(drawn)(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(together[::-1], drawn.call_batch(x[::-1]), rtol=1e-5, atol=1e-6)
    other = Perturbed(network(), rules, key=jax.random.key(6))
    assert not np.allclose(together, other.call_batch(x))


def test_without_any_key_there_is_no_noise():
    x = jax.random.normal(jax.random.key(0), (9, 3))
    quiet = Perturbed(network(), RULES["dropout"])
    np.testing.assert_allclose(quiet.call_batch(x), jax.vmap(network())(x), rtol=1e-5)


def test_each_example_has_noise_of_its_own_in_training():
    same = jnp.ones((50, 3))
    outputs = Perturbed(network(), RULES["dropout"]).call_batch(same, key=jax.random.key(0))
    assert len(np.unique(np.asarray(outputs)[:, 0])) > 40


@pytest.mark.slow
def test_images_are_disturbed_map_by_map():
    net = mx.nets.LeNet(channels=(3, 4), hidden=7, key=0)
    x = jax.random.normal(jax.random.key(0), (3, 1, 28, 28))
    rules = (None, Dropout(0.5), Dropout(0.5), Dropout(0.5))
    drawn = Perturbed(net, rules, key=jax.random.key(1))
    np.testing.assert_allclose(drawn.call_batch(x), jax.vmap(drawn)(x), rtol=1e-4, atol=1e-5)
    assert Perturbed(net, rules).call_batch(x, key=jax.random.key(1)).shape == (3, 10)


def test_layers_are_found_replaced_and_measured():
    net = network()
    assert [layer.weight.shape for layer in layers_of(net)] == [(8, 3), (6, 8), (2, 6)]
    assert layer_shapes(net, (3,), float) == [((3,), (8,)), ((8,), (6,)), ((6,), (2,))]
    doubled = [jax.tree.map(lambda a: 2 * a, layer) for layer in layers_of(net)]
    assert jnp.allclose(replace_layers(net, doubled).layers[1].weight, 2 * net.layers[1].weight)


def test_a_layer_that_is_called_twice_has_no_shape_of_its_own():
    class Twice(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, x):
            return self.layer(self.layer(x))

    net = Twice(eqx.nn.Linear(2, 2, key=jax.random.key(0)))
    assert layer_shapes(net, (2,), float) == [None]
    with pytest.raises(ValueError, match="exactly once"):
        Perturbed(net, (Dropout(0.5),), key=jax.random.key(0))(jnp.ones(2))


def test_rules_must_fit_the_network():
    with pytest.raises(ValueError, match="one per layer"):
        Perturbed(network(), (Dropout(0.5),))

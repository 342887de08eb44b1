"""What methods that know layers make of networks that use a weight many times for one example."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.curvature.hooks import output_jacobian, plan_for
from marginax.infer.vi.gradients import Flipout, LocalReparameterisation
from marginax.nets import (
    Dropout,
    FlipoutPerturbation,
    LocalNormal,
    Perturbed,
    Pointwise,
    layer_paths,
    layer_shapes,
    layers_in_loops,
    layers_of,
)

GRU = mx.nets.GRU(2, 3, out_size=1, every_step=False, key=0)
TRANSFORMER = {"size": 4, "depth": 1, "num_heads": 2, "hidden": 4, "every_step": False}


class Mapped(eqx.Module):
    """A linear layer that the network itself maps over the steps, as attention in Equinox does."""

    layer: eqx.nn.Linear
    output: eqx.nn.Linear

    def __init__(self):
        self.layer, self.output = (eqx.nn.Linear(2, 2, key=jax.random.key(i)) for i in range(2))

    def __call__(self, x):
        return self.output(jax.vmap(self.layer)(x).sum(0))


class Twice(eqx.Module):
    parts: dict

    def __call__(self, x):
        return self.parts["inner"](self.parts["inner"](x))


def rule_of(estimator, network, shape):
    shared = layers_in_loops(network, shape, jnp.float32)
    layers = layers_of(network)
    return [estimator.rule(layer, layer, layer, flag) for layer, flag in zip(layers, shared, strict=True)]


def test_outputs_that_share_weights_are_not_drawn_one_by_one():
    assert layers_in_loops(Mapped(), (5, 2), jnp.float32) == [True, False]
    kinds = [type(rule) for rule in rule_of(LocalReparameterisation(), Mapped(), (5, 2))]
    assert kinds == [FlipoutPerturbation, LocalNormal]
    assert [type(rule) for rule in rule_of(LocalReparameterisation(), GRU, (5, 2))] == [
        FlipoutPerturbation,
        LocalNormal,
    ]
    assert [type(rule) for rule in rule_of(Flipout(), GRU, (5, 2))] == [FlipoutPerturbation] * 2


@pytest.mark.parametrize("layer", [Pointwise(2, 2, key=0), Mapped()], ids=["pointwise", "mapped"])
def test_the_joint_law_of_two_steps_is_that_of_shared_weights(layer):
    """With standard deviations s, outputs at steps x and y have covariance s^2 x.y, plus that of the bias."""
    network = layer if isinstance(layer, Pointwise) else _Steps(layer.layer)
    steps, scale, num = jnp.array([[1.0, 0.5], [0.3, -2.0]]), 0.4, 20_000  # (features, steps)
    leaves, treedef = jax.tree.flatten(eqx.filter(layers_of(network)[0], eqx.is_array))

    def one(key):
        first, second = jax.random.split(key)
        keys = jax.random.split(first, len(leaves))
        drawn = [scale * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        shift = eqx.combine(jax.tree.unflatten(treedef, drawn), layers_of(network)[0])
        scales = jax.tree.map(lambda a: jnp.full_like(a, scale), shift)
        shared = layers_in_loops(network, (2, 2), jnp.float32)[0]
        rule = LocalReparameterisation().rule(layers_of(network)[0], scales, shift, shared)
        return Perturbed(network, (rule,)).call_batch(steps[None], key=second)[0]

    outputs = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), num)), float)
    first = outputs[:, 0] - outputs[:, 0].mean(0)  # of the first unit, at both steps
    expected = scale**2 * (np.asarray(steps).T @ np.asarray(steps) + 1)
    products = first[:, :, None] * first[:, None, :]
    error = products.std(0) / np.sqrt(num)
    assert np.abs((products.mean(0) - expected) / error).max() < 4.9


class _Steps(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, x):
        return jax.vmap(self.layer, in_axes=1, out_axes=1)(x)


def test_derivatives_by_layers_are_those_of_autodiff():
    model = mx.Model(GRU, mx.likelihoods.Gaussian())
    params, x = model.initial(1), jax.random.normal(jax.random.key(1), (2, 5, 2))
    _, jacobian = output_jacobian(model, params, x)
    found = np.concatenate([np.asarray(leaf.dense()) for leaf in jacobian], axis=2)[:, :, :GRU_SIZE]
    derivative = jax.jacrev(lambda network: model.output(eqx.tree_at(lambda p: p.network, params, network), x))
    leaves = jax.tree.leaves(jax.jit(derivative)(params.network))
    expected = np.concatenate([leaf.reshape(2, 1, -1) for leaf in leaves], axis=2)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


GRU_SIZE = sum(leaf.size for leaf in jax.tree.leaves(GRU))


@pytest.mark.parametrize("padded", [False, True])
def test_kronecker_factors_never_count_padding_as_data(padded):
    net = mx.nets.Transformer(2, 1, **TRANSFORMER, padded=padded, key=0)
    model = mx.Model(net, mx.likelihoods.Gaussian())
    plan = plan_for(model, model.initial(1), (5, 3 if padded else 2), jnp.float32)
    factored = {leaf.path.rpartition("/")[0] for leaf in plan.leaves if leaf.site is not None}
    everywhere = {path for path in layer_paths(net) if path != "output"}
    assert factored == ({"output"} if padded else {"output", *everywhere})


def test_tokens_are_disturbed_in_floats():
    net = mx.nets.GRU(2, 3, out_size=1, num_tokens=4, every_step=False, key=0)
    rules = (None, LocalNormal(layers_of(net)[1]))
    assert np.isfinite(Perturbed(net, rules, key=jax.random.key(0))(jnp.array([1, 2, 3]))).all()


def test_dropout_of_a_part_is_the_dropout_of_the_network():
    net = eqx.nn.Sequential([mx.nets.GRU(2, 3, out_size=1, dropout=0.2, key=0), eqx.nn.Lambda(jnp.ravel)])
    model = mx.Model(net, mx.likelihoods.Gaussian())
    assert mx.infer.MCDropout().rules(model, ()) == ()
    with pytest.raises(ValueError, match="rate must be None for a network with dropout of its own"):
        mx.infer.MCDropout(rate=0.1).rules(model, ())


def test_a_layer_that_cannot_be_disturbed_is_named():
    net = Twice({"inner": eqx.nn.Linear(2, 2, key=jax.random.key(0))})
    assert layer_shapes(net, (2,), jnp.float32) == [None]
    with pytest.raises(ValueError, match=r"but not so parts/inner \(a layer that is used twice.*dropout of its own"):
        Perturbed(net, (Dropout(0.5),), key=jax.random.key(0))(jnp.ones(2))

"""Batches with the examples along the last axis: the same numbers as `jax.vmap`, in another layout."""

import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax._kernels.examples_last import call_batched, map_examples

NUM_ROWS = 37
ACTIVATIONS = [jax.nn.relu, jax.nn.gelu, jax.nn.silu, jax.nn.softplus, jax.nn.elu, jax.nn.relu6, jnp.tanh]


class Net(eqx.Module):
    """Three layers, and what a test does with them."""

    layers: tuple[eqx.nn.Linear, ...]
    norm: eqx.nn.LayerNorm
    scale: jax.Array
    body: Callable[..., Any] = eqx.field(static=True)

    def __init__(self, body):
        keys = jax.random.split(jax.random.key(3))
        self.layers = tuple(eqx.nn.Linear(6, 6, key=k) for k in keys)
        self.norm = eqx.nn.LayerNorm(6)
        self.scale = jnp.linspace(0.5, 1.5, 6)
        self.body = body

    def __call__(self, x):
        return self.body(self, x)


@jax.custom_vjp
def halved_backwards(x, scale):
    return jnp.sin(x) * scale


halved_backwards.defvjp(
    lambda x, scale: (halved_backwards(x, scale), (x, scale)),
    lambda residuals, g: (0.5 * g * jnp.cos(residuals[0]) * residuals[1], g * residuals[0]),
)


@jax.custom_jvp
def doubled_forwards(x, scale):
    return scale * x**2


@doubled_forwards.defjvp
def _(primals, tangents):
    (x, scale), (dx, dscale) = primals, tangents
    value = doubled_forwards(x, scale)  # a rule that calls its own function, as jnp.logaddexp's does
    return value, 4 * scale * x * dx + dscale * value / jnp.where(scale == 0, 1.0, scale)


def _residual(net, x):
    for layer in net.layers:
        x = x + jax.nn.silu(net.norm(layer(x)))
    return x


def _shapes(net, x):
    h = net.layers[0](x).reshape(2, 3)
    h = jnp.concatenate([h, jnp.ones((1, 3)), h[::-1] * net.scale[:3]], axis=0)
    h = jnp.pad(h.T, ((0, 0), (1, 0)), constant_values=2.0)  # (3, 6)
    left, right = jnp.split(jnp.cumsum(h, axis=1), [2], axis=1)
    return jnp.einsum("ij,jk->ki", right[:, ::2], net.layers[1].weight[:2]).ravel() + jnp.max(left)


def _conditions(net, x):
    h = net.layers[0](x)
    h = jnp.where(h[0] > 0, h, net.scale)  # a condition per example
    h = jnp.where(net.scale[0] > 0, h, 0.0)  # a condition of all examples
    return jnp.clip(net.layers[1](h), net.scale[0] - 0.6, jnp.abs(h[1]))


KNOWN = {
    "residual and layer norm": _residual,
    "softmax gate": lambda net, x: jax.nn.softmax(net.layers[0](x)) * net.layers[1](x),
    "log-sum-exp": lambda net, x: jax.nn.logsumexp(net.layers[0](x), keepdims=True) + net.layers[1](x),
    "scalar": lambda net, x: net.scale @ jnp.tanh(net.layers[0](x)),
    "rows times matrix": lambda net, x: jnp.tanh(x @ net.layers[0].weight) @ net.layers[1].weight,
    "matrices": lambda net, x: (x.reshape(3, 2) @ net.layers[0].weight[:2]) @ net.layers[1].weight,
    "reshape and concatenate": _shapes,
    "conditions": _conditions,
    "several outputs": lambda net, x: {"a": net.layers[0](x), "b": net.scale, "c": jnp.ones(())},
    "custom jvp": lambda net, x: doubled_forwards(net.layers[0](x), net.scale),
    "custom vjp": lambda net, x: halved_backwards(net.layers[0](x), net.scale),
}
UNKNOWN = {
    "gather": lambda net, x: net.layers[0](x)[jnp.array([0, 2, 5])],
    "attention": lambda net, x: jax.nn.softmax(jnp.outer(net.layers[0](x), net.layers[1](x))) @ x,
    "loop": lambda net, x: jax.lax.fori_loop(0, 3, lambda _, h: jnp.tanh(net.layers[0](h)), x),
    "no matmul": lambda net, x: net.scale * x,
}


def _network(name):
    return Net({**KNOWN, **UNKNOWN}[name])


def _mlp(activation):
    return eqx.nn.MLP(6, 2, width_size=7, depth=2, activation=activation, key=jax.random.key(0))


def _rows():
    return jax.random.normal(jax.random.key(1), (NUM_ROWS, 6))


def _value_and_gradients(run, net, xs):
    """Outputs, and gradients of something curved with respect to weights and inputs."""

    def loss(net_and_xs):
        outputs = run(*net_and_xs)
        rows = sum(jnp.sum(jnp.sin(leaf).reshape(leaf.shape[0], -1), axis=1) for leaf in jax.tree.leaves(outputs))
        return jnp.sum(rows * jnp.arange(1.0, NUM_ROWS + 1) / NUM_ROWS), outputs

    return eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))((net, xs))


def _by_vmap(net, xs):
    return jax.vmap(net)(xs)


def _assert_close(ours, truth, rtol):
    assert jax.tree.structure(ours) == jax.tree.structure(truth)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(truth), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(1.0, float(jnp.abs(b).max())))


def _matmul_shapes(function, *arguments):
    jaxpr = jax.make_jaxpr(function)(*arguments)
    return [eqn.outvars[0].aval.shape for eqn in jaxpr.eqns if eqn.primitive.name == "dot_general"]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda f: f.__name__)
def test_equinox_mlp_equals_vmap(activation):
    with jax.enable_x64(True):
        net, xs = _mlp(activation), _rows()
        _assert_close(*(_value_and_gradients(run, net, xs) for run in (call_batched, _by_vmap)), rtol=1e-12)


def test_equinox_mlp_equals_vmap_in_single_precision():
    net, xs = _mlp(jax.nn.softplus), _rows()
    assert xs.dtype == jnp.float32
    _assert_close(*(_value_and_gradients(run, net, xs) for run in (call_batched, _by_vmap)), rtol=2e-6)


@pytest.mark.parametrize("name", [*KNOWN, "gather"])
def test_networks_equal_vmap_in_value_and_gradient(name):
    with jax.enable_x64(True):
        net, xs = _network(name), _rows()
        _assert_close(*(_value_and_gradients(run, net, xs) for run in (call_batched, _by_vmap)), rtol=1e-12)


@pytest.mark.parametrize("name", KNOWN)
def test_known_networks_have_their_examples_last(name):
    net = _network(name)
    shapes = _matmul_shapes(lambda xs: call_batched(net, xs), _rows())
    assert shapes
    assert {shape[-1] for shape in shapes} == {NUM_ROWS}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_networks_are_left_to_vmap(name):
    net = _network(name)
    ours, theirs = (jax.make_jaxpr(lambda xs, run=run: run(net, xs))(_rows()) for run in (call_batched, _by_vmap))
    assert str(ours) == str(theirs)


@pytest.mark.parametrize("name", ["conditions", "custom jvp", "custom vjp"])
def test_three_networks_at_once_equal_vmap(name):
    with jax.enable_x64(True):
        one, xs = _network(name), _rows()
        weights, rest = eqx.partition(one, eqx.is_array)
        weights = jax.tree.map(lambda a: jnp.stack([a, 0.5 * a, -a]), weights)

        def gradients(run):
            return jax.jit(jax.vmap(jax.grad(lambda w: jnp.sum(jnp.sin(run(eqx.combine(w, rest), xs)) * xs[:, :1]))))(
                weights
            )

        _assert_close(gradients(call_batched), gradients(_by_vmap), 1e-12)


@pytest.mark.parametrize("activation", [jax.nn.softplus, lambda x: doubled_forwards(x, 0.3)], ids=["softplus", "own"])
def test_second_derivatives_equal_vmap(activation):
    with jax.enable_x64(True):
        net, xs = _mlp(activation), _rows()
        weights, rest = eqx.partition(net, eqx.is_array)

        def curvature(run):
            gradient = jax.grad(lambda w: jnp.sum(jnp.sin(run(eqx.combine(w, rest), xs))))
            return jax.jit(lambda w: jax.jvp(gradient, (w,), (jax.tree.map(jnp.cos, w),))[1])(weights)

        _assert_close(curvature(call_batched), curvature(_by_vmap), 1e-11)


def test_gradients_keep_the_examples_last():
    weights, rest = eqx.partition(_mlp(jax.nn.relu), eqx.is_array)
    gradient = jax.grad(lambda w, xs: jnp.sum(jnp.sin(call_batched(eqx.combine(w, rest), xs))))
    text = str(jax.make_jaxpr(gradient)(weights, _rows()))
    assert {"add", "max", "mul", "select_n"} & set(re.findall(rf"f32\[7,{NUM_ROWS}\] = (\w+)", text))
    assert set(re.findall(rf"f32\[{NUM_ROWS},7\] = (\w+)", text)) <= {"dot_general"}  # JAX transposes it at once


@pytest.mark.parametrize(("width", "num_rows", "is_last"), [(16, 4, True), (128, 16, False), (128, 64, True)])
def test_wide_layers_on_few_examples_are_left_to_vmap(width, num_rows, is_last):
    net = eqx.nn.MLP(5, 2, width, 2, key=jax.random.key(0))
    text = str(jax.make_jaxpr(lambda xs: call_batched(net, xs))(jnp.ones((num_rows, 5))))
    assert (f"f32[{num_rows},{width}]" not in text) == is_last


def _flax():
    nnx = pytest.importorskip("flax.nnx")
    rngs = nnx.Rngs(0)
    return nnx.Sequential(
        nnx.Linear(6, 8, rngs=rngs), nnx.relu, nnx.BatchNorm(8, rngs=rngs), nnx.LayerNorm(8, rngs=rngs), nnx.gelu,
        nnx.Linear(8, 1, rngs=rngs),
    )  # fmt: skip


USERS = {
    "equinox": lambda: _mlp(jax.nn.gelu),
    "flax": _flax,
    "function": lambda: (
        {"w": jax.random.normal(jax.random.key(0), (6, 8)), "v": jnp.ones((8, 2)) / 8},
        lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"],
    ),
    "scalar function": lambda: (jnp.arange(6.0), lambda w, x: jnp.sin(w @ x)),
}


@pytest.mark.parametrize("name", USERS)
@pytest.mark.slow
def test_models_of_users_networks_have_their_examples_last(name):
    model = mx.Model(USERS[name](), likelihood=mx.likelihoods.Gaussian(scale=0.1))
    xs, params = _rows(), model.initial(1)
    net: Any = model.network
    truth = jax.vmap(net)(xs).reshape(NUM_ROWS, -1)
    np.testing.assert_allclose(model.output(params, xs), truth, rtol=2e-5, atol=2e-6)
    assert {shape[-1] for shape in _matmul_shapes(model.output, params, xs)} == {NUM_ROWS}


def test_batched_functions_get_the_batch_as_it_is():
    seen = []
    net = mx.nets.Function(jnp.ones((6, 1)), lambda w, x: seen.append(x.shape) or x @ w, batched=True)
    call_batched(net, _rows())
    assert seen == [(NUM_ROWS, 6)]


def test_a_key_is_split_into_one_per_example():
    class Noise(eqx.Module):
        weight: jax.Array

        def __call__(self, x, *, key):
            return self.weight @ x + jax.random.normal(key, (1,))

    out = call_batched(Noise(jnp.ones((1, 6))), jnp.zeros((2000, 6)), key=jax.random.key(0))
    assert abs(float(out.std()) - 1) < 4.9 / np.sqrt(2 * 2000)
    assert np.unique(out).size > 1990


@pytest.mark.parametrize("name", ["gather", "residual and layer norm"])
def test_noise_belongs_to_its_example(name):
    net, xs = _network(name), _rows()
    noise = jax.random.normal(jax.random.key(5), (6, NUM_ROWS))
    ours = map_examples(lambda net, x, n: net(x + n[0]) * n[1]["a"], net, xs, [noise, {"a": noise[0]}])
    truth = jax.vmap(lambda x, n: net(x + n) * n[0])(xs, noise.T)
    np.testing.assert_allclose(ours, truth, rtol=1e-5, atol=1e-5)

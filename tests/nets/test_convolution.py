"""conv2d and pooling against XLA's own convolution, its derivatives, and reduce_window."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from marginax._kernels import image_maps
from marginax.files import decode, encode
from marginax.nets.convolution import Conv2d, avg_pool2d, conv2d, conv2d_batch, max_pool2d

# in_channels, (height, width), out_channels, kernel, stride, padding
GEOMETRIES = [
    (1, (8, 8), 3, (5, 5), (1, 1), ((0, 0), (0, 0))),
    (2, (9, 7), 3, (3, 2), (2, 1), ((1, 0), (2, 1))),
    (3, (8, 8), 2, (3, 3), (2, 2), ((1, 1), (1, 1))),
    (2, (7, 9), 2, (2, 3), (3, 2), ((0, 0), (0, 0))),
    (2, (5, 6), 3, (1, 1), (2, 2), ((0, 0), (0, 0))),
    (2, (4, 4), 3, (4, 4), (1, 1), ((3, 3), (3, 3))),
]
# How conv2d is mapped over 3 images and 2 networks.
MAPS = {
    "one": lambda f: lambda x, w: f(x[0], w[0]),
    "images": lambda f: lambda x, w: jax.vmap(lambda x: f(x, w[0]))(x),
    "networks": lambda f: lambda x, w: jax.vmap(lambda w: f(x[0], w))(w),
    "networks_of_images": lambda f: lambda x, w: jax.vmap(lambda w: jax.vmap(lambda x: f(x, w))(x))(w),
    "images_of_networks": lambda f: lambda x, w: jax.vmap(lambda x: jax.vmap(lambda w: f(x, w))(w))(x),
    "pairs": lambda f: lambda x, w: jax.vmap(f)(x[:2], w),
}


def reference(x, w, stride, padding):
    return lax.conv_general_dilated(x[None], w, stride, padding)[0]


def compiled(f, **options):
    """Compiled with little effort: these programs run once."""
    return jax.jit(f, compiler_options={"xla_backend_optimization_level": 0}, **options)


def close(actual, expected, tolerance=2e-4):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), actual, expected)


def operands(geometry):
    channels, sizes, num_out, kernel, stride, padding = geometry
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.normal(keys[0], (3, channels, *sizes))
    return x, jax.random.normal(keys[1], (2, num_out, channels, *kernel)), stride, padding


@pytest.mark.slow
@pytest.mark.parametrize(
    ("geometry", "mapped"),
    [(GEOMETRIES[1], mapped) for mapped in MAPS]
    + [
        pytest.param(geometry, "networks_of_images", marks=() if i < 4 else pytest.mark.slow)
        for i, geometry in enumerate(GEOMETRIES)
        if i != 1
    ],
    ids=str,
)
def test_outputs_and_gradients_equal_those_of_xla(geometry, mapped):
    x, w, stride, padding = operands(geometry)

    def value_and_gradients(f):
        def loss(x, w):
            y = MAPS[mapped](f)(x, w)
            return (jnp.sin(y) * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), y

        return compiled(jax.value_and_grad(loss, (0, 1), has_aux=True))(x, w)

    ours = value_and_gradients(lambda x, w: conv2d(x, w, stride=stride, padding=padding))
    close(ours, value_and_gradients(lambda x, w: reference(x, w, stride, padding)))


@pytest.mark.parametrize("geometry", GEOMETRIES[1:3], ids=str)
def test_higher_derivatives_equal_those_of_xla(geometry):
    x, w, stride, padding = operands(geometry)

    def derivatives(f):
        def loss(x, w):
            return jnp.sin(jax.vmap(lambda x: f(x, w))(x)).sum()

        gradient = jax.grad(loss, (0, 1))
        product = jax.jvp(gradient, (x, w[0]), (x[::-1], w[1]))[1]
        reverse = jax.grad(lambda w: (gradient(x, w)[0] ** 2).sum() + (gradient(x, w)[1] ** 3).sum())(w[0])
        return product, reverse / jnp.abs(reverse).max()

    derivatives = compiled(derivatives, static_argnums=0)

    def ours(x, w):
        return conv2d(x, w, stride=stride, padding=padding)

    close(derivatives(ours), derivatives(lambda x, w: reference(x, w, stride, padding)), 2e-3)


def test_jacobians_and_per_example_gradients_equal_those_of_xla():
    x, w, stride, padding = operands(GEOMETRIES[1])

    def derivatives(f):
        jacobians = jax.jacrev(f, (0, 1))(x[0], w[0]), jax.jacfwd(f, (0, 1))(x[0], w[0])
        per_example = jax.vmap(jax.grad(lambda w, x: jnp.sin(f(x, w)).sum()), (None, 0))(w[0], x)
        return jacobians, per_example

    derivatives = compiled(derivatives, static_argnums=0)

    def ours(x, w):
        return conv2d(x, w, stride=stride, padding=padding)

    close(derivatives(ours), derivatives(lambda x, w: reference(x, w, stride, padding)))


def test_bias_shifts_each_channel_and_has_the_sum_as_gradient():
    x, w, stride, padding = operands(GEOMETRIES[1])
    b = jnp.arange(6.0).reshape(2, 3)

    def ours(x, w, b):
        return conv2d(x, w, b, stride=stride, padding=padding)

    def theirs(x, w, b):
        return reference(x, w, stride, padding) + b[:, None, None]

    for in_axes in ((0, None, None), (None, None, 0), (None, 0, 0)):
        args = [a if axis == 0 else a[0] for a, axis in zip((x, w, b), in_axes, strict=True)]
        pair = [
            compiled(jax.value_and_grad(lambda *a, f=jax.vmap(f, in_axes): jnp.sin(f(*a)).sum(), (0, 1, 2)))
            for f in (ours, theirs)
        ]
        close(pair[0](*args), pair[1](*args))
    fixed = jax.grad(lambda x: jnp.sin(ours(x, w[0], b[0])).sum())(x[0])
    close(fixed, jax.grad(lambda x: jnp.sin(theirs(x, w[0], b[0])).sum())(x[0]))


@pytest.mark.parametrize("geometry", GEOMETRIES[1:3], ids=str)
def test_maps_for_other_platforms_equal_those_for_cpu(geometry):
    x, w, stride, padding = operands(geometry)
    x, places = jnp.moveaxis(x, 0, -1)[None], {"stride": stride, "padding": padding}
    y = image_maps._forward(x, w[:1], **places)
    close(image_maps._forward_xla(x, w[:1], **places), y)
    kernel, sizes = w.shape[3:], x.shape[2:4]
    close(
        image_maps._weight_grad_xla(x, y, kernel=kernel, **places),
        image_maps._weight_grad(x, y, kernel=kernel, **places),
    )
    close(
        image_maps._input_grad_xla(w[:1], y, sizes=sizes, **places),
        image_maps._input_grad(w[:1], y, sizes=sizes, **places),
    )


def test_gradient_of_a_batch_is_one_joint_weight_gradient():
    x, w, stride, padding = operands(GEOMETRIES[0])

    def loss(w):
        return jax.vmap(lambda x: conv2d(x, w, stride=stride, padding=padding))(x).sum()

    jaxpr = jax.make_jaxpr(jax.grad(loss))(w[0])
    shapes = [e.outvars[0].aval.shape for e in jaxpr.eqns if e.primitive.name == "marginax_conv2d_weight_grad"]
    assert shapes == [(1, *w[0].shape)]


def test_examples_on_the_last_axis_give_the_same():
    x, w, stride, padding = operands(GEOMETRIES[1])
    last = conv2d_batch(jnp.moveaxis(x, 0, -1), w[0], stride=stride, padding=padding)
    close(jnp.moveaxis(last, -1, 0), jax.vmap(lambda x: conv2d(x, w[0], stride=stride, padding=padding))(x))


def test_works_inside_loops_and_with_half_precision():
    x, w, *_ = operands(GEOMETRIES[0])

    def step(w, _):
        gradient = jax.grad(lambda w: jnp.tanh(jax.vmap(lambda x: conv2d(x, w))(x)).sum())(w)
        return w - 0.1 * gradient, None

    scanned = lax.scan(step, w[0], None, length=3)[0]
    looped = lax.fori_loop(0, 3, lambda i, w: step(w, i)[0], w[0])
    close(scanned, looped)
    half = conv2d(x[0].astype(jnp.bfloat16), w[0].astype(jnp.bfloat16))
    assert half.dtype == jnp.bfloat16
    close(half.astype(jnp.float32), conv2d(x[0], w[0]), 0.2)


@pytest.mark.parametrize(("size", "num_maps"), [(2, 0), ((2, 3), 1), ((1, 2), 2), (5, 2)])
def test_pooling_equals_reduce_window(size, num_maps):
    x = jax.random.normal(jax.random.key(0), (2, 3, 2, 7, 8)[2 - num_maps :])
    rows, columns = size if isinstance(size, tuple) else (size, size)
    window = (1, rows, columns)

    def derivatives(pool):
        for _ in range(num_maps):
            pool = jax.vmap(pool)
        gradient = jax.grad(lambda x: jnp.sin(pool(x)).sum())
        return compiled(lambda x: (jax.jvp(pool, (x,), (jnp.cos(x),)), gradient(x)))(x)

    def mean(x):
        return lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / (rows * columns)

    close(derivatives(lambda x: avg_pool2d(x, size)), derivatives(mean))
    (ours, tangent), gradient = derivatives(lambda x: max_pool2d(x, size))
    assert tangent.shape == ours.shape

    def by_window(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")

    for _ in range(num_maps):
        by_window = jax.vmap(by_window)
    close(ours, by_window(x))
    close(gradient, compiled(jax.grad(lambda x: jnp.sin(by_window(x)).sum()))(x))
    # XLA has no forward derivative of the maximum over windows: the inner product with the gradient tells.
    close((tangent * jnp.cos(ours)).sum(), (gradient * jnp.cos(x)).sum(), 1e-3)


def test_max_pooling_has_consistent_forward_and_reverse_derivatives():
    x = jax.random.normal(jax.random.key(0), (2, 5, 5))

    def cubes(x):
        return max_pool2d(x, 2) ** 3

    def total(x):
        return cubes(x).sum()

    close(compiled(jax.jacfwd(cubes))(x), compiled(jax.jacrev(cubes))(x))
    close(compiled(jax.hessian(total))(x), compiled(jax.jacrev(jax.grad(total)))(x))


def test_max_pooling_shares_the_gradient_among_ties():
    gradient = jax.grad(lambda x: max_pool2d(x, 2).sum())(jnp.array([[[1.0, 1.0], [0.0, 1.0]]]))
    close(gradient, jnp.array([[[1 / 3, 1 / 3], [0.0, 1 / 3]]]))


def test_pooling_accepts_examples_on_the_last_axis():
    x = jax.random.normal(jax.random.key(0), (2, 5, 6, 3))
    for pool in (max_pool2d, avg_pool2d):
        close(pool(x, 2), jnp.moveaxis(jax.vmap(lambda x, f=pool: f(x, 2), -1)(x), 0, -1))


def test_layer_convolves_with_its_own_weights_and_can_be_stored():
    layer = Conv2d(2, 4, (3, 2), stride=(2, 1), padding=1, key=0)
    x = jax.random.normal(jax.random.key(1), (2, 6, 6))
    layer = eqx.tree_at(lambda layer: layer.bias, layer, jnp.arange(4.0))
    expected = reference(x, layer.weight, (2, 1), ((1, 1), (1, 1))) + jnp.arange(4.0)[:, None, None]
    close(layer(x), expected)
    again = decode(*encode(layer))
    close(again(x), expected)
    assert Conv2d(2, 4, 3, key=0, use_bias=False).bias is None


def test_initial_weights_follow_he():
    weight = Conv2d(10, 200, 5, key=0).weight
    assert abs(float(weight.std()) / np.sqrt(2 / 250) - 1) < 0.02


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Conv2d(0, 1, 3, key=0), "in_channels must be an int >= 1, got 0"),
        (lambda: Conv2d(1, -2, 3, key=0), "out_channels must be an int >= 1, got -2"),
        (lambda: Conv2d(1, 1, 0, key=0), "kernel_size must be an int >= 1 or a pair of them, got 0"),
        (lambda: Conv2d(1, 1, 3, (1, 0), key=0), r"stride must be .* got \(1, 0\)"),
        (lambda: Conv2d(1, 1, 3, padding=-1, key=0), "padding must be an int >= 0 .* got -1"),
        (lambda: conv2d(jnp.ones((2, 5, 5)), jnp.ones((1, 3, 2, 2))), "x has 2 channels but weight of shape"),
        (lambda: conv2d(jnp.ones((1, 2, 5)), jnp.ones((1, 1, 3, 3))), "larger than x"),
        (
            lambda: conv2d(jnp.ones((1, 5, 5)), jnp.ones((4, 1, 3, 3)), jnp.ones(3)),
            r"bias must have shape \(4,\)",
        ),
        (lambda: max_pool2d(jnp.ones((1, 2, 5)), 3), "size must be at most .* got 3"),
        (lambda: avg_pool2d(jnp.ones((1, 4, 5)), 0), "size must be .* got 0"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()

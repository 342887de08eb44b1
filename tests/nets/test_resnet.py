"""Residual networks: against ones written with XLA's convolutions, in batches, with dropout, stored and refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import marginax as mx
from marginax.files import decode, encode
from marginax.nets import FilterResponse, FilterResponseNorm, GroupNormalisation, ResNet, ThresholdedLinear, WideResNet

GROUPS = GroupNormalisation(2)


def small(kind=ResNet, **changes):
    options = {"depth": 8} if kind is ResNet else {"depth": 10, "width": 2}
    return kind((2, 8, 6), 3, channels=4, key=0, **{"normalisation": GROUPS, **options, **changes})


@pytest.fixture
def images():
    return jax.random.normal(jax.random.key(1), (3, 2, 8, 6))


# ---- the same networks, written plainly: examples first, channels last


def convolved(layer, h):
    pads = [(layer.weight.shape[2] // 2,) * 2] * 2
    numbers = ("NHWC", "OIHW", "NHWC")
    return lax.conv_general_dilated(h, layer.weight, layer.stride, pads, dimension_numbers=numbers)


def normalised(norm, h):
    if isinstance(norm, eqx.nn.GroupNorm):
        return jax.vmap(lambda image: norm(image.transpose(2, 0, 1)).transpose(1, 2, 0))(h)
    return norm.weight * h / jnp.sqrt((h**2).mean((1, 2), keepdims=True) + 1e-6) + norm.bias


def activated(unit, h):
    return jnp.maximum(h, 0.0 if unit is None else unit.threshold)


def plain(net, xs):
    h = convolved(net.stem, xs.transpose(0, 2, 3, 1))
    wide = isinstance(net, WideResNet)
    h = h if wide else activated(net.unit, normalised(net.norm, h))
    for block in net.blocks:
        (first, second), (one, two), (a, b) = block.convolutions, block.norms, block.units
        if wide:
            inner = activated(a, normalised(one, h))
            rest = h if block.shortcut is None else convolved(block.shortcut, inner)
            h = rest + convolved(second, activated(b, normalised(two, convolved(first, inner))))
        else:
            rest = h if block.shortcut is None else normalised(block.shortcut_norm, convolved(block.shortcut, h))
            inner = activated(a, normalised(one, convolved(first, h)))
            h = activated(b, rest + normalised(two, convolved(second, inner)))
    h = activated(net.unit, normalised(net.norm, h)) if wide else h
    return h.mean((1, 2)) @ net.output.weight.T + net.output.bias


@pytest.mark.parametrize(
    ("kind", "normalisation"),
    [
        (ResNet, GROUPS),
        pytest.param(ResNet, FilterResponse(), marks=pytest.mark.slow),
        pytest.param(WideResNet, GROUPS, marks=pytest.mark.slow),
        (WideResNet, FilterResponse()),
    ],
)
def test_outputs_equal_those_of_the_plain_network(kind, normalisation, images):
    net = jax.tree.map(lambda leaf: leaf + 0.05, small(kind, normalisation=normalisation))  # no factor is at 0 or 1

    @eqx.filter_jit
    def all_ways(net, xs):
        return plain(net, xs), jax.vmap(net)(xs), net.call_batch(xs)

    expected, one_by_one, batch = all_ways(net, images)
    assert expected.shape == (3, 3)
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(batch, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [ResNet, pytest.param(WideResNet, marks=pytest.mark.slow)])
def test_gradients_equal_those_of_the_plain_network(kind, images):
    net = small(kind, normalisation=FilterResponse())
    loss = lambda call: eqx.filter_jit(eqx.filter_grad(lambda net: jnp.sum(jnp.sin(call(net)))))(net)  # noqa: E731
    found, expected = loss(lambda net: net.call_batch(images)), loss(lambda net: plain(net, images))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.any(b != 0)
        np.testing.assert_allclose(a, b, rtol=5e-3, atol=1e-3 * float(jnp.abs(b).max()) + 1e-5)


def size_of(make):
    return sum(
        leaf.size for leaf in jax.tree.leaves(eqx.filter(jax.eval_shape(make), lambda leaf: hasattr(leaf, "size")))
    )


def test_sizes_are_those_of_the_papers():
    # 0.27, 0.46, 0.85 and 11.17 million weights; shortcuts by filters of 1x1 add 2,752 to the first three
    for depth, expected in ((20, 272_474), (32, 466_906), (56, 855_770), (18, 11_173_962)):
        assert size_of(lambda depth=depth: ResNet(depth=depth, key=0)) == expected
    assert size_of(lambda: WideResNet(depth=16, width=4, key=0)) == 2_748_890
    assert size_of(lambda: WideResNet(depth=28, width=10, key=0)) == 36_479_194


def test_strides_halve_the_images():
    net = jax.eval_shape(lambda: ResNet(depth=18, key=0))
    assert [block.convolutions[0].stride for block in net.blocks] == [(1, 1)] * 2 + [(2, 2), (1, 1)] * 3
    assert [block.shortcut is None for block in net.blocks] == [True, True] + [False, True] * 3
    assert jax.eval_shape(lambda net, x: net(x), net, jnp.ones((3, 32, 32))).shape == (10,)


def test_normalisations_have_no_state_and_say_what_they_do():
    x = jax.random.normal(jax.random.key(0), (3, 4, 5)) * jnp.array([1.0, 10.0, 0.1])[:, None, None]
    norm = FilterResponseNorm(3)
    np.testing.assert_allclose((norm(x) ** 2).mean((1, 2)), 1.0, rtol=1e-3)
    np.testing.assert_allclose(norm(x), norm(x[..., None])[..., 0], rtol=1e-5)
    shifted = eqx.tree_at(lambda unit: unit.threshold, ThresholdedLinear(3), jnp.array([-1.0, 0.0, 0.05]))
    np.testing.assert_array_equal(shifted(x), np.maximum(x, np.float32([-1.0, 0.0, 0.05])[:, None, None]))


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (3e3, 1.0), (0.0, 1e-4)])
def test_group_normalisation_is_that_of_equinox_where_means_are_large(mean, scale):
    x = mean + scale * jax.random.normal(jax.random.key(0), (6, 4, 5))
    norm = eqx.tree_at(lambda n: (n.weight, n.bias), eqx.nn.GroupNorm(3, 6), (jnp.arange(6.0), jnp.ones(6)))
    for found in (
        mx.nets.normalisation.group_norm(norm, x),
        mx.nets.normalisation.group_norm(norm, x[..., None])[..., 0],
    ):
        np.testing.assert_allclose(found, norm(x), rtol=1e-3, atol=1e-3)


def test_another_activation_takes_the_place_of_the_unit():
    net = small(normalisation=FilterResponse(), activation=jax.nn.silu)
    assert net.unit is None
    assert all(block.units == (None, None) for block in net.blocks)
    assert small(normalisation=FilterResponse()).blocks[0].units[1].threshold.shape == (4,)


@pytest.mark.parametrize("kind", [ResNet, pytest.param(WideResNet, marks=pytest.mark.slow)])
def test_dropout_needs_a_key_and_differs_by_example(kind, images):
    net, off = small(kind, dropout=0.5), small(kind)
    assert (net.stochastic, off.stochastic) == (True, False)
    same = jnp.stack([images[0]] * 3)
    call = eqx.filter_jit(lambda net, key: net.call_batch(same, key=key))
    np.testing.assert_array_equal(call(net, None), call(off, None))
    assert len({tuple(row.ravel().tolist()) for row in np.asarray(call(net, jax.random.key(0)))}) == 3


@pytest.mark.parametrize("kind", [ResNet, WideResNet])
def test_reinitialise_changes_the_weights_and_storage_changes_nothing(kind):
    net = small(kind, normalisation=FilterResponse(), activation=jnp.tanh, dropout=0.1)
    other, again = net.reinitialise(7), decode(*encode(net))
    assert jax.tree.structure(net) == jax.tree.structure(other) == jax.tree.structure(again)
    assert not np.allclose(net.blocks[0].convolutions[0].weight, other.blocks[0].convolutions[0].weight)
    for same in (again, net.reinitialise(0)):
        for a, b in zip(jax.tree.leaves(net), jax.tree.leaves(same), strict=True):
            np.testing.assert_array_equal(a, b)


class Stateful(eqx.Module):
    layers: list

    def __call__(self, x, state):
        return self.layers[1](x, state)


def test_batch_normalisation_is_refused_with_the_remedy(as_users_run):
    norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="ema")
    with pytest.raises(TypeError, match=r"normalisation must be an object such as mx\.nets\.GroupNorm.*from_torch"):
        ResNet(normalisation=norm, key=0)
    with pytest.raises(ValueError, match=r"called with a state of BatchNorm at layers/1: normalise without state"):
        mx.Model(Stateful([eqx.nn.Linear(3, 3, key=jax.random.key(0)), norm]), mx.likelihoods.Gaussian())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResNet(depth=21, key=0), r"depth must be 6n \+ 2 \(8, 20, 32, 44, 56, ...\) or 18, got 21"),
        (lambda: WideResNet(depth=20, key=0), r"depth must be 6n \+ 4 \(10, 16, 22, 28, 40, ...\), got 20"),
        (
            lambda: small(normalisation=GroupNormalisation(3)),
            "groups must divide all numbers of channels, here 4, got 3",
        ),
        (lambda: GroupNormalisation(0), "groups must be positive ints, got 0"),
        (lambda: small(dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
        (lambda: ResNet((8, 8), key=0), r"in_shape must be \(channels, height, width\), got \(8, 8\)"),
        (
            lambda: ResNet((1, 4, 4), normalisation=FilterResponse(), key=0),
            r"in_shape must be larger for FilterResponse\(\), got \(1, 4, 4\): the last images have one pixel",
        ),
        (lambda: small()(jnp.ones((2, 8, 8))), r"x must be an image of shape \(2, 8, 6\), got \(2, 8, 8\)"),
    ],
)
def test_bad_arguments_are_named(make, message, as_users_run):
    with pytest.raises(ValueError, match=message):
        make()

"""Networks with fewer units: their widths, their scales, and what they refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.nets import narrowed


def test_widths_are_rounded_up_and_ends_stay():
    net = narrowed(mx.nets.MLP(3, (50, 21), 2, norm=eqx.nn.LayerNorm, linear=True, key=0), 0.25)
    assert [layer.weight.shape for layer in net.layers] == [(13, 3), (6, 13), (2, 6)]
    assert net.linear.weight.shape == (2, 3)
    assert [norm.weight.shape for norm in net.norms] == [(13,), (6,)]
    assert net(jnp.ones(3)).shape == (2,)
    small = mx.nets.MLP(3, (13, 6), 2, norm=eqx.nn.LayerNorm, linear=True, key=0)
    assert jax.tree.structure(net) == jax.tree.structure(small)  # as if it had been made so

    images = narrowed(mx.nets.LeNet((1, 28, 28), (20, 50), 500, 10, key=0), 0.5)
    assert [layer.weight.shape[:2] for layer in images.convolutions] == [(10, 1), (25, 10)]
    assert images.hidden.weight.shape == (250, 25 * 16)
    assert images.output.weight.shape == (10, 250)
    assert images.call_batch(jnp.ones((4, 28, 28))).shape == (4, 10)
    assert jax.tree.structure(images) == jax.tree.structure(mx.nets.LeNet((1, 28, 28), (10, 25), 250, 10, key=0))


def test_all_units_are_the_network_itself():
    for net in (mx.nets.MLP(3, (7, 5), 2, key=0), mx.nets.LeNet((1, 18, 18), (2, 3), 4, 2, key=0)):
        assert eqx.tree_equal(net, narrowed(net, 1.0))


@pytest.mark.parametrize("activation", [jax.nn.relu, jnp.tanh], ids=["he", "glorot"])
def test_weights_are_as_large_as_those_of_a_network_of_that_size(activation):
    wide, small = (mx.nets.MLP(300, (h, h), 10, activation=activation, key=0) for h in (400, 100))
    for cut, fresh in zip(narrowed(wide, 0.25).layers, small.layers, strict=True):
        error = np.sqrt(2 / cut.weight.size)  # of a ratio of two standard deviations, each with 1 / sqrt(2 size)
        assert abs(float(cut.weight.std() / fresh.weight.std()) - 1) < 4.9 * error


def test_what_cannot_be_narrowed_is_refused():
    with pytest.raises(ValueError, match=r"fraction must be in \(0, 1\], got 1.5"):
        narrowed(mx.nets.MLP(3, (5,), 1, key=0), 1.5)
    with pytest.raises(TypeError, match="or have a method narrowed"):
        narrowed(mx.nets.GRU(3, 4, key=0), 0.5)

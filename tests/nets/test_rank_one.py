"""Rank-one factors: a batch dealt to members gives what each member's own layer gives, and normal factors their law."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax._kernels.random import normal
from marginax.nets import Perturbed, RankOneFactors, layers_of, rank_one_layers, replace_layers

KEY = jax.random.key(0)
NUM = 40_000


def factors_of(layer, num_members: int, seed: int) -> RankOneFactors:
    """Factors and biases, all different."""
    key = jax.random.fold_in(KEY, seed)
    sizes = layer.weight.shape[1], layer.weight.shape[0], layer.weight.shape[0]
    values = [1.0 + normal(key, (num_members, size), stream=i) for i, size in enumerate(sizes)]
    return RankOneFactors(*values[:2], None if layer.bias is None else values[2])


class Twice(eqx.Module):
    """A layer that is called two times."""

    layer: eqx.nn.Linear

    def __call__(self, x):
        return self.layer(jnp.tanh(self.layer(x)))


NETWORKS = {
    "perceptron": (mx.nets.MLP(3, (5, 4), 2, key=0), (3,)),
    "lenet": (mx.nets.LeNet((1, 18, 18), (2, 3), 4, 2, key=0), (18, 18)),
    "convolution of equinox": (eqx.nn.Conv2d(2, 3, 3, stride=2, padding=1, key=KEY), (2, 6, 6)),
    "no bias": (eqx.nn.Linear(3, 2, use_bias=False, key=KEY), (3,)),
    "recurrent": (mx.nets.GRU(3, 4, out_size=2, every_step=False, key=0), (5, 3)),
    "attention": (mx.nets.Transformer(3, 2, size=4, num_heads=2, depth=1, every_step=False, key=0), (5, 3)),
    "one layer twice": (Twice(eqx.nn.Linear(3, 3, key=KEY)), (3,)),
}


@pytest.mark.parametrize("case", NETWORKS.values(), ids=NETWORKS)
def test_rows_dealt_to_members_give_what_each_member_gives(case):
    network, shape = case
    x = normal(KEY, (7, *shape), stream=5)
    factors = tuple(factors_of(layer, 3, i) for i, layer in enumerate(layers_of(network)))
    dealt = tuple(eqx.tree_at(lambda f: f.first, f, jnp.asarray(2), is_leaf=lambda n: n is None) for f in factors)
    found = Perturbed(network, dealt).call_batch(x, key=KEY)
    for row in range(7):
        member = jax.tree.map(lambda leaf, m=(2 + row) % 3: leaf[m], factors)
        layers = [one.applied_to(layer) for one, layer in zip(member, layers_of(network), strict=True)]
        np.testing.assert_allclose(found[row], replace_layers(network, layers)(x[row]), rtol=2e-4, atol=2e-5)


def law(weight, x, factors: RankOneFactors, bias: float) -> tuple[float, float]:
    """Mean and variance of s (sum of w r x) + b with independent normal r and s."""
    inner = float(np.sum(weight * np.asarray(factors.inputs) * x))
    spread = float(np.sum((weight * np.asarray(factors.input_scale) * x) ** 2))
    mean, scale = float(factors.outputs[0]), float(factors.output_scale[0])
    return mean * inner + bias, (mean**2 + scale**2) * (inner**2 + spread) - mean**2 * inner**2


def test_normal_factors_have_the_law_of_the_product():
    weight, x = np.array([1.0, -2.0, 0.5]), np.array([2.0, 1.0, -3.0])
    layer = eqx.nn.Linear(3, 1, key=KEY)
    layer = eqx.tree_at(lambda at: (at.weight, at.bias), layer, (jnp.array(weight)[None], jnp.array([9.0])))
    one = RankOneFactors(*map(jnp.array, ([1.1, 0.8, 1.3], [0.7], [0.5], [0.3, 0.1, 0.4], [0.2])))
    mean, variance = law(weight, x, one, 0.5)  # the bias of the factors takes the place of the layer's
    members = jax.tree.map(lambda leaf: leaf[None], one)
    batch = Perturbed(layer, (members,)).call_batch(jnp.tile(jnp.array(x), (NUM, 1)), key=KEY)
    fixed = jax.vmap(lambda key: Perturbed(layer, (one,), key)(jnp.array(x)))(jax.random.split(KEY, NUM))
    for outputs in (np.asarray(batch, np.float64), np.asarray(fixed, np.float64)):
        away = (outputs - mean) ** 2
        assert abs(outputs.mean() - mean) < 4.9 * np.sqrt(variance / NUM)
        assert abs(away.mean() - variance) < 4.9 * away.std() / np.sqrt(NUM)


def test_inputs_share_factors_within_a_draw_and_do_not_within_a_batch():
    layer = eqx.nn.Linear(2, 1, key=KEY)
    one = RankOneFactors(jnp.ones(2), jnp.ones(1), None, jnp.full(2, 0.3), jnp.full(1, 0.3))
    x = jnp.tile(jnp.array([1.0, 2.0]), (5, 1))
    assert np.unique(np.asarray(Perturbed(layer, (one,), KEY).call_batch(x))).size == 1
    members = jax.tree.map(lambda leaf: leaf[None], one)
    assert np.unique(np.asarray(Perturbed(layer, (members,)).call_batch(x, key=KEY))).size == 5


def test_layers_that_cannot_have_factors_are_named():
    grouped = eqx.nn.Sequential([eqx.nn.Conv2d(2, 2, 1, key=KEY), eqx.nn.Conv2d(4, 4, 3, groups=2, key=KEY)])
    with pytest.raises(ValueError, match="layers/1 has groups"):
        rank_one_layers(grouped, eqx.filter(grouped, eqx.is_inexact_array))
    scalar = eqx.nn.Linear("scalar", 2, key=KEY)
    with pytest.raises(ValueError, match="has scalars: fix its weights"):
        rank_one_layers(scalar, eqx.filter(scalar, eqx.is_inexact_array))
    function = mx.nets.Function(jnp.ones(3), lambda w, x: w @ x)
    with pytest.raises(ValueError, match="no layers with random weights that are known"):
        rank_one_layers(function, eqx.filter(function, eqx.is_inexact_array))


def test_layers_whose_weights_are_fixed_get_no_factors():
    net = mx.nets.MLP(2, (3,), 1, key=0)
    model = mx.Model(net, mx.likelihoods.Gaussian(0.1), subset=mx.LastLayer())
    assert rank_one_layers(net, model.initial(1).network) == [False, True]

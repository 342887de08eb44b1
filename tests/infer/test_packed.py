"""A packed ensemble is a deep ensemble of narrower networks: one wide network of blocks gives the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import marginax as mx
from marginax.infer import MAP, SGD, Constant, DeepEnsemble
from marginax.nets import narrowed
from marginax.posterior import Draws

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = np.sin(2 * X[:, 0]).astype(np.float32)
NUM_MEMBERS, ALPHA, WIDTHS = 4, 2, (12, 8)
SCALE, PRIOR = 0.3, mx.priors.Normal(1.0)


def small_model() -> mx.Model:
    net = narrowed(mx.nets.MLP(3, WIDTHS, 1, key=0), ALPHA / NUM_MEMBERS)
    return mx.Model(net, mx.likelihoods.Gaussian(SCALE), PRIOR)


def starts(model: mx.Model):
    """Other weights for every member."""
    params = model.initial(1)
    drawn = [model.reinitialise(params, key=jax.random.key(m)) for m in range(NUM_MEMBERS)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves)[:, None], *drawn)


def packed(params):
    """One network of the width ALPHA * WIDTHS: weights as blocks on the diagonal, all members with the same input."""
    layers = jax.tree.map(lambda leaf: leaf[:, 0], params.network).layers
    first = layers[0].weight.reshape(-1, layers[0].weight.shape[-1])
    rest = [jax.scipy.linalg.block_diag(*layer.weight) for layer in layers[1:]]
    return [first, *rest], [layer.bias.ravel() for layer in layers]


def outputs(network, x):
    """Of the wide network: one for each member."""
    (weights, biases), h = network, x
    for weight, bias in list(zip(weights, biases, strict=True))[:-1]:
        h = jax.nn.relu(h @ weight.T + bias)
    return h @ weights[-1].T + biases[-1]


def test_blocks_of_a_wide_network_are_the_members():
    model = small_model()
    params = starts(model)
    assert packed(params)[0][1].shape == (ALPHA * WIDTHS[1], ALPHA * WIDTHS[0])
    wide = outputs(packed(params), X)
    for m in range(NUM_MEMBERS):
        alone = model.output(jax.tree.map(lambda leaf, m=m: leaf[m, 0], params), jnp.asarray(X))
        np.testing.assert_allclose(wide[:, m], alone[:, 0], rtol=1e-5, atol=1e-6)


def test_training_the_wide_network_is_training_the_members():
    """The sum of the members' log densities, over weights that stay zero outside of the blocks."""
    model, num_steps = small_model(), 50
    params, rate = starts(model), 1e-3
    optimiser = SGD(rate, momentum=0.0, schedule=Constant())
    method = DeepEnsemble(NUM_MEMBERS, MAP(num_epochs=num_steps, batch_size=None, optimiser=optimiser))
    posterior = mx.fit(model, (X, Y), method, key=0, init=Draws(model=model, params=params))

    network = packed(params)
    mask = jax.tree.map(lambda w: (w != 0).astype(w.dtype), network[0]), jax.tree.map(jnp.ones_like, network[1])
    sgd = optax.sgd(rate)

    def loss(network):
        errors = (outputs(network, jnp.asarray(X)) - jnp.asarray(Y)[:, None]) / SCALE
        prior = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(network))
        return 0.5 * (jnp.sum(errors**2) + prior) / len(X)

    @eqx.filter_jit
    def step(network, memory):
        gradient = jax.tree.map(jnp.multiply, jax.grad(loss)(network), mask)
        updates, memory = sgd.update(gradient, memory)
        return optax.apply_updates(network, updates), memory

    memory = sgd.init(network)
    for _ in range(num_steps):
        network, memory = step(network, memory)
    wanted = packed(jax.tree.map(jnp.asarray, posterior.params))
    for wide, members, first in zip(*map(jax.tree.leaves, (network, wanted, packed(params))), strict=True):
        np.testing.assert_allclose(wide, members, rtol=1e-3, atol=1e-5)
        assert np.abs(wide - first).max() > 1e-3  # they have moved


def test_as_many_times_as_wide_as_members_is_the_ensemble_itself():
    net = mx.nets.MLP(3, WIDTHS, 1, key=0)
    found = []
    for network in (net, narrowed(net, NUM_MEMBERS / NUM_MEMBERS)):
        model = mx.Model(network, mx.likelihoods.Gaussian(SCALE), PRIOR)
        found.append(mx.fit(model, (X, Y), DeepEnsemble(NUM_MEMBERS, MAP(num_epochs=20)), key=0))
    for ours, theirs in zip(*(jax.tree.leaves(posterior.params) for posterior in found), strict=True):
        assert np.array_equal(ours, theirs)

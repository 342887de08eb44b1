"""Every family of methods takes a network that came from PyTorch, or refuses it by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.nets.torch.test_stored import stored

import marginax as mx
from marginax.nets.torch.state import network_of

METHODS = {
    "MAP": mx.infer.MAP(num_epochs=2),
    "Laplace, last layer": mx.infer.Laplace(structure=mx.curvature.Dense(), subset=mx.LastLayer()),
    "Laplace, Kronecker": mx.infer.Laplace(),
    "SWAG": mx.infer.SWAG(num_snapshots=10, training=None),
    "DeepEnsemble": mx.infer.DeepEnsemble(2, mx.infer.MAP(num_epochs=2)),
    "MCDropout": mx.infer.MCDropout(num_epochs=2),
    "VI": mx.infer.VI(num_epochs=2),
}


def labelled(name, num=24, seed=0):
    tree = stored(name)
    rng = np.random.default_rng(seed)
    shape = tree["x"].shape[1:]
    x = rng.integers(0, 9, (num, *shape)) if tree["x"].dtype.kind == "i" else rng.normal(size=(num, *shape))
    y = rng.integers(0, tree["y"].shape[1], num)
    return tree["network"], (x.astype(np.float32), y)


@pytest.mark.parametrize("name", METHODS)
def test_methods_go_on_from_the_trained_weights(name, tmp_path):
    network, data = labelled("mlp")
    model = mx.Model(network, mx.likelihoods.Categorical())
    posterior = mx.fit(model, data, METHODS[name], init=network, key=0)
    probs = posterior.predict(data[0]).probs
    assert np.isfinite(probs).all()
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(mx.load(tmp_path / "run").predict(data[0]).probs, probs)
    drawn = mx.nets.state_dict(network_of(posterior, key=0))
    assert drawn.keys() == mx.nets.state_dict(network).keys()


def check_start():
    """From a given network there is nothing to train: the mode of a Laplace approximation is that network."""
    network, data = labelled("mlp")
    model = mx.Model(network, mx.likelihoods.Categorical())
    posterior = mx.fit(model, data, mx.infer.Laplace(), init=network, key=0)
    for key, value in mx.nets.state_dict(network_of(posterior)).items():
        np.testing.assert_array_equal(value, mx.nets.state_dict(network)[key])


def test_means_of_a_laplace_approximation_are_the_trained_weights():
    check_start()


def check_buffers():
    """Training and drawing move weights, and leave running statistics where they are."""
    network, data = labelled("resnet")
    model = mx.Model(network, mx.likelihoods.Categorical())
    posterior = mx.fit(model, data, mx.infer.MAP(num_epochs=1), init=network, key=0)
    before, after = mx.nets.state_dict(network), mx.nets.state_dict(network_of(posterior))
    for key, value in before.items():
        fixed = "running" in key or "num_batches" in key
        assert np.array_equal(value, after[key]) == fixed, key


def test_buffers_stay_and_weights_move():
    check_buffers()


def test_the_last_layer_of_a_module_is_regression_on_its_features():
    """The Jacobian of the last layer, found by hooks, is that of all weights, found without."""
    network, data = labelled("vit")
    x = jnp.asarray(data[0][:2])
    features = mx.nets.layers.last_layer_inputs(network, x)
    head = mx.nets.layers_of(network)[-1]
    outputs = mx.nets.call_batched(network, x)
    np.testing.assert_allclose(outputs, features @ head.weight.T + head.bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "vit", "lenet"])
def test_derivatives_by_layers_are_those_without(name):
    from marginax.curvature.hooks import plan_for, pull_back

    network, data = labelled(name)
    model = mx.Model(network, mx.likelihoods.Categorical())
    x = jnp.asarray(data[0][:2])
    params = model.initial(3)
    parts = []
    for shape in (x.shape[1:], None):
        plan = plan_for(model, params, shape, x.dtype)
        _, jacobian = pull_back(model, params, plan, x, None, lambda output, y, key: jnp.eye(output.shape[0]))
        parts.append(np.concatenate([leaf.dense() for leaf in jacobian], axis=-1))
        assert any(leaf.site is not None for leaf in plan.leaves) == (shape is not None)
    np.testing.assert_allclose(parts[0], parts[1], rtol=1e-3, atol=1e-5)


REFUSED = {"lstm": "module/rnn/weight_ih_l0", "gru": "module/rnn/weight_hh_l0", "causal": "module/embed/weight"}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("structure", [mx.curvature.Kronecker(), mx.curvature.EKFAC()], ids=["kronecker", "ekfac"])
def test_matrices_in_no_layer_are_refused_by_their_paths_where_layers_are_needed(name, structure):
    network, (x, y) = labelled(name)
    model = mx.Model(network, mx.likelihoods.Categorical())
    with pytest.raises(ValueError, match=rf"{REFUSED[name]}.* in none that is known .*structure=mx.curvature.Diagonal"):
        mx.fit(model, (x, y), mx.infer.Laplace(structure=structure), init=network, key=0)


def test_those_weights_are_taken_where_no_layers_are_needed():
    network, data = labelled("lstm")
    model = mx.Model(network, mx.likelihoods.Categorical())
    for method in (
        mx.infer.Laplace(structure=mx.curvature.Diagonal()),
        mx.infer.Laplace(subset=mx.LastLayer()),
    ):
        posterior = mx.fit(model, data, method, init=network, key=0)
        assert np.isfinite(posterior.predict(data[0]).probs).all()


def test_a_posterior_has_a_mean_where_it_lies_around_one_place():
    network, data = labelled("mlp")
    model = mx.Model(network, mx.likelihoods.Categorical())
    ensemble = mx.fit(model, data, METHODS["DeepEnsemble"], init=network, key=0)
    with pytest.raises(ValueError, match=r"no single mean \(2 networks.*take a draw of it, with key="):
        ensemble.mean_params()
    chain = mx.fit(model, data, mx.infer.SGLD(num_warmup=5, num_samples=4), init=network, num_chains=1, key=0)
    expected = jax.tree.map(lambda leaf: np.mean(leaf, (0, 1)), chain.params)
    for ours, theirs in zip(jax.tree.leaves(chain.mean_params()), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)

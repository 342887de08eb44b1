"""Networks that came from PyTorch, stored as data with what PyTorch makes of inputs: no test here needs PyTorch."""

import json
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.nets.torch.modules import FOLDER

import marginax as mx
from marginax.files import FileError, load_tree, read_arrays, write_arrays
from marginax.nets.torch.graph import Graph, Node, Value
from marginax.nets.torch.layers import find_layers
from marginax.nets.torch.operators import OPERATORS, RANDOM

NETWORKS = ("mlp", "lenet", "resnet", "lstm", "gru", "rnn", "encoder", "causal", "vit", "tokens")
OPERATIONS = ("elementwise", "reductions", "shapes", "products", "windows")
DROPS = ("mlp", "lenet", "lstm", "encoder", "vit")


def stored(name):
    return load_tree(FOLDER / name, "torch")


def outputs(network, x):
    return jax.jit(lambda x: mx.nets.call_batched(network, x))(jnp.asarray(x))


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())


def check_outputs(name):
    tree = stored(name)
    close(outputs(tree["network"], tree["x"]), tree["y"])


def check_slope(name):
    """In the first parameter of the module."""
    tree = stored(name)
    network, weights = tree["network"], np.cos(np.arange(tree["y"][0].size)).reshape(tree["y"].shape[1:])
    first = network.entries[0].name
    grad = eqx.filter_grad(lambda net: jnp.sum(jax.vmap(net)(jnp.asarray(tree["x"])) * weights))(network)
    close(np.reshape(grad.array(first), tree["slope"].shape), tree["slope"])


@pytest.mark.parametrize("name", NETWORKS + OPERATIONS)
def test_outputs_are_those_of_pytorch(name):
    check_outputs(name)


@pytest.mark.parametrize("name", NETWORKS + OPERATIONS)
def test_slopes_are_those_of_pytorch(name):
    check_slope(name)


@pytest.mark.parametrize("name", ["lstm", "resnet", "vit"])
def test_forward_derivatives_are_the_transposes_of_backward_ones(name):
    tree = stored(name)
    network, x = tree["network"], jnp.asarray(tree["x"][0])
    directions = jax.random.normal(jax.random.key(0), (2, *x.shape))
    forward = jax.vmap(lambda v: jax.jvp(network, (x,), (v,))[1])(directions)
    (backward,) = jax.vmap(jax.vjp(network, x)[1])(jnp.eye(forward.shape[1]))
    expected = directions.reshape(2, -1) @ backward.reshape(len(backward), -1).T
    np.testing.assert_allclose(forward, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_any_number_of_examples_and_networks(name):
    tree = stored(name)
    network, x = tree["network"], tree["x"]
    close(outputs(network, np.tile(x, (3, *(1 for _ in x.shape[1:])))), np.tile(tree["y"], (3, 1)))
    stack = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), eqx.filter(network, eqx.is_array))
    both = eqx.filter_vmap(lambda net: net(jnp.asarray(x[0])))(eqx.combine(stack, network))
    close(both[0], tree["y"][0])


# ---- weights, buffers, layers


def test_weights_have_the_names_of_the_module():
    network = stored("resnet")["network"]
    model = mx.Model(network, mx.likelihoods.Categorical())
    paths = [leaf.path for leaf in model.leaves]
    assert {"module/conv1/weight", "module/layer2/0/down/0/weight", "module/bn1/bias", "module/fc/bias"} <= set(paths)
    assert paths[-2:] == ["module/fc/weight", "module/fc/bias"]
    assert not any("running" in path or "num_batches" in path for path in paths)
    assert network.array("bn1/running_mean").shape == (4,)
    assert int(network.array("bn1/num_batches_tracked")) == 1


def test_linear_maps_and_convolutions_are_layers():
    found = {name: mx.nets.layer_paths(stored(name)["network"]) for name in ("lenet", "lstm", "causal", "vit")}
    assert found["lenet"] == ["module/0", "module/4", "module/8", "module/10"]
    assert found["lstm"] == ["module/fc"]
    assert found["causal"] == ["module/attention/in_proj", "module/attention/out_proj"]  # the head shares its weight
    assert found["vit"][0] == "module/patches"
    assert found["vit"][-1] == "module/head"
    kinds = [type(layer).__name__ for layer in mx.nets.layers_of(stored("vit")["network"])]
    assert kinds == ["Conv2d", "Pointwise", "Pointwise", "Pointwise", "Pointwise", "Linear"]


def test_a_weight_that_is_used_elsewhere_too_is_no_layer():
    linear = Node("linear", (Value(0), Value(1), None), "fc")
    shapes = [(1, 3), (3, 3), (1, 3), (3, 3)]
    assert list(find_layers([linear], ["", "fc.weight"], shapes, {"fc.weight"})) == [0]
    both = [linear, Node("mm", (Value(1), Value(1)), "")]
    assert find_layers(both, ["", "fc.weight"], shapes, {"fc.weight"}) == {}
    assert find_layers([linear], ["", "fc.weight"], shapes, set()) == {}


def test_a_shared_weight_is_one_leaf_and_two_entries():
    network = stored("causal")["network"]
    state = mx.nets.state_dict(network)
    assert state["embed.weight"] is not state["head.weight"]
    np.testing.assert_array_equal(state["embed.weight"], state["head.weight"])
    assert sum("embed" in leaf.path or "head" in leaf.path for leaf in _leaves(network)) == 1
    assert "mask" not in state


def test_numbers_that_are_no_tokens_give_no_numbers():
    network = stored("tokens")["network"]
    tree = stored("tokens")
    close(outputs(network, tree["x"].astype(np.float32)), tree["y"])
    for wrong in (-1.0, 9.0, 0.5):
        assert np.isnan(outputs(network, np.full((1, 5), wrong, np.float32))).all()


def test_an_example_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"x must be an example of shape \(3,\), as in from_torch, got \(4,\)"):
        stored("mlp")["network"](jnp.ones(4))


def _leaves(network):
    return mx.Model(network, mx.likelihoods.Categorical()).leaves


# ---- dropout


@pytest.mark.parametrize("name", NETWORKS)
def test_a_key_switches_dropout_on_where_there_is_any(name):
    tree = stored(name)
    network, x = tree["network"], jnp.asarray(tree["x"][0])
    assert network.stochastic == (name in DROPS)
    first, again, *others = (network(x, key=jax.random.key(i)) for i in (0, 0, *range(1, 9)))
    assert bool(jnp.all(first == again))
    assert bool(jnp.any(first != jnp.stack(others))) == (name in DROPS)


def check_dropout_rate():
    """A linear read-out of dropped units has their mean, and the variance of independent coins."""
    network = stored("mlp")["network"]
    x = jnp.asarray(stored("mlp")["x"][0])
    first, last = mx.nets.layers_of(network)
    units, num = jnp.tanh(first(x)), 40_000
    drawn = jax.vmap(lambda key: network(x, key=key))(jax.random.split(jax.random.key(0), num))
    variance = (last.weight * units) ** 2 @ jnp.full(8, 0.2 / 0.8)
    assert (np.abs(drawn.mean(0) - network(x)) < 4.9 * np.sqrt(variance / num)).all()
    np.testing.assert_allclose(drawn.var(0), variance, rtol=4.9 * np.sqrt(2 / num) * 1.5)


def test_dropout_has_its_rate():
    check_dropout_rate()


def test_every_operation_that_takes_a_key_is_in_the_table():
    assert set(RANDOM) <= set(OPERATORS)


# ---- state dicts and files


def check_state_dict():
    """Other numbers give another network."""
    tree = stored("mlp")
    state = mx.nets.state_dict(tree["network"])
    other = mx.nets.load_state_dict(tree["network"], {key: value + 1 for key, value in state.items()})
    assert not np.allclose(outputs(other, tree["x"]), tree["y"])


def test_a_state_dict_is_taken():
    check_state_dict()


@pytest.mark.parametrize("name", NETWORKS)
def test_state_dicts_come_back(name, tmp_path):
    tree = stored(name)
    network, state = tree["network"], mx.nets.state_dict(tree["network"])
    other = mx.nets.load_state_dict(network, {key: value + value.dtype.type(1) for key, value in state.items()})
    assert not np.allclose(outputs(other, tree["x"]), tree["y"])
    write_arrays(tmp_path / "model.safetensors", state)
    back = mx.nets.load_safetensors(other, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(outputs(back, tree["x"]), outputs(network, tree["x"]))
    assert mx.nets.state_dict(back).keys() == read_arrays(tmp_path / "model.safetensors").keys()


def test_state_dicts_that_do_not_fit_are_refused_by_name():
    network = stored("mlp")["network"]
    state = mx.nets.state_dict(network)
    with pytest.raises(ValueError, match=r"state has fc\.weight, which the module has not"):
        mx.nets.load_state_dict(network, state | {"fc.weight": np.ones(3)})
    with pytest.raises(ValueError, match=r"state lacks 3\.bias"):
        mx.nets.load_state_dict(network, {key: value for key, value in state.items() if key != "3.bias"})
    with pytest.raises(ValueError, match=r"0\.weight of shape \(8, 3\), got \(3, 8\)"):
        mx.nets.load_state_dict(network, state | {"0.weight": np.ones((3, 8))})
    with pytest.raises(ValueError, match="of a stack of draws take one"):
        mx.nets.state_dict(jax.tree.map(lambda a: jnp.stack([a, a]), network))
    with pytest.raises(TypeError, match="network"):
        mx.nets.load_safetensors(mx.nets.MLP(1, (), 1, key=0), "model.safetensors")


def test_files_with_other_operations_are_refused(tmp_path):
    shutil.copytree(FOLDER / "mlp", tmp_path / "mlp")
    manifest = tmp_path / "mlp" / "manifest.json"
    text = manifest.read_text()
    for old, new in (('"op": "tanh"', '"op": "os.system"'), ('"index": 1}', '"index": 99}')):
        assert old in text
        manifest.write_text(text.replace(old, new))
        with pytest.raises(FileError):
            load_tree(tmp_path / "mlp", "torch")
    json.loads(text)


def test_graphs_that_cannot_be_run_are_refused():
    with pytest.raises(ValueError, match="op must be one of the table of operations, got 'system'"):
        Node("system", (), "")
    with pytest.raises(ValueError, match="arguments must be literals and values"):
        Node("relu", (jnp.ones(1),), "")
    with pytest.raises(ValueError, match="arguments of a layer must be its name and the input"):
        Node("layer.vector", (Value(0),), "")
    with pytest.raises(ValueError, match="arguments of node 0 must be values that came before"):
        Graph(("",), (Node("relu", (Value(1),), ""),), Value(1), (3,), "float32")
    with pytest.raises(ValueError, match="output must be one of the values"):
        Graph(("",), (), Value(1), (3,), "float32")
    with pytest.raises(ValueError, match="inputs must begin with the example"):
        Graph((), (), Value(0), (3,), "float32")

"""Modules of PyTorch become networks that give the same, or are refused by name. `pytest -m peer` runs these."""

import functools
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.nets.torch import modules

import marginax as mx

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pytest -m peer` has an environment with it")
nn = torch.nn
NETWORKS = modules.networks()


def outputs(network, x):
    return np.asarray(mx.nets.call_batched(network, jnp.asarray(np.asarray(x))))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_module_and_its_network_give_the_same(name):
    module, x = NETWORKS[name]
    module.train()
    network = mx.nets.from_torch(module, x)
    assert module.training, "the module is left as it was"
    y, _ = modules.answers(module, x)
    np.testing.assert_allclose(outputs(network, x), y, rtol=1e-4, atol=1e-4 * np.abs(y).max())
    before = {key: value.clone() for key, value in module.state_dict().items()}
    module.load_state_dict({key: torch.zeros_like(value) for key, value in before.items()})
    module.load_state_dict(mx.nets.to_torch(network), strict=True)
    for key, value in module.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key]), key


def test_stored_networks_are_what_modules_give_today():
    """If an operation or its reduction changes in PyTorch, what is stored and what is new still agree."""
    from marginax.files import load_tree

    for name in ("mlp", "resnet", "encoder"):
        module, x = NETWORKS[name]
        tree = load_tree(modules.FOLDER / name, "torch")
        network = mx.nets.load_state_dict(mx.nets.from_torch(module, x), mx.nets.state_dict(tree["network"]))
        np.testing.assert_allclose(outputs(network, tree["x"]), tree["y"], rtol=1e-4, atol=1e-5)


def test_the_modules_own_dropout_can_be_left_behind():
    module, x = NETWORKS["encoder"]
    assert mx.nets.from_torch(module, x).stochastic
    assert not mx.nets.from_torch(module, x, dropout=False).stochastic


def test_dropout_in_place_is_dropout():
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5, inplace=True), nn.Linear(4, 2))
    assert mx.nets.from_torch(module, torch.randn(2, 3)).stochastic
    assert module[1].inplace


def test_frozen_parameters_are_no_weights_and_come_back():
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    network = mx.nets.from_torch(module, torch.randn(2, 3))
    model = mx.Model(network, mx.likelihoods.Categorical())
    assert [leaf.path for leaf in model.leaves] == ["module/2/weight", "module/2/bias"]
    assert mx.nets.state_dict(network).keys() == module.state_dict().keys()


def test_what_is_used_last_comes_last():
    class Swapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.body, self.unused = nn.Linear(4, 2), nn.Linear(3, 4), nn.Linear(9, 9)

        def forward(self, x):
            return self.head(torch.tanh(self.body(x)))

    network = mx.nets.from_torch(Swapped(), torch.randn(2, 3))
    assert mx.nets.layer_paths(network) == ["module/body", "module/head"]
    assert "unused.weight" in mx.nets.state_dict(network)
    paths = [leaf.path for leaf in mx.Model(network, mx.likelihoods.Categorical()).leaves]
    assert mx.LastLayer().select(paths) == [False, False, True, True]


def test_bfloat16_comes_and_goes():
    module = nn.Linear(3, 2).bfloat16()
    state = mx.nets.to_torch(mx.nets.from_torch(module, torch.randn(2, 3).bfloat16()))
    assert state["weight"].dtype == torch.bfloat16
    assert torch.equal(state["weight"], module.weight)


def test_safetensors_files_of_others_are_read(tmp_path):
    write = pytest.importorskip("safetensors.torch").save_file
    module, x = NETWORKS["resnet"]
    network = mx.nets.from_torch(module, x)
    state = {key: value + 1 for key, value in module.state_dict().items()}
    write(state, tmp_path / "model.safetensors")
    found = mx.nets.to_torch(mx.nets.load_safetensors(network, tmp_path / "model.safetensors"))
    assert all(torch.equal(found[key], value) for key, value in state.items())


def test_a_posterior_comes_back_as_means_or_as_a_draw():
    module = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    rng = np.random.default_rng(0)
    data = rng.normal(size=(30, 2)).astype(np.float32), rng.integers(0, 2, 30)
    network = mx.nets.from_torch(module, data[0])
    model = mx.Model(network, mx.likelihoods.Categorical())
    posterior = mx.fit(model, data, mx.infer.Laplace(), init=network, key=0)
    for key, value in mx.nets.to_torch(posterior).items():
        assert torch.equal(value, module.state_dict()[key])
    first, again, other = (mx.nets.to_torch(posterior, key=key)["0.weight"] for key in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    ensemble = mx.fit(model, data, mx.infer.DeepEnsemble(2, mx.infer.MAP(num_epochs=1)), init=network, key=0)
    with pytest.raises(ValueError, match=r"no single mean .* take a draw of it, with key="):
        mx.nets.to_torch(ensemble)
    module.load_state_dict(mx.nets.to_torch(ensemble, key=0))


# ---- refused


class Wrapped(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.inner, self.function = nn.Linear(3, 3), function

    def forward(self, x):
        return self.function(self.inner(x))


class Odd(nn.Module):
    def forward(self, x):
        return torch.special.i1e(x)


REFUSED = {
    "an operation": (lambda: nn.Sequential(nn.Linear(3, 3), Odd()), r"not known: special_i1e at 1"),
    "two outputs": (lambda: Wrapped(lambda x: (x, x)), r"must give one tensor, but it gives 2 values"),
    "a dict": (lambda: Wrapped(lambda x: {"y": x}), r"must give one tensor, but it gives a dict"),
    "noise": (lambda: Wrapped(lambda x: x + torch.randn_like(x)), r"is random at .* by randn.*dropout=False"),
    "a mean over examples": (lambda: Wrapped(lambda x: x - x.mean(0)), r"mixes the examples of a batch"),
    "a sum over examples": (lambda: Wrapped(lambda x: x.sum()), r"an output for each example"),
    "squeezed examples": (lambda: Wrapped(lambda x: x[:, :1].squeeze()), r"squeeze\(-1\) does not"),
    "statistics of a batch": (
        lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)),
        r"batch normalisation without running statistics at 1.*track_running_stats=True, or torch\.nn\.GroupNorm",
    ),
    "branches": (lambda: Wrapped(lambda x: x if x.sum() > 0 else -x), r"cannot be exported by torch\.export"),
    "no parameters": (nn.Tanh, "Tanh has no parameters"),
    "a projection": (
        lambda: Wrapped(lambda x, rnn=nn.LSTM(3, 4, proj_size=2): rnn(x[:, None])[0][:, 0]),
        "proj_size",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_by_name(name):
    make, says = REFUSED[name]
    with pytest.raises(ValueError, match=says):
        mx.nets.from_torch(make(), torch.randn(4, 3))


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match=r"module must be a torch\.nn\.Module, got int"):
        mx.nets.from_torch(3, torch.randn(2, 3))
    with pytest.raises(ValueError, match=r"example must be inputs with an axis of examples, got shape \(0, 3\)"):
        mx.nets.from_torch(nn.Linear(3, 2), np.zeros((0, 3)))
    with pytest.raises(TypeError, match=r"source must be a network of mx\.nets\.from_torch"):
        mx.nets.to_torch(nn.Linear(3, 2))


# ---- laplace-torch on the same module


@functools.cache
def laplace_torch():
    from benchmarks.harness.laplace_reference import load_peer

    if importlib.util.find_spec("laplace") is None:
        pytest.skip("laplace-torch is not installed; `pytest -m peer` has an environment with it")
    return load_peer()[1]


MODULES = {
    "mlp": lambda: (nn.Sequential(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3)), (2,)),
    "convnet": lambda: (
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3)),
        (1, 6, 6),
    ),
}
PAIRS = [("mlp", "all", "kron"), ("mlp", "all", "diag"), ("mlp", "all", "full")]
PAIRS += [(name, "last_layer", structure) for name in MODULES for structure in ("kron", "full")]


@pytest.mark.parametrize(("name", "subset", "structure"), PAIRS)
def test_laplace_agrees_with_laplace_torch(name, subset, structure):
    from torch.utils.data import DataLoader, TensorDataset

    Laplace = laplace_torch()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    try:
        module, shape = MODULES[name]()
        module.double().eval()
        x, y, x_new = torch.randn(60, *shape), torch.randint(0, 3, (60,)), 2 * torch.randn(9, *shape)
        theirs = Laplace(module, "classification", subset, structure, prior_precision=0.7**-2)
        theirs.fit(DataLoader(TensorDataset(x, y), batch_size=32))
        probs = theirs(x_new, pred_type="glm", link_approx="probit").numpy()
        evidence = float(theirs.log_marginal_likelihood())
    finally:
        torch.set_default_dtype(torch.float32)
    with jax.enable_x64(True):
        network = mx.nets.from_torch(module, x)
        model = mx.Model(network, mx.likelihoods.Categorical(), mx.priors.Normal(scale=0.7))
        method = mx.infer.Laplace(
            structure={"kron": mx.curvature.Kronecker, "diag": mx.curvature.Diagonal, "full": mx.curvature.Dense}[
                structure
            ](),
            subset=mx.All() if subset == "all" else mx.LastLayer(),
            predictive=mx.predict.Linearised(link=mx.predict.Probit()),
        )
        posterior = mx.fit(model, (x.numpy(), y.numpy()), method, init=network, key=0)
        np.testing.assert_allclose(posterior.predict(x_new.numpy()).probs, probs, rtol=1e-3)
        if subset == "all":  # theirs has the prior of the last layer alone
            np.testing.assert_allclose(posterior.log_evidence(), evidence, rtol=1e-3)

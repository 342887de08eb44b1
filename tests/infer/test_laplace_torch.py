"""Laplace beside laplace-torch: at the same weights the same evidence, variances and probabilities."""

import fcntl
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

import marginax as mx

pytestmark = pytest.mark.peer

ROOT = Path(__file__).resolve().parents[2]
NOISE, PRIOR = 0.3, 0.7  # a prior of scale 1 would hide its normaliser
SUBSETS = {"all": mx.All, "last_layer": mx.LastLayer}
STRUCTURES = {"diag": "Diagonal", "kron": "Kronecker", "full": "Dense"}
LINKS = {"probit": "Probit", "bridge": "LaplaceBridge"}


class Comparison:
    """A trained network of ours with its data, and what laplace-torch makes of it."""

    def __init__(self, likelihood, folder, python):
        rng = np.random.default_rng(0)
        self.x, self.x_new = rng.normal(size=(70, 2)), 2 * rng.normal(size=(12, 2))
        if likelihood == "regression":
            self.y = np.sin(2 * self.x[:, 0]) + self.x[:, 1] + NOISE * rng.normal(size=70)
            out_size, ours = 1, mx.likelihoods.Gaussian(scale=NOISE)
        else:
            self.y = (self.x[:, 0] > 0).astype(int) + (self.x[:, 1] + 0.5 * rng.normal(size=70) > 0)
            out_size, ours = 3, mx.likelihoods.Categorical()
        with jax.enable_x64(True):
            net = mx.nets.MLP(2, (7, 6), out_size, activation=jax.nn.tanh, key=0)
            self.model = mx.Model(net, likelihood=ours, prior=mx.priors.Normal(scale=PRIOR))
            training = mx.infer.MAP(num_epochs=300, batch_size=None, optimiser=mx.infer.LBFGS())
            mode = mx.fit(self.model, (self.x, self.y), training, key=0)
            self.trained = jax.tree.map(lambda leaf: leaf[0], mode.sample(1, key=0))
        given = {"x": self.x, "y": self.y, "x_test": self.x_new, "likelihood": likelihood, "activation": "tanh"}
        given |= {"sigma_noise": NOISE, "prior_precision": PRIOR**-2}
        for i, layer in enumerate(self.trained.layers):
            given |= {f"weight_{i}": np.asarray(layer.weight), f"bias_{i}": np.asarray(layer.bias)}
        np.savez(folder / "in.npz", **given)
        command = [
            python,
            "-m",
            "benchmarks.harness.laplace_reference",
            str(folder / "in.npz"),
            str(folder / "out.npz"),
        ]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert finished.returncode == 0, finished.stderr
        with np.load(folder / "out.npz") as file:
            self.theirs = {name: file[name] for name in file.files}

    def fit(self, subset, structure):
        curvature = getattr(mx.curvature, STRUCTURES[structure])()
        predictive = mx.predict.Linearised(link=mx.predict.Probit())
        method = mx.infer.Laplace(structure=curvature, subset=SUBSETS[subset](), predictive=predictive)
        return mx.fit(self.model, (self.x, self.y), method, init=self.trained, key=1)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The peer's interpreter; one process at a time makes its environment."""
    from benchmarks.harness.entry import LAPLACE
    from benchmarks.harness.environments import python_of

    with (tmp_path_factory.getbasetemp().parent / "laplace.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return python_of(LAPLACE)


@pytest.fixture(scope="module")
def regression(tmp_path_factory, python):
    return Comparison("regression", tmp_path_factory.mktemp("regression"), python)


@pytest.fixture(scope="module")
def classification(tmp_path_factory, python):
    return Comparison("classification", tmp_path_factory.mktemp("classification"), python)


@pytest.mark.parametrize("subset", SUBSETS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_regression_agrees(regression, subset, structure):
    name, theirs = f"{subset}_{structure}", regression.theirs
    with jax.enable_x64(True):
        posterior = regression.fit(subset, structure)
        np.testing.assert_allclose(posterior.log_evidence(), theirs[f"{name}_log_evidence"], rtol=1e-3)
        prediction = posterior.predict(regression.x_new)
        np.testing.assert_allclose(prediction.mean, theirs[f"{name}_mean"][:, 0], rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(prediction.epistemic, theirs[f"{name}_variance"][:, 0, 0], rtol=1e-3)


@pytest.mark.parametrize("subset", SUBSETS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_classification_agrees(classification, subset, structure):
    name, theirs = f"{subset}_{structure}", classification.theirs
    with jax.enable_x64(True):
        posterior = classification.fit(subset, structure)
        np.testing.assert_allclose(posterior.log_evidence(), theirs[f"{name}_log_evidence"], rtol=1e-3)
        for link, ours in LINKS.items():
            chosen = posterior.using(mx.predict.Linearised(link=getattr(mx.predict, ours)()))
            np.testing.assert_allclose(chosen.predict(classification.x_new).probs, theirs[f"{name}_{link}"], rtol=1e-3)

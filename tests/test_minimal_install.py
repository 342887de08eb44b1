"""`pip install marginax`, without extras, in an environment of its own: it imports, fits, predicts, saves and loads."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

USE = """
import numpy as np
import marginax as mx

x = np.linspace(-1, 1, 20)[:, None]
model = mx.Model(mx.nets.MLP(1, (4,), 1, key=0), mx.likelihoods.Gaussian())
methods = (
    mx.infer.NUTS(num_warmup=20, num_samples=20),
    mx.infer.VI(num_epochs=5),
    mx.infer.Laplace(training=mx.infer.MAP(num_epochs=5)),
)
for method in methods:
    name = type(method).__name__
    posterior = mx.fit(model, (x, np.sin(x[:, 0])), method, key=0, directory=f"runs/{name}")
    said = [text for text in posterior.record.warnings if "took only" not in text]
    assert not said or name == "NUTS", said
    prediction = posterior.predict(x)
    posterior.save(name)
    np.testing.assert_array_equal(mx.load(name).predict(x).mean, prediction.mean)
    assert np.isfinite(mx.evaluate.scores(prediction, np.sin(x[:, 0]))["nll"].value)
    mx.resume(f"runs/{name}")


def refused(extra, call):
    try:
        call()
    except ImportError as error:
        assert f"pip install 'marginax[{extra}]'" in str(error), error
        return
    raise AssertionError(f"{extra} is installed, or was not needed")


def command_line():
    import marginax.cli


def classes():
    from marginax.estimators import BayesianClassifier


refused("tables", lambda: mx.estimators)
refused("tables", classes)
refused("tables", lambda: mx.data.read_table("table.csv"))
refused("torch", lambda: mx.nets.from_torch(None, x))
refused("molecules", lambda: mx.data.canonical_smiles("C"))
refused("plot", lambda: mx.report)
refused("plot", posterior.to_arviz)
refused("programs", lambda: mx.fit(model, (x, x[:, 0]), mx.infer.VI(mx.infer.Flow(), num_epochs=1), key=0))
refused("cli", lambda: mx.fit(model, (x, x[:, 0]), mx.infer.MAP(num_epochs=1), key=0, progress=True))
refused("cli", command_line)
try:
    mx.files.registry.class_named("table/items")
except mx.files.FileError as error:
    assert "pip install 'marginax[tables]'" in str(error), error
mx.fit(model, (x, x[:, 0]), mx.infer.MAP(num_epochs=1), key=0, progress=None)
print("good")
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_without_extras_it_fits_predicts_saves_and_says_what_to_install(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pins = ROOT / "requirements.txt"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", pins, ROOT)
    assert run(python, "-c", USE, cwd=tmp_path).strip() == "good"
    installed = run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check").lower()
    assert "scikit-learn" not in installed

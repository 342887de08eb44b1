"""Files of format 1 (version 0.1.0) load and say the same: posteriors of every kind, interrupted runs, an estimator."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import marginax as mx

FIXTURES = Path(__file__).parents[1] / "fixtures" / "format_1"
EXPECTED = np.load(FIXTURES / "expected.npz")
ESTIMATOR = "classifier"
POSTERIORS = sorted(p.name for p in FIXTURES.iterdir() if (p / "manifest.json").exists())
RUNS = sorted(p.name for p in FIXTURES.iterdir() if (p / "setup").exists())


def inputs():
    """What the fixtures were made with: inputs of numbers and of classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 1))
    rng.normal(size=20)
    return x, rng.normal(size=(20, 2))


def inputs_of(name):
    """Where the predictions of a posterior were recorded."""
    grid = np.linspace(-2, 2, 5)[:, None]
    if name == "draws":
        return 5 + grid
    return inputs()[1][:5] if name in ("draws_of_classes", "laplace_diagonal_probit", "calibrated") else grid


def assert_as_recorded(posterior, name, at):
    prediction = posterior.predict(at)
    recorded = {key.split(":")[1]: EXPECTED[key] for key in EXPECTED.files if key.startswith(f"{name}:")}
    assert recorded
    for attribute, value in recorded.items():
        if attribute != "std":
            # of entropies such as 1e-248 the exponent alone has last digits that processors differ in
            np.testing.assert_allclose(getattr(prediction, attribute), value, rtol=1e-5, atol=1e-30, err_msg=attribute)


def test_the_fixtures_are_there():
    assert len(POSTERIORS) == 16
    assert RUNS == ["run_mile", "run_nuts", "run_vi"]


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_posterior_predicts_as_recorded(name):
    assert_as_recorded(mx.load(FIXTURES / name), name, inputs_of(name))


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_posterior_written_again_predicts_as_recorded(name, tmp_path):
    mx.load(FIXTURES / name).save(tmp_path / "again")
    assert_as_recorded(mx.load(tmp_path / "again"), name, inputs_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_an_interrupted_run_is_resumed_to_what_an_uninterrupted_one_was(name, tmp_path):
    shutil.copytree(FIXTURES / name, tmp_path / "run")
    posterior = mx.resume(tmp_path / "run", progress=False)
    assert posterior.record.finished
    assert "adapt" not in posterior.record.num_steps
    assert_as_recorded(posterior, name, inputs_of(name))
    assert_as_recorded(mx.load(tmp_path / "run"), name, inputs_of(name))


def test_an_estimator_predicts_as_recorded():
    x, classes = inputs()
    table = pd.DataFrame({"size": x[:, 0], "colour": np.where(classes[:, 0] > 0, "red", "blue")})
    estimator = mx.estimators.load(FIXTURES / ESTIMATOR)
    np.testing.assert_allclose(estimator.predict_proba(table.iloc[:5]), EXPECTED[f"{ESTIMATOR}:probs"], rtol=1e-5)

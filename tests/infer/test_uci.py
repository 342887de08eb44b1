"""Defaults on real data: finite predictions with spread, on all seven UCI sets."""

import numpy as np
import pytest

import marginax as mx
from marginax.infer.catalogue import catalogue

SETS = ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")
TRAINED = ("MCDropout", "GaussianDropout", "ConcreteDropout", "DropConnect", "StochasticActivations", "VI")
TRAINED += ("BayesByBackprop", "VariationalDropout", "IVON", "SVGD")


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("entry", [e for e in catalogue() if e.name in TRAINED], ids=lambda entry: entry.name)
def test_defaults_are_sensible(entry, name):
    try:
        x, y, x_test, y_test = mx.data.load_uci(name).split(0)
    except (OSError, mx.files.FileError) as error:
        pytest.skip(str(error))
    model = mx.Model(mx.nets.MLP(x.shape[1], (50,), 1, key=0), mx.likelihoods.Gaussian())
    posterior = mx.fit(model, mx.data.standardise((x, y)), entry.method, key=0)
    prediction = posterior.predict(x_test)
    assert np.isfinite(prediction.log_prob(y_test)).all()
    assert np.mean(prediction.epistemic > 0) > 0.9  # learned rates may be so small that 100 draws agree
    better = np.sqrt(np.mean((prediction.mean - y_test) ** 2)) < np.std(y_test)
    assert better, "no better than the mean of the targets"

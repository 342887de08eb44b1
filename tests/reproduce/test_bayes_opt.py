"""Bayesian optimisation: all of the experiment on one function, in few evaluations."""

from dataclasses import replace

import numpy as np

from marginax.reproduce import experiment, reproduce

TINY = {
    "functions": {"forrester": 8},
    "num_initial": {"forrester": 5},
    "num_seeds": 1,
    "hidden": (8,),
    "num_epochs": 20,
    "num_members": 2,
}


def test_all_of_it_in_few_evaluations(tmp_path):
    record = reproduce(replace(experiment("bayes-opt"), settings={"small": TINY}), tmp_path, progress=False)
    curves = {name: np.array(curve) for name, curve in record.curves.items()}
    assert set(curves) == {f"forrester: {way}" for way in ("Gaussian process", "ensemble of networks", "random search")}
    for name, curve in curves.items():
        assert curve.shape == (1, 8)
        assert (np.diff(curve) <= 0).all()
        assert (curve >= -1e-6).all()
        way = name.removeprefix("forrester: ")
        row = record.row(f"forrester, log10 regret after 8: {way}")
        np.testing.assert_allclose(row.ours, np.log10(curve[0, -1]), atol=1e-9)
    process, networks = curves["forrester: Gaussian process"], curves["forrester: ensemble of networks"]
    assert np.array_equal(process[:, :5], networks[:, :5])  # the same points first

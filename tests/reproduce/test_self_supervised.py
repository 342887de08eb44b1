"""A prior from images without labels: all of the experiment on a few garments."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.reproduce import experiment, reproduce
from marginax.reproduce.self_supervised import few_labels

TINY = {
    "num_unlabelled": 200,
    "num_labels": (10, 20),
    "num_valid": 20,
    "num_test": 30,
    "channels": (4,),
    "features": 4,
    "projection": 3,
    "padding": 2,
    "degrees": 10.0,
    "noise": 0.1,
    "temperature": 0.5,
    "pretraining_epochs": 1,
    "pretraining_batch_size": 50,
    "learning_rate": 1e-3,
    "around_features": (0.05,),
    "around_zero": (1.0,),
    "num_seeds": 2,
    "num_steps": 2,
    "batch_size": 10,
}


@pytest.mark.slow  # fits of a few seconds' compilation each
def test_all_of_it_on_a_few_garments(tmp_path, data_dir):
    tiny = replace(experiment("self-supervised"), settings={"small": TINY})
    record = reproduce(tiny, tmp_path, progress=False)
    assert len(record.rows) == 12
    for labels in (10, 20):
        one, other, gap = (
            record.row(f"{name}, {labels} labels: nats per image")
            for name in ("self-supervised prior", "zero-mean prior", "difference")
        )
        np.testing.assert_allclose(gap.ours, one.ours - other.ours, atol=1e-9)
        each = [
            record.curves["test"][f"{name}, {labels} labels"] for name in ("self-supervised prior", "zero-mean prior")
        ]
        paired = np.subtract(*each)[:, 1]
        np.testing.assert_allclose(gap.standard_error, np.std(paired, ddof=1) / np.sqrt(2))
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_few_labels_are_as_many_of_each_class_and_others_for_each_seed():
    y = np.random.default_rng(0).integers(0, 10, 2000)
    rows = few_labels(y, 100, 0)
    assert (np.bincount(y[rows]) == 10).all()
    assert len(set(rows)) == 100
    assert set(rows) != set(few_labels(y, 100, 1))

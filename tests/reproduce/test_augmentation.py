"""Augmentation of data and of likelihoods: all of the experiment on a few digits, and the small budget as it is."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.reproduce import experiment, reproduce

TINY = {
    "num_train": 40,
    "num_valid": 20,
    "num_test": 30,
    "hidden": 4,
    "num_views": 2,
    "max_degrees": 15.0,
    "max_shift": 1.0,
    "temperatures": (0.1, 0.0),
    "num_seeds": 1,
    "num_epochs": 2,
    "num_warmup": 5,
    "num_samples": 2,
    "thin": 2,
    "batch_size": 20,
    "learning": {
        "num_train": 40,
        "hidden": 4,
        "num_views": 2,
        "start": 10.0,
        "num_rounds": 1,
        "num_epochs": 4,
        "batch_size": 20,
        "learning_rate": 0.1,
        "training_rate": 5e-3,
        "turned": 60.0,
        "sideways": 15.0,
    },
}


@pytest.mark.slow  # a dozen fits of a few seconds' compilation each
def test_all_of_it_on_a_few_digits(tmp_path, data_dir):
    tiny = replace(experiment("augmentation"), settings={"small": TINY})
    record = reproduce(tiny, tmp_path, progress=False)
    names = ["no augmentation", "augmented data", "augmented data, tempered", "likelihood of logits"]
    scores = [record.row(f"{name}: nats per digit") for name in names]
    assert all(row.ours > 0 and row.standard_error > 0 for row in scores)
    gap = record.row("likelihood of logits less augmented data, tempered")
    np.testing.assert_allclose(gap.ours, scores[3].ours - scores[2].ours, atol=1e-4)
    assert len(record.curves["learned"]["turned at random"]) == 3
    assert (tmp_path / "picture.png").stat().st_size > 10_000

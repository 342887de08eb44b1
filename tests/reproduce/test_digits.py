"""Autoencoders of digits: all of the experiment on few of them, and the small budget as it is."""

from dataclasses import replace

import pytest

from marginax.reproduce import experiment, reproduce

TINY = {
    "num_train": 200,
    "hidden": (16,),
    "latent_size": 4,
    "num_particles": 3,
    "num_pseudo_inputs": 5,
    "stages": {
        "VAE": [(1, 1e-3, 1.0), (1, 5e-4, 1.0)],
        "IWAE": [(1, 1e-3, 1.0)],
        "VampPrior": [(1, 1e-3, 0.1)],
        "map": [(1, 1e-3, 1.0)],
    },
    "batch_size": 50,
    "num_valid": 20,
    "num_test": 32,
    "num_importance": 10,
}


def test_all_of_it_on_a_few_digits(tmp_path, data_dir):
    tiny = replace(experiment("digits"), settings={"small": TINY})
    record = reproduce(tiny, tmp_path, progress=False)
    assert [row.what for row in record.rows] == [
        "VAE: nats per digit",
        "IWAE-3: nats per digit",
        "VampPrior: nats per digit",
    ]
    assert all(100 < row.ours < 560 for row in record.rows)  # 784 coins are 543
    assert [len(curve) for curve in record.curves.values()] == [2, 1, 1, 1]
    assert record.curves["VAE"][0][0] < record.curves["VAE"][1][0]  # seconds add up


@pytest.mark.slow
def test_the_small_budget(tmp_path, data_dir):
    """Independent pixels have 206 nats, and one network for all of them 3,000 digits to learn from."""
    record = reproduce(experiment("digits"), tmp_path, progress=False)
    vae, iwae, vamp = (row.ours for row in record.rows)
    assert max(vae, iwae, vamp) < 145
    assert iwae < vae
    assert record.curves["VampPrior"][-1][2] < record.curves["VampPrior"][0][2] - 20  # it has not collapsed

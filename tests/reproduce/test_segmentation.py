"""Ambiguous segmentation: all of the experiment on a few slices, and the small budget as it is."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.reproduce import experiment, reproduce

TINY = {
    "size": 8,
    "num_train": 40,
    "num_test": 12,
    "channels": (4,),
    "num_members": 2,
    "rank": 2,
    "latent_size": 2,
    "num_mc": 4,
    "num_epochs": 1,
    "learning_rate": 1e-3,
    "num_samples": 4,
    "dropout": 0.1,
    "batch_size": 20,
    "groups": 4,
}


def test_all_of_it_on_a_few_slices(tmp_path, data_dir):
    tiny = replace(experiment("segmentation"), settings={"small": TINY})
    record = reproduce(tiny, tmp_path, progress=False)
    names = ["U-Net", "dropout", "ensemble", "stochastic network", "probabilistic U-Net"]
    distances = [record.row(f"{name}: energy distance") for name in names]
    assert all(0 <= row.ours <= 2 and row.standard_error > 0 for row in distances)
    assert all(0 <= record.row(f"{name}: matched IoU").ours <= 1 for name in names)
    share = record.row("stochastic network: share of the U-Net's energy distance")
    np.testing.assert_allclose(share.ours, distances[3].ours / distances[0].ours)
    gap = record.row("stochastic network less ensemble: energy distance")
    np.testing.assert_allclose(gap.ours, distances[3].ours - distances[2].ours, atol=1e-9)
    gap = record.row("probabilistic U-Net less stochastic network: energy distance")
    np.testing.assert_allclose(gap.ours, distances[4].ours - distances[3].ours, atol=1e-9)
    assert "fig." in distances[4].source  # read off a picture
    assert (tmp_path / "picture.png").stat().st_size > 10_000


@pytest.mark.slow
def test_networks_that_know_that_pixels_belong_together_are_nearest_to_the_graders(tmp_path, data_dir):
    record = reproduce(experiment("segmentation"), tmp_path, progress=False)
    share = record.row("stochastic network: share of the U-Net's energy distance")
    assert share.ours + 2 * share.standard_error < 0.6
    for name in ("dropout", "ensemble"):
        gap = record.row(f"stochastic network less {name}: energy distance")
        assert gap.ours + 2 * gap.standard_error < 0
    gap = record.row("probabilistic U-Net less stochastic network: energy distance")
    assert gap.ours + 2 * gap.standard_error < 0

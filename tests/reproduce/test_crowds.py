"""Crowds: all of the experiment at little expense, and the small budget as it is."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.reproduce import experiment, reproduce

TINY = {
    "crowds": ("bluebirds",),
    "num_warmup": 30,
    "num_samples": 20,
    "num_chains": 1,
    "hidden": (),
    "num_epochs": 1,
    "batch_size": 500,
    "num_members": 1,
}


def test_all_of_it_at_little_expense(tmp_path, data_dir):
    record = reproduce(replace(experiment("crowds"), settings={"small": TINY}), tmp_path, progress=False)
    vote, consensus = (record.row(f"bluebirds: {what}, %") for what in ("majority vote", "consensus"))
    assert round(vote.ours, 1) == 75.9
    gap = record.row("bluebirds: consensus less vote, %")
    np.testing.assert_allclose(gap.ours, consensus.ours - vote.ours, atol=1e-6)
    accuracies = [record.row(f"labelme: network on the {name}, %").ours for name in ("annotators", "vote", "truth")]
    assert all(0 <= each <= 100 for each in accuracies)
    assert (tmp_path / "picture.png").stat().st_size > 5_000


@pytest.mark.slow
def test_a_consensus_is_better_than_a_vote(tmp_path, data_dir):
    record = reproduce(experiment("crowds"), tmp_path, progress=False)
    for name in ("bluebirds", "snow_rte"):
        gap = record.row(f"{name}: consensus less vote, %")
        assert gap.ours > 2 * gap.standard_error

"""Tasks in turn: all of the experiment at little expense, its tasks, and the small budget as it is."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.reproduce import experiment, reproduce
from marginax.reproduce.continual import SETTINGS, tasks_of

TINY = SETTINGS["small"] | {
    "num_train": 200,
    "num_valid": 100,
    "num_test": 100,
    "num_tasks": 2,
    "hidden": {"permuted": (4,), "split": (4,)},
    "num_epochs": {"VI": 1, "MAP": 1},
    "coreset": 5,
    "num_samples": 2,
}
WAYS = ("VCL", "VCL with coreset", "online Laplace", "fine-tuning", "all tasks at once")


@pytest.mark.parametrize("kind", ["permuted", "split"])
def test_validation_and_test_digits_are_no_training_digits(kind, data_dir):
    valid, test = tasks_of(kind, TINY | {"num_tasks": 3}, seed=1)
    for judged, tested in zip(valid, test, strict=True):
        np.testing.assert_array_equal(judged.data[0], tested.data[0])  # the same task
        seen = {row.tobytes() for row in judged.data[0]}
        assert not seen & {row.tobytes() for row in judged.test[0]}
        assert not seen & {row.tobytes() for row in tested.test[0]}


def test_all_of_it_at_little_expense(tmp_path, data_dir):
    record = reproduce(replace(experiment("continual"), settings={"small": TINY}), tmp_path, progress=False)
    assert [row.what for row in record.rows] == [
        f"{kind}: {way}, % after 2 tasks" for kind in ("permuted", "split") for way in WAYS
    ]
    assert all(0 <= row.ours <= 100 and row.published is None for row in record.rows)
    assert len(record.curves) == 2 * (2 + 2 + 2 + 1 + 1)  # settings that validation chooses among
    assert (tmp_path / "picture.png").stat().st_size > 5_000


@pytest.mark.slow
def test_posteriors_as_priors_forget_less(tmp_path, data_dir):
    record = reproduce(experiment("continual"), tmp_path, progress=False)
    found = {way: record.row(f"permuted: {way}, % after 5 tasks").ours for way in WAYS}
    assert found["VCL with coreset"] > found["fine-tuning"]
    assert found["all tasks at once"] > found["fine-tuning"]

"""Tasks in turn: all of the experiment on a few digits, and the small budget as it is."""

from dataclasses import replace

import pytest

from marginax.reproduce import experiment, reproduce

TINY = {
    "num_train": 60,
    "num_test": 30,
    "num_epochs": 1,
    "num_tasks": 2,
    "hidden": {"permuted": (4,), "split": (4,)},
    "coreset": {"permuted": 10, "split": 4},
    "num_samples": 2,
}


@pytest.mark.slow  # twenty-odd fits, each compiled
def test_all_of_it_on_a_few_digits(tmp_path, data_dir):
    whole = experiment("continual")
    tiny = replace(whole, settings={"small": dict(whole.settings["small"]) | TINY})
    record = reproduce(tiny, tmp_path, progress=False)
    assert len(record.rows) == 10
    assert all(0 <= row.ours <= 100 and row.standard_error >= 0 for row in record.rows)
    assert [len(curve) for curve in record.curves.values()] == [2] * 10
    assert (tmp_path / "picture.png").stat().st_size > 10_000

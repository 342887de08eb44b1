"""Digits of which few have labels: all of the experiment on few digits, and the small budget as it is."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.reproduce import experiment, reproduce
from marginax.reproduce.semi_supervised import SETTINGS

TINY = SETTINGS["small"] | {
    "num_train": 200,
    "num_labels": 20,
    "num_valid": 30,
    "num_test": 40,
    "hidden": (6,),
    "latent_size": 2,
    "num_epochs": 1,
    "alone_epochs": 2,
    "num_seeds": 2,
}


def test_all_of_it_on_few_digits(tmp_path, data_dir):
    record = reproduce(replace(experiment("semi-supervised"), settings={"small": TINY}), tmp_path, progress=False)
    ours = {row.what: row for row in record.rows}
    ends = "with the label term", "without the label term", "labels alone"
    for other in ends[1:]:
        gap = ours[f"{ends[0]} less {other}: right, %"].ours
        assert gap == pytest.approx(ours[f"{ends[0]}: right, %"].ours - ours[f"{other}: right, %"].ours)
    assert all(ours[f"{name}: right, %"].error_of_runs is not None for name in ends)
    tried = dict(record.curves["validation, % right"])
    assert f"The weight {max(tried, key=tried.get):g} of" in record.remarks[1]
    assert np.all((np.array(list(tried.values())) >= 0) & (np.array(list(tried.values())) <= 100))
    assert (tmp_path / "picture.png").stat().st_size > 5_000


@pytest.mark.slow
def test_labels_are_learned_by_the_term_that_names_them(tmp_path, data_dir):
    """Without it classes are known up to their names."""
    record = reproduce(experiment("semi-supervised"), tmp_path, progress=False)
    gap = record.row("with the label term less without the label term: right, %")
    assert gap.ours > 4 * gap.standard_error
    assert record.row("with the label term: right, %").ours > 60

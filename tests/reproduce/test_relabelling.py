"""Whom to ask next: all of the experiment at little expense, and the small budget as it is."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.reproduce import experiment, reproduce
from marginax.reproduce.relabelling import SETTINGS

TINY = SETTINGS["small"] | {"num_more": 1, "num_rounds": 2, "num_epochs": 5, "num_seeds": 2}
GAP = "bluebirds: most informative less random, mean of rounds, %"


def test_all_of_it_at_little_expense(tmp_path, data_dir):
    record = reproduce(replace(experiment("relabelling"), settings={"small": TINY}), tmp_path, progress=False)
    informed, random = (
        record.row(f"bluebirds: {rule}, mean of rounds, %").ours for rule in ("most informative", "random")
    )
    np.testing.assert_allclose(record.row(GAP).ours, informed - random, atol=1e-6)
    answers, accuracy = record.curves["bluebirds random"]
    assert answers == [2.0, 2.5, 3.0]
    assert len(accuracy) == 3
    assert accuracy[0] == record.curves["bluebirds most informative"][1][0]  # the same first answers
    assert (tmp_path / "picture.png").stat().st_size > 5_000


@pytest.mark.slow
def test_informative_answers_are_worth_more(tmp_path, data_dir):
    gap = reproduce(experiment("relabelling"), tmp_path, progress=False).row(GAP)
    assert gap.ours > 2 * gap.standard_error

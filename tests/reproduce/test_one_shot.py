"""More drawings of unseen characters: all of the experiment on a few, and the small budget on invented ones."""

from dataclasses import replace

import pytest

from marginax.reproduce import experiment, reproduce
from marginax.reproduce.one_shot import SMALL

TINY = SMALL | {
    "characters": "invented",
    "num_characters": {"train": 12, "valid": 4, "test": 6},
    "hidden": (8,),
    "width": 4,
    "context_size": 2,
    "latent_size": 2,
    "sets_per_character": 1,
    "stages": [(1, 1e-3), (1, 3e-4)],
    "batch_size": 16,
    "judge_epochs": 1,
    "num_generated": 3,
    "episodes": {2: 2, 5: 2},
    "num_importance": 3,
}


def test_all_of_it_on_a_few_invented_characters(tmp_path):
    tiny = replace(experiment("one-shot-invented"), settings={"small": TINY})
    record = reproduce(tiny, tmp_path, progress=False)
    assert len(record.rows) == 6 * 2 + 2 * 3
    assert all(0 <= row.ours <= 100 and row.published is None for row in record.rows)
    assert record.row("held out: % by nearest neighbour").ours > 50  # 6 characters
    assert [len(entry) for entry in record.curves["training"]] == [3, 3]
    assert (tmp_path / "picture.png").stat().st_size > 1000
    again = reproduce(tiny, tmp_path, progress=False)
    assert [row.ours for row in again.rows] == [row.ours for row in record.rows]


@pytest.mark.slow
def test_drawings_of_unseen_invented_characters_are_recognised(tmp_path):
    record = reproduce(experiment("one-shot-invented"), tmp_path, progress=False)

    def ours(what):
        return record.row(what).ours, record.row(what).standard_error

    for judge in ("judge", "nearest neighbour"):
        for given in (5, 1):
            made, error = ours(f"from {given} given: % by {judge}")
            copied, other = ours(f"copied, {given} given: % by {judge}")
            assert made > 10 * 0.5  # chance is 0.5 %
            assert made - copied > 4 * (error**2 + other**2) ** 0.5
    for ways in (5, 20):
        (likelihood, error), (pixels, other) = (
            ours(f"one-shot, {ways} ways: % by {w}") for w in ("likelihood", "pixels")
        )
        assert likelihood - pixels > 4 * (error**2 + other**2) ** 0.5

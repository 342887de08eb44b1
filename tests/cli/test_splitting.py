"""Rows that are held out: at random, the latest, whole groups."""

import numpy as np
import pandas as pd
import pytest

from marginax.cli.splitting import groups, latest, split
from marginax.data import Table
from marginax.data.answer_columns import as_answer_columns, labels_in


def _table(y, others=None, **columns):
    task = "classification" if isinstance(y[0], str) else "regression"
    return Table(pd.DataFrame(columns), pd.Series(y, name="y"), task, (), {}, others)


def test_the_latest_are_those_after_all_others_and_one_time_is_never_torn_apart():
    rng = np.random.default_rng(0)
    times = pd.Series(pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 30, 200), "D"), name="day")
    times[3] = pd.NaT
    found = latest(times, 0.2)
    assert times[found.held_out].min() > times[~found.held_out].max()
    assert 40 <= found.held_out.sum() < 60
    assert not found.held_out[3]
    assert f"from {times[found.held_out].min()} on" in found.words


def test_times_may_be_texts_in_a_column_that_is_ignored():
    others = pd.DataFrame({"day": ["31.01.2020", "01.02.2020", "15.12.2019", "02.02.2020"]})
    found = split(_table([1.0, 2, 3, 4], others, a=[1, 2, 3, 4]), "time:day", fraction=0.5, seed=0)
    assert found.held_out.tolist() == [False, True, False, True]


def test_groups_are_held_out_as_a_whole_and_by_seed():
    rng = np.random.default_rng(0)
    column = pd.Series(rng.choice(list("abcdefgh"), 300), name="city")
    chosen = set()
    for seed in range(5):
        held_out = groups(column, 0.25, seed).held_out
        assert not set(column[held_out]) & set(column[~held_out])
        assert 0.2 < held_out.mean() < 0.45
        chosen.add("".join(sorted(set(column[held_out]))))
    assert len(chosen) > 1


def test_two_groups_leave_one_to_learn_from():
    assert groups(pd.Series(["a"] * 9 + ["b"]), 0.99, 0).held_out.sum() in (1, 9)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("time:a", "has the same time in every row"),
        ("group:a", "has the same value in every row"),
        ("time:b", "holds out all rows of class 'v'"),
    ],
)
def test_what_leaves_nothing_to_learn_or_judge_is_refused(by, message):
    with pytest.raises(ValueError, match=message):
        split(_table(list("uuuv"), a=[1] * 4, b=[1, 2, 3, 4]), by, fraction=0.25, seed=0)


def test_a_label_that_few_annotators_give_is_learned_from():
    votes = pd.DataFrame({"a": list("xxxxyyyyxx"), "b": list("xxxxyyyyxx")})
    votes.loc[8, "b"] = "z"  # never the commonest
    table = Table(pd.DataFrame({"u": np.arange(10.0)}), votes, "classification", (), {})
    for seed in range(10):
        held_out = split(table, None, fraction=0.5, seed=seed).held_out
        assert held_out.any()
        assert not held_out[8]


def test_labels_belong_to_the_rows_of_a_table_with_gaps():
    frame = pd.DataFrame({"a": ["x", None, "y"], "b": ["x", None, "x"]}, index=[0, 2, 5])
    assert labels_in(frame, ["a", "b"]).index.tolist() == [0, 2, 5]
    with pytest.warns(UserWarning, match="1 of 3 rows have no label by any annotator, the first is row 2"):
        kept, answers = as_answer_columns(frame, ["a", "b"], [])
    assert kept.index.tolist() == [0, 5]
    assert answers.to_numpy().tolist() == [["x", "x"], ["y", "x"]]

"""Marks and the calendar in the columns of a DataFrame."""

import numpy as np
import pandas as pd
import pytest

from marginax.estimators import BayesianRegressor, ColumnEncoder
from marginax.files import decode, encode


def _cycles(encoder):
    return {name.split(": ")[1].split(" (")[0] for name in encoder.names_out if ": " in name}


@pytest.mark.parametrize(
    ("start", "freq", "cycles"),
    [
        ("2020-01-01", "7h", {"hour of day", "weekday"}),
        ("2020-01-01", "1D", {"weekday"}),
        ("2020-01-01", "7D", {"season"}),
        ("2020-01-01", "9D", {"weekday", "season"}),
        ("2020-01-01", "10min", set()),
        ("2020-01-01", "25h", {"hour of day", "weekday"}),
    ],
)
def test_cycles_are_those_that_the_dates_cover(start, freq, cycles):
    table = pd.DataFrame({"when": pd.date_range(start, periods=60, freq=freq)})
    assert _cycles(ColumnEncoder.fit(table)) == cycles


def test_cycles_are_sine_and_cosine_of_the_time():
    when = pd.date_range("2019-12-30", periods=800, freq="D")  # a Monday
    encoder = ColumnEncoder.fit(pd.DataFrame({"when": when}))
    found = pd.DataFrame(encoder.encode(pd.DataFrame({"when": when})), columns=encoder.names_out)
    week = found[["when: weekday (sin)", "when: weekday (cos)"]].round(6)
    assert len(week.drop_duplicates()) == 7
    assert week.iloc[0].equals(week.iloc[7].rename(0))
    np.testing.assert_allclose((week**2).sum(axis=1), 1, atol=1e-5)
    season = found["when: season (cos)"].to_numpy()
    assert abs(season[2] - season[2 + 366]) < 0.01  # the same day a year later
    assert season[2] > 0.99
    assert season[2 + 182] < -0.99
    assert found["when"].is_monotonic_increasing


def test_durations_and_numbers_have_no_cycles_and_missing_dates_are_zero():
    when = pd.Series(pd.date_range("2020-01-01", periods=60, freq="D"))
    when[3] = pd.NaT
    table = pd.DataFrame({"when": when, "lasts": pd.to_timedelta(np.arange(60), "D"), "a": np.arange(60.0)})
    encoder = ColumnEncoder.fit(table)
    assert encoder.cycles == (("weekday",), (), ())
    assert encoder.encode(table)[3, -2:].tolist() == [0.0, 0.0]


def test_texts_are_read_with_a_warning_that_names_the_column_and_again_after_storage():
    table = pd.DataFrame(
        {
            "price": [f"${i:,}.50" for i in range(990, 1050)],
            "when": [f"{1 + i % 28}.{1 + i % 12}.2020" for i in range(60)],
            "house": [f"{i % 7}" for i in range(60)],
        }
    )
    with pytest.warns(UserWarning, match="column") as caught:
        encoder = ColumnEncoder.fit(table)
    said = " ".join(str(each.message) for each in caught)
    assert "'price' of X holds texts that are read as numbers: '$1,000.50' is 1000.5" in said
    assert "'when' of X holds dates as texts (day, month, year)" in said
    assert encoder.kinds == ("number", "date", "text")
    again = decode(*encode(encoder))
    np.testing.assert_array_equal(again.encode(table), encoder.encode(table))
    row = pd.DataFrame({"price": ["1,500"], "when": ["2.3.2020"], "house": ["3"]})
    plain = pd.DataFrame({"price": [1500.0], "when": [pd.Timestamp("2020-03-02")], "house": [3]})
    np.testing.assert_array_equal(again.encode(row), again.encode(plain))


@pytest.mark.slow
def test_a_weekly_rhythm_is_learned_from_dates():
    when = pd.date_range("2021-01-01", periods=140, freq="D")
    y = np.where(when.day_of_week >= 5, 3.0, 1.0)
    fitted = BayesianRegressor(method="map", hidden=(16,)).fit(pd.DataFrame({"when": when}), y)
    later = pd.date_range("2021-05-21", periods=14, freq="D")
    found = fitted.predict(pd.DataFrame({"when": later}))
    assert found[later.day_of_week >= 5].min() > found[later.day_of_week < 5].max()

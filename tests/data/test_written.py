"""Texts that are numbers with marks, or dates: read if nearly all of them are written alike, else left as they are."""

import warnings

import numpy as np
import pandas as pd
import pytest

from marginax.data import read_table
from marginax.data.written import WrittenNumber, find_written

ALIKE = {
    "dollars": (["$1,234.50", "$12", "-$3.25", "$-4", "($5.00)"], [1234.5, 12, -3.25, -4, -5]),
    "euros before": (["€ 12", "€ 1,200"], [12, 1200]),
    "euros after": (["1.234,50 €", "12,00 €"], [1234.5, 12]),
    "codes of money": (["CHF 1'234.50", "CHF 7"], [1234.5, 7]),
    "thousands": (["1,234", "12,345", "7"], [1234, 12345, 7]),
    "decimal commas": (["1,5", "2,25"], [1.5, 2.25]),
    "percent": (["12%", "0.5 %", "-3%"], [12, 0.5, -3]),
    "unit": (["12 km", "3.5 km", "7km"], [12, 3.5, 7]),
    "plural": (["1 day", "3 days"], [1, 3]),
    "unit with a stroke": (["12 km/h", "90 km/h"], [12, 90]),
    "narrow spaces": (["1\u202f234 kg", "12 kg"], [1234, 12]),
    "degrees": (["-3.5 °C", "\u22122 °C"], [-3.5, -2]),
    "exponents": (["1e-3 mol", "2.5E+2 mol"], [1e-3, 250]),
}
UNALIKE = {
    "two units": ["3 km", "200 m"],
    "ms and m": ["3 ms", "3 m"],
    "two currencies": ["$3", "€3"],
    "unit and none": ["3 km", "4"] * 5,
    "percent and shares": ["12%", "0.12"],
    "post codes": ["01234", "10115"],
    "names": ["A12", "B7"],
    "addresses": ["12 Main Street", "7 Elm Street"],
    "times": ["12:30", "14:15"],
    "versions": ["1.2.3", "1.10.0"],
    "telephones": ["555 123 456", "555 987 654"],
    "words": ["red", "green"],
}


@pytest.mark.parametrize("name", ALIKE)
def test_numbers_with_the_same_marks_are_read(name):
    texts, values = ALIKE[name]
    column = pd.Series([*texts, None])
    written = find_written(column)
    assert isinstance(written, WrittenNumber)
    np.testing.assert_array_equal(written.read(column), [*values, np.nan])


@pytest.mark.parametrize("name", UNALIKE)
def test_texts_that_are_not_written_alike_stay_texts(name):
    assert find_written(pd.Series(UNALIKE[name])) is None


def test_the_likelier_decimal_mark_decides_where_both_would_do():
    column = pd.Series(["1,234 kg", "2,345 kg"])
    assert find_written(column).read(column).tolist() == [1234, 2345]
    assert find_written(column, ",").read(column).tolist() == [1.234, 2.345]


def test_a_few_strays_are_missing_and_many_leave_the_texts():
    numbers = [f"{i} kg" for i in range(30)]
    assert find_written(pd.Series([*numbers, "heavy"])).read(pd.Series(["heavy"])).isna().all()
    assert find_written(pd.Series([*numbers, *["heavy"] * 10])) is None


@pytest.fixture
def cars(tmp_path):
    rows = "".join(f'"${1000 + 37 * i:,}.00",{i % 12} km,{i}%,{"ab"[i % 2]},"{i / 7:.2f} €"\n' for i in range(60))
    path = tmp_path / "cars.csv"
    path.write_text("tag,way,share,kind,price\n" + rows, encoding="utf-8")
    return path


def test_a_table_has_numbers_and_says_which_columns_were_read(cars):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = read_table(cars, "price")
    assert table.task == "regression"
    assert table.x.dtypes.map(lambda each: each.kind).tolist()[:3] == ["f", "f", "f"]
    assert table.x["tag"].tolist()[:2] == [1000.0, 1037.0]
    assert "Column 'tag' holds numbers: '$1,000.00' is 1000." in table.notes
    assert sum("holds numbers" in note for note in table.notes) == 4


def test_further_rows_are_read_in_the_same_way(cars, tmp_path):
    """Taken alone, 1,5 km would be one and a half, and 03/04/2021 in March."""
    written = read_table(cars, "price").written
    days = tmp_path / "days.csv"
    days.write_text("day,y\n25/12/2020,1.5\n02/03/2020,2.5\n", encoding="utf-8")
    written |= read_table(days, "y").written
    new = tmp_path / "new.csv"
    new.write_text('tag,way,day\n"1,500","7 km",03/04/2021\n"$2","1,5 km",\n', encoding="utf-8")
    with pytest.warns(UserWarning, match="'way' holds numbers but for 1 values, such as '1,5 km'"):
        table = read_table(new, written=written)
    assert table.x["tag"].tolist() == [1500.0, 2.0]
    np.testing.assert_array_equal(table.x["way"], [7.0, np.nan])
    assert table.x["day"].iloc[0] == np.datetime64("2021-04-03")

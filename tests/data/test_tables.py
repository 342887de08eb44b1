"""Text files as people have them: read, or refused with a reason."""

import codecs

import numpy as np
import pytest

from marginax.data import read_table
from marginax.files import FileError


def _write(folder, text, encoding="utf-8"):
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
def test_separator_is_found(tmp_path, separator):
    lines = [separator.join(row) for row in (["a", "b", "y"], ["1", "2.5", "0.1"], ["2", "1.5", "0.7"])]
    table = read_table(_write(tmp_path, "\n".join(lines)), "y")
    assert table.x.to_dict("list") == {"a": [1, 2], "b": [2.5, 1.5]}
    assert table.y.tolist() == [0.1, 0.7]
    assert table.task == "regression"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1"])
def test_encoding_is_found(tmp_path, encoding):
    text = "größe,straße,y\n" + "".join(f"{i},Zürich {i % 2},{i / 10}\n" for i in range(20))
    table = read_table(_write(tmp_path, text, encoding), "y")
    assert list(table.x.columns) == ["größe", "straße"]
    assert table.x["straße"].tolist()[:2] == ["Zürich 0", "Zürich 1"]


def test_late_odd_byte_is_seen(tmp_path):
    text = b"a,city,y\n" + b"1,Rome,0.5\n2,Oslo,0.25\n" * 9000 + b"1,Z\xfcrich,0.5\n"  # beyond the first 64 KiB
    table = read_table(_write(tmp_path, text), "y")
    assert table.x["city"].iloc[-1] == "Zürich"


def test_given_encoding_that_does_not_fit_is_an_error(tmp_path):
    with pytest.raises(FileError, match="cannot be read as utf-8"):
        read_table(_write(tmp_path, b"a,y\n1,\xfc\n2,3\n"), "y", encoding="utf-8")


def test_decimal_commas_and_thousands(tmp_path):
    table = read_table(_write(tmp_path, "a;y\n1.234,5;0,5\n12,25;1,5\n-3,0;2,5\n"), "y")
    assert table.x["a"].tolist() == [1234.5, 12.25, -3.0]
    assert table.y.tolist() == [0.5, 1.5, 2.5]
    assert "Numbers have decimal commas." in table.notes


def test_quoted_thousands_are_numbers(tmp_path):
    table = read_table(_write(tmp_path, 'a,y\n"1,234.5",0.5\n"12,345.0",1.5\n7.25,2.5\n'), "y")
    assert table.x["a"].tolist() == [1234.5, 12345.0, 7.25]


def test_blank_lines_before_the_header_are_passed_over(tmp_path):
    table = read_table(_write(tmp_path, "\n\na,y\n\n1,0.5\r\n2,1.5\n"), "y")
    assert table.x["a"].tolist() == [1, 2]


def test_semicolons_with_decimal_points_stay_points(tmp_path):
    assert read_table(_write(tmp_path, "a;y\n1.5;0.5\n2.5;1.5\n"), "y").x["a"].tolist() == [1.5, 2.5]


def test_file_without_header_gets_names(tmp_path):
    table = read_table(_write(tmp_path, "2,5.5,1.5\n1,6.5,2.5\n4,7.0,2.25\n"), "column 3")
    assert list(table.x.columns) == ["column 1", "column 2"]
    assert len(table.y) == 3
    assert any("no header" in note for note in table.notes)


def test_quoted_separators_are_text(tmp_path):
    table = read_table(_write(tmp_path, 'place,y\n"Rome, Italy",1.5\n"Oslo; Norway",2.5\n'), "y")
    assert table.x["place"].tolist() == ["Rome, Italy", "Oslo; Norway"]


BAD_FILES = {
    "empty": (b"", "the file is empty"),
    "blank": (b"\n \n", "the file is empty"),
    "one line": (b"a,b,y\n", "single line"),
    "spreadsheet": (b"PK\x03\x04rest", "save it as CSV"),
    "gzip": (b"\x1f\x8brest of it", "gzip archive"),
    "binary": (b"a,b\n\0\0\0\0\0\0\0\0\0\0\0\0\n", "not a text file"),
    "duplicate names": (b"a,a,y\n1,2,3\n", "several columns named 'a'"),
    "long row": (b"a,y\n1,2\n3,4\n5,6,7\n8,9\n", "not a table of 2 columns"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_is_refused(tmp_path, name):
    content, message = BAD_FILES[name]
    path = _write(tmp_path, content)
    with pytest.raises(FileError, match=message) as caught:
        read_table(path, "y")
    assert str(path) in str(caught.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"nothing\.csv: no such file"):
        read_table(tmp_path / "nothing.csv", "y")


def test_unknown_target_lists_columns_and_the_nearest(tmp_path):
    with pytest.raises(ValueError, match=r"'strenght' is no column .*did you mean 'Strength'\?.*'age', 'Strength'"):
        read_table(_write(tmp_path, "age,Strength\n1,2\n2,4\n"), "strenght")


def test_rows_without_target_are_left_out_and_counted(tmp_path):
    with pytest.warns(UserWarning, match="2 of 4 rows have no 'y'"):
        table = read_table(_write(tmp_path, "a,y\n1,0.5\n2,\n3,NA\n4,1.5\n"), "y")
    assert table.x["a"].tolist() == [1, 4]
    assert table.y.tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["", "", ""], "missing in all 3 rows"),
        (["7", "7", "7"], "nothing to learn"),
        (["2020-01-01", "2020-01-02", "2020-01-03"], "holds dates"),
        (["red", "green", "blue"], "too many classes"),
    ],
)
def test_target_that_cannot_be_learned_is_refused(tmp_path, column, message):
    text = "a,y\n" + "".join(f"{i},{value}\n" for i, value in enumerate(column))
    with pytest.raises(ValueError, match=message):
        read_table(_write(tmp_path, text), "y")


def test_useless_columns_are_left_out_with_a_warning(tmp_path):
    header = "id,name,same,nothing,a,y\n"
    rows = "".join(f"{i},person {i},5,,{i % 7},{i / 3}\n" for i in range(60))
    with pytest.warns(UserWarning, match="is left out") as caught:
        table = read_table(_write(tmp_path, header + rows), "y")
    assert list(table.x.columns) == ["a"]
    said = " ".join(str(each.message) for each in caught)
    for part in ("'id' is left out: it counts", "'name' is left out: its text", "'same' is", "'nothing' is"):
        assert part in said


def test_file_with_no_useful_column_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="'same' is left out"), pytest.raises(ValueError, match="no column is left"):
        read_table(_write(tmp_path, "same,y\n1,0.5\n1,0.7\n"), "y")


@pytest.mark.parametrize(
    ("dates", "second"),
    [
        (["2020-01-01", "2020-03-02"], "2020-03-02"),
        (["2020-01-01T10:00:00Z", "2020-03-02T00:00:00Z"], "2020-03-02"),
        (["2020/01/01", "2020/03/02"], "2020-03-02"),
        (["01.01.2020", "02.03.2020"], "2020-03-02"),
        (["25/12/2020", "02/03/2020"], "2020-03-02"),
        (["12/25/2020", "02/03/2020"], "2020-02-03"),
        (["01.01.2020 10:30", "02.03.2020 00:00"], "2020-03-02"),
    ],
)
def test_dates_are_read_in_the_order_that_fits(tmp_path, dates, second):
    text = "day,y\n" + "".join(f"{date},{i}.5\n" for i, date in enumerate(dates))
    table = read_table(_write(tmp_path, text), "y")
    assert table.x["day"].iloc[1] == np.datetime64(second)
    assert any("holds dates" in note for note in table.notes)


def test_dates_that_could_be_either_are_said(tmp_path):
    with pytest.warns(UserWarning, match="read as month, day, year"):
        read_table(_write(tmp_path, "day,y\n01/02/2020,1.5\n03/04/2020,2.5\n"), "y")


def test_stray_texts_among_numbers_are_missing(tmp_path):
    rows = "".join(f"{i},{i / 3}\n" for i in range(30))
    with pytest.warns(UserWarning, match="'a' holds numbers but for 1 of 31 values, such as 'about 5'"):
        table = read_table(_write(tmp_path, "a,y\n" + rows + "about 5,1.5\n"), "y")
    assert table.x["a"].isna().sum() == 1
    assert table.x["a"].dtype == np.float64


def test_task_follows_the_target_and_can_be_overridden(tmp_path):
    def rows(values):
        return "a,y\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values))

    numbers = _write(tmp_path, rows([1, 2, 3] * 10))
    table = read_table(numbers, "y")
    assert table.task == "classification"
    assert any("pass task='regression'" in note for note in table.notes)
    assert read_table(numbers, "y", task="regression").y.dtype == np.float64
    texts = _write(tmp_path, rows(["yes", "no"] * 10))
    assert read_table(texts, "y").task == "classification"
    with pytest.raises(ValueError, match="holds texts such as 'yes'"):
        read_table(texts, "y", task="regression")
    many = _write(tmp_path, rows(range(200)))
    assert read_table(many, "y").task == "regression"
    with pytest.raises(ValueError, match="too many classes: pass task='regression'"):
        read_table(many, "y", task="classification")


def test_wrong_arguments_are_named(tmp_path):
    path = _write(tmp_path, "a,y\n1,0.5\n2,0.7\n")
    with pytest.raises(ValueError, match="task must be"):
        read_table(path, "y", task="guess")
    with pytest.raises(ValueError, match="separator must be"):
        read_table(path, "y", separator=";;")
    with pytest.raises(FileError, match="cannot be read as klingon"):
        read_table(path, "y", encoding="klingon")


def test_table_without_target_keeps_all_columns_and_selects_by_name(tmp_path):
    table = read_table(_write(tmp_path, "b,same,a\n1,5,x\n2,5,z\n", "utf-8"))
    assert table.y is None
    assert list(table.x.columns) == ["b", "same", "a"]
    assert list(table.select(["a", "b"]).columns) == ["a", "b"]
    with pytest.raises(ValueError, match=r"no column 'sane' \(did you mean 'same'\?\)"):
        table.select(["sane"])


def test_marks_of_encoding_are_not_part_of_the_first_name(tmp_path):
    table = read_table(_write(tmp_path, codecs.BOM_UTF8 + b"a,y\n1,0.5\n2,0.75\n"), "y")
    assert list(table.x.columns) == ["a"]


@pytest.mark.slow
def test_a_million_rows_are_read(tmp_path):
    rng = np.random.default_rng(0)
    block = "".join(
        f"{a:.6f},{b:.6f},{c},2020-01-{d:02d}\n"
        for a, b, c, d in zip(
            rng.normal(size=10_000),
            rng.normal(size=10_000),
            rng.choice(["x", "z"], 10_000),
            rng.integers(1, 29, 10_000),
            strict=True,
        )
    )
    table = read_table(_write(tmp_path, "a,y,c,day\n" + block * 100), "y")
    assert len(table.x) == 1_000_000
    assert table.x["day"].dtype.kind == "M"


def test_columns_that_are_left_out_are_kept_aside(tmp_path):
    text = "id,who,a,y\n" + "".join(f"{i},{'uv'[i % 2]},{i % 3},{'' if i == 2 else i / 3}\n" for i in range(9))
    with pytest.warns(UserWarning, match=r"'id' is left out|no 'y'"):
        table = read_table(_write(tmp_path, text), "y", ignore=["who"])
    assert list(table.x.columns) == ["id", "a"]  # with a gap, it does not count the rows
    assert table.others["who"].tolist() == list("uvvuvuvu")
    assert len(table.others) == len(table.x) == 8


def test_a_header_of_more_than_64_kib_is_a_header(tmp_path):
    names = [f"a_column_with_a_long_name_{i:06d}" for i in range(3000)]
    rows = [",".join(str((i * j) % 7 / 3) for j in range(3000)) for i in range(1, 8)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names), *rows]))
    table = read_table(tmp_path / "wide.csv")
    assert list(table.x.columns) == names
    assert len(table.x) == 7


def test_classes_beyond_the_integers_of_64_bits_stay_what_they_are(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "\n".join(f"{i / 2},{2**63 + i % 2}" for i in range(20)))
    assert set(read_table(tmp_path / "a.csv", "y").y) == {2**63, 2**63 + 1}


def test_thousands_with_points_and_decimal_commas(tmp_path):
    (tmp_path / "a.csv").write_text("size;price\n1.201;1,5\n900;2,5\n1.100;3,75\n")
    table = read_table(tmp_path / "a.csv")
    assert table.x["size"].tolist() == [1201, 900, 1100]
    assert table.x["price"].tolist() == [1.5, 2.5, 3.75]

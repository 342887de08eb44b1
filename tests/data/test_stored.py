"""Tables that are not plain text: compressed, Parquet, Excel."""

import gzip
import sys

import pandas as pd
import pytest

from marginax.data import read_table
from marginax.files import FileError

FRAME = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=4), "a": [1.5, 2.5, None, 4.0], "y": [1.0, 2, 3, 5]})
FRAME["price"] = ["$1,000", "$2", "$3", "$4"]


def _as_expected(table):
    assert table.x["when"].dtype.kind == "M"
    assert table.x["price"].tolist() == [1000, 2, 3, 4]
    assert table.y.tolist() == [1, 2, 3, 5]
    assert table.x["a"].isna().tolist() == [False, False, True, False]


def test_compressed_text_is_text(tmp_path):
    path = tmp_path / "table.csv.gz"
    FRAME.to_csv(path, index=False)
    _as_expected(read_table(path, "y", task="regression"))
    path.with_suffix(".csv").write_bytes(path.read_bytes())  # whatever it is called
    _as_expected(read_table(path.with_suffix(".csv"), "y", task="regression"))


def test_half_a_compressed_file_is_refused(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"a,y\n1,2\n" * 100)[:30])
    with pytest.raises(FileError, match="a gzip archive that cannot be unpacked"):
        read_table(path, "y")


def test_parquet_is_read(tmp_path):
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(tmp_path / "table.parquet")
    _as_expected(read_table(tmp_path / "table.parquet", "y", task="regression"))
    (tmp_path / "half.parquet").write_bytes((tmp_path / "table.parquet").read_bytes()[:200])
    with pytest.raises(FileError, match=r"half\.parquet: not a whole Parquet file"):
        read_table(tmp_path / "half.parquet", "y")


def test_the_first_sheet_of_excel_is_read(tmp_path):
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "table.xlsx") as file:
        FRAME.to_excel(file, sheet_name="homes", index=False)
        FRAME.iloc[:1].to_excel(file, sheet_name="more", index=False)
    table = read_table(tmp_path / "table.xlsx", "y", task="regression")
    _as_expected(table)
    assert table.notes[0] == "4 rows of sheet 'homes', the first of 2."
    (tmp_path / "half.xlsx").write_bytes((tmp_path / "table.xlsx").read_bytes()[:200])
    with pytest.raises(FileError, match=r"half\.xlsx: not a whole Excel file"):
        read_table(tmp_path / "half.xlsx", "y")


@pytest.mark.parametrize(
    ("name", "content", "module"), [("a.parquet", b"PAR1", "pyarrow"), ("a.xlsx", b"PK\x03\x04", "openpyxl")]
)
def test_what_is_missing_is_named_with_what_brings_it(tmp_path, monkeypatch, name, content, module):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModuleNotFoundError, match=rf"{module} is not installed: pip install 'marginax\[tables\]'"):
        read_table(tmp_path / name, "y")

"""Tables in files that say themselves how they are written: Parquet and Excel."""

from pathlib import Path
from typing import Any

from marginax._extras import require
from marginax.files import FileError

Frame = Any  # of pandas


def read_stored(path: Path) -> tuple[Frame, list[str]] | None:
    """The table and notes on it; None if the file is neither Parquet nor Excel, by its first bytes."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(4)
    if head == b"PAR1":
        frame, note = _read_parquet(path)
    elif head == b"PK\x03\x04" and path.suffix.lower() in (".xlsx", ".xlsm"):
        frame, note = _read_excel(path)
    else:
        return None
    if not len(frame) or not frame.shape[1]:
        raise FileError(f"{path}: holds no rows")
    frame.columns = [str(name) for name in frame.columns]
    twice = sorted({name for name in frame.columns if list(frame.columns).count(name) > 1})
    if twice:
        raise FileError(f"{path}: has several columns named {', '.join(map(repr, twice))}: give each a name of its own")
    return frame, [f"{len(frame):,} rows{note}."]


def _read_parquet(path: Path) -> tuple[Frame, str]:
    pyarrow = require("pyarrow")
    try:
        frame = require("pandas").read_parquet(path, engine="pyarrow")
    except (OSError, pyarrow.ArrowException) as error:
        raise FileError(f"{path}: not a whole Parquet file ({error})") from None
    kept = [name for name in frame.index.names if name is not None]
    return frame.reset_index(drop=not kept), ""


def _read_excel(path: Path) -> tuple[Frame, str]:
    require("openpyxl")
    try:
        sheets = require("pandas").read_excel(path, sheet_name=None, engine="openpyxl", na_values=["?"])
    except Exception as error:  # of zip, XML and openpyxl, each with classes of its own
        raise FileError(f"{path}: not a whole Excel file ({error})") from None
    name, frame = next(iter(sheets.items()))
    note = "" if len(sheets) == 1 else f" of sheet {name!r}, the first of {len(sheets)}"
    return frame.dropna(how="all"), note

"""How a text file writes a table: encoding, separator, decimal mark, header; found by looking at it."""

import codecs
import csv
import dataclasses
import gzip
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from marginax.files import FileError

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas", r"\s+": "spaces"}
_SAMPLE = 2**16
_MOST_SAMPLE = 2**26  # of a file with very long lines
_LEAST_LINES = 3
_CHUNK = 2**22
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OTHER = {
    b"PK\x03\x04": "a zip archive, or a spreadsheet whose name does not end in .xlsx",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet",
    b"%PDF": "a PDF",
}
_COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_THOUSANDS = {  # by decimal mark
    ",": re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+"),
    ".": re.compile(r"[+-]?\d{1,3}(,\d{3})+\.\d+"),
}


@dataclasses.dataclass(frozen=True)
class Dialect:
    """What `pandas.read_csv` has to be told."""

    encoding: str
    separator: str
    decimal: str
    thousands: str | None
    header: tuple[str, ...] | None
    num_columns: int
    compressed: bool = False


def find_dialect(path: Path, encoding: str | None, separator: str | None, decimal: str | None) -> Dialect:
    """Look at the first 64 KiB or few lines (for the encoding, at all bytes); what is given is taken as it is."""
    head = _head(path)
    encoding = encoding or _encoding(path, head)
    lines = _lines(path, head, encoding)
    separator = separator or _separator(lines)
    try:
        rows = [row for row in _split(lines, separator) if any(field.strip() for field in row)]
    except csv.Error as error:
        raise FileError(f"{path}: not a table ({error})") from None
    fields = [field.strip() for row in rows[1:] for field in row]
    if decimal is None:
        decimal = "," if separator != "," and any(map(_COMMA_NUMBER.fullmatch, fields)) else "."
    pattern = _THOUSANDS.get(decimal)
    grouped = pattern is not None and any(map(pattern.fullmatch, fields))
    thousands = None if not grouped else "." if decimal == "," else ","
    header = tuple(name.strip() for name in rows[0])
    numbers = all(_is_number(name, decimal) for name in header)
    return Dialect(encoding, separator, decimal, thousands, None if numbers else header, len(header), _compressed(path))


def _head(path: Path) -> bytes:
    if not path.exists():
        raise FileError(f"{path}: no such file")
    if path.is_dir():
        raise FileError(f"{path}: is a directory, not a text file")
    try:
        with _open(path) as file:
            head = part = file.read(_SAMPLE)
            while part and len(head) < _MOST_SAMPLE and len(head.splitlines()) < _LEAST_LINES:
                part = file.read(len(head))
                head += part
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileError(f"{path}: is a gzip archive that cannot be unpacked ({error})") from None
    if not head.strip():
        raise FileError(f"{path}: the file is empty")
    for magic, what in _OTHER.items():
        if head.startswith(magic):
            raise FileError(f"{path}: is {what}, not a text file: save it as CSV")
    return head


def _compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if _compressed(path) else path.open("rb")


def _encoding(path: Path, head: bytes) -> str:
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    if b"\0" in head:
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) < 0.3 * len(head) / 2 or min(even, odd) > 0.05 * len(head) / 2:
            raise FileError(f"{path}: not a text file: it holds zero bytes")
        return "utf-16-le" if odd > even else "utf-16-be"
    for name in ("utf-8", "cp1252"):
        decoder = codecs.getincrementaldecoder(name)()
        try:
            with _open(path) as file:
                while part := file.read(_CHUNK):
                    decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def _lines(path: Path, head: bytes, encoding: str) -> list[str]:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except (LookupError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read as {encoding} ({error}): pass another encoding=") from None
    lines = text.splitlines()
    if len(head) >= _SAMPLE and len(lines) > 2:
        lines.pop()  # cut off
    if len([line for line in lines if line.strip()]) < 2:
        raise FileError(f"{path}: has a single line: a table needs names of columns and rows")
    return lines


def _split(lines: list[str], separator: str) -> list[list[str]]:
    if separator == r"\s+":
        return [line.split() for line in lines]
    return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))


def _separator(lines: list[str]) -> str:
    """The one by which all lines have the same number of fields, and as the header has them."""
    best, score = ",", 0.0
    for candidate in SEPARATORS:
        try:
            counts = [len(row) for row in _split(lines[:200], candidate) if row]
        except csv.Error:
            continue
        common = counts[0] if counts else 0
        share = Counter(counts)[common] / max(1, len(counts))
        if common > 1 and share > score + 0.01:
            best, score = candidate, share
    return best


def _is_number(text: str, decimal: str) -> bool:
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True

"""How a column of texts writes its values: numbers with marks ("$1,234.50", "12%", "12 km"), or dates."""

import abc
import re
import warnings
from typing import Any

import equinox as eqx
import numpy as np

from marginax._extras import require
from marginax.files import register

Series = Any  # of pandas, whose own types say too little
MOSTLY = 0.9  # of the values of a column must be numbers for the others to count as missing
_NUM_LOOKED_AT = 200  # values that decide whether it is worth to look at all
_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([T ]\d{1,2}:\d{2}\S*)?")
_CODES = ("USD", "EUR", "GBP", "CHF", "JPY", "CAD", "AUD", "NZD", "SEK", "NOK", "DKK", "INR", "CNY", "Rs[.]?", "kr[.]?")
_MONEY = "(?:US|CA?|AU?|NZ|R|HK)?[$]|[€£¥₹₽₩₺₪₫₴₱฿]|" + "|".join(_CODES)
_UNIT = f"%|‰|{_MONEY}|°[CF]?|[^\\W\\d_]{{1,12}}[²³23]?(?:/[^\\W\\d_]{{1,8}}[²³]?)?"
_MARKED = re.compile(
    rf"(?P<loss>\()?(?P<minus>[-+\u2212])?\s*(?P<prefix>{_MONEY})?\s*(?P<minus2>[-+\u2212])?"
    rf"(?P<number>\d[\d.,'\u2019\u00a0\u202f ]*?(?:[eE][-+]?\d+)?)[\s\u00a0\u202f]*(?P<unit>{_UNIT})?(?(loss)\))"
)
_GROUPED = "(?:[1-9]\\d{{0,2}}(?:{mark}\\d{{3}})+|\\d+)"
_ENGLISH, _EUROPEAN = (".", ","), (",", ".")
_OTHERS = ((".", "'"), (".", "\u2019"), (".", " "), (",", " "), (",", "'"))  # decimal mark and mark of thousands


class AbstractWritten(eqx.Module):
    """How the texts of a column are read, so that further rows can be read in the same way."""

    @abc.abstractmethod
    def read(self, column: Series) -> Series:
        """The values, missing where a text is written in another way; what is no text stays as it is."""


@register("table/written_number")
class WrittenNumber(AbstractWritten):
    """Numbers with marks around and within them.

    Args:
        prefix: before each number, such as "$".
        unit: after each number, such as "%" or "km"; "days" and "day" are one.
        decimal: mark of decimals.
        thousands: mark of thousands.

    >>> import pandas as pd
    >>> WrittenNumber("$", "", ".", ",").read(pd.Series(["$1,234.50", "-$2", None, "free"])).tolist()
    [1234.5, -2.0, nan, nan]
    """

    prefix: str
    unit: str
    decimal: str = "."
    thousands: str = ","

    @property
    def is_plain(self) -> bool:
        """Whether there is no mark: a text such as "12" may be the name of something."""
        return not (self.prefix or self.unit)

    def read(self, column: Series) -> Series:
        pd = require("pandas")

        if pd.api.types.is_numeric_dtype(column.dtype):
            return column
        found = _match(column)
        unmarked = (found["prefix"] == "") & (found["unit"] == "")
        ours = (found["prefix"] == self.prefix) & (found["unit"] == self.unit) | unmarked
        return _numbers(found, (self.decimal, self.thousands)).where(ours)


@register("table/written_date")
class WrittenDate(AbstractWritten):
    """Dates, with or without a time of day.

    Args:
        form: as in `datetime.strptime`, or "ISO8601".
        order: of day, month and year, in words.
    """

    form: str
    order: str

    def read(self, column: Series) -> Series:
        pd = require("pandas")

        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            return column
        return pd.to_datetime(column, format=self.form, utc=True, errors="coerce").dt.tz_localize(None)


def find_written(column: Series, decimal: str = ".") -> AbstractWritten | None:
    """How the texts of a column are written; None if they are just texts.

    Nearly all of them must be numbers, all with the same marks, or all of them dates.

    Args:
        column: of texts, some of which may be missing.
        decimal: the mark of decimals that is the more likely one.

    >>> import pandas as pd
    >>> find_written(pd.Series(["1.234,50 €", "12,00 €"]))
    WrittenNumber(prefix='', unit='€', decimal=',', thousands='.')
    >>> find_written(pd.Series(["3 km", "200 m"])) is None
    True
    """
    present = column.dropna()
    if not len(present):
        return None
    first = _DATE.fullmatch(str(present.iloc[0]).strip())
    if first is not None and (dates := _find_dates(present, first)) is not None:
        return dates
    some = _match(present.iloc[:_NUM_LOOKED_AT])
    if some["number"].notna().mean() < MOSTLY:
        return None
    return _find_numbers(_match(present), decimal)


def read_texts(column: Series, written: AbstractWritten, name: str, *, stacklevel: int = 3) -> Series:
    """A column as it is written, with a warning that names it where values had to be left out."""
    values = written.read(column)
    lost = column[values.isna() & column.notna()]
    if len(lost):
        what = "dates" if isinstance(written, WrittenDate) else "numbers"
        warnings.warn(
            f"column {name!r} holds {what} but for {len(lost):,} of {column.count():,} values, such as "
            f"{str(lost.iloc[0])!r:.40}: they count as missing",
            stacklevel=stacklevel,
        )
    return values


def example_of(column: Series, written: AbstractWritten) -> str | None:
    """The longest of the texts, and how it is read, in words; None if it is a plain number."""
    values = written.read(column)
    known = column[values.notna()].astype("str").str.strip()
    text = known.iloc[known.str.len().argmax()]
    value = values[values.notna()].iloc[known.str.len().argmax()]
    return None if re.fullmatch(r"[-+]?\d*[.]?\d*", text) else f"{text!r:.40} is {value:.15g}"


def _match(column: Series) -> Any:
    """Sign, marks and digits of each text, as columns; no digits where it is no number."""
    found = column.astype("str").str.strip().str.extract(f"^{_MARKED.pattern}$")
    found = found.astype(object).where(found.notna(), "")
    found["number"] = found["number"].where(found["number"] != "", np.nan)
    plural = found["unit"].str.len() > 3  # days and day, but not ms and m
    found["unit"] = found["unit"].where(~plural, found["unit"].str.removesuffix("s"))
    return found


def _find_numbers(found: Any, decimal: str) -> WrittenNumber | None:
    numbers = found[found["number"].notna()]
    if len(numbers) < MOSTLY * len(found):
        return None
    marks = set(zip(numbers["prefix"], numbers["unit"], strict=True))
    if len(marks) != 1:  # grams and kilograms must not be mixed up
        return None
    if numbers["number"].str.fullmatch(r"0\d+").any():  # codes, such as those of post
        return None
    likely = (_ENGLISH, _EUROPEAN) if decimal == "." else (_EUROPEAN, _ENGLISH)
    prefix, unit = marks.pop()
    for point, group in (*likely, *_OTHERS):
        if group == " " and not (prefix or unit):  # numbers of telephones
            continue
        if _numbers(numbers, (point, group)).notna().all():
            return WrittenNumber(prefix, unit, point, group)
    return None


def _numbers(found: Any, marks: tuple[str, str]) -> Series:
    """Digits with these marks of decimals and thousands as floats."""
    pd = require("pandas")

    decimal, thousands = marks
    digits = found["number"].astype("str").str.replace("[\u00a0\u202f]", " ", regex=True)
    whole = _GROUPED.format(mark=re.escape(thousands))
    fits = digits.str.fullmatch(rf"{whole}(?:{re.escape(decimal)}\d*)?(?:[eE][-+]?\d+)?")
    plain = digits.str.replace(thousands, "", regex=False).str.replace(decimal, ".", regex=False)
    values: Any = pd.to_numeric(plain.where(fits.fillna(False).astype(bool)), errors="coerce").astype(np.float64)
    minus = (found["loss"] != "") | found["minus"].isin(["-", "\u2212"]) | found["minus2"].isin(["-", "\u2212"])
    return values.where(~minus, -values)


def _find_dates(column: Series, example: re.Match[str]) -> WrittenDate | None:
    """Dates as the first one is written, and in which order; None if the others are not."""
    pd = require("pandas")

    date, time = example[1], example[2] or ""
    mark = next(character for character in date if not character.isdigit())
    clock = "" if not time else f"{time[0]}%H:%M" + (":%S" if time.count(":") == 2 else "")
    if date.index(mark) == 4:
        orders = {"year, month, day": "ISO8601" if mark == "-" else f"%Y{mark}%m{mark}%d{clock}"}
    else:
        orders = {"day, month, year": f"%d{mark}%m{mark}%Y{clock}", "month, day, year": f"%m{mark}%d{mark}%Y{clock}"}
        if mark == "/":
            orders = dict(reversed(orders.items()))
    found = []
    for order, form in orders.items():
        try:
            pd.to_datetime(column, format=form, utc=True)
            found.append(WrittenDate(form, order))
        except (ValueError, pd.errors.OutOfBoundsDatetime):
            continue
    if len(found) == 2 and mark == "/":
        warnings.warn(f"column {column.name!r}: dates such as {date!r} are read as {found[0].order}", stacklevel=5)
    return found[0] if found else None

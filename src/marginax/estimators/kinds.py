"""What kind of column is it: numbers, dates or texts, or something that is none of them."""

import datetime
import decimal
import numbers
import operator
import warnings
from typing import Any

import numpy as np

from marginax._extras import require
from marginax.data.written import AbstractWritten, WrittenDate, WrittenNumber, example_of, find_written

Series = Any  # of pandas
MAX_CATEGORIES = 50
_NUMBER = numbers.Real | decimal.Decimal


def written_as(column: Series, name: str) -> AbstractWritten | None:
    """How a column of texts writes numbers or dates, said in a warning that names it; None if it does not.

    Numbers without any mark are names of something, such as those of houses, unless they are too many for that, or
    some are numbers already and a few words among them made it a column of objects.
    """
    types = require("pandas.api.types")

    if not (types.is_object_dtype(column.dtype) or types.is_string_dtype(column.dtype)):
        return None
    present = column.dropna()
    is_text = [isinstance(value, str) for value in present]
    is_number = [isinstance(value, _NUMBER) and not isinstance(value, bool) for value in present]
    if not any(is_text) or not all(map(operator.or_, is_text, is_number)):
        return None
    written = find_written(column)
    if written is None:
        return None
    if isinstance(written, WrittenDate):
        warnings.warn(f"column {name!r} of X holds dates as texts ({written.order}): they are read", stacklevel=4)
        return written
    assert isinstance(written, WrittenNumber)
    example = example_of(column, written)
    if example is None and all(is_text) and column.nunique() <= MAX_CATEGORIES:
        return None
    if example is None and not all(is_text):  # that words are missing is said where they are read
        return written
    said = f": {example}" if example else ""
    warnings.warn(f"column {name!r} of X holds texts that are read as numbers{said}", stacklevel=4)
    return written


def kind_of(column: Series, name: str, written: AbstractWritten | None) -> str:
    """One of "number", "date" and "text"; an error that names the column if it is nothing of that."""
    types = require("pandas.api.types")

    if written is not None:
        return "date" if isinstance(written, WrittenDate) else "number"
    dtype = column.dtype
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return "date"
    if types.is_complex_dtype(dtype):
        raise ValueError(f"column {name!r} of X must hold real numbers. Complex data not supported, got {dtype}")
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        return "number"
    present = column.dropna()
    if not len(present):
        return "number"
    if types.is_object_dtype(dtype):
        for place, value in present.items():
            scalar = isinstance(value, str | bytes | numbers.Number | np.generic | datetime.date | datetime.timedelta)
            if not scalar or (isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real)):
                raise TypeError(
                    f"column {name!r} of X must hold numbers, texts or dates: each argument must be a string or a "
                    f"number, got {type(value).__name__} in row {place}: {value!r:.60}"
                )
        if all(isinstance(value, datetime.date) for value in present):
            return "date"
        if not any(isinstance(value, str | bytes) for value in present):
            return "number"
    return "text"

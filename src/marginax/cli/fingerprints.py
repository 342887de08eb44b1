"""Rows known again: a hash of each row of training, kept with the run instead of the row."""

import hashlib
from typing import Any

import numpy as np

from marginax._extras import require

Frame = Any  # of pandas


def fingerprints(x: Frame, y: Frame, like: Frame) -> np.ndarray:
    """A number for each row, of its inputs and its target; equal rows have equal ones.

    Args:
        x: inputs.
        y: targets, or labels by annotators.
        like: rows of the fit, whose types count: a file may write 1 as 1.0.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]})
    >>> whole = rows.astype({"a": int})
    >>> bool((fingerprints(rows, rows["a"], rows) == fingerprints(whole, whole["a"], rows)).all())
    True
    """
    types = require("pandas.api.types")

    numbers, texts = [], []
    for name in like.columns:
        dtype = like[name].dtype
        if types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype) or types.is_datetime64_any_dtype(dtype):
            numbers.append(_numbers(x[name]))
        else:
            texts.append(x[name].astype("str").fillna("").to_numpy(object))
    for column in [y] if y.ndim == 1 else [y[name] for name in y.columns]:
        if types.is_numeric_dtype(column.dtype):
            numbers.append(_numbers(column))
        else:
            texts.append(column.astype(object).where(column.notna(), "").astype("str").to_numpy(object))
    block = np.column_stack([*numbers, np.zeros(len(x))]) + 0.0  # one zero, not two
    block[np.isnan(block)] = np.nan
    words = zip(*texts, strict=True) if texts else [()] * len(x)
    found = [
        hashlib.blake2b(row.tobytes() + "\0".join(map(str, word)).encode(), digest_size=8).digest()
        for row, word in zip(np.ascontiguousarray(block, "<f8"), words, strict=True)
    ]
    return np.frombuffer(b"".join(found), "<u8").astype(np.uint64)


def _numbers(column: Frame) -> np.ndarray:
    pd = require("pandas")

    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        since = pd.to_datetime(column, utc=True).dt.tz_localize(None) - pd.Timestamp(0)
        return since.to_numpy() / np.timedelta64(1, "s")
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)

"""Labels by several annotators, a column each: brought to one set of classes, or refused with a reason."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from marginax._extras import require

Frame = Any  # of pandas
MANY_CLASSES = 100
_SHOWN = 5


def as_answer_columns(frame: Frame, names: Sequence[str], notes: list[str]) -> tuple[Frame, Frame]:
    """The rows that somebody labelled, and the labels: numbers or texts, with gaps.

    >>> import pandas as pd
    >>> notes = []
    >>> frame = pd.DataFrame({"x": [0.1, 0.2, 0.3], "ann": [1.0, None, 0.0], "bob": [1, 0, 0]})
    >>> as_answer_columns(frame, ["ann", "bob"], notes)[1].to_numpy().tolist()
    [[1.0, 1.0], [nan, 0.0], [0.0, 0.0]]
    >>> print(notes[0])
    2 annotators gave 5 labels of 3 rows, 1.7 each: 0, 1.
    """
    names = list(names)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"annotators must be two columns or more, each named once, got {', '.join(map(repr, names))}")
    answers = labels_in(frame, names)
    given = answers.notna()
    for name in names:
        if not given[name].any():
            raise ValueError(f"annotator {name!r} has no label in any row: leave the column out")
    _check_classes({name: set(answers[name][given[name]]) for name in names})
    empty = ~given.any(axis=1)
    if empty.any():
        first = int(np.argmax(empty)) + 1
        warnings.warn(
            f"{empty.sum():,} of {len(frame):,} rows have no label by any annotator, the first is row {first:,}, "
            "and are left out",
            stacklevel=3,
        )
    kept = answers[~empty].reset_index(drop=True)
    shown = _few(set(answers.to_numpy()[given.to_numpy()]))
    num = int(given.to_numpy().sum())
    notes.append(
        f"{len(names)} annotators gave {num:,} labels of {len(kept):,} rows, {num / len(kept):.1f} each: {shown}."
    )
    return frame[~empty], kept


def labels_in(frame: Frame, names: Sequence[str]) -> Frame:
    """Columns of labels, however a file has written them: numbers where all are, else texts, with gaps.

    >>> import pandas as pd
    >>> labels_in(pd.DataFrame({"a": [True, False], "b": ["True", None]}), ["a", "b"]).to_numpy().tolist()
    [['True', 'True'], ['False', None]]
    """
    columns = {name: _labels(frame[name]) for name in names}
    found = require("pandas").DataFrame(columns, dtype=object, index=frame.index)
    values = found.to_numpy()[found.notna().to_numpy()]
    return found.astype(np.float64) if len(values) and all(isinstance(value, int) for value in values) else found


def vote_of(answers: Frame) -> np.ndarray:
    """The commonest label of each row, the first of several.

    >>> import pandas as pd
    >>> vote_of(pd.DataFrame({"a": ["x", "y", None], "b": ["x", "x", "y"], "c": ["y", "y", None]})).tolist()
    ['x', 'y', 'y']
    """
    values, given = answers.to_numpy(object), answers.notna().to_numpy()
    classes = np.array(sorted(set(values[given])), object)
    votes = np.stack([(values == each).sum(axis=1) for each in classes], axis=1)
    return classes[votes.argmax(axis=1)]


def _labels(column: Frame) -> np.ndarray:
    """A column of labels as whole numbers or texts."""
    types = require("pandas.api.types")

    found = np.full(len(column), None, object)
    given = column.notna().to_numpy()
    if types.is_datetime64_any_dtype(column.dtype):
        raise ValueError(f"annotator {column.name!r} gives dates, not labels")
    if types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype):
        values = column[given].to_numpy(np.float64)
        is_whole = np.isfinite(values) & (values == np.round(values))
        if not np.all(is_whole):
            wrong = values[~is_whole][0]
            raise ValueError(f"annotator {column.name!r} must give labels, whole numbers or texts, got {wrong:g}")
        found[given] = [int(value) for value in values]
    else:
        found[given] = [str(value) for value in column[given]]
    return found


def _check_classes(classes: dict[str, set[Any]]) -> None:
    """Refuse annotators who cannot have labelled the same thing."""
    every = set().union(*classes.values())
    for name, found in classes.items():
        others = set().union(*(each for other, each in classes.items() if other != name))
        if not found & others:
            raise ValueError(
                f"annotators must choose among the same classes, got {_few(found)} from {name!r} and {_few(others)} "
                "from the others"
            )
    if len(every) < 2:
        raise ValueError(f"annotators say {next(iter(every))!r} in every row: there is nothing to learn")
    texts = [name for name, found in classes.items() if any(isinstance(each, str) for each in found)]
    if texts and len(texts) < len(classes):
        some = classes[texts[0]]
        raise ValueError(f"annotators must all give texts or all give numbers, got {_few(some)} from {texts[0]!r}")
    if len(every) > MANY_CLASSES:
        raise ValueError(f"annotators give {len(every)} different labels, too many classes: merge rare ones")


def _few(labels: set[Any]) -> str:
    is_mixed = len({isinstance(label, str) for label in labels}) > 1
    ordered = [
        f"{label:g}" if isinstance(label, float) else str(label)
        for label in sorted(labels, key=str if is_mixed else None)
    ]
    return ", ".join(ordered[:_SHOWN]) + (", ..." if len(ordered) > _SHOWN else "")

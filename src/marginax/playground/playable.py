"""What a lab is: its settings, a run that shows states as they come, and a text that gives the same numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginax.playground.protocol import Lab

Settings = Mapping[str, Any]
Numbers = dict[str, Any]  # floats, or lists of them
_DIGITS = 6


class Cancelled(Exception):  # noqa: N818  # it is no error
    """Somebody does not want to know any more."""


@dataclass(frozen=True)
class Frame:
    """What there is to see now.

    Attributes:
        step: of the phase.
        of: steps that it has.
        phase: its name.
        data: for the page, as `marginax.playground.protocol` says; arrays become lists.
    """

    step: int
    of: int
    phase: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """Where a run shows what there is to see.

    Args:
        show: a frame; raises `Cancelled` where nobody looks any more.
        alive: raises `Cancelled` too, and shows nothing.
    """

    show: Callable[[Frame], None]
    alive: Callable[[], None]


@dataclass(frozen=True)
class Playable:
    """A lab that can be run.

    Args:
        lab: what the page knows of it.
        run: (settings, stage) -> the numbers of the result.
        to_python: settings -> a text that defines and prints the same `numbers`.
        check: raises `ProtocolError` where settings cannot be meant together.
    """

    lab: Lab
    run: Callable[[Settings, Stage], Numbers]
    to_python: Callable[[Settings], str]
    check: Callable[[Settings], None] = lambda settings: None


def told(error: Exception) -> str:
    """An error for the person at the page.

    >>> told(FloatingPointError("all chains became NaN"))
    'FloatingPointError: all chains became NaN'
    """
    text = str(error)
    return (text if isinstance(error, FileNotFoundError) and text else f"{type(error).__name__}: {text}")[:2000]


def as_json(value: Any) -> Any:
    """Numbers of states, rounded to six digits; None for what is not finite.

    >>> as_json({"a": np.array([1.23456789, np.nan]), "b": np.float32(2.0)})
    {'a': [1.23457, None], 'b': 2.0}
    """
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "biu":
        return array.tolist()
    return _rounded(array.astype(np.float64))


def _rounded(array: np.ndarray) -> Any:
    finite = np.isfinite(array)
    with np.errstate(divide="ignore"):
        size = np.floor(np.log10(np.abs(np.where(finite, array, 1.0))))
    factor = 10.0 ** (_DIGITS - 1 - np.where(np.isfinite(size), size, 0.0))
    rounded = np.where(finite, np.round(np.where(finite, array, 0.0) * factor) / factor, np.nan)
    if finite.all():
        return rounded.tolist()
    holed = rounded.astype(object)
    holed[~finite] = None
    return holed.tolist()

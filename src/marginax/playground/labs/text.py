"""Objects of the library as the Python that makes them, and whole texts to copy."""

import dataclasses
import textwrap
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import numpy as np

import marginax as mx

_ROOMS = ("infer", "likelihoods", "priors", "curvature", "nets", "predict")


def expression(value: Any) -> str:
    """The Python that makes an object; what has its default is left out.

    >>> expression(mx.infer.HMC(num_warmup=10, path_length=2.0))
    'mx.infer.HMC(num_warmup=10, path_length=2.0)'
    >>> expression(mx.infer.Laplace(training=mx.infer.MAP(num_epochs=5)))
    'mx.infer.Laplace(training=mx.infer.MAP(num_epochs=5))'
    """
    if not dataclasses.is_dataclass(value):
        return repr(value)
    given = []
    for field in dataclasses.fields(value):
        own = getattr(value, field.name)
        if field.init and not _is_default(field, own):
            given.append(f"{field.name}={expression(own)}")
    return f"mx.{_room(value)}.{type(value).__name__}({', '.join(given)})"


def _is_default(field: Any, value: Any) -> bool:
    default = field.default if field.default is not dataclasses.MISSING else None
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    elif field.default is dataclasses.MISSING:
        return False
    if type(default) is not type(value):
        return False
    return bool(eqx.tree_equal(default, value))


def _room(value: Any) -> str:
    name = type(value).__name__
    return next(room for room in _ROOMS if getattr(getattr(mx, room), name, None) is type(value))


def array(values: Any) -> str:
    """An array, every number in full.

    >>> array([[1.0, 2.5]])
    'np.array([[1.0, 2.5]])'
    """
    return f"np.array({np.asarray(values).tolist()!r})"


def program(lines: Iterable[str]) -> str:
    """Lines as a text that can be run, long ones broken where they have several parts."""
    return "\n".join(_broken(line) for line in lines) + "\n"


def _broken(line: str) -> str:
    if len(line) <= 100 or "np.array([" not in line:
        return line
    start, rest = line.split("np.array([", 1)
    indent = " " * (len(start) - len(start.lstrip()))
    parts = textwrap.wrap("[" + rest, 96, break_long_words=False, break_on_hyphens=False)
    body = "\n".join(f"{indent}    {part}" for part in parts)
    return f"{start}np.array(\n{body}"

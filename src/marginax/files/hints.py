"""Whether what a file holds is of the type that the code says: the one place where stored values meet annotations.

Only files that somebody has forged fail here, since whole files hold what the code has written. Generous where objects
are: every number may be an array (traced, stacked over chains), and an array of a network may be missing (in a part).
"""

import collections.abc
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from marginax.files.error import FileError

__all__ = ["LEFT_OUT", "check_document", "check_object", "fits"]

LEFT_OUT = "model of the posterior"  # stands for an object that is stored elsewhere
_ARRAYS = (jax.Array, np.ndarray, np.generic)
_NUMBERS = (bool, int, float, complex)
_KINDS: dict[Any, str] = {bool: "b", int: "iub", float: "fiubV", complex: "cfiubV"}  # V: bfloat16


def fits(value: Any, hint: Any) -> bool:
    """Whether a stored value is what an annotation says.

    >>> fits((1, 2), tuple[int, ...]), fits((1, "2"), tuple[int, ...]), fits(None, float | None), fits("1", float)
    (True, False, True, False)
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar | str):
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is typing.Annotated:
        return fits(value, inner[0])
    if origin is typing.Literal:
        return value in inner
    if origin is tuple or hint is tuple:
        return isinstance(value, tuple) and _items_fit(value, inner)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if origin in (list, collections.abc.Sequence):
        allowed = list if origin is list else (list, tuple)
        return isinstance(value, allowed) and all(fits(item, inner[0]) for item in value)
    if origin is collections.abc.Callable or hint is collections.abc.Callable:
        return callable(value)
    if hint in _KINDS:
        return _is_number(value, hint)
    if _is_array_hint(hint):
        return _is_array(value, hint)
    cls = hint if origin is None else origin
    if not isinstance(cls, type) or "jaxtyping" in cls.__module__:  # PyTree
        return not any(isinstance(leaf, str) and leaf != LEFT_OUT for leaf in jax.tree.leaves(value))
    return _is_instance(value, cls)


def check_object(cls: type, values: Mapping[str, Any]) -> None:
    """Raise FileError unless the values are what the fields of a class are annotated with.

    Of a class that users have registered nothing is asked: its constructor may take what its annotations do not say.
    """
    if not cls.__module__.startswith("marginax."):
        return
    hints = _hints(cls)
    is_network = any("__call__" in vars(each) for each in cls.__mro__)
    for name, value in values.items():
        hint = hints.get(name, Any)
        if not fits(value, hint) and not (is_network and value is None and _is_array_hint(hint)):
            raise FileError(f"field {name!r} of {cls.__name__} cannot be {_short(value)}")


def check_document(document: Any, hints: Mapping[str, Any], what: str) -> None:
    """Raise FileError unless a document has entries of these types; those that may be None may be missing.

    >>> check_document({"count": "3"}, {"count": int}, "the checkpoint")
    Traceback (most recent call last):
    marginax.files.error.FileError: not what marginax writes: 'count' of the checkpoint cannot be '3'
    """
    if not isinstance(document, dict):
        raise FileError(f"not what marginax writes: {what} cannot be {_short(document)}")
    for name, hint in hints.items():
        if not fits(document.get(name), hint):
            raise FileError(f"not what marginax writes: {name!r} of {what} cannot be {_short(document.get(name))}")


def _items_fit(value: tuple[Any, ...], inner: tuple[Any, ...]) -> bool:
    if not inner:
        return True
    if len(inner) == 2 and inner[1] is Ellipsis:
        return all(fits(item, inner[0]) for item in value)
    return len(value) == len(inner) and all(fits(item, hint) for item, hint in zip(value, inner, strict=True))


def _is_number(value: Any, hint: Any) -> bool:
    if isinstance(value, _ARRAYS):
        return value.dtype.kind in _KINDS[hint]
    if hint is bool:
        return isinstance(value, bool) or value in (0, 1)
    return isinstance(value, int if hint is int else int | float if hint is float else _NUMBERS)


def _is_array_hint(hint: Any) -> bool:
    return isinstance(hint, type) and (issubclass(hint, _ARRAYS) or hasattr(hint, "array_type"))


def _is_array(value: Any, hint: Any) -> bool:
    """NumPy arrays have the dtype and the number of axes that is said; those of JAX may be stacked, or be numbers."""
    if getattr(hint, "array_type", hint) is np.ndarray:
        return isinstance(value, hint)
    return isinstance(value, _ARRAYS if hasattr(hint, "array_type") else (*_ARRAYS, *_NUMBERS))


def _is_instance(value: Any, cls: type) -> bool:
    if isinstance(value, str) and value == LEFT_OUT:
        return issubclass(cls, eqx.Module)
    try:
        # a layer may stand in the place of others, of which it says the classes
        return isinstance(value, cls) or any(issubclass(each, cls) for each in getattr(type(value), "stands_for", ()))
    except TypeError:  # a protocol that cannot be asked
        return True


@functools.cache
def _hints(cls: type) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError:  # imported for type checkers alone
        return {}


def _short(value: Any) -> str:
    text = f"an array {value.dtype} {value.shape}" if isinstance(value, _ARRAYS) else f"{value!r}"
    return text.splitlines()[0][:60] if text else text

"""What something is, by place: classes, numbers, hashes of arrays and of the user's code.

Two things with equal fingerprints compute the same. Code of libraries counts by its name, since their versions are
recorded; code of the user by its name and a hash of what it is compiled to.
"""

import dataclasses
import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax.files import registry
from marginax.files.tensors import pieces

__all__ = ["differences", "fingerprint"]

_LIBRARIES = {"builtins", "equinox", "jax", "jaxlib", "marginax", "numpy", "numpyro", "optax", "scipy", "sklearn"}
_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_MAX_DEPTH = 50
_MAX_TEXT = 60
_SHOWN = 3


def fingerprint(tree: Any) -> dict[str, str]:
    """A text for every place of a tree of objects.

    >>> fingerprint({"size": 3, "scales": (1.0, 2.0)})
    {'': 'dict of 2', 'size': '3', 'scales': 'tuple of 2', 'scales.0': '1.0', 'scales.1': '2.0'}
    """
    return dict(_walk(tree, (), frozenset()))


def differences(stored: Mapping[str, str], given: Mapping[str, str]) -> str:
    """In what two fingerprints differ, in words; nothing if they do not.

    >>> differences(fingerprint({"scale": 1.0}), fingerprint({"scale": 2.0}))
    'scale is 2.0, was 1.0'
    """
    found = []
    for place in [*stored, *(place for place in given if place not in stored)]:
        before, now = stored.get(place), given.get(place)
        if before != now and not _other_python(before, now):
            found.append(f"{place or 'it'} is {now or 'missing'}, was {before or 'missing'}")
    few = "; ".join(found[:_SHOWN])
    return few if len(found) <= _SHOWN else f"{few}; and {len(found) - _SHOWN} more"


def _walk(value: Any, place: tuple[str, ...], above: frozenset[int]) -> Iterator[tuple[str, str]]:
    path = ".".join(place)
    if id(value) in above or len(place) > _MAX_DEPTH:
        yield path, "itself"
        return
    text, parts = _describe(value)
    yield path, text
    for name, part in parts.items():
        yield from _walk(part, (*place, name), above | {id(value)})


def _describe(value: Any) -> tuple[str, dict[str, Any]]:
    """What is at a place, and what is below it."""
    cls = type(value)
    if value is None or cls in (bool, int, float, complex, str, bytes):
        text = repr(value)
        return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... {_sha(text.encode())}", {}
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value), {}
    if isinstance(value, Mapping):
        return f"dict of {len(value)}", {str(key): part for key, part in value.items()}
    if cls in (list, tuple, set, frozenset):
        items = value if cls in (list, tuple) else sorted(value, key=repr)
        return f"{cls.__name__} of {len(value)}", {str(i): part for i, part in enumerate(items)}
    if isinstance(value, np.dtype | ModuleType):
        return str(value) if isinstance(value, np.dtype) else value.__name__, {}
    if isinstance(value, type):
        return _class(value), {}
    if isinstance(value, functools.partial):
        return "partial", {"function": value.func, "args": value.args, "keywords": value.keywords}
    if inspect.ismethod(value):
        return "method", {"self": value.__self__, "function": value.__func__}
    if (name := registry.function_name(value)) is not None or inspect.isroutine(value) or hasattr(value, "__wrapped__"):
        return _function(value, name)
    return _class(cls), _fields(value)


def _fields(value: Any) -> dict[str, Any]:
    cls = type(value)
    if hasattr(value, "fingerprint_parts"):  # what a class says itself
        return value.fingerprint_parts()
    names = registry.field_names(cls)
    if names is None:
        names = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else None
    if names is None:
        names = sorted(getattr(value, "__dict__", ()))
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _array(value: Any) -> str:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    plain = np.asarray(value)
    if plain.dtype.kind in "OU":
        return f"{plain.dtype} {plain.shape} {_sha(repr(plain.tolist()).encode())}"
    if plain.size == 1 and plain.dtype.kind in "fiub" and plain.dtype.itemsize > 1:
        return f"{plain.dtype} {plain.shape} {plain.ravel()[0]:.9g} {_sha(plain.tobytes())}"
    digest = hashlib.sha256()
    for piece in pieces(plain):
        digest.update(piece)
    return f"{plain.dtype} {plain.shape} {digest.hexdigest()[:16]}"


def _function(value: Any, name: str | None) -> tuple[str, dict[str, Any]]:
    plain: Any = inspect.unwrap(value)
    text = f"function {name or getattr(plain, '__qualname__', repr(type(plain)))}"
    code = getattr(plain, "__code__", None)
    if code is None or _of_library(plain):
        return text, {}
    parts = {"defaults": plain.__defaults__, "keywords": plain.__kwdefaults__}
    if plain.__closure__:
        cells = zip(code.co_freevars, plain.__closure__, strict=True)
        parts |= {variable: cell.cell_contents for variable, cell in cells if _is_filled(cell)}
    return f"{text} {_code(code)}", {each: part for each, part in parts.items() if part is not None}


def _class(cls: type) -> str:
    text = registry.class_name(cls) or f"{cls.__module__}.{cls.__qualname__}"
    codes = []
    for each in cls.__mro__:
        if not _of_library(each):
            members: list[Any] = [getattr(member, "fget", member) for _, member in sorted(vars(each).items())]
            plain = [inspect.unwrap(m) if isinstance(m, Callable) else m for m in members]
            codes += [member.__code__ for member in plain if hasattr(member, "__code__") and _is_own(member, each)]
    return f"{text} {_code(*codes)}" if codes else text


def _is_own(member: Any, cls: type) -> bool:
    """Written in the class, and not made for it by a decorator such as `dataclass`."""
    return member.__module__ == cls.__module__ and member.__code__.co_filename != "<string>"


def _of_library(thing: Any) -> bool:
    return str(getattr(thing, "__module__", None)).partition(".")[0] in _LIBRARIES


def _code(*codes: CodeType) -> str:
    return f"{_PYTHON}/{_sha(repr([_plain_code(code) for code in codes]).encode())}"


def _plain_code(code: CodeType) -> Any:
    """What decides what it does, and not where it stands."""
    consts = [_plain_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code.hex(), consts, code.co_names, code.co_varnames, code.co_freevars


def _other_python(before: str | None, now: str | None) -> bool:
    """Whether two texts differ by the code of two versions of Python, which cannot be compared."""
    if before is None or now is None:
        return False
    (name, _, old), (other, _, new) = before.rpartition(" "), now.rpartition(" ")
    versions = {text.partition("/")[0] for text in (old, new)}
    return name == other and "/" in old and "/" in new and len(versions) == 2


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]

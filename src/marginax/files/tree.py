"""A tree of objects as a JSON document plus named arrays, and back.

JSON values stand for themselves (None, bool, int, finite float, str, list). Everything else is an object with
one of these tags under `"@"`; there is no tag that runs code or imports anything.

    tuple, dict, float (nan, inf), array, key (of JAX), dtype, function, partial, object (a registered class)
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax.files import format_1, registry
from marginax.files.error import FileError
from marginax.files.hints import check_object
from marginax.files.tensors import storable

__all__ = ["Document", "decode", "encode"]


Document = None | bool | int | float | str | list[Any] | dict[str, Any]

_MAX_DEPTH = 100
_MAX_WEAK_SIZE = 1024
_KEY_IMPLS = ("threefry2x32", "rbg", "unsafe_rbg")
# fmt: off
_DTYPES = (
    "bool", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn",
    "float8_e5m2",
)
# fmt: on

_Path = tuple[str, ...]


def encode(tree: Any) -> tuple[Document, dict[str, np.ndarray]]:
    """Turn a tree of objects into a JSON-able document and the arrays it refers to.

    Args:
        tree: None, bool, int, float, str, lists, tuples, dicts, NumPy and JAX arrays, JAX keys, dtypes,
            registered functions (and `functools.partial` of them) and instances of registered classes, nested
            in any way. Static fields of Equinox modules are stored like all others.

    Returns:
        The document, and the arrays by name. The names are the paths inside the tree.

    Raises:
        FileError: If something in the tree cannot be stored; it names the place.

    Example:
        >>> import numpy as np
        >>> from marginax.files import decode, encode
        >>> document, arrays = encode({"weight": np.ones(3), "sizes": (3, 1)})
        >>> list(arrays)
        ['weight']
        >>> decode(document, arrays)
        {'weight': array([1., 1., 1.]), 'sizes': (3, 1)}
    """
    arrays: dict[str, np.ndarray] = {}
    return _encode(tree, (), arrays), arrays


def decode(document: Document, arrays: Mapping[str, np.ndarray]) -> Any:
    """Build the tree again from what `encode` returned.

    Objects are made without calling their constructors: every field is set to what was stored. Arrays that
    were JAX arrays are JAX arrays again; NumPy arrays are those of `arrays`, not copies.

    Args:
        document: The document.
        arrays: The arrays by name.

    Returns:
        The tree.

    Raises:
        FileError: If the document is malformed, names a class or function that is not registered, or does not
            fit the fields of a class.

    Example:
        >>> from marginax.files import decode
        >>> decode({"@": "tuple", "items": [1, {"@": "float", "value": "inf"}]}, {})
        (1, inf)
    """
    return _decode(document, (), arrays)


def _place(path: _Path) -> str:
    return ".".join(path) or "the root"


def _encode(value: Any, path: _Path, arrays: dict[str, np.ndarray]) -> Document:
    if len(path) > _MAX_DEPTH:
        raise FileError(f"{_place(path[:8])}...: over {_MAX_DEPTH} levels deep, or it contains itself")
    cls = type(value)
    if value is None or cls in (bool, int, str):
        return value
    if cls is float:
        return value if math.isfinite(value) else {"@": "float", "value": repr(value)}
    if cls is list:
        return [_encode(item, (*path, str(i)), arrays) for i, item in enumerate(value)]
    if cls is tuple:
        return {
            "@": "tuple",
            "items": [_encode(item, (*path, str(i)), arrays) for i, item in enumerate(value)],
        }
    if cls is dict:
        return {"@": "dict", "items": [_encode_item(key, item, path, arrays) for key, item in value.items()]}
    if isinstance(value, jax.Array):
        return _encode_jax(value, path, arrays)
    if cls in (np.ndarray, np.memmap) or isinstance(value, np.generic):
        of = "scalar" if isinstance(value, np.generic) else "numpy"
        return {"@": "array", "name": _add_array(np.asarray(value), path, arrays), "of": of}
    if (function := registry.function_name(value)) is not None:
        return {"@": "function", "name": function}
    if (dtype := _dtype_document(value)) is not None:
        return dtype
    if cls is functools.partial:
        parts = {"function": value.func, "args": value.args, "keywords": dict(value.keywords)}
        return {"@": "partial"} | {name: _encode(part, (*path, name), arrays) for name, part in parts.items()}
    return _encode_object(value, path, arrays)


def _encode_item(key: Any, item: Any, path: _Path, arrays: dict[str, np.ndarray]) -> list[Document]:
    if not _valid_key(key):
        raise FileError(f"{_place(path)}: dict keys must be str, numbers, None or tuples, got {key!r:.80}")
    return [_encode(key, (*path, "key"), arrays), _encode(item, (*path, str(key)), arrays)]


def _encode_jax(value: jax.Array, path: _Path, arrays: dict[str, np.ndarray]) -> Document:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        impl = str(jax.random.key_impl(value))
        if impl not in _KEY_IMPLS:
            raise FileError(f"{_place(path)}: keys of type {impl!r} cannot be stored, only {', '.join(_KEY_IMPLS)}")
        return {
            "@": "key",
            "name": _add_array(np.asarray(jax.random.key_data(value)), path, arrays),
            "impl": impl,
        }
    of = "jax-weak" if value.weak_type and value.size <= _MAX_WEAK_SIZE else "jax"
    return {"@": "array", "name": _add_array(np.asarray(value), path, arrays), "of": of}


def _encode_object(value: Any, path: _Path, arrays: dict[str, np.ndarray]) -> Document:
    cls = type(value)
    fields = registry.field_names(cls)
    if fields is None:
        what = f"{_place(path)}: {value!r:.80}"
        if callable(value):
            raise FileError(f"{what} is not registered: call mx.register_function(name, fn) with it")
        raise FileError(f"{what} cannot be stored: type {cls.__qualname__}")
    name = registry.class_name(cls)
    if name is None:
        remedy = getattr(cls, "not_stored", "decorate it with @mx.register")
        raise FileError(f"{_place(path)}: class {cls.__name__!r} is not registered: {remedy}")
    document: dict[str, Any] = {}
    for field in fields:
        try:
            item = getattr(value, field)
        except AttributeError:
            raise FileError(f"{_place(path)}: field {field!r} of {cls.__name__} is not set") from None
        document[field] = _encode(item, (*path, field), arrays)
    return {"@": "object", "class": name, "fields": document}


def _add_array(value: np.ndarray, path: _Path, arrays: dict[str, np.ndarray]) -> str:
    if not storable(value.dtype):
        raise FileError(f"{_place(path)}: arrays of dtype {value.dtype} cannot be stored")
    name = ".".join(path) or "value"
    if len(name) > 200 or not name.isprintable() or name == "__metadata__" or name in arrays:
        name = f"array {len(arrays)}"
        while name in arrays:
            name += "'"
    arrays[name] = value
    return name


def _dtype_document(value: Any) -> Document:
    if isinstance(value, np.dtype):
        return {"@": "dtype", "name": value.name, "of": "numpy"} if value.name in _DTYPES else None
    for of, table in (("jax", _jax_types()), ("type", _numpy_types())):
        for name, known in table.items():
            if known is value:
                return {"@": "dtype", "name": name, "of": of}
    return None


@functools.cache
def _jax_types() -> Mapping[str, Any]:
    return {name: getattr(jnp, "bool_" if name == "bool" else name) for name in _DTYPES}


@functools.cache
def _numpy_types() -> Mapping[str, Any]:
    return {name: jnp.dtype(name).type for name in _DTYPES}


def _valid_key(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_valid_key, key))
    return key is None or type(key) in (str, int, float, bool)


def _decode(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> Any:
    if len(path) > _MAX_DEPTH:
        raise FileError(f"{_place(path[:8])}...: more than {_MAX_DEPTH} levels deep")
    cls = type(document)
    if document is None or cls in (bool, int, float, str):
        return document
    if cls is list:
        return [_decode(item, (*path, str(i)), arrays) for i, item in enumerate(document)]
    tag = document.get("@") if cls is dict else None
    form = _FORMS.get(tag) if isinstance(tag, str) else None
    if form is None:
        raise FileError(f"{_place(path)}: not a stored value (tag {tag!r:.80})")
    types, build = form
    if document.keys() != {"@", *types} or not all(isinstance(document[name], types[name]) for name in types):
        raise FileError(f"{_place(path)}: malformed {tag!r} entry")
    return build(document, path, arrays)


def _build_tuple(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
    return tuple(_decode(item, (*path, str(i)), arrays) for i, item in enumerate(document["items"]))


def _build_dict(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> dict[Any, Any]:
    result = {}
    for item in document["items"]:
        if type(item) is not list or len(item) != 2:
            raise FileError(f"{_place(path)}: malformed 'dict' entry")
        key = _decode(item[0], (*path, "key"), arrays)
        if not _valid_key(key) or key in result:
            raise FileError(f"{_place(path)}: dict key {key!r:.80} is repeated or of a wrong type")
        result[key] = _decode(item[1], (*path, str(key)), arrays)
    return result


def _build_float(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> float:
    if document["value"] not in ("nan", "inf", "-inf"):
        raise FileError(f"{_place(path)}: malformed 'float' entry")
    return float(document["value"])


def _stored_array(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    value = arrays.get(document["name"])
    if value is None:
        raise FileError(f"{_place(path)}: array {document['name']!r:.80} is missing")
    return value


def _build_array(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> Any:
    value = _stored_array(document, path, arrays)
    of = document["of"]
    if of == "numpy":
        return value
    if of == "scalar" and value.ndim == 0:
        return value[()]
    if of not in ("jax", "jax-weak") or (of == "jax-weak" and value.size > _MAX_WEAK_SIZE):
        raise FileError(f"{_place(path)}: malformed 'array' entry")
    if jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype:
        raise FileError(
            f"{_place(path)}: the stored JAX array is {value.dtype}, which needs 64-bit mode: "
            f"call jax.config.update('jax_enable_x64', True) before loading"
        )
    if of == "jax-weak" and value.size > 0:
        weak = jnp.stack([jnp.asarray(item) for item in value.ravel().tolist()]).reshape(value.shape)
        if weak.dtype == value.dtype:
            return weak
    return jnp.array(value)


def _build_key(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> jax.Array:
    data, impl = _stored_array(document, path, arrays), document["impl"]
    size = 2 if impl == "threefry2x32" else 4
    if impl not in _KEY_IMPLS or data.dtype != np.uint32 or data.ndim == 0 or data.shape[-1] != size:
        raise FileError(f"{_place(path)}: malformed 'key' entry")
    return jax.random.wrap_key_data(jnp.array(data), impl=impl)


def _build_dtype(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> Any:
    name, of = document["name"], document["of"]
    if name not in _DTYPES or of not in ("numpy", "type", "jax"):
        raise FileError(f"{_place(path)}: malformed 'dtype' entry")
    return {"numpy": jnp.dtype(name), "type": _numpy_types()[name], "jax": _jax_types()[name]}[of]


def _build_function(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> Callable[..., Any]:
    return _located(path, registry.function_named, document["name"])


def _build_partial(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> functools.partial[Any]:
    parts = [_decode(document[name], (*path, name), arrays) for name in ("function", "args", "keywords")]
    function, args, keywords = parts
    if not callable(function) or type(args) is not tuple or type(keywords) is not dict:
        raise FileError(f"{_place(path)}: malformed 'partial' entry")
    if not all(type(name) is str for name in keywords):
        raise FileError(f"{_place(path)}: malformed 'partial' entry")
    return functools.partial(function, *args, **keywords)


def _build_object(document: Any, path: _Path, arrays: Mapping[str, np.ndarray]) -> Any:
    known: str = format_1.classes().get(document["class"]) or document["class"]
    cls = _located(path, registry.class_named, known)
    expected = registry.field_names(cls) or ()
    stored, since = document["fields"], format_1.defaults(known, cls)  # of fields that are younger than the file
    if known != document["class"]:
        stored = format_1.upgrade(known, stored)
    for name in expected:
        if name not in stored and name not in since:
            raise FileError(f"{_place(path)}: field {name!r} of class {document['class']!r} is missing")
    for name in stored:
        if name not in expected:
            raise FileError(f"{_place(path)}: class {document['class']!r} has no field {name!r:.80}")
    values = {
        name: _decode(stored[name], (*path, name), arrays) if name in stored else since[name] for name in expected
    }
    _located(path, lambda _: check_object(cls, values), known)
    if issubclass(cls, tuple):
        return tuple.__new__(cls, values.values())
    try:
        result = object.__new__(cls)
    except TypeError as error:
        raise FileError(f"{_place(path)}: class {document['class']!r} cannot be built: {error}") from None
    for name, value in values.items():
        object.__setattr__(result, name, value)  # frozen, and converters have run already
    return _located(path, lambda _: _checked(result, values), known)


def _checked(result: Any, values: Mapping[str, Any]) -> Any:
    """The object, if its constructor would have taken these values; arrays may be stacked, and are not looked at."""
    if not any(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(values)):
        for cls in type(result).__mro__:
            if "__check_init__" in vars(cls):
                try:
                    cls.__check_init__(result)
                except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                    raise FileError(f"not a {type(result).__name__}: {' '.join(str(error).split()):.200}") from error
    return result


def _located(path: _Path, find: Callable[[str], Any], name: str) -> Any:
    try:
        return find(name)
    except FileError as error:
        raise FileError(f"{_place(path)}: {error}") from None


# Of every tag: the entries besides "@" with their types, and what builds the value.
_ANY = object
_FORMS: dict[str, tuple[dict[str, type], Callable[..., Any]]] = {
    "tuple": ({"items": list}, _build_tuple),
    "dict": ({"items": list}, _build_dict),
    "float": ({"value": str}, _build_float),
    "array": ({"name": str, "of": str}, _build_array),
    "key": ({"name": str, "impl": str}, _build_key),
    "dtype": ({"name": str, "of": str}, _build_dtype),
    "function": ({"name": str}, _build_function),
    "partial": ({"function": _ANY, "args": _ANY, "keywords": _ANY}, _build_partial),
    "object": ({"class": str, "fields": dict}, _build_object),
}

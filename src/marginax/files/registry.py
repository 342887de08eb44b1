"""Which classes and functions may be stored in files, and under which names.

A file holds names; the registry turns a name into a class or a function that the running program already has. Names are
frozen: a class may be moved and renamed, its name in files stays (`files/format_1.py` has those of the first version).
Equinox layers, Optax states and the usual activations are known from the start (looked up on first use).
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from marginax.files.error import FileError

__all__ = [
    "class_name",
    "class_named",
    "field_names",
    "function_name",
    "function_named",
    "register",
    "register_function",
    "register_on_demand",
]

_F = TypeVar("_F", bound=Callable[..., Any])

_classes: dict[str, type] = {}
_names: dict[str, str] = {}  # by where a class is defined
_on_demand: list[Callable[[], object]] = []
_functions: dict[str, Callable[..., Any]] = {}

# Prefixes of the names of the built-in entries, so that a user's `MLP` never meets Equinox's.
_RESERVED = ("eqx.", "jax.", "jnp.", "lax.", "optax.")

# fmt: off
_ACTIVATIONS = (
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_tanh", "identity", "leaky_relu",
    "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign",
    "softmax", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "standardize", "tanh",
)
_NUMPY_FUNCTIONS = (
    "abs", "arctan", "asarray", "cos", "cosh", "exp", "expm1", "log", "log1p", "max", "mean", "min",
    "negative", "ravel", "sign", "sin", "sinh", "sqrt", "square", "squeeze", "sum", "tan", "transpose",
)
_LAX_FUNCTIONS = (
    "add", "erf", "exp", "logistic", "max", "min", "mul", "rsqrt", "stop_gradient", "sub",
)
# fmt: on


def register(name: str | type) -> Any:
    """Let instances of a class be stored in files (class decorator).

    The name is what files hold, and stays when the class is moved or renamed: `@register("prior/normal")`. Without a
    name, as `@register`, a class is known by its own. Defining the same class again (a notebook cell that is run twice)
    replaces it; another class under the same name is an error.

    Args:
        name: The name in files; or the class, an `equinox.Module`, a dataclass or a `NamedTuple`.

    Returns:
        The class, unchanged, or what decorates it.

    Example:
        >>> import equinox as eqx
        >>> import marginax.files as files
        >>> @files.register("example/doubling")
        ... class Doubling(eqx.Module):
        ...     factor: float = 2.0
        >>> document, arrays = files.encode(Doubling(3.0))
        >>> document["class"], files.decode(document, arrays).factor
        ('example/doubling', 3.0)
    """
    if isinstance(name, str):
        return lambda cls: _register(cls, name)
    if not isinstance(name, type):
        raise TypeError(f"register takes a class, got {name!r}: use register_function(name, fn) for functions")
    return _register(name, name.__name__)


def _register(cls: type, name: str) -> type:
    if field_names(cls) is None:
        raise TypeError(f"cls must be an equinox.Module, a dataclass or a NamedTuple, got {cls.__qualname__}")
    known = _classes.get(name)
    if known is not None and not _same_origin(known, cls):
        raise ValueError(
            f"a class named {name!r} is registered already ({_origin(known)}), "
            f"and {_origin(cls)} would take its place in files: rename one of them"
        )
    _check_name(name)
    _classes[name] = cls
    _names[_origin(cls)] = name
    return cls


def register_on_demand(load: Callable[[], object]) -> None:
    """Classes that are registered when they are first looked for: `load` is called for a name that nobody knows."""
    _on_demand.append(load)


def register_function(name: str, fn: _F) -> _F:
    """Let a function (an activation, a feature map) be stored in files by name.

    Args:
        name: The name in files. Names that start with `jax.`, `jnp.`, `lax.`, `eqx.` or `optax.` are taken.
        fn: The function; it is recognised by identity.

    Returns:
        The function, unchanged.

    Example:
        >>> import marginax.files as files
        >>> def cube(x):
        ...     return x**3
        >>> _ = files.register_function("cube", cube)
        >>> document, arrays = files.encode(cube)
        >>> files.decode(document, arrays) is cube
        True
    """
    _check_name(name)
    if not callable(fn):
        raise TypeError(f"fn must be callable, got {fn!r}")
    known = _functions.get(name)
    if known is not None and known is not fn and not _same_origin(known, fn):
        raise ValueError(f"a function named {name!r} is registered already: choose another name")
    _functions[name] = fn
    return fn


def class_name(cls: type) -> str | None:
    """The name of a class in files, or None when it is not registered."""
    name = _names.get(_origin(cls))
    if name is not None and (_classes[name] is cls or _same_origin(_classes[name], cls)):
        return name
    return _builtin_class_names().get(cls)


def class_named(name: str) -> type:
    """The registered class of that name, or a `FileError`."""
    return _named(
        name, _classes, _builtin_classes, f"class {name!r}", "decorate it with @mx.register or pass model=..."
    )


def function_name(fn: object) -> str | None:
    """The name of a function in files, or None when it is not registered."""
    for name, known in _functions.items():
        if known is fn:
            return name
    return _builtin_function_names().get(id(fn))


def function_named(name: str) -> Callable[..., Any]:
    """The registered function of that name, or a `FileError`."""
    return _named(
        name, _functions, _builtin_functions, f"function {name!r}", f"call register_function({name!r}, fn) first"
    )


def _named(name: str, own: Mapping[str, Any], builtin: Callable[[], Mapping[str, Any]], what: str, remedy: str) -> Any:
    """What has that name; if nobody knows it, what waits is loaded, last first, until somebody does."""
    failures = []
    for load in (None, *reversed(_on_demand)):
        if load is not None:
            try:
                load()
            except ImportError as error:  # a library that is not installed is no reason not to read other files
                failures.append(str(error))
            else:
                _on_demand.remove(load)
        if (found := own.get(name) or builtin().get(name)) is not None:
            return found
    reasons = f" ({'; '.join(failures)})" if failures else ""
    raise FileError(f"{what} is not registered: {remedy}{reasons}")


def field_names(cls: type) -> tuple[str, ...] | None:
    """The fields of a dataclass or a `NamedTuple` in order, None for any other class."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return cls._fields  # pyright: ignore[reportAttributeAccessIssue]
    return None


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"name must be a non-empty printable string, got {name!r}")
    if name.startswith(_RESERVED):
        raise ValueError(f"name must not start with any of {', '.join(_RESERVED)}, got {name!r}")


def _origin(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '?')}.{getattr(thing, '__qualname__', '?')}"


def _same_origin(a: Any, b: Any) -> bool:
    # The same definition run again; lambdas all share one name, so they never count as the same.
    return _origin(a) == _origin(b) and "<lambda>" not in _origin(a) and "?" not in _origin(a)


@functools.cache
def _builtin_classes() -> Mapping[str, type]:
    import equinox as eqx
    import optax

    found: dict[str, type] = {}
    for prefix, module in (("eqx.nn.", eqx.nn), ("optax.", optax)):
        for name, cls in vars(module).items():
            if name.startswith("_") or not isinstance(cls, type) or inspect.isabstract(cls):
                continue
            if (issubclass(cls, eqx.Module) or name.endswith("State")) and field_names(cls) is not None:
                found[prefix + name] = cls
    return found


@functools.cache
def _builtin_class_names() -> Mapping[type, str]:
    return {cls: name for name, cls in _builtin_classes().items()}


@functools.cache
def _builtin_functions() -> Mapping[str, Callable[..., Any]]:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    found: dict[str, Any] = {f"optax.{name}": fn for name, fn in vars(optax).items() if inspect.isfunction(fn)}
    tables = (
        ("jax.nn.", jax.nn, _ACTIVATIONS),
        ("jnp.", jnp, _NUMPY_FUNCTIONS),
        ("lax.", jax.lax, _LAX_FUNCTIONS),
    )
    for prefix, module, names in tables:
        found.update({prefix + name: getattr(module, name) for name in names if hasattr(module, name)})
    # Functions that Equinox layers hold: the default last activation of MLP, the norm of WeightNorm.
    found["eqx.nn.identity"] = inspect.signature(eqx.nn.MLP.__init__).parameters["final_activation"].default
    module = inspect.getmodule(eqx.nn.WeightNorm)
    found["eqx.nn.norm_except_axis"] = getattr(module, "_norm_except_axis", None)
    found["jnp.linalg.norm"] = jnp.linalg.norm
    return {name: fn for name, fn in found.items() if callable(fn)}


@functools.cache
def _builtin_function_names() -> Mapping[int, str]:
    # Reversed so that of two names of one function the first one listed is written.
    return {id(fn): name for name, fn in reversed(list(_builtin_functions().items()))}

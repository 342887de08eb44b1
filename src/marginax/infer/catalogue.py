"""What exists, when to use it, and what it costs: the list behind `mx.infer`, `marginax methods` and docs/methods.md.

A method enters it where it is defined, by `@register_method`; nothing else has to be told.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from marginax.files import register
from marginax.files.registry import class_name
from marginax.infer.method import AbstractMethod

_M = TypeVar("_M", bound=type[AbstractMethod])


@dataclass(frozen=True)
class Entry:
    """A method with its defaults, in words."""

    name: str
    method: AbstractMethod
    gives: str
    use_when: str
    cost: str


_listed: dict[str, tuple[int, type[AbstractMethod], str | None, tuple[str, str, str]]] = {}  # by name in files


def register_method(
    name: str, *, gives: str, use_when: str, cost: str, order: int, only_for: str | None = None
) -> Callable[[_M], _M]:
    """Let a method be stored in files and listed in the catalogue (class decorator).

    Args:
        name: in files, frozen, such as "method/nuts".
        gives: what kind of posterior comes out, in a few words.
        use_when: it is the right one.
        cost: with defaults.
        order: its place in the catalogue, from the cheapest to the most exact.
        only_for: the models that it is for, such as "mx.Program"; None if it takes networks.
    """

    def enter(cls: _M) -> _M:
        _listed[name] = (order, cls, only_for, (gives, use_when, cost))
        return register(name)(cls)

    return enter


def catalogue(only_for: str | None = None) -> tuple[Entry, ...]:
    """Every method for networks, from the cheapest to the most exact; or those that are only for other models.

    >>> [entry.name for entry in catalogue()][:2], [entry.name for entry in catalogue("mx.latent")]
    (['MLE', 'MAP'], ['EM', 'CoordinateAscent'])
    """
    listed = sorted((line for line in _listed.values() if line[2] == only_for), key=lambda line: line[0])
    return tuple(Entry(cls.__name__, cls(), *words) for _, cls, _, words in listed)


def method_named(name: str) -> AbstractMethod:
    """A method with its defaults; case and underscores do not matter.

    >>> type(method_named("deep_ensemble")).__name__
    'DeepEnsemble'
    """
    wanted = re.sub(r"[\s_-]", "", name).lower()
    known = {cls.__name__.lower(): cls for _, cls, _, _ in _listed.values()}
    if wanted not in known:
        names = ", ".join(sorted(cls.__name__ for cls in known.values()))
        raise ValueError(f"method must be an object from mx.infer, or one of {names}, got {name!r}")
    return known[wanted]()


def as_method(method: Any) -> Any:
    """The method that a name stands for; everything else is returned as it is."""
    return method_named(method) if isinstance(method, str) else method


def is_public(value: object) -> bool:
    """Whether `mx.infer` exports it: a method of the catalogue, or a choice that methods take and files can hold."""
    name = class_name(value) if isinstance(value, type) else None
    return name is not None and (name in _listed or not name.startswith("method/"))

"""Files of format 1 (version 0.1.0), where a class was called by the file that it lived in."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

FIELDS: dict[str, dict[str, str]] = {
    "acquisition/batch_bald": {"num_samples": "num_configurations"},
    "method/nuts": {"scale": "metric", "max_doublings": "max_tree_depth"},
    "method/hmc": {"scale": "metric"},
    "method/mala": {"scale": "metric"},
    "method/metropolis_hastings": {"scale": "metric"},
    "method/adjusted_mclmc": {"scale": "metric"},
    "curvature_kind/monte_carlo_fisher": {"num_samples": "num_targets"},
    "method/sgnht": {"rate": "coupling"},
    "method/vi": {"num_samples": "num_particles"},
    "method/bayes_by_backprop": {"num_samples": "num_particles"},
    "method/concrete_dropout": {"temperature": "relaxation"},
    "method/parallel_tempering": {"hottest": "max_temperature", "path_length": "num_leapfrog"},
}
"""Fields that have other names today, by the name of the class today."""

SINCE: dict[str, dict[str, Any]] = {"likelihood/from_network": {"gain": 1.0, "offset": 0.0}}
"""What fields that came later were without a name, where that is not their default."""

KINDS = ("setup", "posterior", "study", "comparison", "estimator", "held out")
"""Of bundles that consist of named parts today."""

KEYS = {"setup": "key", "study": "study/key"}
"""Arrays that are parts called key today."""

PHASES = {"adapt": "warmup"}
"""Phases that have other names today."""


@functools.cache
def classes() -> dict[str, str]:
    """Names of today by those that files of format 1 hold, which never change.

    >>> classes()["real.Gaussian"]
    'likelihood/gaussian'
    """
    return json.loads(Path(__file__).with_name("format_1.json").read_text(encoding="utf-8"))


def upgrade(name: str, stored: dict[str, Any]) -> dict[str, Any]:
    """Stored fields under their names of today.

    >>> upgrade("method/nuts", {"num_samples": 500, "max_doublings": 8})
    {'num_samples': 500, 'max_tree_depth': 8}
    >>> upgrade("prior/by_path", {"rules": {"@": "dict", "items": [["*/bias", 1.0]]}})
    {'patterns': {'@': 'tuple', 'items': ['*/bias']}, 'priors': {'@': 'tuple', 'items': [1.0]}}
    """
    if name == "prior/by_path":  # rules were a dict, whose order is lost in JAX
        stored = dict(stored)
        pairs = _items(stored.pop("rules"))
        patterns, priors = ({"@": "tuple", "items": [pair[i] for pair in pairs]} for i in (0, 1))
        return {"patterns": patterns, "priors": priors, **stored}
    return {FIELDS.get(name, {}).get(field, field): value for field, value in stored.items()}


def defaults(name: str, cls: type) -> dict[str, Any]:
    """What the fields of a class are where a file is older than they are.

    >>> @dataclasses.dataclass
    ... class Line:
    ...     slope: float
    ...     intercept: int = 0
    >>> defaults("line", Line)
    {'intercept': 0}
    """
    found = {}
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found | SINCE.get(name, {})


def document(kind: str, stored: Any, arrays: dict[str, Any]) -> Any:
    """The document of a bundle as it is written today.

    Parts were one tree, or not wrapped, and the key of a run was a bare array; phases had other names.

    >>> document("estimator", {"@": "dict", "items": [["size", 3]]}, {})
    {'size': {'stored': 3}}
    >>> document("checkpoint", {"cursor": {"num_steps": {"adapt": 3}}}, {})
    {'cursor': {'num_steps': {'warmup': 3}}}
    """
    if kind == "checkpoint":
        return {**stored, "cursor": {name: _renamed(value) for name, value in stored["cursor"].items()}}
    if kind not in KINDS or not isinstance(stored, dict):
        return stored
    parts = dict(_items(stored))
    found = {name: _wrapped(part) for name, part in parts.items()}
    if kind in KEYS:
        found["key"] = {"stored": {"@": "key", "name": KEYS[kind], "impl": "threefry2x32"}}
    return found


def _items(stored: dict[str, Any]) -> list[Any]:
    return stored["items"] if stored.get("@") == "dict" else list(stored.items())


def _renamed(value: Any) -> Any:
    return {PHASES.get(name, name): each for name, each in value.items()} if isinstance(value, dict) else value


def _wrapped(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict) or "@" in part:
        return {"stored": part}
    if "stored" in part or "missing" in part:
        return part
    return {"stored": {"@": "dict", "items": [list(item) for item in part.items()]}}

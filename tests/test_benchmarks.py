"""Benchmarks are run by hand; that they could be, all names that they use being there, is seen here."""

import ast
import importlib
from pathlib import Path

import pytest
from benchmarks.__main__ import NAMES

import marginax as mx

FOLDER = Path(__file__).parents[1] / "benchmarks" / "entries"


def chain_of(node):
    """The names of `a.b.c`, or none."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def missing(tree):
    """What is imported from marginax, or reached by `mx.`, and not there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "marginax":
            module = importlib.import_module(node.module)
            for each in node.names:
                if not hasattr(module, each.name):
                    try:
                        importlib.import_module(f"{node.module}.{each.name}")
                    except ModuleNotFoundError:
                        yield f"{node.module}.{each.name}"
        elif isinstance(node, ast.Attribute) and (chain := chain_of(node))[:1] == ["mx"]:
            found = mx
            for name in chain[1:]:
                if not hasattr(found, name):
                    yield ".".join(chain)
                    break
                found = getattr(found, name)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_can_be_imported_and_its_names_are_there(name):
    entry = importlib.import_module(f"benchmarks.entries.{name}")
    assert hasattr(entry, "ENTRY") or callable(entry.main)
    assert list(missing(ast.parse((FOLDER / f"{name}.py").read_text()))) == []

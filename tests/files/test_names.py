"""Names in files are frozen: what was stored once is found for ever.

A new class or function: add its name to names_in_files.txt, in alphabetical order. A name that is there is never
removed or changed; the class behind it may be renamed and moved. If two classes become one,
give the old name to the other by `files/format_1.py` or a table like it, and only then take its line out.
"""

import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import marginax as mx
from marginax.files import FileError, format_1, register_on_demand, registry

NAMES = Path(__file__).with_name("names_in_files.txt")
OLD_NAMES = Path(__file__).with_name("names_of_format_1.txt")


def registered():
    """All names that marginax registers, with everything loaded."""
    for module in pkgutil.walk_packages(mx.__path__, "marginax."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    known = registry._classes | registry._functions
    return {name for name, thing in known.items() if is_ours(thing)}


def is_ours(thing):
    """Whether it is defined in marginax, and not in an example of one of its docstrings."""
    inside = thing.__module__.partition(".")[0] == "marginax"
    return inside and getattr(sys.modules[thing.__module__], thing.__name__, None) is thing


def complaint(names, frozen):
    """What is wrong with the names of today, in words; None if nothing is."""
    if gone := sorted(set(frozen) - set(names)):
        return f"files hold these names, and nothing is registered under them any more: {', '.join(gone)}"
    if new := sorted(set(names) - set(frozen)):
        return f"new names in files; add them to {NAMES.name}, they stay for ever: {', '.join(new)}"
    return None


def test_the_list_of_names_in_files_is_frozen():
    frozen = NAMES.read_text().splitlines()
    assert frozen == sorted(frozen)
    assert complaint(registered(), frozen) is None


def test_a_name_that_is_removed_renamed_or_forgotten_is_noticed():
    frozen = NAMES.read_text().splitlines()
    assert "any more: method/nuts" in complaint(set(frozen) - {"method/nuts"}, frozen)
    assert "any more: method/nuts" in complaint(set(frozen) - {"method/nuts"} | {"method/no_u_turn"}, frozen)
    assert "add them to names_in_files.txt" in complaint({*frozen, "method/new"}, frozen)


def test_the_names_of_format_1_are_frozen_and_lead_to_names_of_today():
    old = OLD_NAMES.read_text().splitlines()
    assert sorted(format_1.classes()) == old
    assert set(format_1.classes().values()) <= set(NAMES.read_text().splitlines())


def test_a_loader_that_lacks_a_library_does_not_keep_others_from_loading(monkeypatch):
    calls = []

    def lacking():
        calls.append("lacking")
        raise ImportError("sklearn is not installed: pip install 'marginax[tables]'")

    def good():
        calls.append("good")
        registry._classes["example/later"] = dict

    monkeypatch.setattr(registry, "_on_demand", [])
    register_on_demand(good)
    register_on_demand(lacking)
    try:
        assert registry.class_named("example/later") is dict
    finally:
        del registry._classes["example/later"]
    assert calls == ["lacking", "good"]
    with pytest.raises(FileError, match=r"'example/never' is not registered.*sklearn is not installed: pip install"):
        registry.class_named("example/never")
    with pytest.raises(FileError, match=r"'never' is not registered.*sklearn is not installed: pip install"):
        registry.function_named("never")

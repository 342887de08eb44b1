import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import pytest

from marginax.files import FileError, register, register_function
from marginax.files.registry import class_name, class_named, function_name, function_named


def make_class(name, module=__name__):
    cls = dataclasses.make_dataclass(name, [("x", int)], frozen=True)
    cls.__module__ = module
    return cls


def test_register_returns_the_class():
    cls = make_class("Returned")
    assert register(cls) is cls
    assert class_named("Returned") is cls
    assert class_name(cls) == "Returned"


def test_register_takes_modules_dataclasses_and_named_tuples():
    class RegistryModule(eqx.Module):
        pass

    class RegistryTuple(NamedTuple):
        x: int

    for cls in (RegistryModule, RegistryTuple):
        assert class_named(register(cls).__name__) is cls


def test_two_classes_of_one_name_are_refused():
    register(make_class("Twice"))
    with pytest.raises(ValueError, match="'Twice' is registered already"):
        register(make_class("Twice", module="elsewhere"))


def test_the_same_definition_run_again_replaces_the_first():
    first, second = make_class("Again"), make_class("Again")
    register(first)
    register(second)
    assert class_named("Again") is second
    assert class_name(first) == "Again"  # objects made before are still stored


@pytest.mark.parametrize("cls", [int, type("Plain", (), {})])
def test_classes_without_fields_are_refused(cls):
    with pytest.raises(TypeError, match=r"must be an equinox\.Module"):
        register(cls)


def test_unregistered_class_names_the_remedy():
    with pytest.raises(FileError, match=r"class 'NoNet' is not registered: decorate it with @mx\.register or pass"):
        class_named("NoNet")


@pytest.mark.parametrize("name", ["jax.nn.mine", "eqx.nn.Linear", "", "a\nb"])
def test_reserved_and_unprintable_function_names_are_refused(name):
    with pytest.raises(ValueError, match="name must"):
        register_function(name, lambda x: x)


def test_two_functions_of_one_name_are_refused():
    first = lambda x: x  # noqa: E731
    register_function("one_name", first)
    register_function("one_name", first)
    with pytest.raises(ValueError, match="'one_name' is registered already"):
        register_function("one_name", lambda x: 2 * x)
    assert function_named("one_name") is first


@pytest.mark.parametrize("name", ["relu", "gelu", "tanh", "sigmoid", "silu", "softplus", "elu", "identity"])
def test_activations_are_known_by_identity(name):
    fn = getattr(jax.nn, name)
    assert function_named(function_name(fn)) is fn
    assert function_name(lambda x: fn(x)) is None


def test_every_equinox_layer_is_known():
    layers = {
        cls
        for name, cls in vars(eqx.nn).items()
        if isinstance(cls, type) and issubclass(cls, eqx.Module) and name != "StatefulLayer"
    }
    assert len(layers) >= 40
    for cls in layers:
        assert class_named(class_name(cls)) is cls


def test_a_users_mlp_does_not_meet_equinox_s():
    cls = make_class("MLP", module="a_user")
    assert class_name(eqx.nn.MLP) == "eqx.nn.MLP"
    assert class_name(cls) in (None, "MLP")

import functools
import json
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

from marginax.files import FileError, decode, encode, register, register_function


def through_json(tree):
    document, arrays = encode(tree)
    return decode(json.loads(json.dumps(document, allow_nan=False)), arrays)


def assert_same(a: Any, b: Any) -> None:
    """Equal in type, structure and value, bit for bit."""
    assert type(a) is type(b)
    if isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_array_equal(jax.random.key_data(a), jax.random.key_data(b))
    elif isinstance(a, np.ndarray | np.generic | jax.Array):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        assert getattr(a, "weak_type", None) == getattr(b, "weak_type", None)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, float):
        assert a == b or (math.isnan(a) and math.isnan(b))
        assert math.copysign(1, a) == math.copysign(1, b) or math.isnan(a)
    elif (hasattr(a, "__dict__") and not callable(a)) or isinstance(a, eqx.Module):
        assert_same(vars(a), vars(b))
    else:
        assert a == b


@register
class Scaled(eqx.Module):
    weight: jax.Array
    bias: jax.Array | None
    factor: float = eqx.field(converter=float)
    sizes: tuple[int, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True, default="scaled")

    def __check_init__(self):
        if self.factor < 0:
            raise ValueError("never checked on loading: the fields are set as they were stored")


@register
class Nested(eqx.Module):
    inner: Scaled
    others: list[Scaled]
    activation: Any


@register
@dataclass(frozen=True)
class Settings:
    step: float
    mode: str = "fast"
    count: int = field(default=0, init=False)


@register
class Point(NamedTuple):
    x: Any
    y: Any


def scaled(seed=0):
    return Scaled(jnp.full((2, 3), seed, jnp.float32), None, 2, (3, 2))


PLAIN = {
    "none": None,
    "bool": [True, False],
    "int": [0, -1, 2**53 + 1, 10**30],
    "float": [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, 1.0],
    "special": [math.nan, math.inf, -math.inf],
    "str": ["", "a", "@", "naïve ∂", "\x00\n", '"}'],
    "tuple and list": [(), [], (1,), [1], ((1, [2]), [(3,)])],
    "dict": [{}, {"@": "tuple", "items": []}, {1: "a", "1": "b", (2, None): {"c": 1.5}}],
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_come_back(name):
    assert_same(through_json(PLAIN[name]), PLAIN[name])


# fmt: off
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64",
]
# fmt: on


@pytest.mark.parametrize("dtype", [*map(np.dtype, DTYPES), np.dtype(ml_dtypes.bfloat16)], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)], ids=str)
def test_numpy_arrays_come_back(dtype, shape):
    value = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    assert_same(through_json(value), value)


@pytest.mark.parametrize(
    "value",
    [
        jnp.arange(3.0),
        jnp.zeros((), jnp.int32),
        jnp.ones((2, 2), jnp.bfloat16),
        jnp.array([jnp.nan, jnp.inf, -0.0]),
        jnp.asarray(1.5),  # weakly typed
        jnp.full((2, 2), 3),
        jnp.zeros((0, 2)),
        jnp.array([True, False]),
    ],
    ids=lambda value: f"{value.dtype}{list(value.shape)}{'weak' * value.weak_type}",
)
def test_jax_arrays_come_back_as_jax_arrays(value):
    assert_same(through_json(value), value)


def test_numpy_scalars_keep_their_type():
    for value in (np.float32(0.1), np.float64("nan"), np.int8(3), np.bool_(True)):
        assert_same(through_json(value), value)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("num", [None, 3])
def test_typed_keys_come_back(impl, num):
    key = jax.random.key(7, impl=impl)
    key = key if num is None else jax.random.split(key, num)
    back = through_json({"key": key})["key"]
    assert_same(back, key)


@pytest.mark.parametrize(
    "value",
    [np.dtype("float32"), jnp.dtype("bfloat16"), np.float32, jnp.float32, jnp.bfloat16, np.int64, jnp.bool_],
    ids=str,
)
def test_dtypes_come_back_as_the_same_object(value):
    assert through_json(value) is value or through_json(value) == value
    assert type(through_json(value)) is type(value)


def test_modules_come_back_with_static_converted_and_empty_fields():
    module = Nested(scaled(0), [scaled(1), scaled(2)], jax.nn.relu)
    back = through_json(module)
    assert type(back) is Nested
    assert back.inner.factor == 2.0
    assert back.inner.sizes == (3, 2)
    assert back.inner.bias is None
    assert back.activation is jax.nn.relu
    assert_same_module(back, module)


def test_dataclasses_and_named_tuples_come_back():
    settings = Settings(0.1, "slow")
    assert through_json(settings) == settings
    point = Point((1, 2), Point(np.float64(1.0), None))
    back = through_json(point)
    assert type(back) is Point
    assert type(back.y) is Point
    assert_same(tuple(back.y), tuple(point.y))


def test_optimiser_states_come_back():
    state = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)).init({"w": jnp.ones(3)})
    back = through_json(state)
    assert_same_module(back, state)


LAYERS = {
    "Linear": lambda key: eqx.nn.Linear(3, 2, key=key),
    "Linear without bias": lambda key: eqx.nn.Linear(3, 2, use_bias=False, key=key),
    "Identity": lambda key: eqx.nn.Identity(),
    "Dropout": lambda key: eqx.nn.Dropout(0.3, inference=True),
    "MLP": lambda key: eqx.nn.MLP(3, 2, 5, 2, activation=jnp.tanh, key=key),
    "MLP scanned": lambda key: eqx.nn.MLP(3, "scalar", 5, 3, jax.nn.gelu, scan=True, key=key),
    "Sequential": lambda key: eqx.nn.Sequential([eqx.nn.Linear(3, 4, key=key), eqx.nn.Lambda(jax.nn.silu)]),
    "LayerNorm": lambda key: eqx.nn.LayerNorm(3),
    "RMSNorm": lambda key: eqx.nn.RMSNorm(3),
    "GroupNorm": lambda key: eqx.nn.GroupNorm(2, 4),
    "Conv1d": lambda key: eqx.nn.Conv1d(2, 3, 3, key=key),
    "Conv2d": lambda key: eqx.nn.Conv2d(2, 3, 3, padding="SAME", key=key),
    "Conv3d": lambda key: eqx.nn.Conv3d(1, 2, 2, key=key),
    "ConvTranspose1d": lambda key: eqx.nn.ConvTranspose1d(2, 3, 3, key=key),
    "ConvTranspose2d": lambda key: eqx.nn.ConvTranspose2d(2, 3, 3, stride=2, key=key),
    "AvgPool2d": lambda key: eqx.nn.AvgPool2d(2, 2),
    "MaxPool3d": lambda key: eqx.nn.MaxPool3d(2, 2),
    "AdaptiveAvgPool1d": lambda key: eqx.nn.AdaptiveAvgPool1d(2),
    "AdaptiveMaxPool2d": lambda key: eqx.nn.AdaptiveMaxPool2d(2),
    "PReLU": lambda key: eqx.nn.PReLU(),
    "WeightNorm": lambda key: eqx.nn.WeightNorm(eqx.nn.Linear(3, 2, key=key)),
    "RotaryPositionalEmbedding": lambda key: eqx.nn.RotaryPositionalEmbedding(4),
    "MultiheadAttention": lambda key: eqx.nn.MultiheadAttention(2, 4, key=key),
    "GRUCell": lambda key: eqx.nn.GRUCell(3, 2, key=key),
    "LSTMCell": lambda key: eqx.nn.LSTMCell(3, 2, key=key),
    "Embedding": lambda key: eqx.nn.Embedding(3, 2, key=key),
}


def make(name):
    # The structure from abstract evaluation, with numbers of our own: nothing has to be compiled.
    layer = eqx.filter_eval_shape(LAYERS[name], jax.eval_shape(lambda: jax.random.key(0)))

    def fill(leaf):
        return jnp.asarray(np.linspace(-1, 1, leaf.size).reshape(leaf.shape).astype(leaf.dtype))

    return jax.tree.map(lambda leaf: fill(leaf) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, layer)


def assert_same_module(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if isinstance(x, functools.partial):
            assert_same([x.func, x.args], [y.func, y.args])
            assert repr(x.keywords) == repr(y.keywords)
        else:
            assert_same(x, y)


@pytest.mark.parametrize("name", LAYERS)
def test_equinox_layers_come_back(name):
    layer = make(name)
    assert_same_module(through_json(layer), layer)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("MLP", (3,)), ("MLP scanned", (3,)), ("MaxPool3d", (1, 4, 4, 4)), ("WeightNorm", (3,))],
)
def test_equinox_layers_compute_the_same(name, shape):
    layer = make(name)
    x = jnp.asarray(np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape))
    call = eqx.filter_jit(lambda net, x: net(x))
    np.testing.assert_array_equal(call(through_json(layer), x), call(layer, x))


def test_loaded_modules_are_frozen_and_compile_like_the_original():
    mlp = make("MLP")
    back = through_json(mlp)
    with pytest.raises(AttributeError):
        back.depth = 3
    traces = []

    @eqx.filter_jit
    def call(net, x):
        traces.append(1)
        return net(x)

    np.testing.assert_array_equal(call(mlp, jnp.ones(3)), call(back, jnp.ones(3)))
    assert len(traces) == 1


def test_partials_of_known_functions_come_back():
    back = through_json(functools.partial(jax.nn.leaky_relu, negative_slope=0.3))
    np.testing.assert_array_equal(back(-1.0), jax.nn.leaky_relu(-1.0, 0.3))


def test_registered_functions_come_back():
    @functools.partial(register_function, "tree_test_cube")
    @jax.jit
    def cube(x):
        return x**3

    assert through_json([cube])[0] is cube


def test_array_names_are_paths_and_never_meet():
    tree = {"a": {"b": np.ones(1)}, "a.b": np.zeros(1), "__metadata__": np.ones(2), "x" * 300: np.ones(3)}
    document, arrays = encode(tree)
    assert next(iter(arrays)) == "a.b"
    assert len(arrays) == 4
    assert "__metadata__" not in arrays
    assert_same(decode(document, arrays), tree)


class Unregistered(eqx.Module):
    x: int = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Unregistered(), r"a\.0: class 'Unregistered' is not registered: decorate it with @mx\.register"),
        (lambda x: x, r"a\.0: <function.*is not registered: call mx\.register_function"),
        ({1, 2}, r"cannot be stored: type set"),
        (b"bytes", r"cannot be stored: type bytes"),
        (OrderedDict(a=1), r"cannot be stored: type OrderedDict"),
        (np.array(["a"]), r"dtype <U1 cannot be stored"),
        (np.array([None]), r"dtype object cannot be stored"),
        (np.ones(1, np.complex128), r"dtype complex128 cannot be stored"),
        ({frozenset(): 1}, r"dict keys must be"),
        (object(), r"cannot be stored: type object"),
        (Unregistered, r"is not registered"),
    ],
    ids=range(11),
)
def test_what_cannot_be_stored_is_named(value, message):
    with pytest.raises(FileError, match=message):
        encode({"a": [value]})


def test_cycles_end_in_an_error():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(FileError, match="contains itself"):
        encode(loop)


def test_64_bit_jax_arrays_are_never_truncated_silently():
    arrays = {"value": np.ones(2)}
    with pytest.raises(FileError, match="float64, which needs 64-bit mode"):
        decode({"@": "array", "name": "value", "of": "jax"}, arrays)


POINT = {"@": "object", "class": "Point"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "not a stored value"),
        ({"@": "exec", "code": "1"}, "not a stored value"),
        ({"@": ["tuple"]}, "not a stored value"),
        ({"@": "tuple"}, "malformed 'tuple'"),
        ({"@": "tuple", "items": [], "more": 1}, "malformed 'tuple'"),
        ({"@": "tuple", "items": {}}, "malformed 'tuple'"),
        ({"@": "dict", "items": [[1]]}, "malformed 'dict'"),
        ({"@": "dict", "items": [[1, 1], [1, 2]]}, "repeated"),
        ({"@": "dict", "items": [[[1], 1]]}, "wrong type"),
        ({"@": "float", "value": "1e5"}, "malformed 'float'"),
        ({"@": "array", "name": "gone", "of": "numpy"}, "array 'gone' is missing"),
        ({"@": "array", "name": "a", "of": "pickle"}, "malformed 'array'"),
        ({"@": "array", "name": "a", "of": "scalar"}, "malformed 'array'"),
        ({"@": "key", "name": "a", "impl": "threefry2x32"}, "malformed 'key'"),
        ({"@": "key", "name": "a", "impl": "os"}, "malformed 'key'"),
        ({"@": "dtype", "name": "O", "of": "numpy"}, "malformed 'dtype'"),
        ({"@": "dtype", "name": "float32", "of": "os"}, "malformed 'dtype'"),
        ({"@": "function", "name": "os.system"}, "function 'os.system' is not registered"),
        ({"@": "function", "name": "jax.nn.__loader__"}, "is not registered"),
        ({"@": "partial", "function": 1, "args": [], "keywords": {}}, "not a stored value|malformed"),
        ({"@": "object", "class": "os.system", "fields": {}}, "class 'os.system' is not registered"),
        ({"@": "object", "class": "subprocess.Popen", "fields": {}}, "or pass model="),
        ({"@": "object", "class": "eqx.nn.StatefulLayer.__init__", "fields": {}}, "is not registered"),
        ({**POINT, "fields": {"x": 1}}, "field 'y' of class 'Point' is missing"),
        ({**POINT, "fields": {"x": 1, "y": 2, "z": 3}}, "class 'Point' has no field 'z'"),
        ({**POINT, "fields": {"x": 1, "y": 2, "__class__": 3}}, "has no field '__class__'"),
        ({**POINT, "fields": []}, "malformed 'object'"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
)
def test_malformed_documents_are_refused(document, message):
    with pytest.raises(FileError, match=message):
        decode(["fine", document], {"a": np.ones(2)})


def test_deep_documents_are_refused():
    document: Any = 1
    for _ in range(5000):
        document = {"@": "tuple", "items": [document]}
    with pytest.raises(FileError, match="levels deep"):
        decode(document, {})

"""Operations that modules here never come down to, each against NumPy; the others are in the stored networks."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from tests.nets.torch.modules import FOLDER

from marginax.nets.torch.operators import OPERATORS

X = np.array([[0.5, -1.5, 2.0, 0.3], [1.0, 0.0, -0.7, 3.0]], np.float32)
Y = np.array([[2.0, 0.5, -1.0, 0.3], [0.4, 1.0, 2.0, 3.0]], np.float32)
N = np.array([[3, 1], [6, 2]], np.int32)
CUBE = np.arange(64.0, dtype=np.float32).reshape(1, 1, 4, 4, 4)
WEIGHT = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def changed(array, at, value):
    array = array.copy()
    array[at] = value
    return array


def plain_recurrence():
    """One layer of relu units, by a loop; two steps of one example."""
    inputs, of_state, bias = WEIGHT, np.eye(3, dtype=np.float32) * 0.5, np.array([0.1, 0.2, 0.3], np.float32)
    states = [np.zeros(3, np.float32)]
    for row in X:
        states.append(np.maximum(inputs @ row + bias + of_state @ states[-1] + bias, 0))
    arguments = (X[:, None], np.zeros((1, 1, 3), np.float32), (inputs, of_state, bias, bias))
    return (*arguments, True, 1, 0.0, False, False, False), np.stack(states[1:])[:, None]


DIRECT = {
    "_adaptive_avg_pool2d": ((CUBE[0], (2, 2)), CUBE[0].reshape(1, 4, 2, 2, 2, 2).mean((3, 5))),
    "_adaptive_avg_pool3d": ((CUBE, (1, 1, 1)), CUBE.mean((2, 3, 4), keepdims=True)),
    "adaptive_avg_pool1d": ((X, (2,)), X.reshape(2, 2, 2).mean(-1)),
    "adaptive_avg_pool3d": ((CUBE, (1, 1, 4)), CUBE.mean((2, 3), keepdims=True)),
    "addmm": ((Y[:, :2], X, Y.T, 0.5, 2), 0.5 * Y[:, :2] + 2 * X @ Y.T),
    "add.Scalar": ((X, 2, 3), X + 6),
    "alias": ((X,), X),
    "any": ((X > 2.5,), True),
    "avg_pool1d": ((X[:, None], (2,)), X.reshape(2, 1, 2, 2).mean(-1)),
    "bitwise_and.Scalar": ((N, 2), N & 2),
    "bitwise_not": ((N,), ~N),
    "bitwise_or.Scalar": ((N, 1), N | 1),
    "bitwise_xor.Scalar": ((N, 1), N ^ 1),
    "detach": ((X,), X),
    "div.Scalar": ((N, 2), N / 2),
    "div.Scalar_mode": ((N - 4, 2, "trunc"), np.trunc((N - 4) / 2).astype(int)),
    "eq.Tensor": ((X, Y), X == Y),
    "fill.Scalar": ((X, 2), np.full_like(X, 2)),
    "fmod.Tensor": ((X, Y), np.fmod(X, Y)),
    "ge.Tensor": ((X, Y), X >= Y),
    "gt.Tensor": ((X, Y), X > Y),
    "index_put": ((X, (None, np.array([1])), np.float32([[5], [5]])), changed(X, (slice(None), 1), 5.0)),
    "isinf": ((np.array([np.inf, 1.0, np.nan, -np.inf]),), [True, False, False, True]),
    "le.Tensor": ((X, Y), X <= Y),
    "lift_fresh_copy": ((X,), X),
    "logical_and": ((X > 0, Y > 1), (X > 0) & (Y > 1)),
    "logical_or": ((X > 0, Y > 1), (X > 0) | (Y > 1)),
    "logical_xor": ((X > 0, Y > 1), (X > 0) ^ (Y > 1)),
    "lt.Tensor": ((X, Y), X < Y),
    "mean": ((X,), X.mean()),
    "mm": ((X, Y.T), X @ Y.T),
    "mul.Scalar": ((X, 3), 3 * X),
    "ne.Scalar": ((X, 0.0), X != 0),
    "pow.Tensor_Tensor": ((Y**2, X), (Y**2) ** X),
    "prod": ((Y,), Y.prod()),
    "remainder.Tensor": ((X, Y), np.mod(X, Y)),
    "rnn_relu.input": plain_recurrence(),
    "scatter.value": ((X, 1, np.array([[2], [0]]), 9.0), changed(changed(X, (0, 2), 9), (1, 0), 9)),
    "select_scatter": ((X, np.ones(2), 1, 2), changed(X, (slice(None), 2), 1)),
    "squeeze": ((X[:, None],), X),
    "squeeze.dim": ((X[:, None], 1), X),
    "sub.Scalar": ((X, 2, 3), X - 6),
    "sum": ((X,), X.sum()),
    "upsample_linear1d.vec": ((X[:, None], (2,), True, None), X[:, None, [0, 3]]),
    "upsample_nearest1d.vec": ((X[:, None], None, (2.0,)), X[:, None].repeat(2, -1)),
}


def on_device(value):
    if isinstance(value, tuple):
        return tuple(map(on_device, value))
    return jnp.asarray(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", DIRECT)
def test_an_operation_does_what_numpy_does(name):
    arguments, expected = DIRECT[name]
    found = OPERATORS[name](*on_device(arguments))
    found = found[0] if isinstance(found, tuple) else found
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_every_operation_is_tested():
    text = [path.read_text() for path in FOLDER.glob("*/manifest.json")]
    stored = {name for each in text for name in re.findall(r'"op": "([^"]+)"', each)}
    assert sorted(set(OPERATORS) - stored - set(DIRECT)) == []

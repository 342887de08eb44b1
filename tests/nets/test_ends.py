"""Where input comes in and output goes out: found, or refused if anything goes past."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import marginax as mx
from marginax.nets.ends import ends_of

KEYS = jax.random.split(jax.random.key(0), 2)


class Around(eqx.Module):
    """Two layers, and functions of the input, of the features and of the output."""

    last: eqx.nn.Linear
    first: eqx.nn.Linear
    before: Callable = eqx.field(static=True, default=lambda x: x)
    after: Callable = eqx.field(static=True, default=lambda y, x: y)

    def __call__(self, x):
        return self.after(self.last(jnp.tanh(self.first(self.before(x)))), x)


def around(**functions) -> Around:
    return Around(eqx.nn.Linear(3, 3, key=KEYS[0]), eqx.nn.Linear(3, 3, key=KEYS[1]), **functions)


def test_ends_are_found_by_the_order_of_calls():
    assert ends_of(mx.nets.MLP(3, (5, 4), 2, key=0), (3,), float) == (0, 2)
    assert ends_of(mx.nets.LeNet((1, 18, 18), (2, 3), 4, 2, key=0), (18, 18), float) == (0, 3)
    assert ends_of(around(), (3,), float) == (1, 0)
    assert ends_of(around(before=jnp.ravel), (1, 3), float) == (1, 0)


REFUSED = {
    "a way around": (mx.nets.MLP(3, (5,), 2, linear=True, key=0), (3,), "to nothing else"),
    "a residual": (around(after=lambda y, x: y + x), (3,), "to nothing else"),
    "scaled inputs": (around(before=lambda x: 2 * x), (3,), "to nothing else"),
    "inputs twice": (around(before=lambda x: jnp.broadcast_to(x, (3,))), (1,), "to nothing else"),
    "half of the inputs": (around(before=lambda x: x[:3]), (6,), "to nothing else"),
    "a link": (around(after=lambda y, x: jnp.exp(y)), (3,), "give what its last layer gives, last, and nothing else"),
    "loops": (mx.nets.GRU(3, 4, out_size=2, key=0), (5, 3), "network must"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_goes_past_is_refused(case):
    network, shape, words = case
    with pytest.raises(ValueError, match=words):
        ends_of(network, shape, float)

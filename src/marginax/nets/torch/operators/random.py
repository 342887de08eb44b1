"""Operations that are random when a key is given: dropout, and what has dropout inside (attention, recurrences)."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PRNGKeyArray

from marginax.nets.linear import drop

Key = PRNGKeyArray | None


def _dropout(x: Array, rate: Any, train: bool | None = True, *, key: Key = None) -> tuple[Array, None]:
    return drop(x, rate, key, 0) if train else x, None


def _attention(
    query: Array,
    keys: Array,
    values: Array,
    mask: Array | None = None,
    rate: Any = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
    *,
    key: Key = None,
) -> Array:
    """Scaled dot-product attention."""
    if enable_gqa:
        keys, values = (jnp.repeat(part, query.shape[-3] // part.shape[-3], axis=-3) for part in (keys, values))
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = factor * query @ jnp.swapaxes(keys, -1, -2)
    if is_causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == jnp.bool_ else scores + mask
    return drop(jax.nn.softmax(scores, axis=-1), rate, key, 0) @ values


# ---- recurrences: layers and directions of cells, one matrix product for the inputs of all steps


def _lstm_cell(state: tuple[Array, Array], gates: Array, weight: Array, bias: Array) -> tuple[Array, Array]:
    entry, forget, new, exit_ = jnp.split(gates + state[0] @ weight.T + bias, 4, axis=-1)
    cell = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(entry) * jnp.tanh(new)
    return jax.nn.sigmoid(exit_) * jnp.tanh(cell), cell


def _gru_cell(state: tuple[Array], gates: Array, weight: Array, bias: Array) -> tuple[Array]:
    reset, update, new = jnp.split(gates, 3, axis=-1)
    of_reset, of_update, of_new = jnp.split(state[0] @ weight.T + bias, 3, axis=-1)
    keep = jax.nn.sigmoid(update + of_update)
    new = jnp.tanh(new + jax.nn.sigmoid(reset + of_reset) * of_new)
    return (new + keep * (state[0] - new),)


def _plain_cell(activation: Callable[[Array], Array]) -> Callable[..., tuple[Array]]:
    return lambda state, gates, weight, bias: (activation(gates + state[0] @ weight.T + bias),)


def _recurrent(
    cell: Callable[..., tuple[Array, ...]],
    x: Array,
    starts: tuple[Array, ...],
    weights: tuple[Array, ...],
    has_biases: bool,
    num_layers: int,
    rate: Any,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    key: Key,
) -> tuple[Array, ...]:
    h = jnp.swapaxes(x, 0, 1) if batch_first else x
    num_directions = 1 + bidirectional
    share = len(weights) // (num_layers * num_directions)
    if share != (4 if has_biases else 2):
        raise ValueError("recurrent layers with a projection (proj_size) are not known")
    ends: list[tuple[Array, ...]] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(num_directions):
            place = layer * num_directions + direction
            own = weights[place * share : (place + 1) * share]
            start = tuple(part[place] for part in starts)
            end, states = _scan(cell, h, start, own, reverse=direction == 1)
            outputs.append(states)
            ends.append(end)
        h = jnp.concatenate(outputs, axis=-1)
        if train and layer < num_layers - 1:
            h = drop(h, rate, key, layer)
    h = jnp.swapaxes(h, 0, 1) if batch_first else h
    return h, *(jnp.stack(parts) for parts in zip(*ends, strict=True))


def _scan(
    cell: Callable[..., tuple[Array, ...]],
    x: Array,
    start: tuple[Array, ...],
    weights: tuple[Array, ...],
    *,
    reverse: bool,
) -> tuple[tuple[Array, ...], Array]:
    of_inputs, of_state, *biases = weights
    first, second = biases or (jnp.zeros((), x.dtype), jnp.zeros(of_state.shape[0], x.dtype))

    def step(state: tuple[Array, ...], gates: Array) -> tuple[tuple[Array, ...], Array]:
        state = cell(state, gates, of_state, second)
        return state, state[0]

    return lax.scan(step, start, x @ of_inputs.T + first, reverse=reverse)


def _lstm(x: Array, starts: tuple[Array, Array], *arguments: Any, key: Key = None) -> tuple[Array, ...]:
    return _recurrent(_lstm_cell, x, starts, *arguments, key=key)


def _of_one_state(cell: Callable[..., tuple[Array]]) -> Callable[..., tuple[Array, ...]]:
    def run(x: Array, start: Array, *arguments: Any, key: Key = None) -> tuple[Array, ...]:
        return _recurrent(cell, x, (start,), *arguments, key=key)

    return run


RANDOM_OPERATORS: dict[str, Callable[..., Any]] = {
    "gru.input": _of_one_state(_gru_cell),
    "lstm.input": _lstm,
    "native_dropout": _dropout,
    "rnn_relu.input": _of_one_state(_plain_cell(jax.nn.relu)),
    "rnn_tanh.input": _of_one_state(_plain_cell(jnp.tanh)),
    "scaled_dot_product_attention": _attention,
}


def _drops_between_layers(x: Any, starts: Any, weights: Any, has_biases: bool, num: int, rate: Any, *_: Any) -> bool:
    return rate > 0 and num > 1


RANDOM: dict[str, Callable[..., bool]] = {
    "gru.input": _drops_between_layers,
    "lstm.input": _drops_between_layers,
    "native_dropout": lambda x, rate, train=True: bool(train) and rate > 0,
    "rnn_relu.input": _drops_between_layers,
    "rnn_tanh.input": _drops_between_layers,
    "scaled_dot_product_attention": lambda q, k, v, mask=None, rate=0.0, *_: rate > 0,
}
"""Those that take a key, and whether with these arguments it makes a difference."""

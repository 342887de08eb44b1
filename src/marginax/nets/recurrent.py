r"""Recurrent networks over sequences: GRU and LSTM.

The products of all inputs with the weights are one matrix product before the loop over steps, which then has only the
product with the state. Padding leaves the state as it is, so the last state is that of the last step that is there.

The weights of the state are used at every step and are in no layer of the layer protocol: methods that know layers draw
them once for a batch (local reparameterisation, flipout) and keep their diagonal (Kronecker factors).
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Num

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.arguments import check_dropout, check_positive_ints
from marginax.nets.initialisers import glorot, lecun
from marginax.nets.linear import Pointwise, drop, linear, linear_batch_last
from marginax.nets.sequences import SequenceInput

State = Any
"""Arrays (hidden_size, *num): one for a GRU, two for an LSTM."""


class AbstractRecurrent(eqx.Module):
    """A network that reads a sequence step by step and carries a state.

    Args:
        in_size: number of features of a step.
        hidden_size: number of units of the state.
        out_size: number of outputs of a linear layer on the states; None for the states themselves.
        num_tokens: if steps are tokens 0, 1, ..., how many there are; each becomes a vector of `in_size` numbers.
        padded: whether sequences are padded to one length: then a token < 0 is padding; without tokens, a step has one
            more number, the last, which is 1 if the step is there and 0 if it is padding.
        every_step: whether there are outputs for every step (zeros at padding), or for the last state alone.
        dropout: probability of dropping an entry of the inputs or of the states that are read out, in [0, 1).
        key: seed or JAX key.
    """

    reader: eqx.AbstractVar[SequenceInput]
    inputs: eqx.AbstractVar[Pointwise]
    recurrent_weight: eqx.AbstractVar[Float[Array, "*stack gates hidden_size"]]
    output: eqx.AbstractVar[Pointwise | eqx.nn.Linear | None]
    every_step: eqx.AbstractVar[bool]
    dropout: eqx.AbstractVar[float]

    @abc.abstractmethod
    def start(self, *num: int) -> State:
        """The state before the first step, zero; for many sequences with their number."""

    @abc.abstractmethod
    def advance(self, state: State, gates: Float[Array, "gates *num"]) -> State:
        """The next state, given the inputs of the step times their weights."""

    @abc.abstractmethod
    def visible(self, state: State) -> Float[Array, "hidden_size *num"]:
        """The part of the state that is read out."""

    def __call__(
        self,
        x: Num[Array, "steps *features"],
        *,
        mask: Bool[Array, " steps"] | None = None,
        state: State = None,
        key: Array | None = None,
    ) -> Float[Array, "*places outputs"]:
        """Outputs of one sequence.

        Args:
            x: the sequence.
            mask: which steps are there; by default all but what `padded` says.
            state: to begin with, by default zero.
            key: for dropout.
        """
        features, present = self.reader(x, mask)
        gates = self.inputs(drop(features, self.dropout, key, 0))
        h = drop(self._scan(gates, present, self.start() if state is None else state), self.dropout, key, 1)
        if not self.every_step:
            return h if self.output is None else self.output(h)
        return jnp.where(present[:, None], (h if self.output is None else self.output(h)).T, 0.0)

    def call_batch(
        self,
        xs: Num[Array, "num steps *features"],
        *,
        mask: Bool[Array, "num steps"] | None = None,
        state: State = None,
        key: Array | None = None,
    ) -> Float[Array, "num *places outputs"]:
        """Outputs of many sequences, as `jax.vmap` of a call gives them; their states have an axis (num,) in front."""
        features, present = self.reader(xs, mask)
        # the sequences come last: every step is one product of the weights with a matrix
        features, present = features.swapaxes(1, 2), present.T
        gates = self.inputs.call_batch_last(drop(features, self.dropout, key, 0))
        first = self.start(xs.shape[0]) if state is None else jax.tree.map(lambda leaf: leaf.T, state)
        h = drop(self._scan(gates, present, first), self.dropout, key, 1)
        if not self.every_step:
            return (h if self.output is None else linear_batch_last(self.output, h)).T
        y = h if self.output is None else self.output.call_batch_last(h)  # pyright: ignore[reportAttributeAccessIssue]
        return jnp.where(present[None], y, 0.0).transpose(2, 1, 0)

    def step(self, state: State, x: Num[Array, "*features"]) -> tuple[State, Float[Array, " outputs"]]:
        """The state and the outputs after one more step, a token or features: for sequences made step by step."""
        features, _ = self.reader(x[None])
        state = self.advance(state, self.inputs(features)[:, 0])
        h = self.visible(state)
        if self.output is None:
            return state, h
        return state, self.output(h[:, None])[:, 0] if self.every_step else self.output(h)

    def _scan(
        self, gates: Float[Array, "gates steps *num"], present: Bool[Array, "steps *num"], first: State
    ) -> Float[Array, "hidden_size *places"]:
        """What is read out: at every step, or at the end."""

        def advance(state: State, step: tuple[Array, Array]) -> tuple[State, Array | None]:
            gates, is_there = step
            after = self.advance(state, gates)
            state = jax.tree.map(lambda new, old: jnp.where(is_there, new, old), after, state)
            return state, self.visible(state) if self.every_step else None

        last, states = lax.scan(advance, first, (jnp.moveaxis(gates, 1, 0), present))
        return self.visible(last) if states is None else jnp.moveaxis(states, 0, 1)

    @property
    def hidden_size(self) -> int:
        """Number of units of the state."""
        return self.recurrent_weight.shape[-1]

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return self.dropout > 0

    def reinitialise(self, key: Key) -> "AbstractRecurrent":
        """The same architecture with fresh weights."""
        make: Any = type(self)  # GRU and LSTM take the same arguments
        return make(
            self.reader.in_size,
            self.hidden_size,
            out_size=None if self.output is None else self.output.weight.shape[0],
            num_tokens=self.reader.num_tokens,
            padded=self.reader.padded,
            every_step=self.every_step,
            dropout=self.dropout,
            key=key,
        )


@register("net/gru")
class GRU(AbstractRecurrent):
    r"""Gated recurrent units (Cho et al., 2014).

    $r, u = \sigma(W x + U h + b)$, $n = \tanh(W_n x + b_n + r \odot (U_n h + c_n))$,
    $h' = (1 - u) \odot n + u \odot h$: the reset gate acts after the product with the state, as in PyTorch.

    >>> GRU(3, 8, key=0)(jnp.ones((20, 3))).shape
    (20, 8)
    >>> classifier = GRU(4, 8, out_size=2, num_tokens=10, padded=True, every_step=False, key=0)
    >>> classifier.call_batch(jnp.array([[3, 1, 4, 1], [5, 9, -1, -1]])).shape
    (2, 2)
    """

    reader: SequenceInput
    inputs: Pointwise
    recurrent_weight: Float[Array, "*stack three_times hidden_size"]
    recurrent_bias: Float[Array, "*stack hidden_size"]
    output: Pointwise | eqx.nn.Linear | None
    every_step: bool = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        hidden_size: int,
        *,
        out_size: int | None = None,
        num_tokens: int | None = None,
        padded: bool = False,
        every_step: bool = True,
        dropout: float = 0.0,
        key: Key,
    ):
        self.reader, self.inputs, self.recurrent_weight, self.output = _parts(
            3, in_size, hidden_size, out_size, num_tokens, padded, every_step, dropout, key
        )
        self.recurrent_bias = jnp.zeros(hidden_size)
        self.every_step, self.dropout = bool(every_step), float(dropout)

    def start(self, *num: int) -> Float[Array, "hidden_size *num"]:
        return jnp.zeros((self.hidden_size, *num), self.recurrent_weight.dtype)

    def advance(
        self, state: Float[Array, "hidden_size *num"], gates: Float[Array, "gates *num"]
    ) -> Float[Array, "hidden_size *num"]:
        reset, update, new = jnp.split(gates, 3)
        of_reset, of_update, of_new = jnp.split(self.recurrent_weight @ state, 3)
        keep = jax.nn.sigmoid(update + of_update)
        bias = self.recurrent_bias.reshape(-1, *(1 for _ in state.shape[1:]))
        new = jnp.tanh(new + jax.nn.sigmoid(reset + of_reset) * (of_new + bias))
        return new + keep * (state - new)

    def visible(self, state: Array) -> Array:
        return state


@register("net/lstm")
class LSTM(AbstractRecurrent):
    r"""Long short-term memory (Hochreiter & Schmidhuber, 1997; forget gates by Gers et al., 2000).

    $i, f, o = \sigma(W x + U h + b)$, $g = \tanh(W_g x + U_g h + b_g)$, $c' = f \odot c + i \odot g$,
    $h' = o \odot \tanh(c')$. Forget gates start open (bias 1). The state is the pair (h, c); h is read out.

    >>> LSTM(3, 8, key=0)(jnp.ones((20, 3))).shape
    (20, 8)
    """

    reader: SequenceInput
    inputs: Pointwise
    recurrent_weight: Float[Array, "*stack four_times hidden_size"]
    output: Pointwise | eqx.nn.Linear | None
    every_step: bool = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        hidden_size: int,
        *,
        out_size: int | None = None,
        num_tokens: int | None = None,
        padded: bool = False,
        every_step: bool = True,
        dropout: float = 0.0,
        key: Key,
    ):
        self.reader, inputs, self.recurrent_weight, self.output = _parts(
            4, in_size, hidden_size, out_size, num_tokens, padded, every_step, dropout, key
        )
        bias = jnp.zeros(4 * hidden_size).at[hidden_size : 2 * hidden_size].set(1.0)
        self.inputs = eqx.tree_at(lambda layer: layer.bias, inputs, bias)
        self.every_step, self.dropout = bool(every_step), float(dropout)

    def start(self, *num: int) -> tuple[Float[Array, "hidden_size *num"], Float[Array, "hidden_size *num"]]:
        zeros = jnp.zeros((self.hidden_size, *num), self.recurrent_weight.dtype)
        return zeros, zeros

    def advance(self, state: tuple[Array, Array], gates: Float[Array, "gates *num"]) -> tuple[Array, Array]:
        h, c = state
        admit, keep, new, show = jnp.split(gates + self.recurrent_weight @ h, 4)
        c = jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(admit) * jnp.tanh(new)
        return jax.nn.sigmoid(show) * jnp.tanh(c), c

    def visible(self, state: tuple[Array, Array]) -> Array:
        return state[0]


def _parts(
    num_gates: int,
    in_size: int,
    hidden_size: int,
    out_size: int | None,
    num_tokens: int | None,
    padded: bool,
    every_step: bool,
    dropout: float,
    key: Key,
) -> tuple[SequenceInput, Pointwise, Array, Pointwise | eqx.nn.Linear | None]:
    check_positive_ints(in_size=in_size, hidden_size=hidden_size, out_size=1 if out_size is None else out_size)
    check_dropout(dropout)
    first, second, third, fourth = jax.random.split(as_key(key), 4)
    reader = SequenceInput(in_size, num_tokens=num_tokens, padded=padded, key=first)
    inputs = Pointwise(in_size, num_gates * hidden_size, ragged=padded, key=second)
    weights = [glorot()((hidden_size, hidden_size), key=k) for k in jax.random.split(third, num_gates)]
    output = None
    if out_size is not None:
        shape, last = (hidden_size, out_size), fourth
        output = Pointwise(*shape, ragged=padded, key=last) if every_step else linear(lecun(), *shape, last)
    return reader, inputs, jnp.concatenate(weights), output

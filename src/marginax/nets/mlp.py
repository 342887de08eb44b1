"""The multilayer perceptron."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from marginax._kernels.examples_last import map_examples
from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.initialisers import Initialiser, glorot, he
from marginax.nets.narrowing import cut_layer, cut_norm, narrowed_width


@register("net/mlp")
class MLP(eqx.Module):
    """Fully connected layers with an activation between them.

    Call it on one example, `net(x)` with x of shape (in_size,), or on many with `jax.vmap`. Dropout acts whenever
    a key is given and is off without one.

    Args:
        in_size: number of inputs.
        hidden: width of each hidden layer; () gives a linear model.
        out_size: number of outputs.
        activation: jax.nn.relu, gelu, tanh, sigmoid (logistic), silu or another elementwise function.
        dropout: probability of dropping a hidden unit, in [0, 1).
        norm: a normalisation layer class for hidden layers, such as eqx.nn.LayerNorm, or None.
        linear: whether to add a linear function of the inputs to the outputs, which starts at zero: what is linear
            needs no hidden units then.
        initialiser: of the weights; by default it follows the activation. Biases start at 0.
        key: seed or JAX key.

    >>> MLP(in_size=8, hidden=(50, 50), out_size=1, key=0)(jnp.ones(8)).shape
    (1,)
    """

    linear: eqx.nn.Linear | None = eqx.field(default=None, kw_only=True)  # first: the last layer is one of `layers`
    layers: tuple[eqx.nn.Linear, ...]
    norms: tuple[eqx.Module, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    dropout: float = eqx.field(static=True)
    initialiser: Initialiser = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        hidden: Sequence[int],
        out_size: int,
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        dropout: float = 0.0,
        norm: type[eqx.nn.LayerNorm] | type[eqx.nn.RMSNorm] | None = None,
        linear: bool = False,
        initialiser: Initialiser | None = None,
        key: Key,
    ):
        hidden = (hidden,) if isinstance(hidden, int) else tuple(hidden)
        for name, size in (("in_size", in_size), *(("hidden", h) for h in hidden), ("out_size", out_size)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be an int >= 1, got {size!r}")
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        if not callable(activation):
            raise TypeError(f"activation must be a function such as jax.nn.relu, got {activation!r}")
        saturating = activation in (jnp.tanh, jax.nn.tanh, jax.nn.sigmoid)
        self.initialiser = initialiser or (glorot() if saturating else he())
        self.activation = activation
        self.dropout = float(dropout)
        self.norms = tuple(norm(size) for size in hidden) if norm is not None else ()
        sizes = (in_size, *hidden, out_size)
        self.layers = _linear_layers(self.initialiser, sizes, as_key(key))
        self.linear = _zero_layer(in_size, out_size) if linear else None

    def __call__(self, x: Float[Array, " in_size"], *, key: Array | None = None) -> Float[Array, " out_size"]:
        """Outputs of one example."""
        return self._forward(x, self._kept(key))

    def call_batch(self, xs: Float[Array, "n in_size"], *, key: Array | None = None) -> Float[Array, "n out_size"]:
        """Outputs of many examples; one key draws the dropout of all of them at once."""
        return map_examples(MLP._forward, self, xs, self._kept(key, xs.shape[0]))

    def _kept(self, key: Array | None, *batch: int) -> list[Bool[Array, "..."]]:
        """Which hidden units are kept, layer by layer; nothing to say without dropout."""
        if key is None or self.dropout == 0:
            return []
        shapes = [(layer.weight.shape[0], *batch) for layer in self.layers[:-1]]
        keys = [jax.random.fold_in(key, i) for i in range(len(shapes))]
        return [jax.random.bernoulli(k, 1.0 - self.dropout, shape) for k, shape in zip(keys, shapes, strict=True)]

    def _forward(self, x: Float[Array, " in_size"], kept: list[Bool[Array, "..."]]) -> Float[Array, " out_size"]:
        straight = None if self.linear is None else self.linear(x)
        for i, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            if self.norms:
                x = self.norms[i](x)  # pyright: ignore[reportCallIssue]
            x = self.activation(x)
            if kept:
                x = jnp.where(kept[i], x / (1.0 - self.dropout), 0.0)
        curved = self.layers[-1](x)
        return curved if straight is None else curved + straight

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return self.dropout > 0

    def reinitialise(self, key: Key) -> "MLP":
        """The same architecture with fresh weights."""
        sizes = (*(int(layer.in_features) for layer in self.layers), int(self.layers[-1].out_features))
        fresh = eqx.tree_at(lambda net: net.layers, self, _linear_layers(self.initialiser, sizes, as_key(key)))
        return (
            fresh
            if self.linear is None
            else eqx.tree_at(lambda net: net.linear, fresh, _zero_layer(sizes[0], sizes[-1]))
        )

    def narrowed(self, fraction: float) -> "MLP":
        """With this fraction of the hidden units (see `mx.nets.narrowed`)."""
        widths = [narrowed_width(layer.weight.shape[0], fraction) for layer in self.layers[:-1]]
        sizes = (self.layers[0].weight.shape[1], *widths, self.layers[-1].weight.shape[0])
        cut = zip(self.layers, sizes[1:], sizes, strict=False)
        layers = tuple(cut_layer(layer, n_out, n_in, self.initialiser) for layer, n_out, n_in in cut)
        norms = tuple(cut_norm(norm, width) for norm, width in zip(self.norms, widths, strict=False))
        return eqx.tree_at(lambda net: (net.layers, net.norms), self, (layers, norms))


def _zero_layer(n_in: int, n_out: int) -> eqx.nn.Linear:
    empty = eqx.filter_eval_shape(eqx.nn.Linear, n_in, n_out, use_bias=False, key=jax.random.key(0))
    return eqx.tree_at(lambda layer: layer.weight, empty, jnp.zeros((n_out, n_in)))


@eqx.filter_jit
def _linear_layers(initialiser: Initialiser, sizes: tuple[int, ...], key: Array) -> tuple[eqx.nn.Linear, ...]:
    """All layers in one compiled call: op-by-op random numbers would take longer to compile than to use."""
    layers = []
    for n_in, n_out, k in zip(sizes, sizes[1:], jax.random.split(key, len(sizes) - 1), strict=False):
        weight = initialiser((n_out, n_in), key=k)
        empty = eqx.filter_eval_shape(eqx.nn.Linear, n_in, n_out, key=k)
        layers.append(eqx.tree_at(lambda lin: (lin.weight, lin.bias), empty, (weight, jnp.zeros(n_out))))
    return tuple(layers)

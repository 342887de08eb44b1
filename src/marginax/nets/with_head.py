"""A body that gives features, and a head that reads them: one of the two may come from elsewhere."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.examples_last import call_batched
from marginax._kernels.random import derive
from marginax.files import register
from marginax.nets.adapters import as_network, is_random, reinitialise


@register("net/with_head")
class WithHead(eqx.Module):
    """One network after another. Paths of weights begin with `body/` and `head/`.

    A body that was trained without labels can so be given a new head, and priors can tell the two apart:
    `mx.priors.ByPath({"head/*": ...}, default=...)`, `mx.Paths("head/*")`.

    Args:
        body: from an input to a vector of features.
        head: from features to outputs.

    >>> import jax.numpy as jnp
    >>> import marginax as mx
    >>> net = WithHead(mx.nets.LeNet(out_size=16, key=0), mx.nets.MLP(16, (), 3, key=1))
    >>> net(jnp.ones((28, 28))).shape, net.body(jnp.ones((28, 28))).shape
    ((3,), (16,))
    """

    body: eqx.Module
    head: eqx.Module

    def __init__(self, body: Any, head: Any):
        """Check that both are networks."""
        self.body, self.head = as_network(body), as_network(head)

    def __call__(self, x: Float[Array, "..."], *, key: PRNGKeyArray | None = None) -> Float[Array, " k"]:
        """Outputs of one example."""
        for i, part in enumerate((self.body, self.head)):
            x = part(x, key=derive(key, i)) if key is not None and is_random(part) else part(x)  # pyright: ignore[reportCallIssue]
        return x

    def call_batch(self, xs: Float[Array, "n ..."], *, key: PRNGKeyArray | None = None) -> Float[Array, "n k"]:
        """Outputs of many examples."""
        for i, part in enumerate((self.body, self.head)):
            xs = call_batched(part, xs, key=derive(key, i) if key is not None and is_random(part) else None)
        return xs

    @property
    def stochastic(self) -> bool:
        """Whether a key makes a difference."""
        return is_random(self.body) or is_random(self.head)

    def reinitialise(self, key: PRNGKeyArray) -> "WithHead":
        """The same architecture with fresh weights."""
        return WithHead(reinitialise(self.body, key=derive(key, 0)), reinitialise(self.head, key=derive(key, 1)))

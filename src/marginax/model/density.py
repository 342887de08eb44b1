"""Any log density of a pytree of unknowns."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.data import AbstractSource, Batch, Rows
from marginax.files import register
from marginax.model.abstract import AbstractModel, Params


@register("model/density")
class Density(AbstractModel):
    """A model by its log density alone; `mx.fit(mx.Density(log_prob, start), None, method, key=0)`.

    The density counts as a likelihood of a single observation, so that methods that temper the likelihood temper all of
    it. Unknowns must be unconstrained: take logs of what is positive, with the Jacobian.

    Args:
        log_prob: of the unknowns, up to a constant, with JAX operations.
        start: a pytree of arrays (or numbers) where the first chain starts; others start a standard normal step away.

    >>> import marginax as mx
    >>> normal = mx.Density(lambda w: -0.5 * jnp.sum(w**2), jnp.zeros(2))
    >>> posterior = mx.fit(normal, None, mx.infer.NUTS(), key=0)
    >>> posterior.params.shape
    (4, 500, 2)
    """

    log_prob: Callable[[Any], Array]
    start: Any

    def __init__(self, log_prob: Callable[[Any], Array], start: Any):
        """Check that the function gives a number at the start."""
        if not callable(log_prob):
            raise TypeError(f"log_prob must be a function of the unknowns, got {log_prob!r}")
        real = jax.dtypes.canonicalize_dtype(float)
        self.log_prob, self.start = log_prob, jax.tree.map(lambda leaf: jnp.asarray(leaf, real), start)
        if not jax.tree.leaves(self.start):
            raise ValueError("start must hold at least one number, got an empty tree")
        result = jax.eval_shape(log_prob, self.start)
        if getattr(result, "shape", None) != ():
            raise ValueError(f"log_prob must return a scalar, got {result} at start")

    def init(self, source: AbstractSource) -> Params:
        return self.start

    def log_prior(self, params: Params) -> Float[Array, ""]:
        """Zero: all is in the likelihood."""
        return jnp.zeros((), jax.tree.leaves(params)[0].dtype)

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        return self.log_prob(params)[None]

    def check(self, source: AbstractSource) -> None:
        """The density must be finite at the start."""
        value = self.log_prob(self.start)
        if not bool(jnp.isfinite(value)):
            raise ValueError(f"log_prob must be finite at start, got {value}")

    def read(self, data: Any) -> Rows:
        if data is not None:
            raise ValueError("data must be None for mx.Density: the log density is a function of the unknowns alone")
        return Rows(None)

    @property
    def structure(self) -> list[list[Any]]:
        leaves = jax.tree_util.tree_leaves_with_path(self.start)
        return [[jax.tree_util.keystr(path, simple=True, separator="/"), list(leaf.shape)] for path, leaf in leaves]

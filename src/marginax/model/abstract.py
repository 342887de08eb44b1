r"""What a model is: everything that has a density.

$\log p(\theta \mid D) = \log p(\theta) + \frac{N}{B} \sum_{i \in \text{batch}} \log p(d_i \mid \theta) + c$

is written here, once for all models; it is the one place where the size of the data enters.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from marginax._kernels.blocks import sum_over_rows
from marginax._kernels.random import normal_like
from marginax.data import AbstractSource, Arrays, Batch, Rows

Params = Any  # all unknowns of a model, unconstrained: one pytree of arrays


class AbstractModel(eqx.Module):
    """A prior of unknowns, and what they say about data.

    Four members make a model; the others have defaults that suit one whose unknowns are all alike.
    """

    queries: ClassVar[type | None] = None
    """What posteriors of the model can be asked besides: `posterior.name(...)` is `queries(posterior).name(...)`."""

    @abc.abstractmethod
    def init(self, source: AbstractSource) -> Params:
        """Where inference starts: all unknowns, unconstrained, as one pytree."""

    @abc.abstractmethod
    def log_prior(self, params: Params) -> Float[Array, ""]:
        """Log prior density."""

    @abc.abstractmethod
    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        """Log probability of each example; with a key it may be an unbiased estimate, or a bound."""

    @abc.abstractmethod
    def check(self, source: AbstractSource) -> None:
        """Raise a clear error if data and model cannot belong together, before anything is compiled."""

    # ---- the density

    def scaled_log_likelihood(
        self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        """Unbiased estimate, from a batch, of the log likelihood of all data."""
        if key is not None:
            return batch.total(self.log_likelihood(params, batch, key=key))

        def log_likelihood(params: Params, rows: tuple[PyTree, Array]) -> Float[Array, " b"]:
            return self.log_likelihood(params, Batch(*rows, batch.num_examples))

        return batch.weight * sum_over_rows(log_likelihood, params, (batch.data, batch.index))

    def log_density(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """Unbiased estimate of the unnormalised log posterior from a batch."""
        return self.log_prior(params) + self.scaled_log_likelihood(params, batch, key=key)

    def is_judged(self, batch: Batch) -> Bool[Array, " b"]:
        """Which rows say how well a model predicts: all, but for those whose term is no log probability of data."""
        return jnp.ones(batch.size, bool)

    # ---- data

    def bind(self, data: Any) -> "AbstractModel":
        """The model for data of these shapes, where it has to know them: data or a source, as the user gave it."""
        return self

    def rebind(self, structure: Any) -> "AbstractModel":
        """The model for data that were seen when it had this `structure`."""
        return self

    def read(self, data: Any) -> Arrays | Rows:
        """What the user passes to `mx.fit`, checked: any pytree of arrays with a leading axis of examples."""
        return Rows(data)

    @property
    def sees_all_at_once(self) -> bool:
        """Whether the data are one example to the model, so that a batch size has no meaning."""
        return False

    def adapted_to(self, source: AbstractSource) -> "AbstractModel":
        """The model with what it takes from the data before inference, such as the scale of a default prior."""
        return self

    # ---- unknowns

    def weights(self, params: Params) -> PyTree:
        """The unknowns that are many and alike, by default all; the others (scales, hyperparameters) are few."""
        return params

    def scales(self, params: Params) -> PyTree:
        """The other unknowns: noise levels, hyperparameters."""
        return ()

    def with_weights(self, params: Params, weights: PyTree) -> Params:
        """The parameters with other weights."""
        return weights

    @property
    def network_weights(self) -> PyTree:
        """The random weights of the networks of a model whose unknowns are `model.Params`, as a tree; else None."""

    def reinitialise(self, params: Params, *, key: PRNGKeyArray) -> Params:
        """Another place to start a chain from: by default a standard normal step away."""
        return jax.tree.map(jnp.add, params, normal_like(key, params))

    def prior_precision(self, params: Params) -> PyTree:
        """Minus the second derivative of the log prior of every weight, in the shape of the weights."""

        def slope(weights: PyTree) -> PyTree:
            return jax.grad(lambda w: self.log_prior(self.with_weights(params, w)))(weights)

        weights = self.weights(params)
        _, bend = jax.jvp(slope, (weights,), (jax.tree.map(jnp.ones_like, weights),))
        return jax.tree.map(jnp.negative, bend)

    def expected_log_prior(self, mean: Params, scale: Params, draw: Params) -> Float[Array, ""]:
        """Expectation of the log prior over independent normal unknowns with these moments, `draw` being one draw.

        By a formula where there is one, else at the draw.
        """
        return self.log_prior(draw)

    def start_at(self, init: Any, params: Params, num_chains: int) -> Params:
        """Parameters with a leading axis of chains, from what the user gave as `init=` of `mx.fit`."""
        given = jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.asarray(leaf), (num_chains, *jnp.shape(leaf))), init)
        return self.take_over(params, given)

    def take_over(self, params: Params, stacked: Params) -> Params:
        """Parameters of another posterior, stacked, as a start of this model; an error if they do not fit."""
        if not same_shapes(params, stacked):
            raise ValueError("init must have the unknowns of the model, in the same shapes")
        return stacked

    def probes(self, source: AbstractSource) -> np.ndarray | None:
        """Some inputs of the data where predictions of chains can be compared, as the model sees them; None if none."""

    def probe_rows(self, source: AbstractSource) -> dict[str, np.ndarray] | None:
        """Some rows of the data by name, where the summary looks at a model that has no predictions; None if none."""

    def with_traced_numbers(self, trace: Callable[[PyTree], PyTree]) -> "AbstractModel":
        """The model with its numbers as arrays: another number is then new data to a compiled program, not new code."""
        return trace(self)

    def sampled(self, params: Params) -> Any:
        """What `posterior.sample` gives for stacked parameters."""
        return params

    @property
    def draw_name(self) -> str:
        """What a draw is called when people are told about it."""
        return "draw"

    @property
    def structure(self) -> list[list[Any]]:
        """Names and shapes of the unknowns, by which a model that is not in a file is recognised; [] if not known."""
        return []


def same_shapes(params: PyTree, stacked: PyTree) -> bool:
    """Whether the second is a stack of what the first is."""
    if jax.tree.structure(params) != jax.tree.structure(stacked):
        return False
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(stacked), strict=True)
    return all(jnp.shape(a) == jnp.shape(b)[1:] for a, b in pairs)


def require_network(model: AbstractModel, what: str) -> None:
    """Refuse a model without a network in one sentence."""
    if not hasattr(model, "network"):
        raise TypeError(f"{what} needs the layers of a network, which {type(model).__name__} has not: use an mx.Model")

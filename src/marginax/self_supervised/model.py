r"""A network, a prior of its weights, and an objective that needs no labels: a density of the weights all the same.

$\log p(\theta) + \frac{N}{B} \sum_{i \in \text{batch}} \ell_i(\theta)$

with a term $\ell_i$ of each row in the place of its log likelihood, so every method that needs no layers runs. **It is
no likelihood of data**: terms of contrastive objectives compare a row with the others of its batch, so that even their
sum over all data depends on the batch size, and that of a batch is an estimate of nothing but itself. What the
posterior is good for is to be a prior: of the body of a network with another head, of a task with few labels.

With a key (MAP, ensembles, SWAG), views and masks are drawn anew in every step. Without one (VI, samplers) they are a
fixed function of the rows that are in the batch: with minibatches they are others in every step, and with all rows in
one batch they are always the same, as methods that want a function of the weights ask for.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import derive, row_keys
from marginax.data import AbstractSource, Batch, Rows
from marginax.data.arrays import as_numeric
from marginax.data.scaling import warn_of_unit
from marginax.files import register
from marginax.model import Model
from marginax.model.abstract import Params
from marginax.model.likelihoods import Gaussian
from marginax.model.priors import AbstractPrior
from marginax.model.subset import AbstractSubset
from marginax.model.with_core import AbstractWithCore
from marginax.nets import as_network
from marginax.self_supervised.objective import AbstractObjective
from marginax.self_supervised.queries import SelfSupervisedQueries

_DRAWN, _INSIDE = 401, 402  # streams of keys: for views and masks, and for the network's own noise


@register("model/self_supervised")
class SelfSupervised(AbstractWithCore):
    """A network that learns from inputs alone.

    Data are an array of inputs, which are taken as they are. `posterior.network()` is the trained network.

    Args:
        network: often `mx.nets.WithHead(body, head)`: the head serves the objective, the body is kept.
        objective: `mx.self_supervised.Contrastive(transforms)`, `VICReg(transforms)` or `MaskedReconstruction()`.
        prior: of the weights, as in `mx.Model`.
        subset: which weights are random, as in `mx.Model`.

    >>> import marginax as mx
    >>> x = np.random.default_rng(0).normal(size=(40, 3))
    >>> net = mx.nets.WithHead(mx.nets.MLP(3, (8,), 4, key=0), mx.nets.MLP(4, (), 2, key=1))
    >>> model = SelfSupervised(net, mx.self_supervised.Contrastive(mx.data.Jitter(0.1)))
    >>> posterior = mx.fit(model, x, mx.infer.MAP(num_epochs=2), key=0)
    >>> posterior.network().body(jnp.zeros(3)).shape
    (4,)
    """

    networks: eqx.Module
    objective: AbstractObjective
    prior: AbstractPrior
    subset: AbstractSubset

    queries: ClassVar[type] = SelfSupervisedQueries

    def __init__(
        self,
        network: Any,
        objective: AbstractObjective,
        prior: AbstractPrior | None = None,
        subset: AbstractSubset | None = None,
    ):
        """Check that the pieces are what they should be; the data are checked when they come."""
        self.networks, self.objective = as_network(network), objective
        if not isinstance(objective, AbstractObjective):
            raise TypeError(f"objective must be such as mx.self_supervised.Contrastive(transforms), got {objective!r}")
        core = Model(self.networks, Gaussian(1.0), prior, subset)
        self.prior, self.subset = core.prior, core.subset

    @property
    def core(self) -> Model:
        """Weights and their prior; of its likelihood, which has no unknowns, nothing is asked."""
        return Model(self.networks, Gaussian(1.0), self.prior, self.subset)

    # ---- the density

    def init(self, source: AbstractSource) -> Params:
        x = source.examples(1)
        return self.core.initial(self.core.output_size(x.shape[1:], x.dtype))

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        """The term of each row; see the objective for what it is."""
        x = jnp.asarray(batch.data)
        base = _key_of(batch.index) if key is None else derive(key, 0, stream=_DRAWN)
        keys = row_keys(base, batch.index)
        inputs = self.objective.inputs(x, keys)
        inside = None if key is None else derive(key, 0, stream=_INSIDE)
        outputs = self.core.output(params, inputs.reshape(-1, *inputs.shape[2:]), key=inside)
        return self.objective.terms(outputs.reshape(*inputs.shape[:2], -1), x, keys)

    def scaled_log_likelihood(
        self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, ""]:
        """Rows are compared with all of their batch, which is never cut into blocks."""
        return batch.total(self.log_likelihood(params, batch, key=key))

    # ---- data

    def read(self, data: Any) -> Rows:
        """An array of inputs."""
        if isinstance(data, Rows):
            return data
        if isinstance(data, tuple | dict):
            raise TypeError("data must be an array of inputs: targets come from them, so pass x and not (x, y)")
        x = as_numeric(data, name="data")
        return Rows(x if np.issubdtype(x.dtype, np.floating) else x.astype(np.float32))

    def check(self, source: AbstractSource) -> None:
        x = source.examples(1)
        if isinstance(x, tuple | dict):
            raise TypeError("data must be a source of inputs alone, such as mx.data.Minibatches(mx.data.Rows(x), 128)")
        if x.ndim < 2:
            raise ValueError(f"data must have shape (n, features) or (n, channels, height, width), got {x.shape}")
        self.objective.check(x.shape[1:], self.core.output_size(x.shape[1:], x.dtype))
        if self.objective.compares_rows and source.batch_size < 2:
            name = type(self.objective).__name__
            raise ValueError(f"batch_size must be >= 2 for {name}(), which compares rows of a batch, got 1")
        warn_of_unit(source.examples(100), "data", stacklevel=4)

    def with_traced_numbers(self, trace: Callable[[PyTree], PyTree]) -> "SelfSupervised":
        """Those of prior and objective."""
        return eqx.tree_at(lambda m: (m.prior, m.objective), self, trace((self.prior, self.objective)))


def _key_of(index: Array) -> PRNGKeyArray:
    """Of the rows of a batch."""
    places = 2 * jnp.arange(index.shape[0], dtype=jnp.uint32) + 1
    return derive(jax.random.key(0), jnp.sum(index.astype(jnp.uint32) * places), stream=_DRAWN)

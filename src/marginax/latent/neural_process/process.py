r"""Neural processes: regression from a few points of a function, learned from many other functions.

$\log p(y_T \mid x_T, C) = \sum_{t \in T} \log N(y_t \mid \mu, \sigma)(x_t, r_C, z), \quad z \sim q(z \mid C)$

An example is a whole function, a task. Each time it is seen, some of its points are drawn to be the context C and the
others are targets T. Without a latent vector this is a likelihood (Garnelo et al., 2018a), the SUM over the targets of
a task; with one it is the bound of Garnelo et al. (2018b) on the same, with $q(z \mid C \cup T)$ against $q(z \mid C)$.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from jaxtyping import Key as KeyOf

from marginax.data import AbstractSource, Batch, Rows
from marginax.data.scaling import Scaling
from marginax.files import register
from marginax.latent.family import check_positive
from marginax.latent.neural_process.encoders import AbstractEncoder, LatentEncoder, over_points
from marginax.latent.neural_process.queries import NeuralProcessQueries
from marginax.latent.neural_process.tasks import Points, as_tasks, check_sizes, split_tasks
from marginax.model.abstract import AbstractModel, Params
from marginax.model.distributions import Normal
from marginax.model.priors import AbstractPrior, Leaf, default_prior
from marginax.nets import MLP, fan_in, is_weight, reinitialise


@register("latent/neural_process_networks")
class Networks(eqx.Module):
    """The networks of a neural process: at least one of the first two, and a decoder."""

    encoder: AbstractEncoder | None
    latent: LatentEncoder | None
    decoder: MLP

    def __call__(
        self, context: Points, x: Float[Array, "b m dx"], z: Float[Array, "b k"] | None
    ) -> tuple[Float[Array, "b m dy"], Float[Array, "b m dy"]]:
        """Means at targets, and scales before they are made positive."""
        parts = [x] if self.encoder is None or self.encoder.sees_inputs else []
        if self.encoder is not None:
            parts.append(self.encoder(context, x))
        if z is not None:
            parts.append(jnp.broadcast_to(z[:, None], (*x.shape[:2], z.shape[-1])))
        mean, raw = jnp.split(over_points(self.decoder, *parts), 2, axis=-1)
        return mean, raw


@register("latent/neural_process")
class NeuralProcess(AbstractModel):
    """A process with networks of your choice; `CNP`, `LatentNP`, `AttentiveNP` and `ConvCNP` are the published ones.

    Data are a dict with "x" (task, point, dx), "y" (task, point, dy) and "mask" (task, point), False where there is no
    point, or a list of pairs (x, y). Inputs and outputs are standardised, and predictions are in the units of the data.
    Posteriors have `condition`, whose answer has `predict`, `sample_functions` and `log_likelihood`, and
    `log_likelihood` of whole tasks.

    Args:
        encoder: `DeepSet`, `CrossAttention` or `ConvolutionalEncoder`, or None.
        latent: a `LatentEncoder`, or None. One of the two is needed.
        hidden: of the decoder.
        x_size: columns of x.
        y_size: columns of y.
        num_context: fewest and most points of a context; None for all points but one.
        min_scale: of the noise, in units of the standard deviation of y.
        prior: of the weights, from `mx.priors`, without hyperparameters; by default that of `mx.Model`.
        key: seed or JAX key of the decoder's first weights.

    >>> import marginax as mx
    >>> deep_set = mx.latent.DeepSet(x_size=1, y_size=1, width=8, num_layers=1, key=0)
    >>> process = mx.latent.NeuralProcess(deep_set, hidden=(8,), key=1)
    >>> process.networks.decoder.layers[0].weight.shape
    (8, 9)
    """

    networks: Networks
    x_size: int
    y_size: int
    num_context: tuple[int, int | None]
    min_scale: float | Array
    prior: AbstractPrior
    scaling: Scaling | None

    queries: ClassVar[type] = NeuralProcessQueries

    def __init__(
        self,
        encoder: AbstractEncoder | None = None,
        latent: LatentEncoder | None = None,
        *,
        hidden: tuple[int, ...] = (64, 64),
        x_size: int = 1,
        y_size: int = 1,
        num_context: tuple[int, int | None] = (1, None),
        min_scale: float = 0.01,
        prior: AbstractPrior | None = None,
        key: Any,
    ):
        """Check the pieces; the data are checked when they come."""
        if encoder is None and latent is None:
            raise ValueError("encoder must be given where there is no latent one, else contexts would not be seen")
        if encoder is not None:
            encoder.check(x_size)
        check_positive("min_scale", min_scale)
        self.num_context = check_sizes(num_context)
        in_size = x_size if encoder is None or encoder.sees_inputs else 0
        in_size += 0 if encoder is None else encoder.out_size
        in_size += 0 if latent is None else latent.latent_size
        self.networks = Networks(encoder, latent, MLP(in_size, hidden, 2 * y_size, key=key))
        self.x_size, self.y_size, self.min_scale, self.scaling = x_size, y_size, float(min_scale), None
        self.prior = default_prior() if prior is None else prior
        if any(self.prior.at(leaf.path).init(leaf) for leaf in self.leaves):
            raise ValueError(f"prior must have no hyperparameters here, got {prior!r}: give its scale as a number")

    # ---- data

    def read(self, data: Any) -> Rows:
        """Tasks as arrays of one length, with a mask."""
        return data if isinstance(data, Rows) else Rows(as_tasks(data))

    def check(self, source: AbstractSource) -> None:
        self.check_rows(source.examples(source.spec.num_examples))

    def check_rows(self, rows: Any) -> None:
        """Raise if these cannot be tasks of this process."""
        tasks = as_tasks(rows)
        for name, size in (("x", self.x_size), ("y", self.y_size)):
            if tasks[name].shape[2] != size:
                raise ValueError(f"{name} of tasks must have {name}_size={size} columns, got {tasks[name].shape[2]}")
        fewest = int(tasks["mask"].sum(1).min())
        if self.num_context[0] >= fewest:
            raise ValueError(f"num_context must start below the {fewest} points of a task, got {self.num_context}")

    def adapted_to(self, source: AbstractSource) -> "NeuralProcess":
        """With the means and standard deviations of the data, and room for the widest task."""
        tasks = as_tasks(source.examples(source.spec.num_examples))
        inside = tasks["mask"]
        x, y = tasks["x"][inside], tasks["y"][inside]
        encoder = self.networks.encoder
        spread = x.std(0) if encoder is None or encoder.sees_inputs else _spread_within(tasks["x"], inside)
        real = jax.dtypes.canonicalize_dtype(float)
        parts = (x.mean(0), _positive(spread), y.mean(0), _positive(y.std(0)))
        scaled = eqx.tree_at(
            lambda m: m.scaling, self, Scaling(*(np.asarray(p, real) for p in parts)), is_leaf=lambda m: m is None
        )
        return scaled.spanning(tasks)

    def spanning(self, tasks: dict[str, np.ndarray]) -> "NeuralProcess":
        """The process for tasks as wide as these."""
        if self.networks.encoder is None or self.networks.encoder.sees_inputs:
            return self
        inside = tasks["mask"][..., None] > 0
        low, high = np.where(inside, tasks["x"], np.inf).min(1), np.where(inside, tasks["x"], -np.inf).max(1)
        width = float(np.max((high - low) / self._scaling.x_factor))
        return eqx.tree_at(lambda m: m.networks.encoder, self, self.networks.encoder.spanning(width))

    @property
    def _scaling(self) -> Scaling:
        if self.scaling is None:
            raise ValueError("the process does not know the scale of its data yet: fit it by mx.fit")
        return self.scaling

    def points(self, rows: PyTree) -> Points:
        """In standard units. Padding has the x of a real point, so that it makes no task wider."""
        real = jax.dtypes.canonicalize_dtype(float)
        x, y, mask = (jnp.asarray(rows[name], real) for name in ("x", "y", "mask"))
        there = mask[..., None] > 0
        first = jnp.take_along_axis(x, jnp.argmax(there, 1)[:, None], axis=1)
        x, y = jnp.where(there, x, first), jnp.where(there, y, 0.0)
        return Points(self._scaling.transform_x(x), jnp.where(there, self._scaling.transform_y(y), 0.0), mask)

    # ---- the density

    def init(self, source: AbstractSource) -> Params:
        """The networks' own weights."""
        return eqx.filter(self.networks, is_weight(self.networks))

    def reinitialise(self, params: Params, *, key: PRNGKeyArray) -> Params:
        """Fresh random weights."""
        return eqx.filter(reinitialise(self.networks, key=key), is_weight(self.networks))

    def networks_of(self, params: Params) -> Networks:
        """The networks with these weights."""
        return eqx.combine(params, self.networks)

    def log_prior(self, params: Params) -> Float[Array, ""]:
        leaves = zip(self.leaves, jax.tree.leaves(params), strict=True)
        return sum((self.prior.at(leaf.path).log_prob(w, leaf, {}) for leaf, w in leaves), start=jnp.zeros(()))

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        """Of each task: the sum over its targets, or a bound of it.

        A key draws contexts and latent vectors; without one they are always the same for a row of the data.
        """
        base = jax.random.key(0) if key is None else key
        keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(base, i)))(batch.index)
        points = self.points(batch.data)
        context, target = split_tasks(points, self.num_context, keys[:, 0])
        return self.bound(params, points, context, target, keys[:, 1])

    def bound(
        self,
        params: Params,
        points: Points,
        context: Float[Array, "b n"],
        target: Float[Array, "b n"],
        keys: KeyOf[Array, " b"],
    ) -> Float[Array, " b"]:
        """Log density of targets given contexts; a bound, from one latent vector for each task, where it has them."""
        networks, given = self.networks_of(params), points.only(context)
        if networks.latent is None:
            return self._log_density(networks, given, points, target, None)
        proposal, prior = networks.latent(points.only(context + target)), networks.latent(given)
        noise = jax.vmap(lambda key: jax.random.normal(key, (networks.latent.latent_size,), points.x.dtype))(keys)  # pyright: ignore[reportOptionalMemberAccess]
        z = proposal.loc + proposal.scale * noise
        return self._log_density(networks, given, points, target, z) - divergence(proposal, prior)

    def log_predictive(
        self,
        params: Params,
        points: Points,
        context: Float[Array, "b n"],
        target: Float[Array, "b n"],
        *,
        num_importance: int,
        key: PRNGKeyArray,
    ) -> Float[Array, " b"]:
        r"""Log density of targets given contexts by importance sampling.

        $\log \frac1K \sum_k p(y_T \mid z_k)\, q(z_k \mid C) / q(z_k \mid C, T)$

        Exact without a latent vector. The proposal is the belief given all points; the estimate of the density is
        unbiased, and that of its log is low by about half the relative variance.
        """
        networks, given = self.networks_of(params), points.only(context)
        if networks.latent is None:
            return self._log_density(networks, given, points, target, None)
        proposal, prior = networks.latent(points.only(context + target)), networks.latent(given)

        def weight(key: PRNGKeyArray) -> Float[Array, " b"]:
            z = proposal.sample(key)
            odds = jnp.sum(prior.log_prob(z) - proposal.log_prob(z), -1)
            return odds + self._log_density(networks, given, points, target, z)

        logs = jax.lax.map(weight, jax.random.split(key, num_importance))
        return logsumexp(logs, axis=0) - jnp.log(num_importance)

    def predictive_at(
        self, networks: Networks, context: Points, x: Float[Array, "b m dx"], z: Float[Array, "b k"] | None
    ) -> Normal:
        """Of outputs in standard units, axes (b, m, dy)."""
        mean, raw = networks(context, x, z)
        return Normal(mean, self.min_scale + (1.0 - self.min_scale) * jax.nn.softplus(raw))

    def _log_density(
        self, networks: Networks, context: Points, points: Points, target: Float[Array, "b n"], z: Array | None
    ) -> Float[Array, " b"]:
        standard = self.predictive_at(networks, context, points.x, z).log_prob(points.y)
        each = jnp.sum(standard - jnp.log(jnp.asarray(self._scaling.y_factor)), -1)  # in the units of the data
        return jnp.sum(jnp.where(target > 0, each, 0.0), -1)

    # ---- unknowns

    @property
    def leaves(self) -> list[Leaf]:
        """The weights, in order."""
        weights = eqx.filter(self.networks, is_weight(self.networks))
        found = jax.tree_util.tree_leaves_with_path(weights)
        named = ((jax.tree_util.keystr(path, simple=True, separator="/"), leaf.shape) for path, leaf in found)
        return [Leaf(name, shape, fan_in(self.networks, shape)) for name, shape in named]

    def with_traced_numbers(self, trace: Callable[[PyTree], PyTree]) -> "NeuralProcess":
        """Those of noise and prior; the networks' are their own business."""
        numbers = self.min_scale, self.prior
        return eqx.tree_at(lambda m: (m.min_scale, m.prior), self, trace(numbers))

    def sampled(self, params: Params) -> Networks:
        """Networks, whose weights have the leading axis of the parameters."""
        return eqx.combine(jax.tree.map(jnp.asarray, params), self.networks)

    @property
    def draw_name(self) -> str:
        return "process"

    @property
    def structure(self) -> list[list[Any]]:
        return [[leaf.path, list(leaf.shape)] for leaf in self.leaves]


def divergence(first: Normal, second: Normal) -> Float[Array, "*b"]:
    """Kullback-Leibler divergence of the first from the second, independent normals, summed over the last axis.

    >>> divergence(Normal(jnp.ones((1, 2)), jnp.ones((1, 2))), Normal(jnp.zeros((1, 2)), jnp.ones((1, 2)))).tolist()
    [1.0]
    """
    ratio = jnp.square(first.scale / second.scale)
    distance = jnp.square((first.loc - second.loc) / second.scale)
    return 0.5 * jnp.sum(ratio + distance - 1.0 - jnp.log(ratio), -1)


def _positive(spread: np.ndarray) -> np.ndarray:
    return np.where(spread > 0, spread, 1.0)


def _spread_within(x: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The standard deviation about the mean of each task."""
    weight = inside[..., None] / inside.sum(1)[:, None, None]
    centre = (weight * x).sum(1, keepdims=True)
    return np.sqrt((weight * (x - centre) ** 2).sum(1).mean(0))

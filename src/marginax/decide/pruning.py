r"""Pruning: which weights are not needed, and what their loss costs.

A weight whose standard deviation is large beside its mean says nothing that the network could not do without. Weights
are ranked by $|\mu| / \sigma$ and the lowest are removed: set to zero, for good and without spread (Graves, 2011;
Blundell et al., 2015, section 5.3). The others keep their distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from marginax.curvature import DiagonalCovariance
from marginax.decide.curve import judge
from marginax.model import Model, Params
from marginax.nets import MLP
from marginax.posterior import AbstractPosterior, Draws, Gaussian, Mixture


@dataclass(frozen=True)
class PruningRow:
    """What is left after removing a fraction of the weights.

    Attributes:
        fraction: of the weights that were removed.
        num_weights: that are left.
        nll: mean negative log predictive density of the given targets.
        error: rate of wrong classes, or root mean squared error.
    """

    fraction: float
    num_weights: int
    nll: float
    error: float


@dataclass(frozen=True)
class Pruning:
    """A smaller posterior, and what each fraction costs; print it.

    Attributes:
        posterior: with the fraction of its weights removed.
        table: one row per fraction that was tried; empty without data.
    """

    posterior: AbstractPosterior
    table: tuple[PruningRow, ...]

    def __str__(self) -> str:
        """A table in plain text."""
        lines = [f"{'removed':>8} {'weights left':>13} {'NLL':>9} {'error':>9}"]
        lines += [f"{r.fraction:>8.1%} {r.num_weights:>13,} {r.nll:>9.4f} {r.error:>9.4f}" for r in self.table]
        return "\n".join(lines)


def prune(
    posterior: AbstractPosterior,
    fraction: float | int,
    data: tuple[Any, Any] | None = None,
    *,
    fractions: Sequence[float | int] = (0.0, 0.5, 0.75, 0.95, 0.98),
) -> Pruning:
    """Remove the random weights with the lowest signal-to-noise ratio.

    In a mixture each component loses its own lowest weights, since components may be different networks.

    Args:
        posterior: `Gaussian` (from VI, IVON, Laplace), `Draws` of at least two networks, or a `Mixture` of those.
        fraction: of the weights to remove, in [0, 1), rounded to a whole number of them.
        data: a pair (x, y) to judge the result on.
        fractions: that the table shows besides `fraction`.

    Returns:
        The smaller posterior and, with data, the table.

    >>> import marginax as mx
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> model = mx.Model(mx.nets.MLP(1, (16,), 1, key=0), mx.likelihoods.Gaussian(scale=0.1))
    >>> posterior = mx.fit(model, (x, x[:, 0] ** 2), mx.infer.VI(num_epochs=20), key=0)
    >>> [row.num_weights for row in prune(posterior, 0.6, (x, x[:, 0] ** 2)).table]
    [49, 25, 20, 12, 2, 1]
    """
    for name, value in (("fraction", fraction), *(("fractions", each) for each in fractions)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be in [0, 1), got {value}")
    if data is not None and not (isinstance(data, tuple | list) and len(data) == 2):
        raise ValueError(f"data must be a pair (x, y), got {type(data).__name__}")
    ratios = signal_to_noise(posterior)
    table = []
    if data is not None:
        model: Any = posterior.model
        size = sum(math.prod(leaf.shape) for leaf in model.leaves)
        for each in sorted({float(f) for f in (*fractions, fraction)}):
            x, y = data
            found = judge(_remove(posterior, ratios, each).predict(x), np.asarray(y))
            table.append(PruningRow(each, size - round(each * size), found["nll"], found["error"]))
    return Pruning(_remove(posterior, ratios, fraction), tuple(table))


def signal_to_noise(posterior: AbstractPosterior) -> PyTree:
    r"""$|\mu| / \sigma$ of every random weight, in the shape of the network; a tuple of those for a mixture.

    It is 0 for a weight that has been removed, and infinite for another one without spread.

    Args:
        posterior: as in `prune`.

    >>> import marginax as mx
    >>> model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(scale=0.1))
    >>> mean = Params({"w": jnp.array([-3.0, 1.0])}, {}, {})
    >>> signal_to_noise(Gaussian(model, mean, DiagonalCovariance(jnp.array([1.0, 2.0]))))
    {'w': array([3. , 0.5], dtype=float32)}
    """
    if isinstance(posterior, Mixture):
        return tuple(signal_to_noise(part) for part in posterior.components)

    def ratio(mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return np.divide(np.abs(mean), scale, out=np.where(mean == 0, 0.0, np.inf).astype(mean.dtype), where=scale > 0)

    return jax.tree.map(ratio, *moments(posterior))


def moments(posterior: AbstractPosterior) -> tuple[PyTree, PyTree]:
    """Mean and standard deviation of every random weight, in the shape of the network."""
    if isinstance(posterior, Gaussian):
        scale = ravel_pytree(posterior.mean)[1](jnp.sqrt(posterior.covariance.variances()))
        return jax.tree.map(np.asarray, (posterior.mean.network, scale.network))
    if isinstance(posterior, Draws) and not posterior.is_point:
        network = jax.tree.map(np.asarray, posterior.flat().network)
        mean = jax.tree.map(lambda leaf: np.mean(leaf, axis=0, dtype=np.float64), network)
        return mean, jax.tree.map(lambda leaf: np.std(leaf, axis=0, dtype=np.float64), network)
    raise TypeError(
        "posterior must say how sure it is of each weight, as those of VI, IVON, Laplace and samplers do, "
        f"got {posterior.describe()}"
    )


def compact(posterior: AbstractPosterior) -> AbstractPosterior:
    """Leave out the hidden units of an MLP from which no weights lead on: a smaller network with the same outputs.

    Networks drawn from a Gaussian differ from those before, as they take fewer random numbers; their distribution does
    not. A prior that depends on fan-in becomes that of the smaller network.

    Args:
        posterior: a pruned one: `Draws`, or `Gaussian` with a diagonal covariance.

    >>> import marginax as mx
    >>> model = mx.Model(mx.nets.MLP(2, (16,), 1, key=0), mx.likelihoods.Gaussian(scale=0.1))
    >>> posterior = Gaussian(model, model.initial(1), DiagonalCovariance(jnp.full(65, 0.1)))
    >>> compact(prune(posterior, 0.9).posterior).covariance.size < 30
    True
    """
    model: Any = posterior.model
    network = model.network
    if not isinstance(network, MLP) or network.norms:
        raise TypeError(f"posterior must be one of an mx.nets.MLP without norm to be compacted, got {network}")
    if isinstance(posterior, Gaussian) and isinstance(posterior.covariance, DiagonalCovariance):
        params, num_axes = posterior.mean, 0
        scale = ravel_pytree(params)[1](posterior.covariance.scale)
    elif isinstance(posterior, Draws):
        params, num_axes, scale = posterior.params, 2, None
    else:
        raise TypeError(
            f"posterior must be made of draws or have a diagonal covariance to be compacted, got {posterior.describe()}"
        )
    if any(leaf.ndim > num_axes for leaf in jax.tree.leaves(params.prior)):
        raise ValueError("posterior must have a prior without unknowns for single weights to be compacted")
    leads = jax.tree.map(lambda mean, scale: (mean != 0) | (scale != 0), *moments(posterior))
    units = _units_in_use(eqx.combine(leads, network))
    sizes = [len(unit) for unit in units]
    like = MLP(
        sizes[0],
        sizes[1:-1],
        sizes[-1],
        activation=network.activation,
        dropout=network.dropout,
        initialiser=network.initialiser,
        key=0,
    )
    network = jax.tree.unflatten(jax.tree.structure(like), _cut(network, units))
    model = Model(network, model.likelihood, model.prior, model.subset)
    structure = jax.tree.structure(eqx.filter(network, model.is_random()))

    def cut(params: Params) -> Params:
        return Params(jax.tree.unflatten(structure, _cut(params.network, units)), params.likelihood, params.prior)

    if scale is None:
        return eqx.tree_at(lambda p: (p.model, p.params), posterior, (model, cut(params)))
    new = (model, cut(params), DiagonalCovariance(ravel_pytree(cut(scale))[0]))
    return eqx.tree_at(lambda p: (p.model, p.mean, p.covariance), posterior, new)


def _remove(posterior: AbstractPosterior, ratios: PyTree, fraction: float | int) -> AbstractPosterior:
    """The posterior without the weights that have the lowest ratios."""
    if isinstance(posterior, Mixture):
        parts = zip(posterior.components, ratios, strict=True)
        components = tuple(_remove(part, ratio, fraction) for part, ratio in parts)
        return eqx.tree_at(lambda p: p.components, posterior, components)
    leaves, structure = jax.tree.flatten(ratios)
    flat = np.concatenate([leaf.ravel() for leaf in leaves])
    kept = np.ones(flat.size, bool)
    kept[np.argsort(flat, kind="stable")[: round(fraction * flat.size)]] = False
    parts = np.split(kept, np.cumsum([leaf.size for leaf in leaves])[:-1])
    masks = structure.unflatten([part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])
    if isinstance(posterior, Draws):
        network = jax.tree.map(lambda leaf, mask: np.where(mask, leaf, 0), posterior.params.network, masks)
        return eqx.tree_at(lambda p: p.params.network, posterior, network)
    assert isinstance(posterior, Gaussian)
    network = jax.tree.map(lambda leaf, mask: jnp.where(mask, leaf, 0), posterior.mean.network, masks)
    rest = np.ones(posterior.covariance.size - kept.size, bool)  # unknowns besides the weights, which come last
    covariance = posterior.covariance.keep(jnp.asarray(np.concatenate([kept, rest])))
    return eqx.tree_at(lambda p: (p.mean.network, p.covariance), posterior, (network, covariance))


def _units_in_use(leads: MLP) -> list[np.ndarray]:
    """Inputs, units of each hidden layer and outputs that remain, where weights are True if they lead on."""
    units = [np.arange(leads.layers[-1].weight.shape[0])]
    for layer in reversed(leads.layers[1:]):
        used = np.flatnonzero(np.asarray(layer.weight)[units[0]].any(axis=0))
        units.insert(0, used if used.size else np.array([0]))  # a layer has at least one unit
    return [np.arange(leads.layers[0].weight.shape[1]), *units]


def _cut(network: MLP, units: list[np.ndarray]) -> list[Array]:
    """The leaves of an MLP (or of draws of it) with these units."""
    leaves = []
    for layer, before, after in zip(network.layers, units, units[1:], strict=False):
        if layer.weight is not None:
            leaves.append(layer.weight[..., after[:, None], before])
        if layer.bias is not None:
            leaves.append(layer.bias[..., after])
    return leaves

"""What a posterior says of its weights, as normal distributions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from marginax.curvature import AbstractCovariance, BlockCovariance, DiagonalCovariance
from marginax.model import AbstractModel, Model, Params
from marginax.model.model import leaves_of
from marginax.model.prior import Leaf
from marginax.model.with_core import AbstractWithCore
from marginax.nets import as_network, is_weight
from marginax.posterior.draws import Draws
from marginax.posterior.flow import Transformed
from marginax.posterior.gaussian import Gaussian, Mixture
from marginax.posterior.normal_families import AbstractNormalFamily, DiagonalNormal, Moments
from marginax.posterior.posterior import AbstractPosterior
from marginax.posterior.wrapped import AbstractWrapped

_NUM_DRAWS = 1000  # of a posterior that is neither normal nor made of draws

Normals = list[tuple[float, np.ndarray, AbstractCovariance]]


def normals_around(network: Any, family: AbstractNormalFamily | None) -> tuple[list[Leaf], Normals]:
    """Independent normals with unit scales around the weights of a network."""
    try:
        network = as_network(network)
    except TypeError as error:
        raise TypeError(f"posterior must be a posterior or a network: {error}") from None
    if family is not None:
        raise ValueError(f"family must be left out for a network, got {family!r}: each weight has its own normal")
    weights = eqx.filter(network, is_weight(network))
    mean = _flattened(weights, 0)
    return leaves_of(network, weights), [(1.0, mean, DiagonalCovariance(jnp.ones(mean.shape[0])))]


def normals_of(
    posterior: AbstractPosterior, family: AbstractNormalFamily | None, likelihood: bool
) -> tuple[list[Leaf], Normals, tuple[tuple[str, tuple[int, ...]], ...]]:
    """Weight, mean and covariance of each, and names and shapes of the unknowns that they are about besides."""
    parts = _parts_of(posterior)
    model = core_of(posterior.model)
    params = _params_of(parts[0][1])
    axes = 0 if isinstance(parts[0][1], Gaussian) else 1
    shapes = tuple((name, np.shape(params.likelihood[name])[axes:]) for name in sorted(params.likelihood))
    num_weights = sum(int(np.prod(leaf.shape)) for leaf in model.leaves)
    size = num_weights + sum(int(np.prod(shape)) for _, shape in shapes)
    if not likelihood or not all(_has_spread(part, num_weights, size) for _, part in parts):
        shapes, size = (), num_weights
    normals = _fitted([(weight, _moments(part, size)) for weight, part in parts], family)
    if not all(np.all(np.asarray(covariance.variances()) > 0) for _, _, covariance in normals):
        raise ValueError(
            "posterior has no spread for some weights, of which a prior must say something: infer all of the model's "
            "random weights (subset=mx.All()), or make the others fixed with subset= of the model"
        )
    return model.leaves, normals, shapes


def core_of(model: AbstractModel) -> Model:
    """The model whose weights a posterior is about: a network with its prior."""
    core = model.core if isinstance(model, AbstractWithCore) else model
    if not isinstance(core, Model):
        raise TypeError(f"posterior must be that of an mx.Model, got one of {type(model).__name__}")
    return core


def _fitted(read: list[tuple[float, Moments]], family: AbstractNormalFamily | None) -> Normals:
    """As they are without a family, one for each part if it splits, else one for all."""
    if family is None and all(moments.draws is None for _, moments in read):
        return [(weight, moments.mean, moments.covariances[0]) for weight, moments in read]
    family = DiagonalNormal() if family is None else family
    if not family.splits and len(read) > 1:
        read = [(1.0, _joined(read))]
    return [(weight, moments.mean, family.covariance(_enough(moments))) for weight, moments in read]


def _joined(read: list[tuple[float, Moments]]) -> Moments:
    if all(moments.draws is not None for _, moments in read):
        return Moments(np.concatenate([moments.draws for _, moments in read if moments.draws is not None]))
    total = sum(weight for weight, _ in read)
    means = np.stack([moments.mean for _, moments in read])
    covariances = tuple(
        DiagonalNormal().covariance(moments) if moments.draws is not None else moments.covariances[0]
        for _, moments in read
    )
    return Moments(None, means, covariances, tuple(weight / total for weight, _ in read))


def _enough(moments: Moments) -> Moments:
    if moments.draws is not None and len(moments.draws) < 2:
        raise ValueError(
            "posterior has one draw, which has no spread: pass a network, as in FromPosterior(network, scale=0.1), or "
            "for several chains of one draw each family=mx.priors.DiagonalNormal()"
        )
    return moments


def _parts_of(posterior: AbstractPosterior) -> list[tuple[float, Gaussian | Draws]]:
    """The parts of a mixture, or the chains of draws, with their weights."""
    if isinstance(posterior, AbstractWrapped):
        return _parts_of(posterior.posterior)
    if isinstance(posterior, Mixture):
        pairs = zip(posterior.weights, posterior.components, strict=True)
        return [(float(w) * weight, part) for w, inner in pairs for weight, part in _parts_of(inner)]
    if isinstance(posterior, Gaussian):
        return [(1.0, posterior)]
    if isinstance(posterior, Transformed):
        drawn = posterior.sample_params(_NUM_DRAWS, key=posterior.prediction_key())
        return [(1.0, Draws(posterior.model, jax.tree.map(lambda leaf: leaf[None], drawn)))]
    if not isinstance(posterior, Draws):
        raise TypeError(
            f"posterior must be a distribution over weights, got {type(posterior).__name__}: {posterior.describe()}"
        )
    chains = range(posterior.num_chains)
    parts = [jax.tree.map(lambda leaf, at=chain: leaf[at : at + 1], posterior.params) for chain in chains]
    return [(1.0 / len(parts), Draws(posterior.model, part)) for part in parts]


def _has_spread(part: Gaussian | Draws, start: int, stop: int) -> bool:
    """Whether it has a spread for these parameters, which Laplace holds fixed."""
    return isinstance(part, Draws) or bool(np.all(np.asarray(part.covariance.variances())[start:stop] > 0))


def _params_of(part: Gaussian | Draws) -> Params:
    return part.mean if isinstance(part, Gaussian) else part.flat()


def _moments(part: Gaussian | Draws, size: int) -> Moments:
    """Of the first parameters: weights, then the likelihood's unknowns; hyperparameters of the prior come last."""
    params = _params_of(part)
    axes = 0 if isinstance(part, Gaussian) else 1
    flat = _flattened((params.network, params.likelihood), axes)
    if isinstance(part, Draws):
        return Moments(flat[:, :size])
    covariance = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, part.covariance)
    return Moments(None, flat[None, :size], (_as_diagonal(covariance.leading(size)),), (1.0,))


def _as_diagonal(covariance: AbstractCovariance) -> AbstractCovariance:
    """Blocks that are diagonal are one diagonal."""
    if not isinstance(covariance, BlockCovariance):
        return covariance
    blocks = [_as_diagonal(block) for block in covariance.blocks]
    scales = [block.scale for block in blocks if isinstance(block, DiagonalCovariance)]
    return DiagonalCovariance(jnp.concatenate(scales)) if len(scales) == len(blocks) else covariance


def _flattened(tree: Any, axes: int) -> np.ndarray:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(*leaf.shape[:axes], -1) for leaf in leaves], axis=-1)

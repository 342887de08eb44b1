r"""How the gradient of an expected log likelihood is estimated from random weights.

All three have the same expectation; they differ in how much the examples of a batch share their noise. With one draw
of the weights for the whole batch (plain reparameterisation) errors add up coherently; with flipout and local
reparameterisation they average out over the batch.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import derive
from marginax.data import Batch
from marginax.files import register
from marginax.infer.vi.families import AbstractApproximation, AbstractFamily
from marginax.model import AbstractModel, Model, Params
from marginax.nets import (
    AbstractNoise,
    FlipoutPerturbation,
    LocalNormal,
    kind_of,
    layer_shapes,
    layers_in_loops,
    layers_of,
    replace_layers,
)


class AbstractEstimator(eqx.Module):
    """Estimates the expected log likelihood of all data from a batch."""

    @property
    def needs_layers(self) -> bool:
        """Whether weights are drawn layer by layer."""
        return False

    def check(self, family: AbstractFamily) -> None:
        """Raise if it cannot be used with this family."""
        if self.needs_layers and not family.is_layerwise:
            raise ValueError(
                f"estimator {type(self).__name__}() needs weights with independent noise: use family=MeanField() or "
                f"LowRank(), or estimator=Reparameterisation() with {type(family).__name__}"
            )

    @abc.abstractmethod
    def log_likelihood(
        self, model: AbstractModel, approximation: AbstractApproximation, draw: Any, batch: Batch, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """The estimate; `draw` is a draw from the approximation, `key` is for whatever else is drawn."""


@register("gradient/reparameterisation")
class Reparameterisation(AbstractEstimator):
    r"""One draw $w = \mu + \mathrm{softplus}(\rho)\,\epsilon$ for the whole batch: any network, any family."""

    def log_likelihood(
        self, model: AbstractModel, approximation: AbstractApproximation, draw: Any, batch: Batch, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        return model.scaled_log_likelihood(draw, batch)


class AbstractLayerwise(AbstractEstimator):
    """Weights of layers are drawn for each example; those outside of layers, or of layers used twice, for the batch."""

    @abc.abstractmethod
    def rule(self, layer: eqx.Module, scale: eqx.Module, shift: eqx.Module, is_shared: bool) -> AbstractNoise:
        """How a layer is disturbed, given the standard deviations of its weights and a draw of their deviations.

        Args:
            layer: at its mean.
            scale: standard deviations of its weights.
            shift: a draw of their deviations.
            is_shared: whether a loop or a map inside the network uses its weights many times for one example.
        """

    needs_layers: ClassVar[bool] = True

    def log_likelihood(
        self, model: Model, approximation: AbstractApproximation, draw: Params, batch: Batch, *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """With a rule for each layer that is used once; what weights share is drawn for the batch."""
        independent = approximation.conditional(key=derive(key, 0))
        assert independent is not None
        mean, scales = independent.mean, independent.scales()
        draw = independent.sample(key=derive(key, 1))
        network = model.network_of(mean)
        shapes = layer_shapes(network, batch.x.shape[1:], batch.x.dtype)
        shared = layers_in_loops(network, batch.x.shape[1:], batch.x.dtype)
        trees = (network, mean.network, scales.network, draw.network)
        rules, weights = [], []
        for shape, is_shared, layer, centre, scale, drawn in zip(shapes, shared, *map(layers_of, trees), strict=True):
            by_rule = shape is not None and bool(jax.tree.leaves(centre))
            shift = jax.tree.map(jnp.subtract, drawn, centre)
            rules.append(self.rule(layer, scale, shift, is_shared) if by_rule else None)
            weights.append(centre if by_rule else drawn)
        params = eqx.tree_at(lambda p: p.network, draw, replace_layers(draw.network, weights))
        if not any(rules):
            return model.scaled_log_likelihood(params, batch)
        return batch.total(model.log_likelihood(params, batch, key=derive(key, 2), noise=tuple(rules)))


@register("gradient/local_reparameterisation")
class LocalReparameterisation(AbstractLayerwise):
    """Draw the outputs of linear layers instead of their weights (Kingma, Salimans & Welling, 2015).

    The quietest gradients, and the cheapest: one normal number per unit and example. Convolutions and layers over
    sequences, whose outputs at different places share weights, get flipout.
    """

    def rule(self, layer: eqx.Module, scale: eqx.Module, shift: eqx.Module, is_shared: bool) -> AbstractNoise:
        kind = kind_of(layer)
        one_place = kind is not None and kind.has_one_place and not is_shared
        return LocalNormal(scale) if one_place else FlipoutPerturbation(shift)


@register("gradient/flipout")
class Flipout(AbstractLayerwise):
    """One draw of the weights' deviations, with random signs for each example (Wen et al., 2018)."""

    def rule(self, layer: eqx.Module, scale: eqx.Module, shift: eqx.Module, is_shared: bool) -> AbstractNoise:
        return FlipoutPerturbation(shift)

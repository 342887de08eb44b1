r"""BatchEnsemble (Wen, Tran & Ba, 2020): an ensemble that costs little more than one network.

Member m has the weights $W \circ s_m r_m^\top$ in every layer, and a bias of its own. A step takes a batch as for one
network: rows are dealt to the members in turn, and all go through the shared $W$ in one product. So a member sees one
row in M, and all rows of the data over M epochs (or, with all rows in every step, over M steps on average).

The paper decays the shared weights alone. Here the prior is that of the weights which a member ends up with (see
`shared_weights`), estimated at each step by that of one member: with one member and known factors it is MAP, and on a
linear network every member is the ridge regression, so that, as for `DeepEnsemble`, there is no spread.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax._kernels.random import derive, normal
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.members.shared_weights import AbstractSharedWeights, member_at, spread_out
from marginax.model import Model, Params
from marginax.nets import RankOneFactors, layers_of, rank_one_layers, replace_layers

Factors = tuple[RankOneFactors | None, ...]  # one for each layer of a network

_APART, _NEAR = 0.5, 0.1


@register_method(
    "method/batch_ensemble",
    gives="members that share their weights up to factors",
    use_when="an ensemble of a large network, at the cost of one",
    cost="1 training run",
    order=54,
)
class BatchEnsemble(AbstractSharedWeights):
    """Members that differ by factors on the inputs and outputs of their layers, and by their biases.

    All layers that are known get factors (those inside attention and recurrent networks, too); weights outside of them,
    such as those of normalisation, embeddings and from state to state, are the same for all members.

    Takes what every `AbstractSharedWeights` takes, and:

    Args:
        initial_scale: how far from 1 the factors start, by a normal law; by default 0.5, or 0.1 where `init=` says
            where the weights start.
    """

    initial_scale: float | None = None

    def __check_init__(self):
        if self.initial_scale is not None and not self.initial_scale >= 0:
            raise ValueError(f"initial_scale must be >= 0 or None, got {self.initial_scale}")

    def warm_started(self) -> "BatchEnsemble":
        return replace(self, initial_scale=_NEAR if self.initial_scale is None else self.initial_scale)

    def first_own(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> Factors:
        return first_factors(
            model, params, self.num_members, _APART if self.initial_scale is None else self.initial_scale, key=key
        )

    def members(self, model: Model, params: Params, own: Factors) -> Params:
        return jax.vmap(lambda one: with_factors(params, one, RankOneFactors.applied_to))(own)

    def log_prior(self, model: Model, params: Params, own: Factors, first: Int[Array, ""]) -> Float[Array, ""]:
        return model.log_prior(with_factors(params, member_at(own, first), RankOneFactors.applied_to))

    def log_likelihood(
        self, model: Model, params: Params, own: Factors, batch: Batch, first: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        return batch.total(model.log_likelihood(params, batch, key=derive(key, 1), noise=dealt(own, first)))


def first_factors(
    model: Model, params: Params, num_members: int, scale: float | Array, *, key: PRNGKeyArray
) -> Factors:
    """Normal factors around 1 for every layer with random weights, and for every member the layer's bias."""
    factors = []
    chosen = rank_one_layers(model.network, params.network)
    for i, (is_chosen, layer) in enumerate(zip(chosen, layers_of(params.network), strict=True)):
        if not is_chosen:
            factors.append(None)
            continue
        num_outputs, num_inputs = layer.weight.shape[:2]
        at = derive(key, i)
        inputs, outputs = (
            1.0 + scale * normal(at, (num_members, size), layer.weight.dtype, stream=stream)
            for stream, size in enumerate((num_inputs, num_outputs))
        )
        bias = None if layer.bias is None else spread_out(layer.bias.ravel(), num_members)
        factors.append(RankOneFactors(inputs, outputs, bias))
    return tuple(factors)


def dealt(own: Factors, first: Int[Array, ""]) -> Factors:
    """Factors for a batch whose first row belongs to this member."""
    return tuple(factors and replace(factors, first=first) for factors in own)


def with_factors(params: Params, own: Factors, put: Callable[[RankOneFactors, Any], Any]) -> Params:
    """The parameters of one member, whose layers are made by `put` from its factors and the shared ones."""
    pairs = zip(own, layers_of(params.network), strict=True)
    layers = [layer if factors is None else put(factors, layer) for factors, layer in pairs]
    return eqx.tree_at(lambda p: p.network, params, replace_layers(params.network, layers))

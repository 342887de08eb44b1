"""Passes over the data that sum the curvature at the mode, batch by batch."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax.curvature import (
    AbstractKind,
    AbstractStructure,
    Cost,
    Extent,
    Plan,
    Point,
    SingleWeights,
    check_memory,
    estimate,
    plan_for,
)
from marginax.data import AbstractSource, Batch
from marginax.infer.method import Phase
from marginax.model import AbstractModel, AbstractSubset, Model
from marginax.model.abstract import Params
from marginax.nets import layer_paths
from marginax.posterior import Mode


class LaplaceState(eqx.Module):
    """The mode as it is found, then the curvature as it is summed."""

    params: Params
    training: PyTree
    sums: PyTree
    num_passes: Array
    count: Array
    log_likelihood: Array
    num_examples: Array
    example: Array | None
    total_weight: Array | None = None  # of the rows seen, where rows have weights


class LaplaceInfo(eqx.Module):
    """How many examples the curvature has seen, and their log likelihood so far."""

    num_seen: Array
    log_likelihood: Array


class Passes(eqx.Module):
    """What is summed, for which weights, and how.

    Args:
        structure: what is kept of the curvature.
        subset: which weights it is about.
        kind: which curvature.
    """

    structure: AbstractStructure
    subset: AbstractSubset
    kind: AbstractKind

    @classmethod
    def of(cls, structure: AbstractStructure, subset: AbstractSubset, kind: AbstractKind) -> "Passes":
        """Single weights are chosen by a pass before."""
        return cls(structure if subset.num_chosen is None else SingleWeights(structure, subset), subset, kind)

    def check(self, model: AbstractModel) -> None:
        """Refuse a model without a network where its layers or outputs are needed, and weights that have no order."""
        self.subset.check(getattr(model, "network", None))
        for name, value, asks in (
            ("structure", self.structure, self.structure.needs_layers),
            ("kind", self.kind, self.kind.needs_outputs),
        ):
            if asks and not hasattr(model, "network"):
                raise TypeError(
                    f"{name} {type(value).__name__}() needs the layers of a network, which {type(model).__name__} has "
                    "not: use structure=mx.curvature.Dense(), Diagonal() or LowRank() with kind=mx.curvature.Hessian()"
                )
        if isinstance(model, Model):
            self._check_prior(model)

    def _check_prior(self, model: Model) -> None:
        """What a prior says must be added to the curvature as it is."""
        name, prior = f"structure {type(self.structure).__name__}()", type(model.prior).__name__
        paths = [leaf.path for leaf in model.leaves]
        chosen = [path for path, is_in in zip(paths, self.subset.select(paths), strict=True) if is_in]
        whole = self.structure.takes_any_prior and len(chosen) == len(paths)
        if model.prior.couples_weights and not whole:
            raise ValueError(
                f"{name} cannot add the precision of prior {prior}, whose weights depend on each other: use "
                "structure=mx.curvature.Dense() for all weights, or the prior with family=mx.priors.DiagonalNormal()"
            )
        varying = [path for path in chosen if model.prior.varies_within(path)]
        if varying and self.structure.averages_prior:
            raise ValueError(
                f"{name} takes the mean of a prior's precisions over a leaf, and those of {prior} differ within "
                f"{varying[0]}: use structure=mx.curvature.Diagonal() or Dense()"
            )

    def _check_layers(self, model: AbstractModel, plan: Plan) -> None:
        """Of a network that says which of its weights are in no layer, these are refused where layers are needed."""
        outside = getattr(getattr(model, "network", None), "weights_outside_layers", None)
        if outside is None or not self.structure.needs_layers:
            return
        layers = set(layer_paths(model.network))  # pyright: ignore[reportAttributeAccessIssue]
        plain = [leaf for leaf in plan.selected if leaf.site is None and len(leaf.shape) > 1]
        found = [leaf.path for leaf in plain if leaf.path in outside or leaf.path.rpartition("/")[0] in layers]
        if found:
            raise ValueError(
                f"structure {type(self.structure).__name__}() needs weights that are in layers, and {', '.join(found)} "
                "are in none that is known (a recurrence, a convolution in groups, a product of the module's own): "
                "use structure=mx.curvature.Diagonal(), or leave them out with subset=mx.Paths(...) or mx.LastLayer()"
            )

    def plan(self, model: AbstractModel, params: Params, example: Array | None) -> Plan:
        """Which leaves of the weights, and how they are differentiated: `example` as below."""
        shape, dtype = (None, None) if example is None else (example.shape, example.dtype)
        plan = plan_for(model, params, shape, dtype)
        return plan.only(tuple(self.subset.select([leaf.path for leaf in plan.leaves])))

    def cost(self, model: AbstractModel, source: AbstractSource) -> Cost:
        """Memory and time, before anything is computed or allocated."""
        self.check(model)
        params, (num_columns, example) = model.init(source), (0, None)
        if self.kind.needs_outputs:
            x = jnp.asarray(source.examples(1)[0])
            num_columns, example = self._num_columns(model, x), x[0]
        extent = Extent(source.spec.num_examples, source.batch_size, num_columns)
        return estimate(self.structure, self.plan(model, params, example), extent)

    def start(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> PyTree:
        """Empty sums; an error where those would not fit in memory."""
        plan = self.plan(model, params, self.example(batch))
        self._check_layers(model, plan)
        num_columns = self._num_columns(model, batch.x) if self.kind.needs_outputs else 0
        extent = Extent(batch.num_examples, batch.size, num_columns)
        check_memory(self.structure, plan, extent)
        return self.structure.empty(plan, extent, key=key)

    def example(self, batch: Batch) -> Array | None:
        """An input of the network, if that is needed."""
        return batch.x[0] if self.kind.needs_outputs else None

    def phases(self, num_steps: int) -> tuple[Phase, ...]:
        """Passes of so many steps, and what is between them."""
        phases: tuple[Phase, ...] = ()
        for number in range(self.structure.num_passes):
            if number > 0:
                phases += (Phase(f"between passes {number}", 1, Between(self).step),)
            name = "curvature" if number == 0 else f"curvature {number + 1}"
            phases += (Phase(name, num_steps, Pass(self, self.structure.same_as(number)).step),)
        return phases

    def mode(self, model: AbstractModel, state: LaplaceState) -> Mode:
        """What the sums say of the place."""
        plan = self.plan(model, state.params, state.example)
        curvature, index = self.structure.finalise(state.sums, plan), self.structure.chosen(state.sums)
        num_examples = state.num_examples if state.total_weight is None else state.total_weight
        return Mode(curvature, state.log_likelihood, num_examples, plan.flags, index)

    def _num_columns(self, model: Any, x: Any) -> int:
        return self.kind.num_columns(model.output_size(x.shape[1:], x.dtype))


class Pass(eqx.Module):
    """A pass over the data: the sums of the structure, and the log likelihood."""

    passes: Passes
    number: int = eqx.field(static=True)

    def step(
        self, model: AbstractModel, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, LaplaceInfo]:
        """Add a batch; rows that belong to the next epoch count for nothing."""
        plan = self.passes.plan(model, state.params, self.passes.example(batch))
        dtype = jax.tree.leaves(state.params)[0].dtype
        weights = (state.count + jnp.arange(batch.size) < batch.num_examples).astype(dtype)
        curvature = self.passes.kind.of_batch(Point(model, state.params, plan, batch, weights, key))
        sums = self.passes.structure.add(state.sums, curvature, self.number)
        log_likelihood = state.log_likelihood + curvature.log_likelihood()
        count = state.count + batch.size
        new = eqx.tree_at(lambda s: (s.sums, s.count, s.log_likelihood), state, (sums, count, log_likelihood))
        if state.total_weight is not None:
            new = eqx.tree_at(lambda s: s.total_weight, new, state.total_weight + jnp.sum(batch.weigh(weights)))
        return new, LaplaceInfo(count, log_likelihood)


class Between(eqx.Module):
    """What one pass leaves for the next."""

    passes: Passes

    def step(
        self, model: AbstractModel, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, LaplaceInfo]:
        """Once."""
        sums = self.passes.structure.next_pass(state.sums, lambda: ravel_pytree(model.prior_precision(state.params))[0])
        return restarted(state, sums, state.num_passes + 1)


def restarted(state: LaplaceState, sums: PyTree, num_passes: Array) -> tuple[LaplaceState, LaplaceInfo]:
    """The state before another pass."""
    zero, none = jnp.zeros_like(state.log_likelihood), jnp.zeros_like(state.count)
    new = eqx.tree_at(
        lambda s: (s.sums, s.num_passes, s.count, s.log_likelihood), state, (sums, num_passes, none, zero)
    )
    if state.total_weight is not None:
        new = eqx.tree_at(lambda s: s.total_weight, new, jnp.zeros_like(state.total_weight))
    return new, LaplaceInfo(state.count, state.log_likelihood)

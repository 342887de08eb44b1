r"""The Laplace approximation: a normal posterior around the mode, as wide as the curvature there allows.

$p(\theta \mid D) \approx N\big(\hat\theta, (H + \Lambda)^{-1}\big)$, with H the curvature of the negative log
likelihood (the generalised Gauss-Newton matrix, unless another kind is asked for) and $\Lambda$ that of the prior
(MacKay, 1992; Daxberger et al., 2021). Predictions are linearised in the weights around the mode, which is where the
normal is accurate (Immer et al., 2021). The evidence comes with it, and chooses prior precisions and noise if asked to.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray, PyTree

from marginax.curvature import (
    GGN,
    AbstractKind,
    AbstractStructure,
    BatchCurvature,
    Cost,
    Dense,
    Diagonal,
    Extent,
    Kronecker,
    Plan,
    check_memory,
    estimate,
    plan_for,
)
from marginax.data import Batch, as_source
from marginax.files import register
from marginax.infer.catalogue import register_method
from marginax.infer.laplace.online import Online, OnlineTraining
from marginax.infer.map import MAP
from marginax.infer.method import AbstractMethod, Infos, Phase, check_count
from marginax.infer.training import begin_by_training, training_memory
from marginax.model import AbstractSubset, All, Model, Params
from marginax.posterior import AbstractPosterior, Evidence, Gaussian, Mixture, Mode, rescale, rescale_noise
from marginax.posterior.tuning import check_tunable
from marginax.predict import AbstractPredictive, Linearised


@register("subset/largest_variance")
class LargestVariance(eqx.Module):
    """The weights of which the data say least, by their variances on the diagonal alone (Daxberger et al., 2021).

    Args:
        num_weights: how many.
    """

    num_weights: int

    def __check_init__(self):
        check_count("num_weights", self.num_weights)


class LaplaceState(eqx.Module):
    """The mode as it is found, then the curvature as it is summed."""

    params: Params
    training: PyTree
    sums: PyTree
    scout: Array | None
    index: Array | None
    num_turns: Array
    count: Array
    log_likelihood: Array
    num_examples: Array
    example: Array


class LaplaceInfo(eqx.Module):
    """How many examples the curvature has seen, and their log likelihood so far."""

    num_seen: Array
    log_likelihood: Array


@register_method(
    "method/laplace",
    gives="a normal around the mode, predictions linearised there",
    use_when="you have a trained network and want its uncertainty",
    cost="MAP and one epoch more",
    order=30,
)
class Laplace(AbstractMethod):
    """A normal distribution around the mode.

    Trains by MAP first, unless `init=` gives a network or posterior: then that is taken as the mode.

    Args:
        structure: what to keep of the curvature: `Diagonal()`, `Kronecker()`, `EKFAC()`, `LowRank()`,
            `BlockDiagonal()`, `Dense()` or `FunctionSpace()` from `mx.curvature`.
        subset: which weights get a spread: `mx.All()`, `LastLayer()`, `Paths(...)`, or `mx.infer.LargestVariance(k)`.
        kind: which curvature: `GGN()`, `EmpiricalFisher()`, `MonteCarloFisher()` or `Hessian()` from `mx.curvature`.
        predictive: how to predict: `mx.predict.Linearised(link=...)` or `ThroughNetwork()`.
        tuning: of prior precisions and noise: None to keep them, `mx.infer.Evidence()` to choose them afterwards,
            `Online()` to choose them in turn with training.
        training: how the mode is found.
    """

    structure: AbstractStructure = eqx.field(default_factory=Kronecker)
    subset: AbstractSubset | LargestVariance = eqx.field(default_factory=All)
    kind: AbstractKind = eqx.field(default_factory=GGN)
    predictive: AbstractPredictive = eqx.field(default_factory=Linearised)
    tuning: Evidence | Online | None = None
    training: MAP | None = eqx.field(default_factory=MAP)

    def __check_init__(self):
        for name, value, kind, example in (
            ("structure", self.structure, AbstractStructure, "mx.curvature.Kronecker()"),
            ("subset", self.subset, AbstractSubset | LargestVariance, "mx.LastLayer()"),
            ("kind", self.kind, AbstractKind, "mx.curvature.GGN()"),
            ("predictive", self.predictive, AbstractPredictive, "mx.predict.Linearised()"),
            ("tuning", self.tuning, Evidence | Online | None, "mx.infer.Evidence()"),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be an object such as {example}, got {value!r}")
        if isinstance(self.subset, LargestVariance) and not isinstance(self.structure, Dense):
            raise ValueError("subset LargestVariance(...) needs structure=mx.curvature.Dense()")
        if isinstance(self.tuning, Online) and isinstance(self.subset, LargestVariance):
            raise ValueError("tuning Online() needs whole leaves: use subset mx.All(), LastLayer() or Paths(...)")
        if isinstance(self.tuning, Online) and self.training is not None and self.training.needs_full_batch:
            raise ValueError("tuning Online() needs training by Adam or SGD: LBFGS remembers the prior before")

    @property
    def batch_size(self) -> int | None:
        """As in training."""
        return 128 if self.training is None else self.training.batch_size

    @property
    def needs_full_batch(self) -> bool:
        """As in training."""
        return self.training is not None and self.training.needs_full_batch

    def warm_started(self) -> "Laplace":
        """From a given start there is nothing to train, unless the prior is to be found on the way."""
        if isinstance(self.tuning, Online) or self.training is None:
            return self
        return eqx.tree_at(lambda m: m.training, self, None)

    def cost(self, model: Model, data: Any) -> Cost:
        """Memory and time of the curvature for a model and data, before anything is computed or allocated.

        >>> import marginax as mx
        >>> model = mx.Model(mx.nets.MLP(10, (1000, 1000), 1, key=0), mx.likelihoods.Gaussian())
        >>> dense = mx.infer.Laplace(structure=mx.curvature.Dense())
        >>> f"{dense.cost(model, (np.zeros((50, 10)), np.zeros(50))).num_bytes / 2**40:.0f} TiB"
        '15 TiB'
        """
        source = as_source(data, self.batch_size, model.read)
        x, _ = source.examples(1)
        model.check(source)
        params = model.init(source)
        plan = self._plan(model, params, jnp.asarray(x[0]))
        num_columns = self.kind.num_columns(model.output_size(x.shape[1:], x.dtype))
        return estimate(self.structure, plan, Extent(source.spec.num_examples, source.batch_size, num_columns))

    def init(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> LaplaceState:
        """Start where the chain starts, with empty sums; an error where those would not fit in memory."""
        plan, extent = self._plan(model, params, batch.x[0]), self._extent(model, batch)
        check_memory(self.structure, plan, extent)
        if self.tuning is not None:
            check_tunable(model, self._moves(model))
        training = None
        if self.training is not None:
            training = training_memory(self._training.init(model, params, batch, key=key))
        scout = index = None
        if isinstance(self.subset, LargestVariance):
            total = sum(leaf.size for leaf in plan.leaves)
            if self.subset.num_weights > total:
                raise ValueError(f"num_weights must be at most {total}, all there are, got {self.subset.num_weights}")
            scout = jnp.zeros(total)
            index = jnp.zeros(self.subset.num_weights, jnp.int32)
        sums = self.structure.empty(plan, extent, key=key)
        none, num = jnp.zeros((), jnp.int32), jnp.asarray(batch.num_examples, jnp.int32)
        return LaplaceState(params, training, sums, scout, index, none, none, jnp.zeros(()), num, batch.x[0])

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """Train if asked, then one or more passes over the data; by turns for an online prior."""
        num_steps = -(-num_examples // batch_size)
        look: tuple[Phase, ...] = ()
        if isinstance(self.subset, LargestVariance):
            look = (Phase("scout", num_steps, Scout(self).step), Phase("choose", 1, Choose(self).step))
        for turn in range(self.structure.num_passes):
            name = "curvature" if turn == 0 else f"curvature {turn + 1}"
            look += (Phase(name, num_steps, Pass(self, self.structure.step_of(turn)).step),)
            if turn + 1 < self.structure.num_passes:
                look += (Phase(f"turn {turn + 1}", 1, Turn(self).step),)
        if self.training is None:
            return look
        train = begin_by_training(self._training, num_examples, batch_size)
        if not isinstance(self.tuning, Online):
            return (train, *look)
        shares = self.tuning.shares(train.num_steps, num_steps)
        phases: tuple[Phase, ...] = ()
        for i, share in enumerate(shares):
            last = i + 1 == len(shares)
            part = (replace(train, num_steps=share), *look, *(() if last else (Phase("tune", 1, Tune(self).step),)))
            phases += tuple(replace(phase, name=f"{phase.name} ({i + 1})") for phase in part)
        return phases

    def posterior(self, model: Model, state: LaplaceState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        """A normal per chain."""
        del draws, infos
        num_turns = self.structure.num_passes - 1 + isinstance(self.subset, LargestVariance)
        complete = np.asarray(state.num_turns) == num_turns
        if not np.all(complete & (np.asarray(state.count) >= np.asarray(state.num_examples))):
            raise KeyboardInterrupt("interrupted before the curvature was known: there is no posterior yet")
        num_chains = np.shape(state.count)[0]
        states = [jax.tree.map(lambda leaf, at=chain: leaf[at], state) for chain in range(num_chains)]
        parts: list[AbstractPosterior] = [self._normal(model, state) for state in states]
        return parts[0] if len(parts) == 1 else Mixture(parts)

    def mode(self, model: Model, state: LaplaceState) -> Mode:
        """What the sums say of the place."""
        plan = self._plan(model, state.params, state.example)
        curvature = self.structure.result(state.sums, plan)
        return Mode(curvature, state.log_likelihood, state.num_examples, self._moves(model), state.index)

    def _normal(self, model: Model, state: LaplaceState) -> Gaussian:
        if isinstance(self.tuning, Online):
            model = eqx.tree_at(lambda m: m.prior, model, rescale(model, state.training[1].log_factors))
        mode, covariance = _finish(self, model, state)
        if not bool(jnp.all(covariance.variances() >= 0)):
            raise ValueError(
                f"kind {type(self.kind).__name__}() plus the curvature of the prior is not positive here: this is no "
                "mode. Train longer, or use kind mx.curvature.GGN()"
            )
        posterior = Gaussian(model, state.params, covariance, predictive=self.predictive, mode=mode)
        return posterior.tuned(self.tuning) if isinstance(self.tuning, Evidence) else posterior

    @property
    def _training(self) -> MAP | OnlineTraining:
        assert self.training is not None
        return OnlineTraining.of(self.training) if isinstance(self.tuning, Online) else self.training

    def _moves(self, model: Model) -> tuple[bool, ...]:
        if isinstance(self.subset, LargestVariance):
            return (True,) * len(model.leaves)
        return tuple(self.subset.select([leaf.path for leaf in model.leaves]))

    def _plan(self, model: Model, params: Params, example: Array) -> Plan:
        plan = plan_for(model, params, example.shape, example.dtype, self._moves(model))
        return replace(plan, num_entries=self.subset.num_weights) if isinstance(self.subset, LargestVariance) else plan

    def _extent(self, model: Model, batch: Batch) -> Extent:
        outputs = model.output_size(batch.x.shape[1:], batch.x.dtype)
        return Extent(batch.num_examples, batch.size, self.kind.num_columns(outputs))

    def _look(self, model: Model, state: LaplaceState, batch: Batch, key: PRNGKeyArray, plan: Plan) -> BatchCurvature:
        """The curvature of a batch; rows that belong to the next epoch count for nothing."""
        weights = (state.count + jnp.arange(batch.size) < batch.num_examples).astype(batch.x.dtype)
        index = None if plan.num_entries is None else state.index
        return BatchCurvature(self.kind, model, state.params, plan, batch, weights, key, index)


@eqx.filter_jit
def _finish(method: Laplace, model: Model, state: LaplaceState):
    mode = method.mode(model, state)
    return mode, mode.covariance(model, state.params)


class Pass(eqx.Module):
    """A pass over the data: the sums of the structure, and the log likelihood."""

    method: Laplace
    turn: int = eqx.field(static=True)

    def step(
        self, model: Model, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, LaplaceInfo]:
        """Add a batch."""
        plan = self.method._plan(model, state.params, batch.x[0])
        look = self.method._look(model, state, batch, key, plan)
        sums = self.method.structure.add(state.sums, look, self.turn)
        log_likelihood = state.log_likelihood + look.log_likelihood()
        count = state.count + batch.size
        new = eqx.tree_at(lambda s: (s.sums, s.count, s.log_likelihood), state, (sums, count, log_likelihood))
        return new, LaplaceInfo(count, log_likelihood)


class Turn(eqx.Module):
    """What one pass leaves for the next."""

    method: Laplace

    def step(
        self, model: Model, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, LaplaceInfo]:
        """Once, between passes."""
        del model, batch, key
        return _restarted(state, self.method.structure.turn(state.sums), state.num_turns + 1)


class Scout(eqx.Module):
    """A pass for the diagonal alone, by which weights are chosen."""

    method: Laplace

    def step(
        self, model: Model, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, LaplaceInfo]:
        """Add a batch."""
        assert state.scout is not None
        plan = replace(self.method._plan(model, state.params, batch.x[0]), num_entries=None)
        scout = Diagonal().add(state.scout, self.method._look(model, state, batch, key, plan))
        count = state.count + batch.size
        new = eqx.tree_at(lambda s: (s.scout, s.count), state, (scout, count))
        return new, LaplaceInfo(count, state.log_likelihood)


class Choose(eqx.Module):
    """The weights of largest variance."""

    method: Laplace

    def step(
        self, model: Model, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, LaplaceInfo]:
        """Once, after scouting."""
        del batch, key
        assert isinstance(self.method.subset, LargestVariance)
        assert state.scout is not None
        precision = ravel_pytree(model.prior_precision(state.params))[0] + state.scout
        _, index = jax.lax.top_k(-precision, self.method.subset.num_weights)
        new = eqx.tree_at(lambda s: s.index, state, jnp.sort(index).astype(jnp.int32))
        return _restarted(new, state.sums, state.num_turns + 1)


class Tune(eqx.Module):
    """Prior precisions and noise of largest evidence, between two spells of training."""

    method: Laplace

    def step(
        self, model: Model, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, LaplaceInfo]:
        """Once, after the curvature."""
        assert isinstance(self.method.tuning, Online)
        memory, extra = state.training
        current = eqx.tree_at(lambda m: m.prior, model, rescale(model, extra.log_factors))
        mode = self.method.mode(model, state)
        factors = self.method.tuning.rule.factors(current, state.params, mode)
        params, _ = rescale_noise(model, state.params, mode, factors.noise)
        training = memory, extra.tuned(factors.prior)
        new = eqx.tree_at(lambda s: (s.params, s.training), state, (params, training))
        plan = self.method._plan(model, params, batch.x[0])
        sums = self.method.structure.empty(plan, self.method._extent(model, batch), key=key)
        return _restarted(new, sums, jnp.zeros_like(state.num_turns))


def _restarted(state: LaplaceState, sums: PyTree, num_turns: Array) -> tuple[LaplaceState, LaplaceInfo]:
    """The state before another pass."""
    zero, none = jnp.zeros_like(state.log_likelihood), jnp.zeros_like(state.count)
    new = eqx.tree_at(lambda s: (s.sums, s.num_turns, s.count, s.log_likelihood), state, (sums, num_turns, none, zero))
    return new, LaplaceInfo(state.count, state.log_likelihood)

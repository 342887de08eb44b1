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
from jaxtyping import PRNGKeyArray, PyTree

from marginax._compilation import compiled
from marginax.curvature import GGN, AbstractKind, AbstractStructure, Cost, Dense, Kronecker
from marginax.data import Batch, as_source
from marginax.infer.catalogue import register_method
from marginax.infer.laplace.online import Online, OnlineTraining, Tune, under_current_prior
from marginax.infer.laplace.passes import LaplaceState, Passes
from marginax.infer.laplace.strengths import AtStrengths, ClimbEvidence, check_strengths, with_strengths
from marginax.infer.laplace.tuning import Evidence, check_tunable, with_factors
from marginax.infer.map import MAP
from marginax.infer.method import AbstractMethod, Infos, Phase
from marginax.infer.training import begin_by_training, training_memory
from marginax.model import AbstractModel, AbstractSubset, All
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, Gaussian, Mixture
from marginax.predict import AbstractPredictive, Linearised


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
    subset: AbstractSubset = eqx.field(default_factory=All)
    kind: AbstractKind = eqx.field(default_factory=GGN)
    predictive: AbstractPredictive = eqx.field(default_factory=Linearised)
    tuning: Evidence | Online | None = None
    training: MAP | None = eqx.field(default_factory=MAP)

    def __check_init__(self):
        for name, value, kind, example in (
            ("structure", self.structure, AbstractStructure, "mx.curvature.Kronecker()"),
            ("subset", self.subset, AbstractSubset, "mx.LastLayer()"),
            ("kind", self.kind, AbstractKind, "mx.curvature.GGN()"),
            ("predictive", self.predictive, AbstractPredictive, "mx.predict.Linearised()"),
            ("tuning", self.tuning, Evidence | Online | None, "mx.infer.Evidence()"),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be an object such as {example}, got {value!r}")
        if self.subset.num_chosen is not None and not isinstance(self.structure, Dense):
            raise ValueError(f"subset {type(self.subset).__name__}(...) needs structure=mx.curvature.Dense()")
        if isinstance(self.tuning, Online) and self.subset.num_chosen is not None:
            raise ValueError("tuning Online() needs whole leaves: use subset mx.All(), LastLayer() or Paths(...)")
        if isinstance(self.tuning, Online) and self.training is not None and self.training.needs_full_batch:
            raise ValueError("tuning Online() needs training by Adam or SGD: LBFGS remembers the prior before")

    @property
    def batch_size(self) -> int | None:
        """As in training."""
        return 128 if self.training is None else self.training.batch_size

    @property
    def needs_full_batch(self) -> bool:
        return self.training is not None and self.training.needs_full_batch

    def warm_started(self) -> "Laplace":
        """From a given start there is nothing to train, unless the prior is to be found on the way."""
        if isinstance(self.tuning, Online) or self.training is None:
            return self
        return eqx.tree_at(lambda m: m.training, self, None)

    def prepare_model(self, model: AbstractModel) -> AbstractModel:
        """The user's; an error where strengths are to be learned and there are none."""
        if isinstance(self.tuning, Online) and self.tuning.strengths is not None:
            check_strengths(model)
        return model

    def cost(self, model: AbstractModel, data: Any) -> Cost:
        """Memory and time of the curvature for a model and data, before anything is computed or allocated.

        >>> import marginax as mx
        >>> model = mx.Model(mx.nets.MLP(10, (1000, 1000), 1, key=0), mx.likelihoods.Gaussian())
        >>> dense = mx.infer.Laplace(structure=mx.curvature.Dense())
        >>> f"{dense.cost(model, (np.zeros((50, 10)), np.zeros(50))).num_bytes / 2**40:.0f} TiB"
        '15 TiB'
        """
        source = as_source(data, self.batch_size, model.read)
        model.check(source)
        return self._passes.cost(model, source)

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> LaplaceState:
        """Start where the chain starts, with empty sums; an error where those would not fit in memory."""
        passes = self._passes
        passes.check(model)
        sums = passes.start(model, params, batch, key=key)
        if self.tuning is not None:
            check_tunable(model, passes.plan(model, params, None).flags)
        training = None
        if self.training is not None:
            training = training_memory(self._training.init(model, params, batch, key=key))
        none, num = jnp.zeros((), jnp.int32), jnp.asarray(batch.num_examples, jnp.int32)
        weight = jnp.zeros(()) if hasattr(model, "network") and batch.row_weights is not None else None
        return LaplaceState(params, training, sums, none, none, jnp.zeros(()), num, passes.example(batch), weight)

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        """Train if asked, then one or more passes over the data; by turns for an online prior."""
        num_steps = -(-num_examples // batch_size)
        passes = self._passes.phases(num_steps)
        if self.training is None:
            return passes
        train = begin_by_training(self._training, num_examples, batch_size)
        if not isinstance(self.tuning, Online):
            return (train, *passes)
        tune = (Phase("tune", 1, Tune(self._passes, self.tuning).step),)
        rule = self.tuning.strengths
        if rule is not None:
            passes = tuple(replace(phase, step=AtStrengths(phase.step).step) for phase in passes)
            climb = ClimbEvidence(self._passes, rule, under_current_prior)
            tune = (Phase("strengths", num_steps * rule.num_epochs, climb.step), *tune)
        shares = self.tuning.shares(train.num_steps, num_steps)
        phases: tuple[Phase, ...] = ()
        for i, share in enumerate(shares):
            last = i + 1 == len(shares)
            part = (replace(train, num_steps=share), *passes, *(() if last else tune))
            phases += tuple(replace(phase, name=f"{phase.name} ({i + 1})") for phase in part)
        return phases

    def posterior(self, model: AbstractModel, state: LaplaceState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        complete = np.asarray(state.num_passes) == self._passes.structure.num_passes - 1
        if not np.all(complete & (np.asarray(state.count) >= np.asarray(state.num_examples))):
            raise KeyboardInterrupt("interrupted before the curvature was known: there is no posterior yet")
        num_chains = np.shape(state.count)[0]
        states = [jax.tree.map(lambda leaf, at=chain: leaf[at], state) for chain in range(num_chains)]
        parts: list[AbstractPosterior] = [self._normal(model, state) for state in states]
        return parts[0] if len(parts) == 1 else Mixture(parts)

    def _normal(self, model: AbstractModel, state: LaplaceState) -> Gaussian:
        if isinstance(self.tuning, Online):
            extra = state.training[1]
            model = with_strengths(with_factors(model, extra.log_factors), extra.strengths)
        mode, covariance = _finish(self._passes, model, state)
        if not bool(jnp.all(covariance.variances() >= 0)):
            raise ValueError(
                f"kind {type(self.kind).__name__}() plus the curvature of the prior is not positive here: this is no "
                "mode. Train longer, or use kind mx.curvature.GGN()"
            )
        posterior = Gaussian(model, state.params, covariance, predictive=self.predictive, mode=mode)
        return posterior.tuned(self.tuning) if isinstance(self.tuning, Evidence) else posterior

    @property
    def _passes(self) -> Passes:
        return Passes.of(self.structure, self.subset, self.kind)

    @property
    def _training(self) -> MAP | OnlineTraining:
        assert self.training is not None
        if not isinstance(self.tuning, Online):
            return self.training
        return OnlineTraining.of(self.training, self.tuning.strengths)


@compiled
def _finish(passes: Passes, model: AbstractModel, state: LaplaceState):
    mode = passes.mode(model, state)
    return mode, mode.covariance(model, state.params)

r"""What EM and coordinate ascent share: updates of a conjugate model in closed form.

A step makes parameters, or a belief about them, of the statistics so far, and takes the statistics of a batch under
it. On all data the new statistics replace the old ones. On minibatches, scaled by N/B, they enter an average,

$S \leftarrow (1 - \rho_t) S + \rho_t \frac NB \sum_{i \in \text{batch}} E[t(x_i, z_i)], \quad
\rho_t = (t + \tau)^{-\kappa},$

which is stochastic EM (Cappé & Moulines, 2009) and stochastic variational inference (Hoffman et al., 2013): with
natural parameters that are a sum of prior and statistics, an average of the latter is a natural gradient step.
"""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from marginax.data import Batch
from marginax.infer.method import AbstractMethod, Phase, check_count
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.model.conjugate import AbstractConjugate, Natural, Statistics


class ClosedFormState(eqx.Module):
    """Parameters or a belief, the statistics that follow from them, and the parts of the objective there."""

    params: PyTree
    statistics: Statistics
    reconstruction: Float[Array, "*chains"]
    complexity: Float[Array, "*chains"]
    converged: Bool[Array, "*chains"]
    step: Int[Array, "*chains"]

    @property
    def objective(self) -> Float[Array, "*chains"]:
        """Log likelihood, or the bound of the log evidence."""
        return self.reconstruction - self.complexity


class AbstractClosedForm(AbstractMethod):
    r"""Alternate between what is unobserved and the parameters.

    A chain is a restart from another guess; the best one becomes the posterior, and the record has all of them.

    Args:
        num_steps: at most; on minibatches, exactly.
        tolerance: a chain stays where it is once the objective rises by less than this, in nats per example; 0 takes
            all steps. Only on all data: on minibatches the objective is an estimate.
        batch_size: examples per step, None for all.
        forgetting_rate: $\kappa$ in (0.5, 1], how fast steps on minibatches become shorter.
        delay: $\tau \ge 0$, which makes the first of them shorter.
        warm: start where `init=` says; `mx.fit` sees to it.
    """

    num_steps: int = 500
    tolerance: float = 1e-6
    batch_size: int | None = None
    forgetting_rate: float = 0.7
    delay: float = 1.0
    warm: bool = eqx.field(default=False, kw_only=True)

    def __check_init__(self):
        check_count("num_steps", self.num_steps)
        check_count("batch_size", self.batch_size, optional=True)
        for name in ("tolerance", "delay"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not 0.5 < self.forgetting_rate <= 1:
            raise ValueError(f"forgetting_rate must be in (0.5, 1], got {self.forgetting_rate}")

    @property
    def needs_conjugate(self) -> bool:
        """A model whose updates are in closed form."""
        return True

    @property
    def lockstep(self) -> bool:
        """Chains that have converged cost nothing if they take turns."""
        return False

    def warm_started(self) -> "AbstractClosedForm":
        return dataclasses.replace(self, warm=True)

    @abc.abstractmethod
    def update(self, model: AbstractConjugate, statistics: Statistics) -> PyTree:
        """Parameters, or a belief about them, from statistics."""

    def last_update(self, model: AbstractModel, state: ClosedFormState) -> tuple[PyTree, np.ndarray]:
        """Of the best chain, and the objectives of all: one more update costs nothing, and raises the objective."""
        statistics, objectives = best_chain(state)
        params = eqx.filter_jit(self.update)(conjugate_model(model, self), statistics)
        return jax.tree.map(np.asarray, params), objectives

    @abc.abstractmethod
    def natural(self, model: AbstractConjugate, params: PyTree) -> Natural:
        """Natural parameters for the next E step."""

    @abc.abstractmethod
    def divergence(self, model: AbstractConjugate, params: PyTree) -> Float[Array, ""]:
        """From the prior."""

    @abc.abstractmethod
    def info(self, objective: Array, reconstruction: Array, complexity: Array) -> Any:
        """Numbers for people."""

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> ClosedFormState:
        """From a guess of the model's, or from where `init=` says."""
        model = conjugate_model(model, self)
        if self.warm:
            statistics = model.expect(model.natural(params), batch).statistics
        else:
            statistics = model.seed(batch, key=key)
        statistics = jax.tree.map(lambda leaf: batch.weight * leaf, statistics)
        params = self.update(model, statistics)
        zero = jnp.zeros((), jax.tree.leaves(params)[0].dtype)
        return ClosedFormState(params, statistics, zero - jnp.inf, zero, jnp.asarray(False), jnp.asarray(0))

    def phases(self, num_examples: int, batch_size: int) -> tuple[Phase, ...]:
        return (Phase("iterate", self.num_steps, self.step, can_end=True),)

    def step(
        self, model: AbstractModel, state: ClosedFormState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[ClosedFormState, Any]:
        """Update the parameters from the statistics, and the statistics under them."""

        def move(state: ClosedFormState) -> ClosedFormState:
            return self._moved(conjugate_model(model, self), state, batch)

        state = jax.lax.cond(state.converged, lambda state: state, move, state)
        return state, self.info(state.objective, state.reconstruction, state.complexity)

    def _moved(self, model: AbstractConjugate, state: ClosedFormState, batch: Batch) -> ClosedFormState:
        params = self.update(model, state.statistics)
        expected = model.expect(self.natural(model, params), batch)
        reconstruction = batch.weight * expected.reconstruction
        complexity = batch.weight * expected.complexity + self.divergence(model, params)
        if batch.size == batch.num_examples:
            statistics, least = expected.statistics, self.tolerance * batch.num_examples
            converged = (reconstruction - complexity - state.objective <= least) & (least > 0.0)
        else:
            statistics, converged = self._averaged(state, expected.statistics, batch), jnp.asarray(False)
        return ClosedFormState(params, statistics, reconstruction, complexity, converged, state.step + 1)

    def _averaged(self, state: ClosedFormState, new: Statistics, batch: Batch) -> Statistics:
        rate = (state.step + 1 + self.delay) ** -self.forgetting_rate
        return jax.tree.map(
            lambda old, new: old + jnp.asarray(rate, old.dtype) * (batch.weight * new - old), state.statistics, new
        )


def conjugate_model(model: Any, method: Any) -> AbstractConjugate:
    """The model, or a sentence if its updates are not in closed form."""
    if not isinstance(model, AbstractConjugate):
        raise TypeError(
            f"{type(method).__name__} needs a model with closed-form updates, such as mx.latent.GaussianMixture, got "
            f"{type(model).__name__}: use a method for any density such as mx.infer.MAP() or NUTS()"
        )
    return model


def best_chain(state: ClosedFormState) -> tuple[Statistics, np.ndarray]:
    """Statistics of the chain with the highest objective, and the objectives of all."""
    objectives = np.asarray(state.objective, np.float64)
    best = int(np.argmax(objectives))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[best]), state.statistics), objectives

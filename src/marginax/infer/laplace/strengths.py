r"""Strengths of augmentation chosen by evidence (van der Wilk et al., 2018; Immer et al., 2022).

The evidence of a Laplace approximation prefers an invariance that the data have: with it, fewer directions of the
weights are determined by the data for the same fit. Its derivative with respect to a strength $\eta$, at the mode, is a
sum over examples,

$\partial_\eta \Big[ \log p(D \mid \hat\theta, \eta) - \tfrac12 \mathrm{tr}\, \Sigma H(\eta) \Big]$

with the covariance $\Sigma = (H + \Lambda)^{-1}$ held fixed, since
$\partial \log\det(H + \Lambda) = \mathrm{tr}\,\Sigma\,\partial H$. The trace is that of the covariance of the outputs'
columns, which every structure of the curvature has, so batches give unbiased gradients. As usual, how the mode itself
depends on $\eta$ is left to the next round of training.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.curvature import AbstractCovariance, Point
from marginax.data import Batch
from marginax.files import register
from marginax.infer.laplace.passes import LaplaceState, Passes
from marginax.infer.method import check_count
from marginax.model import AbstractModel, Model, Params
from marginax.nets import Augmented

_LEAST, _MOST = 1e-4, 1e4  # times what a strength was at the start


@register("tuning/strengths")
class Strengths(eqx.Module):
    """Learn how strongly views are transformed, by steps of Adam on the evidence after every look at the curvature.

    Args:
        learning_rate: of the logarithms of strengths.
        num_epochs: passes over the data in every round.
    """

    learning_rate: float = 0.1
    num_epochs: int = 1

    def __check_init__(self):
        check_count("num_epochs", self.num_epochs)
        if isinstance(self.learning_rate, float | int) and not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be > 0, got {self.learning_rate}")

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam."""
        return optax.adam(self.learning_rate)


class LearnedStrengths(eqx.Module):
    """Logarithms of strengths relative to those at the start, and the optimiser's memory."""

    logs: tuple[Array, ...]
    memory: PyTree

    @classmethod
    def of(cls, model: Any, rule: Strengths) -> "LearnedStrengths":
        """At the start."""
        logs = tuple(jnp.zeros(jnp.shape(value)) for value in strengths_of(model).values())
        return cls(logs, rule.optimiser.init(logs))


class StrengthInfo(eqx.Module):
    """Strengths after a step, by the name of the transform and of its field, and the estimate of what rises.

    `objective` is the log likelihood less half of the trace, per example: the part of the log evidence that moves.
    """

    strengths: dict[str, Array]
    objective: Array


def strengths_of(model: Any) -> dict[str, Any]:
    """Strengths of the views of a model, by transform and field.

    >>> import marginax as mx
    >>> model = mx.Model(mx.nets.MLP(3, (), 1, key=0), mx.likelihoods.Gaussian())
    >>> strengths_of(mx.augment(model, [mx.data.Flip(), mx.data.Jitter(0.5)]))
    {'1/Jitter/scale': array(0.5, dtype=float32)}
    """
    network = getattr(model, "network", None)
    if not isinstance(network, Augmented):
        return {}
    return {
        f"{i}/{type(transform).__name__}/{name}": getattr(transform, name)
        for i, transform in enumerate(network.transforms)
        for name in transform.strengths
    }


def with_strengths(model: Any, learned: LearnedStrengths | None) -> Any:
    """The model with the strengths that were learned so far."""
    if learned is None:
        return model
    values = [value * jnp.exp(log) for value, log in zip(strengths_of(model).values(), learned.logs, strict=True)]

    def where(m: Any) -> list[Any]:
        return [getattr(transform, name) for transform in m.network.transforms for name in transform.strengths]

    return eqx.tree_at(where, model, values)


def current_model(model: Any, state: LaplaceState) -> Any:
    """The model with the strengths of a state."""
    return with_strengths(model, state.training[1].strengths)


def check_strengths(model: AbstractModel) -> None:
    """Raise unless strengths are there and above zero, from where they can be multiplied."""
    if not strengths_of(model):
        raise ValueError(
            "strengths need a model whose transforms have some, such as mx.augment(model, mx.data.Rotate(10.0))"
        )
    for name, value in strengths_of(model).items():
        if not np.all(np.asarray(value) > 0):
            raise ValueError(f"{name} must be > 0 where it is learned, got {np.asarray(value).tolist()}")


class AtStrengths(eqx.Module):
    """A step of another phase, under the strengths of the state."""

    inner: Callable[..., Any]

    def step(
        self, model: Model, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, PyTree]:
        """The same step."""
        return self.inner(current_model(model, state), state, batch, key=key)


class ClimbEvidence(eqx.Module):
    """Steps up the evidence, after the curvature is known."""

    passes: Passes
    rule: Strengths
    scaled: Callable[[Any, LaplaceState], Any]  # the model under the prior of the state

    def step(
        self, model: Model, state: LaplaceState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[LaplaceState, StrengthInfo]:
        """One step of Adam by the gradient of a batch."""
        memory, extra = state.training
        learned: LearnedStrengths = extra.strengths
        mode = self.passes.mode(model, state)
        precision = mode.precision(self.scaled(model, state), state.params)
        covariance = mode.curvature.covariance(precision)

        def objective(logs: tuple[Array, ...]) -> Float[Array, ""]:
            moved = with_strengths(model, LearnedStrengths(logs, None))
            return evidence_part(self.passes, moved, state.params, covariance, batch, key=key) / batch.num_examples

        value, gradient = jax.value_and_grad(objective)(learned.logs)
        updates, moments = self.rule.optimiser.update(jax.tree.map(jnp.negative, gradient), learned.memory)
        logs = jax.tree.map(
            lambda log, update: jnp.clip(log + update, np.log(_LEAST), np.log(_MOST)), learned.logs, updates
        )
        new = LearnedStrengths(logs, moments)
        training = memory, eqx.tree_at(lambda e: e.strengths, extra, new)
        info = StrengthInfo(strengths_of(with_strengths(model, new)), value)
        return eqx.tree_at(lambda s: s.training, state, training), info


def evidence_part(
    passes: Passes, model: Model, params: Params, covariance: AbstractCovariance, batch: Batch, *, key: PRNGKeyArray
) -> Float[Array, ""]:
    """Unbiased estimate, from a batch, of the log likelihood less half of the trace of covariance times curvature."""
    plan = passes.plan(model, params, passes.example(batch))
    point = Point(model, params, plan, batch, jnp.ones(batch.size), key)
    curvature = passes.kind.of_batch(point)
    spread = covariance.spread(curvature.jacobian())
    trace = jnp.sum(jnp.diagonal(spread, axis1=1, axis2=2))
    return batch.weight * (curvature.log_likelihood() - 0.5 * trace)

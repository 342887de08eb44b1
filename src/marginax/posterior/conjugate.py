"""A distribution of parameters in closed form, as coordinate ascent finds it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from marginax.data import DataSpec
from marginax.files import register
from marginax.model.abstract import Params
from marginax.model.conjugate import AbstractConjugate, Belief
from marginax.posterior.posterior import DEFAULT_NUM_SAMPLES, AbstractPosterior
from marginax.posterior.record import FitRecord
from marginax.predict import AbstractFunctionSet, ParameterDraws
from marginax.predict.fresh import FreshFunctions
from marginax.predict.functions import MAX_BYTES, AbstractFunctions
from marginax.predict.loop import DrawLoop
from marginax.predict.predictive import mixture_of


@register("posterior/conjugate")
class Conjugate(AbstractPosterior):
    """The conjugate distribution of the parameters of a model with closed-form updates.

    Args:
        model: the model whose parameters these are.
        belief: parameters of the distribution.
        elbo: the lower bound of the log evidence that it reaches.
        elbos: that of every restart, of which this is the best.
        spec: shapes and scaling of the data.
        record: the story of the fit.
        key: seed of predictions.
    """

    model: AbstractConjugate
    belief: Belief
    elbo: float = eqx.field(converter=float)
    elbos: np.ndarray
    spec: DataSpec | None = None
    record: FitRecord = eqx.field(default_factory=FitRecord)
    key: PRNGKeyArray | None = None

    @property
    def is_point(self) -> bool:
        """Never: it has spread."""
        return False

    def describe(self) -> str:
        best = "" if len(self.elbos) == 1 else f", the best of {len(self.elbos)} (from {np.min(self.elbos):.2f})"
        return f"a conjugate distribution of the parameters, log evidence at least {self.elbo:.2f}{best}"

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        return _draw(self.model, self.belief, jax.random.split(key, num))

    def starting_points(self, num: int) -> Params:
        centre = _centre(self.model, self.belief)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), centre)

    def functions(self, num: int | None = None, *, key: PRNGKeyArray) -> AbstractFunctionSet:
        """The average itself, where the model has it in closed form; draws where they are asked for."""
        if num is None and hasattr(self.model, "average"):
            return _Average(self.model, jax.tree.map(lambda leaf: np.asarray(leaf)[None], self.belief))
        return ParameterDraws(self.model, self.sample_params(DEFAULT_NUM_SAMPLES if num is None else num, key=key))

    def divergence(self) -> Float[Array, ""]:
        """From the prior: what the data have taught about the parameters, in nats."""
        return self.model.divergence(jax.tree.map(jnp.asarray, self.belief))


class _Average(AbstractFunctions):
    """A model whose one draw is the whole belief; samples of its predictions draw functions."""

    model: Any
    draws: Belief
    log_weights: np.ndarray | None = None

    def distribution(self, draw: Belief, x: PyTree) -> Any:
        return self.model.average(draw, x)

    def averaging(
        self, x: Any, *, spec: DataSpec, max_bytes: int = MAX_BYTES, keep_draws: bool = False
    ) -> Callable[[Any], Any]:
        loop = DrawLoop(self, x, spec=spec, max_bytes=max_bytes, keep_draws=keep_draws)
        belief = jax.tree.map(lambda leaf: leaf[0], self.draws)
        members = (_BeliefDraws(self.model, belief, jax.random.split(jax.random.key(0), 1)),)  # keys are given later
        return lambda x: mixture_of(loop.at(x), spec, FreshFunctions(members, np.ones(1), x, spec, max_bytes))


class _BeliefDraws(AbstractFunctions):
    """A model at parameters that are drawn from a belief; the draws are keys."""

    model: Any
    belief: Belief
    draws: Key[Array, " num"]
    log_weights: np.ndarray | None = None

    def prepare(self, draws: Key[Array, " num"]) -> Params:
        return _draw(self.model, self.belief, draws)

    @property
    def is_prepared(self) -> bool:
        return True

    def distribution(self, draw: Params, x: PyTree) -> Any:
        return self.model.predictive(draw, x)


@eqx.filter_jit
def _draw(model: AbstractConjugate, belief: Belief, keys: Key[Array, " num"]) -> Params:
    belief = jax.tree.map(jnp.asarray, belief)
    return jax.vmap(lambda key: model.draw(belief, key=key))(keys)


@eqx.filter_jit
def _centre(model: AbstractConjugate, belief: Belief) -> Params:
    return model.centre(jax.tree.map(jnp.asarray, belief))

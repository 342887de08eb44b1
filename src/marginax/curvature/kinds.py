r"""Which matrix stands for the curvature of the negative log likelihood.

- `GGN`: $\sum_n J_n^\top F_n J_n$, generalised Gauss-Newton, with the Fisher information $F_n$ of the outputs.
- `EmpiricalFisher`: $\sum_n g_n g_n^\top$ of the gradients at the data; cheap, and no curvature far from the truth.
- `MonteCarloFisher`: gradients at targets drawn from the model; the GGN in expectation, at the price of one column.
- `Hessian`: the second derivative itself, which need not be positive.

All but the last are sums of outer products $J_n^\top C_n C_n^\top J_n$ of columns of the network's outputs.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.curvature.batch import AbstractBatchCurvature, OuterProducts, Point, SecondDerivative
from marginax.curvature.hooks import Columns
from marginax.data.missing import MISSING
from marginax.files import register
from marginax.model import Model, Params


class AbstractKind(eqx.Module):
    """What is summed over the data."""

    @abc.abstractmethod
    def num_columns(self, output_size: int) -> int:
        """Columns per example."""

    @abc.abstractmethod
    def of_batch(self, point: Point) -> AbstractBatchCurvature:
        """The curvature of one batch."""

    @property
    def needs_outputs(self) -> bool:
        """Whether it is about the outputs of a network; if not, any model will do."""
        return True


class AbstractFisher(AbstractKind):
    """A sum of outer products of columns."""

    @abc.abstractmethod
    def columns(self, model: Model, params: Params) -> Columns:
        """(outputs, target, key) of an example -> columns whose outer products are the curvature of the outputs."""

    def of_batch(self, point: Point) -> AbstractBatchCurvature:
        return OuterProducts.at(point, self.columns(point.model, point.params))


@register("curvature_kind/ggn")
class GGN(AbstractFisher):
    """Generalised Gauss-Newton: the Fisher information of the outputs, exactly."""

    def num_columns(self, output_size: int) -> int:
        """As many as outputs; fewer where the information has no full rank."""
        return output_size

    def columns(self, model: Model, params: Params) -> Columns:
        return lambda output, y, key: model.likelihood.fisher_root_given(output, y, params.likelihood, key)


@register("curvature_kind/empirical_fisher")
class EmpiricalFisher(AbstractFisher):
    """Outer products of the gradients at the observed targets."""

    def num_columns(self, output_size: int) -> int:
        return 1

    def columns(self, model: Model, params: Params) -> Columns:
        return lambda output, y, key: _score(model, params, output, y)[:, None]


@register("curvature_kind/monte_carlo_fisher")
class MonteCarloFisher(AbstractFisher):
    """Outer products of gradients at targets that the model draws: unbiased for the GGN.

    Args:
        num_targets: drawn per example.
    """

    num_targets: int = 1

    def __check_init__(self):
        if isinstance(self.num_targets, bool) or not isinstance(self.num_targets, int) or self.num_targets < 1:
            raise ValueError(f"num_targets must be an int >= 1, got {self.num_targets!r}")

    def num_columns(self, output_size: int) -> int:
        return self.num_targets

    def columns(self, model: Model, params: Params) -> Columns:
        def draw(output: Array, y: Array, key: PRNGKeyArray) -> Array:
            targets = model.likelihood.observed(output, params.likelihood).sample(key, (self.num_targets,))
            targets = targets.reshape(self.num_targets, *y.shape)
            if model.likelihood.takes_missing:  # what was not asked says nothing
                targets = jnp.where(y == MISSING, MISSING, targets)
            scores = jax.vmap(lambda target: _score(model, params, output, target))(targets)
            return scores.T / math.sqrt(self.num_targets)

        return draw


@register("curvature_kind/hessian")
class Hessian(AbstractKind):
    """The second derivative of the negative log likelihood, by products with vectors, for any model.

    For the structures `Dense`, `BlockDiagonal`, `Diagonal` and `LowRank`.
    """

    @property
    def needs_outputs(self) -> bool:
        return False

    def num_columns(self, output_size: int) -> int:
        """None: it is no sum of outer products."""
        return 0

    def of_batch(self, point: Point) -> AbstractBatchCurvature:
        return SecondDerivative(point)


def _score(model: Model, params: Params, output: Array, y: Array) -> Float[Array, " k"]:
    """Gradient of the log probability; zero where a row has a term but no label."""
    likelihood = model.likelihood
    score = jax.grad(lambda f: likelihood.log_prob(f[None], y[None], params.likelihood)[0])(output)
    return jnp.where(likelihood.is_judged(y[None])[0], score, 0.0)

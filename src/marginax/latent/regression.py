r"""Linear and logistic regression in closed form: the posterior, the evidence, and averages over the posterior.

$y_i \sim N(w^\top \phi_i, s^2)$ or $\text{Bernoulli}(\sigma(w^\top \phi_i)), \quad \phi = (x, 1)$

The linear one is exact: with $s$ known and $w \sim N(0, \tau^2)$ the predictive distribution is normal, with
$1/s^2 \sim \text{Gamma}(a_0, b_0)$ and $w \mid s \sim N(0, s^2 \tau^2)$ it is Student's t. For the logistic one every
row has a normal bound (Jaakkola & Jordan, 2000; the same updates come from Polya-Gamma variables, Polson, Scott &
Windle, 2013), which coordinate ascent tightens; the bound of the evidence is below it, and the posterior too
narrow. Its density has no bound in it, so that `mx.infer.NUTS()` samples the exact posterior.
"""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import AbstractSource, Arrays, Batch, as_arrays
from marginax.files import register
from marginax.latent.entries import softplus_bound
from marginax.latent.family import check_positive
from marginax.latent.queries import AbstractQueries
from marginax.latent.weights import RegressionWeights
from marginax.model.abstract import Params
from marginax.model.conjugate import AbstractConjugate, Expected, posterior_draws
from marginax.model.distributions import Bernoulli, Normal
from marginax.model.normal_outputs import NormalOutputs
from marginax.model.student_outputs import StudentTOutputs

_FARTHEST = 100.0  # mean of the targets, in standard deviations


@dataclass(frozen=True)
class RegressionQueries(AbstractQueries):
    """What posteriors of regressions can be asked besides `predict`."""

    def log_likelihood(self, data: Any) -> np.ndarray:
        """Log density of each new target, averaged over the posterior; data are a pair (x, y)."""
        rows = as_arrays(data)
        return np.asarray(self.posterior.predict(rows.x).log_prob(rows.y))

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of every weight, the intercept last."""
        posterior: Any = self.posterior
        if hasattr(posterior, "belief"):
            return posterior.model.moments(posterior.belief)
        draws = np.asarray(posterior_draws(posterior)["weights"], np.float64)[:, 0]
        return draws.mean(0), draws.std(0)


class AbstractRegression(AbstractConjugate):
    """Targets that depend on a weighted sum of inputs. Fields: `prior_scale`, `intercept`."""

    queries: ClassVar[type] = RegressionQueries

    @property
    @abc.abstractmethod
    def family(self) -> RegressionWeights:
        """Of the weights."""

    @abc.abstractmethod
    def features(self, x: Any) -> Float[Array, "n r"]:
        """Inputs, and one for the intercept."""

    @abc.abstractmethod
    def predictive(self, params: Params, x: Array, *, key: PRNGKeyArray | None = None) -> Any:
        """The distribution of targets under known weights."""

    @abc.abstractmethod
    def expect_rows(self, natural: PyTree, phi: Float[Array, "n r"], y: Float[Array, " n"]) -> tuple[Array, ...]:
        """(Expected) log density of each target or its bound, and its observation of the sum: target and weight."""

    @abc.abstractmethod
    def check_targets(self, y: np.ndarray) -> None:
        """Raise if these cannot be the targets."""

    def read(self, data: Any) -> Arrays:
        """A pair (x, y)."""
        return as_arrays(data)

    def check(self, source: AbstractSource) -> None:
        x, y = source.examples(source.spec.num_examples)[:2]
        if np.ndim(x) != 2:
            raise ValueError(f"x must have shape (n, inputs), got {np.shape(x)}")
        if np.ndim(y) != 1:
            raise ValueError(f"y must have shape (n,), one target for each row, got {np.shape(y)}")
        self.check_targets(np.asarray(y))

    def init(self, source: AbstractSource) -> Params:
        """The centre of the prior."""
        phi = self.features(jnp.asarray(source.examples(1)[0]))
        none = self._statistics(jnp.zeros(1), phi, jnp.zeros(1), jnp.zeros(1), jnp.zeros(1))
        return self.centre(self.conjugate(none))

    def log_prior(self, params: Params) -> Float[Array, ""]:
        return self.family.log_prior(params)

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        return batch.weigh(self.predictive(params, batch.x).log_prob(jnp.asarray(batch.y)[:, None])[:, 0])

    def moments(self, belief: PyTree) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the weights under a belief."""
        covariance = np.linalg.inv(np.asarray(belief["precision"][0], np.float64))
        variance = np.diagonal(covariance)
        known: Any = self.family.noise_scale
        if known is None:
            a, b = float(belief["a"]), float(belief["b"])
            variance = variance * (b / (a - 1.0) if a > 1 else np.inf)
        else:
            variance = variance * float(known) ** 2
        return np.asarray(belief["mean"][0], np.float64), np.sqrt(variance)

    def _statistics(self, y: Array, phi: Array, target: Array, weight: Array, counted: Array) -> PyTree:
        return {
            "second": jnp.einsum("n,ne,nf->ef", counted * weight, phi, phi)[None],
            "first": (counted * target) @ phi[None],
            "square": jnp.sum(counted * y**2),
            "count": jnp.sum(counted),
        }

    # ---- closed form

    def expect(self, natural: PyTree, batch: Batch) -> Expected:
        phi = self.features(batch.x)
        y = jnp.asarray(batch.y, phi.dtype)
        logs, target, weight = self.expect_rows(natural, phi, y)
        counted = batch.weigh(jnp.ones_like(y))
        reconstruction = jnp.sum(counted * logs)
        return Expected(
            self._statistics(y, phi, target, weight, counted), reconstruction, jnp.zeros_like(reconstruction)
        )

    def seed(self, batch: Batch, *, key: PRNGKeyArray) -> PyTree:
        """As if nothing were known of the weights."""
        return self.expect(self.natural(self.init_like(batch)), batch).statistics

    def init_like(self, batch: Batch) -> Params:
        """Weights of zero."""
        weights = jnp.zeros((1, self.features(batch.x[:1]).shape[1]), jax.dtypes.canonicalize_dtype(float))
        return {"weights": weights, "log_precision": jnp.zeros((), weights.dtype)}

    def natural(self, params: Params) -> PyTree:
        return self.family.natural(params)

    def expected_natural(self, belief: PyTree) -> PyTree:
        return self.family.expected_natural(belief)

    def conjugate(self, statistics: PyTree) -> PyTree:
        return self.family.conjugate(statistics)

    def maximise(self, statistics: PyTree) -> Params:
        return self.family.maximise(statistics)

    def divergence(self, belief: PyTree) -> Float[Array, ""]:
        return self.family.divergence(belief)

    def draw(self, belief: PyTree, *, key: PRNGKeyArray) -> Params:
        return self.family.draw(belief, key=key)

    def centre(self, belief: PyTree) -> Params:
        return self.family.centre(belief)


@register("latent/linear_regression")
class LinearRegression(AbstractRegression):
    r"""Bayesian linear regression, exact: `posterior.elbo` is the log evidence, `posterior.predict` the average.

    Args:
        prior_scale: of the weights; in units of the noise where that is unknown.
        noise_scale: $s$ where it is known.
        noise_shape: $a_0$ of an unknown noise, half as many rows as the prior guess is worth.
        noise_rate: $b_0$; the prior guess at the variance of the noise is about $b_0 / a_0$.
        intercept: whether there is one; it has the prior of the other weights.

    >>> import marginax as mx
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> line = mx.fit(mx.latent.LinearRegression(100.0), (x, 3 * x[:, 0] + 1), mx.infer.CoordinateAscent(2), key=0)
    >>> line.coefficients()[0].round(2).tolist(), line.predict([[2.0]]).mean.round(2).tolist()
    ([3.0, 1.0], [7.0])
    """

    prior_scale: float | Array = 1.0
    noise_scale: float | Array | None = None
    noise_shape: float | Array = 1.0
    noise_rate: float | Array = 1.0
    intercept: bool = True

    def __check_init__(self):
        for name in ("prior_scale", "noise_shape", "noise_rate", "noise_scale"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    @property
    def family(self) -> RegressionWeights:
        if self.noise_scale is None:
            return RegressionWeights(self.prior_scale**-2, None, self.noise_shape, self.noise_rate)
        return RegressionWeights((self.noise_scale / self.prior_scale) ** 2, self.noise_scale)

    def features(self, x: Any) -> Float[Array, "n r"]:
        return with_intercept(x, self.intercept)

    def check_targets(self, y: np.ndarray) -> None:
        away, spread = abs(float(np.mean(y))), float(np.std(y))
        single = jnp.zeros(0).dtype == jnp.float32
        if single and away > _FARTHEST * (spread or 1.0):  # squares would lose what is explained
            raise ValueError(
                f"y must not lie far from zero for its spread in single precision, got mean {np.mean(y):.4g} and "
                f"standard deviation {spread:.4g}: subtract its mean, or use jax.enable_x64(True)"
            )

    def predictive(self, params: Params, x: Array, *, key: PRNGKeyArray | None = None) -> Normal:
        log_tau = self.natural(params)["log_precision"]
        return Normal(self.features(x) @ params["weights"].T, jnp.exp(-0.5 * log_tau))

    def average(self, belief: PyTree, x: Array) -> NormalOutputs | StudentTOutputs:
        """The predictive distribution, averaged over the belief."""
        phi = self.features(x)
        spread = jnp.einsum("ne,ef,nf->n", phi, jnp.linalg.inv(belief["precision"][0]), phi)[:, None]
        loc = phi @ belief["mean"].T
        if self.noise_scale is not None:
            scale = jnp.asarray(self.noise_scale, phi.dtype)
            return NormalOutputs(loc, scale**2 * spread[..., None], jnp.broadcast_to(scale, loc.shape))
        return StudentTOutputs(2.0 * belief["a"], loc, jnp.sqrt(belief["b"] / belief["a"]), spread)

    def expect_rows(self, natural: PyTree, phi: Float[Array, "n r"], y: Float[Array, " n"]) -> tuple[Array, ...]:
        square = natural["precision"] * y**2 - 2.0 * y * (phi @ natural["first"][0])
        square = square + jnp.einsum("ne,ef,nf->n", phi, natural["second"][0], phi)
        return 0.5 * (natural["log_precision"] - np.log(2.0 * np.pi) - square), y, jnp.ones_like(y)


@register("latent/logistic_regression")
class LogisticRegression(AbstractRegression):
    r"""Bayesian logistic regression with labels 0 and 1, by a bound under `mx.infer.CoordinateAscent`.

    Args:
        prior_scale: of the weights.
        intercept: whether there is one; it has the prior of the other weights.

    >>> import marginax as mx
    >>> x = np.linspace(-3, 3, 60)[:, None]
    >>> posterior = mx.fit(mx.latent.LogisticRegression(5.0), (x, x[:, 0] > 0.5), mx.infer.CoordinateAscent(), key=0)
    >>> posterior.predict([[-2.0], [2.0]]).labels.tolist()
    [0, 1]
    """

    prior_scale: float | Array = 1.0
    intercept: bool = True

    def __check_init__(self):
        check_positive("prior_scale", self.prior_scale)

    @property
    def family(self) -> RegressionWeights:
        return RegressionWeights(self.prior_scale**-2, 1.0)

    def features(self, x: Any) -> Float[Array, "n r"]:
        return with_intercept(x, self.intercept)

    def check_targets(self, y: np.ndarray) -> None:
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"y must hold labels 0 and 1, got {np.unique(y)[:5].tolist()}: write (y == label)")

    def predictive(self, params: Params, x: Array, *, key: PRNGKeyArray | None = None) -> Bernoulli:
        return Bernoulli(self.features(x) @ params["weights"].T)

    def expect_rows(self, natural: PyTree, phi: Float[Array, "n r"], y: Float[Array, " n"]) -> tuple[Array, ...]:
        second = jnp.einsum("ne,ef,nf->n", phi, natural["second"][0], phi)
        constant, weight = softplus_bound(second)
        target = y - 0.5
        return constant + target * (phi @ natural["first"][0]) - 0.5 * weight * second, target, weight


def with_intercept(x: Any, intercept: bool) -> Float[Array, "n r"]:
    """Inputs as numbers of the model's precision, with a column of ones where there is an intercept."""
    x = jnp.asarray(x, jax.dtypes.canonicalize_dtype(float))
    return jnp.concatenate([x, jnp.ones((len(x), 1), x.dtype)], 1) if intercept else x

r"""Warm-up of samplers: a step size that gives the wanted acceptance, and the posterior's scale.

The schedule of windows is Stan's: a fast interval for the step size alone, slow windows of doubling length that also
learn the scale, and a last fast interval. The scale is a square root $R$ of the covariance, diagonal or dense; samplers
move in the coordinates $z = R^{-1} \theta$, where a well-learned posterior has unit scale in every direction.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marginax.files import register
from marginax.infer.flat import Vector

MetricSqrt = Float[Array, " d"] | Float[Array, "d d"]


# ---- scale


@register("metric/diagonal")
class DiagonalMetric(eqx.Module):
    """A standard deviation for every coordinate."""


@register("metric/dense")
class DenseMetric(eqx.Module):
    """A whole covariance matrix: for up to some hundreds of strongly correlated parameters."""


Metric = DiagonalMetric | DenseMetric


def check_metric(metric: Metric) -> None:
    """Refuse what is not one."""
    if not isinstance(metric, Metric):
        raise TypeError(f"metric must be mx.infer.DiagonalMetric() or DenseMetric(), got {metric!r}")


def unit_metric_sqrt(metric: Metric, position: Vector) -> MetricSqrt:
    """Before anything is learned."""
    ones = jnp.ones_like(position)
    return ones if isinstance(metric, DiagonalMetric) else jnp.diag(ones)


def apply_sqrt(metric_sqrt: MetricSqrt, vector: Vector) -> Vector:
    """From unit scale to the posterior's: R v."""
    return metric_sqrt * vector if metric_sqrt.ndim == 1 else metric_sqrt @ vector


def apply_sqrt_transposed(metric_sqrt: MetricSqrt, gradient: Vector) -> Vector:
    """The gradient in coordinates of unit scale: R' g."""
    return metric_sqrt * gradient if metric_sqrt.ndim == 1 else gradient @ metric_sqrt


def solve_sqrt(metric_sqrt: MetricSqrt, vector: Vector) -> Vector:
    """From the posterior's scale to unit scale: R^-1 v."""
    if metric_sqrt.ndim == 1:
        return vector / metric_sqrt
    return jax.scipy.linalg.solve_triangular(metric_sqrt, vector, lower=True)


class Moments(eqx.Module):
    """Running mean and sum of squares (Welford, 1962)."""

    count: Int[Array, ""]
    mean: Vector
    squares: MetricSqrt


def no_moments(metric: Metric, vector: Vector) -> Moments:
    """Nothing seen yet."""
    shape = (vector.size,) if isinstance(metric, DiagonalMetric) else (vector.size, vector.size)
    return Moments(jnp.zeros((), jnp.int32), jnp.zeros_like(vector), jnp.zeros(shape, vector.dtype))


def add_to_moments(moments: Moments, vector: Vector) -> Moments:
    """One more position."""
    count = moments.count + 1
    before = vector - moments.mean
    mean = moments.mean + before / count
    after = vector - mean
    product = before * after if moments.squares.ndim == 1 else jnp.outer(before, after)
    return Moments(count, mean, moments.squares + product)


def metric_sqrt_of(moments: Moments) -> MetricSqrt:
    """A square root of the covariance, drawn to a small multiple of the identity where little is known (as in Stan)."""
    count = moments.count.astype(moments.mean.dtype)
    covariance = moments.squares / jnp.maximum(count - 1.0, 1.0)
    weight = count / (count + 5.0)
    if covariance.ndim == 1:
        return jnp.sqrt(weight * covariance + 1e-3 * (1.0 - weight))
    return jnp.linalg.cholesky(weight * covariance + 1e-3 * (1.0 - weight) * jnp.eye(covariance.shape[0]))


# ---- step size


class StepSize(eqx.Module):
    """Stochastic approximation of the log step size (Robbins & Monro, 1951), and the average of its late iterates.

    Stan's dual averaging swings so widely that the average of its steps is too short: on networks it gave 0.94 of
    accepted moves where 0.8 was wanted, and twice the gradients. Gains that fall keep the swings small.
    """

    log_step: Float[Array, ""]
    log_average: Float[Array, ""]
    count: Int[Array, ""]


def first_step_size(step_size: Array | float) -> StepSize:
    """Begin at a step size."""
    log_step = jnp.log(jnp.asarray(step_size, float))
    return StepSize(log_step, log_step, jnp.zeros((), jnp.int32))


def update_step_size(state: StepSize, acceptance: Array, target: Array | float) -> StepSize:
    """A longer step if more was accepted than wanted, a shorter one if less."""
    count = state.count + 1
    time = count.astype(state.log_step.dtype)
    log_step = state.log_step + 1.5 * (time + 3.0) ** -0.6 * (acceptance - target)
    share = time**-0.75
    return StepSize(log_step, share * log_step + (1.0 - share) * state.log_average, count)


# ---- both, in windows


class Adaptation(eqx.Module):
    """What warm-up has learned so far."""

    step: StepSize
    moments: Moments
    metric_sqrt: MetricSqrt
    count: Int[Array, ""]

    @property
    def trial_step_size(self) -> Array:
        """For the next step of warm-up."""
        return jnp.exp(self.step.log_step)

    @property
    def step_size(self) -> Array:
        """For sampling: the average of what warm-up tried."""
        return jnp.exp(self.step.log_average)

    @property
    def window_ended(self) -> Array:
        """With the last step of warm-up: the metric is new, and the search for a step size began again."""
        return self.step.count == 0


def first_adaptation(metric: Metric, position: Vector, step_size: float) -> Adaptation:
    """Unit scale and a guess of the step size."""
    moments, metric_sqrt = no_moments(metric, position), unit_metric_sqrt(metric, position)
    return Adaptation(first_step_size(step_size), moments, metric_sqrt, jnp.zeros((), jnp.int32))


def adapt(state: Adaptation, position: Vector, acceptance: Array, target: Array | float, num_warmup: int) -> Adaptation:
    """Learn from one step of warm-up."""
    slow, window_ends = (jnp.asarray(flags)[state.count] for flags in adaptation_windows(num_warmup))
    step = update_step_size(state.step, acceptance, target)
    moments = choose(slow, add_to_moments(state.moments, position), state.moments)
    metric_sqrt = choose(window_ends, metric_sqrt_of(moments), state.metric_sqrt)
    step = choose(window_ends, first_step_size(jnp.exp(step.log_average)), step)
    moments = choose(window_ends, jax.tree.map(jnp.zeros_like, moments), moments)
    return Adaptation(step, moments, metric_sqrt, state.count + 1)


def metric_settled(state: Adaptation, num_warmup: int) -> Array:
    """Has the last window ended?"""
    _, ends = adaptation_windows(num_warmup)
    return state.count > np.flatnonzero(ends)[-1]


def adaptation_windows(num_warmup: int) -> tuple[np.ndarray, np.ndarray]:
    """For each warm-up step: does the scale learn from it, and does a window end with it?

    >>> slow, ends = adaptation_windows(500)
    >>> np.flatnonzero(ends).tolist(), int(slow.sum())
    ([99, 149, 249, 449], 375)
    """
    first, last, window = 75, 50, 25
    if num_warmup < first + last + window:
        first, last = int(0.15 * num_warmup), int(0.1 * num_warmup)
        window = num_warmup - first - last
    slow, ends = np.zeros(num_warmup, bool), np.zeros(num_warmup, bool)
    slow[first : num_warmup - last] = True
    start = first
    while start < num_warmup - last:
        stop = start + window
        if stop + 2 * window > num_warmup - last:
            stop = num_warmup - last
        ends[stop - 1] = True
        start, window = stop, 2 * window
    return slow, ends


def choose(condition: Array, yes, no):
    """One tree or the other."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)

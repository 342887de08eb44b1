r"""A network with one or two tanh units: the smallest posterior that is really one of a network.

Given the hidden weights the output is linear, so the output weights are integrated exactly; what is left is a sum over
a regular grid of the hidden weights $(u_j, b_j)$ of each unit. The symmetry $(u, b, v) \to (-u, -b, -v)$ halves the
grid, and with two units the sum over pairs of grid points becomes matrix products. Weights of such a network mean
nothing one by one (units can swap), so only evidence and predictions are offered.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from marginax.model import Model, likelihoods, priors
from marginax.nets import MLP
from marginax.testing.problem import LOG_2PI, AbstractProblem, ExactPrediction, log_normal, single

_ROWS_PER_CHUNK = 128


@dataclass(frozen=True, eq=False)
class _Units:
    """Grid points of one hidden unit: its weight, its bias, and the log of prior times cell."""

    weight: Float[np.ndarray, " k"]
    bias: Float[np.ndarray, " k"]
    log_mass: Float[np.ndarray, " k"]

    def activation(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "k n"]:
        return np.tanh(self.weight[:, None] * x + self.bias[:, None])


@dataclass(frozen=True, eq=False)
class _Sums:
    """Posterior sums over grid points (i, j): of first moments of the output weights, and of second ones.

    Output weights are (v_1, v_2, c); `first[0]` still runs over i, `first[1]` over j, as do `square` and `with_bias`.
    """

    log_evidence: float
    first: tuple[np.ndarray, np.ndarray, float]
    square: tuple[np.ndarray, np.ndarray, float]
    with_bias: tuple[np.ndarray, np.ndarray]
    cross: Float[np.ndarray, "k l"]


@dataclass(frozen=True, eq=False, repr=False)
class TanhNetwork(AbstractProblem):
    r"""$y \sim N(c + \sum_j v_j \tanh(u_j x + b_j), s^2)$, every weight $N(0, \tau^2)$.

    Attributes:
        name: of the problem.
        model: an MLP with one hidden layer.
        x: inputs.
        y: targets.
        x_new: 20 inputs for predictions.
        num_hidden: 1 or 2.
        noise_scale: $s$.
        prior_scale: $\tau$.
        spacing: of the grid, in units of $\tau$.
        half_width: of the grid, in units of $\tau$.
    """

    name: str
    model: Model
    x: Float[np.ndarray, "n 1"]
    y: Float[np.ndarray, " n"]
    x_new: Float[np.ndarray, "m 1"]
    num_hidden: int
    noise_scale: float
    prior_scale: float
    spacing: float
    half_width: float = 4.8

    def log_joint(self, theta: Float[np.ndarray, "*s d"]) -> Float[np.ndarray, "*s"]:
        hidden = self.num_hidden
        weight, bias, output, shift = np.split(theta, np.cumsum([hidden, hidden, hidden]), axis=-1)
        units = np.tanh(weight[..., None] * self.x[:, 0] + bias[..., None])
        mean = shift + (output[..., None] * units).sum(-2)
        log_likelihood = log_normal(self.y, mean, self.noise_scale).sum(-1)
        return np.asarray(log_likelihood + log_normal(theta, 0.0, self.prior_scale).sum(-1))

    @cached_property
    def _units(self) -> tuple[_Units, _Units]:
        """Grid points of both units; with one unit, the second is a single point that is always silent."""
        step = self.spacing * self.prior_scale
        positive = np.arange(0, round(self.half_width / self.spacing) + 1) * step
        every = np.concatenate([-positive[:0:-1], positive])
        weight, bias = (axis.ravel() for axis in np.meshgrid(positive, every, indexing="ij"))
        log_prior = log_normal(weight, 0.0, self.prior_scale) + log_normal(bias, 0.0, self.prior_scale)
        both_signs = np.where(weight > 0, np.log(2.0), 0.0)
        units = _Units(weight, bias, log_prior + both_signs + 2 * np.log(step))
        silent = _Units(np.zeros(1), np.zeros(1), np.zeros(1))
        return units, units if self.num_hidden == 2 else silent

    @cached_property
    def _sums(self) -> _Sums:
        one, two = self._units
        x = self.x[:, 0]
        right = two.activation(x)
        # the likelihood of a perfect fit: no density is above it, so nothing overflows
        offset = -0.5 * len(x) * (LOG_2PI + 2 * np.log(self.noise_scale))
        first = [np.zeros(len(one.weight)), np.zeros(len(two.weight)), 0.0]
        square = [np.zeros(len(one.weight)), np.zeros(len(two.weight)), 0.0]
        with_bias = [np.zeros(len(one.weight)), np.zeros(len(two.weight))]
        cross = np.empty((len(one.weight), len(two.weight)))
        total = 0.0
        for start in range(0, len(one.weight), _ROWS_PER_CHUNK):
            rows = slice(start, start + _ROWS_PER_CHUNK)
            left = _Units(one.weight[rows], one.bias[rows], one.log_mass[rows])
            log_likelihood, mean, covariance = self._given(left.activation(x), right)
            mass = np.exp(log_likelihood - offset + left.log_mass[:, None] + two.log_mass)
            total += mass.sum()
            first[0][rows] = (mass * mean[0]).sum(1)
            first[1] += (mass * mean[1]).sum(0)
            first[2] += (mass * mean[2]).sum()
            square[0][rows] = (mass * (covariance[0][0] + mean[0] ** 2)).sum(1)
            square[1] += (mass * (covariance[1][1] + mean[1] ** 2)).sum(0)
            square[2] += (mass * (covariance[2][2] + mean[2] ** 2)).sum()
            with_bias[0][rows] = (mass * (covariance[0][2] + mean[0] * mean[2])).sum(1)
            with_bias[1] += (mass * (covariance[1][2] + mean[1] * mean[2])).sum(0)
            cross[rows] = mass * (covariance[0][1] + mean[0] * mean[1])
        return _Sums(
            float(offset + np.log(total)),
            (first[0] / total, first[1] / total, float(first[2] / total)),
            (square[0] / total, square[1] / total, float(square[2] / total)),
            (with_bias[0] / total, with_bias[1] / total),
            cross / total,
        )

    def _given(self, left: Float[np.ndarray, "k n"], right: Float[np.ndarray, "l n"]) -> tuple:
        """Log likelihood, means and covariances of the output weights, for all pairs of hidden units."""
        shape, num = (len(left), len(right)), self.x.shape[0]
        inverse_noise, ridge = self.noise_scale**-2, self.prior_scale**-2
        squares = [(left**2).sum(1)[:, None], (right**2).sum(1)[None], np.full((1, 1), float(num))]
        products = {(0, 1): left @ right.T, (0, 2): left.sum(1)[:, None], (1, 2): right.sum(1)[None]}
        entries = {(i, i): inverse_noise * squares[i] + ridge for i in range(3)}
        entries |= {pair: inverse_noise * value for pair, value in products.items()}
        matrix = [[np.broadcast_to(entries[min(i, j), max(i, j)], shape) for j in range(3)] for i in range(3)]
        covariance, log_det = _invert(matrix)
        towards = [(left @ self.y)[:, None], (right @ self.y)[None], np.full((1, 1), self.y.sum())]
        towards = [inverse_noise * value for value in towards]
        mean = [sum(covariance[i][j] * towards[j] for j in range(3)) for i in range(3)]
        explained = sum(mean[i] * towards[i] for i in range(3))
        constant = num * (LOG_2PI + 2 * np.log(self.noise_scale)) + inverse_noise * (self.y @ self.y)
        log_det = log_det + 3 * 2 * np.log(self.prior_scale)
        return 0.5 * (explained - constant - log_det), mean, covariance

    @property
    def log_evidence(self) -> float:
        """By the sum over the grid."""
        return self._sums.log_evidence

    def predictive(self, x: Float[np.ndarray, "m 1"]) -> ExactPrediction:
        """Moments of the network's output over the posterior, plus the noise."""
        sums = self._sums
        left, right = (units.activation(x[:, 0]) for units in self._units)
        mean = sums.first[0] @ left + sums.first[1] @ right + sums.first[2]
        second = sums.square[0] @ left**2 + sums.square[1] @ right**2 + sums.square[2]
        second += 2 * (sums.with_bias[0] @ left + sums.with_bias[1] @ right)
        second += 2 * (left * (sums.cross @ right)).sum(0)
        return ExactPrediction(mean, second - mean**2, np.full(len(x), self.noise_scale**2))


def _invert(matrix: list[list]) -> tuple[list[list], np.ndarray]:
    """Inverses and log determinants of many small positive definite matrices at once, by Gauss-Jordan sweeps."""
    size = len(matrix)
    work = [list(row) for row in matrix]
    log_det = np.zeros(())
    for k in range(size):
        pivot = work[k][k]
        log_det = log_det + np.log(pivot)
        column = [work[i][k] for i in range(size)]
        for i in range(size):
            for j in range(i, size):
                if i != k and j != k:
                    work[i][j] = work[j][i] = work[i][j] - column[i] * column[j] / pivot
        for i in range(size):
            if i != k:
                work[i][k] = work[k][i] = column[i] / pivot
        work[k][k] = -1.0 / pivot
    return [[-entry for entry in row] for row in work], log_det


def tanh_network(num_hidden: int = 1, *, num_examples: int = 10) -> TanhNetwork:
    """A tanh network with 1 or 2 hidden units on a few points of a curve with two bends.

    >>> problem = tanh_network(1)
    >>> problem.predictive(problem.x_new).std.shape
    (20,)
    """
    if num_hidden not in (1, 2):
        raise ValueError(f"num_hidden must be 1 or 2, got {num_hidden!r}: larger grids do not fit")
    rng = np.random.default_rng(7)
    noise_scale, prior_scale = 0.2, 1.5
    x = single(np.sort(rng.uniform(-2, 2, num_examples))[:, None])
    curve = np.tanh(2 * x[:, 0] + 1) - 0.5 * np.tanh(2 * x[:, 0] - 2)
    y = single(curve + noise_scale * rng.normal(size=num_examples))
    x_new = single(np.linspace(-3, 3, 20)[:, None])
    network = MLP(in_size=1, hidden=(num_hidden,), out_size=1, activation=jnp.tanh, key=0)
    model = Model(network, likelihoods.Gaussian(noise_scale), priors.Normal(prior_scale))
    spacing = 0.08 if num_hidden == 1 else 0.15  # log evidence to 1e-6 and 1e-4, means to 1e-3 standard deviations
    name = f"tanh_network({num_hidden})"
    return TanhNetwork(name, model, x, y, x_new, num_hidden, noise_scale, prior_scale, spacing)

r"""Expected log predictive density of new rows, estimated from the training rows themselves.

Leaving a row out of the fit is imitated by weights $1 / p(y_i \mid \theta_s)$ on the draws, whose largest are smoothed
by a generalised Pareto distribution (PSIS-LOO: Vehtari, Gelman & Gabry, 2017); WAIC (Watanabe, 2010) subtracts the
variance of the log likelihood instead. Both take the draws for draws from the posterior, also those of an
approximation.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from marginax._extras import require
from marginax._keys import Key
from marginax.evaluate.convergence import effective_size
from marginax.evaluate.pointwise import PointwiseLikelihood, pointwise_likelihood
from marginax.evaluate.score import AbstractScore
from marginax.posterior import AbstractPosterior

_MOST_K = 0.7
_MOST_VARIANCE = 0.4
_LEAST_DRAWS = 8  # of a chain whose autocorrelation can be estimated


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut(AbstractScore):
    """PSIS-LOO, as ArviZ and R's loo define it; more is better.

    Attributes:
        value: expected log predictive density of as many new rows: a sum, in nats.
        standard_error: of the sum.
        num: how many rows.
        num_effective: effective number of parameters, by how much the rows' own density is higher.
        pointwise: the terms of the sum.
        pareto_k: shape of the weights' tail for each row; above `most_k` the term is not to be trusted.
        most_k: 0.7, or less for few draws.
    """

    value: float
    standard_error: float
    num: int
    num_effective: float
    pointwise: Float[np.ndarray, " n"]
    pareto_k: Float[np.ndarray, " n"]
    most_k: float


@dataclass(frozen=True, eq=False, repr=False)
class WAIC(AbstractScore):
    """The widely applicable information criterion, on the scale of log densities; more is better.

    Attributes:
        value: expected log predictive density of as many new rows: a sum, in nats.
        standard_error: of the sum.
        num: how many rows.
        num_effective: effective number of parameters, the sum of `variances`.
        pointwise: the terms of the sum.
        variances: of the log likelihood over draws, for each row; above 0.4 the term is not to be trusted.
    """

    value: float
    standard_error: float
    num: int
    num_effective: float
    pointwise: Float[np.ndarray, " n"]
    variances: Float[np.ndarray, " n"]


def loo(
    posterior: AbstractPosterior,
    data: Any,
    *,
    num_samples: int | None = None,
    key: Key | None = None,
    max_bytes: int = 256 * 2**20,
) -> LeaveOneOut:
    """Leave-one-out cross-validation without fitting again, by Pareto-smoothed importance sampling.

    Chains count by the effective sample size of each row's likelihood. Warns where weights are too uneven.

    Args:
        posterior: of at least 2 draws.
        data: the training data, a pair (x, y) in the user's units, or as `mx.data.standardise` gave them.
        num_samples: draws to use; by default all, or 100 of a continuous posterior (take some thousands there).
        key: seed for drawing them.
        max_bytes: memory for intermediate results.

    >>> import jax, marginax as mx
    >>> rng = np.random.default_rng(0)
    >>> model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(scale=1.0))
    >>> params = jax.tree.map(lambda leaf: 0.1 * rng.normal(size=(1, 1000, *leaf.shape)), model.initial(1))
    >>> posterior = mx.posterior.Draws(model, params, mx.data.DataSpec((1,), (), 40))
    >>> found = loo(posterior, (rng.normal(size=(40, 1)), rng.normal(size=40)))
    >>> found.num, bool(found.pareto_k.max() < 0.7)
    (40, True)
    """
    arviz = require("arviz")

    job = pointwise_likelihood(posterior, data, num_samples=num_samples, key=key, max_bytes=max_bytes)
    pointwise, density, shapes = [], [], []
    for block in job.blocks():
        for row, efficiency in zip(block.T, _efficiency(job, block), strict=True):
            log_weights, k = arviz.psislw(job.log_weights - row, reff=float(efficiency))
            pointwise.append(np.logaddexp.reduce(np.asarray(log_weights) + row))
            shapes.append(float(k))
        density.append(np.logaddexp.reduce(block + job.log_weights[:, None], axis=0))
    terms, pareto_k = np.array(pointwise), np.array(shapes)
    most = min(1 - 1 / math.log10(job.num_draws), _MOST_K) if job.num_draws > 1 else 0.0
    high = np.flatnonzero(~(pareto_k <= most))
    if len(high):
        warnings.warn(
            f"{len(high)} of {len(terms)} rows have Pareto k above {most:.2f} (highest {pareto_k.max():.2f}, row "
            f"{int(np.argmax(pareto_k))}): the posterior would change too much without them for loo to be trusted; "
            "use more draws, cross-validate by fitting again, or look at these rows (a likelihood with heavier tails?)",
            stacklevel=2,
        )
    num_effective = float(np.concatenate(density).sum() - terms.sum())
    return LeaveOneOut(*_sum_of(terms), num_effective, terms, pareto_k, float(most))


def waic(
    posterior: AbstractPosterior,
    data: Any,
    *,
    num_samples: int | None = None,
    key: Key | None = None,
    max_bytes: int = 256 * 2**20,
) -> WAIC:
    """Widely applicable information criterion. `loo` is the safer choice: it knows better when it fails.

    Args:
        posterior: of at least 2 draws.
        data: the training data, a pair (x, y) in the user's units, or as `mx.data.standardise` gave them.
        num_samples: draws to use; by default all, or 100 of a continuous posterior (take some thousands there).
        key: seed for drawing them.
        max_bytes: memory for intermediate results.

    >>> import jax, marginax as mx
    >>> rng = np.random.default_rng(0)
    >>> model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(scale=1.0))
    >>> params = jax.tree.map(lambda leaf: 0.1 * rng.normal(size=(1, 1000, *leaf.shape)), model.initial(1))
    >>> posterior = mx.posterior.Draws(model, params, mx.data.DataSpec((1,), (), 40))
    >>> found = waic(posterior, (rng.normal(size=(40, 1)), rng.normal(size=40)))
    >>> found.num, found.num_effective < 2
    (40, True)
    """
    job = pointwise_likelihood(posterior, data, num_samples=num_samples, key=key, max_bytes=max_bytes)
    weights = np.exp(job.log_weights)[:, None]
    density, spread = [], []
    for block in job.blocks():
        density.append(np.logaddexp.reduce(block + job.log_weights[:, None], axis=0))
        spread.append(np.sum(weights * (block - np.sum(weights * block, axis=0)) ** 2, axis=0))
    variances = np.concatenate(spread)
    terms = np.concatenate(density) - variances
    high = np.flatnonzero(~(variances <= _MOST_VARIANCE))
    if len(high):
        warnings.warn(
            f"{len(high)} of {len(terms)} rows have a log likelihood whose variance over draws is more than "
            f"{_MOST_VARIANCE} (highest {variances.max():.2f}, row {int(np.argmax(variances))}): use loo instead",
            stacklevel=2,
        )
    return WAIC(*_sum_of(terms), float(variances.sum()), terms, variances)


def _sum_of(terms: Float[np.ndarray, " n"]) -> tuple[float, float, int]:
    """Value, standard error and number of terms."""
    return float(terms.sum()), float(math.sqrt(len(terms)) * terms.std()), len(terms)


def _efficiency(job: PointwiseLikelihood, block: Float[np.ndarray, "s r"]) -> Float[np.ndarray, " r"]:
    """Effective draws per draw of each row's likelihood; 1 where draws are independent."""
    if job.chains is None or job.chains[1] < _LEAST_DRAWS:
        return np.ones(block.shape[1])
    likelihood = np.exp(block - block.max(axis=0)).T.reshape(-1, *job.chains)
    half = job.chains[1] // 2
    split = np.concatenate([likelihood[:, :, :half], likelihood[:, :, -half:]], axis=1)
    return effective_size(split) / job.num_draws

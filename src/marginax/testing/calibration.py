r"""Simulation-based calibration (Cook, Gelman & Rubin, 2006; Talts et al., 2018): is a posterior right on average?

Parameters are drawn from the prior and data from the likelihood; then the truth is one more draw from the posterior
given those data. So its rank among $L$ independent posterior draws is uniform on $0, \dots, L$, for every quantity, in
every model with a proper prior: no exact answer is needed. Quantities that look at the data, as the log likelihood
does, also find a posterior that ignores them (Modrák et al., 2023).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc
from jaxtyping import Array, Float, Int, PRNGKeyArray
from jaxtyping import Key as KeyArray

from marginax._keys import Key, as_key
from marginax.data import Batch, FullBatch
from marginax.infer import AbstractMethod, fit
from marginax.model import Model, Params
from marginax.model.scale import Positive
from marginax.posterior import AbstractPosterior
from marginax.testing.problem import HasModelAndData

Quantities = Callable[[Model, Params, Batch], Float[Array, " q"]]

_NUM_BINS = 16
_NUM_WAVES = 4
_NUM_INPUTS = 5


@dataclass(frozen=True, eq=False)
class Calibration:
    """Where true values fell among draws of the posterior, over many simulated data sets.

    Args:
        name: of what was run.
        ranks: how many draws are below the truth, between 0 and `num_draws`.
        num_draws: posterior draws per data set.
        correlation: of neighbouring draws, averaged over data sets; ranks are uniform only if it is near zero.
    """

    name: str
    ranks: Int[np.ndarray, "simulations q"]
    num_draws: int
    correlation: Float[np.ndarray, " q"]

    @property
    def p_values(self) -> Float[np.ndarray, " q"]:
        """Of uniform ranks, per quantity: the smaller of two tests, doubled.

        One is Pearson's chi-square on 16 bins, which sees any shape. The other is Neyman's smooth test on the first
        four Legendre polynomials, which is sharper for the usual faults: a shift, too much or too little spread.
        """
        return np.minimum(
            1.0, 2.0 * np.minimum(_binned(self.ranks, self.num_draws), _smooth(self.ranks, self.num_draws))
        )

    def check(self, level: float = 1e-3) -> None:
        """Raise an AssertionError that names the worst quantity if its p-value is too small.

        Args:
            level: chance that right draws are refused, for all quantities together (Bonferroni).
        """
        p_values = self.p_values
        worst = int(p_values.argmin())
        if p_values[worst] * len(p_values) >= level:
            return
        counts = np.histogram(self.ranks[:, worst], bins=8, range=(0, self.num_draws + 1))[0]
        raise AssertionError(
            f"{self.name}: ranks of quantity {worst} are not uniform (p = {p_values[worst]:.2g}): in eighths "
            f"{counts.tolist()} of {len(self.ranks)} data sets; neighbouring draws correlate by "
            f"{self.correlation[worst]:.2f} (thin more if that is far from 0)"
        )


def functions_and_fit(model: Model, params: Params, batch: Batch) -> Float[Array, " q"]:
    """Outputs at five rows of x, unknowns of likelihood and prior, log likelihood: what symmetries leave alone."""
    rows = np.unique(np.linspace(0, batch.size - 1, _NUM_INPUTS).astype(int))
    unknowns = jax.tree.leaves((params.likelihood, params.prior))
    parts = [model.output(params, batch.x[rows]), *unknowns, jnp.sum(model.log_likelihood(params, batch))]
    return jnp.concatenate([jnp.ravel(part) for part in parts])


def weights_and_fit(model: Model, params: Params, batch: Batch) -> Float[Array, " q"]:
    """All parameters and the log likelihood: for models whose parameters can be told apart."""
    parts = [*jax.tree.leaves(params), jnp.sum(model.log_likelihood(params, batch))]
    return jnp.concatenate([jnp.ravel(part) for part in parts])


def simulation_based_calibration(
    method: AbstractMethod,
    problem: HasModelAndData,
    *,
    num_simulations: int = 200,
    num_draws: int = 63,
    num_chains: int = 1,
    quantities: Quantities = functions_and_fit,
    key: Key = 0,
) -> Calibration:
    """Fit data sets that the model itself has made, and rank what made them among the draws.

    Args:
        method: one that claims to sample the posterior. It should keep at least `num_draws` draws in all, nearly
            independent ones: they are spread evenly over what it keeps.
        problem: a model with a proper prior, and data: inputs are used as they are, targets only for shape and type.
        num_simulations: data sets; code is compiled for the first alone.
        num_draws: per data set; one less than a multiple of 16 makes bins of equal size.
        num_chains: per data set.
        quantities: what is ranked: a function of model, parameters and the full batch that gives a vector.
        key: seed.

    >>> from marginax.infer import NUTS
    >>> from marginax.testing import gaussian_mean
    >>> found = simulation_based_calibration(NUTS(100, 126), gaussian_mean(), num_simulations=2)
    >>> found.ranks.shape, bool(found.ranks.max() <= 63)
    ((2, 6), True)
    """
    if num_simulations < 1 or num_draws < 1:
        raise ValueError(f"num_simulations and num_draws must be >= 1, got {num_simulations} and {num_draws}")
    if (num_draws + 1) % _NUM_BINS:
        raise ValueError(f"num_draws must be one less than a multiple of {_NUM_BINS}, such as 63, got {num_draws}")
    model, (x, y) = problem.model, problem.data
    x, y = np.asarray(x), np.asarray(y)
    simulating, fitting, drawing, breaking = jax.random.split(as_key(key), 4)
    like = model.initial(model.output_size(x.shape[1:], jnp.asarray(x).dtype))
    truths, targets = _simulate(model, like, jnp.asarray(x), jax.random.split(simulating, num_simulations))
    targets = np.asarray(targets).reshape(num_simulations, *y.shape).astype(y.dtype)
    ties = np.asarray(jax.random.uniform(breaking, (num_simulations, 1)))
    ranks, correlations = [], []
    for i in range(num_simulations):
        data = (x, targets[i])
        posterior = fit(model, data, method, key=jax.random.fold_in(fitting, i), num_chains=num_chains, progress=False)
        draws = _draws(posterior, num_draws, jax.random.fold_in(drawing, i))
        truth = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], truths)
        batch = FullBatch(data).batch(0, key=fitting)
        found, right = _evaluate(model, draws, truth, batch, quantities)
        ranks.append(_ranks(np.asarray(found), np.asarray(right)[0], ties[i]))
        correlations.append(_correlation(np.asarray(found)))
    return Calibration(type(method).__name__, np.stack(ranks), num_draws, np.mean(correlations, axis=0))


@eqx.filter_jit
def _simulate(model: Model, like: Params, x: Array, keys: KeyArray[Array, " simulations"]) -> tuple[Params, Array]:
    def one(key: PRNGKeyArray) -> tuple[Params, Array]:
        weights_key, unknowns_key, noise_key = jax.random.split(key, 3)
        params = model.sample_prior(like, key=weights_key)
        params = eqx.tree_at(lambda p: p.likelihood, params, _sample_unknowns(model, params, unknowns_key))
        return params, model.predictive(params, x).sample(noise_key)

    return jax.vmap(one)(keys)


def _sample_unknowns(model: Model, params: Params, key: PRNGKeyArray) -> dict[str, Array]:
    """The likelihood's unknowns from their prior: so far, those are learned scales."""
    unknowns = params.likelihood
    if not unknowns:
        return unknowns
    scale = getattr(model.likelihood, "scale", None)
    if set(unknowns) != {"log_scale"} or not isinstance(scale, Positive):
        raise NotImplementedError(f"no way is known to draw {sorted(unknowns)} of {model.likelihood!r} from the prior")
    return {"log_scale": jnp.log(scale.sample(key, unknowns["log_scale"].shape))}


def _draws(posterior: AbstractPosterior, num: int, key: PRNGKeyArray) -> Params:
    functions = posterior.functions(num, key=key)
    kept = functions.num_draws
    if kept < num or functions.log_weights is not None:
        raise ValueError(f"method must give at least num_draws={num} draws of equal weight, got {kept}: keep more")
    members: Any = functions.members[0]
    if members.shared is None:
        return members.draws
    whole = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (kept, *leaf.shape)), members.shared)
    return eqx.combine(members.draws, whole)


@eqx.filter_jit
def _evaluate(model: Model, draws: Params, truth: Params, batch: Batch, quantities: Quantities) -> tuple[Array, Array]:
    each = jax.vmap(lambda params: quantities(model, params, batch))
    return each(draws), each(truth)


def _ranks(
    draws: Float[np.ndarray, "s q"], truth: Float[np.ndarray, " q"], tie: Float[np.ndarray, " 1"]
) -> Int[np.ndarray, " q"]:
    """Number of draws below the truth; where some equal it, a fair share of them."""
    below, equal = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
    return below + np.floor(tie * (equal + 1)).astype(below.dtype)


def _correlation(draws: Float[np.ndarray, "s q"]) -> Float[np.ndarray, " q"]:
    """Of each draw with the next."""
    centred = draws.astype(np.float64) - draws.mean(axis=0)
    return (centred[1:] * centred[:-1]).sum(axis=0) / np.maximum((centred**2).sum(axis=0), 1e-300)


def _binned(ranks: Int[np.ndarray, "n q"], num_draws: int) -> Float[np.ndarray, " q"]:
    """Pearson's chi-square on bins of equal size."""
    bins = ranks * _NUM_BINS // (num_draws + 1)
    counts = np.stack([(bins == b).sum(axis=0) for b in range(_NUM_BINS)])
    expected = len(ranks) / _NUM_BINS
    return _tail(((counts - expected) ** 2 / expected).sum(axis=0), _NUM_BINS - 1)


def _smooth(ranks: Int[np.ndarray, "n q"], num_draws: int) -> Float[np.ndarray, " q"]:
    """Neyman's smooth test: means of orthonormal polynomials of the rank, which are independent and normal."""
    every = np.linspace(-1, 1, num_draws + 1)
    # Legendre polynomials, made orthonormal on the ranks that there are
    waves = np.linalg.qr(np.polynomial.legendre.legvander(every, _NUM_WAVES))[0][:, 1:] * np.sqrt(num_draws + 1)
    means = waves[ranks].mean(axis=0)
    return _tail(len(ranks) * (means**2).sum(axis=1), _NUM_WAVES)


def _tail(statistic: Float[np.ndarray, " q"], freedom: int) -> Float[np.ndarray, " q"]:
    """Chance of a chi-square as large as this."""
    return np.asarray(gammaincc(0.5 * freedom, jnp.asarray(0.5 * statistic)), np.float64)

r"""Stacking: several models of one table, weighted by how well they predict rows that they have not seen.

Weights maximise $\sum_i \log \sum_c w_c\, p_c(y_i) + \sum_c \log w_c$ over the simplex, with the densities of rows held
out (Yao et al., 2018); the second sum keeps them even while there are few rows to tell. A straight line, which may be
level, and a Gaussian process stand beside the network: few rows and many columns fall back to them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._extras import require
from marginax.data import Arrays, FullBatch
from marginax.estimators.gaussian_process import fit_gaussian_process
from marginax.files import register
from marginax.infer import Laplace, fit
from marginax.model import Model
from marginax.model.likelihoods import AbstractLikelihood, Gaussian
from marginax.model.normal_outputs import NormalOutputs
from marginax.nets import MLP
from marginax.posterior import AbstractPosterior, AbstractWrapped, Draws
from marginax.predict import AbstractFunctions, AbstractFunctionSet, JoinedFunctions
from marginax.predict.workload import without_draws

ROWS_JUDGED = 200
"""As many rows are held out, in a fifth of the table at a time, before weights are believed."""

_NUM_FOLDS = 5
_LEAST_WEIGHT = 0.02
_NUM_LINES = 1000


@dataclass(frozen=True)
class Candidate:
    """A way to a posterior: (data, seed) -> posterior."""

    name: str
    fit: Callable[[Arrays, int], AbstractPosterior]


@register("estimator/stack")
class Stack(eqx.Module):
    """Posteriors of other models beside that of the network, and the weights of all, the network's first.

    Args:
        names: of all candidates.
        others: posteriors of all but the network.
        weights: of all, summing to one.
        is_number: whether targets are numbers, with normal noise.
        held_out: mean log density of held-out rows by candidate, and that of the stack.
    """

    names: tuple[str, ...]
    others: tuple[AbstractPosterior, ...]
    weights: np.ndarray
    is_number: bool
    held_out: np.ndarray

    def functions(self, network: AbstractFunctionSet, *, key: PRNGKeyArray) -> JoinedFunctions:
        """Those of the network and of the others, by weight."""
        parts = (network, *(each.functions(_NUM_LINES, key=key) for each in self.others))
        if self.is_number:  # each is of one kind, and they differ
            parts = tuple(NormalFunctions.of(functions) for (functions,) in (part.members for part in parts))
        return JoinedFunctions(parts, self.weights)

    def describe(self) -> str:
        """Candidates and weights."""
        return ", ".join(f"{name} {weight:.0%}" for name, weight in zip(self.names, self.weights, strict=True))


@register("posterior/stacked")
class Stacked(AbstractWrapped):
    """The posterior of a network, whose predictions are mixed with those of other models.

    Args:
        posterior: of the network; draws, chains and evidence are its own.
        stack: the others.
    """

    posterior: AbstractPosterior
    stack: Stack

    def functions(self, num: int | None = None, *, key: PRNGKeyArray) -> JoinedFunctions:
        """The mixture; `num` of the network."""
        return self.stack.functions(self.posterior.functions(num, key=key), key=key)

    @property
    def is_point(self) -> bool:
        return False

    def describe(self) -> str:
        return f"{self.posterior.describe()}, mixed with others ({self.stack.describe()})"


class NormalFunctions(AbstractFunctions):
    """Functions whose normal noise is written in one way for all, so that several kinds can be mixed.

    Args:
        inner: gives normal distributions, with or without doubt about their means; without its draws.
        draws: those of it.
        log_weights: of the draws.
    """

    inner: AbstractFunctions
    draws: PyTree
    log_weights: np.ndarray | None

    @classmethod
    def of(cls, functions: AbstractFunctions) -> "NormalFunctions":
        """The same functions."""
        return cls(without_draws(functions), functions.draws, functions.log_weights)

    def distribution(self, draw: PyTree, x: Array) -> NormalOutputs:
        found = self.inner.distribution(draw, x)
        if hasattr(found, "epistemic_variance"):
            return found
        sure = jnp.zeros((*found.loc.shape, found.loc.shape[-1]), found.loc.dtype)
        return NormalOutputs(found.loc, sure, jnp.broadcast_to(found.scale, found.loc.shape))


def stack(network: Candidate, others: Sequence[Candidate], data: Arrays, seed: int) -> Stack | None:
    """Weigh candidates on held-out rows, then fit all but the network to all rows.

    None if the network is as good alone. It keeps a small weight in any case: it is the posterior that people look at.

    Args:
        network: the first candidate; best a smaller one than the fit that follows.
        others: the others.
        data: all rows.
        seed: of folds and fits.
    """
    candidates = (network, *others)
    log_probs = held_out_log_probs(candidates, data, seed)
    weights = stacking_weights(log_probs)
    kept = [c for c in range(1, len(candidates)) if weights[c] >= _LEAST_WEIGHT]
    if not kept:
        return None
    chosen = np.array([0, *kept])
    shares = np.maximum(weights[chosen], _LEAST_WEIGHT)
    shares /= shares.sum()
    mixed = np.logaddexp.reduce(log_probs[:, chosen] + np.log(shares), axis=1)
    held_out = np.append(log_probs[:, chosen].mean(axis=0), mixed.mean())
    posteriors = tuple(candidates[c].fit(data, seed) for c in kept)
    is_number = not np.issubdtype(data.y.dtype, np.integer)
    return Stack(tuple(candidates[c].name for c in chosen), posteriors, shares, is_number, held_out)


def held_out_log_probs(candidates: Sequence[Candidate], data: Arrays, seed: int) -> Float[np.ndarray, "rows c"]:
    """Log density of rows under each candidate fitted without them; a fifth of the rows at a time, until enough."""
    num = data.num_examples
    size = max(1, num // _NUM_FOLDS)  # of all folds, so that one compiled program serves them
    order = np.random.default_rng(seed).permutation(num)
    num_folds = min(_NUM_FOLDS, num // size, -(-ROWS_JUDGED // size))
    found = []
    for fold in order[: num_folds * size].reshape(num_folds, size):
        rest = np.setdiff1d(np.arange(num), fold)
        x, y = data.x[fold], in_user_units(data, fold)
        posteriors = [each.fit(data.take(rest), seed) for each in candidates]
        found.append(np.stack([posterior.predict(x).log_prob(y) for posterior in posteriors], axis=1))
    return np.concatenate(found)


def in_user_units(data: Arrays, rows: np.ndarray) -> np.ndarray:
    """Targets before they were scaled."""
    scaling, y = data.scaling, np.asarray(data.y[rows])
    return y if scaling is None or scaling.y_shift is None else y * scaling.y_factor + scaling.y_shift


def stacking_weights(
    log_probs: Float[np.ndarray, "rows c"], *, num_even: float = 1.0, num_steps: int = 2000
) -> Float[np.ndarray, " c"]:
    """The best weights of a mixture of given densities, by expectation maximisation, which never lowers their score.

    Args:
        log_probs: of rows under each candidate.
        num_even: rows that each candidate is given beforehand.
        num_steps: of the algorithm.

    >>> log_probs = np.log(np.array([[0.9, 0.1], [0.8, 0.3], [0.7, 0.2]]))
    >>> stacking_weights(log_probs, num_even=0.0).round(3).tolist(), stacking_weights(log_probs).round(2).tolist()
    ([1.0, 0.0], [0.75, 0.25])
    """
    probs = np.exp(log_probs - log_probs.max(axis=1, keepdims=True))
    weights = np.full(probs.shape[1], 1 / probs.shape[1])
    for _ in range(num_steps):
        shares = probs * weights
        counts = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0) + num_even
        weights = counts / counts.sum()
    return weights


# ---- candidates


def linear_candidate(likelihood: AbstractLikelihood | None, num_outputs: int) -> Candidate:
    """Straight lines: Bayesian ridge regression for numbers with normal noise, else a linear network."""
    if likelihood is None:
        return Candidate("linear", _ridge)

    def fit_network(data: Arrays, seed: int) -> AbstractPosterior:
        network = MLP(data.x.shape[1], (), num_outputs, key=seed)
        return fit(Model(network, likelihood), data, Laplace(), key=seed, progress=False)

    return Candidate("linear", fit_network)


def process_candidate() -> Candidate:
    """A Gaussian process at its most probable kernel."""
    return Candidate("Gaussian process", lambda data, seed: fit_gaussian_process(data))


def _ridge(data: Arrays, seed: int) -> Draws:
    """Draws of the line, at the scales of greatest evidence."""
    linear_model = require("sklearn.linear_model")
    generator = np.random.default_rng(seed)
    x, y = np.asarray(data.x, np.float64), np.asarray(data.y, np.float64).reshape(data.num_examples, -1)
    slopes, offsets, scales = [], [], []
    for column in y.T:
        line = linear_model.BayesianRidge().fit(x, column)
        scale = 1 / np.sqrt(line.alpha_)
        slope = generator.multivariate_normal(line.coef_, line.sigma_, _NUM_LINES, method="eigh")
        centre = line.intercept_ - (slope - line.coef_) @ x.mean(axis=0)
        slopes.append(slope)
        offsets.append(centre + scale / np.sqrt(len(x)) * generator.normal(size=_NUM_LINES))
        scales.append(np.full(_NUM_LINES, scale))
    slope, offset, scale = (np.stack(each, axis=1) for each in (slopes, offsets, scales))
    return _lines(data, slope, offset, scale)


def _lines(
    data: Arrays,
    slopes: Float[np.ndarray, "draws k p"],
    offsets: Float[np.ndarray, "draws k"],
    scales: Float[np.ndarray, "draws k"],
) -> Draws:
    """Draws of a linear network with normal noise."""
    model = Model(MLP(slopes.shape[2], (), slopes.shape[1], key=0), Gaussian())
    params = model.init(FullBatch(data))
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (1, len(slopes), *leaf.shape)), params)
    found = [jnp.asarray(each[None], jnp.float32) for each in (slopes, offsets, np.log(scales))]
    places = lambda p: (p.network.layers[0].weight, p.network.layers[0].bias, p.likelihood["log_scale"])  # noqa: E731
    stacked = eqx.tree_at(places, stacked, found)
    return Draws(model, stacked, data.spec)

"""Do the chains of a posterior agree? In weights, in predictions, and by what their sampler recorded."""

import math
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Num, PyTree

from marginax.evaluate.chain_diagnostics import ChainDiagnostics, stability_line, unstable_text
from marginax.evaluate.collapse import collapse_warnings
from marginax.evaluate.convergence import fraction_of_energy, measure_convergence
from marginax.evaluate.remedies import PYTHON, Remedies
from marginax.evaluate.stability import MOST_NATS, measure_stability
from marginax.model import Outcome
from marginax.posterior import AbstractPosterior, Draws
from marginax.predict import AbstractFunctions, DrawLoop
from marginax.predict.loop import components

_LEAST_DRAWS = 10
_LEAST_MEMBERS = 4  # halves of one member each would say little
_MOST_WEIGHTS = 200
_MOST_SCALES = 32
_MOST_OUTPUTS = 512
_LEAST_ACCEPTANCE = 0.01
_APART = 3.0  # standard deviations between the means of chains that are in separate modes


def diagnose_chains(posterior: AbstractPosterior, x: Any = None) -> ChainDiagnostics:
    """R-hat and effective sample sizes in weights and in predictions, and how the sampler fared.

    Args:
        posterior: one that is made of draws, at least 10 per chain.
        x: inputs where predictions are compared, in the units of the data; by default 32 of the training inputs.

    >>> import marginax as mx
    >>> rng = np.random.default_rng(0)
    >>> model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=1.0))
    >>> params = jax.tree.map(lambda leaf: rng.normal(size=(4, 500, *leaf.shape)), model.initial(1))
    >>> found = diagnose_chains(mx.posterior.Draws(model, params))
    >>> found.weights.worst_r_hat < 1.02, found.warnings
    (True, ())
    """
    if not isinstance(posterior, Draws):
        raise TypeError(f"posterior must be made of draws to have chains, got {posterior.describe()}")
    if posterior.num_draws < _LEAST_DRAWS:
        raise ValueError(f"posterior must have at least {_LEAST_DRAWS} draws per chain, got {posterior.num_draws}")
    weights, scales = _some_weights(posterior), _scales(posterior)
    outputs = stability = None
    if x is not None or posterior.record.probes is not None:
        outputs = chain_predictions(posterior, x)
        outputs = outputs.reshape(*outputs.shape[:2], -1)
        outputs = outputs[:, :, _spread(outputs.shape[2], _MOST_OUTPUTS)]
        stability = _stability(posterior, x)
    stats = {name: np.asarray(value) for name, value in posterior.sample_info.items()}
    acceptance = _chain_means(stats.get("acceptance"))
    frozen = _frozen(weights, acceptance)
    density = stats.get("log_density")
    seen = [outputs] if outputs is not None else [weights]
    if density is not None:
        seen.append(density[:, :, None])
    return ChainDiagnostics(
        num_chains=posterior.num_chains,
        num_draws=posterior.num_draws,
        weights=measure_convergence(weights),
        scales=None if scales is None else measure_convergence(scales),
        predictions=None if outputs is None else measure_convergence(outputs),
        stability=stability,
        trained_apart=posterior.record.num_steps.get("train", 0) > 0,
        frozen=tuple(np.flatnonzero(frozen).tolist()),
        modes=find_modes(seen, ~frozen),
        log_density=_chain_means(density),
        acceptance=acceptance,
        num_leapfrog=_chain_means(stats.get("num_leapfrog")),
        num_diverging=stats["diverging"].astype(bool).sum(axis=1) if "diverging" in stats else None,
        num_steps=next((value.shape[1] for value in stats.values()), 0),
        energy=_chain_means(stats.get("energy")),
        e_bfmi=fraction_of_energy(stats["energy"]) if "energy" in stats else None,
        energy_error=stats["energy_error"].astype(float).std(axis=1) if "energy_error" in stats else None,
        energy_excess=_chain_means(stats.get("energy_excess")),
    )


def chain_lines(posterior: AbstractPosterior, words: Remedies | None = None) -> tuple[list[str], list[str]]:
    """Lines and warnings about the chains of a posterior, empty where there is nothing to compare.

    Args:
        posterior: any.
        words: how settings are called where the warnings are read; by default as in Python.
    """
    words = PYTHON if words is None else words
    if posterior.is_point:
        text = "this is a point estimate: predictions have no epistemic part; use "
        methods = words.methods("DeepEnsemble", "AnchoredEnsemble")
        return [], [f"{text}{methods}, or several chains ({words.chains(10)}), for one"]
    if not isinstance(posterior, Draws):
        return [], collapse_warnings(posterior, _drawn_outputs, words)
    if posterior.num_draws < _LEAST_DRAWS:
        lines, warned = _ensemble_lines(posterior, words)
        return lines, [*warned, *_few_draws(posterior, words)]
    found = diagnose_chains(posterior)
    return [*found.lines, *(f"note       {text}" for text in found.notes)], list(found.warn(words))


def _few_draws(posterior: Draws, words: Remedies) -> list[str]:
    """Chains that sample, and kept next to nothing."""
    if "sample" not in posterior.record.num_steps:
        return []
    num = posterior.num_draws
    return [
        f"each chain kept {num} draw{'s' * (num > 1)}, fewer than the {_LEAST_DRAWS} that R-hat and effective sizes "
        f"need: nothing is known of how the chains fared; use {words.setting('num_samples', 500)}"
    ]


def _ensemble_lines(posterior: Draws, words: Remedies) -> tuple[list[str], list[str]]:
    """Members have too few draws for R-hat, and are meant to differ; their mixture may be stable or not."""
    nats = ensemble_stability(posterior)
    if nats is None:
        return [], []
    return [stability_line(nats)], [] if nats <= MOST_NATS else [unstable_text(nats, posterior.num_chains, words)]


def ensemble_stability(posterior: Draws) -> float | None:
    """`measure_stability` of members with few draws each, at inputs of the record; None where it cannot be told."""
    if posterior.num_chains < _LEAST_MEMBERS or posterior.record.probes is None:
        return None
    return _stability(posterior, None)


def _stability(posterior: Draws, x: Any) -> float | None:
    """At inputs in the units of the data, or at those of the record."""
    if x is None:
        return measure_stability(posterior, posterior.record.probes, None)
    spec = posterior.data_spec()
    return measure_stability(posterior, spec.check_x(x), spec)


def diagnose(values: np.ndarray) -> tuple[float, float]:
    """Largest R-hat and smallest bulk ESS over quantities; `values` has axes (chain, draw, quantity).

    >>> r_hat, bulk = diagnose(np.random.default_rng(0).normal(size=(4, 500, 3)))
    >>> r_hat < 1.02, bulk > 1000
    (True, True)
    """
    found = measure_convergence(np.asarray(values))
    return found.worst_r_hat, found.smallest_bulk_ess


def chain_predictions(posterior: AbstractPosterior, x: Any = None) -> Float[np.ndarray, "chain draw n k"]:
    """The network's outputs at inputs, by chain and draw: what to plot, and where to compare chains.

    Outputs are as the model sees them; for classes they are log probabilities, since a shift of all logits means
    nothing.

    Args:
        posterior: one that is made of draws.
        x: inputs in the units of the data; by default 32 of the training inputs.
    """
    if not isinstance(posterior, Draws):
        raise TypeError(f"posterior must be made of draws to have chains, got {posterior.describe()}")
    spec = None
    if x is not None:
        spec = posterior.data_spec()
        x = spec.check_x(x)
    elif posterior.record.probes is not None:
        x = posterior.record.probes
    else:
        raise ValueError("x must be given: this posterior's record holds no inputs")
    functions = _Outputs(posterior.model, jax.tree.map(np.asarray, posterior.flat()))
    (outputs,) = DrawLoop(functions, x, spec=spec).collect(components)
    return outputs.reshape(posterior.num_chains, posterior.num_draws, *outputs.shape[1:])


def _drawn_outputs(posterior: AbstractPosterior, num: int) -> Float[np.ndarray, "draw n k"]:
    """Of networks drawn from a posterior, at the inputs of its record."""
    draws = jax.tree.map(np.asarray, posterior.sample_params(num, key=posterior.prediction_key()))
    (outputs,) = DrawLoop(_Outputs(posterior.model, draws), posterior.record.probes, spec=None).collect(components)
    return outputs


class _Outputs(AbstractFunctions):
    """Networks, as functions that give their outputs."""

    model: Any
    draws: PyTree
    log_weights: np.ndarray | None = None

    def distribution(self, draw: PyTree, x: Array) -> Float[Array, "n k"]:
        raw = self.model.output(draw, x)
        is_class = self.model.likelihood.outcome(raw.shape[-1]) is Outcome.CLASS and raw.shape[-1] > 1
        return jax.nn.log_softmax(raw) if is_class else raw


def find_modes(
    parts: list[Num[np.ndarray, "chain _ _"]], moving: Bool[np.ndarray, " chain"]
) -> tuple[tuple[int, ...], ...]:
    """Groups of chains that stay apart: settled (their halves agree), and far from each other in some quantity.

    A chain that still drifts may be on its way from one place to the other, so it is not called apart.

    Args:
        parts: quantities with axes (chain, draw, quantity).
        moving: which chains to look at.
    """
    means, variances, settled = [], [], moving.copy()
    for values in parts:
        values = np.asarray(values, np.float64)
        half = values.shape[1] // 2
        variance = values.var(axis=1)
        drift = (values[:, :half].mean(axis=1) - values[:, half:].mean(axis=1)) ** 2
        settled &= np.mean(drift > 0.5 * variance, axis=1) < 0.5  # a random walk has 2 on average, a good chain 4/ESS
        means.append(values.mean(axis=1))
        variances.append(variance)
    mean, variance = np.concatenate(means, axis=1), np.concatenate(variances, axis=1)
    group = np.arange(len(moving))
    eligible = np.flatnonzero(settled)
    for i in eligible:
        for j in eligible[eligible < i]:
            squares = (mean[i] - mean[j]) ** 2
            if not (squares > _APART**2 * (variance[i] + variance[j]) / 2).any():
                group[group == group[i]] = group[j]
    found = tuple(tuple(eligible[group[eligible] == name].tolist()) for name in dict.fromkeys(group[eligible].tolist()))
    return found if len(found) > 1 else (tuple(range(len(moving))),)


def _frozen(weights: np.ndarray, acceptance: np.ndarray | None) -> np.ndarray:
    """Chains that stay where they are: nothing accepted, or next to no variance beside the other chains."""
    variance = np.asarray(weights, np.float64).var(axis=1)
    typical = np.median(variance, axis=0)
    moving = variance.max(axis=0) > 0  # weights that have been pruned say nothing
    frozen = (variance <= 1e-6 * typical)[:, moving].mean(axis=1) > 0.5 if moving.any() else variance.sum(axis=1) == 0
    return frozen if acceptance is None else frozen | (acceptance < _LEAST_ACCEPTANCE)


def _chain_means(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else np.asarray(values, np.float64).mean(axis=1)


def _some_weights(posterior) -> np.ndarray:
    """A few hundred scalar weights, evenly spaced over all of them."""
    leaves = [
        np.asarray(leaf).reshape(*leaf.shape[:2], -1)
        for leaf in jax.tree.leaves(posterior.model.weights(posterior.params))
    ]
    wanted = _spread(sum(leaf.shape[2] for leaf in leaves), _MOST_WEIGHTS)
    picked, start = [], 0
    for leaf in leaves:
        inside = wanted[(wanted >= start) & (wanted < start + leaf.shape[2])] - start
        picked.append(leaf[:, :, inside])
        start += leaf.shape[2]
    return np.concatenate(picked, axis=2)


def _scales(posterior) -> np.ndarray | None:
    """The likelihood's and the prior's unknowns; a leaf with many is as symmetric as the weights and left out."""
    leaves = jax.tree.leaves(posterior.model.scales(posterior.params))
    few = [
        np.asarray(leaf).reshape(*leaf.shape[:2], -1) for leaf in leaves if math.prod(leaf.shape[2:]) <= _MOST_SCALES
    ]
    return np.concatenate(few, axis=2) if few else None


def _spread(total: int, most: int) -> np.ndarray:
    """Indices evenly spaced over a range."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).astype(int))

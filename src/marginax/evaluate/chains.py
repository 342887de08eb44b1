"""Do the chains of a posterior agree? In weights, in predictions, and by what their sampler recorded."""

import math
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Num

from marginax.evaluate.chain_diagnostics import ChainDiagnostics
from marginax.evaluate.convergence import fraction_of_energy, measure_convergence
from marginax.model.distributions import Categorical

if TYPE_CHECKING:
    from marginax.posterior.posterior import AbstractPosterior

_LEAST_DRAWS = 10
_MOST_WEIGHTS = 200
_MOST_SCALES = 32
_MOST_OUTPUTS = 512
_CHUNK_BYTES = 64 * 2**20  # of parameters that are brought to the device at once
_LEAST_ACCEPTANCE = 0.01
_APART = 3.0  # standard deviations between the means of chains that are in separate modes


def diagnose_chains(posterior: "AbstractPosterior", x: Any = None) -> ChainDiagnostics:
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
    from marginax.posterior.draws import Draws

    if not isinstance(posterior, Draws):
        raise TypeError(f"posterior must be made of draws to have chains, got {posterior.describe()}")
    if posterior.num_draws < _LEAST_DRAWS:
        raise ValueError(f"posterior must have at least {_LEAST_DRAWS} draws per chain, got {posterior.num_draws}")
    weights, scales = _some_weights(posterior), _scales(posterior)
    outputs = None
    if x is not None or posterior.record.probes is not None:
        outputs = chain_predictions(posterior, x)
        outputs = outputs.reshape(*outputs.shape[:2], -1)
        outputs = outputs[:, :, _spread(outputs.shape[2], _MOST_OUTPUTS)]
    stats = {name: np.asarray(value) for name, value in sample_info(posterior).items()}
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
    )


def chain_lines(posterior: "AbstractPosterior") -> tuple[list[str], list[str]]:
    """Lines and warnings about the chains of a posterior, empty where there is nothing to compare."""
    from marginax.posterior.draws import Draws

    if not isinstance(posterior, Draws) or posterior.num_draws < _LEAST_DRAWS:
        return [], []
    found = diagnose_chains(posterior)
    return [*found.lines, *(f"note       {text}" for text in found.notes)], list(found.warnings)


def diagnose(values: np.ndarray) -> tuple[float, float]:
    """Largest R-hat and smallest bulk ESS over quantities; `values` has axes (chain, draw, quantity).

    >>> r_hat, bulk = diagnose(np.random.default_rng(0).normal(size=(4, 500, 3)))
    >>> r_hat < 1.02, bulk > 1000
    (True, True)
    """
    found = measure_convergence(np.asarray(values))
    return found.worst_r_hat, found.smallest_bulk_ess


def sample_info(posterior: "AbstractPosterior") -> dict[str, np.ndarray]:
    """What the sampler recorded while it drew: arrays with axes (chain, step), empty where there is none."""
    chains = getattr(posterior, "num_chains", None)
    info = posterior.record.info.get("sample", {})
    return {name: value for name, value in info.items() if value.ndim == 2 and value.shape[0] == chains and value.size}


def chain_predictions(posterior: "AbstractPosterior", x: Any = None) -> Float[np.ndarray, "chain draw n k"]:
    """The network's outputs at inputs, by chain and draw: what to plot, and where to compare chains.

    Outputs are as the model sees them; for classes they are log probabilities, since a shift of all logits means
    nothing.

    Args:
        posterior: one that is made of draws.
        x: inputs in the units of the data; by default 32 of the training inputs.
    """
    from marginax.posterior.draws import Draws
    from marginax.posterior.posterior import merge_axes

    if not isinstance(posterior, Draws):
        raise TypeError(f"posterior must be made of draws to have chains, got {posterior.describe()}")
    if x is not None:
        if posterior.spec is None:
            raise ValueError("this posterior was not made by mx.fit and has no data spec: pass spec= when building it")
        x = posterior.spec.check_x(x)
        x = x if posterior.spec.scaling is None else posterior.spec.scaling.transform_x(x)
    elif posterior.record.probes is not None:
        x = posterior.record.probes
    else:
        raise ValueError("x must be given: this posterior's record holds no inputs")
    flat = jax.tree.map(lambda leaf: merge_axes(np.asarray(leaf)), posterior.params)  # views, also of mapped files
    total = posterior.num_chains * posterior.num_draws
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(flat)) / total
    chunk = int(np.clip(_CHUNK_BYTES // max(size, 1), 1, total))
    most = int(np.clip(4096 // len(x), 1, min(64, chunk)))
    together = max(num for num in range(1, most + 1) if chunk % num == 0)  # no rest, which would be compiled, too
    together = together if 4 * together > most else most
    parts = []
    for start in range(0, total, chunk):  # the last chunk reaches back, so that all have one shape
        begin = min(start, total - chunk)
        part = jax.tree.map(lambda leaf, i=begin: jnp.asarray(leaf[i : i + chunk]), flat)
        parts.append(np.asarray(_outputs(posterior.model, part, jnp.asarray(x), together))[start - begin :])
    outputs = np.concatenate(parts)
    return outputs.reshape(posterior.num_chains, posterior.num_draws, *outputs.shape[1:])


@eqx.filter_jit
def _outputs(model, params, x, together):
    def output(p):
        raw = model.output(p, x)
        is_class = isinstance(model.likelihood.distribution(raw, p.likelihood), Categorical)
        return jax.nn.log_softmax(raw) if is_class else raw

    return jax.lax.map(output, params, batch_size=together)


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

"""Do the chains agree? Rank-normalised R-hat and effective sample sizes, of weights and of predictions."""

import warnings
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from marginax.posterior.posterior import AbstractPosterior

_LEAST_DRAWS = 10
_MOST_WEIGHTS = 200


def chain_lines(posterior: "AbstractPosterior") -> tuple[list[str], list[str]]:
    """Lines and warnings about the chains of a posterior, empty where there is nothing to compare."""
    from marginax.posterior.draws import Draws

    if not isinstance(posterior, Draws) or posterior.num_draws < _LEAST_DRAWS:
        return [], []
    lines, alarms = [], []
    for name, values in (("weights", _some_weights(posterior)), ("predictions", _predictions(posterior))):
        if values is None:
            continue
        r_hat, bulk = diagnose(values)
        lines.append(f"{name:<11}worst R-hat {r_hat:.3f}, smallest bulk ESS {bulk:.0f}")
        if name == "predictions" and (r_hat > 1.05 or not np.isfinite(r_hat)):
            alarms.append(f"chains disagree in their predictions (R-hat {r_hat:.2f}): run longer or start elsewhere")
        if name == "predictions" and bulk < 100:
            alarms.append(f"few effective draws of predictions ({bulk:.0f}): run longer")
    return lines, alarms


def diagnose(values: np.ndarray) -> tuple[float, float]:
    """Largest R-hat and smallest bulk ESS over quantities; `values` has axes (chain, draw, quantity).

    >>> r_hat, bulk = diagnose(np.random.default_rng(0).normal(size=(4, 500, 3)))
    >>> r_hat < 1.02, bulk > 1000
    (True, True)
    """
    import arviz

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = arviz.convert_to_dataset(np.asarray(values, np.float64))
        results: Any = arviz.rhat(data), arviz.ess(data, method="bulk")
        r_hat, bulk = (np.asarray(result.to_array()) for result in results)
    return float(np.max(r_hat)), float(np.min(bulk))


def _some_weights(posterior) -> np.ndarray:
    """A few hundred scalar weights, evenly spaced over all of them."""
    leaves = [np.asarray(leaf).reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(posterior.params)]
    total = sum(leaf.shape[2] for leaf in leaves)
    wanted = np.unique(np.linspace(0, total - 1, min(total, _MOST_WEIGHTS)).astype(int))
    picked, start = [], 0
    for leaf in leaves:
        inside = wanted[(wanted >= start) & (wanted < start + leaf.shape[2])] - start
        picked.append(leaf[:, :, inside])
        start += leaf.shape[2]
    return np.concatenate(picked, axis=2)


def _predictions(posterior) -> np.ndarray | None:
    if posterior.record.probes is None:
        return None
    outputs = _outputs(posterior.model, posterior.flat(), jnp.asarray(posterior.record.probes))
    return np.asarray(outputs).reshape(posterior.num_chains, posterior.num_draws, -1)


@eqx.filter_jit
def _outputs(model, params, x):
    return jax.lax.map(lambda p: model.output(p, x), jax.tree.map(jnp.asarray, params), batch_size=64)

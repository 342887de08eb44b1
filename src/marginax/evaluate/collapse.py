"""Has a variational posterior learned from the data, or fallen back to its prior?"""

from typing import Any

import numpy as np

from marginax.evaluate.remedies import Remedies
from marginax.posterior import AbstractPosterior, Draws, Stochastic

_NUM_DRAWS = 20


def measure_collapse(outputs: np.ndarray) -> tuple[float, float]:
    """How far the mean function varies over inputs, and how uncertain it is; of the output that varies most beside.

    Args:
        outputs: of draws, axes (draw, input, output).

    >>> rng = np.random.default_rng(0)
    >>> wave, noise = np.linspace(-1, 1, 30)[None, :, None], rng.normal(size=(20, 1, 1))
    >>> [bool(np.less(*measure_collapse(wave + scale * noise))) for scale in (0.1, 3.0)]
    [False, True]
    """
    varies = outputs.mean(axis=0).std(axis=0)
    uncertain = np.sqrt(outputs.var(axis=0, ddof=1).mean(axis=0))
    best = int(np.argmax(varies / np.maximum(uncertain, 1e-30)))
    return float(varies[best]), float(uncertain[best])


def collapse_warnings(posterior: AbstractPosterior, outputs_of: Any, words: Remedies) -> list[str]:
    """A sentence where a bound was trained, and the function that it found is less than what it is unsure of.

    Args:
        posterior: any.
        outputs_of: (posterior, number of draws) -> outputs at the inputs of the record, axes (draw, input, output).
        words: how settings are called where the warning is read.
    """
    info = posterior.record.info.get("train", {})
    bounded = "elbo" in info or ("log_likelihood" in info and "log_density" not in info)
    is_normal = not isinstance(posterior, Draws | Stochastic)
    if not bounded or not is_normal or posterior.record.probes is None or len(posterior.record.probes) < 2:
        return []
    varies, uncertain = measure_collapse(np.asarray(outputs_of(posterior, _NUM_DRAWS), np.float64))
    if not varies < uncertain:
        return []
    return [
        f"the mean function varies less over the training inputs (by {varies:.2g}) than it is uncertain (by "
        f"{uncertain:.2g}): the bound is best by ignoring the data, unless there is nothing to learn; use fewer "
        f"weights, {words.setting('temperature', 0.1)}, or {words.methods('DeepEnsemble', 'Laplace')}"
    ]

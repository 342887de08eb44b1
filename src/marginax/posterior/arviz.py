"""Export to ArviZ."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from marginax._extras import require
from marginax.model import Program
from marginax.posterior.sites import log_likelihoods, site_values

if TYPE_CHECKING:
    from marginax.posterior.draws import Draws
    from marginax.posterior.posterior import AbstractPosterior

_ARVIZ_NAMES = {
    "log_density": "lp",
    "acceptance": "acceptance_rate",
    "num_leapfrog": "n_steps",
}  # diverging, energy, energy_error and step_size are called so there, too


def to_arviz(posterior: "AbstractPosterior", data: Any = None, *, num_samples: int = 1000) -> Any:
    """arviz.InferenceData with the groups posterior and, where a method sampled, sample_stats.

    Of a program the values are those of its sites; with data, there is the group log_likelihood, too.

    With `thin` above 1 the statistics are those of the kept steps. A continuous posterior is represented by
    `num_samples` draws in one chain.
    """
    arviz = require("arviz")

    from marginax.posterior.draws import Draws

    stats = sample_stats(posterior) if isinstance(posterior, Draws) else None
    if isinstance(posterior.model, Program):
        log_likelihood = None if data is None else log_likelihoods(posterior, data)
        values = site_values(posterior)
        return arviz.from_dict(posterior=values, sample_stats=stats or None, log_likelihood=log_likelihood)
    if data is not None:
        raise TypeError("data must be None: only the posterior of an mx.Program has log likelihoods in its export")
    if isinstance(posterior, Draws):
        params = posterior.params
    else:
        key = jax.random.key(0) if posterior.key is None else posterior.key
        params = jax.tree.map(lambda a: a[None], posterior.sample_params(num_samples, key=key))
    values = {name_of(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    return arviz.from_dict(posterior=values, sample_stats=stats or None)


def sample_stats(posterior: "Draws") -> dict[str, np.ndarray]:
    """What the sampler recorded at the steps whose draws were kept, under ArviZ's names, axes (chain, draw).

    Draws are taken to be evenly spaced; where the counts say that they are not, or step sizes that rise again say that
    there were cycles (of which only the ends are kept), nothing is exported.
    """
    info = posterior.sample_info
    steps = next((value.shape[1] for value in info.values()), 0)
    sizes = info.get("step_size", np.ones((1, 1)))
    if steps != posterior.num_draws and (sizes[:, 1:] > 1.5 * sizes[:, :-1]).any():
        return {}
    thin = _thinning(steps, posterior.num_draws, finished=posterior.record.finished)
    if thin is None:
        return {}
    return {_ARVIZ_NAMES.get(name, name): value[:, thin - 1 : steps : thin] for name, value in info.items()}


def _thinning(num_steps: int, num_draws: int, *, finished: bool) -> int | None:
    """Steps per draw: the ratio, or after an interruption the only number that fits; None where there is none.

    >>> [_thinning(steps, draws, finished=True) for steps, draws in ((500, 500), (1000, 100), (10, 20), (11, 2))]
    [1, 10, None, None]
    >>> [_thinning(steps, draws, finished=False) for steps, draws in ((500, 500), (23, 4), (11, 2))]
    [1, 5, None]
    """
    if num_draws < 1 or num_steps < num_draws:
        return None
    if finished:
        return None if num_steps % num_draws else num_steps // num_draws
    fitting = [thin for thin in range(1, num_steps // num_draws + 1) if num_steps // thin == num_draws]
    return fitting[0] if len(fitting) == 1 else None


def name_of(path: tuple[Any, ...]) -> str:
    """Name of a parameter: "layers/0/weight" for weights, "likelihood/log_scale" for other unknowns."""
    return jax.tree_util.keystr(path, simple=True, separator="/").removeprefix("network/")

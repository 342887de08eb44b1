"""Export to ArviZ."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from marginax.posterior.posterior import AbstractPosterior


def to_arviz(posterior: "AbstractPosterior", *, num_samples: int = 1000) -> Any:
    """arviz.InferenceData with the groups posterior and, where a method sampled, sample_stats.

    A continuous posterior is represented by `num_samples` draws in one chain.
    """
    import arviz

    from marginax.posterior.draws import Draws

    if isinstance(posterior, Draws):
        params = posterior.params
    else:
        key = jax.random.key(0) if posterior.key is None else posterior.key
        params = jax.tree.map(lambda a: a[None], posterior.sample_params(num_samples, key=key))
    values = {name_of(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    chains, draws = next(iter(values.values())).shape[:2]
    stats = posterior.record.info.get("sample", {})
    fitting = {name: value for name, value in stats.items() if value.shape[:2] == (chains, draws)}
    return arviz.from_dict(posterior=values, sample_stats=fitting or None)


def name_of(path: tuple[Any, ...]) -> str:
    """Name of a parameter: "layers/0/weight" for weights, "likelihood/log_scale" for other unknowns."""
    return jax.tree_util.keystr(path, simple=True, separator="/").removeprefix("network/")

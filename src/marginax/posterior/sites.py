"""Posteriors of probabilistic programs: values of their sites, and draws of what they would observe."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from marginax._extras import require
from marginax.model.program import Program

if TYPE_CHECKING:
    from marginax.posterior.posterior import AbstractPosterior

NUM_DRAWS = 1000  # of a posterior that is not made of draws
_SITES = 1  # stream of random numbers


def program_of(posterior: "AbstractPosterior") -> Program:
    """The program that a posterior is of, or an error."""
    if not isinstance(posterior.model, Program):
        raise TypeError(f"posterior must be that of an mx.Program to have sites, got {type(posterior.model).__name__}")
    return posterior.model


def stacked_params(
    posterior: "AbstractPosterior", num: int | None, key: PRNGKeyArray | None = None
) -> tuple[Any, tuple[int, int]]:
    """Unknowns along one axis, and how many chains and draws they are: all that there are, or `num` drawn ones.

    Drawn by `key`, or by the posterior's own.
    """
    params = getattr(posterior, "params", None)
    if num is None and params is not None and hasattr(posterior, "flat"):
        chains, draws = jax.tree.leaves(params)[0].shape[:2]
        return posterior.flat(), (chains, draws)  # pyright: ignore[reportAttributeAccessIssue]
    num = NUM_DRAWS if num is None else num
    return posterior.sample_params(num, key=posterior.prediction_key(key)), (1, num)


def site_values(posterior: "AbstractPosterior") -> dict[str, np.ndarray]:
    """Unknowns as the program has them, and deterministic sites that need no data: axes (chain, draw, ...)."""
    program = program_of(posterior)
    sampling = require("marginax.model.program.sampling")
    params, (chains, draws) = stacked_params(posterior, None)
    found = sampling.in_chunks(lambda p, *_: program.sites(p), params, chains * draws, jax.random.key(0), None)
    return {name: value.reshape(chains, draws, *value.shape[1:]) for name, value in found.items()}


def draw_predictive(
    posterior: "AbstractPosterior",
    arguments: Any,
    data: Any,
    num_samples: int | None,
    key: PRNGKeyArray,
    max_bytes: int,
) -> dict[str, np.ndarray]:
    """Draws of observed and deterministic sites for new arguments: axes (draw, ...)."""
    program = program_of(posterior)
    sampling = require("marginax.model.program.sampling")
    params, (chains, draws) = stacked_params(posterior, num_samples, key)
    key = jax.random.fold_in(key, _SITES)  # the same key has drawn the unknowns
    return sampling.draw_sites(program, params, arguments, chains * draws, key=key, data=data, max_bytes=max_bytes)


def log_likelihoods(posterior: "AbstractPosterior", data: Any) -> dict[str, np.ndarray]:
    """Log likelihood of the data under each draw, by observed site: axes (chain, draw, ...).

    Where sites are summed out, there is one number for each example, of all its observed sites together.
    """
    program = program_of(posterior)
    sampling = require("marginax.model.program.sampling")
    params, (chains, draws) = stacked_params(posterior, None)
    arguments = jax.tree.map(jax.numpy.asarray, program.as_arguments(data))
    found = sampling.in_chunks(
        lambda p, _, rows: program.pointwise(p, rows), params, chains * draws, jax.random.key(0), arguments
    )
    return {name: value.reshape(chains, draws, *value.shape[1:]) for name, value in found.items()}

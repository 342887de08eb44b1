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
    found = sampling.in_chunks(lambda p, *_: program.sites(p), params, chains * draws, None, None)
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
    if program.known.local and data is not None:
        rows = {name: jax.numpy.asarray(array) for name, array in program.as_arguments(data).items()}
        _check_same_rows(program, arguments, rows)
        chains, draws = 1, NUM_DRAWS if num_samples is None else num_samples
        params, data = posterior.sample_given(rows, draws, key=posterior.prediction_key(key)), None  # pyright: ignore[reportAttributeAccessIssue]
    else:
        params, (chains, draws) = stacked_params(posterior, num_samples, key)
    key = jax.random.fold_in(key, _SITES)  # the same key has drawn the unknowns
    return sampling.draw_sites(program, params, arguments, chains * draws, key=key, data=data, max_bytes=max_bytes)


def _check_same_rows(program: Program, arguments: Any, rows: dict[str, jax.Array]) -> None:
    given = program.arguments_of(arguments if isinstance(arguments, dict) else (arguments,))
    lengths = {len(value) for value in (*given.values(), *rows.values()) if value is not None}
    if len(lengths) > 1:
        raise ValueError(f"data must have the same rows as arguments, got {sorted(lengths)} of them")


def log_likelihoods(posterior: "AbstractPosterior", data: Any) -> dict[str, np.ndarray]:
    """Log likelihood of the data under each draw, by observed site: axes (chain, draw, ...).

    Where sites are summed out, there is one number for each example, of all its observed sites together.
    """
    program = program_of(posterior)
    if program.known.local:
        raise ValueError(
            f"data must be left out: site {program.known.local[0][0]!r} is an unknown of each example, so that data "
            "have no likelihood under draws of the other unknowns alone"
        )
    sampling = require("marginax.model.program.sampling")
    params, (chains, draws) = stacked_params(posterior, None)
    arguments = jax.tree.map(jax.numpy.asarray, program.as_arguments(data))
    found = sampling.in_chunks(
        lambda p, _, rows: program.pointwise(p, rows), params, chains * draws, jax.random.key(0), arguments
    )
    return {name: value.reshape(chains, draws, *value.shape[1:]) for name, value in found.items()}

"""A run from its directory, and from what the user brings where that could not be stored."""

from collections.abc import Sequence
from typing import Any

import jax
from jaxtyping import Array, PRNGKeyArray

from marginax.data import AbstractSource, as_source
from marginax.files import RunDirectory
from marginax.infer.driver import Run
from marginax.infer.hooks import AbstractHook
from marginax.infer.method import AbstractMethod, check_count
from marginax.model import AbstractModel
from marginax.posterior.storage import stored_model


def restored(files: RunDirectory, model: AbstractModel | None, data: Any, hooks: Sequence[AbstractHook] | None) -> Run:
    """The run that a directory is set up for, before it has looked where it stands."""
    setup = files.read()
    if "num_checkpoints" in setup:  # earlier versions have two
        files.num_checkpoints = setup.get("num_checkpoints", of=int)
    counts = {name: setup.get(name, of=int | None) for name in ("num_chains", "chunk_size")}
    check_count("num_chains", counts["num_chains"])
    check_count("chunk_size", counts["chunk_size"], optional=True)
    method = setup.get("method", of=AbstractMethod)
    prepared = None if model is None else method.prepare_model(model)
    if prepared is not None:
        prepared = prepared.bind(setup.get("source") if data is None and "source" in setup else data)
    found: AbstractModel = method.prepare_model(stored_model(setup, prepared))
    given = None if data is None else as_source(data, method.batch_size, found.read)
    source = setup.get("source", given, argument="data", of=AbstractSource)
    return Run(
        found,
        method,
        source,
        tuple(setup.get("hooks", hooks, argument="hooks", same=False, of=tuple[AbstractHook, ...])),
        setup.get("key", of=PRNGKeyArray),
        counts["num_chains"],
        jax.tree.unflatten(jax.tree.structure(found.init(source)), setup.get("start", of=list[Array])),
        files,
        counts["chunk_size"],
        setup.get("num_retries", of=int) if "num_retries" in setup else 0,
    )

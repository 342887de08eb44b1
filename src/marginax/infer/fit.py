"""`mx.fit` and `mx.resume`: check everything, then hand over to the driver."""

import contextlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from marginax._compilation import compiled
from marginax._keys import Key, as_key
from marginax._machine import check_process
from marginax.data import GrowingMinibatches, as_source
from marginax.files import RunDirectory
from marginax.files.disk import well_formed
from marginax.infer.catalogue import as_method
from marginax.infer.closed_form import conjugate_model
from marginax.infer.driver import MOST_RETRIES, Run
from marginax.infer.hooks import AbstractHook
from marginax.infer.launching import (
    CHAINS_PER_TASK,
    AbstractLauncher,
    Serial,
    chains_per_task,
    check_launched,
    run_tasks,
)
from marginax.infer.method import AbstractMethod, check_count
from marginax.infer.restoring import restored
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, load

_STARTS, _HOLD_OUT = 0xFFFFFFFD, 0xFFFFFFFC


def fit(
    model: AbstractModel,
    data: Any,
    method: AbstractMethod | str,
    *,
    key: Key,
    num_chains: int | None = None,
    init: Any = None,
    hooks: Sequence[AbstractHook] = (),
    directory: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    chunk_size: int | None = None,
    num_checkpoints: int = 2,
    launcher: AbstractLauncher | None = None,
) -> AbstractPosterior:
    """Infer a posterior over networks.

    Args:
        model: network, likelihood and prior, or another model with a density.
        data: a pair of arrays (x, y), the result of `mx.data.standardise`, or another source from `mx.data`; for other
            models than `mx.Model`, what they are about (None for `mx.Density`, named arguments for `mx.Program`).
        method: how to infer, from `mx.infer`; or its name, such as "nuts", for one with its defaults.
        key: int seed or JAX key.
        num_chains: independent runs from different starts; every method has this axis.
        init: where chains start: a network (for other models, their unknowns), or a posterior whose draws are shared
            out among the chains. By default the first chain starts at the model's own place and the others elsewhere,
            and where the density is not finite another start is drawn.
        hooks: what else to do between chunks, such as `mx.infer.EarlyStopping(...)`.
        directory: where to keep checkpoints, so that `mx.resume(directory)` can go on after a crash or Ctrl-C. Kept
            draws then stream to a file there and are never in memory together.
        progress: show a progress bar; by default at a terminal and in a notebook.
        chunk_size: most steps between two looks at the host; the result does not depend on it. Checkpoints are written
            after every chunk if it is given, and else so rarely that they take about 2% of the time.
        num_checkpoints: how many of the last checkpoints are kept; if one is damaged, that before it is used.
        launcher: run chains as tasks elsewhere, such as `mx.launch.Dask("scheduler:8786")`; the directory must then be
            on storage that all workers see.

    Returns:
        A posterior: draw networks from it, predict with it, save it.

    >>> import marginax as mx
    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> net = mx.nets.MLP(in_size=1, hidden=(), out_size=1, key=0)
    >>> model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.1))
    >>> posterior = mx.fit(model, (x, 3 * x[:, 0]), mx.infer.MAP(), key=0)
    >>> bool(abs(posterior.predict([[0.5]]).mean[0] - 1.5) < 0.05)
    True
    """
    check_process()
    if not isinstance(model, AbstractModel):
        raise TypeError(f"model must be an mx.Model, mx.Density or mx.Program, got {type(model).__name__}")
    method = as_method(method)
    if not isinstance(method, AbstractMethod):
        raise TypeError(f"method must be an object such as mx.infer.MAP(), or a name, got {method!r}")
    if method.needs_layers and not hasattr(model, "network"):
        raise TypeError(
            f"{type(method).__name__} needs a network with layers, likelihood and prior, which {type(model).__name__} "
            "has not: use an mx.Model, or a method for any density such as mx.infer.NUTS()"
        )
    if method.needs_conjugate:
        conjugate_model(model, method)
    if launcher is not None:
        check_launched(launcher, directory, hooks)
    key = as_key(key)
    method = method if init is None else method.warm_started()
    model = method.prepare_model(model)
    num_chains = method.num_chains if num_chains is None else num_chains
    check_count("num_chains", num_chains)
    check_count("chunk_size", chunk_size, optional=True)
    check_count("num_checkpoints", num_checkpoints)
    if num_checkpoints < 2:
        raise ValueError(f"num_checkpoints must be >= 2, so that one is whole at any time, got {num_checkpoints}")
    bound = []
    for i, hook in enumerate(hooks):
        if not isinstance(hook, AbstractHook):
            raise TypeError(f"hooks must be objects such as mx.infer.EarlyStopping(), got {hook!r}")
        hook, data = hook.bind(data, key=jax.random.fold_in(jax.random.fold_in(key, _HOLD_OUT), i))
        bound.append(hook)
    model = model.bind(data)
    if model.sees_all_at_once and method.batch_size not in (None, _default_batch_size(method)):
        raise ValueError(
            f"batch_size must be left out or None for a program that sees all data at once, got {method.batch_size}: "
            "put what is observed, and no unknowns, in a numpyro.plate over the rows of the arguments"
        )
    source = as_source(data, method.batch_size, model.read)
    if method.needs_full_batch and source.batch_size < source.spec.num_examples:
        raise ValueError(
            f"data must come as one full batch for {type(method).__name__}, "
            f"got batches of {source.batch_size}: pass (x, y)"
        )
    if method.needs_full_batch and source.is_noisy:
        raise ValueError(
            f"data must be the same at every step for {type(method).__name__}, got augmented data: augment the "
            "likelihood, mx.augment(model, transforms), and pass (x, y)"
        )
    if isinstance(source, GrowingMinibatches) and not method.supports_dynamic_size:
        raise ValueError(
            f"data must have a fixed size for {type(method).__name__}, got GrowingMinibatches: pass (x, y)"
        )
    model.check(source)
    model = model.adapted_to(source)
    start = starting_points(model, model.init(source), init, num_chains, key)
    run = Run(model, method, source, tuple(bound), key, num_chains, start, chunk_size=chunk_size)
    run.num_retries = MOST_RETRIES if init is None else 0
    if directory is None:
        return run.execute(progress)
    run.directory = RunDirectory(Path(directory), num_checkpoints=num_checkpoints)
    if launcher is not None and not launcher.leads:
        launcher.follow(run.directory, resumed=False)
        return _finished(run.directory, model)
    with run.directory.owned():
        run.directory.create(
            {
                "model": run.model,
                "method": method,
                "source": source,
                "hooks": run.hooks,
                "start": jax.tree.leaves(start),
                "key": key,
                "num_chains": num_chains,
                "chunk_size": chunk_size,
                "num_retries": run.num_retries,
                "num_checkpoints": num_checkpoints,
                **({} if launcher is None else {CHAINS_PER_TASK: launcher.chains_per_task}),
            },
            optional=None if launcher else {"model": model.structure, "method": None, "source": None, "hooks": None},
        )
        return run.execute(progress) if launcher is None else run_tasks(run, launcher, progress)


def _default_batch_size(method: AbstractMethod) -> int | None:
    """What it is when the user does not say; methods that take it from another one are not asked."""
    field = type(method).__dataclass_fields__.get("batch_size")
    return method.batch_size if field is None else field.default


def resume(
    directory: str | os.PathLike[str],
    *,
    model: AbstractModel | None = None,
    data: Any = None,
    hooks: Sequence[AbstractHook] | None = None,
    progress: bool | None = None,
    launcher: AbstractLauncher | None = None,
) -> AbstractPosterior:
    """Go on with a run that was interrupted; the result equals that of an uninterrupted one, bit for bit.

    Args:
        directory: the directory that was given to `fit`. It must not be in use by another process.
        model: needed only if its network is a class or function of yours that is not registered; the same as in `fit`.
        data: needed only if the data could not be stored with the run; the same as in `fit`.
        hooks: needed only if they are of your own making.
        progress: as in `fit`.
        launcher: as in `fit`, for runs that were begun with one; without it their tasks run here, one after another.
    """
    check_process()
    files = RunDirectory(Path(directory))
    files.check_begun()
    if launcher is not None:
        check_launched(launcher, directory, hooks or ())
    if launcher is not None and not launcher.leads and not files.finished:
        launcher.follow(files, resumed=True)
    if files.finished:
        return _finished(files, model)
    with files.owned():
        if files.finished:  # meanwhile
            return _finished(files, model)
        alone = model is None and data is None and hooks is None  # what goes wrong is then in the files
        with well_formed(directory):
            size = chains_per_task(files)
        if size is None and launcher is not None:
            raise ValueError(f"launcher must be left out: {files.path} was begun without one, in one process")
        if size is not None and hooks:
            raise ValueError(f"hooks must be left out, got {hooks!r}: {files.path} was begun as tasks, which have none")
        with well_formed(directory) if alone else contextlib.nullcontext():
            run = restored(files, model, data, hooks)
            return run.execute(progress) if size is None else run_tasks(run, launcher or Serial(), progress)


def _finished(files: RunDirectory, model: AbstractModel | None) -> AbstractPosterior:
    if model is not None and "method" in (setup := files.read()):
        model = setup.get("method").prepare_model(model)
    return load(files.posterior, model=model)


def starting_points(model: AbstractModel, params: Params, init: Any, num_chains: int, key: PRNGKeyArray) -> Params:
    """Parameters with a leading axis of chains."""
    if init is None:
        return _fresh_starts(model, params, num_chains, key)
    if isinstance(init, AbstractPosterior):
        # by way of the host: arrays that are bound to a device would be compiled for anew
        centres = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), init.starting_points(num_chains))
        return model.take_over(params, centres)
    return model.start_at(init, params, num_chains)


@partial(compiled, once=True)
def _fresh_starts(model: AbstractModel, params: Params, num_chains: int, key: PRNGKeyArray) -> Params:
    keys = jax.random.split(jax.random.fold_in(key, _STARTS), num_chains)
    others = jax.vmap(lambda k: model.reinitialise(params, key=k))(keys)
    own = jnp.arange(num_chains) == 0

    def first_is_own(fresh: Any, given: Any) -> Any:
        return jnp.where(own.reshape(-1, *[1] * given.ndim), given, fresh)

    return jax.tree.map(first_is_own, others, params)


def use_cores(num: int | None = None) -> None:
    """Let JAX see each CPU core as a device, so that chains are spread over them.

    Call it once, before anything is computed; no environment variable is needed.

    Args:
        num: number of cores; by default all that this process may use.
    """
    count = len(os.sched_getaffinity(0)) if num is None and hasattr(os, "sched_getaffinity") else num or os.cpu_count()
    check_count("num", count)
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise RuntimeError("use_cores must be called before JAX has computed anything") from error

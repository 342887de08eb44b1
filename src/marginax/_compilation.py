"""How programs are compiled, and that the second run of one finds it compiled: JAX's persistent cache.

XLA's newer emitters of fused loops take half of the time that it compiles for CPUs, and what they give runs no faster
here (`make bench NAME=compilation`): programs that are dear to compile go without them. What runs once on little data
takes longer to optimise than to run: it is compiled as it stands.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

Function = TypeVar("Function", bound=Callable[..., Any])

VARIABLE = "MARGINAX_CACHE"
MAX_BYTES = 2**30
_FOLDER = "jax_compilation_cache_dir"
_LEAST_SECONDS = 0.1  # of compilation: what is faster is not worth a file
_QUICK = {"xla_cpu_use_fusion_emitters": False}
_ONCE = {"xla_backend_optimization_level": 0}
_LITTLE = 100_000  # numbers in all
_ZERO = np.zeros((), np.float32)


def compiled(function: Function, *, donate: Any = "none", once: bool = False) -> Function:
    """`eqx.filter_jit` for programs that are dear to compile; as a part of a larger program it follows that one.

    Args:
        function: to be compiled.
        donate: as for `eqx.filter_jit`.
        once: whether it runs once in a fit, so that it need not be fast where its arguments are small.
    """
    jit: Any = functools.partial(eqx.filter_jit, function, donate=donate)
    part, whole = jit(), {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        if any(isinstance(leaf, Tracer) for leaf in (_placed_number(), *leaves)):  # options are for whole programs
            return part(*args, **kwargs)
        as_it_stands = once and sum(jnp.size(leaf) for leaf in leaves if eqx.is_array(leaf)) <= _LITTLE
        if as_it_stands not in whole:
            whole[as_it_stands] = jit(compiler_options=_options(as_it_stands))
        return whole[as_it_stands](*args, **kwargs)

    return call  # type: ignore[return-value]


def _placed_number() -> jax.Array:
    """A number that is traced where everything is, also what does not come from an argument."""
    return jax.device_put(_ZERO)


def _options(as_it_stands: bool) -> dict[str, Any] | None:
    return {name: value for name, value in _known_options().items() if as_it_stands or name in _QUICK} or None


@functools.cache
def _known_options() -> dict[str, Any]:
    """Those that this version of XLA knows: all, as a rule."""
    options = _QUICK | _ONCE
    return options if _knows(options) else {name: value for name, value in options.items() if _knows({name: value})}


def _knows(options: dict[str, Any]) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options=options)(_ZERO)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def use_compilation_cache() -> Path | None:
    """Let JAX keep what it compiles, and find it again.

    The command line and the estimators call this. The folder is that of `MARGINAX_CACHE`, or `marginax/compiled` in the
    user's cache folder; `MARGINAX_CACHE=off` leaves JAX as it is, and so does a cache that was chosen already. It holds
    1 GiB at most, of what was used last, and processes may share it.

    Returns:
        The folder; None if nothing was changed.
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen.lower() in ("off", "0", "no") or getattr(jax.config, _FOLDER) is not None:
        return None
    try:
        import filelock  # noqa: F401  # with which JAX bounds a cache and shares it among processes
    except ModuleNotFoundError:
        return None
    folder = Path(chosen) if chosen else _user_folder() / "marginax" / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK) or (hasattr(os, "getuid") and folder.stat().st_uid != os.getuid()):
        return None  # of somebody else, whose programs are not ours to run
    jax.config.update(_FOLDER, str(folder))
    jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST_SECONDS)
    from jax.experimental.compilation_cache import compilation_cache

    compilation_cache.reset_cache()  # JAX looks for a folder once, at the first compilation
    return folder


def _user_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")

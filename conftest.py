"""The surroundings of every test and doctest."""

import os
import shutil
import signal
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")

_shared_data = Path(__file__).resolve().parent.parent / "shared" / "data"
if _shared_data.is_dir():
    os.environ.setdefault("MARGINAX_DATA", str(_shared_data))

# One core per xdist worker: two XLA thread pools on two cores would spend their time waiting for each other.
_worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if _worker.startswith("gw") and hasattr(os, "sched_setaffinity"):
    _cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_cores[int(_worker[2:]) % len(_cores)]})

# Ctrl-C, which tests and doctests press, reaches them also where a shell has started them with "&".
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a worker has compiled it does not compile again: models of the same shapes share their programs over tests and
# runs. A folder for each worker, since JAX writes in place and another one would read halves; a large one is left.
import jax  # noqa: E402  # reads the environment when it is imported

_compiled = Path(__file__).resolve().parent / ".pytest_cache" / "xla" / (_worker or "alone")
if _compiled.is_dir() and sum(path.stat().st_size for path in _compiled.iterdir()) > 2**30:
    shutil.rmtree(_compiled)
jax.config.update("jax_compilation_cache_dir", str(_compiled))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

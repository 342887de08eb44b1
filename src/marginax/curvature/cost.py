"""What a curvature costs, before anything is allocated."""

import functools
import os
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from marginax.curvature.diagonal import Diagonal
from marginax.curvature.hooks import Plan
from marginax.curvature.kronecker import Kronecker
from marginax.curvature.low_rank import LowRank
from marginax.curvature.structure import AbstractStructure, Extent

_NUM_BYTES = 4


@dataclass(frozen=True)
class Cost:
    """Memory and time.

    Args:
        num_bytes: that are held at the peak.
        seconds: on this machine, roughly, for the sums and the inverse.

    >>> print(Cost(3 * 2**30, 90.0))
    3.00 GiB, about 1.5 minutes
    """

    num_bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{as_gib(self.num_bytes)}, about {_in_words(self.seconds)}"


def estimate(structure: AbstractStructure, plan: Plan, extent: Extent) -> Cost:
    """Memory and time of a structure.

    Args:
        structure: what is kept.
        plan: for which weights.
        extent: how much data.
    """
    numbers, work = structure.cost(plan, extent)
    through = 3 * structure.num_passes * extent.num_examples * (1 + extent.num_columns) * plan.size
    return Cost(numbers * _NUM_BYTES, (work + through) / multiplications_per_second())


def check_memory(structure: AbstractStructure, plan: Plan, extent: Extent) -> None:
    """Raise a MemoryError that says what else there is, if the structure does not fit in memory."""
    need, there_is = structure.cost(plan, extent)[0] * _NUM_BYTES, memory_size()
    if there_is is None or need <= there_is:
        return
    others = [other for other in (Kronecker(), LowRank(), Diagonal()) if type(other) is not type(structure)]
    sizes = {type(other).__name__: other.cost(plan, extent)[0] * _NUM_BYTES for other in others}
    fitting = ", ".join(f"{name}() ({as_gib(size)})" for name, size in sizes.items() if size <= there_is)
    raise MemoryError(
        f"structure {type(structure).__name__}() for {plan.size:,} weights needs {as_gib(need)} of memory, and there "
        f"are {as_gib(there_is)}: choose {fitting or 'fewer weights'}, or subset=mx.LastLayer()"
    )


def memory_size() -> int | None:
    """Bytes of the device's memory; None where nobody knows."""
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


@functools.cache
def multiplications_per_second() -> float:
    """Of a product of matrices, measured once."""
    matrix = jnp.ones((768, 768))
    product = jax.jit(lambda a: a @ a)
    product(matrix).block_until_ready()
    start = time.perf_counter()
    product(matrix).block_until_ready()
    return 768**3 / max(time.perf_counter() - start, 1e-9)


def as_gib(num_bytes: int | float) -> str:
    """In the unit that people compare with their memory.

    >>> as_gib(2**29), as_gib(4e12)
    ('0.50 GiB', '3,725 GiB')
    """
    gib = num_bytes / 2**30
    return f"{gib:.2f} GiB" if gib < 100 else f"{gib:,.0f} GiB"


def _in_words(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 3600 else f"{seconds / 3600:.1f} hours"

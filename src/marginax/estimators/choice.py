"""Which method: by name, or by the size of data and network."""

import re

from marginax.infer import MAP, MILE, AbstractMethod, DeepEnsemble
from marginax.infer.catalogue import catalogue

MOST_WORK = 5_000_000
MANY_ROWS = 100_000


def method_named(name: str) -> AbstractMethod:
    """A method with its defaults; case and underscores do not matter.

    >>> type(method_named("deep_ensemble")).__name__
    'DeepEnsemble'
    """
    wanted = re.sub(r"[\s_-]", "", name).lower()
    known = {entry.name.lower(): entry.method for entry in catalogue()}
    if wanted not in known:
        names = ", ".join(entry.name for entry in catalogue())
        raise ValueError(f"method must be 'auto', an object from mx.infer, or one of {names}, got {name!r}")
    return known[wanted]


def choose_method(num_rows: int, num_weights: int) -> tuple[AbstractMethod, str]:
    """What `method="auto"` takes, and why, in a sentence.

    >>> method, reason = choose_method(1_000, 1_000)
    >>> print(reason)
    MILE: 1,000 rows times 1,000 weights are few enough for chains on all rows.
    """
    size = f"{num_rows:,} rows times {num_weights:,} weights"
    if num_rows * num_weights <= MOST_WORK:
        return MILE(), f"MILE: {size} are few enough for chains on all rows."
    if num_rows <= MANY_ROWS:
        return DeepEnsemble(10), f"DeepEnsemble: {size} are too many for chains on all rows; ten networks on batches."
    method = DeepEnsemble(5, member=MAP(batch_size=512))
    return method, f"DeepEnsemble: {size} are many; five networks on batches of 512."

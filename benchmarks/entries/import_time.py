"""`import marginax` against `import jax, equinox, optax`, each in a fresh process."""

import subprocess
import sys
from functools import partial

from benchmarks.harness.entry import Contestant, Entry, Group, Run, Target


def cold(statement: str) -> Run:
    """Run a statement in new interpreters."""

    def run(times: int) -> None:
        for _ in range(times):
            subprocess.run([sys.executable, "-c", statement], check=True)

    return run


ENTRY = Entry(
    title="Import in a fresh process",
    unit="import",
    groups=(
        Group(
            contestants=(
                Contestant("jax, equinox, optax", partial(cold, "import jax, equinox, optax"), (0, 1)),
                Contestant("marginax", partial(cold, "import marginax"), (0, 1)),
            ),
            targets=(Target("marginax", "jax, equinox, optax", at_most=1.3),),
        ),
    ),
)

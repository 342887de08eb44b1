"""Fits as they are compiled here against the same fits as XLA compiles by default, each in a fresh process.

    make bench NAME=compilation

Short fits are mostly compiled; the long ones mostly run. Without the persistent cache.
"""

import os
import subprocess
import sys
from functools import partial

from benchmarks.harness.entry import Contestant, Entry, Group, Run, Target

BY_DEFAULT = "from marginax import _compilation; _compilation._options = lambda: None\n"
DATA = """
import marginax as mx, numpy as np
x = np.random.default_rng(0).normal(size=(800, 8)).astype(np.float32)
y = np.sin(x[:, 0])
model = mx.Model(mx.nets.MLP(8, (16, 16, 16), 1, key=0), mx.likelihoods.Gaussian())
"""
SHORT = """
few = {"num_warmup": 20, "num_samples": 20}
methods = mx.infer.MAP(50), mx.infer.NUTS(**few), mx.infer.SGHMC(**few), mx.infer.Laplace(), mx.infer.VI(num_epochs=50)
for method in methods:
    mx.fit(model, (x[:100], y[:100]), method, key=0, progress=False).predict(x[:100]).interval(0.9)
"""
LONG = """
mx.fit(model, (x, y), mx.infer.MCLMC(num_warmup=4000, num_samples=100, thin=40), key=0, progress=False)
mx.fit(model, (x, y), mx.infer.VI(num_epochs=4000), key=0, progress=False)
"""


def fresh(program: str) -> Run:
    """Run a program in new interpreters."""

    def run(times: int) -> None:
        for _ in range(times):
            env = {**os.environ, "MARGINAX_CACHE": "off"}
            subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, env=env)

    return run


def _group(title: str, fits: str, at_most: float) -> Group:
    ours, default = f"{title}: as here", f"{title}: by default"
    return Group(
        contestants=(
            Contestant(default, partial(fresh, BY_DEFAULT + DATA + fits), (0, 1)),
            Contestant(ours, partial(fresh, DATA + fits), (0, 1)),
        ),
        targets=(Target(ours, default, at_most=at_most),),
    )


ENTRY = Entry(
    title="Fits, with their compilation",
    unit="run",
    groups=(_group("short fits", SHORT, 0.8), _group("long fits", LONG, 1.05)),
)

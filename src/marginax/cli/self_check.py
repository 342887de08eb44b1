"""A check of a few seconds: does a fit come out right on this machine, and are files read as they were written?"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax.curvature import Dense
from marginax.infer import Laplace, fit
from marginax.model import Model, likelihoods, priors
from marginax.nets import MLP
from marginax.posterior import load


@dataclass(frozen=True)
class Check:
    """One thing that was tried."""

    name: str
    good: bool
    words: str
    seconds: float


def check(done: Callable[[], None]) -> list[Check]:
    """Arithmetic against NumPy, a linear regression against its exact posterior, and a posterior on disk."""
    checks = [_arithmetic()]
    done()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=50)
    began = time.perf_counter()
    model = Model(MLP(3, (), 1, key=0), likelihood=likelihoods.Gaussian(scale=0.5), prior=priors.Normal(scale=1.0))
    posterior = fit(model, (x, y), Laplace(structure=Dense()), key=0, progress=False)
    prediction: Any = posterior.predict(x)
    checks.append(_against_exact(x, y, prediction.mean, np.sqrt(prediction.epistemic), time.perf_counter() - began))
    done()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        posterior.save(Path(folder) / "posterior")
        again: Any = load(Path(folder) / "posterior").predict(x)
    same = np.array_equal(again.mean, prediction.mean)
    words = "a posterior predicts the same after reloading" if same else "predictions changed after reloading"
    checks.append(Check("files", same, words, time.perf_counter() - began))
    done()
    return checks


def _arithmetic() -> Check:
    began = time.perf_counter()
    a = np.random.default_rng(1).normal(size=(512, 512)).astype(np.float32)
    error = float(np.max(np.abs(np.asarray(jnp.asarray(a) @ jnp.asarray(a)) - a @ a)))
    seconds = time.perf_counter() - began
    where = jax.devices()[0].platform.upper()
    return Check("arithmetic", error < 1e-2, f"products on {where} differ from NumPy's by at most {error:.1e}", seconds)


def _against_exact(x: np.ndarray, y: np.ndarray, mean: np.ndarray, sd: np.ndarray, seconds: float) -> Check:
    """The posterior of weights and bias under a standard normal prior and noise of 0.5, in closed form."""
    design = np.column_stack([x, np.ones(len(x))])
    covariance = np.linalg.inv(design.T @ design / 0.25 + np.eye(design.shape[1]))
    exact_mean = design @ (covariance @ (design.T @ y / 0.25))
    exact_sd = np.sqrt(np.einsum("ni,ij,nj->n", design, covariance, design))
    error = float(np.max(np.abs(mean - exact_mean) / exact_sd))
    ratio = float(np.max(np.abs(sd / exact_sd - 1)))
    words = f"means within {error:.2f} sd and spreads within {ratio:.1%} of the exact posterior, in {seconds:.1f} s"
    return Check("linear fit", error < 0.2 and ratio < 0.1, words, seconds)

"""Does what a posterior does not know grow away from the data? Every method, on one input and on two moons.

    make bench NAME=distance                       all methods; also draws docs/images/distance.png
    make bench NAME="distance NUTS MCDropout"      some

One input: 60 measurements of a sine in two clusters; the standard deviation of the mean over draws, at the data and at
growing distances from them. Two moons: mutual information at the data and on circles around them, whose radii are in
standard deviations of the inputs. Methods have their defaults. Points (MLE, MAP) have no such part, and are left out.
"""

import argparse
import time
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks import report

DISTANCES = (0.0, 1.0, 2.0, 4.0)  # from the nearest measurement
RADII = (2.0, 3.0, 6.0)


def sine() -> tuple[np.ndarray, np.ndarray]:
    """Measurements around -1 and 1."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1.6, -0.6, 30), rng.uniform(0.6, 1.6, 30)])[:, None]
    return x, np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=60)


def moons() -> tuple[np.ndarray, np.ndarray]:
    """Two moons of 100 points each, standardised."""
    from sklearn.datasets import make_moons

    x, y = make_moons(200, noise=0.1, random_state=0)
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def ask_sine(method: Any) -> tuple[Any, np.ndarray]:
    """The posterior, and the epistemic standard deviation at the distances."""
    import jax
    import marginax as mx

    x, y = sine()
    net = mx.nets.MLP(1, (50,), 1, activation=jax.nn.silu, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.1))
    posterior = mx.fit(model, (x, y), method, key=0, progress=False)
    at = [x] + [np.array([[x.min() - d], [x.max() + d]]) for d in DISTANCES[1:]]
    return posterior, np.array([np.sqrt(posterior.predict(part).epistemic).mean() for part in at])


def ask_moons(method: Any) -> tuple[Any, np.ndarray]:
    """The posterior, and mutual information at the data and on the circles."""
    import jax, jax.numpy as jnp
    import marginax as mx

    x, y = moons()
    model = mx.Model(mx.nets.MLP(2, (50,), 2, key=0), mx.likelihoods.Categorical(), mx.priors.Normal(1.0))
    posterior = mx.fit(model, (x, y), method, key=0, progress=False)
    angles = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    at = [x] + [radius * circle for radius in RADII]
    networks = posterior.sample(100, key=1)
    import equinox as eqx

    def logits(part):
        out = np.asarray(eqx.filter_vmap(lambda net: jax.vmap(net)(jnp.asarray(part, jnp.float32)))(networks))
        return (out[..., 1] - out[..., 0]).std(axis=0).mean()

    return (
        posterior,
        np.array([posterior.predict(part).mutual_information.mean() for part in at]),
        np.array([logits(p) for p in at]),
    )


def main(arguments: list[str]) -> None:
    """Ask, print, draw, save."""
    from marginax.infer.catalogue import catalogue

    methods = {entry.name: entry.method for entry in catalogue() if entry.name not in ("MLE", "MAP")}
    parser = argparse.ArgumentParser(prog="python -m benchmarks distance", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(methods), help=", ".join(methods))
    options = parser.parse_args(arguments)
    for name in options.names:
        t = time.perf_counter()
        _, a = ask_sine(methods[name])
        t1 = time.perf_counter()
        _, b, c = ask_moons(methods[name])
        print(
            f"{name:22s}",
            np.round(a, 3),
            np.round(b, 4),
            np.round(c, 2),
            round(t1 - t, 1),
            round(time.perf_counter() - t1, 1),
            flush=True,
        )

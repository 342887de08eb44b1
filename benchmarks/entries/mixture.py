"""Coordinate ascent for a mixture of 20 normal components, 100,000 points in 10 dimensions, against scikit-learn.

    make bench NAME=mixture
    make bench NAME="mixture --rows 10000 --steps 20"

Both start from the same clusters and have the same priors, and a step of one does what a step of the other does; what
counts is the time to the bound that scikit-learn has after its last step. Ours is timed with compilation and without.
"""

import argparse
import time
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.harness import report

NUM_COMPONENTS, SIZE, FACTOR = 20, 10, 5.0


def main(arguments: list[str]) -> None:
    """Seconds to the same bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mixture", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=50, help="of scikit-learn")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    console = report.console()
    x, start = problem(options.rows)
    record: dict[str, Any] = {"rows": options.rows, "steps": options.steps, "seconds": {}}
    for dtype in ("float64", "float32"):
        taken = [scikit_learn(x.astype(dtype), start, options.steps) for _ in range(options.repeats)]
        record["seconds"][f"scikit-learn, {dtype}"] = min(seconds for seconds, _ in taken)
    bound = scikit_learn(x, start, options.steps)[1]
    first, rest, reached = marginax(x, start, options.steps, options.repeats)
    record["seconds"] |= {"marginax, first call": first, "marginax": rest}
    record |= {"bound": bound, "reached": reached}
    show(record, console)
    path = report.write("mixture", record)
    console.print(f"saved: benchmarks/results/{path.name}")


def problem(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Components that overlap, so that there is something to do in every step, and first responsibilities."""
    rng = np.random.default_rng(0)
    centres = 1.5 * rng.normal(size=(NUM_COMPONENTS, SIZE))
    roots = np.eye(SIZE) + 0.4 * rng.normal(size=(NUM_COMPONENTS, SIZE, SIZE))
    labels = rng.integers(NUM_COMPONENTS, size=num_rows)
    x = centres[labels] + np.einsum("nde,ne->nd", roots[labels], rng.normal(size=(num_rows, SIZE)))
    nearest = ((x[:, None] - x[:NUM_COMPONENTS]) ** 2).sum(-1).argmin(1)
    return x, np.eye(NUM_COMPONENTS)[nearest]


def scikit_learn(x: np.ndarray, start: np.ndarray, num_steps: int) -> tuple[float, float]:
    """Seconds, and the bound with its constants."""
    import warnings

    from scipy.special import gammaln
    from sklearn.mixture import BayesianGaussianMixture

    class Started(BayesianGaussianMixture):
        def _initialize_parameters(self, X: Any, random_state: Any, **options: Any) -> None:
            self._initialize(X, start.astype(X.dtype))

    mixture = Started(
        n_components=NUM_COMPONENTS,
        weight_concentration_prior_type="dirichlet_distribution",
        max_iter=num_steps,
        tol=0.0,
        reg_covar=0.0,
    )
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    mixture.fit(x)
    seconds = time.perf_counter() - began
    prior, dof = mixture.covariance_prior_, mixture.degrees_of_freedom_prior_
    constant = 0.5 * dof * np.linalg.slogdet(prior)[1] - 0.5 * dof * SIZE * np.log(2)
    constant = NUM_COMPONENTS * (constant - gammaln(0.5 * (dof - np.arange(SIZE))).sum())
    constant += gammaln(1.0) - NUM_COMPONENTS * gammaln(1 / NUM_COMPONENTS) - 0.5 * len(x) * SIZE * np.log(2 * np.pi)
    return seconds, float(mixture.lower_bound_ + constant)


def marginax(x: np.ndarray, start: np.ndarray, num_steps: int, repeats: int) -> tuple[float, float, float]:
    """Seconds of the first call and of the best of the others, and the bound."""
    import jax.numpy as jnp

    import marginax as mx

    prior = mx.latent.NormalWishart(x.mean(0), np.cov(x.T), 1.0, float(SIZE))
    model = mx.latent.GaussianMixture(NUM_COMPONENTS, prior=prior)
    rows = jnp.asarray(x, jnp.float32)
    statistics = {
        "weights": start.sum(0),
        "emissions": model.emissions.statistics(rows, jnp.asarray(start.T, jnp.float32)),
    }
    params = model.maximise({**statistics, "weights": jnp.asarray(statistics["weights"], jnp.float32)})
    method = mx.infer.CoordinateAscent(num_steps, tolerance=0.0)
    seconds, reached = [], 0.0
    for _ in range(repeats + 1):
        began = time.perf_counter()
        posterior = mx.fit(model, np.asarray(rows), method, init=params, key=0, progress=False)
        seconds.append(time.perf_counter() - began)
        reached = posterior.elbo
    return seconds[0], min(seconds[1:]), reached


def show(record: dict[str, Any], console: Any) -> None:
    """Seconds, and whether the target is met."""
    table = Table(title=f"{record['rows']} points, {record['steps']} steps", title_justify="left")
    for column in ("", "seconds"):
        table.add_column(column, justify="left" if not column else "right")
    for name, seconds in record["seconds"].items():
        table.add_row(name, f"{seconds:.2f}")
    console.print(table)
    console.print(f"bound: scikit-learn {record['bound']:.1f}, ours {record['reached']:.1f}")
    peer = min(value for name, value in record["seconds"].items() if name.startswith("scikit"))
    ratio = peer / record["seconds"]["marginax"]
    word = "[green]met[/green]" if ratio >= FACTOR else "[red]missed[/red]"
    console.print(f"{ratio:.1f} times less time, target at least {FACTOR:.0f}: {word}")

"""NUTS on a 10-50-1 tanh network with learned noise, diabetes data, four chains: against NumPyro on the same cores.

    make bench NAME=nuts

What counts is the smallest bulk ESS of predictions at held-out inputs per second, warm-up and compilation included, or
of sampling alone; and how soon our quickest sampler has the held-out log predictive density of the NUTS run, with
compilation and without it (the same fit again, in the same process).
"""

import argparse
import sys
import time
from typing import Any

from benchmarks.harness.race import Runner, Scores, compete, contestant, median, table, verdict

NUM_WARMUP, NUM_SAMPLES, NUM_CHAINS = 500, 500, 4
HIDDEN = 50


def _data() -> tuple[Any, ...]:
    import numpy as np
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    order = np.random.default_rng(0).permutation(len(data.target))
    test, train = order[:88], order[88:]
    x = (data.data - data.data[train].mean(axis=0)) / data.data[train].std(axis=0)
    y = (data.target - data.target[train].mean()) / data.target[train].std()
    x, y = x.astype(np.float32), y.astype(np.float32)
    return x[train], y[train], x[test], y[test]


def _scores(means: Any, scales: Any, y: Any, seconds: float, sampling: float, again: float, gradients: float) -> Scores:
    """Means (chain, draw, row), scales (chain, draw)."""
    import arviz
    import numpy as np

    means, scales = np.asarray(means, np.float64), np.asarray(scales, np.float64)[..., None]
    outputs = arviz.convert_to_dataset(means)
    ess = float(np.min(arviz.ess(outputs, method="bulk").to_array()))
    log_probs = -0.5 * ((y - means) / scales) ** 2 - np.log(scales) - 0.5 * np.log(2 * np.pi)
    log_probs = log_probs.reshape(-1, len(y))
    density = np.mean(np.logaddexp.reduce(log_probs, axis=0) - np.log(len(log_probs)))
    return {
        "seconds": seconds,
        "seconds, compiled": again,
        "sampling seconds": sampling,
        "ESS": ess,
        "ESS per second": ess / seconds,
        "ESS per sampling second": ess / sampling,
        "R-hat": float(np.max(arviz.rhat(outputs).to_array())),
        "log density": float(density),
        "gradients": gradients,
    }


def numpyro(seed: int) -> Scores:
    """The usual program, chains in parallel on as many devices."""
    import numpy as np
    import numpyro as peer

    peer.set_host_device_count(NUM_CHAINS)
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    x, y, x_test, y_test = _data()

    def outputs(x: Any, p: Any) -> Any:
        return jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]

    def program(x: Any, y: Any) -> None:
        params = {
            "w1": peer.sample("w1", dist.Normal(0, 1 / np.sqrt(10)).expand([10, HIDDEN]).to_event(2)),
            "b1": peer.sample("b1", dist.Normal(0, 1).expand([HIDDEN]).to_event(1)),
            "w2": peer.sample("w2", dist.Normal(0, 1 / np.sqrt(HIDDEN)).expand([HIDDEN]).to_event(1)),
            "b2": peer.sample("b2", dist.Normal(0, 1)),
        }
        scale = peer.sample("scale", dist.LogNormal(-1.0, 1.0))
        peer.sample("y", dist.Normal(outputs(x, params), scale), obs=y)

    sampler = MCMC(
        NUTS(program),
        num_warmup=NUM_WARMUP,
        num_samples=NUM_SAMPLES,
        num_chains=NUM_CHAINS,
        chain_method="parallel",
        progress_bar=False,
    )
    began = time.perf_counter()
    sampler.warmup(jax.random.key(seed), x, y)
    jax.block_until_ready(sampler.post_warmup_state.z)
    warm = time.perf_counter()
    sampler.run(sampler.post_warmup_state.rng_key, x, y, extra_fields=("num_steps",))
    draws = jax.block_until_ready(sampler.get_samples(group_by_chain=True))
    ended = time.perf_counter()
    means = jax.vmap(jax.vmap(lambda p: outputs(x_test, p)))(draws)
    gradients = float(np.mean(sampler.get_extra_fields()["num_steps"]))
    began_again = time.perf_counter()
    sampler.warmup(jax.random.key(seed + 1), x, y)
    sampler.run(sampler.post_warmup_state.rng_key, x, y, extra_fields=("num_steps",))
    jax.block_until_ready(sampler.get_samples(group_by_chain=True))
    again = time.perf_counter() - began_again
    return _scores(means, draws["scale"], y_test, ended - began, ended - warm, again, gradients)


def _marginax(seed: int, name: str) -> Scores:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import marginax as mx

    mx.use_cores(NUM_CHAINS)
    x, y, x_test, y_test = _data()
    net = mx.nets.MLP(in_size=10, hidden=(HIDDEN,), out_size=1, activation=jnp.tanh, key=seed)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian())
    method = {
        "NUTS": mx.infer.NUTS(NUM_WARMUP, NUM_SAMPLES),
        "MCLMC": mx.infer.MCLMC(num_warmup=400, num_samples=100, thin=4, energy_variance=0.01),
    }[name]
    began = time.perf_counter()
    posterior: Any = mx.fit(model, (x, y), method, num_chains=NUM_CHAINS, key=seed, progress=False)
    ended = time.perf_counter()
    mx.fit(model, (x, y), method, num_chains=NUM_CHAINS, key=seed + 1, progress=False)
    again = time.perf_counter() - ended
    params = jax.tree.map(jnp.asarray, posterior.params)
    means = jax.jit(jax.vmap(jax.vmap(lambda p: model.output(p, jnp.asarray(x_test))[:, 0])))(params)
    scales = np.exp(np.asarray(params.likelihood["log_scale"])[..., 0])
    steps = posterior.record.info["sample"].get("num_leapfrog", np.full(1, 2.0))
    sampling = posterior.record.seconds["sample"]
    return _scores(means, scales, y_test, ended - began, sampling, again, float(steps.mean()))


def marginax(seed: int) -> Scores:
    """NUTS, one chain per device."""
    return _marginax(seed, "NUTS")


def mclmc(seed: int) -> Scores:
    """Our quickest sampler for such data, with a small budget."""
    return _marginax(seed, "MCLMC")


RUNNERS = (Runner("NumPyro NUTS", numpyro), Runner("marginax NUTS", marginax), Runner("marginax MCLMC", mclmc))


def main(arguments: list[str]) -> None:
    """Run all in turn and compare."""
    from benchmarks.harness import report

    parser = argparse.ArgumentParser(prog="python -m benchmarks nuts", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    console = report.console()
    with report.progress(console) as say:
        results = compete("benchmarks.entries.nuts", RUNNERS, options.repeats, say)
    title = f"10-{HIDDEN}-1 network on diabetes, {NUM_CHAINS} chains, medians of {options.repeats}"
    table(title, results, tuple(results["NumPyro NUTS"]["scores"][0]), console)
    claims = []
    for score in ("ESS per second", "ESS per sampling second"):
        ratio = median(results, "marginax NUTS", score) / median(results, "NumPyro NUTS", score)
        claims.append(verdict(f"{score}, ours / NumPyro", ratio, 1.0, console, at_most=False))
    gap = median(results, "marginax MCLMC", "log density") - median(results, "marginax NUTS", "log density")
    claims.append(verdict("log density, MCLMC - NUTS", gap, -0.005, console, at_most=False))
    for score in ("seconds", "seconds, compiled"):
        sooner = median(results, "marginax NUTS", score) / median(results, "marginax MCLMC", score)
        claims.append(verdict(f"{score}, NUTS / MCLMC", sooner, 5.0, console, at_most=False))
    path = report.write("nuts", {"title": title, "claims": claims, "results": results})
    console.print(f"saved: benchmarks/results/{path.name}")


if __name__ == "__main__":
    contestant(RUNNERS, sys.argv[1:])

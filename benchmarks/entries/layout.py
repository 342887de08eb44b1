"""Networks of the user in the layout that `mx.Model` chooses, against `jax.vmap`, which puts the rows first.

A step is a gradient of the log density (in a compiled loop, each at the weights that the last one left) or a forward
pass (one call each). The peer is the same model with a network whose `call_batch` is `jax.vmap`.
"""

from functools import partial
from typing import Any

from benchmarks.harness.entry import Contestant, Entry, Group, Run, Target

NARROW = (5, 16, 16, 16, 16, 2)
WIDE = (784, 400, 400, 10)


def equinox_mlp(sizes: tuple[int, ...]) -> Any:
    """Equinox's own MLP."""
    import equinox as eqx
    import jax

    return eqx.nn.MLP(sizes[0], sizes[-1], sizes[1], len(sizes) - 2, key=jax.random.key(0))


def pair(sizes: tuple[int, ...]) -> Any:
    """(params, apply_fn), weights as (in, out)."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
    params = [
        {"w": jax.random.normal(key, (a, b)) / a**0.5, "b": jnp.zeros(b)}
        for key, a, b in zip(keys, sizes, sizes[1:], strict=False)
    ]

    def apply_fn(params: Any, x: Any) -> Any:
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]

    return params, apply_fn


def start(
    build: Any, sizes: tuple[int, ...], num_rows: int, num_networks: int, gradient: bool, rows_first: bool
) -> Run:
    """Steps of one model, or of several at once."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    import marginax as mx
    from marginax.data import Batch

    class RowsFirst(eqx.Module):
        network: Any

        def __call__(self, x: Any) -> Any:
            return self.network(x)

        def call_batch(self, xs: Any, *, key: Any = None) -> Any:
            del key
            return jax.vmap(self.network)(xs)

    is_regression = sizes[-1] == 2
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num_rows, sizes[0])).astype(np.float32)
    y = generator.normal(size=(num_rows, 1)).astype(np.float32) if is_regression else np.arange(num_rows) % sizes[-1]
    network = build(sizes)
    if rows_first:
        network = RowsFirst(mx.nets.as_network(network))
    likelihood = (
        mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()) if is_regression else mx.likelihoods.Categorical()
    )
    model = mx.Model(network, likelihood=likelihood)
    params = model.initial(sizes[-1])
    if num_networks > 1:
        params = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_networks), params)

    def step(params: Any, x: Any, y: Any) -> Any:
        batch = Batch((x, y), jnp.arange(num_rows), num_rows)
        change = jax.grad(lambda p: model.log_density(p, batch))(params)
        return jax.tree.map(lambda leaf, d: leaf + 1e-9 * d, params, change)

    steps = jax.vmap(step, in_axes=(0, None, None)) if num_networks > 1 else step
    loop = jax.jit(lambda p, x, y, num: jax.lax.fori_loop(0, num, lambda _, p: steps(p, x, y), p))

    forward = jax.jit(lambda p, x: model.predictive(p, x).mean)

    def gradients(num_steps: int) -> None:
        jax.block_until_ready(loop(params, jnp.asarray(x), jnp.asarray(y), num_steps))

    def passes(num_steps: int) -> None:
        inputs = jnp.asarray(x)
        for _ in range(num_steps):
            jax.block_until_ready(forward(params, inputs))

    return gradients if gradient else passes


def _group(
    title: str, build: Any, sizes: tuple[int, ...], num_rows: int, units: tuple[int, int], at_most: float,
    num_networks: int = 1, gradient: bool = True,
) -> Group:  # fmt: skip
    begin = partial(start, build, sizes, num_rows, num_networks, gradient)
    return Group(
        title=title,
        contestants=(
            Contestant("jax.vmap", partial(begin, rows_first=True), units, packages=("jax", "equinox")),
            Contestant("marginax", partial(begin, rows_first=False), units, packages=("marginax", "jax", "equinox")),
        ),
        targets=(Target("marginax", "jax.vmap", at_most),),
    )


def _groups(name: str, build: Any) -> tuple[Group, ...]:
    return (
        _group(f"{name}, gradient, 1,200 rows", build, NARROW, 1_200, (500, 3_500), 0.75),
        _group(f"{name}, gradients of ten, 1,200 rows", build, NARROW, 1_200, (50, 350), 0.75, num_networks=10),
        _group(f"{name}, forward, 10,000 rows", build, NARROW, 10_000, (100, 900), 0.6, gradient=False),
        _group(f"{name} 784-400-400-10, gradient, 128 rows", build, WIDE, 128, (20, 140), 1.05),
    )


ENTRY = Entry(
    title="Layout of batches: MLPs 5-16-16-16-16-2 and 784-400-400-10",
    groups=(*_groups("eqx.nn.MLP", equinox_mlp), *_groups("(params, apply_fn)", pair)),
)

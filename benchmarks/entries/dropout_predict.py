"""Predictions by MC dropout: 10,000 images, 100 passes through the MLP 784-400-400-10, against 100 plain passes.

A pass is the network's outputs for all images, compiled, without dropout. Ours is `posterior.predict`, averages over
the passes included.
"""

from benchmarks.harness.entry import Contestant, Entry, Group, Run, Target

NUM_IMAGES, NUM_PASSES = 10_000, 100


def _network(dropout: float):
    import numpy as np

    import marginax as mx

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_IMAGES, 784)).astype(np.float32)
    net = mx.nets.MLP(in_size=784, hidden=(400, 400), out_size=10, dropout=dropout, key=0)
    return mx, mx.Model(net, likelihood=mx.likelihoods.Categorical()), x


def plain() -> Run:
    """The network without dropout, as often as asked."""
    import jax
    import jax.numpy as jnp

    _, model, x = _network(0.0)
    params, images = model.initial(10), jnp.asarray(x)
    forward = jax.jit(lambda p, x: jax.nn.softmax(model.output(p, x)))

    def run(num: int) -> None:
        for _ in range(num * NUM_PASSES):
            result = forward(params, images)
        result.block_until_ready()

    return run


def averaged(dropout: float) -> Run:
    """Monte Carlo averages; a rate of 0 leaves dropout to the method."""
    mx, model, x = _network(dropout)
    y = (x[:512, 0] > 0).astype(int)
    method = mx.infer.MCDropout(0.5 if dropout == 0 else None, num_epochs=1)
    posterior = mx.fit(model, (x[:512], y), method, key=0, progress=False)

    def run(num: int) -> None:
        for _ in range(num):
            posterior.predict(x, num_samples=NUM_PASSES)

    return run


def by_method() -> Run:
    """Noise put in by the method."""
    return averaged(0.0)


def by_network() -> Run:
    """The network's own dropout."""
    return averaged(0.5)


ENTRY = Entry(
    title="Predictions for 10,000 images, 100 passes through 784-400-400-10",
    groups=(
        Group(
            contestants=(
                Contestant("plain passes", plain, (0, 1), 1),
                Contestant("marginax MCDropout", by_method, (0, 1), 1),
                Contestant("marginax MCDropout, the network's own", by_network, (0, 1), 1),
            ),
            targets=(
                Target("marginax MCDropout", "plain passes", at_most=1 / 0.85),
                Target("marginax MCDropout, the network's own", "plain passes", at_most=1 / 0.85),
            ),
        ),
    ),
)

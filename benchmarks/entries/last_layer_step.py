"""A step of the one-pass methods on the MLP 784-w-w-10, batch of 128, against our plain step of Adam.

`VBLL` trains the mean and the diagonal covariance of the last layer with the body. The body of an SNGP has the norms of
its weights found at every step, and 512 random features as head; it is trained by `MAP`.
"""

from functools import partial
from typing import Any

from benchmarks.entries.vi_step import BATCH, NUM_ROWS, RATE, ours
from benchmarks.harness.entry import Contestant, Entry, Group, Run, Target


def _run(model: Any, method: Any) -> Run:
    import numpy as np

    import marginax as mx

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, 784)).astype(np.float32)
    data = mx.data.Minibatches((x, generator.integers(0, 10, NUM_ROWS).astype(np.int32)), batch_size=BATCH)

    def run(num_epochs: int) -> None:
        mx.fit(model, data, method(num_epochs), key=0, num_chains=1, progress=False)

    return run


def last_layer(width: int) -> Run:
    """VBLL with a diagonal covariance."""
    import marginax as mx

    model = mx.Model(mx.nets.MLP(784, (width, width), 10, key=0), mx.likelihoods.Categorical())
    optimiser = mx.infer.Adam(learning_rate=RATE)
    return _run(
        model,
        lambda n: mx.infer.VBLL(mx.infer.MeanField(), num_epochs=n, batch_size=BATCH, optimiser=optimiser),
    )


def bounded(width: int) -> Run:
    """An SNGP."""
    import marginax as mx

    body = mx.nets.SpectralNormalised(mx.nets.MLP(784, (width,), width, key=0))
    net = mx.nets.WithHead(body, mx.nets.RandomFeatures(width, 512, 10, key=1))
    optimiser = mx.infer.Adam(learning_rate=RATE)
    model = mx.Model(net, mx.likelihoods.Categorical())
    return _run(model, lambda n: mx.infer.MAP(num_epochs=n, batch_size=BATCH, optimiser=optimiser))


_STEPS = NUM_ROWS / BATCH


def _group(width: int) -> Group:
    def name(text: str) -> str:
        return f"{text}, {width} units"

    return Group(
        contestants=(
            Contestant(name("marginax Adam"), partial(ours, "MAP", width, "Adam"), (1, 3), _STEPS),
            Contestant(name("marginax VBLL"), partial(last_layer, width), (1, 3), _STEPS),
            Contestant(name("marginax SNGP"), partial(bounded, width), (1, 3), _STEPS),
        ),
        targets=(
            Target(name("marginax VBLL"), name("marginax Adam"), at_most=2.0),
            Target(name("marginax SNGP"), name("marginax Adam"), at_most=3.0),
        ),
    )


ENTRY = Entry(
    title="Step of VBLL and SNGP on the MLP 784-w-w-10, batch of 128",
    groups=(_group(400),),
)

"""A step of each ensemble in one network, relative to one of MAP: the MLP 784-400-400-10 and LeNet, batch of 128, Adam.

Ratios without a target. A packed ensemble of four members is `DeepEnsemble` over networks of half of the width; a step
of four whole networks is there to compare with.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.harness.entry import Contestant, Entry, Group, Run

NUM_ROWS = 12_800  # 100 whole batches, 40 MB: more than the caches hold
BATCH = 128
NUM_MEMBERS, ALPHA = 4, 2
NETWORKS = ("MLP 784-400-400-10", "LeNet")


def _network(name: str) -> Any:
    import marginax as mx

    return mx.nets.LeNet(key=0) if name == "LeNet" else mx.nets.MLP(784, (400, 400), 10, key=0)


def _run(name: str, method_of: Callable[[Any, Any], Any], fraction: float = 1.0) -> Run:
    import numpy as np

    import marginax as mx

    generator = np.random.default_rng(0)
    shape = (28, 28) if name == "LeNet" else (784,)
    x = generator.normal(size=(NUM_ROWS, *shape)).astype(np.float32)
    y = generator.integers(0, 10, NUM_ROWS).astype(np.int32)
    data = mx.data.Minibatches((x, y), batch_size=BATCH)
    model = mx.Model(mx.nets.narrowed(_network(name), fraction), likelihood=mx.likelihoods.Categorical())

    def run(num_epochs: int) -> None:
        options = {"num_epochs": num_epochs, "batch_size": BATCH}
        mx.fit(model, data, method_of(mx.infer, options), key=0, progress=False)

    return run


def point(name: str) -> Run:
    """One network."""
    return _run(name, lambda infer, options: infer.MAP(**options))


def shared(name: str, method: str) -> Run:
    """Members in one network."""
    return _run(name, lambda infer, options: getattr(infer, method)(num_members=NUM_MEMBERS, **options))


def separate(name: str, fraction: float) -> Run:
    """Members that share nothing, of a fraction of the width."""
    return _run(name, lambda infer, options: infer.DeepEnsemble(NUM_MEMBERS, infer.MAP(**options)), fraction)


def _group(name: str) -> Group:
    steps, epochs = NUM_ROWS / BATCH, (1, 3)
    return Group(
        title=name,
        contestants=(
            Contestant("MAP", partial(point, name), epochs, steps),
            *(
                Contestant(method, partial(shared, name, method), epochs, steps)
                for method in ("BatchEnsemble", "Rank1VI", "MIMO")
            ),
            Contestant("packed", partial(separate, name, ALPHA / NUM_MEMBERS), epochs, steps),
            Contestant("DeepEnsemble", partial(separate, name, 1.0), epochs, steps),
        ),
        targets=(),
    )


ENTRY = Entry(
    title="A training step of four members in one network, batch of 128",
    groups=tuple(_group(name) for name in NETWORKS),
)

"""A training step of the MLP 784-400-400-10 (relu, Adam, batch of 128 gathered from 12,800 rows), against PyTorch.

Both sides pay for choosing and gathering the batch. Ours is the step of `mx.fit(..., mx.infer.MAP(...))` as the driver
runs it, with the gradient of the prior on top; PyTorch's is the usual loop, without a prior.
"""

from itertools import pairwise

from benchmarks.harness.entry import TORCH, Contestant, Entry, Group, Run, Target

NUM_ROWS = 12_800  # 100 whole batches, 40 MB: more than the caches hold
BATCH = 128
SIZES = (784, 400, 400, 10)


def marginax() -> Run:
    """MAP through the public interface."""
    import numpy as np

    import marginax as mx

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, SIZES[0])).astype(np.float32)
    y = generator.integers(0, SIZES[-1], NUM_ROWS).astype(np.int32)
    data = mx.data.Minibatches((x, y), batch_size=BATCH)
    net = mx.nets.MLP(in_size=SIZES[0], hidden=SIZES[1:-1], out_size=SIZES[-1], key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())

    def run(num_epochs: int) -> None:
        method = mx.infer.MAP(num_epochs=num_epochs, batch_size=BATCH, optimiser=mx.infer.Adam(learning_rate=1e-3))
        mx.fit(model, data, method, key=0, progress=False)

    return run


def pytorch(fused: bool) -> Run:
    """The usual training loop."""
    import torch

    torch.manual_seed(0)
    x, y = torch.randn(NUM_ROWS, SIZES[0]), torch.randint(0, SIZES[-1], (NUM_ROWS,))
    linear = [torch.nn.Linear(a, b) for a, b in pairwise(SIZES)]
    net = torch.nn.Sequential(linear[0], torch.nn.ReLU(), linear[1], torch.nn.ReLU(), linear[2])
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=fused or None)
    loss_function = torch.nn.CrossEntropyLoss()

    def run(num_epochs: int) -> None:
        for _ in range(num_epochs):
            for rows in torch.randperm(NUM_ROWS).split(BATCH):
                optimiser.zero_grad()
                loss = loss_function(net(x[rows]), y[rows])
                loss.backward()
                optimiser.step()

    return run


def _torch(name: str, fused: bool) -> Contestant:
    return Contestant(name, lambda: pytorch(fused), (1, 4), NUM_ROWS / BATCH, environment=TORCH, packages=("torch",))


ENTRY = Entry(
    title="Training step of the MLP 784-400-400-10, Adam, batch of 128",
    groups=(
        Group(
            contestants=(
                _torch("PyTorch, fused Adam", fused=True),
                _torch("PyTorch, default Adam", fused=False),
                Contestant("marginax", marginax, (1, 4), NUM_ROWS / BATCH),
            ),
            targets=(
                Target("marginax", "PyTorch, fused Adam", at_most=1.1),
                Target("marginax", "PyTorch, default Adam", at_most=1.1),
            ),
        ),
    ),
)

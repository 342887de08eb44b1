"""A training step of LeNet (20 and 50 maps, 500 hidden units, Adam, batch of 128 images), against PyTorch."""

from benchmarks.harness.entry import TORCH, Contestant, Entry, Group, Run, Target

NUM_ROWS = 2_560  # 20 whole batches
BATCH = 128


def marginax() -> Run:
    """MAP through the public interface."""
    import numpy as np

    import marginax as mx

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, 1, 28, 28)).astype(np.float32)
    y = generator.integers(0, 10, NUM_ROWS).astype(np.int32)
    data = mx.data.Minibatches((x, y), batch_size=BATCH)
    net = mx.nets.LeNet(in_shape=(1, 28, 28), channels=(20, 50), hidden=500, out_size=10, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())

    def run(num_epochs: int) -> None:
        method = mx.infer.MAP(num_epochs=num_epochs, batch_size=BATCH, optimiser=mx.infer.Adam(learning_rate=1e-3))
        mx.fit(model, data, method, key=0, progress=False)

    return run


def pytorch(fused: bool) -> Run:
    """The usual training loop."""
    import torch

    torch.manual_seed(0)
    x, y = torch.randn(NUM_ROWS, 1, 28, 28), torch.randint(0, 10, (NUM_ROWS,))
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 20, 5),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(20, 50, 5),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(50 * 4 * 4, 500),
        torch.nn.ReLU(),
        torch.nn.Linear(500, 10),
    )
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
    return Contestant(name, lambda: pytorch(fused), (1, 3), NUM_ROWS / BATCH, environment=TORCH, packages=("torch",))


ENTRY = Entry(
    title="Training step of LeNet (20 and 50 maps, 500 hidden), Adam, batch of 128 images of 28x28",
    groups=(
        Group(
            contestants=(
                _torch("PyTorch, fused Adam", fused=True),
                _torch("PyTorch, default Adam", fused=False),
                Contestant("marginax", marginax, (1, 3), NUM_ROWS / BATCH),
            ),
            targets=(
                Target("marginax", "PyTorch, fused Adam", at_most=1.6),
                Target("marginax", "PyTorch, default Adam", at_most=1.6),
            ),
        ),
    ),
)

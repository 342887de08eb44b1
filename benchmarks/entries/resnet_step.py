"""A training step of ResNet-20 (group normalisation, SGD with momentum, batch of 128 images), against PyTorch."""

from typing import Any

from benchmarks.harness.entry import TORCH, Contestant, Entry, Group, Run, Target

NUM_ROWS = 1_280  # 10 whole batches
BATCH = 128
GROUPS = 8
RATE, MOMENTUM = 0.01, 0.9


def marginax() -> Run:
    """MAP through the public interface."""
    import numpy as np

    import marginax as mx

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, 3, 32, 32)).astype(np.float32)
    y = generator.integers(0, 10, NUM_ROWS).astype(np.int32)
    data = mx.data.Minibatches((x, y), batch_size=BATCH)
    net = mx.nets.ResNet((3, 32, 32), 10, depth=20, normalisation=mx.nets.GroupNormalisation(GROUPS), key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())

    def run(num_epochs: int) -> None:
        optimiser = mx.infer.SGD(learning_rate=RATE, momentum=MOMENTUM)
        method = mx.infer.MAP(num_epochs=num_epochs, batch_size=BATCH, optimiser=optimiser)
        mx.fit(model, data, method, key=0, progress=False)

    return run


def pytorch(channels_last: bool) -> Run:
    """The usual training loop."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, num_in: int, num_out: int, stride: int):
            super().__init__()
            self.first = nn.Conv2d(num_in, num_out, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(num_out, num_out, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.GroupNorm(GROUPS, num_out) for _ in range(2)])
            self.shortcut = nn.Identity()
            if num_in != num_out:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(num_in, num_out, 1, stride, bias=False), nn.GroupNorm(GROUPS, num_out)
                )

        def forward(self, x: Any) -> Any:
            h = torch.relu(self.norms[0](self.first(x)))
            return torch.relu(self.shortcut(x) + self.norms[1](self.second(h)))

    torch.manual_seed(0)
    x, y = torch.randn(NUM_ROWS, 3, 32, 32), torch.randint(0, 10, (NUM_ROWS,))
    shapes = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
    net = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(GROUPS, 16), nn.ReLU()),
        *(Block(*shape) for shape in shapes),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    if channels_last:
        x, net = x.to(memory_format=torch.channels_last), net.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)
    loss_function = nn.CrossEntropyLoss()

    def run(num_epochs: int) -> None:
        for _ in range(num_epochs):
            for rows in torch.randperm(NUM_ROWS).split(BATCH):
                optimiser.zero_grad()
                loss = loss_function(net(x[rows]), y[rows])
                loss.backward()
                optimiser.step()

    return run


def _torch(name: str, channels_last: bool) -> Contestant:
    start = lambda: pytorch(channels_last)  # noqa: E731
    return Contestant(name, start, (1, 3), NUM_ROWS / BATCH, environment=TORCH, packages=("torch",))


ENTRY = Entry(
    title="Training step of ResNet-20 with group normalisation, SGD with momentum, batch of 128 images of 3x32x32",
    groups=(
        Group(
            contestants=(
                _torch("PyTorch", channels_last=False),
                _torch("PyTorch, channels last", channels_last=True),
                Contestant("marginax", marginax, (1, 3), NUM_ROWS / BATCH),
            ),
            targets=(
                Target("marginax", "PyTorch", at_most=1.0),
                Target("marginax", "PyTorch, channels last", at_most=1.0),
            ),
        ),
    ),
)

"""Training steps of ten MLPs 5-16-16-16-16-2 at once (Adam, heteroscedastic Gaussian), against a PyTorch loop over ten.

A step is one step of all ten. Every network has its own weights and its own order of the data.
"""

from functools import partial
from itertools import pairwise

from benchmarks.harness.entry import TORCH, Contestant, Entry, Group, Run, Target

NUM_NETWORKS = 10
NUM_ROWS = 1_280
SIZES = (5, 16, 16, 16, 16, 2)


def marginax(batch_size: int | None, all_cores: bool = False) -> Run:
    """A deep ensemble through the public interface."""
    import numpy as np

    import marginax as mx

    if all_cores:
        mx.use_cores()
    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, SIZES[0])).astype(np.float32)
    y = generator.normal(size=NUM_ROWS).astype(np.float32)
    net = mx.nets.MLP(in_size=SIZES[0], hidden=SIZES[1:-1], out_size=SIZES[-1], key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()))

    def run(num_epochs: int) -> None:
        member = mx.infer.MAP(num_epochs=num_epochs, batch_size=batch_size, optimiser=mx.infer.Adam(learning_rate=1e-3))
        mx.fit(model, (x, y), mx.infer.DeepEnsemble(NUM_NETWORKS, member=member), key=0, progress=False)

    return run


def pytorch(batch_size: int | None, num_threads: int) -> Run:
    """Ten networks, one after the other, at every step."""
    import torch

    torch.set_num_threads(num_threads)
    torch.manual_seed(0)
    x, y = torch.randn(NUM_ROWS, SIZES[0]), torch.randn(NUM_ROWS, 1)

    def build() -> torch.nn.Sequential:
        layers: list[torch.nn.Module] = []
        for a, b in pairwise(SIZES):
            layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])

    nets = [build() for _ in range(NUM_NETWORKS)]
    optimisers = [torch.optim.Adam(net.parameters(), lr=1e-3, fused=True) for net in nets]
    loss_function = torch.nn.GaussianNLLLoss()

    def step(net, optimiser, x, y):
        optimiser.zero_grad()
        output = net(x)
        scale = torch.nn.functional.softplus(output[:, 1:])
        loss_function(output[:, :1], y, scale.square()).backward()
        optimiser.step()

    def run(num_epochs: int) -> None:
        for _ in range(num_epochs):
            if batch_size is None:
                for net, optimiser in zip(nets, optimisers, strict=True):
                    step(net, optimiser, x, y)
                continue
            orders = [torch.randperm(NUM_ROWS).split(batch_size) for _ in nets]
            for batches in zip(*orders, strict=True):
                for net, optimiser, rows in zip(nets, optimisers, batches, strict=True):
                    step(net, optimiser, x[rows], y[rows])

    return run


def _group(batch_size: int | None) -> Group:
    steps = 1 if batch_size is None else NUM_ROWS // batch_size

    def epochs(low: int, high: int) -> tuple[int, int]:
        return max(1, low // steps), max(2, high // steps)

    threads = {f"PyTorch loop, {n} thread{'s' * (n > 1)}": n for n in (1, 2)}
    ours = {"marginax": False, "marginax, use_cores()": True}
    return Group(
        title="all rows" if batch_size is None else f"batch of {batch_size}",
        contestants=(
            *(
                Contestant(name, partial(pytorch, batch_size, n), epochs(40, 160), steps, TORCH, packages=("torch",))
                for name, n in threads.items()
            ),
            *(
                Contestant(name, partial(marginax, batch_size, cores), epochs(1_000, 4_000), steps)
                for name, cores in ours.items()
            ),
        ),
        targets=tuple(Target("marginax", name, at_most=0.2) for name in threads),
    )


ENTRY = Entry(
    title="A training step of each of ten MLPs 5-16-16-16-16-2, Adam",
    groups=tuple(_group(batch_size) for batch_size in (32, 128, None)),
)

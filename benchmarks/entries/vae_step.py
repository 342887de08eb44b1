"""A training step of the VAE 784-200-200-50-200-200-784 (relu, Adam, batch of 100 binary rows), against PyTorch.

Both sides pay for choosing and gathering the batch and for the noise, and have the divergence by its formula. Ours is
the step of `mx.fit(..., mx.infer.MAP(...))` as the driver runs it, with the gradient of the prior on top; PyTorch's is
the usual loop, without a prior: once as its example of a VAE has it, with batches from a `DataLoader` that collates
them row by row, and twice with batches gathered at once by their indices, which is the fastest we know.
"""

from itertools import pairwise
from typing import Any

from benchmarks.harness.entry import TORCH, Contestant, Entry, Group, Run, Target

NUM_ROWS = 10_000  # 100 whole batches, 31 MB: more than the caches hold
BATCH = 100
PIXELS, HIDDEN, LATENTS = 784, 200, 50


def marginax() -> Run:
    """MAP through the public interface."""
    import numpy as np

    import marginax as mx

    x = np.random.default_rng(0).integers(0, 2, size=(NUM_ROWS, PIXELS)).astype(np.float32)
    data = mx.data.Minibatches(mx.data.Rows({"x": x}), batch_size=BATCH)
    encoder = mx.nets.MLP(PIXELS, (HIDDEN, HIDDEN), 2 * LATENTS, key=0)
    decoder = mx.nets.MLP(LATENTS, (HIDDEN, HIDDEN), PIXELS, key=1)
    model = mx.latent.VAE(encoder, decoder, latent_size=LATENTS)

    def run(num_epochs: int) -> None:
        method = mx.infer.MAP(num_epochs=num_epochs, batch_size=BATCH, optimiser=mx.infer.Adam(learning_rate=1e-3))
        mx.fit(model, data, method, key=0, progress=False)

    return run


def pytorch(fused: bool, loader: bool) -> Run:
    """The usual training loop, with or without the usual loader."""
    import torch

    torch.manual_seed(0)
    x = torch.randint(0, 2, (NUM_ROWS, PIXELS)).float()

    def network(*sizes: int) -> Any:
        layers: list[Any] = []
        for n_in, n_out in pairwise(sizes):
            layers += [torch.nn.Linear(n_in, n_out), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])

    encoder, decoder = network(PIXELS, HIDDEN, HIDDEN, 2 * LATENTS), network(LATENTS, HIDDEN, HIDDEN, PIXELS)
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3, fused=fused or None)

    rows_of = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=BATCH, shuffle=True)

    def batches() -> Any:
        if loader:
            return (batch for (batch,) in rows_of)
        return (x[rows] for rows in torch.randperm(NUM_ROWS).split(BATCH))

    def run(num_epochs: int) -> None:
        for _ in range(num_epochs):
            for batch in batches():
                optimiser.zero_grad()
                mean, log_scale = encoder(batch).chunk(2, dim=1)
                logits = decoder(mean + log_scale.exp() * torch.randn_like(mean))
                fit = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch, reduction="sum")
                divergence = (0.5 * (mean**2 + (2 * log_scale).exp() - 1) - log_scale).sum()
                ((fit + divergence) / BATCH).backward()
                optimiser.step()

    return run


def _torch(name: str, fused: bool = False, loader: bool = False) -> Contestant:
    run = lambda: pytorch(fused, loader)  # noqa: E731
    return Contestant(name, run, (1, 4), NUM_ROWS / BATCH, environment=TORCH, packages=("torch",))


_PEERS = ("PyTorch, fused Adam", "PyTorch, default Adam", "PyTorch, default Adam, DataLoader")
ENTRY = Entry(
    title="Training step of the VAE 784-200-200-50-200-200-784, Adam, batch of 100",
    groups=(
        Group(
            contestants=(
                _torch(_PEERS[0], fused=True),
                _torch(_PEERS[1]),
                _torch(_PEERS[2], loader=True),
                Contestant("marginax", marginax, (1, 4), NUM_ROWS / BATCH),
            ),
            targets=tuple(Target("marginax", peer, at_most=0.67) for peer in _PEERS),
        ),
    ),
)

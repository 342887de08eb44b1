"""Training steps of an LSTM and of a transformer on sequences (Adam, batch of 64), against PyTorch."""

from typing import Any

from benchmarks.harness.entry import TORCH, Contestant, Entry, Group, Run, Target

NUM_ROWS = 1_280  # 20 whole batches
BATCH = 64
NUM_STEPS, NUM_FEATURES, NUM_CLASSES = 64, 16, 5
HIDDEN = 128
SIZE, DEPTH, HEADS, WIDTH = 64, 2, 4, 256


def marginax(kind: str) -> Run:
    """MAP through the public interface."""
    import numpy as np

    import marginax as mx

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, NUM_STEPS, NUM_FEATURES)).astype(np.float32)
    y = generator.integers(0, NUM_CLASSES, NUM_ROWS).astype(np.int32)
    data = mx.data.Minibatches((x, y), batch_size=BATCH)
    net: Any = mx.nets.LSTM(NUM_FEATURES, HIDDEN, out_size=NUM_CLASSES, every_step=False, key=0)
    if kind == "transformer":
        sizes: dict[str, Any] = {"size": SIZE, "depth": DEPTH, "num_heads": HEADS, "hidden": WIDTH}
        net = mx.nets.Transformer(NUM_FEATURES, NUM_CLASSES, **sizes, every_step=False, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())

    def run(num_epochs: int) -> None:
        method = mx.infer.MAP(num_epochs=num_epochs, batch_size=BATCH, optimiser=mx.infer.Adam(learning_rate=1e-3))
        mx.fit(model, data, method, key=0, progress=False)

    return run


def pytorch(kind: str) -> Run:
    """The usual training loop."""
    import torch
    from torch import nn

    class LastState(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTM(NUM_FEATURES, HIDDEN, batch_first=True)
            self.output = nn.Linear(HIDDEN, NUM_CLASSES)

        def forward(self, x: Any) -> Any:
            return self.output(self.cell(x)[1][0][0])

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
            layer = nn.TransformerEncoderLayer(SIZE, HEADS, WIDTH, **options)
            self.inputs = nn.Linear(NUM_FEATURES, SIZE)
            self.encoder = nn.TransformerEncoder(layer, DEPTH, norm=nn.LayerNorm(SIZE), enable_nested_tensor=False)
            self.output = nn.Linear(SIZE, NUM_CLASSES)
            self.register_buffer("positions", torch.randn(NUM_STEPS, SIZE))

        def forward(self, x: Any) -> Any:
            return self.output(self.encoder(self.inputs(x) + self.positions).mean(1))

    torch.manual_seed(0)
    x, y = torch.randn(NUM_ROWS, NUM_STEPS, NUM_FEATURES), torch.randint(0, NUM_CLASSES, (NUM_ROWS,))
    net = Encoder() if kind == "transformer" else LastState()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    loss_function = nn.CrossEntropyLoss()

    def run(num_epochs: int) -> None:
        for _ in range(num_epochs):
            for rows in torch.randperm(NUM_ROWS).split(BATCH):
                optimiser.zero_grad()
                loss = loss_function(net(x[rows]), y[rows])
                loss.backward()
                optimiser.step()

    return run


def _group(title: str, kind: str) -> Group:
    steps = NUM_ROWS / BATCH
    return Group(
        title=title,
        contestants=(
            Contestant("PyTorch", lambda: pytorch(kind), (1, 4), steps, environment=TORCH, packages=("torch",)),
            Contestant("marginax", lambda: marginax(kind), (1, 4), steps),
        ),
        targets=(Target("marginax", "PyTorch", at_most=1.1),),
    )


ENTRY = Entry(
    title="Training steps on sequences of 64 steps with 16 features, Adam, batch of 64",
    groups=(
        _group("LSTM with 128 units", "lstm"),
        _group("Transformer, 2 blocks of 64 features, 4 heads, 256 hidden", "transformer"),
    ),
)

"""A step of variational inference on the MLP 784-w-w-10, batch of 128: against our plain steps and three peers.

Ours is `VI` with local reparameterisation, run as `mx.fit` runs it, and `IVON`. Against our plain SGD step it uses
plain SGD too; peers and ours use Adam against each other. All sides choose and gather the batch, and have a normal
prior with the divergence in closed form where they offer it.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.harness.entry import POSTERIORS, VARIATIONAL, Contestant, Entry, Group, Run, Target

NUM_ROWS = 6_400
BATCH = 128
RATE = 1e-5


def _sizes(width: int) -> tuple[int, ...]:
    return (784, width, width, 10)


def _marginax(width: int, method_of: Callable[[Any, int], Any]) -> Run:
    import numpy as np

    import marginax as mx

    sizes = _sizes(width)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, sizes[0])).astype(np.float32)
    y = generator.integers(0, sizes[-1], NUM_ROWS).astype(np.int32)
    data = mx.data.Minibatches((x, y), batch_size=BATCH)
    net = mx.nets.MLP(in_size=sizes[0], hidden=sizes[1:-1], out_size=sizes[-1], key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())

    def run(num_epochs: int) -> None:
        mx.fit(model, data, method_of(mx.infer, num_epochs), key=0, num_chains=1, progress=False)

    return run


def ours(name: str, width: int, optimiser: str | None = None) -> Run:
    """A method of ours, with plain SGD or Adam."""

    def method(infer: Any, num_epochs: int) -> Any:
        options = {"num_epochs": num_epochs, "batch_size": BATCH}
        if optimiser == "SGD":
            options["optimiser"] = infer.SGD(learning_rate=RATE, momentum=0.0, schedule=infer.Constant())
        if optimiser == "Adam":
            options["optimiser"] = infer.Adam(learning_rate=RATE)
        return getattr(infer, name)(**options)

    return _marginax(width, method)


def _torch_data() -> tuple[Any, Any, Any]:
    import torch

    torch.manual_seed(0)
    return torch, torch.randn(NUM_ROWS, 784), torch.randint(0, 10, (NUM_ROWS,))


def _torch_loop(torch: Any, net: Any, x: Any, y: Any, loss: Callable[[Any, Any], Any]) -> Run:
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE, fused=True)

    def run(num_epochs: int) -> None:
        for _ in range(num_epochs):
            for rows in torch.randperm(NUM_ROWS).split(BATCH):
                optimiser.zero_grad()
                loss(x[rows], y[rows]).backward()
                optimiser.step()

    return run


def bayesian_torch(width: int) -> Run:
    """Its reparameterisation layers."""
    torch, x, y = _torch_data()
    from bayesian_torch.layers import LinearReparameterization

    layers = [LinearReparameterization(a, b) for a, b in pairwise(_sizes(width))]

    def loss(rows: Any, labels: Any) -> Any:
        kl = 0.0
        for i, layer in enumerate(layers):
            rows, part = layer(rows if i == 0 else torch.relu(rows))
            kl = kl + part
        return torch.nn.functional.cross_entropy(rows, labels) + kl / NUM_ROWS

    return _torch_loop(torch, torch.nn.ModuleList(layers), x, y, loss)


def torch_uncertainty(width: int) -> Run:
    """Its Bayesian linear layers and ELBO."""
    torch, x, y = _torch_data()
    # It imports torchvision, whose wheel expects operators that the CPU build of PyTorch does not have.
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torch_uncertainty.layers.bayesian import BayesLinear
    from torch_uncertainty.losses import ELBOLoss

    layers = [BayesLinear(a, b) for a, b in pairwise(_sizes(width))]
    net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    elbo = ELBOLoss(net, torch.nn.CrossEntropyLoss(), kl_weight=1 / NUM_ROWS, num_samples=1)
    return _torch_loop(torch, net, x, y, elbo)


def posteriors(width: int) -> Run:
    """Its diagonal variational inference, updated in place."""
    import posteriors as peer
    import torchopt

    torch, x, y = _torch_data()
    linear = [torch.nn.Linear(a, b) for a, b in pairwise(_sizes(width))]
    net = torch.nn.Sequential(linear[0], torch.nn.ReLU(), linear[1], torch.nn.ReLU(), linear[2])
    params = dict(net.named_parameters())

    def log_posterior(params: Any, batch: Any) -> Any:
        rows, labels = batch
        output = torch.func.functional_call(net, params, (rows,))
        prior = peer.diag_normal_log_prob(params, mean=0.0, sd_diag=1.0) / NUM_ROWS
        return -torch.nn.functional.cross_entropy(output, labels) + prior, output

    transform = peer.vi.diag.build(log_posterior, torchopt.adam(lr=RATE), temperature=1 / NUM_ROWS)
    state = transform.init(params)

    def run(num_epochs: int) -> None:
        nonlocal state
        for _ in range(num_epochs):
            for rows in torch.randperm(NUM_ROWS).split(BATCH):
                state, _ = transform.update(state, (x[rows], y[rows]), inplace=True)

    return run


_STEPS = NUM_ROWS / BATCH
_PEER = {"environment": VARIATIONAL, "packages": ("torch", "bayesian-torch", "torch-uncertainty")}
_OTHER = {"environment": POSTERIORS, "packages": ("torch", "posteriors")}


def _group(width: int) -> Group:
    def name(text: str) -> str:
        return f"{text}, {width} units"

    return Group(
        contestants=(
            Contestant(name("marginax SGD"), partial(ours, "MAP", width, "SGD"), (1, 3), _STEPS),
            Contestant(name("marginax VI by SGD"), partial(ours, "VI", width, "SGD"), (1, 3), _STEPS),
            Contestant(name("marginax Adam"), partial(ours, "MAP", width, "Adam"), (1, 3), _STEPS),
            Contestant(name("marginax VI by Adam"), partial(ours, "VI", width, "Adam"), (1, 3), _STEPS),
            Contestant(name("marginax IVON"), partial(ours, "IVON", width), (1, 3), _STEPS),
            Contestant(name("bayesian-torch"), partial(bayesian_torch, width), (1, 3), _STEPS, **_PEER),
            Contestant(name("torch-uncertainty"), partial(torch_uncertainty, width), (1, 3), _STEPS, **_PEER),
            Contestant(name("posteriors"), partial(posteriors, width), (1, 3), _STEPS, **_OTHER),
        ),
        targets=(
            Target(name("marginax VI by SGD"), name("marginax SGD"), at_most=2.3),
            Target(name("marginax VI by Adam"), name("bayesian-torch"), at_most=0.4),
            Target(name("marginax VI by Adam"), name("torch-uncertainty"), at_most=1.0),
            Target(name("marginax VI by Adam"), name("posteriors"), at_most=1.0),
            Target(name("marginax IVON"), name("marginax Adam"), at_most=1.3),
        ),
    )


ENTRY = Entry(
    title="Step of variational inference on the MLP 784-w-w-10, batch of 128",
    groups=(_group(400), _group(1200)),
)

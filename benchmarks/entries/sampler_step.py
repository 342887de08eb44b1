"""A step of SGLD and SGHMC on the MLP 784-400-400-10, batch of 128: against our plain SGD step and `posteriors`.

All sides pay for choosing and gathering the batch, and all have a normal prior. Ours run as `mx.fit` runs them.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.harness.entry import POSTERIORS, Contestant, Entry, Group, Run, Target

NUM_ROWS = 12_800  # 100 whole batches, 40 MB: more than the caches hold
BATCH = 128
SIZES = (784, 400, 400, 10)
STEP = 1e-8  # short enough for chains to stay where they are


def _marginax(method_of: Callable[[Any, int], Any]) -> Run:
    import numpy as np

    import marginax as mx

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, SIZES[0])).astype(np.float32)
    y = generator.integers(0, SIZES[-1], NUM_ROWS).astype(np.int32)
    data = mx.data.Minibatches((x, y), batch_size=BATCH)
    net = mx.nets.MLP(in_size=SIZES[0], hidden=SIZES[1:-1], out_size=SIZES[-1], key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())

    def run(num_epochs: int) -> None:
        method = method_of(mx.infer, num_epochs)
        mx.fit(model, data, method, key=0, num_chains=1, init=net, progress=False)

    return run


def sgd() -> Run:
    """MAP by stochastic gradient descent without momentum."""

    def method(infer: Any, num_epochs: int) -> Any:
        optimiser = infer.SGD(learning_rate=STEP, momentum=0.0, schedule=infer.Constant())
        return infer.MAP(num_epochs=num_epochs, batch_size=BATCH, optimiser=optimiser)

    return _marginax(method)


def sampler(name: str) -> Run:
    """A sampler of ours; one draw is kept at the end."""

    def method(infer: Any, num_epochs: int) -> Any:
        num_steps = num_epochs * NUM_ROWS // BATCH
        return getattr(infer, name)(step_size=STEP, num_warmup=0, num_samples=1, thin=num_steps, batch_size=BATCH)

    return _marginax(method)


def posteriors(name: str) -> Run:
    """The same by `posteriors`, updated in place."""
    import posteriors as peer
    import torch

    torch.manual_seed(0)
    x, y = torch.randn(NUM_ROWS, SIZES[0]), torch.randint(0, SIZES[-1], (NUM_ROWS,))
    linear = [torch.nn.Linear(a, b) for a, b in pairwise(SIZES)]
    net = torch.nn.Sequential(linear[0], torch.nn.ReLU(), linear[1], torch.nn.ReLU(), linear[2])
    params = dict(net.named_parameters())

    def log_posterior(params: Any, batch: Any) -> Any:
        rows, labels = batch
        output = torch.func.functional_call(net, params, (rows,))
        prior = peer.diag_normal_log_prob(params, mean=0.0, sd_diag=1.0)
        return NUM_ROWS * -torch.nn.functional.cross_entropy(output, labels) + prior, output

    transform = getattr(peer.sgmcmc, name).build(log_posterior, lr=STEP)
    state = transform.init(params)

    def run(num_epochs: int) -> None:
        nonlocal state
        for _ in range(num_epochs):
            for rows in torch.randperm(NUM_ROWS).split(BATCH):
                state, _ = transform.update(state, (x[rows], y[rows]), inplace=True)

    return run


_STEPS = NUM_ROWS / BATCH
_PEER = {"environment": POSTERIORS, "packages": ("torch", "posteriors")}

ENTRY = Entry(
    title="Step of stochastic-gradient samplers on the MLP 784-400-400-10, batch of 128",
    groups=(
        Group(
            contestants=(
                Contestant("marginax SGD", sgd, (1, 4), _STEPS),
                Contestant("marginax SGLD", partial(sampler, "SGLD"), (1, 4), _STEPS),
                Contestant("marginax SGHMC", partial(sampler, "SGHMC"), (1, 4), _STEPS),
                Contestant("posteriors SGLD", partial(posteriors, "sgld"), (1, 4), _STEPS, **_PEER),
                Contestant("posteriors SGHMC", partial(posteriors, "sghmc"), (1, 4), _STEPS, **_PEER),
            ),
            targets=(
                Target("marginax SGLD", "marginax SGD", at_most=1.4),
                Target("marginax SGHMC", "marginax SGD", at_most=1.4),
                Target("marginax SGLD", "posteriors SGLD", at_most=0.4),
                Target("marginax SGHMC", "posteriors SGHMC", at_most=0.4),
            ),
        ),
    ),
)

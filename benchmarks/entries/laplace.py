"""Laplace on the MLP 784-400-400-10: fits in batches of 128, and linearised predictions, against laplace-torch.

Both sides have the same images and the same weights, as if trained already. A fit is a pass over the images and all
that is factorised after it; predictions are probit probabilities. Times are per image: ours are those of 10,000 images
at once. laplace-torch forms the Jacobian of every image, 19 MB each for all weights: where it would need minutes to
hours for 10,000 it gets fewer, which is fair because its time is proportional to their number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.harness.entry import LAPLACE, Contestant, Entry, Group, Run, Target

NUM_IMAGES = 10_000
BATCH = 128
SIZES = (784, 400, 400, 10)


@dataclass(frozen=True)
class Kind:
    """An approximation, as both sides call it.

    Args:
        name: in the table.
        ours: structure and subset.
        theirs: structure and subset.
        num_fitted: images that laplace-torch is fitted to.
        num_predicted: images that laplace-torch predicts, in one call.
    """

    name: str
    ours: tuple[str, str]
    theirs: tuple[str, str]
    num_fitted: int
    num_predicted: int


KINDS = (
    Kind("diagonal", ("Diagonal", "All"), ("diag", "all"), num_fitted=BATCH, num_predicted=32),
    Kind("Kronecker", ("Kronecker", "All"), ("kron", "all"), num_fitted=NUM_IMAGES, num_predicted=16),
    Kind("last-layer dense", ("Dense", "LastLayer"), ("full", "last_layer"), NUM_IMAGES, NUM_IMAGES),
)


def images(num: int) -> tuple[Any, Any]:
    """Images and labels."""
    import numpy as np

    generator = np.random.default_rng(0)
    x = generator.normal(size=(num, SIZES[0])).astype(np.float32)
    return x, generator.integers(0, SIZES[-1], num)


def _weights() -> list[Any]:
    import numpy as np

    generator = np.random.default_rng(1)
    return [(generator.normal(size=(b, a)) * (2 / a) ** 0.5).astype(np.float32) for a, b in pairwise(SIZES)]


def ours(method_of: Callable[[Any], Any], *, trained: bool = True, num: int = NUM_IMAGES) -> Callable[[], Any]:
    """A fit through the public interface, of a network that is trained already or that is to be trained."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    import marginax as mx

    net = mx.nets.MLP(in_size=SIZES[0], hidden=SIZES[1:-1], out_size=SIZES[-1], key=0)
    weights = [jnp.asarray(weight) for weight in _weights()]
    net = eqx.tree_at(lambda net: [layer.weight for layer in net.layers], net, weights)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical(), prior=mx.priors.Normal(scale=1.0))
    data, method, init = images(num), method_of(mx), net if trained else None

    def fit() -> Any:
        posterior = mx.fit(model, data, method, init=init, key=0, progress=False)
        return jax.block_until_ready(posterior)

    return fit


def laplace(kind: Kind, mx: Any) -> Any:
    """Our method."""
    structure, subset = getattr(mx.curvature, kind.ours[0])(), getattr(mx, kind.ours[1])()
    predictive = mx.predict.Linearised(link=mx.predict.Probit())
    return mx.infer.Laplace(structure=structure, subset=subset, predictive=predictive)


def epoch(mx: Any) -> Any:
    """One epoch of training."""
    return mx.infer.MAP(num_epochs=1, batch_size=BATCH)


def peer(kind: Kind, num: int) -> Callable[[], Any]:
    """A fit by laplace-torch with its default backend."""
    from benchmarks.harness.laplace_reference import load_peer, network

    torch, Laplace = load_peer()
    from torch.utils.data import DataLoader, TensorDataset

    given = {"activation": "relu"}
    for i, weight in enumerate(_weights()):
        given |= {f"weight_{i}": weight, f"bias_{i}": weight[:, 0] * 0}
    net = network(given).float()
    x, y = images(num)
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=BATCH)
    structure, subset = kind.theirs

    def fit() -> Any:
        approximation = Laplace(net, "classification", subset_of_weights=subset, hessian_structure=structure)
        approximation.fit(loader)
        return approximation

    return fit


def _repeated(work: Callable[[], Any]) -> Run:
    def run(num: int) -> None:
        for _ in range(num):
            work()

    return run


def fit_ours(method_of: Callable[[Any], Any], *, trained: bool = True, num: int = NUM_IMAGES) -> Run:
    """Our fit."""
    return _repeated(ours(method_of, trained=trained, num=num))


def fit_peer(kind: Kind) -> Run:
    """Their fit."""
    return _repeated(peer(kind, kind.num_fitted))


def predict_ours(kind: Kind) -> Run:
    """Our predictions."""
    posterior, (x, _) = ours(partial(laplace, kind))(), images(NUM_IMAGES)
    return _repeated(lambda: posterior.predict(x).probs)


def predict_peer(kind: Kind) -> Run:
    """Their predictions, after a fit to a single batch: what they cost does not depend on it."""
    import torch

    approximation, (x, _) = peer(kind, BATCH)(), images(kind.num_predicted)
    rows = torch.from_numpy(x)
    return _repeated(lambda: approximation(rows, pred_type="glm", link_approx="probit"))


_PEER = {"environment": LAPLACE, "packages": ("torch", "laplace-torch", "curvlinops-for-pytorch")}
_OURS, _THEIRS = "marginax", "laplace-torch"


def _group(title: str, our_start: Callable[[], Run], their_start: Callable[[], Run], num: int) -> Group:
    return Group(
        title=f"{title}; {_THEIRS} on {num:,} images",
        contestants=(
            Contestant(_THEIRS, their_start, (0, 1), num, **_PEER),
            Contestant(_OURS, our_start, (0, 1), NUM_IMAGES),
        ),
        targets=(Target(_OURS, _THEIRS, at_most=1 / 3),),
    )


def _fit(kind: Kind) -> Group:
    return _group(
        f"fit, {kind.name}", partial(fit_ours, partial(laplace, kind)), partial(fit_peer, kind), kind.num_fitted
    )


def _predict(kind: Kind) -> Group:
    return _group(f"predict, {kind.name}", partial(predict_ours, kind), partial(predict_peer, kind), kind.num_predicted)


_EPOCH = Group(
    title="Kronecker pass and one epoch of training, 60,000 images",
    contestants=(
        Contestant("marginax MAP, one epoch", partial(fit_ours, epoch, trained=False, num=60_000), (0, 1), 60_000),
        Contestant("marginax Laplace", partial(fit_ours, partial(laplace, KINDS[1]), num=60_000), (0, 1), 60_000),
    ),
    targets=(Target("marginax Laplace", "marginax MAP, one epoch", at_most=2.5),),
)

ENTRY = Entry(
    title="Laplace on the MLP 784-400-400-10, batch of 128, linearised predictions with the probit",
    groups=(*map(_fit, KINDS), *map(_predict, KINDS), _EPOCH),
    unit="image",
)

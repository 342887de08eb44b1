"""Last-layer Laplace on a small residual network of PyTorch, by laplace-torch and by us after `mx.nets.from_torch`.

Both sides have the same module and the same images, 3 x 32 x 32. A fit is a pass over the images in batches of 128 and
all that is factorised after it; predictions are probit probabilities. The conversion is done before and not timed, in
the environment of the peer, which has PyTorch; ours reads the network from a file.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.entry import LAPLACE, Contestant, Entry, Group, Run, Target
from benchmarks.harness.environments import ROOT, python_of

NUM_IMAGES, BATCH, NUM_CLASSES = 2_000, 128, 10


def module() -> Any:
    """Three residual blocks of 16, 32 and 64 maps, batch normalisation in each."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, num_in: int, num_out: int, stride: int):
            super().__init__()
            self.conv1 = nn.Conv2d(num_in, num_out, 3, stride, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(num_out), nn.BatchNorm2d(num_out)
            self.conv2 = nn.Conv2d(num_out, num_out, 3, 1, 1, bias=False)
            self.down = nn.Conv2d(num_in, num_out, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            h = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(h + self.down(x))

    torch.manual_seed(0)
    blocks = (Block(3, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, NUM_CLASSES)).eval()


def images() -> tuple[Any, Any]:
    """Images and labels."""
    import numpy as np

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_IMAGES, 3, 32, 32)).astype(np.float32)
    return x, generator.integers(0, NUM_CLASSES, NUM_IMAGES)


def convert(folder: str) -> None:
    """Write the module as a network of ours."""
    import marginax as mx
    from marginax.files import save_tree

    save_tree(folder, "network", mx.nets.from_torch(module(), images()[0][:4]))


def converted() -> Any:
    """The module as a network, by a process that has PyTorch and our packages."""
    import marginax
    from marginax.files import load_tree

    places = [str(Path(marginax.__file__).parents[1]), sysconfig.get_paths()["purelib"]]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    with tempfile.TemporaryDirectory() as folder:
        command = [python_of(LAPLACE), "-m", "benchmarks.entries.torch_laplace", f"{folder}/network"]
        subprocess.run(command, cwd=ROOT, env=surroundings, check=True)
        return load_tree(f"{folder}/network", "network")


def ours() -> Callable[[], Any]:
    """A fit through the public interface, of the module as a network."""
    import jax

    import marginax as mx

    (x, y), network = images(), converted()
    model = mx.Model(network, mx.likelihoods.Categorical(), mx.priors.Normal(scale=1.0))
    predictive = mx.predict.Linearised(link=mx.predict.Probit())
    method = mx.infer.Laplace(structure=mx.curvature.Dense(), subset=mx.LastLayer(), predictive=predictive)

    def fit() -> Any:
        return jax.block_until_ready(mx.fit(model, (x, y), method, init=network, key=0, progress=False))

    return fit


def theirs() -> Callable[[], Any]:
    """The same by laplace-torch with its default backend."""
    from benchmarks.harness.laplace_reference import load_peer

    torch, Laplace = load_peer()
    from torch.utils.data import DataLoader, TensorDataset

    net, (x, y) = module(), images()
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=BATCH)

    def fit() -> Any:
        approximation = Laplace(net, "classification", subset_of_weights="last_layer", hessian_structure="full")
        approximation.fit(loader)
        return approximation

    return fit


def _repeated(work: Callable[[], Any]) -> Run:
    def run(num: int) -> None:
        for _ in range(num):
            work()

    return run


def fit(side: Callable[[], Callable[[], Any]]) -> Run:
    """Fits."""
    return _repeated(side())


def predict_ours() -> Run:
    """Our predictions."""
    posterior, (x, _) = ours()(), images()
    return _repeated(lambda: posterior.predict(x).probs)


def predict_theirs() -> Run:
    """Their predictions, in batches as they were fitted: for all images at once their Jacobians are large."""
    import torch

    approximation, (x, _) = theirs()(), images()
    batches = torch.from_numpy(x).split(BATCH)
    return _repeated(lambda: [approximation(part, pred_type="glm", link_approx="probit") for part in batches])


_PACKAGES = ("torch", "laplace-torch", "curvlinops-for-pytorch")


def _group(title: str, our_start: Callable[[], Run], their_start: Callable[[], Run]) -> Group:
    return Group(
        title=title,
        contestants=(
            Contestant("laplace-torch", their_start, (0, 1), NUM_IMAGES, environment=LAPLACE, packages=_PACKAGES),
            Contestant("marginax", our_start, (0, 1), NUM_IMAGES),
        ),
        targets=(Target("marginax", "laplace-torch", at_most=0.5),),
    )


ENTRY = Entry(
    title="Last-layer Laplace on a residual network of PyTorch, 2,000 images",
    groups=(
        _group("fit", partial(fit, ours), partial(fit, theirs)),
        _group("predict", predict_ours, predict_theirs),
    ),
    unit="image",
)


if __name__ == "__main__":
    convert(*sys.argv[1:])

"""Every ready network by one method of every family: it works, or it is refused by name. A new one is one new row.

What works has finite predictions that are not those of one network: draws differ wherever the method is Bayesian.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.infer import HMC, IVON, MAP, MCLMC, MILE, NUTS, SGHMC, SVGD, SWAG, VI
from marginax.nets import AbstractRecurrent, AbstractResidual


def raveled(net):
    return eqx.nn.Sequential([net, eqx.nn.Lambda(jnp.ravel)])


@dataclass(frozen=True)
class Network:
    """How it is made, shapes of an input and of the outputs, and the least variance that few steps must leave."""

    make: Any
    x_shape: tuple[int, ...]
    num_outputs: int = 1
    least: float = 1e-4


IMAGE = {"channels": 2, "normalisation": mx.nets.GroupNormalisation(2), "key": 0}
FILTERED = {**IMAGE, "normalisation": mx.nets.FilterResponse()}
STEPS = {"size": 4, "depth": 1, "num_heads": 2, "hidden": 4, "every_step": False, "key": 0}


def before(body, **options):
    return mx.nets.WithHead(body, mx.nets.Transformer(body.num_features, 1, **STEPS, **options))


NETWORKS = {
    "MLP": Network(lambda: mx.nets.MLP(2, (4,), 1, key=0), (2,)),
    "LeNet": Network(lambda: mx.nets.LeNet((1, 16, 16), (2, 2), 4, 1, key=0), (1, 16, 16)),
    "ResNet": Network(lambda: mx.nets.ResNet((1, 4, 4), 1, depth=8, **IMAGE), (1, 4, 4)),
    "WideResNet": Network(lambda: mx.nets.WideResNet((1, 5, 5), 1, depth=10, width=1, **FILTERED), (1, 5, 5)),
    "UNet": Network(lambda: raveled(mx.nets.UNet((1, 4, 4), (2, 4), 1, groups=2, key=0)), (1, 4, 4), 16),
    "ConvEncoder": Network(lambda: mx.nets.ConvEncoder((1, 4, 4), (2, 2), 1, key=0), (1, 4, 4)),
    "ConvDecoder": Network(lambda: raveled(mx.nets.ConvDecoder(2, (2,), (1, 4, 4), key=0)), (2,), 16),
    "GRU": Network(lambda: mx.nets.GRU(2, 3, out_size=1, every_step=False, key=0), (5, 2)),
    "LSTM, tokens": Network(lambda: raveled(mx.nets.LSTM(2, 3, out_size=1, padded=True, num_tokens=2, key=0)), (5,), 5),
    "TemporalConvolution": Network(
        lambda: mx.nets.TemporalConvolution(2, 1, channels=(3, 3), every_step=False, key=0), (5, 2)
    ),
    "Transformer": Network(lambda: mx.nets.Transformer(2, 1, **STEPS), (5, 2)),
    "Transformer, padded, dropout": Network(
        lambda: mx.nets.Transformer(1, 1, **STEPS, padded=True, dropout=0.1), (5, 2)
    ),
    "Transformer of patches": Network(lambda: before(mx.nets.Patches((1, 4, 4), 2)), (1, 4, 4)),
    "Transformer of columns": Network(lambda: before(mx.nets.Columns(3)), (3,)),
    "ResidualMLP": Network(lambda: mx.nets.ResidualMLP(2, 4, depth=1, out_size=1, key=0), (2,)),
    "RandomFeatures": Network(lambda: mx.nets.RandomFeatures(2, 6, 1, key=0), (2,)),
    "SpectralNormalised, before random features": Network(
        lambda: mx.nets.WithHead(
            mx.nets.SpectralNormalised(mx.nets.ResidualMLP(2, 4, depth=1, key=0)),
            mx.nets.RandomFeatures(4, 6, 1, key=1),
        ),
        (2,),
    ),
    "LowRankAdapted": Network(  # which begins at a change of nothing
        lambda: mx.nets.LowRankAdapted(mx.nets.MLP(2, (4,), 1, key=0), 1, key=1), (2,), least=1e-10
    ),
}

TRAINING = MAP(num_epochs=3)
CHAIN = {"num_warmup": 10, "num_samples": 5}
METHODS = {
    "MAP": TRAINING,
    "HMC": HMC(**CHAIN, max_leapfrog=4),
    "NUTS": NUTS(**CHAIN, max_tree_depth=2),
    "SGHMC": SGHMC(**CHAIN, batch_size=4),
    "VI, local": VI(num_epochs=3),
    "VI, flipout": VI(num_epochs=3, estimator=mx.infer.Flipout()),
    "VI, low rank, flipout": VI(mx.infer.LowRank(1), num_epochs=3, estimator=mx.infer.Flipout()),
    "BayesByBackprop": mx.infer.BayesByBackprop(num_epochs=3),
    "MCDropout": mx.infer.MCDropout(num_epochs=3),
    "ConcreteDropout": mx.infer.ConcreteDropout(num_epochs=3),
    "DropConnect": mx.infer.DropConnect(num_epochs=3, rate=0.3),
    "Laplace, diagonal": mx.infer.Laplace(structure=mx.curvature.Diagonal(), training=TRAINING),
    "Laplace, Kronecker": mx.infer.Laplace(structure=mx.curvature.Kronecker(), training=TRAINING),
    "Laplace, EKFAC": mx.infer.Laplace(structure=mx.curvature.EKFAC(), training=TRAINING),
    "Laplace, last layer": mx.infer.Laplace(subset=mx.LastLayer(), training=TRAINING),
    "IVON": IVON(num_epochs=3),
    "SWAG": SWAG(rank=2, num_snapshots=4, every=1, training=TRAINING),
    "DeepEnsemble": mx.infer.DeepEnsemble(2, TRAINING),
    "SVGD": SVGD(3, num_epochs=3),
    "MILE": MILE(2, num_epochs=3, sampler=MCLMC(**CHAIN)),
}

REFUSED: dict[tuple[str, str], str] = {}
"""What is refused, and the words that name it."""

DEFAULT = {
    ("GRU", "Laplace, Kronecker"),
    ("LSTM, tokens", "MCDropout"),
    ("Transformer", "Laplace, last layer"),
    ("TemporalConvolution", "Laplace, Kronecker"),
    ("MLP", "DropConnect"),
}
"""What every run of the tests looks at; the rest takes long."""

CASES = [
    pytest.param(network, method, marks=() if (network, method) in DEFAULT else pytest.mark.slow)
    for network in NETWORKS
    for method in METHODS
]


@pytest.mark.parametrize(("network", "method"), CASES)
def test_it_works_or_is_refused_by_name(network, method):
    row = NETWORKS[network]
    rng = np.random.default_rng(0)
    x, y = rng.integers(-1, 2, size=(8, *row.x_shape)), rng.normal(size=(8, row.num_outputs))
    x = x if "tokens" in network else x.astype(float)  # tokens are ints
    model = mx.Model(row.make(), mx.likelihoods.Gaussian(0.5))
    if (network, method) in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[network, method]):
            mx.fit(model, (x, y), METHODS[method], key=0)
        return
    prediction = mx.fit(model, (x, y), METHODS[method], key=0).predict(x)
    assert np.isfinite(prediction.mean).all()
    assert np.isfinite(prediction.std).all()
    epistemic = np.asarray(prediction.epistemic)
    if method == "MAP":
        np.testing.assert_array_equal(epistemic, 0.0)
    else:
        assert (epistemic > row.least).any()


def test_every_ready_network_has_a_row():
    """A class of `mx.nets` that is a network: called per example, and made anew with other weights."""
    parts = {"WithHead", "TorchNetwork", "Augmented"}  # of networks, and of modules from elsewhere
    ready = {
        name
        for name in mx.nets.__all__
        if isinstance(thing := getattr(mx.nets, name), type)
        and issubclass(thing, eqx.Module)
        and hasattr(thing, "reinitialise")
        and thing not in (AbstractRecurrent, AbstractResidual)
    }
    assert ready - parts == {name.partition(",")[0].partition(" ")[0] for name in NETWORKS}


def test_paths_of_layers_begin_at_the_network_and_end_at_a_layer():
    for row in NETWORKS.values():
        net = row.make()
        paths = {leaf.path for leaf in mx.Model(net, mx.likelihoods.Gaussian()).leaves}
        of_weights = [layer for layer in mx.nets.layer_paths(net) if not layer.endswith("/layer")]  # else it is fixed
        assert all(any(path.startswith(f"{layer}/") for path in paths) for layer in of_weights)
        assert jax.tree.structure(net) == jax.tree.structure(row.make())

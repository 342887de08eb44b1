"""Active learning on MNIST from 20 labels: how many labels each way of asking needs.

    make bench NAME=active                                   BALD, variation ratios and random; three repeats
    make bench NAME="active BALD --budget 1000 --repeats 1"  a full run

Gal, Islam & Ghahramani (2017): a convnet with dropout, ten labels a round, of two thousand candidates; error on the
10,000 test images. Published there, for 10% and 5% error: BALD 145 and 335 labels, variation ratios 120 and 295, random
255 and 835. A pool of 60,000 images; the first 20 labels are two of each class, the same for all ways of asking.
"""

import argparse
import time
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks import report

WAYS = ("BALD", "VariationRatios", "Random")
PUBLISHED = {"BALD": (145, 335), "VariationRatios": (120, 295), "Random": (255, 835)}
ERRORS = (0.10, 0.05)
FIRST = 20
MOST_LABELS, MOST_OF_RANDOM = 200, 0.65


def main(arguments: list[str]) -> None:
    """Run the studies, print labels needed, save the record and the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks active", description=__doc__)
    parser.add_argument("ways", nargs="*", default=list(WAYS), help=", ".join(WAYS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=int, default=380, help="labels to ask for after the first 20 (default 380)")
    parser.add_argument("--rate", type=float, default=0.25, help="of dropout (default 0.25)")
    parser.add_argument("--samples", type=int, default=20, help="draws to score and judge with (default 20)")
    parser.add_argument("--epochs", type=int, default=50, help="a round (default 50)")
    parser.add_argument("--scale", type=float, default=0.3, help="of the prior")
    parser.add_argument("--rate0", type=float, default=1e-3, help="lr")
    parser.add_argument("--test", type=int, default=10000)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args(arguments)
    console = report.console()
    curves: dict[str, list[Any]] = {}
    with report.progress(console) as say:
        for way in options.ways:
            for repeat in range(options.repeats):
                say(f"{way}: repeat {repeat + 1}/{options.repeats}")
                began = time.perf_counter()
                curves.setdefault(way, []).append(study(way, repeat, options))
                c = curves[way][-1]
                print(
                    way,
                    repeat,
                    f"{time.perf_counter() - began:.0f} s",
                    [c.labels_to_reach(e) for e in (0.15, 0.1, 0.07, 0.05)],
                    [
                        (int(n), round(float(e), 3), round(float(s), 1))
                        for n, e, s in list(zip(c.num_labels, c.error, c.seconds))[::4]
                    ],
                    flush=True,
                )


def study(way: str, repeat: int, options: argparse.Namespace) -> Any:
    """The learning curve of one study."""
    import marginax as mx

    (x, y), test = mx.data.load_mnist("train"), mx.data.load_mnist("test")
    generator = np.random.default_rng(repeat)
    order = generator.permutation(len(y))
    first = np.concatenate([order[y[order] == label][: FIRST // 10] for label in range(10)])
    net = mx.nets.LeNet(channels=(16, 32), hidden=128, dropout=options.rate, key=repeat)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical(), prior=mx.priors.Normal(options.scale))
    return mx.decide.learn_actively(
        model,
        mx.decide.Pool(x, rows=first, y=y[first]),
        mx.decide.KnownLabels(y),
        mx.infer.MCDropout(num_epochs=options.epochs, batch_size=32, optimiser=mx.infer.Adam(options.rate0)),
        getattr(mx.decide, way)(),
        batch_size=10,
        budget=options.budget,
        max_pool=2000,
        num_samples=options.samples,
        test=(test[0][: options.test], test[1][: options.test]),
        warm_start=not options.cold,
        key=repeat,
    ).curve

"""Published results, run again by one command each: `marginax reproduce NAME`.

An experiment is a file here that uses the public API only, and says which published figure each of its own stands
beside. To add one: its file, its line below, its test.
"""

import importlib

from marginax.reproduce.experiment import Experiment, Record, Row, Workbench, reproduce
from marginax.reproduce.series import reproduce_series

__all__ = [
    "Experiment",
    "Record",
    "Row",
    "Workbench",
    "classics",
    "experiment",
    "names",
    "reproduce",
    "reproduce_series",
]

_CLASSICS = {  # what the field's courses are built on: `marginax reproduce classics`, `make reproduce`
    "mlp-mnist": "marginax.reproduce.mlp_mnist",
    "blundell-mnist": "marginax.reproduce.blundell_mnist",
    "blundell-pruning": "marginax.reproduce.blundell_pruning",
    "blundell-regression": "marginax.reproduce.blundell_regression",
    "fashion-ood": "marginax.reproduce.fashion_ood",
    "gal-lenet": "marginax.reproduce.gal_lenet",
    "gal-rotated-one": "marginax.reproduce.gal_rotated_one",
    "gal-co2": "marginax.reproduce.gal_co2",
    "guo-calibration": "marginax.reproduce.guo_calibration",
    "logistic-boundary": "marginax.reproduce.logistic_boundary",
    "sgld-vs-hmc": "marginax.reproduce.sgld_vs_hmc",
    "uci": "marginax.reproduce.uci",
    "mcmc-zoo": "marginax.reproduce.mcmc_zoo",
    "combined": "marginax.reproduce.combined",
}
_OTHERS = {
    "augmentation": "marginax.reproduce.augmentation",
    "bandits": "marginax.reproduce.bandits",
    "bayes-opt": "marginax.reproduce.bayes_opt",
    "continual": "marginax.reproduce.continual",
    "crowds": "marginax.reproduce.crowds",
    "digits": "marginax.reproduce.digits",
    "molecules": "marginax.reproduce.molecules",
    "noisy-mnist": "marginax.reproduce.noisy_mnist",
    "one-shot": "marginax.reproduce.one_shot",
    "one-shot-invented": "marginax.reproduce.one_shot_invented",
    "relabelling": "marginax.reproduce.relabelling",
    "segmentation": "marginax.reproduce.segmentation",
    "self-supervised": "marginax.reproduce.self_supervised",
    "semi-supervised": "marginax.reproduce.semi_supervised",
}
_EXPERIMENTS = dict(sorted((_CLASSICS | _OTHERS).items()))


def names() -> tuple[str, ...]:
    """Of all experiments."""
    return tuple(_EXPERIMENTS)


def classics() -> tuple[str, ...]:
    """Of those that `marginax reproduce classics` runs one after the other.

    >>> set(classics()) < set(names())
    True
    """
    return tuple(_CLASSICS)


def experiment(name: str) -> Experiment:
    """By its name.

    >>> experiment("digits").title
    'Models of handwritten digits'
    """
    if name not in _EXPERIMENTS:
        raise ValueError(f"name must be one of {', '.join(_EXPERIMENTS)}, got {name!r}")
    return importlib.import_module(_EXPERIMENTS[name]).EXPERIMENT

"""Published results, run again by one command each: `marginax reproduce NAME`.

An experiment is a file here that uses the public API only, and says which published figure each of its own stands
beside. To add one: its file, its line below, its test.
"""

import importlib

from marginax.reproduce.experiment import Experiment, Record, Row, Workbench, reproduce

__all__ = ["Experiment", "Record", "Row", "Workbench", "experiment", "names", "reproduce"]

_EXPERIMENTS = {
    "augmentation": "marginax.reproduce.augmentation",
    "bandits": "marginax.reproduce.bandits",
    "bayes-opt": "marginax.reproduce.bayes_opt",
    "blundell-regression": "marginax.reproduce.blundell_regression",
    "crowds": "marginax.reproduce.crowds",
    "digits": "marginax.reproduce.digits",
    "gal-co2": "marginax.reproduce.gal_co2",
    "gal-rotated-one": "marginax.reproduce.gal_rotated_one",
    "logistic-boundary": "marginax.reproduce.logistic_boundary",
    "mcmc-zoo": "marginax.reproduce.mcmc_zoo",
    "molecules": "marginax.reproduce.molecules",
    "one-shot": "marginax.reproduce.one_shot",
    "one-shot-invented": "marginax.reproduce.one_shot_invented",
    "segmentation": "marginax.reproduce.segmentation",
    "self-supervised": "marginax.reproduce.self_supervised",
    "sgld-vs-hmc": "marginax.reproduce.sgld_vs_hmc",
}


def names() -> tuple[str, ...]:
    """Of all experiments."""
    return tuple(_EXPERIMENTS)


def experiment(name: str) -> Experiment:
    """By its name.

    >>> experiment("digits").title
    'Models of handwritten digits'
    """
    if name not in _EXPERIMENTS:
        raise ValueError(f"name must be one of {', '.join(_EXPERIMENTS)}, got {name!r}")
    return importlib.import_module(_EXPERIMENTS[name]).EXPERIMENT

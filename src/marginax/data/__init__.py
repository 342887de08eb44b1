"""Data: arrays in memory, batches as pure functions of step and key, files larger than memory, real data sets."""

from marginax.data.arrays import Arrays, DataSpec, Rows, as_arrays, standardise
from marginax.data.augmented import AugmentedSource, Mixup, augment
from marginax.data.bandits import load_bandit
from marginax.data.crowds import CrowdData, as_answers, load_crowd, majority_vote
from marginax.data.datasets import (
    load_binarized_mnist,
    load_cifar10_small,
    load_co2,
    load_fashion_mnist,
    load_lidc,
    load_mnist,
    load_omniglot,
    load_sunspots,
    load_uci,
)
from marginax.data.growing import GrowingMinibatches
from marginax.data.image_files import ImageFiles
from marginax.data.image_folder import ImageFolder, load_images
from marginax.data.mapped import MappedFiles
from marginax.data.missing import MISSING
from marginax.data.molecules import SelfiesTokenizer, canonical_smiles, load_qm9, read_molecule
from marginax.data.scaling import Scaling, moments_of, warn_of_far_values
from marginax.data.sources import AbstractSource, Batch, FullBatch, Minibatches, as_source
from marginax.data.tables import Table, read_table
from marginax.data.transforms import (
    AbstractTransform,
    Flip,
    GaussianNoise,
    Jitter,
    RandomCrop,
    Rotate,
    Rotations,
    Shift,
    TimeShift,
)

__all__ = [
    "MISSING",
    "AbstractSource",
    "AbstractTransform",
    "Arrays",
    "AugmentedSource",
    "Batch",
    "CrowdData",
    "DataSpec",
    "Flip",
    "FullBatch",
    "GaussianNoise",
    "GrowingMinibatches",
    "ImageFiles",
    "ImageFolder",
    "Jitter",
    "MappedFiles",
    "Minibatches",
    "Mixup",
    "RandomCrop",
    "Rotate",
    "Rotations",
    "Rows",
    "Scaling",
    "SelfiesTokenizer",
    "Shift",
    "Table",
    "TimeShift",
    "as_answers",
    "as_arrays",
    "as_source",
    "augment",
    "canonical_smiles",
    "load_bandit",
    "load_binarized_mnist",
    "load_cifar10_small",
    "load_co2",
    "load_crowd",
    "load_fashion_mnist",
    "load_images",
    "load_lidc",
    "load_mnist",
    "load_omniglot",
    "load_qm9",
    "load_sunspots",
    "load_uci",
    "majority_vote",
    "moments_of",
    "read_molecule",
    "read_table",
    "standardise",
    "warn_of_far_values",
]

"""What a benchmark consists of. Nothing but the standard library here: peers' environments import this too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Run = Callable[[int], Any]
"""Do a number of units of work and return when they are done."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment under `.bench/`, made when first needed.

    Args:
        name: of the folder.
        packages: installed one after the other, so that the first decides which build of a shared dependency is used.
    """

    name: str
    packages: tuple[str, ...]


TORCH = Environment("torch", ("torch==2.13.0", "numpy"))
BDE = Environment("bde", ("sklearn-contrib-bde==1.0.2",))
VARIATIONAL = Environment(
    "variational",
    ("torch==2.13.0", "torchvision==0.28.0", "bayesian-torch==0.5.0", "torch-uncertainty[cpu]==0.13.0"),
)
POSTERIORS = Environment("posteriors", ("torch==2.13.0", "optree==0.13.1", "posteriors==0.1.1"))
LAPLACE = Environment(
    "laplace",
    ("torch==2.13.0", "torchvision==0.28.0", "numpy", "curvlinops-for-pytorch==3.0.1", "laplace-torch==0.3"),
)


@dataclass(frozen=True)
class Contestant:
    """One way to do the work.

    Args:
        name: in the table.
        start: builds data and model in the contestant's own process and returns what does the work.
        units: two amounts of work, such as numbers of epochs. What counts is the time of the second minus that of the
            first, so set-up and compilation cancel; (0, n) counts all of it.
        steps_per_unit: optimisation steps in a unit.
        environment: None for the project's own.
        packages: whose versions are written down.
    """

    name: str
    start: Callable[[], Run]
    units: tuple[int, int]
    steps_per_unit: float = 1.0
    environment: Environment | None = None
    packages: tuple[str, ...] = ("marginax", "jax", "equinox", "optax")

    @property
    def steps(self) -> float:
        """Steps by which the longer run is longer."""
        return (self.units[1] - self.units[0]) * self.steps_per_unit


@dataclass(frozen=True)
class Target:
    """A claim: the time of `ours` is at most `at_most` times that of `peer`."""

    ours: str
    peer: str
    at_most: float


@dataclass(frozen=True)
class Group:
    """Contestants that do the same work and are compared with each other."""

    contestants: tuple[Contestant, ...]
    targets: tuple[Target, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Entry:
    """A benchmark.

    Args:
        title: one line that says what is timed.
        groups: one or several comparisons.
        unit: what one step is called in the table.
    """

    title: str
    groups: tuple[Group, ...]
    unit: str = "step"

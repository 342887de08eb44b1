"""What exists, when to use it, and what it costs: the list behind `marginax methods` and `marginax demo`."""

from dataclasses import dataclass

from marginax.infer._method import AbstractMethod
from marginax.infer.ensembles import AnchoredEnsemble, DeepEnsemble
from marginax.infer.laplace import Laplace
from marginax.infer.map import MAP, MLE
from marginax.infer.nuts import NUTS


@dataclass(frozen=True)
class Entry:
    """A method with its defaults, in words."""

    name: str
    method: AbstractMethod
    use_when: str
    cost: str


def catalogue() -> tuple[Entry, ...]:
    """Every method, from the cheapest to the most exact.

    >>> [entry.name for entry in catalogue()][:2]
    ['MLE', 'MAP']
    """
    return (
        Entry("MLE", MLE(), "you want the classical fit to compare with; a point", "1 training run"),
        Entry("MAP", MAP(), "you want one good network; a point, and a start for others", "1 training run"),
        Entry("Laplace", Laplace(), "you have a trained network and want its uncertainty", "MAP and one epoch more"),
        Entry(
            "DeepEnsemble",
            DeepEnsemble(),
            "you want good predictions with little thought",
            "10 training runs",
        ),
        Entry(
            "AnchoredEnsemble",
            AnchoredEnsemble(),
            "an ensemble that is Bayesian: exact for linear models",
            "10 training runs",
        ),
        Entry(
            "NUTS",
            NUTS(),
            "small data and network, and you want the posterior itself",
            "10^4 to 10^6 gradients",
        ),
    )

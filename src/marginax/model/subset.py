"""Which weights are random. The others stay where the network has them."""

import abc
from fnmatch import fnmatchcase

import equinox as eqx

from marginax.files import register


class AbstractSubset(eqx.Module):
    """A choice of leaves by their paths, such as "layers/0/weight"."""

    @abc.abstractmethod
    def select(self, paths: list[str]) -> list[bool]:
        """One flag per path."""


@register("subset/all")
class All(AbstractSubset):
    """Every weight is random."""

    def select(self, paths: list[str]) -> list[bool]:
        """All of them."""
        return [True] * len(paths)


@register("subset/last_layer")
class LastLayer(AbstractSubset):
    """Only the last layer, that is the last group of leaves under one parent in the order of the network's fields.

    >>> LastLayer().select(["layers/0/weight", "layers/0/bias", "layers/1/weight", "layers/1/bias"])
    [False, False, True, True]
    """

    def select(self, paths: list[str]) -> list[bool]:
        """The leaves that share the parent of the last one."""
        parent = paths[-1].rpartition("/")[0]
        return [path.rpartition("/")[0] == parent for path in paths]


@register("subset/paths")
class Paths(AbstractSubset):
    """Leaves whose path matches one of the glob patterns.

    >>> Paths("layers/1/*").select(["layers/0/weight", "layers/1/weight"])
    [False, True]
    """

    patterns: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, *patterns: str):
        """Take glob patterns such as "layers/2/*" or "*/bias"."""
        if not patterns or not all(isinstance(p, str) for p in patterns):
            raise ValueError(f"Paths needs one or more glob patterns, got {patterns!r}")
        self.patterns = patterns

    def select(self, paths: list[str]) -> list[bool]:
        """Every pattern must be of use."""
        for pattern in self.patterns:
            if not any(fnmatchcase(path, pattern) for path in paths):
                raise ValueError(f"subset pattern {pattern!r} matches no leaf of the network; its leaves are {paths}")
        return [any(fnmatchcase(path, pattern) for pattern in self.patterns) for path in paths]

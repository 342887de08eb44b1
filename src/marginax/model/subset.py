"""Which weights are random. The others stay where the network has them."""

import abc
from fnmatch import fnmatchcase
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marginax.files import register


class AbstractSubset(eqx.Module):
    """Which weights: leaves by their paths, such as "layers/0/weight", whole or in part."""

    @abc.abstractmethod
    def select(self, paths: list[str]) -> list[bool]:
        """One flag per path: whether weights of that leaf are in."""

    def check(self, network: Any) -> None:
        """Raise if the subset has no meaning for this network."""

    @property
    def num_chosen(self) -> int | None:
        """How many single weights of those leaves are in, which `choose` finds; None for all of them."""
        return None

    def choose(self, precision: Float[Array, " size"]) -> Int[Array, " chosen"]:
        """Places of the single weights, given the diagonal of the posterior's precision, in increasing order."""
        return jnp.arange(precision.shape[0])


@register("subset/all")
class All(AbstractSubset):
    """Every weight is random."""

    def select(self, paths: list[str]) -> list[bool]:
        return [True] * len(paths)


@register("subset/largest_variance")
class LargestVariance(AbstractSubset):
    """The weights of which the data say least, by their variances on the diagonal alone (Daxberger et al., 2021).

    For `mx.infer.Laplace`, which finds them by a pass over the data.

    Args:
        num_weights: how many.

    >>> print(LargestVariance(2).choose(jnp.array([3.0, 1.0, 4.0, 2.0])))
    [1 3]
    """

    num_weights: int

    def __check_init__(self):
        if isinstance(self.num_weights, bool) or not isinstance(self.num_weights, int) or self.num_weights < 1:
            raise ValueError(f"num_weights must be an int >= 1, got {self.num_weights!r}")

    @property
    def num_chosen(self) -> int | None:
        return self.num_weights

    def select(self, paths: list[str]) -> list[bool]:
        return [True] * len(paths)

    def choose(self, precision: Float[Array, " size"]) -> Int[Array, " chosen"]:
        _, index = jax.lax.top_k(-precision, self.num_weights)
        return jnp.sort(index).astype(jnp.int32)


@register("subset/last_layer")
class LastLayer(AbstractSubset):
    """Only the last layer, that is the last group of leaves under one parent in the order of the network's fields.

    >>> LastLayer().select(["layers/0/weight", "layers/0/bias", "layers/1/weight", "layers/1/bias"])
    [False, False, True, True]
    """

    def check(self, network: Any) -> None:
        """The keys of a dict have no order that means anything, and JAX sorts them."""
        siblings: dict[Any, set[str]] = {}
        leaves = jax.tree_util.tree_leaves_with_path(network)
        for path, leaf in leaves:
            depth = len(path) - (getattr(leaf, "ndim", 0) < 2)  # a bias may stand beside its weight
            for i, entry in enumerate(path[:depth]):
                if isinstance(entry, jax.tree_util.DictKey) and isinstance(entry.key, str):
                    siblings.setdefault(path[:i], set()).add(entry.key)
        among = next((sorted(names) for names in siblings.values() if len(names) > 1), None)
        if among is not None:
            raise ValueError(
                f"subset LastLayer() cannot tell which of {among} comes last, since the keys of a dict have no order: "
                f"name it, for example mx.Paths('*{among[-1]}*')"
            )

    def select(self, paths: list[str]) -> list[bool]:
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

"""What a prior is."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Hyper = dict[str, Array]


class Leaf(eqx.Module):
    """What a prior may know of a leaf: its path in the network, shape, and number of inputs (None for biases)."""

    path: str = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    fan_in: int | None = eqx.field(static=True)


class AbstractPrior(eqx.Module):
    """Log density and draws of one leaf, given hyperparameters that may have a prior of their own."""

    @abc.abstractmethod
    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """Log density of the leaf given its hyperparameters."""

    @abc.abstractmethod
    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        """A draw of the leaf given its hyperparameters."""

    def expected_log_prob(self, mean: Array, scale: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""] | None:
        """Expectation of `log_prob` over independent normal weights with these moments; None if there is no formula."""
        return None

    def init(self, leaf: Leaf) -> Hyper:
        """Starting values of the hyperparameters, unconstrained."""
        return {}

    def log_hyperprior(self, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """Log density of the hyperparameters in their unconstrained coordinates."""
        return jnp.zeros(())

    def sample_hyper(self, leaf: Leaf, *, key: PRNGKeyArray) -> Hyper:
        """A draw of the hyperparameters."""
        return {}

    def at(self, path: str) -> "AbstractPrior":
        """The prior of the leaf at a path."""
        return self

    def check(self, paths: list[str]) -> None:
        """Raise if the prior does not fit a network with these leaves."""

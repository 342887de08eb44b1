"""What a prior is."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Hyper = dict[str, Array]
Unknowns = dict[str, Array]


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

    # ---- all leaves together: most priors say something of each leaf by itself

    def check_leaves(self, leaves: list[Leaf]) -> None:
        """Raise if the prior does not fit these leaves, of which it may know the shapes."""
        self.check([leaf.path for leaf in leaves])

    @property
    def couples_weights(self) -> bool:
        """Whether weights depend on each other, so that the prior has no density of a leaf by itself."""
        return False

    @property
    def covers_likelihood(self) -> bool:
        """Whether it speaks of the unknowns of the likelihood too, in place of their own prior."""
        return False

    @property
    def has_centre(self) -> bool:
        """Whether it is about a deviation from somewhere else than zero."""
        return False

    def varies_within(self, path: str) -> bool:
        """Whether weights of the leaf have precisions of their own, which a mean over the leaf would lose."""
        return False

    def starting_unknowns(self, unknowns: Unknowns) -> Unknowns:
        """Where those of the likelihood start."""
        return unknowns

    def centre(self, leaf: Leaf) -> Array:
        """What draws of a leaf lie around."""
        return jnp.zeros(leaf.shape)

    def log_joint(
        self, leaves: list[Leaf], values: Sequence[Array], hypers: dict[str, Hyper], unknowns: Unknowns
    ) -> Float[Array, ""]:
        """Log density of all leaves and their hyperparameters, and of the likelihood's unknowns if it covers them."""
        total = jnp.zeros(())
        for leaf, value in zip(leaves, values, strict=True):
            prior, hyper = self.at(leaf.path), hypers.get(leaf.path, {})
            total = total + prior.log_hyperprior(leaf, hyper) + prior.log_prob(value, leaf, hyper)
        return total

    def expected_log_joint(
        self,
        leaves: list[Leaf],
        moments: Sequence[tuple[Array, Array]],
        draws: Sequence[Array],
        hypers: dict[str, Hyper],
        unknowns: Unknowns,
    ) -> Float[Array, ""]:
        """Expectation of `log_joint` over weights with these means and scales; at the draws where there is no formula.

        Args:
            leaves: of the network.
            moments: mean and standard deviation of each leaf.
            draws: one draw of each leaf.
            hypers: a draw of the hyperparameters.
            unknowns: a draw of the likelihood's unknowns.
        """
        total = jnp.zeros(())
        for leaf, (mean, scale), value in zip(leaves, moments, draws, strict=True):
            prior, hyper = self.at(leaf.path), hypers.get(leaf.path, {})
            exact = prior.expected_log_prob(mean, scale, leaf, hyper)
            total = total + prior.log_hyperprior(leaf, hyper)
            total = total + (prior.log_prob(value, leaf, hyper) if exact is None else exact)
        return total

    def sample_joint(self, leaves: list[Leaf], *, key: PRNGKeyArray) -> tuple[list[Array], dict[str, Hyper]]:
        """A draw of all leaves, and of their hyperparameters."""
        hypers: dict[str, Hyper] = {}
        drawn = []
        for i, leaf in enumerate(leaves):
            outer, inner = jax.random.split(jax.random.fold_in(key, i))
            prior = self.at(leaf.path)
            hyper = prior.sample_hyper(leaf, key=outer)
            if hyper:
                hypers[leaf.path] = hyper
            drawn.append(prior.sample(leaf, hyper, key=inner))
        return drawn, hypers

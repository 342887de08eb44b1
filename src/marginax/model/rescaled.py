r"""A prior whose precision is multiplied, leaf by leaf: what tuning by evidence changes.

If w has density p, then $w / \sqrt{\tau}$ has density $\sqrt{\tau}\,p(\sqrt{\tau}\,w)$: for a normal prior, a precision
that is $\tau$ times larger.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.files import register
from marginax.model.prior import AbstractPrior, Hyper, Leaf


@register("prior/rescaled")
class Rescaled(AbstractPrior):
    """Another prior with the precision of each leaf multiplied.

    Args:
        prior: what is rescaled.
        log_factors: path of a leaf -> log of the factor of its precision; leaves that are not there keep theirs.
    """

    prior: AbstractPrior
    log_factors: dict[str, Array]

    def at(self, path: str) -> AbstractPrior:
        inner = self.prior.at(path)
        return RescaledLeaf(inner, self.log_factors[path]) if path in self.log_factors else inner

    def varies_within(self, path: str) -> bool:
        return self.prior.varies_within(path)

    def check_leaves(self, leaves: list[Leaf]) -> None:
        self.prior.check_leaves(leaves)

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        return self.at(leaf.path).log_prob(value, leaf, hyper)

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        return self.at(leaf.path).sample(leaf, hyper, key=key)


@register("prior/rescaled_leaf")
class RescaledLeaf(AbstractPrior):
    """A prior with its precision multiplied.

    Args:
        prior: of the leaf.
        log_factor: log of the factor.
    """

    prior: AbstractPrior
    log_factor: Array

    @property
    def _root(self) -> Array:
        return jnp.exp(0.5 * self.log_factor)

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """Density of the weight before it was shrunk, and the Jacobian."""
        return self.prior.log_prob(value * self._root, leaf, hyper) + 0.5 * value.size * self.log_factor

    def expected_log_prob(self, mean: Array, scale: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""] | None:
        inner = self.prior.expected_log_prob(mean * self._root, scale * self._root, leaf, hyper)
        return None if inner is None else inner + 0.5 * mean.size * self.log_factor

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        return self.prior.sample(leaf, hyper, key=key) / self._root

    def init(self, leaf: Leaf) -> Hyper:
        return self.prior.init(leaf)

    def log_hyperprior(self, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        return self.prior.log_hyperprior(leaf, hyper)

    def sample_hyper(self, leaf: Leaf, *, key: PRNGKeyArray) -> Hyper:
        return self.prior.sample_hyper(leaf, key=key)

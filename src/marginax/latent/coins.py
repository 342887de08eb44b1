r"""Coins, counters and dice: nothing is unobserved but the chance itself, so the posterior is exact.

The bound that `mx.infer.CoordinateAscent` reaches in its first step is the evidence, and so averages over the posterior
are in closed form.
"""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax.data import AbstractSource, Batch, Rows
from marginax.files import register
from marginax.latent.counts import Poissons
from marginax.latent.family import AbstractFamily
from marginax.latent.queries import AbstractQueries, as_batch, as_rows
from marginax.latent.simplex import Dirichlet
from marginax.model.abstract import Params
from marginax.model.conjugate import AbstractConjugate, Expected


@dataclass(frozen=True)
class CoinQueries(AbstractQueries):
    """What posteriors of coins, counters and dice can be asked."""

    def predictive(self, data: Any) -> float:
        r"""$\log p(\text{new data} \mid \text{data})$, all of the new data together, in closed form."""
        posterior: Any = self.posterior
        if not hasattr(posterior, "belief"):
            raise TypeError("predictive needs a posterior in closed form: fit by mx.infer.CoordinateAscent()")
        model, belief = posterior.model, jax.tree.map(jnp.asarray, posterior.belief)
        batch = as_batch(model, data)
        seen = model.statistics_of(belief)
        new = model.expect(None, batch).statistics
        both = jax.tree.map(jnp.add, seen, new)
        constant = jnp.sum(model.log_base(batch.data))
        return float(model.log_normaliser(both) - model.log_normaliser(seen) + constant)


class AbstractCoin(AbstractConjugate):
    """One distribution with a conjugate prior."""

    queries: ClassVar[type] = CoinQueries

    @property
    @abc.abstractmethod
    def family(self) -> AbstractFamily:
        """Of the parameters."""

    @abc.abstractmethod
    def statistics(self, x: Array) -> PyTree:
        """Of one example."""

    @abc.abstractmethod
    def statistics_of(self, belief: PyTree) -> PyTree:
        """What a belief has seen: its parameters less those of the prior."""

    @abc.abstractmethod
    def log_base(self, x: Array) -> Float[Array, " b"]:
        """The part of the log density of each example that has no parameters in it."""

    @abc.abstractmethod
    def log_complete(self, natural: PyTree, statistics: PyTree) -> Float[Array, ""]:
        """Natural parameters times statistics."""

    @abc.abstractmethod
    def check_rows(self, x: Any) -> None:
        """Raise if such data cannot be meant."""

    def read(self, data: Any) -> Rows:
        """One array of observations."""
        return as_rows(data)

    def check(self, source: AbstractSource) -> None:
        self.check_rows(source.examples(source.spec.num_examples))

    def init(self, source: AbstractSource) -> Params:
        """The centre of the prior."""
        none = jax.tree.map(jnp.zeros_like, self.statistics(jnp.asarray(source.examples(1))[0]))
        return self.centre(self.conjugate(none))

    def log_prior(self, params: Params) -> Float[Array, ""]:
        return self.family.log_prior(params)

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        natural = self.natural(params)
        return self.log_base(batch.data) + jax.vmap(lambda x: self.log_complete(natural, self.statistics(x)))(
            batch.data
        )

    def log_normaliser(self, statistics: PyTree) -> Float[Array, ""]:
        """Log evidence of data with these statistics, but for what has no parameters in it."""
        belief = self.conjugate(statistics)
        return self.log_complete(self.expected_natural(belief), statistics) - self.divergence(belief)

    # ---- closed form

    def expect(self, natural: PyTree, batch: Batch) -> Expected:
        statistics = jax.tree.map(lambda leaf: jnp.sum(leaf, 0), jax.vmap(self.statistics)(batch.data))
        base = jnp.sum(self.log_base(batch.data))
        known = jnp.zeros_like(base) if natural is None else self.log_complete(natural, statistics)
        return Expected(statistics, base + known, jnp.zeros_like(base))

    def seed(self, batch: Batch, *, key: PRNGKeyArray) -> PyTree:
        return self.expect(None, batch).statistics

    def natural(self, params: Params) -> PyTree:
        return self.family.natural(params)

    def expected_natural(self, belief: PyTree) -> PyTree:
        return self.family.expected_natural(belief)

    def conjugate(self, statistics: PyTree) -> PyTree:
        return self.family.conjugate(statistics)

    def maximise(self, statistics: PyTree) -> Params:
        return self.family.maximise(statistics)

    def divergence(self, belief: PyTree) -> Float[Array, ""]:
        return self.family.divergence(belief)

    def draw(self, belief: PyTree, *, key: PRNGKeyArray) -> Params:
        return self.family.draw(belief, key=key)

    def centre(self, belief: PyTree) -> Params:
        return self.family.centre(belief)


@register("latent/dirichlet_multinomial")
class DirichletMultinomial(AbstractCoin):
    r"""$p \sim \text{Dirichlet}(\alpha)$ and $x_i \sim \text{Multinomial}(n_i, p)$; rows are counts of all classes.

    Args:
        concentration: $\alpha$, a number or one for each class.

    >>> import marginax as mx
    >>> die = mx.fit(DirichletMultinomial(1.0), np.array([[3, 1, 0]]), mx.infer.CoordinateAscent(2), key=0)
    >>> die.belief.tolist(), round(float(np.exp(die.elbo)), 4)  # one in the number of ways to get 4 of 3
    ([4.0, 2.0, 1.0], 0.0667)
    """

    concentration: float | Array = 1.0

    @property
    def family(self) -> Dirichlet:
        return Dirichlet(self.concentration)

    def statistics(self, x: Array) -> Float[Array, "*b k"]:
        return jnp.asarray(x, jax.dtypes.canonicalize_dtype(float))

    def statistics_of(self, belief: Float[Array, " k"]) -> Float[Array, " k"]:
        return belief - self.concentration

    def log_base(self, x: Array) -> Float[Array, " b"]:
        x = self.statistics(x)
        return gammaln(jnp.sum(x, -1) + 1.0) - jnp.sum(gammaln(x + 1.0), -1)

    def log_complete(self, natural: Float[Array, " k"], statistics: Float[Array, " k"]) -> Float[Array, ""]:
        return jnp.sum(natural * statistics)

    def check_rows(self, x: Any) -> None:
        if np.ndim(x) != 2 or np.shape(x)[1] < 2:
            raise ValueError(f"data must have shape (n, classes) with 2 classes or more, got {np.shape(x)}")
        check_counts(x)


@register("latent/beta_binomial")
class BetaBinomial(AbstractCoin):
    r"""$p \sim \text{Beta}(a, b)$ and heads $x_i \sim \text{Binomial}(n_i, p)$; rows are (heads, tails).

    Args:
        heads: $a$, heads that the prior is worth.
        tails: $b$.

    >>> import marginax as mx
    >>> coin = mx.fit(BetaBinomial(), np.array([[7, 3]]), mx.infer.CoordinateAscent(2), key=0)
    >>> coin.belief.tolist(), round(float(np.exp(coin.predictive([[1, 0]]))), 4)  # Laplace's rule: 8 / 12
    ([8.0, 4.0], 0.6667)
    """

    heads: float | Array = 1.0
    tails: float | Array = 1.0

    @property
    def _die(self) -> DirichletMultinomial:
        return DirichletMultinomial(jnp.stack([jnp.asarray(self.heads), jnp.asarray(self.tails)]))

    @property
    def family(self) -> Dirichlet:
        return self._die.family

    def statistics(self, x: Array) -> Float[Array, "*b 2"]:
        return self._die.statistics(x)

    def statistics_of(self, belief: Float[Array, " 2"]) -> Float[Array, " 2"]:
        return self._die.statistics_of(belief)

    def log_base(self, x: Array) -> Float[Array, " b"]:
        return self._die.log_base(x)

    def log_complete(self, natural: Float[Array, " 2"], statistics: Float[Array, " 2"]) -> Float[Array, ""]:
        return self._die.log_complete(natural, statistics)

    def check_rows(self, x: Any) -> None:
        if np.ndim(x) != 2 or np.shape(x)[1] != 2:
            raise ValueError(f"data must have rows (heads, tails), got shape {np.shape(x)}")
        check_counts(x)


@register("latent/gamma_poisson")
class GammaPoisson(AbstractCoin):
    r"""$\lambda_d \sim \text{Gamma}(a, b)$ and $x_{id} \sim \text{Poisson}(\lambda_d)$; a column for each rate.

    Args:
        concentration: $a$, events that the prior is worth.
        rate: $b$, the rows in which they happened.

    >>> import marginax as mx
    >>> counter = mx.fit(GammaPoisson(2.0, 1.0), np.array([[3], [4]]), mx.infer.CoordinateAscent(2), key=0)
    >>> counter.belief["concentration"].tolist(), counter.belief["rate"].tolist()
    ([[9.0]], [[3.0]])
    """

    concentration: float | Array = 1.0
    rate: float | Array = 1.0

    @property
    def family(self) -> Poissons:
        return Poissons(self.concentration, self.rate)

    def statistics(self, x: Array) -> dict[str, Array]:
        real = jax.dtypes.canonicalize_dtype(float)
        return {"count": jnp.ones(1, real), "total": jnp.asarray(x, real)[None]}

    def statistics_of(self, belief: dict[str, Array]) -> dict[str, Array]:
        return {"count": (belief["rate"] - self.rate)[:, 0], "total": belief["concentration"] - self.concentration}

    def log_base(self, x: Array) -> Float[Array, " b"]:
        return -jnp.sum(gammaln(jnp.asarray(x, jax.dtypes.canonicalize_dtype(float)) + 1.0), -1)

    def log_complete(self, natural: dict[str, Array], statistics: dict[str, Array]) -> Float[Array, ""]:
        return jnp.sum(natural["logs"] * statistics["total"]) - jnp.sum(natural["rates"] * statistics["count"][:, None])

    def check_rows(self, x: Any) -> None:
        if np.ndim(x) != 2:
            raise ValueError(f"data must have shape (n, rates), got {np.shape(x)}")
        check_counts(x)


def check_counts(x: Any) -> None:
    """Raise unless all are whole numbers that are not negative."""
    if np.min(x) < 0 or np.any(np.asarray(x) != np.round(x)):
        raise ValueError(f"data must hold counts, whole numbers >= 0, got {np.min(x)} at least")

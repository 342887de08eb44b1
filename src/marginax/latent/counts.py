"""Counts and classes with unknown rates and probabilities, K components at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax._kernels.gamma import log_gamma
from marginax.files import register
from marginax.latent.family import AbstractEmissions, check_positive, tiny
from marginax.latent.seeding import cluster
from marginax.latent.simplex import Dirichlet


@register("latent/poissons")
class Poissons(AbstractEmissions):
    r"""$x_d \sim \text{Poisson}(\lambda_{kd})$, independent over d, with $\lambda \sim \text{Gamma}(a, b)$.

    Points are log rates.

    Args:
        concentration: $a$.
        rate: $b$; by default such that the prior's mean is that of the data.
    """

    concentration: float | Array = 1.0
    rate: float | Array | None = None

    def __check_init__(self):
        check_positive("concentration", self.concentration)

    def check(self, x: np.ndarray, *, name: str) -> None:
        if x.ndim != 2:
            raise ValueError(f"{name} must have shape (n, counts) for Poisson components, got {x.shape}")
        if np.min(x) < 0 or np.any(x != np.round(x)):
            raise ValueError(f"{name} must hold whole numbers >= 0 for Poisson components, got {np.min(x)} at least")

    def adapted_to(self, x: np.ndarray) -> "Poissons":
        if self.rate is not None:
            return self
        mean = np.maximum(np.asarray(x, np.float64).mean(0), 1e-3)
        return Poissons(
            self.concentration, jnp.asarray(self.concentration / mean, jax.dtypes.canonicalize_dtype(float))
        )

    def log_density(self, natural: dict[str, Array], x: Array) -> Float[Array, "k n"]:
        x = jnp.asarray(x, natural["logs"].dtype)
        return natural["logs"] @ x.T - jnp.sum(natural["rates"], -1)[:, None] - jnp.sum(gammaln(x + 1.0), -1)

    def statistics(self, x: Array, weights: Float[Array, "k n"]) -> dict[str, Array]:
        return {"count": jnp.sum(weights, 1), "total": weights @ jnp.asarray(x, weights.dtype)}

    def seed(self, x: Array, num: int, *, key: PRNGKeyArray) -> Float[Array, "k n"]:
        return cluster(jnp.sqrt(jnp.asarray(x, jax.dtypes.canonicalize_dtype(float))), num, key=key)

    def simulate(self, params: Float[Array, "k d"], labels: Int[Array, " n"], *, key: PRNGKeyArray) -> Array:
        return jax.random.poisson(key, jnp.exp(params[labels]))

    def conjugate(self, statistics: dict[str, Array]) -> dict[str, Array]:
        concentration = self.concentration + statistics["total"]
        return {
            "concentration": concentration,
            "rate": self._known + statistics["count"][:, None] + 0.0 * concentration,
        }

    def maximise(self, statistics: dict[str, Array]) -> Float[Array, "k d"]:
        small = tiny(statistics["total"].dtype)
        return jnp.log(statistics["total"] + small) - jnp.log(statistics["count"] + small)[:, None]

    def natural(self, params: Float[Array, "k d"]) -> dict[str, Array]:
        return {"logs": params, "rates": jnp.exp(params)}

    def expected_natural(self, belief: dict[str, Array]) -> dict[str, Array]:
        logs = digamma(belief["concentration"]) - jnp.log(belief["rate"])
        return {"logs": logs, "rates": belief["concentration"] / belief["rate"]}

    def divergence(self, belief: dict[str, Array]) -> Float[Array, ""]:
        a, b, a0, b0 = belief["concentration"], belief["rate"], self.concentration, self._known
        gained = (a - a0) * digamma(a) - gammaln(a) + gammaln(a0) + a0 * (jnp.log(b) - jnp.log(b0))
        return jnp.sum(gained + a * (b0 - b) / b)

    def log_prior(self, params: Float[Array, "k d"]) -> Float[Array, ""]:
        a, b = self.concentration, jnp.broadcast_to(self._known, params.shape)
        return jnp.sum(a * jnp.log(b) - gammaln(a) + a * params - b * jnp.exp(params))

    def draw(self, belief: dict[str, Array], *, key: PRNGKeyArray) -> Float[Array, "k d"]:
        return log_gamma(key, belief["concentration"]) - jnp.log(belief["rate"])

    def centre(self, belief: dict[str, Array]) -> Float[Array, "k d"]:
        return jnp.log(belief["concentration"]) - jnp.log(belief["rate"])

    def describe(self, params: Float[Array, "k d"]) -> dict[str, Any]:
        return {"rates": jnp.exp(params)}

    @property
    def _known(self) -> Any:
        if self.rate is None:
            raise ValueError("the prior of Poisson components is that of the data: fit the model, or pass rate=")
        return self.rate


@register("latent/categoricals")
class Categoricals(AbstractEmissions):
    r"""$x \sim \text{Categorical}(p_k)$ with $p_k \sim \text{Dirichlet}(\alpha)$; classes are the numbers 0, 1, ...

    Args:
        num_classes: by default one more than the largest in the data.
        concentration: $\alpha$.
    """

    num_classes: int | None = None
    concentration: float | Array = 1.0

    def __check_init__(self):
        check_positive("concentration", self.concentration)

    @property
    def _rows(self) -> Dirichlet:
        return Dirichlet(self.concentration)

    def check(self, x: np.ndarray, *, name: str) -> None:
        if x.ndim != 1 or not np.issubdtype(x.dtype, np.integer):
            raise ValueError(f"{name} must hold one class (an int) per observation, got {x.dtype} of shape {x.shape}")
        most = np.inf if self.num_classes is None else self.num_classes - 1
        if np.min(x) < 0 or np.max(x) > most:
            raise ValueError(f"{name} must hold classes from 0 to {most}, got {np.min(x)} to {np.max(x)}")

    def adapted_to(self, x: np.ndarray) -> "Categoricals":
        if self.num_classes is not None:
            return self
        return Categoricals(max(int(np.max(x)) + 1, 2), self.concentration)

    def log_density(self, natural: Float[Array, "k c"], x: Array) -> Float[Array, "k n"]:
        return natural[:, x]

    def statistics(self, x: Array, weights: Float[Array, "k n"]) -> Float[Array, "k c"]:
        assert self.num_classes is not None
        return weights @ jax.nn.one_hot(x, self.num_classes, dtype=weights.dtype)

    def seed(self, x: Array, num: int, *, key: PRNGKeyArray) -> Float[Array, "k n"]:
        """Every class leans towards components of its own."""
        assert self.num_classes is not None
        leaning = jax.random.dirichlet(key, jnp.full(num, 0.5), (self.num_classes,))
        return leaning.T[:, x]

    def simulate(self, params: Float[Array, "k m"], labels: Int[Array, " n"], *, key: PRNGKeyArray) -> Array:
        return jax.random.categorical(key, self.natural(params)[labels])

    def conjugate(self, statistics: Float[Array, "k c"]) -> Float[Array, "k c"]:
        return self._rows.conjugate(statistics)

    def maximise(self, statistics: Float[Array, "k c"]) -> Float[Array, "k m"]:
        return self._rows.maximise(statistics)

    def natural(self, params: Float[Array, "k m"]) -> Float[Array, "k c"]:
        return self._rows.natural(params)

    def expected_natural(self, belief: Float[Array, "k c"]) -> Float[Array, "k c"]:
        return self._rows.expected_natural(belief)

    def divergence(self, belief: Float[Array, "k c"]) -> Float[Array, ""]:
        return self._rows.divergence(belief)

    def log_prior(self, params: Float[Array, "k m"]) -> Float[Array, ""]:
        return self._rows.log_prior(params)

    def draw(self, belief: Float[Array, "k c"], *, key: PRNGKeyArray) -> Float[Array, "k m"]:
        return self._rows.draw(belief, key=key)

    def centre(self, belief: Float[Array, "k c"]) -> Float[Array, "k m"]:
        return self._rows.centre(belief)

    def describe(self, params: Float[Array, "k m"]) -> dict[str, Any]:
        return {"probs": jnp.exp(self.natural(params))}

r"""Normal distributions with unknown means and precisions, K at once.

$\mu_k \mid \Lambda_k \sim N(m_0, (\beta_0 \Lambda_k)^{-1})$ and $\Lambda_k$ has a Wishart (or gamma) law with $\nu_0$
degrees of freedom and scatter $V_0$ (Bishop, 2006, section 10.2). Given counts $N_k$, sums $s_k$ and scatters $Q_k$
about $m_0$,

$\beta_k = \beta_0 + N_k, \quad m_k = m_0 + s_k / \beta_k, \quad \nu_k = \nu_0 + N_k, \quad
V_k = V_0 + Q_k - \beta_k (m_k - m_0)(m_k - m_0)^\top.$

Sums are taken about the prior's mean, by default that of the data: in float32 a component can be a thousand times
narrower than the data, not more.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax.files import register
from marginax.latent.covariances import AbstractStructure, Full, as_structure
from marginax.latent.family import AbstractEmissions, check_positive, tiny
from marginax.latent.seeding import cluster

LOG_2PI = float(np.log(2 * np.pi))


@register("latent/normal_wishart")
class NormalWishart(eqx.Module):
    r"""The conjugate prior of a mean and a precision.

    Args:
        mean: $m_0$, one number for each axis.
        scatter: $V_0$: a matrix, the variances along axes, or one number, as the structure of the covariances is.
        mean_precision: $\beta_0$, how many observations the mean is worth.
        dof: $\nu_0$, how many the scatter is worth; more than the number of axes less one.
    """

    mean: Float[Array, " d"] = eqx.field(converter=jnp.asarray)
    scatter: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    mean_precision: float | Array = 1.0
    dof: float | Array = 1.0

    def __check_init__(self):
        check_positive("mean_precision", self.mean_precision)
        if not isinstance(self.dof, Tracer) and not self.dof > (len(self.mean) - 1 if self.scatter.ndim == 2 else 0):
            raise ValueError(f"dof must be > {len(self.mean) - 1}, the number of axes less one, got {self.dof}")


@register("latent/normals")
class Normals(AbstractEmissions):
    """K normal distributions.

    Args:
        covariance: `mx.latent.Full()`, `Tied()`, `Diagonal()` or `Spherical()`, or its name.
        prior: `NormalWishart(...)`; by default the mean and covariance of the data, worth one observation and as many
            as there are axes.
        floor: variance that EM adds, so that no component shrinks to a point.
    """

    covariance: AbstractStructure = eqx.field(default_factory=Full, converter=as_structure)
    prior: NormalWishart | None = None
    floor: float | Array = 1e-6

    # ---- data

    def check(self, x: np.ndarray, *, name: str) -> None:
        if x.ndim != 2:
            raise ValueError(f"{name} must have shape (n, axes) for normal components, got {x.shape}")
        if self.prior is not None and len(self.prior.mean) != x.shape[1]:
            raise ValueError(f"prior has {len(self.prior.mean)} axes, and {name} has {x.shape[1]}")

    def adapted_to(self, x: np.ndarray) -> "Normals":
        if self.prior is not None:
            return self
        x = np.asarray(x, np.float64)
        covariance = np.atleast_2d(np.cov(x.T)) if len(x) > 1 else np.eye(x.shape[1])
        constant = np.diag(covariance) <= 1e-12 * max(1.0, float(np.abs(x).max()) ** 2)
        covariance += np.diag(np.where(constant, 1.0, 1e-6 * np.diag(covariance)))
        real = jax.dtypes.canonicalize_dtype(float)
        scatter = self.covariance.reduced(jnp.asarray(covariance, real))
        prior = NormalWishart(jnp.asarray(x.mean(0), real), scatter, 1.0, float(x.shape[1]))
        return Normals(self.covariance, prior, self.floor)

    def seed(self, x: Array, num: int, *, key: PRNGKeyArray) -> Float[Array, "k n"]:
        away = self._centred(x)
        return cluster(away / jnp.maximum(jnp.std(away, axis=0), 1e-30), num, key=key)

    def log_density(self, natural: dict[str, Array], x: Array) -> Float[Array, "k n"]:
        square = self.covariance.square_distance(self._centred(x), natural["means"], natural["root"])
        return natural["offset"][:, None] - 0.5 * square

    def statistics(self, x: Array, weights: Float[Array, "k n"]) -> dict[str, Array]:
        x = self._centred(x)
        return {"count": jnp.sum(weights, 1), "total": weights @ x, "scatter": self.covariance.scatter(x, weights)}

    def simulate(self, params: dict[str, Array], labels: Int[Array, " n"], *, key: PRNGKeyArray) -> Float[Array, "n d"]:
        size = params["means"].shape[1]
        root = self.covariance.unpack(params["precisions"], size)
        covariances = self.covariance.covariances(root, len(params["means"]), size)
        noise = jax.random.normal(key, (len(labels), size), params["means"].dtype)
        return params["means"][labels] + jnp.einsum("nde,ne->nd", jnp.linalg.cholesky(covariances)[labels], noise)

    # ---- the family

    def conjugate(self, statistics: dict[str, Array]) -> dict[str, Array]:
        prior, count, size = self._known, statistics["count"], statistics["total"].shape[1]
        precision = prior.mean_precision + count
        means = statistics["total"] / precision[:, None]
        num = self.covariance.num_squares(count, size)
        away = self.covariance.scatter(means, jnp.diag(precision))
        return {
            "means": prior.mean + means,
            "mean_precision": precision,
            "dof": jnp.asarray(prior.dof, count.dtype) + num,
            "scatter": prior.scatter + statistics["scatter"] - away,
        }

    def maximise(self, statistics: dict[str, Array]) -> dict[str, Array]:
        count, size = statistics["count"] + tiny(statistics["count"].dtype), statistics["total"].shape[1]
        means = statistics["total"] / count[:, None]
        centred = statistics["scatter"] - self.covariance.scatter(means, jnp.diag(count))
        num = self.covariance.num_squares(count, size)
        extra = self.covariance.reduced(self.floor * jnp.eye(size, dtype=means.dtype))
        covariance = centred / num.reshape(*num.shape, *[1] * (centred.ndim - num.ndim)) + extra
        packed = self.covariance.pack(self.covariance.from_covariance(covariance))
        return {"means": self._known.mean + means, "precisions": packed}

    def natural(self, params: dict[str, Array]) -> dict[str, Array]:
        size = params["means"].shape[1]
        root = self.covariance.unpack(params["precisions"], size)
        offset = 0.5 * self.covariance.log_det(root, size) - 0.5 * size * LOG_2PI
        return self._as_natural(params["means"], root, offset)

    def expected_natural(self, belief: dict[str, Array]) -> dict[str, Array]:
        size = belief["means"].shape[1]
        root = self.covariance.expected_root(belief["dof"], belief["scatter"])
        log_det = self.covariance.expected_log_det(belief["dof"], belief["scatter"], size)
        offset = 0.5 * (log_det - size * LOG_2PI - size / belief["mean_precision"])
        return self._as_natural(belief["means"], root, offset)

    def divergence(self, belief: dict[str, Array]) -> Float[Array, ""]:
        prior, size = self._known, belief["means"].shape[1]
        root = self.covariance.expected_root(belief["dof"], belief["scatter"])
        away = self.covariance.scaled(root, belief["means"] - prior.mean)
        ratio = prior.mean_precision / belief["mean_precision"]
        of_means = 0.5 * jnp.sum(size * (ratio - 1.0 - jnp.log(ratio)) + prior.mean_precision * jnp.sum(away**2, -1))
        dof = jnp.asarray(prior.dof, belief["dof"].dtype)
        return of_means + self.covariance.law_divergence(belief["dof"], belief["scatter"], dof, prior.scatter)

    def log_prior(self, params: dict[str, Array]) -> Float[Array, ""]:
        prior, size = self._known, params["means"].shape[1]
        root = self.covariance.unpack(params["precisions"], size)
        away = self.covariance.scaled(root, params["means"] - prior.mean)
        log_det = self.covariance.log_det(root, size) + size * (jnp.log(prior.mean_precision) - LOG_2PI)
        of_means = 0.5 * jnp.sum(log_det - prior.mean_precision * jnp.sum(away**2, -1))
        dof = jnp.asarray(prior.dof, away.dtype)
        return of_means + self.covariance.log_law(params["precisions"], dof, prior.scatter, size)

    def draw(self, belief: dict[str, Array], *, key: PRNGKeyArray) -> dict[str, Array]:
        for_root, for_means = jax.random.split(key)
        root = self.covariance.draw_root(belief["dof"], belief["scatter"], key=for_root)
        noise = jax.random.normal(for_means, belief["means"].shape, belief["means"].dtype)
        noise = noise / jnp.sqrt(belief["mean_precision"])[:, None]
        means = belief["means"] + self.covariance.scaled(root, noise, inverse=True)
        return {"means": means, "precisions": self.covariance.pack(root)}

    def centre(self, belief: dict[str, Array]) -> dict[str, Array]:
        root = self.covariance.expected_root(belief["dof"], belief["scatter"])
        return {"means": belief["means"], "precisions": self.covariance.pack(root)}

    def describe(self, params: dict[str, Array]) -> dict[str, Any]:
        num, size = params["means"].shape
        root = self.covariance.unpack(params["precisions"], size)
        return {"means": params["means"], "covariances": self.covariance.covariances(root, num, size)}

    @property
    def _known(self) -> NormalWishart:
        if self.prior is None:
            raise ValueError("the prior of normal components is that of the data: fit the model, or pass prior=")
        return self.prior

    def _centred(self, x: Array) -> Float[Array, "n d"]:
        mean = self._known.mean
        return jnp.asarray(x, mean.dtype) - mean

    def _as_natural(self, means: Array, root: Array, offset: Array) -> dict[str, Array]:
        return {"means": means - self._known.mean, "root": root, "offset": jnp.broadcast_to(offset, means.shape[:1])}

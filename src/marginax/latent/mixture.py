r"""Mixtures: every observation comes from one of K components, and nobody says which.

$z_i \sim \pi, \quad x_i \mid z_i = k \sim p(x \mid \theta_k), \quad
p(x_i \mid \theta) = \sum_k \pi_k\, p(x_i \mid \theta_k)$
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from jaxtyping import Key as KeyOf

from marginax._kernels.blocks import sum_of_blocks
from marginax._keys import Key, as_key
from marginax.data import AbstractSource, Batch, Rows
from marginax.files import register
from marginax.latent.counts import Categoricals, Poissons
from marginax.latent.covariances import AbstractStructure
from marginax.latent.family import AbstractEmissions, AbstractFamily
from marginax.latent.normals import Normals, NormalWishart
from marginax.latent.queries import AbstractQueries, as_batch, as_rows, averaged
from marginax.latent.simplex import Dirichlet
from marginax.model.abstract import Params
from marginax.model.conjugate import AbstractConjugate, Expected, naturals

MOST_ROWS = 100_000  # that default priors look at
_FIRST_ROWS = 4096  # for a first guess
_EMISSIONS = {"normal": Normals, "poisson": Poissons, "categorical": Categoricals}


@dataclass(frozen=True)
class MixtureQueries(AbstractQueries):
    """What posteriors of mixtures can be asked.

    Sampled by MCMC, components may swap their labels: averages over such draws say little about single components.
    """

    def responsibilities(self, x: Any) -> np.ndarray:
        """Probability that each observation comes from each component, (n, K), averaged over the posterior."""
        model: Any = self.posterior.model
        batch = as_batch(model, x)
        return averaged(model.assign, naturals(self.posterior), batch.data)

    def labels(self, x: Any) -> np.ndarray:
        """The most probable component of each observation."""
        return self.responsibilities(x).argmax(axis=1)

    def weights(self) -> np.ndarray:
        """The mean weight of each component."""
        return self.mean_of(_weights)

    def components(self) -> dict[str, np.ndarray]:
        """Means and covariances, rates, or probabilities of the components, in the middle of the posterior."""
        model: Any = self.posterior.model
        params = jax.tree.map(lambda leaf: leaf[0], self.posterior.starting_points(1))
        return described(model.emissions, params["emissions"])

    def simulate(self, num: int, *, key: Key) -> np.ndarray:
        """New observations, each from parameters of its own draw from the posterior."""
        model: Any = self.posterior.model
        for_params, for_data = jax.random.split(as_key(key))
        params = self.posterior.sample_params(num, key=for_params)
        return np.asarray(_simulated(model, params, jax.random.split(for_data, num)))


@eqx.filter_jit
def _simulated(model: "Mixture", params: Params, keys: KeyOf[Array, " num"]) -> Array:
    params = jax.tree.map(jnp.asarray, params)
    return jax.vmap(lambda params, key: model.simulate(params, 1, key=key)[1][0])(params, keys)


@eqx.filter_jit
def _described(emissions: AbstractEmissions, params: Params) -> dict[str, Any]:
    return emissions.describe(jax.tree.map(jnp.asarray, params))


def described(emissions: AbstractEmissions, params: Params) -> dict[str, np.ndarray]:
    """A point in constrained coordinates, by name."""
    return {name: np.asarray(value) for name, value in _described(emissions, params).items()}


def _weights(params: PyTree, model: Any) -> Array:
    return jnp.exp(model.weights_prior.natural(params["weights"]))


@register("latent/mixture")
class Mixture(AbstractConjugate):
    """A mixture of K components of one family, with labels summed out.

    Posteriors have `responsibilities`, `labels`, `weights`, `components`, `log_likelihood` and `simulate`.

    Args:
        num_components: K.
        emissions: `mx.latent.Normals(...)`, `Poissons(...)` or `Categoricals(...)`, or "normal", "poisson" or
            "categorical".
        weights: `mx.latent.Dirichlet(...)` or `StickBreaking(...)`.

    >>> import marginax as mx
    >>> counts = np.array([0, 1, 2, 1, 0, 30, 28, 33])[:, None]
    >>> mix = mx.fit(mx.latent.Mixture(2, "poisson"), counts, mx.infer.CoordinateAscent(), key=0)
    >>> sorted(mix.components()["rates"].round(0)[:, 0].tolist())
    [1.0, 30.0]
    """

    num_components: int
    emissions: AbstractEmissions
    weights_prior: AbstractFamily

    queries: ClassVar[type] = MixtureQueries

    def __init__(self, num_components: int, emissions: AbstractEmissions | str, weights: AbstractFamily | None = None):
        """Check the number and the names."""
        check_num("num_components", num_components)
        self.num_components = num_components
        self.emissions = as_emissions(emissions)
        self.weights_prior = Dirichlet() if weights is None else weights

    # ---- data

    def read(self, data: Any) -> Rows:
        """One array of observations."""
        return as_rows(data)

    def check(self, source: AbstractSource) -> None:
        num = source.spec.num_examples
        if num < self.num_components:
            raise ValueError(f"num_components must be at most the {num} rows of the data, got {self.num_components}")
        self.check_rows(source.examples(min(num, MOST_ROWS)))

    def check_rows(self, x: Any) -> None:
        """Raise if such rows cannot come from the components."""
        self.emissions.check(np.asarray(x), name="data")

    def adapted_to(self, source: AbstractSource) -> "Mixture":
        x = source.examples(min(source.spec.num_examples, MOST_ROWS))
        return Mixture(self.num_components, self.emissions.adapted_to(np.asarray(x)), self.weights_prior)

    def seed(self, batch: Batch, *, key: PRNGKeyArray) -> PyTree:
        return self._statistics(batch.data, self.emissions.seed(batch.data, self.num_components, key=key))

    # ---- the density

    def init(self, source: AbstractSource) -> Params:
        """Clusters of some rows."""
        return first_guess(self, source.examples(min(source.spec.num_examples, _FIRST_ROWS)))

    def log_prior(self, params: Params) -> Float[Array, ""]:
        return self.weights_prior.log_prior(params["weights"]) + self.emissions.log_prior(params["emissions"])

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        return logsumexp(sum(self._logs(self.natural(params), batch.data)), axis=0)

    def assign(self, natural: PyTree, x: Array) -> Float[Array, "n k"]:
        """Responsibilities."""
        return jax.nn.softmax(sum(self._logs(natural, x)), axis=0).T

    def simulate(self, params: Params, num: int, *, key: PRNGKeyArray) -> tuple[Array, Array]:
        """Labels, and observations."""
        for_labels, for_data = jax.random.split(key)
        logs = self.weights_prior.natural(params["weights"])
        labels = jax.random.categorical(for_labels, logs, shape=(num,))
        return labels, self.emissions.simulate(params["emissions"], labels, key=for_data)

    def _logs(self, natural: PyTree, x: Array) -> tuple[Array, Array]:
        return natural["weights"][:, None], self.emissions.log_density(natural["emissions"], x)

    def _statistics(self, x: Array, weights: Float[Array, "k n"]) -> PyTree:
        return {"weights": jnp.sum(weights, 1), "emissions": self.emissions.statistics(x, weights)}

    # ---- closed form

    def expect(self, natural: PyTree, batch: Batch) -> Expected:
        def block(x: Array, counted: Float[Array, " b"]) -> Expected:
            prior, density = self._logs(natural, x)
            joint = prior + density
            evidence = logsumexp(joint, axis=0)
            weights = counted * jnp.exp(joint - evidence)
            reconstruction = jnp.sum(weights * density)
            complexity = reconstruction - jnp.sum(counted * evidence)
            return Expected(self._statistics(x, weights), reconstruction, complexity)

        return sum_of_blocks(block, batch.data)

    def natural(self, params: Params) -> PyTree:
        return {name: family.natural(params[name]) for name, family in self._families.items()}

    def expected_natural(self, belief: PyTree) -> PyTree:
        return {name: family.expected_natural(belief[name]) for name, family in self._families.items()}

    def conjugate(self, statistics: PyTree) -> PyTree:
        return {name: family.conjugate(statistics[name]) for name, family in self._families.items()}

    def maximise(self, statistics: PyTree) -> Params:
        return {name: family.maximise(statistics[name]) for name, family in self._families.items()}

    def divergence(self, belief: PyTree) -> Float[Array, ""]:
        return self.weights_prior.divergence(belief["weights"]) + self.emissions.divergence(belief["emissions"])

    def draw(self, belief: PyTree, *, key: PRNGKeyArray) -> Params:
        keys = jax.random.split(key)
        families = zip(self._families.items(), keys, strict=True)
        return {name: family.draw(belief[name], key=key) for (name, family), key in families}

    def centre(self, belief: PyTree) -> Params:
        return {name: family.centre(belief[name]) for name, family in self._families.items()}

    @property
    def _families(self) -> dict[str, AbstractFamily]:
        return {"weights": self.weights_prior, "emissions": self.emissions}


def GaussianMixture(
    num_components: int,
    covariance: str | AbstractStructure = "full",
    weights: AbstractFamily | None = None,
    *,
    prior: NormalWishart | None = None,
    floor: float = 1e-6,
) -> Mixture:
    """A mixture of normal distributions: `Mixture` with `Normals`.

    Args:
        num_components: the number of components, or with `StickBreaking` the most of them.
        covariance: "full", "tied", "diagonal" or "spherical".
        weights: `mx.latent.Dirichlet(...)` or `StickBreaking(...)`.
        prior: of means and precisions, `mx.latent.NormalWishart(...)`; by default from the data.
        floor: variance that EM adds to every axis.

    >>> import marginax as mx
    >>> x = np.random.default_rng(0).normal(size=(100, 2)) + 5.0 * (np.arange(100) % 2)[:, None]
    >>> mix = mx.fit(mx.latent.GaussianMixture(2), x, mx.infer.CoordinateAscent(), key=0)
    >>> mix.responsibilities(x[:4]).round(2)[:, 0].tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
    True
    """
    return Mixture(num_components, Normals(covariance, prior, floor), weights)


@eqx.filter_jit
def first_guess(model: AbstractConjugate, rows: PyTree) -> Params:
    """Where methods start that know nothing of closed forms."""
    num = jax.tree.leaves(rows)[0].shape[0]
    batch = Batch(jax.tree.map(jnp.asarray, rows), jnp.arange(num), num)
    return model.centre(model.conjugate(model.seed(batch, key=jax.random.key(0))))


def as_emissions(emissions: Any) -> AbstractEmissions:
    """A family of emissions, or the one of this name with its defaults."""
    if isinstance(emissions, AbstractEmissions):
        return emissions
    if emissions not in _EMISSIONS:
        raise ValueError(f"emissions must be one of {', '.join(map(repr, _EMISSIONS))}, got {emissions!r}")
    return _EMISSIONS[emissions]()


def check_num(name: str, value: Any) -> None:
    """Raise unless it is a number of things."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an int >= 1, got {value!r}")

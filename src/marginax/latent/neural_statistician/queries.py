"""What posteriors of neural statisticians can be asked: more of the same, and which set an example is of."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import derive, normal
from marginax._keys import Key, as_key
from marginax.data.arrays import as_numeric
from marginax.latent.mixture import check_num
from marginax.latent.neural_process.process import divergence
from marginax.latent.neural_statistician.inference import PredictiveWeights
from marginax.latent.vae.importance import ImportanceEstimate, importance_estimate
from marginax.latent.vae.queries import Code
from marginax.model.conjugate import posterior_draws
from marginax.model.distributions import Normal
from marginax.posterior import AbstractPosterior

_MAX_BYTES = 2**26


@dataclass(frozen=True)
class NeuralStatisticianQueries:
    """Questions to a posterior over networks.

    What is asked about examples is answered by all networks; contexts of networks that were trained apart have nothing
    to do with each other, and those are asked of one, the first unless `network=` says which.

    Args:
        posterior: of any method.
    """

    posterior: AbstractPosterior

    def encode(self, sets: Any, *, network: int = 0) -> Code:
        """Mean and standard deviation of the context of each set, from the statistic network."""
        rows, _ = self._sets(sets, "sets")
        return Code(*(np.asarray(part) for part in _encode(self._model, self._network(network), rows)))

    def generate_like(self, drawings: Any, num: int, *, key: Key, noise: bool = False) -> np.ndarray:
        """More examples of the same kind, given a few.

        Each has a context of its own from the belief given the set, and latents from their law given that; networks
        take turns.

        Args:
            drawings: one set (example, ...), or many, as in the training data.
            num: of new examples of each set.
            key: seed.
            noise: whether to draw entries, and not to give their means.

        Returns:
            Examples (num, ...) of one set, or (set, num, ...).
        """
        check_num("num", num)
        rows, single = self._sets(drawings, "drawings")
        some, each = self._some(num)
        found = np.asarray(_generate(self._model, some, rows, each, noise, as_key(key)))
        found = np.moveaxis(found.reshape(-1, *found.shape[2:])[:num], 0, 1)
        return found[0] if single else found

    def generate(self, num: int, size: int, *, key: Key, noise: bool = False) -> np.ndarray:
        """New sets of examples, with contexts from their prior, (num, size, ...).

        Args:
            num: of sets.
            size: examples of each.
            key: seed.
            noise: whether to draw entries, and not to give their means.
        """
        check_num("num", num)
        check_num("size", size)
        some, each = self._some(num)
        found = np.asarray(_generate_sets(self._model, some, each, size, noise, as_key(key)))
        return found.reshape(-1, *found.shape[2:])[:num]

    def log_likelihood(
        self, sets: Any, num_importance: int = 1000, *, key: Key = 0, max_bytes: int = _MAX_BYTES
    ) -> ImportanceEstimate:
        """Log density of each set, all of its examples together, by importance sampling as for `VAE`.

        The more examples a set has, the more draws it takes: look at `effective_size`.

        Args:
            sets: as in the training data.
            num_importance: draws of context and latents of each set.
            key: seed; the same key gives the same numbers.
            max_bytes: memory for intermediate results; less does not change the numbers.
        """
        check_num("num_importance", num_importance)
        rows, _ = self._sets(sets, "sets")
        limit = max(max_bytes // rows["x"].shape[1], 1)
        return importance_estimate(self._model, self._draws, rows, num_importance, as_key(key), limit)

    def log_predictive(
        self, x: Any, given: Any, num_importance: int = 100, *, key: Key = 0, max_bytes: int = _MAX_BYTES
    ) -> ImportanceEstimate:
        r"""Log density $\log \int p(x \mid c)\, q(c \mid S)\, dc$ of an example given a set, by importance sampling.

        The estimate of the density is unbiased, that of its log is low by about half its relative variance, which
        `standard_error` squared estimates. It is the density under the belief of the statistic network about the
        context, which stands for the exact posterior $p(c \mid S)$; nothing corrects for their difference.

        Args:
            x: examples (n, ...).
            given: a set for each of them, or one for all.
            num_importance: draws of context and latents of each example.
            key: seed; the same key gives the same numbers.
            max_bytes: memory for intermediate results; less does not change the numbers.
        """
        check_num("num_importance", num_importance)
        x, (sets, single) = self._examples(x, "x"), self._sets(given, "given")
        if not single and len(sets["x"]) != len(x):
            raise ValueError(f"given must have one set, or one for each of {len(x)} examples, got {len(sets['x'])}")
        taken = np.zeros(len(x), int) if single else np.arange(len(x))
        return self._log_predictive(x, sets, taken, num_importance, key, max_bytes)

    def classify(self, x: Any, given: Any, num_importance: int = 100, *, key: Key = 0) -> np.ndarray:
        """Probabilities that examples are of each of some sets, (example, set): shares of their predictive densities.

        Sets are equally probable before an example is seen. See `log_predictive` for what is estimated.

        Args:
            x: examples (n, ...).
            given: sets, one for each class; a class may have one example.
            num_importance: draws for each pair of example and set.
            key: seed.
        """
        check_num("num_importance", num_importance)
        x, (sets, _) = self._examples(x, "x"), self._sets(given, "given")
        count, logs = len(sets["x"]), []
        size = max(1, _MAX_BYTES // (4 * sets["x"].size))  # of examples at once, each beside all sets
        for block in np.split(np.arange(len(x)), range(size, len(x), size)):
            taken = np.tile(np.arange(count), len(block))
            found = self._log_predictive(x[block.repeat(count)], sets, taken, num_importance, key, _MAX_BYTES)
            logs.append(found.values.reshape(-1, count))
        odds = np.concatenate(logs)
        shares = np.exp(odds - odds.max(1, keepdims=True))
        return shares / shares.sum(1, keepdims=True)

    def context_divergences(self, x: Any, given: Any, *, network: int = 0) -> np.ndarray:
        r"""$KL(q(c \mid S)\,\|\,q(c \mid x))$ of every example x and set S, (example, set).

        The set with the least is the class of x by the rule of Edwards & Storkey (2017), which needs no decoder.
        """
        x, (sets, _), params = self._examples(x, "x"), self._sets(given, "given"), self._network(network)
        first = _encode(self._model, params, self._model.as_rows({"x": x[:, None]}))
        second = _encode(self._model, params, sets)
        alone = Normal(*(np.asarray(part)[:, None] for part in first))
        return np.asarray(divergence(Normal(*(np.asarray(part)[None] for part in second)), alone))

    # ---- parts

    def _log_predictive(
        self, x: Array, sets: dict[str, Array], taken: np.ndarray, num: int, key: Key, max_bytes: int
    ) -> ImportanceEstimate:
        rows = {"x": x, "given": sets["x"][taken], "mask": sets["mask"][taken]}
        return importance_estimate(PredictiveWeights(self._model), self._draws, rows, num, as_key(key), max_bytes)

    @property
    def _model(self) -> Any:
        return self.posterior.model

    @property
    def _draws(self) -> PyTree:
        return jax.tree.map(jnp.asarray, posterior_draws(self.posterior))

    def _network(self, network: int) -> PyTree:
        draws = self._draws
        if isinstance(network, bool) or not 0 <= network < _count(draws):
            raise ValueError(f"network must be from 0 to {_count(draws) - 1}, got {network}")
        return jax.tree.map(lambda leaf: leaf[network], draws)

    def _some(self, num: int) -> tuple[PyTree, int]:
        """Networks that take turns, and how many of num things each makes."""
        draws = self._draws
        count = min(_count(draws), num)
        chosen = np.linspace(0, _count(draws) - 1, count).astype(int)
        return jax.tree.map(lambda leaf: leaf[chosen], draws), -(-num // count)

    def _sets(self, data: Any, name: str) -> tuple[dict[str, Array], bool]:
        """Sets as the networks see them, and whether it was one."""
        shape = self._model.x_shape
        single = not isinstance(data, dict | list) and np.ndim(data) == 1 + len(shape)
        if not isinstance(data, dict | list) and np.ndim(data) not in (1 + len(shape), 2 + len(shape)):
            wanted = ", ".join(["examples", *map(str, shape)])
            raise ValueError(f"{name} must be a set ({wanted}), or several, got shape {np.shape(data)}")
        rows = self._model.read(np.asarray(data)[None] if single else data).tree
        self._model.check_rows(rows)
        return self._model.as_rows(rows), single

    def _examples(self, x: Any, name: str) -> Array:
        values, shape = as_numeric(x, name=name), self._model.x_shape
        if values.shape[1:] != shape:
            wanted = ", ".join(["n", *map(str, shape)])
            raise ValueError(f"{name} must have shape ({wanted}) as in the training data, got {values.shape}")
        return self._sets(values[:, None], name)[0]["x"][:, 0]


def _count(draws: PyTree) -> int:
    return jax.tree.leaves(draws)[0].shape[0]


@eqx.filter_jit
def _encode(model: Any, params: PyTree, rows: dict[str, Array]) -> tuple[Array, Array]:
    return model.inference(params, rows, jax.random.key(0)).moments()


@eqx.filter_jit
def _generate(model: Any, draws: PyTree, rows: dict[str, Array], num: int, noise: bool, key: PRNGKeyArray) -> Array:
    """Axes (network, num, set, ...)."""

    def of_network(part: tuple[PyTree, Array]) -> Array:
        params, i = part
        each = derive(key, i)
        mean, scale = model.inference(params, rows, each).moments()
        c = mean + scale * normal(derive(each, 0), (num, *mean.shape), mean.dtype)
        found = _examples_of(model, params, c.reshape(-1, c.shape[-1]), noise, derive(each, 1))
        return found.reshape(num, -1, *found.shape[1:])

    return jax.lax.map(of_network, (draws, jnp.arange(_count(draws))))


@eqx.filter_jit
def _generate_sets(model: Any, draws: PyTree, num: int, size: int, noise: bool, key: PRNGKeyArray) -> Array:
    """Axes (network, num, size, ...)."""

    def of_network(part: tuple[PyTree, Array]) -> Array:
        params, i = part
        each = derive(key, i)
        c = jnp.repeat(normal(derive(each, 0), (num, model.context_size)), size, axis=0)
        found = _examples_of(model, params, c, noise, derive(each, 1))
        return found.reshape(num, size, *found.shape[1:])

    return jax.lax.map(of_network, (draws, jnp.arange(_count(draws))))


def _examples_of(
    model: Any, params: PyTree, c: Float[Array, "n d"], noise: bool, key: PRNGKeyArray
) -> Float[Array, "n ..."]:
    """An example of each context."""
    latents = model.with_latents(params, c, normal(derive(key, 0), (c.shape[0], model.latent_size), c.dtype))
    output = model.decode(params, latents, {})
    return model.noisy(params, output, key=derive(key, 1)) if noise else model.mean_of(params, output)

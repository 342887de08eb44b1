"""What posteriors of models with an encoder and a decoder can be asked."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax._kernels.random import derive
from marginax._keys import Key, as_key
from marginax.data.arrays import as_numeric
from marginax.latent.mixture import check_num
from marginax.latent.vae.collapse import Collapse, measure_collapse
from marginax.latent.vae.completion import Completion, complete
from marginax.latent.vae.generative import size_of_output
from marginax.latent.vae.importance import ImportanceEstimate, importance_estimate, weight_sums
from marginax.model.conjugate import posterior_draws
from marginax.posterior import AbstractPosterior

_MAX_BYTES = 2**26
_MOST_ROWS = 500  # of which pairs are compared


@dataclass(frozen=True)
class Code:
    """Latents of examples: mean and standard deviation of each, (example, latent)."""

    mean: Float[np.ndarray, "n d"]
    scale: Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class VAEQueries:
    """Questions to a posterior over networks, averaged over them.

    Networks that were trained apart, as those of an ensemble, have latents that have nothing to do with each other:
    what is asked about latents is answered by one network, the first unless `network=` says which. What is asked about
    examples is answered by all.

    Args:
        posterior: of any method.
    """

    posterior: AbstractPosterior

    # ---- latents

    def encode(self, x: Any, *, network: int = 0) -> Code:
        """Mean and standard deviation of the latents of each example, from the encoder."""
        params, rows = self._network(network), self._rows(x)
        return Code(*(np.asarray(part) for part in _encode(self._model, params, rows)))

    def interpolate(self, x0: Any, x1: Any, num: int = 10, *, network: int = 0) -> np.ndarray:
        """What is between examples: means at latents on straight lines from one to the other, (num, example, ...)."""
        check_num("num", num)
        params, first, last = self._network(network), self._rows(x0), self._rows(x1)
        if first["x"].shape != last["x"].shape:
            raise ValueError(f"x0 and x1 must have the same shape, got {first['x'].shape} and {last['x'].shape}")
        start, end = (_encode(self._model, params, rows)[0] for rows in (first, last))
        shares = jnp.linspace(0.0, 1.0, num)[:, None, None]
        return np.asarray(_decode(self._model, params, (1 - shares) * start + shares * end, first))

    def traverse(self, x: Any, axis: int, values: Any, *, network: int = 0) -> np.ndarray:
        """Examples with one latent set to each of the values and the others at their means, (value, example, ...)."""
        params, rows, values = self._network(network), self._rows(x), jnp.asarray(values, float)
        mean, _ = _encode(self._model, params, rows)
        if not -mean.shape[1] <= axis < mean.shape[1]:
            raise ValueError(f"axis must be one of the {mean.shape[1]} latents, got {axis}")
        z = jnp.broadcast_to(mean, (len(values), *mean.shape)).at[:, :, axis].set(values[:, None])
        return np.asarray(_decode(self._model, params, z, rows))

    def decode(self, z: Any, *, context: Any = None, network: int = 0) -> np.ndarray:
        """What the decoder makes of latents, as `reconstruct` gives it, (example, ...).

        Args:
            z: latents, (example, latent).
            context: of each example, for a conditional model; of a semi-supervised one, labels as one-hot vectors.
            network: which one to ask.
        """
        model, params, z = self._model, self._network(network), jnp.asarray(as_numeric(z, name="z"), float)
        rows = self._contexts(context, len(z))
        size = jax.eval_shape(lambda: model.draw_latents(params, len(z), rows, key=jax.random.key(0))).shape[1]
        if z.ndim != 2 or z.shape[1] != size:
            raise ValueError(f"z must have shape (n, {size}), the latents of each example, got {z.shape}")
        inputs = f"{size} latents" + (" without a context" if context is None else " and the context")
        size_of_output("decoder", lambda: model.decode(params, z, rows), inputs)
        return np.asarray(_means(model, params, z, rows))

    # ---- examples

    def reconstruct(self, x: Any) -> np.ndarray:
        """What the decoder makes of the mean latents of each example.

        Means of entries, averaged over networks; where entries are classes, the most probable ones by the first.
        """
        rows = self._rows(x)
        found = np.asarray(_reconstruct(self._model, self._draws, rows)).astype(float)
        return found[0] if self._model.num_classes(rows) else found.mean(0)

    def generate(self, num: int, *, key: Key, noise: bool = False, context: Any = None) -> np.ndarray:
        """New examples: latents from their prior through the decoder, the networks in turn.

        Args:
            num: of examples.
            key: seed.
            noise: whether to draw entries, and not to give their means.
            context: of each example, for a conditional model.
        """
        check_num("num", num)
        rows = self._contexts(context, num)
        draws, model = self._draws, self._model
        count = min(_count(draws), num)
        each = -(-num // count)
        chosen = np.linspace(0, _count(draws) - 1, count).astype(int)
        some = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], draws)
        taken = np.minimum(np.arange(count * each), num - 1).reshape(count, each)
        more = {name: value[taken] for name, value in rows.items()}
        found = np.asarray(_generate(model, some, more, each, noise, as_key(key)))
        return found.reshape(count * each, *found.shape[2:])[:num]

    def log_likelihood(
        self, x: Any, num_importance: int = 1000, *, key: Key = 0, max_bytes: int = _MAX_BYTES
    ) -> ImportanceEstimate:
        """Log density of each example by importance sampling, with standard errors and effective sample sizes.

        Args:
            x: examples, as in the training data.
            num_importance: draws of latents of each example.
            key: seed; the same key gives the same numbers.
            max_bytes: memory for intermediate results; less does not change the numbers.
        """
        check_num("num_importance", num_importance)
        rows = self._rows(x)
        return importance_estimate(self._model, self._draws, rows, num_importance, as_key(key), max_bytes)

    def complete(
        self, x: Any, mask: Any, num: int = 10, *, key: Key, noise: bool = False, num_steps: int = 200, **more: Any
    ) -> Completion:
        """Answers to what the rest of examples may be, given what is observed: several, which differ.

        Args:
            x: examples; what is not observed does not matter.
            mask: True where an entry is observed, in the shape of x.
            num: of answers.
            key: seed.
            noise: whether to draw entries given latents, and not to give their means.
            num_steps: of the Hamiltonian chain of each answer, of 8 gradients each; in the first half it is tuned.
            **more: other parts of the data, such as `context=`.
        """
        check_num("num", num)
        check_num("num_steps", num_steps)
        if not self._model.has_continuous_latents:
            raise TypeError("complete follows gradients along latents, which discrete ones have not")
        rows = self._rows({"x": x, "mask": mask, **more})
        return complete(self._model, self._draws, rows, num, num_steps, noise, as_key(key))

    def ood_scores(self, x: Any, num_importance: int = 100, *, key: Key = 0) -> dict[str, np.ndarray]:
        """How far examples are from the data, higher is farther: by name, a number for each example.

        "likelihood" is minus the log density; "spread", of several networks, the standard deviation of theirs. A high
        density alone does not make an example typical (Nalisnick et al., 2019): compare both with those of data that
        were held out.
        """
        check_num("num_importance", num_importance)
        rows, draws = self._rows(x), self._draws
        sums = weight_sums(self._model, draws, rows, num_importance, as_key(key), _MAX_BYTES)
        highest, first, _ = (np.asarray(part, np.float64) for part in sums)
        logs = highest + np.log(first / num_importance)
        top = logs.max(0)
        scores = {"likelihood": -(top + np.log(np.exp(logs - top).mean(0)))}
        return scores if len(logs) == 1 else scores | {"spread": logs.std(0)}

    # ---- signs of collapse

    def collapse(self, x: Any, *, network: int = 0, key: Key = 0) -> Collapse:
        """Which latents are in use: divergences, active units, and information between examples and latents."""
        rows = self._rows(x)
        some = {name: value[:_MOST_ROWS] for name, value in rows.items()}
        return measure_collapse(self._model, self._network(network), rows, some, as_key(key))

    def summary_lines(self) -> tuple[list[str], list[str]]:
        """Of `posterior.summary()`: which latents are in use, on some rows of the data."""
        rows = self.posterior.record.rows
        return ([], []) if rows is None else self.collapse(rows).lines()

    # ---- parts

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

    def _contexts(self, context: Any, num: int) -> dict[str, Array]:
        rows = {} if context is None else {"context": jnp.asarray(np.asarray(context), float)}
        if context is not None and len(rows["context"]) != num:
            raise ValueError(f"context must have one row for each of the {num} examples, got {len(rows['context'])}")
        return rows

    def _rows(self, data: Any) -> dict[str, Array]:
        rows = self._model.read(data).tree
        self._model.check_rows(rows)
        return self._model.as_rows(rows)


def _count(draws: PyTree) -> int:
    return jax.tree.leaves(draws)[0].shape[0]


def _inference(model: Any, params: PyTree, rows: dict[str, Array]) -> Any:
    keys = jnp.broadcast_to(jax.random.key(0), (rows["x"].shape[0],))  # one of each row: networks without dropout
    return model.inference(params, rows, keys)


@eqx.filter_jit
def _encode(model: Any, params: PyTree, rows: dict[str, Array]) -> tuple[Array, Array]:
    return _inference(model, params, rows).moments()


@eqx.filter_jit
def _decode(model: Any, params: PyTree, z: Float[Array, "k n d"], rows: dict[str, Array]) -> Array:
    rows = model.conditions(params, rows)
    output = jax.lax.map(lambda each: model.decode(params, each, rows), z)
    return jax.lax.map(lambda each: model.mean_of(params, each), output)


@eqx.filter_jit
def _means(model: Any, params: PyTree, z: Float[Array, "n d"], rows: dict[str, Array]) -> Array:
    return model.mean_of(params, model.decode(params, z, rows))


@eqx.filter_jit
def _reconstruct(model: Any, draws: PyTree, rows: dict[str, Array]) -> Array:
    def of_network(params: PyTree) -> Array:
        mean, _ = _inference(model, params, rows).moments()
        return model.mean_of(params, model.decode(params, mean, model.conditions(params, rows)))

    return jax.lax.map(of_network, draws)


@eqx.filter_jit
def _generate(model: Any, draws: PyTree, rows: dict[str, Array], num: int, noise: bool, key: Any) -> Array:
    def of_network(part: tuple[PyTree, dict[str, Array], Array]) -> Array:
        params, rows, i = part
        each = derive(key, i)
        output = model.decode(params, model.draw_latents(params, num, rows, key=each), rows)
        return model.noisy(params, output, key=derive(each, 0)) if noise else model.mean_of(params, output)

    return jax.lax.map(of_network, (draws, rows, jnp.arange(_count(draws))))

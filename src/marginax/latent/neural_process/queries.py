"""What posteriors of neural processes can be asked: condition on a few points, then predict."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from jaxtyping import Key as KeyOf

from marginax._keys import Key
from marginax.latent.mixture import check_num
from marginax.latent.neural_process.tasks import as_columns, as_pair, as_tasks, check_sizes, split_tasks
from marginax.latent.queries import AbstractQueries
from marginax.model.conjugate import posterior_draws
from marginax.model.distributions import Normal
from marginax.posterior import AbstractPosterior
from marginax.predict import MAX_BYTES, RegressionPrediction
from marginax.predict.mixture import Mixture


@dataclass(frozen=True)
class NeuralProcessQueries(AbstractQueries):
    """Questions to a posterior over neural processes; averages are over draws of weights, if there are several."""

    def condition(self, context: Any) -> "ConditionedProcess":
        """The process given a few points of a new function.

        Args:
            context: a pair (x, y), shapes (points,) or (points, columns).
        """
        model: Any = self.posterior.model
        x, y = as_pair(context, name="context")
        y_shape = np.shape(context[1])[1:]
        if not len(x):
            if model.num_context[0] > 0:
                raise ValueError(
                    "context must have at least one point, got none: for predictions without a context build the "
                    "process with num_context=(0, ...)"
                )
            x, y = np.zeros((0, model.x_size)), np.zeros((0, model.y_size))
            y_shape = () if model.y_size == 1 else (model.y_size,)
        _check_columns(model, x=x, y=y)
        return ConditionedProcess(self.posterior, x, y, y_shape)

    def log_likelihood(
        self, data: Any, num_context: Any = None, *, num_importance: int = 100, key: Key | None = None
    ) -> np.ndarray:
        """Log density of the targets of each task given its context, summed over the targets.

        With a latent vector it is estimated by importance sampling, and a little low.

        Args:
            data: tasks.
            num_context: points of a context, drawn anew: a number or a pair (fewest, most); by default as in training.
            num_importance: latent vectors for each task and draw of the weights.
            key: seed of contexts and latent vectors; by default the same every time.
        """
        check_num("num_importance", num_importance)
        model: Any = self.posterior.model
        rows = as_tasks(data)
        model.check_rows(rows)
        sizes = model.num_context if num_context is None else check_sizes(num_context)
        if sizes[0] < model.num_context[0]:
            raise ValueError(f"num_context must be at least {model.num_context[0]}, as in training, got {num_context}")
        for_contexts, for_latents = jax.random.split(self.posterior.prediction_key(key))
        keys = jax.random.split(for_contexts, len(rows["x"]))
        model, draws = model.spanning(rows), posterior_draws(self.posterior)
        return np.asarray(_log_likelihood(model, draws, rows, sizes, keys, num_importance, for_latents))


@dataclass(frozen=True)
class ConditionedProcess:
    """A process given points of one function.

    Attributes:
        posterior: over neural processes.
        x: inputs of the context, (points, dx).
        y: its outputs, (points, dy).
        y_shape: the shape of one output as the user gave it, () or (dy,).
    """

    posterior: AbstractPosterior
    x: Float[np.ndarray, "n dx"]
    y: Float[np.ndarray, "n dy"]
    y_shape: tuple[int, ...]

    def __repr__(self) -> str:
        return f"ConditionedProcess(points={len(self.x)})"

    def predict(
        self, x: Any, *, num_samples: int = 100, key: Key | None = None, max_bytes: int = MAX_BYTES
    ) -> RegressionPrediction:
        """The distribution of the function's outputs at inputs x, each on its own.

        A mixture over draws of weights and, where the process has them, latent vectors; what they disagree about is
        the epistemic part.

        Args:
            x: inputs, (n,) or (n, dx).
            num_samples: latent vectors at least, over all draws of weights; no meaning without them.
            key: seed of the latent vectors; by default the same every time.
            max_bytes: memory for what is asked of the prediction.
        """
        check_num("num_samples", num_samples)
        draws, num_draws = self._draws()
        each = -(-num_samples // num_draws) if self._is_latent else 1
        law = self._components(draws, num_draws, each, x, self.posterior.prediction_key(key))
        num = law.loc.shape[0]
        mixture = Mixture(law, (True, True), np.full(num, -np.log(num)), law.loc.shape[1], max_bytes)
        return RegressionPrediction(mixture, y_shape=self.y_shape)

    def sample_functions(self, x: Any, num: int, *, key: Key) -> np.ndarray:
        """Functions that could be this one, without noise: each with a latent vector of its own, (num, n, *y_shape).

        Args:
            x: inputs, (n,) or (n, dx).
            num: how many.
            key: seed of weights and latent vectors.
        """
        check_num("num", num)
        if not self._is_latent:
            raise TypeError(
                "sample_functions needs a process with a latent vector, such as LatentNP(): without one, outputs at "
                "different inputs are independent given the context; use predict(x).sample(num, key=...)"
            )
        for_draws, for_latents = jax.random.split(self.posterior.prediction_key(key))
        draws = jax.tree.map(jnp.asarray, self.posterior.sample_params(num, key=for_draws))
        loc = self._components(draws, num, 1, x, for_latents).loc
        return np.asarray(loc).reshape(*loc.shape[:2], *self.y_shape)

    def log_likelihood(self, targets: Any, *, num_importance: int = 1000, key: Key | None = None) -> float:
        """Joint log density of further points of the function.

        Args:
            targets: a pair (x, y).
            num_importance: latent vectors for each draw of the weights, if there are any.
            key: seed of the latent vectors; by default the same every time.
        """
        check_num("num_importance", num_importance)
        x, y = as_pair(targets, name="targets")
        if not len(x):
            raise ValueError("targets must have at least one point, got none")
        _check_columns(self.posterior.model, x=x, y=y)
        rows = self._task(x, y)
        context = np.arange(rows["x"].shape[1])[None] < len(self.x)
        model: Any = self.posterior.model
        model, (draws, _) = model.spanning(rows), self._draws()
        key = self.posterior.prediction_key(key)
        return float(_log_predictive(model, draws, rows, jnp.asarray(context), num_importance, key)[0])

    @property
    def _is_latent(self) -> bool:
        model: Any = self.posterior.model
        return model.networks.latent is not None

    def _draws(self) -> tuple[PyTree, int]:
        draws = jax.tree.map(jnp.asarray, posterior_draws(self.posterior))
        return draws, jax.tree.leaves(draws)[0].shape[0]

    def _task(self, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        """The context and further points as one task."""
        parts = np.concatenate([self.x, x])[None], np.concatenate([self.y, y])[None]
        return {"x": parts[0], "y": parts[1], "mask": np.ones(parts[0].shape[:2], bool)}

    def _components(self, draws: PyTree, num: int, each: int, x: Any, key: PRNGKeyArray) -> Normal:
        """The distribution under every draw and latent vector, in the units of the data, axes (draw, n, dy)."""
        at = as_columns(x, name="x")
        if not len(at):
            raise ValueError("x must have at least one input, got none")
        _check_columns(self.posterior.model, x=at)
        rows = self._task(at, np.zeros((len(at), self.y.shape[1])))
        model: Any = self.posterior.model
        model, keys = model.spanning(rows), jax.random.split(key, (num, each))
        law = _predictive(model, draws, rows, keys, len(self.x))
        scaling = model.scaling
        loc, scale = (np.asarray(leaf, np.float64).reshape(num * each, len(at), -1) for leaf in (law.loc, law.scale))
        with jax.enable_x64(True):
            law = Normal(scaling.y_shift + scaling.y_factor * loc, scaling.y_factor * scale)
        return jax.tree.map(np.asarray, law)  # components of a prediction live on the host


def _check_columns(model: Any, **parts: np.ndarray) -> None:
    for name, values in parts.items():
        size = {"x": model.x_size, "y": model.y_size}[name]
        if values.shape[1] != size:
            raise ValueError(f"{name} must have {size} columns as in the tasks, got shape {values.shape}")


@eqx.filter_jit
def _predictive(model: Any, draws: PyTree, rows: PyTree, keys: KeyOf[Array, "s e"], num_context: int) -> Normal:
    points = model.points(rows)
    context = points.only(points.mask * (jnp.arange(points.mask.shape[1]) < num_context))
    x = points.x[:, num_context:]

    def under(pair: tuple[PyTree, KeyOf[Array, " e"]]) -> Normal:
        networks = model.networks_of(pair[0])
        if networks.latent is None:
            return jax.tree.map(lambda leaf: leaf[None], model.predictive_at(networks, context, x, None))
        belief = networks.latent(context)
        return jax.vmap(lambda key: model.predictive_at(networks, context, x, belief.sample(key)))(pair[1])

    return jax.lax.map(under, (draws, keys))


@eqx.filter_jit
def _log_predictive(
    model: Any, draws: PyTree, rows: PyTree, context: Array, num_importance: int, key: PRNGKeyArray
) -> Float[Array, " b"]:
    points = model.points(rows)
    chosen = context.astype(points.mask.dtype) * points.mask
    target = points.mask * (1.0 - chosen)
    logs = jax.lax.map(
        lambda params: model.log_predictive(params, points, chosen, target, num_importance=num_importance, key=key),
        jax.tree.map(jnp.asarray, draws),
    )
    return logsumexp(logs, axis=0) - jnp.log(logs.shape[0])


@eqx.filter_jit
def _log_likelihood(
    model: Any,
    draws: PyTree,
    rows: PyTree,
    sizes: tuple[int, int | None],
    keys: KeyOf[Array, " b"],
    num_importance: int,
    key: PRNGKeyArray,
) -> Float[Array, " b"]:
    context, _ = split_tasks(model.points(rows), sizes, keys)
    return _log_predictive(model, draws, rows, context, num_importance, key)

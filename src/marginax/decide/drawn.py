"""Class probabilities under each draw of a posterior, for what depends on how draws disagree at several inputs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax._keys import Key, as_key
from marginax.model.distributions import Bernoulli, Categorical
from marginax.posterior import AbstractPosterior
from marginax.predict.workload import chunk_sizes, measure_workload


def draw_probs(
    posterior: AbstractPosterior,
    x: Any,
    *,
    num_samples: int | None = None,
    key: Key | None = None,
    max_bytes: int = 256 * 2**20,
) -> tuple[Float[np.ndarray, "s n k"], Float[np.ndarray, " s"]]:
    """Probabilities of the classes at each input under each draw, and the weights of the draws.

    Args:
        posterior: of a model of classes, made by `mx.fit`.
        x: inputs, as in the training data.
        num_samples: draws to take; by default all, or 100 of a continuous posterior.
        key: seed for drawing them; by default that of predictions.
        max_bytes: memory for intermediate results.
    """
    spec = posterior.spec
    if spec is None:
        raise ValueError("this posterior was not made by mx.fit and has no data spec: pass spec= when building it")
    if posterior.linear_parts() is not None:
        raise TypeError(
            "posterior predicts by linearisation and has no draws of networks: "
            "fit it with predictive=mx.predict.ThroughNetwork()"
        )
    x = spec.check_x(x)
    x = x if spec.scaling is None else np.asarray(spec.scaling.transform_x(x))
    base = posterior.key if key is None else as_key(key)
    params, log_weights = posterior.support(num_samples, key=jax.random.key(0) if base is None else base)
    num = jax.tree.leaves(params)[0].shape[0]
    model = posterior.predictive_model()
    workload = measure_workload(model, params, jax.ShapeDtypeStruct(x.shape, jnp.asarray(x[:1]).dtype))
    outcome = workload.outcome
    yes_or_no = isinstance(outcome, Bernoulli) and outcome.logits.shape[-1] == 1
    if not yes_or_no and not isinstance(outcome, Categorical):
        raise TypeError(f"posterior must be one of a model of classes, got outcomes of {type(outcome).__name__}")
    probs = np.empty((num, len(x), 2 if yes_or_no else outcome.logits.shape[-1]), np.float32)
    draws, rows = chunk_sizes(num, len(x), workload, max_bytes)
    for start in range(0, len(x), rows):
        chunk = jnp.asarray(x[np.minimum(np.arange(start, start + rows), len(x) - 1)])
        for begin in range(0, num, draws):
            chosen = np.minimum(np.arange(begin, begin + draws), num - 1)
            part = np.asarray(_probs(model, jax.tree.map(lambda leaf, at=chosen: leaf[at], params), chunk))
            probs[begin : begin + draws, start : start + rows] = part[: num - begin, : len(x) - start]
    weights = np.zeros(num) if log_weights is None else np.asarray(log_weights, np.float64)
    return probs, np.exp(weights - np.logaddexp.reduce(weights))


@eqx.filter_jit
def _probs(model: Any, params: PyTree, x: Array) -> Float[Array, "s n k"]:
    distribution = eqx.filter_vmap(lambda p: model.predictive(p, x, key=None))(params)
    logits = distribution.logits
    if isinstance(distribution, Bernoulli):
        logits = jnp.concatenate([jnp.zeros_like(logits), logits], axis=-1)
    return jax.nn.softmax(logits, axis=-1)

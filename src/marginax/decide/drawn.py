"""Class probabilities under each draw of a posterior, for what depends on how draws disagree at several inputs."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from marginax._keys import Key
from marginax.posterior import AbstractPosterior
from marginax.predict import MAX_BYTES, DrawLoop


def draw_probs(
    posterior: AbstractPosterior,
    x: Any,
    *,
    num_samples: int | None = None,
    key: Key | None = None,
    max_bytes: int = MAX_BYTES,
) -> tuple[Float[np.ndarray, "s n k"], Float[np.ndarray, " s"]]:
    """Probabilities of the classes at each input under each draw, and the weights of the draws.

    Args:
        posterior: of a model of classes, made by `mx.fit`.
        x: inputs, as in the training data.
        num_samples: draws to take; by default all, or 100 of a continuous posterior.
        key: seed for drawing them; by default that of predictions.
        max_bytes: memory for intermediate results.
    """
    spec = posterior.data_spec()
    functions = posterior.functions(num_samples, key=posterior.prediction_key(key))
    loop = DrawLoop(functions, spec.check_x(x), spec=spec, max_bytes=max_bytes)
    if not loop.num_classes:
        raise TypeError(f"posterior must be one of a model of classes, got outcomes of {type(loop.like).__name__}")
    (probs,) = loop.collect(_probs)
    return probs, np.exp(loop.log_weights)


def _probs(distributions: PyTree, log_weights: Array) -> Float[Array, "s n k"]:
    return jax.nn.softmax(jax.vmap(lambda distribution: distribution.class_logits)(distributions), axis=-1)

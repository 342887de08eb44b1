"""Predictions whose distribution is known: a model whose parameters are those of its distributions, row by row."""

import numpy as np

from marginax.data import DataSpec
from marginax.predict import ClassificationPrediction, predict


class Law:
    """Draws are parameters of the distribution at each row; the input of a row is its number."""

    def __init__(self, family):
        self.family = family

    def predictive(self, params, x, *, key=None):
        rows = x[:, 0].astype(int)
        return self.family(*(p[rows] for p in params))


def predict_law(family, *params, log_weights=None, scaling=None, several=False):
    """The mixture over draws of `family(*params)`, where params have axes (draw, row, output)."""
    num, size = params[0].shape[1:]
    spec = DataSpec(x_shape=(1,), y_shape=(size,) if several else (), num_examples=num, scaling=scaling)
    x = np.arange(num, dtype=np.float32)[:, None]
    return predict(Law(family), params, x, spec=spec, log_weights=log_weights)


def some_params(num_draws, num_rows, *, num_outputs=1, seed=0):
    """Locations and scales in float32, so that references see the same numbers."""
    rng = np.random.default_rng(seed)
    shape = (num_draws, num_rows, num_outputs)
    return (
        (2 * rng.normal(size=shape)).astype(np.float32),
        np.exp(0.5 * rng.normal(size=shape)).astype(np.float32),
    )


def some_weights(num_draws, *, seed=1):
    """Log weights, not normalised, and the weights."""
    log_weights = np.random.default_rng(seed).normal(size=num_draws)
    return log_weights, np.exp(log_weights) / np.exp(log_weights).sum()


def predict_classes(probs):
    """A prediction with these probabilities."""
    return ClassificationPrediction(np.log(probs), np.zeros(len(probs)), np.zeros_like(probs), 1, 10**6)


def some_classes(num_rows, num_classes, *, seed=0, sharpness=1.0):
    """Probabilities, and labels that follow them if sharpness is 1 (above, the probabilities are overconfident)."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(num_rows, num_classes))
    truth = softmax(logits)
    labels = (rng.uniform(size=(num_rows, 1)) > np.cumsum(truth, axis=1)[:, :-1]).sum(axis=1)
    return softmax(sharpness * logits), labels


def softmax(logits):
    values = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return values / values.sum(axis=-1, keepdims=True)

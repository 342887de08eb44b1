"""What a prediction has to beat: a constant, and a linear model (scikit-learn's)."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float

from marginax._extras import require

_PENALTIES = np.logspace(-4, 4, 17)
_MOST_STEPS = 1000


def baselines(train: tuple[Any, Any], x: Any, *, num_classes: int | None = None) -> dict[str, Any]:
    """Predictions by name, as `mx.evaluate.scores` takes them: "constant", and where x is a table "linear".

    The constant is the mean and the standard deviation of the training targets, or the rates of the classes. The linear
    model is a ridge regression, whose penalty and Gaussian noise come from leaving out one row at a time, or a logistic
    regression with scikit-learn's defaults, on standardised columns.

    Args:
        train: training rows (x, y).
        x: inputs to predict at.
        num_classes: how many there are, if y are classes from 0; None if y are numbers.

    >>> x = np.arange(8.0)[:, None]
    >>> found = baselines((x, 3 * x[:, 0]), [[10.0]])
    >>> [round(float(found[name][0][0]), 2) for name in ("constant", "linear")]
    [10.5, 30.0]
    """
    inputs, targets = np.asarray(train[0], np.float64), np.asarray(train[1])
    x = np.asarray(x, np.float64)
    if num_classes is None:
        targets = targets.astype(np.float64)
        shape = (len(x), *targets.shape[1:])
        spread = np.maximum(targets.std(axis=0, ddof=len(targets) > 1), 1e-12)
        found: dict[str, Any] = {
            "constant": (np.broadcast_to(targets.mean(axis=0), shape), np.broadcast_to(spread, shape))
        }
    else:
        counts = np.bincount(targets.astype(int), minlength=num_classes) + 0.5  # a class that was not there may come
        found = {"constant": np.tile(counts / counts.sum(), (len(x), 1))}
    if inputs.ndim == 2 and len(inputs) > 2:
        scaler = require("sklearn.preprocessing").StandardScaler().fit(inputs)
        inputs, x = scaler.transform(inputs), scaler.transform(x)
        if num_classes is None:
            found["linear"] = _ridge(inputs, targets, x)
        elif len(np.unique(targets)) > 1:
            found["linear"] = _logistic(inputs, targets.astype(int), x, num_classes)
    return found


def _ridge(inputs: np.ndarray, targets: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    linear = require("sklearn.linear_model")
    model = linear.RidgeCV(_PENALTIES, store_cv_results=True).fit(inputs, targets)
    left_out = np.asarray(model.cv_results_).mean(axis=0)  # squared errors by output and penalty, or by penalty
    best = left_out.reshape(-1, len(_PENALTIES))[:, int(np.argmin(np.abs(_PENALTIES - model.alpha_)))]
    mean = np.asarray(model.predict(x)).reshape(len(x), *targets.shape[1:])
    spread = np.sqrt(np.maximum(best, 1e-24)).reshape(targets.shape[1:])
    return mean, np.broadcast_to(spread, mean.shape)


def _logistic(inputs: np.ndarray, labels: np.ndarray, x: np.ndarray, num_classes: int) -> Float[np.ndarray, "n k"]:
    model = require("sklearn.linear_model").LogisticRegression(max_iter=_MOST_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", require("sklearn.exceptions").ConvergenceWarning)  # near enough to compare with
        model.fit(inputs, labels)
    probs = np.full((len(x), num_classes), 1e-6)
    probs[:, model.classes_] = model.predict_proba(x)
    return probs / probs.sum(axis=1, keepdims=True)

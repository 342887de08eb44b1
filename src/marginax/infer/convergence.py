"""Had training converged when it ended? Told from the objective that was recorded at every step."""

from typing import Any

import numpy as np

from marginax.infer.method import Infos

OBJECTIVES = ("log_density", "elbo", "log_likelihood")  # in an info, the first of them that there is
_LEAST_STEPS = 100
_GAIN = 1.0  # nats per example from the middle fifth of the steps to the last
_Z = 4.9


def objective_of(info: dict[str, np.ndarray]) -> np.ndarray | None:
    """What a phase climbs, axes (chain, step), or None if it does not say."""
    return next((info[name] for name in OBJECTIVES if name in info), None)


def training_warnings(infos: Infos, num_examples: int, method: Any) -> tuple[str, ...]:
    """A sentence if the last training of a method that ends with it took few steps, or was still improving.

    The mean of the objective over the last fifth of the steps is compared with that over the fifth in the middle, in
    nats per example and in standard errors: learning rates that fall make the last steps so small that these alone
    would hide what is missing. A nat is much: trainings of default length gain up to 0.6 there by learning a smaller
    noise (boston, yacht), and rates that fall let short ones gain as little: this finds only what was cut off rudely.
    Chains that sample after training are judged as chains.
    """
    names = [name for name in infos if name.startswith("train")]
    objective = objective_of(infos[names[-1]]) if names else None
    if objective is None or "sample" in infos or objective.shape[1] == 0:
        return ()
    num_steps = objective.shape[1]
    if num_steps < _LEAST_STEPS and not _has_line_search(method):
        steps = "1 step" if num_steps == 1 else f"{num_steps} steps"
        return (f"training took only {steps}, too few to tell whether it has converged: train longer (num_epochs)",)
    gain, error = last_gain(objective.astype(np.float64).mean(axis=0))
    if gain <= max(_GAIN * num_examples, _Z * error):
        return ()
    return (
        f"training was still improving when it ended, by {gain / num_examples:.2g} nats per example in the second half "
        "of its steps: train longer (num_epochs), or until held-out rows are no better (EarlyStopping)",
    )


def last_gain(values: np.ndarray) -> tuple[float, float]:
    """Mean of the last fifth of a series less that of the fifth in the middle, and its standard error.

    The noise is read off differences of neighbours, which a trend hardly enters.

    >>> gain, error = last_gain(np.arange(100.0))
    >>> gain, bool(error < 0.2)
    (40.0, True)
    """
    size = len(values) // 5
    if size < 2:
        return 0.0, np.inf
    middle, last = values[2 * size : 3 * size], values[-size:]
    noise = (np.var(np.diff(middle)) + np.var(np.diff(last))) / 2
    return float(last.mean() - middle.mean()), float(np.sqrt(noise / size))


def _has_line_search(method: Any) -> bool:
    """Whether few steps are enough."""
    training = getattr(method, "training", None)
    return bool(getattr(getattr(training or method, "optimiser", None), "has_line_search", False))

"""Had training converged when it ended? Told from the objective that was recorded at every step."""

from typing import Any

import jax
import numpy as np

from marginax.data import AbstractSource
from marginax.infer.map import MAP
from marginax.infer.method import Infos
from marginax.model import AbstractModel, Model

OBJECTIVES = ("log_density", "elbo", "log_likelihood")  # in an info, the first of them that there is
_LEAST_STEPS = 100
_GAIN = 1.0  # nats per example from the middle fifth of the steps to the last
_Z = 4.9
_MOST_AWAY = 0.5  # from one, of the mean square of residuals in units of the noise
_MOST_CHAINS = 20  # to look at


def objective_of(info: dict[str, np.ndarray]) -> np.ndarray | None:
    """What a phase climbs, axes (chain, step), or None if it does not say."""
    return next((info[name] for name in OBJECTIVES if name in info), None)


def end_warnings(
    infos: Infos, source: AbstractSource, method: Any, model: AbstractModel, states: Any
) -> tuple[str, ...]:
    """What is to be said of a method that ends with training, when it has taken all of its steps."""
    told = training_warnings(infos, int(source.spec.num_examples), method)
    return told or noise_warnings(infos, source, method, model, states)


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


def noise_warnings(
    infos: Infos, source: AbstractSource, method: Any, model: AbstractModel, states: Any
) -> tuple[str, ...]:
    """A sentence if the noise that was learned is not that of the residuals, where the log density was climbed.

    At the mode the mean square of residuals, in units of the noise, is one. Rates that fall end a short training
    without a sign in its objective, and the noise is what settles last. On a sine, yacht and boston (training rows) it
    is 1.02 to 1.1 after trainings of default length, and 3.6 after a twentieth of it on the sine, which covers 40% in
    place of 90%. It is read off the log density of the last steps, so it costs nothing.

    Args:
        infos: as recorded.
        source: of the rows; nothing is said where they have weights.
        method: that was run.
        model: of which nothing is said unless its likelihood learns the level of normal noise.
        states: at the end, with a leading axis of chains.
    """
    training = getattr(method, "training", None) or getattr(method, "inner", method)
    values = infos.get("train", {}).get("log_density")
    if not isinstance(training, MAP) or values is None or "sample" in infos or "collect" in infos:
        return ()
    if not isinstance(model, Model) or len(source.examples(1)) > 2:
        return ()
    last = np.asarray(values[:, -max(1, values.shape[1] // 50) :], np.float64).mean(axis=1)
    squares = []
    for chain in range(min(len(last), _MOST_CHAINS)):
        params = jax.tree.map(lambda leaf, at=chain: leaf[at], states.params)
        noise = model.likelihood.noise(params.likelihood)
        if noise is None:
            return ()
        log_scale, power = np.asarray(noise.log_scale, np.float64), float(noise.power)
        log_likelihood = last[chain] - float(model.log_prior(params))
        num = power * int(source.spec.num_examples)
        misfit = -2.0 * (log_likelihood + num * np.sum(log_scale + 0.5 * np.log(2 * np.pi)))
        squares.append(misfit / (num * log_scale.size))
    worst = max(squares, key=lambda square: abs(square - 1.0))
    if not abs(worst - 1.0) > _MOST_AWAY:
        return ()
    return (
        f"the noise that was learned is not that of the residuals, whose mean square is {worst:.2g} in its units: "
        "training ended before it settled, so train longer (num_epochs)",
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

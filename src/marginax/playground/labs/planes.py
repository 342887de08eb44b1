"""Data sets of classes in the plane, and maps of what a posterior says there."""

from typing import Any

import numpy as np

from marginax.posterior import AbstractPosterior

NUM_SAMPLES = 100
_NUM_GRID, _NUM_POINTS = 41, 100


def data_set(name: str) -> np.ndarray:
    """Points (n, 3): two coordinates in [-3, 3] and a class, always the same.

    >>> [data_set(name).shape for name in ("moons", "circles", "spirals")]
    [(100, 3), (100, 3), (100, 3)]
    """
    return _SETS[name]().round(3)


def moons(num: int = _NUM_POINTS, *, seed: int = 0) -> np.ndarray:
    """Two half circles that reach into each other."""
    rng = np.random.default_rng(seed)
    angle, label = rng.uniform(0, np.pi, num), np.arange(num) % 2
    x = np.where(label == 0, np.cos(angle), 1 - np.cos(angle)) - 0.5
    y = np.where(label == 0, np.sin(angle), 0.5 - np.sin(angle)) - 0.25
    return _noisy(1.5 * x, 1.5 * y, label, 0.25, rng)


def circles(num: int = _NUM_POINTS) -> np.ndarray:
    """A circle in a circle."""
    rng = np.random.default_rng(1)
    angle, label = rng.uniform(0, 2 * np.pi, num), np.arange(num) % 2
    radius = np.where(label == 0, 0.7, 2.0)
    return _noisy(radius * np.cos(angle), radius * np.sin(angle), label, 0.2, rng)


def spirals(num: int = _NUM_POINTS) -> np.ndarray:
    """Two arms."""
    rng = np.random.default_rng(2)
    turn, label = np.sqrt(rng.uniform(0.02, 1, num)), np.arange(num) % 2
    angle = 3 * np.pi * turn + np.pi * label
    return _noisy(2.5 * turn * np.cos(angle), 2.5 * turn * np.sin(angle), label, 0.08, rng)


def _noisy(x: np.ndarray, y: np.ndarray, label: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    places = np.stack([x, y], axis=1) + scale * rng.normal(size=(len(x), 2))
    return np.column_stack([np.clip(places, -3, 3), label])


_SETS = {"moons": moons, "circles": circles, "spirals": spirals}


def grid() -> tuple[np.ndarray, np.ndarray]:
    """The axis of maps, and all places of a map, by rows."""
    axis = np.linspace(-3, 3, _NUM_GRID)
    return axis, np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def maps_of(posterior: AbstractPosterior, *, num_samples: int = NUM_SAMPLES) -> dict[str, Any]:
    """Probabilities and entropies, as maps."""
    _, places = grid()
    prediction: Any = posterior.predict(places, num_samples=num_samples)
    shape = (_NUM_GRID, _NUM_GRID)
    return {
        "probability": [column.reshape(shape) for column in np.asarray(prediction.probs).T],
        "entropy": np.asarray(prediction.entropy).reshape(shape),
        "expected_entropy": np.asarray(prediction.expected_entropy).reshape(shape),
        "mutual_information": np.asarray(prediction.mutual_information).reshape(shape),
    }

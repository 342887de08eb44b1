"""Invented characters and drawings of them, which nobody has to download: for models of sets of images.

A character is a few strokes, quadratic Bezier curves between random points. A drawing moves every point a little and
slants, turns, stretches and shifts the whole. They are easier than handwriting: what varies is known, and smooth.
"""

import jax
import numpy as np
from jaxtyping import Float32

from marginax._keys import Key, as_key

_MOST_STROKES, _POINTS = 4, 14  # points along a stroke
_WIDTH, _SOFTNESS = 0.035, 0.012  # of a pen, in widths of the paper


def invented_characters(
    num: int, num_drawings: int = 20, *, size: int = 28, key: Key
) -> Float32[np.ndarray, "num num_drawings size size"]:
    """Drawings of characters that do not exist, ink 1 and paper 0.

    Args:
        num: of characters, of two to four strokes.
        num_drawings: of each.
        size: height and width in pixels.
        key: seed; the first characters of a key are the same for every num.

    >>> images = invented_characters(3, 5, key=0)
    >>> images.shape, float(images.min()) >= 0, float(images.max()) <= 1
    ((3, 5, 28, 28), True, True)
    """
    for name, value in (("num", num), ("num_drawings", num_drawings), ("size", size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
    entropy = np.asarray(jax.random.key_data(as_key(key))).astype(np.uint32).tolist()
    found = np.zeros((num, num_drawings, size, size), np.float32)
    for i in range(num):
        found[i] = _drawings(np.random.default_rng([*entropy, i]), num_drawings, size)
    return found


def _drawings(rng: np.random.Generator, num: int, size: int) -> np.ndarray:
    """Of one character."""
    strokes = rng.uniform(0.15, 0.85, (rng.integers(2, _MOST_STROKES + 1), 3, 2))
    for stroke in range(1, len(strokes)):
        if rng.random() < 0.5:  # it begins where one before it ends
            strokes[stroke, 0] = strokes[rng.integers(stroke), 2]
    points = strokes + 0.02 * rng.normal(size=(num, *strokes.shape))
    change = np.eye(2) + 0.08 * rng.normal(size=(num, 2, 2))
    shift = 0.5 + 0.03 * rng.normal(size=(num, 1, 1, 2))
    points = np.einsum("nspa,nab->nspb", points - 0.5, change) + shift
    t = np.linspace(0, 1, _POINTS)
    weights = np.stack([(1 - t) ** 2, 2 * t * (1 - t), t**2], axis=1)
    path = np.einsum("tp,nspa->nsta", weights, points).reshape(num, -1, 2).astype(np.float32)
    grid = (np.arange(size, dtype=np.float32) + 0.5) / size
    across, down = ((grid[:, None] - path[:, None, :, axis]) ** 2 for axis in (0, 1))  # (drawing, pixel, point)
    distance = np.sqrt((down[:, :, None] + across[:, None]).min(-1))
    return 1 / (1 + np.exp(np.clip((distance - _WIDTH) / _SOFTNESS, -30, 30)))

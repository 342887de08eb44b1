"""Cycles of the calendar: what time of the day, of the week and of the year a date is."""

import numpy as np
from jaxtyping import Float

CYCLES = {"hour of day": 1.0, "weekday": 7.0, "season": 365.2425}
"""Names and lengths in days; 1970 began at midnight of a Thursday in winter."""


def cycles_of(days: Float[np.ndarray, " n"]) -> tuple[str, ...]:
    """The cycles that dates go through at least once, and not always at the same point.

    >>> cycles_of(np.arange(0.0, 30.0)), cycles_of(np.arange(0.0, 800.0, 7.0))
    (('weekday',), ('season',))
    """
    known = days[~np.isnan(days)]
    span = np.ptp(known) if known.size else 0.0
    return tuple(name for name, length in CYCLES.items() if span >= 0.9 * length and _moves(known, length))


def encode_cycles(days: Float[np.ndarray, " n"], cycles: tuple[str, ...]) -> Float[np.ndarray, "n twice"]:
    """Sine and cosine of each cycle; 0 where the date is missing."""
    turns = 2 * np.pi * np.nan_to_num(days)[:, None] / np.array([CYCLES[name] for name in cycles])
    waves = np.stack([np.sin(turns), np.cos(turns)], axis=2).reshape(len(days), -1)
    return np.where(np.isnan(days)[:, None], 0.0, waves)


def names_of_cycles(column: str, cycles: tuple[str, ...]) -> list[str]:
    """Names of what `encode_cycles` gives.

    >>> names_of_cycles("sold", ("weekday",))
    ['sold: weekday (sin)', 'sold: weekday (cos)']
    """
    return [f"{column}: {name} ({wave})" for name in cycles for wave in ("sin", "cos")]


def _moves(days: Float[np.ndarray, " n"], length: float) -> bool:
    angles = np.exp(2j * np.pi * days / length)
    return bool(np.abs(angles - angles[0]).max() > 1e-3)

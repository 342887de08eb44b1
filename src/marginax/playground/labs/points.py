"""Data sets of the lab of functions: points (x, y)."""

import numpy as np

from marginax.data import load_co2

# the ten measurements of `marginax demo`; a test compares them
_TEN = np.array([1.1, 2.3, 3.3, 3.9, 9.6, 10.1, 11.3, 4.7, 8.2, 5.9])


def data_set(name: str) -> np.ndarray:
    """Points (n, 2), always the same.

    >>> [data_set(name).shape for name in ("ten", "gap", "heteroscedastic", "sinus")]
    [(10, 2), (60, 2), (80, 2), (50, 2)]
    """
    return _SETS[name]().round(4)


def ten() -> np.ndarray:
    """Ten noisy measurements of y = 3x."""
    noise = np.random.default_rng(3).normal(size=len(_TEN))
    return np.stack([_TEN, 3.0 * _TEN + (0.2 + 0.12 * _TEN) * noise], axis=1)


def gap() -> np.ndarray:
    """A cubic with nothing in its middle."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-4, -1.5, 30), rng.uniform(1.5, 4, 30)])
    return np.stack([x, 0.3 * x**3 + rng.normal(size=60)], axis=1)


def heteroscedastic() -> np.ndarray:
    """A line with a wave whose noise grows."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 10, 80))
    return np.stack([x, x + 2 * np.sin(x) + (0.05 + 0.15 * x) * rng.normal(size=80)], axis=1)


def sinus() -> np.ndarray:
    """A sine with noise of a fifth."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-3, 3, 50)
    return np.stack([x, np.sin(2 * x) + 0.2 * rng.normal(size=50)], axis=1)


def co2() -> np.ndarray:
    """Carbon dioxide at Mauna Loa in ppm since 2006, every third month (Scripps, NOAA)."""
    try:
        year, ppm = load_co2("monthly")
    except Exception as error:  # there may be no network, or a file may be damaged
        text = "the measurements are not on this machine and cannot be fetched: set MARGINAX_DATA to a folder with co2/"
        raise FileNotFoundError(f"{text} ({error})") from error
    recent = year >= 2006
    return np.stack([year[recent], ppm[recent]], axis=1)[::3]


_SETS = {"ten": ten, "gap": gap, "heteroscedastic": heteroscedastic, "sinus": sinus, "co2": co2}

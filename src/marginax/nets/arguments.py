"""Checks of what networks are made with: an error names the argument, the value and what would be right."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array


def check_positive_ints(**values: Any) -> None:
    """Raise unless each value is an int >= 1, or a tuple of such.

    >>> check_positive_ints(hidden=8, in_shape=(1, 0))
    Traceback (most recent call last):
    ValueError: in_shape must be positive ints, got (1, 0)
    """
    for name, value in values.items():
        sizes = value if isinstance(value, tuple | list) else (value,)
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in sizes):
            raise ValueError(f"{name} must be positive ints, got {value!r}")


def check_image_shape(name: str, shape: Any) -> None:
    """Raise unless this is (channels, height, width)."""
    if not isinstance(shape, tuple | list) or len(shape) != 3:
        raise ValueError(f"{name} must be (channels, height, width), got {shape!r}")
    check_positive_ints(**{name: shape})


def check_channels(channels: tuple[Any, ...]) -> None:
    """Raise unless there are numbers of channels, one for each level."""
    if not channels:
        raise ValueError("channels must be one positive int or more, got ()")
    check_positive_ints(channels=channels)


def check_dropout(dropout: Any) -> None:
    """Raise unless this is a probability of being dropped."""
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be in [0, 1), got {dropout}")


def check_activation(activation: Callable[[Array], Array]) -> None:
    """Raise unless this is a function."""
    if not callable(activation):
        raise TypeError(f"activation must be a function such as jax.nn.relu, got {activation!r}")

"""Random transforms of one example, from which augmentation is made: of data, or of a likelihood.

A transform is a function of the example and of a few numbers that are uniform in (0, 1): random ones, or ones that are
spread evenly, or the middles of equal parts, by which every member of a finite orbit is met once. Strengths are arrays,
so that another number is new data to a compiled program and not new code, and have derivatives, so that the evidence
can choose them. What lies beyond the border of an image or a series is as the border is.
"""

import abc
import itertools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import derive, normal
from marginax.files import register


def as_strength(value: Any) -> Any:
    """A number as an array; arrays as they are.

    >>> as_strength(30).dtype
    dtype('float32')
    """
    return value if eqx.is_array(value) or value is None else np.asarray(value, np.float32)


def check_strength(name: str, value: Any, *, largest: float = np.inf) -> None:
    """Raise unless it is a number >= 0 (or several), and at most the largest."""
    if isinstance(value, Tracer) or not eqx.is_array(value):
        return
    if np.any(~np.isfinite(np.asarray(value)) | (np.asarray(value) < 0) | (np.asarray(value) > largest)):
        limits = ">= 0" if np.isinf(largest) else f"between 0 and {largest:g}"
        raise ValueError(f"{name} must be {limits}, got {np.asarray(value).tolist()}")


class AbstractTransform(eqx.Module):
    """What may be done to an example without changing what it is."""

    num_uniforms: ClassVar[int]
    """How many uniform numbers say what is done."""

    strengths: ClassVar[tuple[str, ...]] = ()
    """Fields that say how much may be done, and that have derivatives."""

    @abc.abstractmethod
    def apply(self, x: Float[Array, "..."], uniforms: Float[Array, " u"], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        """One example, transformed as the uniform numbers say; the key is for those that need noise of its size."""

    @abc.abstractmethod
    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a ValueError if examples of this shape cannot be transformed."""

    @property
    def num_members(self) -> int | None:
        """How many things may be done, if they are finitely many and equally probable."""

    def __call__(self, x: Float[Array, "..."], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        """One example, transformed at random."""
        return apply_transforms((self,), x, *draw_uniforms((self,), key))


Transforms = tuple[AbstractTransform, ...]


def apply_transforms(
    transforms: Transforms, x: Float[Array, "..."], uniforms: Float[Array, " u"], key: PRNGKeyArray
) -> Float[Array, "..."]:
    """One example, transformed by one after the other, each with its share of the uniform numbers."""
    start = 0
    for i, transform in enumerate(transforms):
        share = uniforms[start : start + transform.num_uniforms]
        x = transform.apply(x, share, key=derive(key, i)).astype(x.dtype)
        start += transform.num_uniforms
    return x


def draw_uniforms(transforms: Transforms, key: PRNGKeyArray) -> tuple[Float[Array, " u"], PRNGKeyArray]:
    """Random numbers for all of the transforms, and a key for their noise."""
    num = sum(transform.num_uniforms for transform in transforms)
    return jax.random.uniform(derive(key, 0), (num,)), derive(key, 1)


def spread_uniforms(transforms: Transforms, num_views: int | None) -> Float[np.ndarray, "views u"]:
    """Numbers that are spread evenly, or all members of a finite orbit, each once.

    Each number has the middles of equal parts, in the order of a lattice of golden ratios: a Latin hypercube.

    >>> spread_uniforms((Flip(), Rotations((0.0, 90.0))), None).tolist()
    [[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]]
    """
    if num_views is None:
        middles = []
        for transform in transforms:
            num = transform.num_members
            assert num is not None
            middles += [(np.arange(num) + 0.5) / num]
        return np.array(list(itertools.product(*middles)), np.float32)
    num = sum(transform.num_uniforms for transform in transforms)
    ratio = 1.5
    for _ in range(50):  # the root of r ** num = r + 1
        ratio = (1 + ratio) ** (1 / max(num, 2))
    steps = np.array([1 / num_views, *(ratio ** -np.arange(1, num))])[:num]
    lattice = ((np.arange(num_views)[:, None] + 0.5) * steps) % 1.0
    return ((np.argsort(np.argsort(lattice, axis=0), axis=0) + 0.5) / num_views).astype(np.float32)


def num_in_orbit(transforms: Transforms) -> int:
    """Of a finite orbit; a ValueError names what is not finite."""
    total = 1
    for transform in transforms:
        if transform.num_members is None or transform.num_uniforms != 1:
            raise ValueError(
                f"num_views must be a number where the orbit is not finite, and {type(transform).__name__} has no "
                "end: only Flip() and Rotations(degrees) have all their members enumerated by num_views=None"
            )
        total *= transform.num_members
    return total


def check_transforms(transforms: Any, kind: Any = AbstractTransform) -> tuple[Any, ...]:
    """One transform or several, as a tuple; a TypeError names what is none."""
    found = tuple(transforms) if isinstance(transforms, tuple | list) else (transforms,)
    if not found:
        raise ValueError("transforms must hold at least one transform, got none")
    for transform in found:
        if not isinstance(transform, kind):
            raise TypeError(f"transforms must be objects such as mx.data.Rotate(30.0), got {transform!r}")
    return found


# ---- images (..., height, width)


@register("transform/rotate")
class Rotate(AbstractTransform):
    """Turned about the middle by an angle between minus and plus the largest one, all equally probable (bilinear).

    Args:
        max_degrees: the largest angle, counter-clockwise, at most 180.

    >>> Rotate(30.0)(jnp.ones((1, 28, 28)), key=jax.random.key(0)).shape
    (1, 28, 28)
    """

    num_uniforms: ClassVar[int] = 1
    strengths: ClassVar[tuple[str, ...]] = ("max_degrees",)
    max_degrees: Float[Array, ""] | np.ndarray = eqx.field(converter=as_strength)

    def __check_init__(self):
        check_strength("max_degrees", self.max_degrees, largest=180.0)

    def check(self, shape: tuple[int, ...]) -> None:
        check_image(self, shape)

    def apply(self, x: Float[Array, "..."], uniforms: Float[Array, " u"], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        return rotate(x, jnp.minimum(self.max_degrees, 180.0) * (2 * uniforms[0] - 1))


@register("transform/rotations")
class Rotations(AbstractTransform):
    """Turned about the middle by one of some angles, all equally probable (bilinear).

    Args:
        degrees: the angles, counter-clockwise; with 0 among them, if nothing is to be done at times.
    """

    num_uniforms: ClassVar[int] = 1
    degrees: Float[Array, " angles"] | np.ndarray = eqx.field(converter=as_strength)

    def __check_init__(self):
        if isinstance(self.degrees, Tracer) or not eqx.is_array(self.degrees):
            return
        if self.degrees.ndim != 1 or not len(self.degrees) or not np.isfinite(np.asarray(self.degrees)).all():
            raise ValueError(f"degrees must be one angle or more, such as (0.0, 90.0), got {self.degrees!r}")

    @property
    def num_members(self) -> int:
        return self.degrees.shape[0]

    def check(self, shape: tuple[int, ...]) -> None:
        check_image(self, shape)

    def apply(self, x: Float[Array, "..."], uniforms: Float[Array, " u"], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        which = jnp.minimum((uniforms[0] * self.num_members).astype(jnp.int32), self.num_members - 1)
        return rotate(x, jnp.asarray(self.degrees)[which])


@register("transform/shift")
class Shift(AbstractTransform):
    """Moved by any part of a pixel, up or down and left or right (bilinear).

    Args:
        max: pixels, at most, in each direction.
    """

    num_uniforms: ClassVar[int] = 2
    strengths: ClassVar[tuple[str, ...]] = ("max",)
    max: Float[Array, ""] | np.ndarray = eqx.field(converter=as_strength)

    def __check_init__(self):
        check_strength("max", self.max)

    def check(self, shape: tuple[int, ...]) -> None:
        check_image(self, shape)

    def apply(self, x: Float[Array, "..."], uniforms: Float[Array, " u"], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        down, right = self.max * (2 * uniforms - 1)
        rows, columns = jnp.mgrid[: x.shape[-2], : x.shape[-1]]
        return bilinear(x, rows - down, columns - right)


@register("transform/random_crop")
class RandomCrop(AbstractTransform):
    """Padded on all sides, and cut to its size again at a random place: moved by whole pixels.

    Args:
        padding: pixels on each side; they are as the border is.
    """

    num_uniforms: ClassVar[int] = 2
    padding: Float[Array, ""] | np.ndarray = eqx.field(converter=as_strength)

    def __check_init__(self):
        check_strength("padding", self.padding)

    def check(self, shape: tuple[int, ...]) -> None:
        check_image(self, shape)

    def apply(self, x: Float[Array, "..."], uniforms: Float[Array, " u"], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        down, right = (uniforms * (2 * self.padding + 1)).astype(jnp.int32) - jnp.asarray(self.padding, jnp.int32)
        rows = jnp.clip(jnp.arange(x.shape[-2]) + down, 0, x.shape[-2] - 1)
        return jnp.take(jnp.take(x, rows, axis=-2), jnp.clip(jnp.arange(x.shape[-1]) + right, 0, x.shape[-1] - 1), -1)


@register("transform/flip")
class Flip(AbstractTransform):
    """Reversed, or not.

    Args:
        axis: which: -1 swaps left and right, -2 the top and the bottom.

    >>> [Flip().apply(jnp.arange(3.0), jnp.array([u]), key=jax.random.key(0)).tolist() for u in (0.25, 0.75)]
    [[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]
    """

    num_uniforms: ClassVar[int] = 1
    axis: int = eqx.field(static=True, default=-1)

    def __check_init__(self):
        if isinstance(self.axis, bool) or not isinstance(self.axis, int) or self.axis >= 0:
            raise ValueError(f"axis must be counted from the last, -1 or -2, got {self.axis!r}")

    @property
    def num_members(self) -> int:
        return 2

    def check(self, shape: tuple[int, ...]) -> None:
        if len(shape) < -self.axis:
            raise ValueError(f"x must have {-self.axis} axes or more for Flip({self.axis}), got examples {shape}")

    def apply(self, x: Float[Array, "..."], uniforms: Float[Array, " u"], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        return jnp.where(uniforms[0] < 0.5, x, jnp.flip(x, self.axis))


@register("transform/gaussian_noise")
class GaussianNoise(AbstractTransform):
    """Normal noise on every entry.

    Args:
        scale: standard deviation, in the units that the model sees.
    """

    num_uniforms: ClassVar[int] = 0
    strengths: ClassVar[tuple[str, ...]] = ("scale",)
    scale: Float[Array, ""] | np.ndarray = eqx.field(converter=as_strength)

    def __check_init__(self):
        check_strength("scale", self.scale)

    def check(self, shape: tuple[int, ...]) -> None:
        """Any will do."""

    def apply(self, x: Float[Array, "..."], uniforms: Float[Array, " u"], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        return x + self.scale * normal(key, x.shape, x.dtype)


# ---- tables (features,) and series (time, features)


@register("transform/jitter")
class Jitter(AbstractTransform):
    """Normal noise with a standard deviation for each feature.

    Args:
        scale: standard deviations, one for all or one for each, in the units that the model sees (those of the
            standardised table); 0 for what is known exactly, such as indicators.
    """

    num_uniforms: ClassVar[int] = 0
    strengths: ClassVar[tuple[str, ...]] = ("scale",)
    scale: Float[Array, "*features"] | np.ndarray = eqx.field(converter=as_strength)

    def __check_init__(self):
        check_strength("scale", self.scale)

    def check(self, shape: tuple[int, ...]) -> None:
        if self.scale.ndim and shape[-1:] != self.scale.shape:
            raise ValueError(f"scale must be a number or one for each of {shape[-1:]} features, got {self.scale.shape}")

    def apply(self, x: Float[Array, "..."], uniforms: Float[Array, " u"], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        return x + self.scale * normal(key, x.shape, x.dtype)


@register("transform/time_shift")
class TimeShift(AbstractTransform):
    """A series (time, features) earlier or later, by any part of a step (linear between steps).

    Args:
        max: steps, at most.
    """

    num_uniforms: ClassVar[int] = 1
    strengths: ClassVar[tuple[str, ...]] = ("max",)
    max: Float[Array, ""] | np.ndarray = eqx.field(converter=as_strength)

    def __check_init__(self):
        check_strength("max", self.max)

    def check(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or shape[0] < 2:
            raise ValueError(f"x must hold series (time, features) for TimeShift, got examples of shape {shape}")

    def apply(self, x: Float[Array, "..."], uniforms: Float[Array, " u"], *, key: PRNGKeyArray) -> Float[Array, "..."]:
        times = jnp.clip(jnp.arange(x.shape[0]) - self.max * (2 * uniforms[0] - 1), 0.0, x.shape[0] - 1.0)
        before = jnp.minimum(times.astype(jnp.int32), x.shape[0] - 2)
        part = (times - before)[:, None]
        return (1 - part) * x[before] + part * x[before + 1]


# ---- geometry


def rotate(x: Float[Array, "*c h w"], degrees: Float[Array, ""]) -> Float[Array, "*c h w"]:
    """Turned counter-clockwise about the middle of the image, which lies between pixels where their number is even.

    >>> rotate(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array(90.0)).round(3).tolist()
    [[2.0, 4.0], [1.0, 3.0]]
    """
    angle = jnp.deg2rad(degrees)
    middle, centre = (x.shape[-2] - 1) / 2, (x.shape[-1] - 1) / 2
    down, right = jnp.arange(x.shape[-2])[:, None] - middle, jnp.arange(x.shape[-1])[None, :] - centre
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return bilinear(x, middle + cos * down + sin * right, centre + cos * right - sin * down)


def bilinear(
    x: Float[Array, "*c h w"], rows: Float[Array, "p q"], columns: Float[Array, "p q"]
) -> Float[Array, "*c p q"]:
    """Values between pixels; outside they are those of the nearest one inside."""
    height, width = x.shape[-2:]
    rows, columns = jnp.clip(rows, 0.0, height - 1.0), jnp.clip(columns, 0.0, width - 1.0)
    top, left = jnp.minimum(rows.astype(jnp.int32), height - 2), jnp.minimum(columns.astype(jnp.int32), width - 2)
    below, beside = (rows - top).astype(x.dtype), (columns - left).astype(x.dtype)
    flat, corner = x.reshape(*x.shape[:-2], height * width), top * width + left

    def at(offset: int) -> Array:
        return flat.at[..., corner + offset].get(mode="promise_in_bounds")

    upper, lower = at(0) * (1 - beside) + at(1) * beside, at(width) * (1 - beside) + at(width + 1) * beside
    return upper * (1 - below) + lower * below


def check_image(transform: AbstractTransform, shape: tuple[int, ...]) -> None:
    """Raise unless examples are images."""
    if len(shape) not in (2, 3) or min(shape[-2:]) < 2:
        raise ValueError(
            f"x must hold images (channels, height, width) for {type(transform).__name__}, got examples of shape "
            f"{shape}: make vectors of them inside the network, eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), network])"
        )

r"""Augmentation of data: every step sees its batch transformed anew.

The transforms of a step are a function of step and key, like its rows: where chunks begin and end leaves no trace, and
a resumed run sees what an uninterrupted one does. N stays the number of examples. What is maximised or sampled is then
$\log p(\theta) + \sum_i E_T \log p(y_i \mid T x_i, \theta)$: the expectation, over transforms, of a log likelihood,
which is the log of no likelihood of the labels (each is counted once, in the place of a geometric mean over the orbit
that does not sum to one over labels). That is a reason why augmented posteriors predict better at temperatures below
one, the "cold posterior effect" (Wenzel et al., 2020; Nabarro et al., 2022). `mx.augment(model, ...)` averages inside
of the likelihood instead.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray, PyTree

from marginax._kernels.random import derive
from marginax.data.arrays import DataSpec
from marginax.data.growing import GrowingMinibatches
from marginax.data.sources import AbstractSource, Batch, as_source
from marginax.data.transforms import (
    AbstractTransform,
    apply_transforms,
    as_strength,
    check_transforms,
    draw_uniforms,
)
from marginax.files import register

_STREAM = 211  # of keys for transforms, apart from those for the rows of a batch


class AbstractMixing(eqx.Module):
    """What is done to a batch as a whole, targets included."""

    @abc.abstractmethod
    def mix(
        self, x: Float[Array, "b ..."], y: Num[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "b ..."], Num[Array, "b ..."]]:
        """Inputs and targets of a batch."""

    @abc.abstractmethod
    def check(self, y: np.ndarray, has_weights: bool) -> None:
        """Raise a ValueError if targets like these cannot be mixed."""


@register("transform/mixup")
class Mixup(AbstractMixing):
    r"""Each example mixed with another of its batch, inputs and targets alike (Zhang et al., 2018).

    $\lambda x_i + (1 - \lambda) x_j$ and $\lambda y_i + (1 - \lambda) y_j$ with $\lambda \sim \mathrm{Beta}(\alpha,
    \alpha)$. Targets must be real numbers: a label between two classes is a target that no likelihood of labels here
    has a probability for, so labels are refused.

    Args:
        alpha: near 0 for little mixing, 1 for all shares equally probable.
    """

    alpha: Float[Array, ""] | np.ndarray = eqx.field(converter=as_strength)

    def __check_init__(self):
        if eqx.is_array(self.alpha) and not isinstance(self.alpha, Tracer) and not self.alpha > 0:
            raise ValueError(f"alpha must be > 0, got {self.alpha}")

    def check(self, y: np.ndarray, has_weights: bool) -> None:
        if not np.issubdtype(y.dtype, np.floating):
            raise ValueError(
                f"y must hold real numbers to be mixed by Mixup, got {y.dtype} labels: a mixture of two labels has no "
                "probability under a likelihood of labels. Leave Mixup out"
            )
        if has_weights:
            raise ValueError("rows must have no weights to be mixed by Mixup: what a mixture should weigh is not said")

    def mix(
        self, x: Float[Array, "b ..."], y: Num[Array, "b ..."], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "b ..."], Num[Array, "b ..."]]:
        others = jax.random.permutation(derive(key, 0), x.shape[0])
        share = jax.random.beta(derive(key, 1), self.alpha, self.alpha, (x.shape[0],))

        def between(values: Array) -> Array:
            part = share.reshape(-1, *[1] * (values.ndim - 1)).astype(values.dtype)
            return part * values + (1 - part) * values[others]

        return between(x), between(y)


@register("data/augmented")
class AugmentedSource(AbstractSource):
    """Batches of another source, transformed; see `augment`."""

    source: AbstractSource
    transforms: tuple[AbstractTransform | AbstractMixing, ...]

    def __init__(self, source: AbstractSource, transforms: Any):
        """Check that the examples can be transformed."""
        if not isinstance(source, AbstractSource) or isinstance(source, GrowingMinibatches | AugmentedSource):
            raise TypeError(
                f"source must be mx.data.FullBatch, Minibatches or MappedFiles, got {type(source).__name__}"
            )
        self.source = source
        self.transforms = check_transforms(transforms, kind=AbstractTransform | AbstractMixing)
        first = source.examples(1)
        if not isinstance(first, tuple) or len(first) < 2:
            raise TypeError("data must be pairs (x, y) to be augmented")
        if not np.issubdtype(first[0].dtype, np.floating):
            raise TypeError(f"x must hold real numbers to be augmented, got {first[0].dtype}")
        for transform in self.transforms:
            if isinstance(transform, AbstractMixing):
                transform.check(first[1], len(first) > 2)
            else:
                transform.check(first[0].shape[1:])

    @property
    def on_host(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As that of the source inside."""
        return self.source.on_host

    @property
    def batch_size(self) -> int:
        """As that of the source inside."""
        return self.source.batch_size

    @property
    def spec(self) -> DataSpec:
        """As that of the source inside: augmented examples are no new data."""
        return self.source.spec

    @property
    def data(self) -> Any:
        """As they are before; None if they are not in memory."""
        return getattr(self.source, "data", None)

    @property
    def is_noisy(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return True

    @property
    def mixes_targets(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(isinstance(transform, AbstractMixing) for transform in self.transforms)

    def batch(self, step: Int[Array, ""] | int, *, key: PRNGKeyArray) -> Batch:
        batch = self.source.batch(step, key=key)
        return _transform_batch(self.transforms, batch, jnp.asarray(step, jnp.uint32), key)

    def examples(self, num: int) -> PyTree:
        """As they are before."""
        return self.source.examples(num)


def augment(data: Any, transforms: Any, *, batch_size: int | None = None) -> AugmentedSource:
    """Data whose batches are transformed at random, anew in every step and for every example.

    The number of examples stays N. Predictions are of inputs as they are. Examples are transformed in the units that
    the model sees; images are best scaled by one number for all pixels. Methods that need the same data at every step
    (NUTS, LBFGS) refuse such data: augment the likelihood, `mx.augment(model, ...)`.

    Args:
        data: `FullBatch`, `Minibatches` or `MappedFiles`; or a pair (x, y) or `Arrays`.
        transforms: one, or several that are applied in turn: `Rotate`, `Rotations`, `Shift`, `RandomCrop`, `Flip`,
            `GaussianNoise`, `Jitter`, `TimeShift`; `Mixup` for real targets.
        batch_size: rows in a step where `data` is no source; all by default.

    >>> import marginax as mx
    >>> turned = mx.data.Rotate(30.0), mx.data.Shift(2.0)
    >>> data = augment((np.zeros((10, 1, 8, 8)), np.zeros(10)), turned, batch_size=5)
    >>> batch = data.batch(0, key=jax.random.key(0))
    >>> batch.x.shape, batch.num_examples
    ((5, 1, 8, 8), 10)
    """
    return AugmentedSource(as_source(data, batch_size), transforms)


@eqx.filter_jit
def _transform_batch(
    transforms: tuple[AbstractTransform | AbstractMixing, ...], batch: Batch, step: Array, key: PRNGKeyArray
) -> Batch:
    key = derive(key, step, stream=_STREAM)
    x, y, *rest = batch.data
    for i, transform in enumerate(transforms):
        own = derive(key, i)
        if isinstance(transform, AbstractMixing):
            x, y = transform.mix(x, y, key=own)
        else:
            x = transform_rows(transform, x, own)
    return Batch((x, y, *rest), batch.index, batch.num_examples)


def transform_rows(transform: AbstractTransform, x: Float[Array, "b ..."], key: PRNGKeyArray) -> Float[Array, "b ..."]:
    """Each row with a key of its own."""

    def one(x: Array, place: Array) -> Array:
        return apply_transforms((transform,), x, *draw_uniforms((transform,), derive(key, place)))

    return jax.vmap(one)(x, jnp.arange(x.shape[0]))

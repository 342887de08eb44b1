"""Images and rows of tables as sequences, for networks over sequences; there is nothing to learn here."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.files import register
from marginax.nets.arguments import check_image_shape, check_positive_ints


@register("net/patches")
class Patches(eqx.Module):
    """Square patches of an image as the steps of a sequence, row by row (Dosovitskiy et al., 2021).

    Before a transformer, whose first linear map is then the embedding of patches, this is a vision transformer.

    Args:
        in_shape: (channels, height, width) of an image.
        size: of a patch, which must divide height and width.

    >>> import marginax as mx
    >>> patches = Patches((3, 32, 32), 4)
    >>> net = mx.nets.WithHead(patches, mx.nets.Transformer(patches.num_features, 10, every_step=False, key=0))
    >>> patches(jnp.ones((3, 32, 32))).shape, net(jnp.ones((3, 32, 32))).shape
    ((64, 48), (10,))
    """

    in_shape: tuple[int, int, int] = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __check_init__(self):
        check_image_shape("in_shape", self.in_shape)
        check_positive_ints(size=self.size)
        if any(n % self.size for n in self.in_shape[1:]):
            raise ValueError(f"size must divide height and width of in_shape {self.in_shape}, got {self.size}")

    @property
    def num_features(self) -> int:
        """Of a step."""
        return self.in_shape[0] * self.size**2

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "steps features"]:
        """The patches of an image of shape `in_shape`, or (height, width) if it has one channel."""
        if x.shape != self.in_shape and (1, *x.shape) != self.in_shape:
            raise ValueError(f"x must be an image of shape {self.in_shape}, got {x.shape}")
        channels, height, width = self.in_shape
        size = self.size
        blocks = x.reshape(channels, height // size, size, width // size, size).transpose(1, 3, 0, 2, 4)
        return blocks.reshape(-1, self.num_features)


@register("net/columns")
class Columns(eqx.Module):
    """The columns of a row of a table as the steps of a sequence.

    A step has the column's value at its own place, and 1 at another: a linear map of it is a vector for the column,
    plus its value times another vector, the embedding of Gorishniy et al. (2021).

    Args:
        num_columns: of the table.

    >>> import marginax as mx
    >>> columns = Columns(8)
    >>> net = mx.nets.WithHead(columns, mx.nets.Transformer(columns.num_features, 1, every_step=False, key=0))
    >>> net(jnp.ones(8)).shape, Columns(2)(jnp.array([5.0, 7.0])).tolist()
    ((1,), [[5.0, 0.0, 1.0, 0.0], [0.0, 7.0, 0.0, 1.0]])
    """

    num_columns: int = eqx.field(static=True)

    def __check_init__(self):
        check_positive_ints(num_columns=self.num_columns)

    @property
    def num_features(self) -> int:
        """Of a step."""
        return 2 * self.num_columns

    def __call__(self, x: Float[Array, " num_columns"]) -> Float[Array, "steps features"]:
        """The columns of a row."""
        if x.shape != (self.num_columns,):
            raise ValueError(f"x must be a row of {self.num_columns} columns, got shape {x.shape}")
        return jnp.concatenate([jnp.diag(x), jnp.eye(self.num_columns, dtype=x.dtype)], axis=1)

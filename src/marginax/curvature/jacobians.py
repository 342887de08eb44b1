r"""Derivatives of a network's outputs with respect to its weights, without writing them down.

The derivative of m columns of the outputs at example n with respect to the weight of a linear layer is an outer
product, $\sum_t g_{nmt} a_{nt}^\top$: t runs over the places where the weight is used (the pixels of a convolution, the
calls of a shared layer), a is the layer's input there and g the derivative with respect to its output.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractJacobian(eqx.Module):
    """Derivatives of m columns at n examples with respect to one leaf."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of weights in the leaf."""

    @property
    @abc.abstractmethod
    def extent(self) -> tuple[int, int]:
        """Numbers of examples and of columns."""

    @abc.abstractmethod
    def dense(self) -> Float[Array, "n m size"]:
        """Written out."""

    def weighted(self, weights: Float[Array, " n"]) -> "AbstractJacobian":
        """Rows times the root of a weight for each example."""
        return Plain(self.dense() * jnp.sqrt(weights)[:, None, None])

    def squares(self) -> Float[Array, " size"]:
        """Sum of the squares over examples and columns."""
        return jnp.sum(self.dense() ** 2, axis=(0, 1))

    def spread(self, variances: Float[Array, " size"]) -> Float[Array, "n m m"]:
        """Covariance of the columns when the weights are independent, with these variances."""
        rows = self.dense()
        return jnp.einsum("nmp,nlp->nml", rows * variances, rows)


class Outer(AbstractJacobian):
    """Of a layer's weight, or of its bias: then there are no inputs, and ones stand in for them.

    Args:
        columns: g.
        inputs: a, or None.
        site: number of the layer: a weight and its bias share their columns.
        num_views: of the input, over which the network is averaged: t runs over views first, then over places.
    """

    columns: Float[Array, "n m t o"]
    inputs: Float[Array, "n t i"] | None
    site: int = eqx.field(static=True)
    num_views: int = eqx.field(static=True, default=1)

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs of the layer; 1 input for a bias."""
        return self.columns.shape[-1], 1 if self.inputs is None else self.inputs.shape[-1]

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def extent(self) -> tuple[int, int]:
        return self.columns.shape[0], self.columns.shape[1]

    @property
    def is_shared(self) -> bool:
        """Whether the weight is used in more than one place."""
        return self.columns.shape[2] > 1

    def weighted(self, weights: Float[Array, " n"]) -> "Outer":
        return Outer(self.columns * jnp.sqrt(weights)[:, None, None, None], self.inputs, self.site, self.num_views)

    def over_views(self) -> "Outer":
        """As if all views had the mean input: exact where they are alike."""
        if self.num_views == 1:
            return self
        n, m, t, o = self.columns.shape
        columns = self.columns.reshape(n, m, self.num_views, -1, o).sum(2)
        inputs = self.inputs
        if inputs is not None:
            inputs = inputs.reshape(n, self.num_views, t // self.num_views, -1).mean(1)
        return Outer(columns, inputs, self.site)

    def rotated(self, left: Float[Array, "o o"], right: Float[Array, "i i"]) -> "Outer":
        """In another orthogonal basis of outputs and inputs."""
        inputs = None if self.inputs is None else self.inputs @ right
        return Outer(self.columns @ left, inputs, self.site, self.num_views)

    def dense(self) -> Float[Array, "n m size"]:
        if self.inputs is None:
            return self.columns.sum(2)
        products = jnp.einsum("nmto,nti->nmoi", self.columns, self.inputs)
        return products.reshape(*products.shape[:2], -1)

    def squares(self) -> Float[Array, " size"]:
        """Squares of an outer product are the outer product of squares; sums over places are taken first."""
        if self.inputs is None:
            return Plain(self.dense()).squares()
        if not self.is_shared:
            return (jnp.sum(self.columns[:, :, 0] ** 2, axis=1).T @ self.inputs[:, 0] ** 2).ravel()

        def add(total: Array, columns: Array) -> tuple[Array, None]:
            return total + jnp.sum(jnp.einsum("nto,nti->noi", columns, self.inputs) ** 2, axis=0), None

        start = jnp.zeros(self.shape, self.columns.dtype)
        return jax.lax.scan(add, start, jnp.moveaxis(self.columns, 1, 0))[0].ravel()

    def spread(self, variances: Float[Array, " size"]) -> Float[Array, "n m m"]:
        """Without the outer products where there is but one place."""
        if self.inputs is None or self.is_shared:
            return Plain(self.dense()).spread(variances)
        columns = self.columns[:, :, 0]
        per_output = self.inputs[:, 0] ** 2 @ variances.reshape(self.shape).T
        return jnp.einsum("nmo,nlo->nml", columns * per_output[:, None], columns)


class Plain(AbstractJacobian):
    """Written out: for weights that are in no layer we know.

    Args:
        values: one row for each example and column.
    """

    values: Float[Array, "n m size"]

    @property
    def size(self) -> int:
        return self.values.shape[-1]

    @property
    def extent(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def dense(self) -> Float[Array, "n m size"]:
        return self.values


class Zero(AbstractJacobian):
    """Of a leaf that is not selected, or of an unknown besides the weights.

    Args:
        num: size of the leaf.
        shape: numbers of examples and of columns.
    """

    num: int = eqx.field(static=True)
    shape: tuple[int, int] = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.num

    @property
    def extent(self) -> tuple[int, int]:
        return self.shape

    def dense(self) -> Float[Array, "n m size"]:
        return jnp.zeros((*self.extent, self.size))

    def spread(self, variances: Float[Array, " size"]) -> Float[Array, "n m m"]:
        return jnp.zeros((*self.extent, self.extent[1]))


Jacobian = tuple[AbstractJacobian, ...]
"""One for each leaf, in the order of the raveled parameters."""


def dense_rows(jacobian: Jacobian) -> Float[Array, "n m size"]:
    """All leaves side by side, written out."""
    return jnp.concatenate([leaf.dense() for leaf in jacobian], axis=-1)


def take_entries(jacobian: Jacobian, index: Array) -> Plain:
    """Single weights, by their place among all of them, without writing the others down."""
    total, start = jnp.zeros(()), 0
    for leaf in jacobian:
        inside = (index >= start) & (index < start + leaf.size)
        place = jnp.clip(index - start, 0, leaf.size - 1)
        if isinstance(leaf, Outer):
            row, column = place // leaf.shape[1], place % leaf.shape[1]
            columns = leaf.columns[..., row]
            values = columns.sum(2)
            if leaf.inputs is not None:
                values = jnp.einsum("nmtp,ntp->nmp", columns, leaf.inputs[..., column])
        else:
            values = leaf.dense()[..., place]
        total = total + jnp.where(inside, values, 0.0)
        start += leaf.size
    return Plain(total)


def gram(jacobian: Jacobian) -> Float[Array, "size size"]:
    r"""$\sum_{nm} J_{nm}^\top J_{nm}$ over all leaves together."""
    return second_moment(dense_rows(jacobian))


def second_moment(rows: Float[Array, "*n p"]) -> Float[Array, "p p"]:
    """Sum of outer products of the last axis; a block below the diagonal is the one above, transposed."""
    flat = rows.reshape(-1, rows.shape[-1])
    half = flat.shape[1] // 2
    if half < 100:
        return flat.T @ flat
    top, corner = flat[:, :half].T @ flat, flat[:, half:].T @ flat[:, half:]
    return jnp.concatenate([top, jnp.concatenate([top[:, half:].T, corner], axis=1)])


def sum_of(parts: list[Array]) -> Array:
    """Of arrays of one shape."""
    return sum(parts[1:], parts[0])

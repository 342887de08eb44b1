r"""Derivatives of a network's outputs with respect to its weights, without writing them down.

The derivative of m columns of the outputs at example n with respect to the weight of a linear layer is an outer
product, $\sum_t g_{nmt} a_{nt}^\top$: t runs over the places where the weight is used (the pixels of a convolution, the
calls of a shared layer), a is the layer's input there and g the derivative with respect to its output.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


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
    def weighted(self, weights: Float[Array, " n"]) -> "AbstractJacobian":
        """Rows times the root of a weight for each example."""

    @abc.abstractmethod
    def dense(self) -> Float[Array, "n m size"]:
        """Written out."""

    @abc.abstractmethod
    def squares(self) -> Float[Array, " size"]:
        """Sum of the squares over examples and columns."""

    @abc.abstractmethod
    def spread(self, variances: Float[Array, " size"]) -> Float[Array, "n m m"]:
        """Covariance of the columns when the weights are independent, with these variances."""


class Outer(AbstractJacobian):
    """Of a layer's weight, or of its bias: then there are no inputs, and ones stand in for them.

    Args:
        columns: g.
        inputs: a, or None.
        site: number of the layer: a weight and its bias share their columns.
    """

    columns: Float[Array, "n m t o"]
    inputs: Float[Array, "n t i"] | None
    site: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs of the layer; 1 input for a bias."""
        return self.columns.shape[-1], 1 if self.inputs is None else self.inputs.shape[-1]

    @property
    def size(self) -> int:
        """Outputs times inputs."""
        return self.shape[0] * self.shape[1]

    @property
    def extent(self) -> tuple[int, int]:
        """Numbers of examples and of columns."""
        return self.columns.shape[0], self.columns.shape[1]

    @property
    def is_shared(self) -> bool:
        """Whether the weight is used in more than one place."""
        return self.columns.shape[2] > 1

    def weighted(self, weights: Float[Array, " n"]) -> "Outer":
        """Only the columns carry the weight."""
        return Outer(self.columns * jnp.sqrt(weights)[:, None, None, None], self.inputs, self.site)

    def turned(self, left: Float[Array, "o o"], right: Float[Array, "i i"]) -> "Outer":
        """In another basis of outputs and inputs."""
        return Outer(self.columns @ left, None if self.inputs is None else self.inputs @ right, self.site)

    def dense(self) -> Float[Array, "n m size"]:
        """Outer products, summed over places."""
        if self.inputs is None:
            return self.columns.sum(2)
        products = jnp.einsum("nmto,nti->nmoi", self.columns, self.inputs)
        return products.reshape(*products.shape[:2], -1)

    def squares(self) -> Float[Array, " size"]:
        """Squares of an outer product are the outer product of squares; sums over places are taken first."""
        if self.inputs is None:
            return jnp.sum(self.columns.sum(2) ** 2, axis=(0, 1))
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
        """Length of a row."""
        return self.values.shape[-1]

    @property
    def extent(self) -> tuple[int, int]:
        """Numbers of examples and of columns."""
        return self.values.shape[0], self.values.shape[1]

    def weighted(self, weights: Float[Array, " n"]) -> "Plain":
        """Rows times roots."""
        return Plain(self.values * jnp.sqrt(weights)[:, None, None])

    def dense(self) -> Float[Array, "n m size"]:
        """As it is."""
        return self.values

    def squares(self) -> Float[Array, " size"]:
        """By column."""
        return jnp.sum(self.values**2, axis=(0, 1))

    def spread(self, variances: Float[Array, " size"]) -> Float[Array, "n m m"]:
        """A product of matrices for each example."""
        return jnp.einsum("nmp,nlp->nml", self.values * variances, self.values)


class Zero(AbstractJacobian):
    """Of a leaf that stays at its mean, or of an unknown besides the weights.

    Args:
        num: size of the leaf.
        shape: numbers of examples and of columns.
    """

    num: int = eqx.field(static=True)
    shape: tuple[int, int] = eqx.field(static=True)

    @property
    def extent(self) -> tuple[int, int]:
        """As given."""
        return self.shape

    @property
    def size(self) -> int:
        """As given."""
        return self.num

    def weighted(self, weights: Float[Array, " n"]) -> "Zero":
        """No change."""
        del weights
        return self

    def dense(self) -> Float[Array, "n m size"]:
        """Zeros."""
        return jnp.zeros((*self.extent, self.num))

    def squares(self) -> Float[Array, " size"]:
        """Zeros."""
        return jnp.zeros(self.num)

    def spread(self, variances: Float[Array, " size"]) -> Float[Array, "n m m"]:
        """Zeros."""
        del variances
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
    rows = dense_rows(jacobian)
    return second_moment(rows)


def second_moment(rows: Float[Array, "*n p"]) -> Float[Array, "p p"]:
    """Sum of outer products of the last axis; a block below the diagonal is the one above, turned."""
    flat = rows.reshape(-1, rows.shape[-1])
    half = flat.shape[1] // 2
    if half < 100:
        return flat.T @ flat
    top, corner = flat[:, :half].T @ flat, flat[:, half:].T @ flat[:, half:]
    return jnp.concatenate([top, jnp.concatenate([top[:, half:].T, corner], axis=1)])


class LayerColumns(eqx.Module):
    """Derivatives with respect to a single layer, used once: its inputs have a 1 at the end if there is a bias."""

    columns: Float[Array, "n m o"]
    inputs: Float[Array, "n i"]
    order: Int[Array, " size"]

    def packed_gram(self) -> Float[Array, "pairs i i"]:
        """The gram matrix by pairs of outputs: columns only enter through products, of which there are few."""
        rows, others = jnp.triu_indices(self.columns.shape[-1])
        products = jnp.einsum("nmq,nmq->nq", self.columns[..., rows], self.columns[..., others])
        return jnp.einsum("nq,ni,nj->qij", products, self.inputs, self.inputs)


def as_one_layer(jacobian: Jacobian) -> LayerColumns | None:
    """A single layer, if that is all there is."""
    leaves = [leaf for leaf in jacobian if isinstance(leaf, Outer) and not leaf.is_shared]
    if len(leaves) < len(jacobian) or not is_one_layer([(leaf.site, leaf.inputs is None) for leaf in leaves]):
        return None
    ones = jnp.ones((leaves[0].columns.shape[0], 1), leaves[0].columns.dtype)
    inputs = jnp.concatenate([ones if leaf.inputs is None else leaf.inputs[:, 0] for leaf in leaves], axis=1)
    return LayerColumns(
        leaves[0].columns[:, :, 0], inputs, layer_order(leaves[0].shape[0], inputs.shape[1], len(leaves))
    )


def is_one_layer(leaves: list[tuple[int | None, bool]]) -> bool:
    """Whether these (site, is bias) are a weight, a bias, or a weight and then its bias."""
    sites, biases = {site for site, _ in leaves}, [bias for _, bias in leaves]
    return len(sites) == 1 and None not in sites and biases in ([False], [True], [False, True])


def unpack_gram(packed: Float[Array, "pairs i i"], num_outputs: int, num_leaves: int) -> Float[Array, "size size"]:
    """The matrix of raveled weights, then biases, from its packed form."""
    width = packed.shape[-1]
    rows, others = jnp.triu_indices(num_outputs)
    full = jnp.zeros((num_outputs, num_outputs, width, width), packed.dtype)
    full = full.at[rows, others].set(packed).at[others, rows].set(packed)  # blocks are symmetric
    matrix = full.transpose(0, 2, 1, 3).reshape(num_outputs * width, -1)
    order = layer_order(num_outputs, width, num_leaves)
    return matrix[order][:, order]


def layer_order(num_outputs: int, num_inputs: int, num_leaves: int) -> Int[Array, " size"]:
    """Where raveled weights, then biases, are in a matrix of outputs and inputs whose last input is the 1."""
    places = jnp.arange(num_outputs * num_inputs).reshape(num_outputs, num_inputs)
    return jnp.concatenate([places[:, :-1].ravel(), places[:, -1]]) if num_leaves == 2 else places.ravel()

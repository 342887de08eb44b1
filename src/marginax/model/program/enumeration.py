r"""Discrete unknowns summed out exactly, by variable elimination.

$\log \sum_z \prod_f f(z)$ for log factors that are arrays: a discrete variable has an axis of its own, left of the axes
of the plates. Inside a plate everything is repeated independently, so what is local to it is summed first, and the
product over the plate taken then (Obermeyer et al., 2019).
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

Plates = frozenset[tuple[int, int]]  # (axis, size), axes counted from the right


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["plates"])
@dataclass(frozen=True)
class Factor:
    """A log factor, one number for each element of its plates and each value of its variables.

    Args:
        values: axes of plates are the rightmost, those of variables left of them; an axis of 1 means no dependence.
        plates: that it is in.
    """

    values: Array
    plates: Plates

    def variables(self, known: dict[int, Plates]) -> frozenset[int]:
        """Axes of the variables that it depends on."""
        shape = self.values.shape
        return frozenset(axis for axis in known if len(shape) >= -axis and shape[axis] > 1)


def sum_out(factors: list[Factor], variables: dict[int, Plates], keep: Plates = frozenset()) -> Array:
    """Log of the sum over all variables of the product of all factors.

    Args:
        factors: at least one.
        variables: axis of each variable, and the plates that it is in.
        keep: plates over which no product is taken: there is one result for each of their elements.

    >>> prior = Factor(jnp.log(jnp.array([0.25, 0.75]))[:, None], frozenset({(-1, 3)}))
    >>> joint = Factor(jnp.log(jnp.array([[1.0, 2.0, 0.0], [1.0, 2.0, 4.0]])), frozenset({(-1, 3)}))
    >>> jnp.exp(sum_out([prior, joint], {-2: frozenset({(-1, 3)})})).round(3).item()
    6.0
    """
    factors = contract(factors, variables, keep)
    total = sum((factor.values for factor in factors[1:]), factors[0].values)
    return jnp.broadcast_to(total, jnp.broadcast_shapes(total.shape, _shape(keep))).reshape(
        [n for _, n in sorted(keep)]
    )


def contract(
    factors: list[Factor],
    variables: dict[int, Plates],
    keep: Plates = frozenset(),
    retain: frozenset[int] = frozenset(),
) -> list[Factor]:
    """Factors of the retained variables alone: the others are summed out, and products taken over plates.

    Args:
        factors: to begin with.
        variables: axis of each variable, and the plates that it is in.
        keep: plates over which no product is taken; nor is it over those of a retained variable.
        retain: axes of variables that are left.
    """
    while any(is_open := [_is_open(factor, variables, keep, retain) for factor in factors]):
        inner = max((factor.plates for factor, needed in zip(factors, is_open, strict=True) if needed), key=len)
        local = [factor for factor in factors if factor.plates == inner]
        rest = [factor for factor in factors if factor.plates != inner]
        for axis in sorted(axis for axis, plates in variables.items() if plates == inner and axis not in retain):
            local = eliminate(local, axis, variables)
        factors = rest + [_product(factor, variables, keep, retain) for factor in local]
    return factors


def eliminate(factors: list[Factor], axis: int, variables: dict[int, Plates]) -> list[Factor]:
    """Sum a variable out of those factors that depend on it, which become one."""
    with_it = [factor for factor in factors if axis in factor.variables(variables)]
    if not with_it:
        return factors
    joint = sum((factor.values for factor in with_it[1:]), with_it[0].values)
    summed = replace(with_it[0], values=_log_sum(joint, axis))
    return [factor for factor in factors if axis not in factor.variables(variables)] + [summed]


def _log_sum(values: Array, axis: int) -> Array:
    """Log of the sum of exponentials along an axis that stays; where there is nothing to sum, the gradient is 0."""
    is_empty = jnp.all(values == -jnp.inf, axis=axis, keepdims=True)
    total = jax.nn.logsumexp(jnp.where(is_empty, 0.0, values), axis=axis, keepdims=True)
    return jnp.where(is_empty, -jnp.inf, total)


def _is_open(factor: Factor, variables: dict[int, Plates], keep: Plates, retain: frozenset[int]) -> bool:
    """Whether there is something left to be summed out of it, or to be multiplied over."""
    left = factor.variables(variables)
    return bool(left - retain or factor.plates - keep - _plates_of(left, variables))


def _plates_of(axes: frozenset[int], variables: dict[int, Plates]) -> Plates:
    return frozenset[tuple[int, int]]().union(*(variables[axis] for axis in axes))


def _product(factor: Factor, variables: dict[int, Plates], keep: Plates, retain: frozenset[int]) -> Factor:
    """The factor for the plates of the variables that are left in it, multiplied over the others."""
    left = factor.variables(variables)
    outer = factor.plates & (_plates_of(left, variables) | keep)
    closed = factor.plates - outer
    if (not closed and left - retain) or not _plates_of(left & retain, variables) <= factor.plates:
        raise ValueError(
            "discrete sites of the program cannot be summed out one by one: a site depends on those of two plates, "
            "neither of which is inside the other"
        )
    values = jnp.broadcast_to(factor.values, jnp.broadcast_shapes(factor.values.shape, _shape(closed)))
    return Factor(jnp.sum(values, axis=tuple(axis for axis, _ in closed), keepdims=True), outer)


def _shape(plates: Plates) -> tuple[int, ...]:
    """The least shape that has these plates."""
    sizes = dict(plates)
    return tuple(sizes.get(axis, 1) for axis in range(min(sizes, default=0), 0))


def sum_undeclared(values: Array, plates: Plates, rank: int) -> Array:
    """A factor without the batch axes that are in no plate: what is repeated there is multiplied."""
    declared = {axis for axis, _ in plates}
    axes = tuple(axis for axis in range(-min(rank, values.ndim), 0) if axis not in declared)
    return jnp.sum(values, axis=axes, keepdims=True)

r"""Discrete unknowns summed out exactly, by variable elimination.

$\log \sum_z \prod_f f(z)$ for log factors that are arrays: a discrete variable has an axis of its own, left of the axes
of the plates. Inside a plate everything is repeated independently, so what is local to it is summed first, and the
product over the plate taken then (Obermeyer et al., 2019).
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array

Plates = frozenset[tuple[int, int]]  # (axis, size), axes counted from the right


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
    while any(factor.plates - keep or factor.variables(variables) for factor in factors):
        inner = max((factor.plates for factor in factors if _is_open(factor, variables, keep)), key=len)
        local = [factor for factor in factors if factor.plates == inner]
        rest = [factor for factor in factors if factor.plates != inner]
        for axis in sorted(axis for axis, plates in variables.items() if plates == inner):
            local = _eliminate(local, axis, variables)
        factors = rest + [_product(factor, variables, keep) for factor in local]
    total = sum((factor.values for factor in factors[1:]), factors[0].values)
    return jnp.broadcast_to(total, jnp.broadcast_shapes(total.shape, _shape(keep))).reshape(
        [n for _, n in sorted(keep)]
    )


def _is_open(factor: Factor, variables: dict[int, Plates], keep: Plates) -> bool:
    return bool(factor.plates - keep or factor.variables(variables))


def _eliminate(factors: list[Factor], axis: int, variables: dict[int, Plates]) -> list[Factor]:
    """Sum a variable out of those factors that depend on it, which become one."""
    with_it = [factor for factor in factors if axis in factor.variables(variables)]
    if not with_it:
        return factors
    joint = sum((factor.values for factor in with_it[1:]), with_it[0].values)
    summed = replace(with_it[0], values=jax.nn.logsumexp(joint, axis=axis, keepdims=True))
    return [factor for factor in factors if axis not in factor.variables(variables)] + [summed]


def _product(factor: Factor, variables: dict[int, Plates], keep: Plates) -> Factor:
    """The factor for the plates of the variables that are left in it, multiplied over the others."""
    needed = frozenset[tuple[int, int]]().union(*(variables[axis] for axis in factor.variables(variables)))
    outer = factor.plates & (needed | keep)
    closed = factor.plates - outer
    if not closed and needed:
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

"""Draws of a posterior as functions that give targets as data have them, which may be wrong."""

import equinox as eqx

from marginax.model.observed import as_observed
from marginax.predict.functions import AbstractFunctionSet, JoinedFunctions


def observed(functions: AbstractFunctionSet) -> AbstractFunctionSet:
    """The same draws with the distribution of what is seen; the same functions where targets are taken as they are."""
    if all(getattr(member, "model", None) is None for member in functions.members):
        return functions
    if isinstance(functions, JoinedFunctions):
        return JoinedFunctions(tuple(observed(part) for part in functions.parts), functions.part_weights)
    return eqx.tree_at(lambda f: f.model, functions, as_observed(functions.model))  # pyright: ignore

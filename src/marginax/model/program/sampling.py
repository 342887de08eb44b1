"""Draws of the sites of a program: from its prior, or given unknowns that were inferred."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpyro.distributions.transforms import biject_to

from marginax.data import Rows as DataRows
from marginax.model.program.sites import RADIUS, Conditioned, Rows, is_factor, run, unconstrained_shape

if TYPE_CHECKING:
    from marginax.model.program.program import Program

MAX_BYTES = 256 * 2**20


def draw_prior(program: "Program", key: PRNGKeyArray) -> dict[str, Array]:
    """Unknowns drawn from their prior, unconstrained; near the origin where that is improper."""
    drawing, sampling = jax.random.split(key)
    found: dict[str, Array] = {}

    def draw(name: str, fn: Any, step: Array | None) -> Array | None:
        if step is not None:
            return None
        each = jax.random.fold_in(drawing, len(found))
        bijection = biject_to(fn.support)
        try:
            value = fn.sample(each)
            found[name] = bijection.inv(value)
        except NotImplementedError:
            found[name] = jax.random.uniform(each, unconstrained_shape(fn), float, -RADIUS, RADIUS)
            value = bijection(found[name])
        return value

    arguments = program.known.placeholders()
    given = Conditioned(program.rows(arguments), draw, program.points)
    run(program.model, program.settings | arguments, given, sampling)
    return {name: jnp.asarray(found[name], float) for name, _ in program.known.unknowns}


def unconstrained(program: "Program", values: Mapping[str, Array]) -> dict[str, Array]:
    """Values of the unknowns, without their bounds."""
    found: dict[str, Array] = {}

    def look(name: str, fn: Any, step: Array | None) -> Array:
        if step is not None:
            return values[name][step]
        found[name] = biject_to(fn.support).inv(values[name])
        return values[name]

    arguments = program.known.placeholders()
    given = Conditioned(program.rows(arguments), look, program.points)
    run(program.model, program.settings | arguments, given, jax.random.key(0))
    return found


def draw_sites(
    program: "Program",
    params: PyTree | None,
    arguments: Any,
    num: int,
    *,
    key: PRNGKeyArray,
    max_bytes: int = MAX_BYTES,
) -> dict[str, np.ndarray]:
    """Draws of sites for new arguments: of all from the prior, or of what is not an unknown given unknowns.

    Args:
        program: whose sites.
        params: unconstrained unknowns with a leading axis of `num`, or None to draw them.
        arguments: by name; what is observed may be left out, and is drawn in any case.
        num: of draws.
        key: for drawing.
        max_bytes: of intermediate results.
    """
    arrays = _as_arguments(program, arguments)
    static = program.settings | dict.fromkeys(_left_out(program, arrays))
    plate = None if program.layout is None else program.layout.plate

    def one(params: PyTree, key: PRNGKeyArray, arrays: Mapping[str, Any]) -> dict[str, Array]:
        def unknown(name: str, fn: Any, step: Array | None) -> Any:
            if params is None or name not in params:
                return None
            free = params[name] if step is None else params[name][step]
            return _checked(name, fn, biject_to(fn.support)(free))

        rows = Rows(plate, next((len(a) for a in arrays.values()), 1))
        given = Conditioned(rows, unknown, program.points, draw_observed=True)
        traced = run(program.model, static | dict(arrays), given, key)
        return {
            name: jnp.asarray(site["value"])
            for name, site in traced.items()
            if site["type"] == "deterministic" or (site["type"] == "sample" and not is_factor(site))
        }

    def shown(found: dict[str, Array]) -> dict[str, Array]:
        known = set() if params is None else {name for name, _ in program.known.unknowns}
        return {name: value for name, value in found.items() if name not in known}

    return in_chunks(lambda p, k, a: shown(one(p, k, a)), params, num, key, arrays, max_bytes)


def in_chunks(
    function: Callable[..., PyTree],
    params: PyTree,
    num: int,
    key: PRNGKeyArray,
    shared: PyTree,
    max_bytes: int = MAX_BYTES,
) -> PyTree:
    """A function of (unknowns, key, shared) at many draws, as many at a time as fit, gathered on the host."""
    keys = jax.random.split(key, num)
    first = None if params is None else jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), params)
    shapes = jax.eval_shape(function, first, keys[0], shared)
    per_draw = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    size = max(1, min(num, max_bytes // max(1, 4 * per_draw)))
    results = [np.empty((num, *leaf.shape), leaf.dtype) for leaf in jax.tree.leaves(shapes)]
    compute = eqx.filter_jit(jax.vmap(function, in_axes=(None if params is None else 0, 0, None)))
    for start in range(0, num, size):
        rows = np.minimum(np.arange(start, start + size), num - 1)  # the last chunk is filled up: one compilation
        some = None if params is None else jax.tree.map(lambda leaf, at=rows: jnp.asarray(leaf[at]), params)
        found = jax.tree.leaves(compute(some, keys[rows], shared))
        for result, values in zip(results, found, strict=True):
            result[start : start + size] = np.asarray(values)[: num - start]
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _checked(name: str, fn: Any, value: Array) -> Array:
    if jnp.shape(value) != fn.shape():
        raise ValueError(
            f"site {name!r} has shape {jnp.shape(value)} in the posterior and {fn.shape()} for these arguments: it is "
            "an unknown of each example, known for those of the training data only"
        )
    return value


def _as_arguments(program: "Program", arguments: Any) -> dict[str, Any]:
    from marginax.model.program.program import parameters_of

    given = (
        {} if arguments is None else program.arguments_of(arguments if isinstance(arguments, dict) else (arguments,))
    )
    names = parameters_of(program.model)
    for name in given:
        if name not in names or name in program.settings:
            raise ValueError(f"arguments must be those of the program besides its settings, got {name!r}")
    given = {name: value for name, value in given.items() if value is not None}
    return {name: jnp.asarray(DataRows({name: value}).tree[name]) for name, value in given.items()}


def _left_out(program: "Program", arrays: Mapping[str, Any]) -> list[str]:
    """Arguments that have no default and were not given: what is observed."""
    from marginax.model.program.program import parameters_of

    names = parameters_of(program.model).values()
    needed = [p.name for p in names if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return [name for name in needed if name not in arrays and name not in program.settings]

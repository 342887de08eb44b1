"""Draws of the sites of a program: from its prior, or given unknowns that were inferred."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree, UInt32
from numpyro.distributions.transforms import biject_to

from marginax._compilation import compiled
from marginax.data import Rows as DataRows
from marginax.model.program.enumeration import sum_out
from marginax.model.program.sites import (
    RADIUS,
    Conditioned,
    Rows,
    check_proper,
    describe,
    is_factor,
    run,
    unconstrained_shape,
)

if TYPE_CHECKING:
    from marginax.model.program.program import Program

MAX_BYTES = 256 * 2**20
_SHARED = 1  # stream of random numbers


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


def unconstrained(program: "Program", values: Mapping[str, Array], arguments: Mapping[str, Any]) -> dict[str, Array]:
    """Values of the unknowns, without their bounds."""
    found: dict[str, Array] = {}

    def look(name: str, fn: Any, step: Array | None) -> Array | None:
        if name not in values:
            return None
        if step is not None:
            return values[name][step]
        found[name] = biject_to(fn.support).inv(values[name])
        return values[name]

    given = Conditioned(program.rows(arguments), look, program.points)
    run(program.model, program.settings | dict(arguments), given, jax.random.key(0))
    return found


def draw_sites(
    program: "Program",
    params: PyTree | None,
    arguments: Any,
    num: int,
    *,
    key: PRNGKeyArray,
    data: Any = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, np.ndarray]:
    """Draws of sites for new arguments: of all from the prior, or of what is not an unknown given unknowns.

    Args:
        program: whose sites.
        params: unconstrained unknowns with a leading axis of `num`, or None to draw them.
        arguments: by name; what is observed may be left out, and is drawn in any case.
        num: of draws.
        key: for drawing.
        data: that the unknowns were inferred from, needed where all examples share a discrete site.
        max_bytes: of intermediate results.
    """
    arrays = _as_arguments(program, arguments)
    names = () if params is None else shared_sites(program)
    seen = _training_data(program, names, data)
    static = program.settings | dict.fromkeys(_left_out(program, arrays))
    plate = None if program.layout is None else program.layout.plate

    def one(params: PyTree, key: PRNGKeyArray, shared: tuple[Mapping[str, Any], ...]) -> dict[str, Array]:
        arrays, seen = shared
        fixed = draw_shared(program, names, params, seen, jax.random.fold_in(key, _SHARED)) if names else {}

        def unknown(name: str, fn: Any, step: Array | None) -> Any:
            if params is None or name not in params:
                check_proper(name, fn)
                return None
            free = params[name] if step is None else params[name][step]
            return _checked(name, fn, biject_to(fn.support)(free))

        rows = Rows(plate, next((len(a) for a in arrays.values()), 1))
        given = Conditioned(rows, unknown, program.points, draw_observed=True, fixed=fixed)
        traced = run(program.model, static | dict(arrays), given, key)
        return {
            name: jnp.asarray(site["value"])
            for name, site in traced.items()
            if site["type"] == "deterministic" or (site["type"] == "sample" and not is_factor(site))
        }

    def shown(found: dict[str, Array]) -> dict[str, Array]:
        known = set() if params is None else {name for name, _ in program.known.unknowns}
        return {name: value for name, value in found.items() if name not in known}

    return in_chunks(lambda p, k, a: shown(one(p, k, a)), params, num, key, (arrays, seen), max_bytes)


def shared_sites(program: "Program") -> tuple[str, ...]:
    """Discrete sites that examples share: something is observed in plates, and they are in none of these."""
    layout = program.known
    if layout.splits or not layout.has_discrete:
        return ()
    arrays = layout.placeholders()
    found = describe(program.model, program.settings | arrays, Rows(None, 1), program.points, jax.random.key(0))
    plates = [set(site.plates) for kind in ("observed", "factor") for site in found.of_kind(kind) if site.plates]
    return tuple(site.name for site in found.of_kind("discrete") if any(p.isdisjoint(site.plates) for p in plates))


def draw_shared(
    program: "Program", names: tuple[str, ...], params: PyTree, data: Mapping[str, Any], key: PRNGKeyArray
) -> dict[str, Array]:
    """Discrete sites drawn given unknowns and data: one after the other, with those that follow summed out."""
    fixed: dict[str, Array] = {}

    def log_weight(name: str, value: Array) -> Array:
        found = program.density(params, data, fixed | {name: value})
        rest = sum_out(list(found.factors.values()), found.variables)
        return rest + sum(found.prior.values(), jnp.zeros(()))

    for i, name in enumerate(names):
        sites = program.density(params, data, fixed).sites
        if name not in sites:
            raise ValueError(
                f"site {name!r} is inside a scan and shared by all examples: paths given the data are not drawn, write "
                "the steps as a Python loop"
            )
        fn = sites[name]["fn"]
        if fn.batch_shape:
            raise ValueError(
                f"site {name!r} is discrete, shared by all examples and has several values, which are not drawn: only "
                "such sites without a plate are"
            )
        values = fn.enumerate_support(expand=False)
        log_weights = jnp.stack([log_weight(name, value) for value in values])
        fixed[name] = values[jax.random.categorical(jax.random.fold_in(key, i), log_weights)]
    return fixed


def _training_data(program: "Program", names: tuple[str, ...], data: Any) -> dict[str, Array]:
    """The data of the fit where they are needed, or an error that says what is missing or too much."""
    if not names and data is not None:
        raise ValueError("data must be left out: the program has no discrete site that all examples share")
    if not names:
        return {}
    if data is None:
        raise ValueError(
            f"site {names[0]!r} is discrete and shared by all examples: its law depends on the training data, which a "
            "posterior does not hold: pass data=, as in mx.fit"
        )
    arrays = program.as_arguments(data)
    for name, shape, _ in program.known.arguments:
        if (got := arrays[name].shape if name in arrays else None) != shape:
            raise ValueError(f"data must be those of the fit, where {name!r} has shape {shape}, got {got}")
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def in_chunks(
    function: Callable[..., PyTree],
    params: PyTree,
    num: int,
    key: PRNGKeyArray | None,
    shared: PyTree,
    max_bytes: int = MAX_BYTES,
) -> PyTree:
    """A function of (unknowns, key, shared) at many draws, as many at a time as fit, gathered on the host.

    Without a key for one that draws nothing.
    """
    first = None if params is None else jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), params)
    shapes = jax.eval_shape(function, first, jax.random.key(0) if key is None else key, shared)
    per_draw = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    size = max(1, min(num, max_bytes // max(1, 4 * per_draw)))
    results = [np.empty((num, *leaf.shape), leaf.dtype) for leaf in jax.tree.leaves(shapes)]
    every = jax.vmap(function, in_axes=(None if params is None else 0, 0, None))
    # rows of what is on the host are found without compiling
    words = np.zeros((num, 2), np.uint32) if key is None else np.asarray(_words_of_keys(key, num))
    compute = eqx.filter_jit(lambda params, words, shared: every(params, jax.random.wrap_key_data(words), shared))
    for start in range(0, num, size):
        rows = np.minimum(np.arange(start, start + size), num - 1)  # the last chunk is filled up: one compilation
        some = None if params is None else jax.tree.map(lambda leaf, at=rows: np.asarray(leaf)[at], params)
        found = jax.tree.leaves(compute(some, words[rows], shared))
        for result, values in zip(results, found, strict=True):
            result[start : start + size] = np.asarray(values)[: num - start]
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


@partial(compiled, once=True)
def _words_of_keys(key: PRNGKeyArray, num: int) -> UInt32[Array, "num words"]:
    return jax.random.key_data(jax.random.split(key, num))


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

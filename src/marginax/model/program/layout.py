"""What a program makes of data of given shapes: its unknowns, and whether its examples can be taken a few at a time."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import no_effects
from jax.interpreters import partial_eval
from jaxtyping import Array, PyTree

from marginax._extras import require
from marginax.data import AbstractSource, Rows
from marginax.data.arrays import as_numeric
from marginax.files import register

if TYPE_CHECKING:
    from marginax.model.program.program import Program

_PLACEHOLDERS = 2  # rows that stand for the data where only their shape matters


@register("model/program_layout")
class Layout(eqx.Module):
    """Names and shapes; no data.

    Args:
        arguments: name, shape and type of each array: of a row where examples are told apart, else of all of it.
        unknowns: name and unconstrained shape of each continuous site, if all examples share it.
        sites: names of the sites that a posterior shows: unknowns, and deterministic ones that need no data.
        rank: most batch axes of any site.
        plate: name of the plate of the examples; None if all data are seen at once.
        axis: of that plate, from the right.
        prior_sees_data: whether even the prior depends on the data or their number, so that all is likelihood.
        has_discrete: whether sites are summed out.
        local: name and unconstrained shape of each continuous site that every example has for itself, with -1 for the
            number of rows. Only where a guide draws them given the rows; else all are unknowns.
    """

    arguments: tuple[tuple[str, tuple[int, ...], str], ...] = eqx.field(static=True)
    unknowns: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    sites: tuple[str, ...] = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    plate: str | None = eqx.field(static=True)
    axis: int = eqx.field(static=True)
    prior_sees_data: bool = eqx.field(static=True)
    has_discrete: bool = eqx.field(static=True)
    local: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True, default=())

    @property
    def splits(self) -> bool:
        """Whether the likelihood is a sum over examples that can be seen a few at a time."""
        return self.plate is not None

    def placeholders(self, num_rows: int = _PLACEHOLDERS) -> dict[str, Array]:
        """Arguments of the right shapes, of some rows where examples are told apart."""
        rows = (num_rows,) if self.splits else ()
        return {name: jnp.zeros((*rows, *shape), dtype) for name, shape, dtype in self.arguments}

    def local_zeros(self, num_rows: int) -> dict[str, Array]:
        """Unknowns of each of some rows, at the origin."""
        return {name: jnp.zeros([num_rows if n == -1 else n for n in shape]) for name, shape in self.local}

    def to_structure(self) -> list[list[Any]]:
        """The same as JSON, by which a program that is not in a file is recognised."""
        arguments = [[name, list(shape), dtype] for name, shape, dtype in self.arguments]
        unknowns = [[name, list(shape)] for name, shape in self.unknowns]
        rest: list[Any] = [self.rank, self.plate, self.axis, self.prior_sees_data, self.has_discrete]
        if self.local:
            rest.append([[name, list(shape)] for name, shape in self.local])
        return [*unknowns, ["", arguments, list(self.sites), *rest]]

    @classmethod
    def from_structure(cls, structure: Any) -> "Layout":
        """What `to_structure` gave."""
        *unknowns, (_, arguments, sites, rank, plate, axis, prior_sees_data, has_discrete, *local) = structure
        return cls(
            tuple((name, tuple(shape), dtype) for name, shape, dtype in arguments),
            tuple((name, tuple(shape)) for name, shape in unknowns),
            tuple(sites),
            rank,
            plate,
            axis,
            prior_sees_data,
            has_discrete,
            tuple((name, tuple(shape)) for name, shape in (local[0] if local else ())),
        )


def analyse(program: "Program", data: Any) -> Layout:
    """Look at a program with abstract data: twice, with one row more the second time."""
    if not isinstance(data, AbstractSource):
        arrays = as_arguments(program, data)
        return _analyse(program, arrays, _length(arrays))
    arrays, num_rows = program.arguments_of(data.examples(_PLACEHOLDERS)), data.spec.num_examples
    if num_rows == 1 and (whole := _as_whole(program, arrays)) is not None:
        return whole
    return _analyse(program, arrays, num_rows, in_batches=True)


def _as_whole(program: "Program", arrays: Mapping[str, Any]) -> Layout | None:
    """The layout if these are all data as one example, as a run that is resumed has them; None if they are not."""
    if any(array.ndim < 2 for array in arrays.values()):
        return None
    unpacked = {name: array[0] for name, array in arrays.items()}
    try:
        layout = _analyse(program, unpacked, _length(unpacked))
    except (TypeError, ValueError, AssertionError, IndexError):
        return None
    return None if layout.splits else layout


def as_arguments(program: "Program", data: Any) -> dict[str, np.ndarray]:
    """The data as arrays by name, or an error that names the argument."""
    names = inspect.signature(program.model).parameters
    given = {} if data is None else program.arguments_of(data if isinstance(data, dict | tuple) else (data,))
    for name, value in given.items():
        if name not in names:
            raise ValueError(
                f"data must be arguments of the program, got {name!r}: it takes {', '.join(names) or 'none'}"
            )
        if name in program.settings:
            raise ValueError(f"argument {name!r} is among the settings of the program and in the data: give it once")
        if np.ndim(value) == 0:
            raise ValueError(
                f"argument {name!r} is no array with rows: settings go into the program, mx.Program(model, {name}=...)"
            )
    for name, parameter in names.items():
        is_missing = parameter.default is None or parameter.default is parameter.empty
        if name not in given and name not in program.settings and is_missing and parameter.kind not in _VARIADIC:
            raise ValueError(
                f"argument {name!r} of the program is missing in data; if it is meant to have no value, say so: "
                f"mx.Program(model, {name}=None)"
            )
    return {name: Rows({name: as_numeric(value, name=name)}).tree[name] for name, value in given.items()}


_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _length(arrays: Mapping[str, Any]) -> int | None:
    """How many rows all arguments have; None if they differ."""
    lengths = {len(array) for array in arrays.values()}
    return lengths.pop() if len(lengths) == 1 else None


def _analyse(
    program: "Program", arrays: Mapping[str, Any], num_rows: int | None, *, in_batches: bool = False
) -> Layout:
    sites = require("marginax.model.program.sites")

    def shapes_of(num: int | None) -> dict[str, jax.ShapeDtypeStruct]:
        return {
            name: jax.ShapeDtypeStruct(array.shape if num is None else (num, *array.shape[1:]), array.dtype)
            for name, array in arrays.items()
        }

    def describe(num: int | None, plate: str | None) -> Any:
        shapes = shapes_of(num)
        rows = sites.Rows(plate, num or 1)
        return sites.describe(program.model, {**program.settings, **shapes}, rows, program.points, jax.random.key(0))

    found = describe(num_rows, None)
    if not found.of_kind("unknown"):
        raise ValueError("the program has no continuous unknowns: there is nothing to infer")
    plate, reason = _plate_of_rows(found, num_rows)
    longer = None
    if plate is not None and num_rows is not None:
        try:
            longer = describe(num_rows + 1, plate)
        except (TypeError, ValueError, AssertionError, IndexError) as error:
            plate, reason = None, f"it does not run with another number of rows ({str(error).splitlines()[0]})"
        else:
            reason = _why_whole(found, longer, plate, num_rows)
            if reason is None and (local := _local(found, longer, plate)):
                reason = f"site {local[0][0]!r} is an unknown inside the plate {plate!r}, one for each example"
                given = [(program.settings | shapes_of(n), sites.Rows(plate, n)) for n in (num_rows, num_rows + 1)]
                if program.guide is not None and not _grows(program.guide, *given):
                    reason = None
            plate = plate if reason is None else None
    layout = _layout(program, arrays, found, longer, plate, num_rows) if plate is not None else None
    if layout is not None and layout.prior_sees_data:
        layout, reason = None, "its prior depends on the data, or on their number"
    for name, (size, subsample) in found.plates.items():
        if (layout is None or layout.plate != name) and subsample is not None and subsample != size:
            raise ValueError(f"plate {name!r} subsamples, which it must not: {reason or 'it is not over the examples'}")
    if layout is None and in_batches:
        raise ValueError(f"data must be the arguments of the program themselves, not a source of batches: {reason}")
    return _layout(program, arrays, found, longer, None) if layout is None else layout


def _plate_of_rows(found: Any, num_rows: int | None) -> tuple[str | None, str | None]:
    """The outermost plate that is as long as the data and holds the most observed sites."""
    if num_rows is None:
        return None, "its arguments have different numbers of rows"
    held = {name: 0 for name, (size, _) in found.plates.items() if size == num_rows}
    for site in found.sites:
        if site.kind in ("observed", "factor"):
            for name in site.plates:
                held[name] = held[name] + 1 if name in held else 0
    held = {name: count for name, count in held.items() if count and found.plates[name][0] == num_rows}
    if not held:
        return None, "it has no plate over the rows of its arguments with an observed site inside"
    return max(held, key=lambda name: held[name]), None


def _why_whole(found: Any, longer: Any, plate: str, num_rows: int) -> str | None:
    """Why the examples in a plate cannot be told apart, or None if they can."""
    if num_rows + 1 not in longer.plates.get(plate, ()):
        return f"the plate {plate!r} in a scan does not grow with the rows"
    for site in found.sites:
        inside = plate in site.plates
        if not inside and site.kind == "discrete":
            return f"site {site.name!r} is summed out and shared by all examples"
    shapes = [
        {site.name: site.shape for site in each.of_kind("unknown") if plate not in site.plates}
        for each in (found, longer)
    ]
    if shapes[0] != shapes[1]:
        return "its unknowns change with the number of rows"
    return None


def _grows(guide: Callable[..., Any], few: tuple[Any, Any], more: tuple[Any, Any]) -> bool:
    """Whether a guide has parameters for each row, so that it is for the rows of the training data alone."""
    shapes_of_params = require("marginax.model.program.guides").shapes_of_params
    try:
        return shapes_of_params(guide, *few) != shapes_of_params(guide, *more)
    except (TypeError, ValueError, AssertionError, IndexError):  # it does not run with another number of rows
        return True


def _local(found: Any, longer: Any, plate: str | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Unknowns inside the plate of the examples, and their shapes with -1 for the number of rows."""
    if plate is None:
        return ()
    later = {site.name: site.shape for site in longer.of_kind("unknown")}
    return tuple(
        (site.name, tuple(n if n == m else -1 for n, m in zip(site.shape, later[site.name], strict=True)))
        for site in found.of_kind("unknown")
        if plate in site.plates
    )


def _layout(
    program: "Program",
    arrays: Mapping[str, Any],
    found: Any,
    longer: Any,
    plate: str | None,
    num_rows: int | None = None,
) -> Layout:
    """Names and shapes, and which sites need the data, or their number where examples are told apart."""
    local = _local(found, longer, plate)
    unknowns = tuple((site.name, site.shape) for site in found.of_kind("unknown") if site.name not in dict(local))
    layout = Layout(
        arguments=tuple((n, a.shape[1:] if plate is not None else a.shape, str(a.dtype)) for n, a in arrays.items()),
        unknowns=unknowns,
        sites=tuple(name for name, _ in unknowns),
        rank=found.rank,
        plate=plate,
        axis=0 if plate is None else found.axes[plate],
        prior_sees_data=False,
        has_discrete=bool(found.of_kind("discrete")),
        local=local,
    )
    names = tuple(site.name for site in found.of_kind("deterministic") if plate not in site.plates)
    if plate is not None:
        later = {site.name: site.shape for site in longer.of_kind("deterministic")}
        names = tuple(s.name for s in found.of_kind("deterministic") if s.name in names and later[s.name] == s.shape)
    bound = eqx.tree_at(lambda p: p.layout, program, layout, is_leaf=lambda node: node is None)
    shapes = {site.name: site.shape for site in found.of_kind("deterministic")}

    def prior_and_sites(arguments: Mapping[str, Any]) -> tuple[Array, dict[str, Array]]:
        traced = bound.density({name: jnp.zeros(shape) for name, shape in unknowns}, arguments)
        shown = {name: jnp.asarray(traced.sites[name]["value"]) for name in names if name in traced.sites}
        shown = {name: value for name, value in shown.items() if value.shape == shapes[name]}  # else of summed sites
        return sum(traced.prior.values(), jnp.zeros(())), shown

    numbers = (_PLACEHOLDERS,) if num_rows is None else (_PLACEHOLDERS, max(num_rows, _PLACEHOLDERS + 1))
    shapes_of_rows = [jax.eval_shape(partial(layout.placeholders, num)) for num in numbers]
    prior_sees_data, sites_see_data = depends_on_data(prior_and_sites, *shapes_of_rows)
    free = tuple(name for name in names if not sites_see_data.get(name, True))
    return replace(layout, sites=layout.sites + free, prior_sees_data=prior_sees_data)


def depends_on_data(function: Callable[[Any], PyTree], *data: PyTree) -> PyTree:
    """Which results of a function depend on values in data, or differ between data of so many rows and of more.

    >>> depends_on_data(lambda x: (x.sum(), 1 / len(x), x.shape[1]), jnp.ones((2, 3)), jnp.ones((4, 3)))
    (True, True, False)
    """
    (first, structure), *others = [_slices(function, arrays) for arrays in data]
    flags = [slice_.sees_values for slice_ in first]
    for other, _ in others:
        flags = [flag or not a.is_like(b) for flag, a, b in zip(flags, first, other, strict=True)]
    return jax.tree.unflatten(structure, flags)


class _Slice(NamedTuple):
    """What one result of a function takes: values of its arguments, constants, and the steps of the computation."""

    sees_values: bool
    constants: list[Any]
    steps: str

    def is_like(self, other: "_Slice") -> bool:
        if self.steps != other.steps or len(self.constants) != len(other.constants):
            return False
        pairs = zip(self.constants, other.constants, strict=True)
        return all(a is b or _equal(a, b) for a, b in pairs)


def _equal(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _slices(function: Callable[[Any], PyTree], arrays: PyTree) -> tuple[list[_Slice], Any]:
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(arrays)
    kept = [equation for equation in closed.jaxpr.eqns if equation.outvars]  # what only prints depends on nothing
    jaxpr = closed.jaxpr.replace(eqns=kept, effects=no_effects)
    slices = []
    for i in range(len(jaxpr.outvars)):
        steps, used = partial_eval.dce_jaxpr(jaxpr, [i == k for k in range(len(jaxpr.outvars))])
        read = {id(var) for equation in steps.eqns for var in equation.invars} | set(map(id, steps.outvars))
        named = zip(jaxpr.constvars, closed.consts, strict=True)
        constants = [*(const for var, const in named if id(var) in read), *_inner_constants(steps)]
        slices.append(_Slice(any(used), constants, str(steps)))
    return slices, jax.tree.structure(shapes)


def _inner_constants(jaxpr: Any) -> Iterator[Any]:
    """Of functions that are called in some steps, and of those that they call."""
    for equation in jaxpr.eqns:
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            if hasattr(part, "eqns"):
                yield from getattr(part, "consts", ())
                yield from _inner_constants(getattr(part, "jaxpr", part))

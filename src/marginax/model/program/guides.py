"""Guides: programs that draw the unknowns of another one, with parameters that can be trained."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import sample as sample_site
from numpyro.distributions.transforms import biject_to
from numpyro.infer import autoguide, init_to_value

from marginax.data import Batch
from marginax.model.program.enumeration import sum_out
from marginax.model.program.layout import depends_on_data
from marginax.model.program.sites import Conditioned, Rows, is_discrete, run

if TYPE_CHECKING:
    from marginax.model.program.program import Program

AUTOMATIC = (
    "AutoNormal",
    "AutoDelta",
    "AutoDiagonalNormal",
    "AutoMultivariateNormal",
    "AutoLowRankMultivariateNormal",
    "AutoIAFNormal",
    "AutoBNAFNormal",
)
"""Classes of `numpyro.infer.autoguide` that need to know nothing but the unknowns."""

Guide = Callable[..., Any] | str


class Drawn(NamedTuple):
    """A draw of a guide.

    Args:
        params: unknowns, unconstrained.
        log_prob: of those that all examples share.
        by_row: log density of those that each example has for itself; zeros if there are none.
        density: of the program at the draw, where examples have unknowns.
    """

    params: dict[str, Array]
    log_prob: Float[Array, ""]
    by_row: Float[Array, " b"]
    density: Any


def first_points(program: "Program", guide: Guide, params: Mapping[str, Array], key: PRNGKeyArray) -> dict[str, Any]:
    """Parameters of a guide before training, unconstrained; an automatic one begins at `params`."""
    check_sees_no_data(program, guide)
    found = _run(program, guide, params, {}, program.known.placeholders(), key)
    return {name: _free(site) for name, site in found.items() if site["type"] == "param"}


def model_points(program: "Program", key: PRNGKeyArray) -> dict[str, Any]:
    """Parameters that the program itself declares by `numpyro.param`, unconstrained."""
    found = _run(program, program.model, {}, {}, program.known.placeholders(), key)
    return {name: _free(site) for name, site in found.items() if site["type"] == "param"}


def shapes_of_params(guide: Callable[..., Any], arguments: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    """Shapes of the parameters of a guide, from arguments that may be shapes."""
    arrays = {name: value for name, value in arguments.items() if isinstance(value, jax.ShapeDtypeStruct)}

    def look(arrays: Mapping[str, Array]) -> dict[str, Any]:
        found = run(guide, {**arguments, **arrays}, Conditioned(rows, lambda *_: None, {}), jax.random.key(0))
        return {name: site["value"] for name, site in found.items() if site["type"] == "param"}

    return {name: [leaf.shape for leaf in jax.tree.leaves(v)] for name, v in jax.eval_shape(look, arrays).items()}


def weigh(
    program: "Program", guide: Guide, points: Mapping[str, Any], batch: Batch, key: PRNGKeyArray
) -> tuple[Array, Array]:
    """Log likelihood of a batch, and log ratio of guide and prior, at a draw of the guide.

    Both stand for all data: what belongs to the rows counts N/B times, what all rows share once. If they share no
    unknowns, there is one number for each row, which counts once.
    """
    layout = program.known
    if not layout.local:
        drawn = draw(program, guide, points, key)
        return program.scaled_log_likelihood(drawn.params, batch), drawn.log_prob - program.log_prior(drawn.params)
    arguments = program.arguments_of(batch.data)
    drawn = draw(program, guide, points, key, arguments)
    found = drawn.density
    joint = sum_out(list(found.factors.values()), found.variables, keep=frozenset({(layout.axis, batch.size)}))
    factors = [found.factors[name] for name, _ in layout.local]
    priors = [factor.values for factor in factors if not factor.variables(found.variables)]
    prior = sum((_by_row(values, layout.axis, batch.size) for values in priors), jnp.zeros(batch.size))
    log_likelihood, kl = joint - prior, drawn.by_row - prior
    if not layout.unknowns:
        return log_likelihood, kl
    shared = drawn.log_prob - sum(found.prior.values(), jnp.zeros(()))
    return batch.total(log_likelihood), batch.total(kl) + shared


def draw(
    program: "Program",
    guide: Guide,
    points: Mapping[str, Any],
    key: PRNGKeyArray,
    arguments: Mapping[str, Any] | None = None,
) -> Drawn:
    """Unconstrained unknowns drawn from a guide; those of each example given the arguments."""
    layout = program.known
    arguments = layout.placeholders() if arguments is None else arguments
    shared, local, num_rows = dict(layout.unknowns), dict(layout.local), program.rows(arguments).num
    start = {name: jnp.zeros(shape) for name, shape in shared.items()}
    found = _run(program, guide, start, points, arguments, key)
    sites = {name: site for name, site in found.items() if site["type"] == "sample"}
    log_prob, by_row = jnp.zeros(()), jnp.zeros(num_rows)
    for name, site in sites.items():
        _check_site(name, site, layout)
        values = site["fn"].log_prob(site["value"])
        values = values if site["scale"] is None else site["scale"] * values
        if local and (axis := _axis_of_rows(site, layout.plate)) is not None:
            by_row += _by_row(values, axis, num_rows)
        else:
            log_prob += jnp.sum(values)
    if missing := [name for name in (*shared, *local) if name not in sites]:
        raise ValueError(f"guide must draw every unknown of the program, but {missing[0]!r} is missing")
    values = {name: sites[name]["value"] for name in (*shared, *local)}
    if isinstance(guide, str):
        params = {name: jnp.reshape(value, shared[name]) for name, value in values.items()}
        return Drawn(params, log_prob, by_row, None)
    params = program.unconstrained(values, arguments)
    density = program.density(params, arguments)
    for name, log_det in density.log_dets.items():
        if name in local:
            by_row += _by_row(log_det, layout.axis, num_rows)
        else:
            log_prob += jnp.sum(log_det)
    return Drawn(params, log_prob, by_row, density)


def _check_site(name: str, site: Any, layout: Any) -> None:
    unknowns, local = dict(layout.unknowns), dict(layout.local)
    if name not in unknowns and name not in local and not site["infer"].get("is_auxiliary"):
        raise ValueError(f"guide draws {name!r}, which is no unknown of the program: {', '.join((*unknowns, *local))}")
    if is_discrete(site["fn"]):
        raise ValueError(f"guide must draw continuous sites, got {name!r}: those are summed out in the program")
    is_inside = _axis_of_rows(site, layout.plate) is not None
    if name in local and not is_inside:
        raise ValueError(f"guide must draw {name!r} inside the plate {layout.plate!r}, as the program does")
    if local and name in unknowns and is_inside:
        raise ValueError(f"guide must draw {name!r} outside of the plate {layout.plate!r}, as the program does")


def _axis_of_rows(site: Any, plate: str | None) -> int | None:
    """The axis of the plate of the examples at a site, None if it is not inside."""
    return next((frame.dim for frame in site["cond_indep_stack"] if frame.name == plate), None)


def _by_row(values: Array, axis: int, num_rows: int) -> Float[Array, " b"]:
    """The sum over all axes but that of the rows."""
    values = jnp.broadcast_to(values, jnp.broadcast_shapes(values.shape, (num_rows, *[1] * (-axis - 1))))
    return jnp.sum(jnp.moveaxis(values, axis, 0).reshape(num_rows, -1), axis=1)


def _run(
    program: "Program",
    guide: Guide,
    params: Mapping[str, Array],
    points: Mapping[str, Any],
    arguments: Mapping[str, Any],
    key: PRNGKeyArray,
) -> Mapping[str, Any]:
    """Sites of a guide. It is given the rows where it draws unknowns of each, and else only their shapes."""
    if isinstance(guide, str):
        called, shown, rows = _automatic(guide, params), {}, Rows(None, 1)
    else:
        called, shown, rows = guide, program.settings | dict(arguments), program.rows(arguments)
    return run(called, shown, Conditioned(rows, lambda *_: None, points), key)


def check_sees_no_data(program: "Program", guide: Guide) -> None:
    """Refuse a guide that uses values of the data, and not only their shapes, for unknowns that all examples share."""
    if isinstance(guide, str):
        return
    plate = program.known.plate if program.known.local else None

    def look(arrays: Mapping[str, Array]) -> dict[str, Any]:
        found = _run(program, guide, {}, {}, arrays, jax.random.key(0))
        sites = {name: site for name, site in found.items() if site["type"] == "sample"}
        return {name: site["value"] for name, site in sites.items() if _axis_of_rows(site, plate) is None}

    for name, sees_data in depends_on_data(look, program.known.placeholders()).items():
        if sees_data and name not in dict(program.known.local):
            raise ValueError(
                f"guide must not use the values of the data for {name!r}, only their shapes: a posterior has no data"
            )


def _automatic(name: str, params: Mapping[str, Array]) -> Callable[[], Any]:
    """A guide of NumPyro for unknowns without bounds, which is how it sees all of them."""

    def unbounded() -> None:
        for site, value in params.items():
            sample_site(site, dist.Normal(jnp.zeros(jnp.shape(value)), 1.0).to_event(jnp.ndim(value)))

    return getattr(autoguide, name)(unbounded, init_loc_fn=init_to_value(values=dict(params)))


def _free(site: Any) -> Any:
    constraint = site["kwargs"].get("constraint")
    value = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), site["value"])
    return value if constraint is None else biject_to(constraint).inv(value)

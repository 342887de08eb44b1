"""Guides: programs that draw the unknowns of another one, with parameters that can be trained."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, PRNGKeyArray
from numpyro import sample as sample_site
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import seed, trace
from numpyro.infer import autoguide, init_to_value
from numpyro.primitives import Messenger

from marginax.model.program.layout import depends_on_values
from marginax.model.program.sites import constrained_point, is_discrete

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


class Trained(Messenger):
    """Gives `numpyro.param` its trained value."""

    def __init__(self, points: Mapping[str, Any]):
        super().__init__()
        self.points = points

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "param" and msg["name"] in self.points:
            msg["value"] = constrained_point(msg, self.points[msg["name"]])


def first_points(program: "Program", guide: Guide, params: Mapping[str, Array], key: PRNGKeyArray) -> dict[str, Any]:
    """Parameters of a guide before training, unconstrained; an automatic one begins at `params`."""
    check_sees_no_data(program, guide)
    found = _run(program, guide, params, {}, key)
    return {name: _free(site) for name, site in found.items() if site["type"] == "param"}


def model_points(program: "Program", key: PRNGKeyArray) -> dict[str, Any]:
    """Parameters that the program itself declares by `numpyro.param`, unconstrained."""
    with trace() as found, seed(rng_seed=key):
        program.model(**(program.settings | program.known.placeholders()))
    return {name: _free(site) for name, site in found.items() if site["type"] == "param"}


def draw(
    program: "Program", guide: Guide, points: Mapping[str, Any], key: PRNGKeyArray
) -> tuple[dict[str, Array], Array]:
    """Unconstrained unknowns drawn from a guide, and their log density."""
    unknowns = dict(program.known.unknowns)
    start = {name: jnp.zeros(shape) for name, shape in unknowns.items()}
    sites = {n: s for n, s in _run(program, guide, start, points, key).items() if s["type"] == "sample"}
    log_prob = jnp.zeros(())
    for name, site in sites.items():
        if name not in unknowns and not site["infer"].get("is_auxiliary"):
            raise ValueError(f"guide draws {name!r}, which is no unknown of the program: {', '.join(unknowns)}")
        if is_discrete(site["fn"]):
            raise ValueError(f"guide must draw continuous sites, got {name!r}: those are summed out in the program")
        value = jnp.sum(site["fn"].log_prob(site["value"]))
        log_prob += value if site["scale"] is None else site["scale"] * value
    if missing := [name for name in unknowns if name not in sites]:
        raise ValueError(f"guide must draw every unknown of the program, but {missing[0]!r} is missing")
    values = {name: sites[name]["value"] for name in unknowns}
    if isinstance(guide, str):
        return {name: jnp.reshape(value, unknowns[name]) for name, value in values.items()}, log_prob
    free = program.unconstrained(values)
    return free, log_prob + program.density(free, program.known.placeholders()).log_det


def _run(
    program: "Program", guide: Guide, params: Mapping[str, Array], points: Mapping[str, Any], key: PRNGKeyArray
) -> Mapping[str, Any]:
    called, arguments = (_automatic(guide, params), {}) if isinstance(guide, str) else (guide, _shown(program))
    with trace() as found, seed(rng_seed=key), Trained(points):
        called(**arguments)
    return found


def _shown(program: "Program") -> dict[str, Any]:
    """The arguments of a guide: data of the right shapes, which are not there when a posterior is loaded."""
    return program.settings | program.known.placeholders()


def check_sees_no_data(program: "Program", guide: Guide) -> None:
    """Refuse a guide that uses values of the data and not only their shapes."""
    if isinstance(guide, str):
        return

    def look(arrays: Mapping[str, Array]) -> list[Any]:
        with trace() as found, seed(rng_seed=0):
            guide(**(program.settings | dict(arrays)))
        return [site["value"] for site in found.values() if site["type"] == "sample"]

    if any(jax.tree.leaves(depends_on_values(look, program.known.placeholders()))):
        raise ValueError("guide must not use the values of the data, only their shapes: a posterior has no data")


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

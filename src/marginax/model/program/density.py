"""What each site of a NumPyro program adds to its log density.

Continuous unknowns come in unconstrained and are sent through the bijection of their support, whose Jacobian is counted
at the site.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray
from numpyro.distributions.transforms import biject_to

from marginax.model.program.chains import sum_scan
from marginax.model.program.enumeration import Factor, Plates, sum_undeclared
from marginax.model.program.sites import Conditioned, Rows, counts_as_data, impossible_values, plates_of, run


@dataclass
class Density:
    """What the sites of a program add to its log density.

    Args:
        prior: log prior of each continuous site, with the Jacobian, and of observed ones outside of the plate of rows.
        factors: all the others.
        variables: axes of discrete sites, and their plates.
        sites: the trace, with what is known of sites in a scan that were summed out.
        log_dets: of the bijections, by site.
        impossible: which observed values are, by site.
        has_chains: whether discrete sites of a scan were summed out.
    """

    prior: dict[str, Array] = field(default_factory=dict)
    factors: dict[str, Factor] = field(default_factory=dict)
    variables: dict[int, Plates] = field(default_factory=dict)
    sites: dict[str, Any] = field(default_factory=dict)
    log_dets: dict[str, Array] = field(default_factory=dict)
    impossible: dict[str, Array] = field(default_factory=dict)
    has_chains: bool = False


def density(
    model: Callable[..., Any],
    arguments: Mapping[str, Any],
    params: Mapping[str, Array],
    points: Mapping[str, Any],
    rows: Rows,
    rank: int,
    key: PRNGKeyArray,
    fixed: Mapping[str, Array] | None = None,
) -> Density:
    """The log density of a program at unconstrained unknowns, in its parts."""
    log_dets: dict[str, Array] = {}
    result = Density()
    reserved: set[int] = set()

    def constrained(name: str, fn: Any, step: Array | None) -> Array:
        bijection, free = biject_to(fn.support), params[name] if step is None else params[name][step]
        value = bijection(free)
        log_dets[name] = bijection.log_abs_det_jacobian(free, value)  # in a scan: of this step, until the next one
        return value

    def sum_out_of(given: Conditioned, msg: Any) -> None:
        found = sum_scan(given, msg, log_dets)
        if found is not None:
            result.has_chains = True
            result.prior |= found.prior
            result.factors |= found.factors
            result.sites |= {name: {"type": "scanned", "value": value} for name, value in found.values.items()}
            result.impossible |= found.impossible
            result.log_dets |= found.log_dets
            reserved.update(found.axes)

    given = Conditioned(rows, constrained, points, axes=rank, fixed=fixed, on_scan=sum_out_of)
    traced = run(model, arguments, given, key)
    result.variables = given.variables
    for name, site in traced.items():
        if site["type"] != "sample":
            continue
        if name in log_dets:
            result.log_dets[name] = log_dets[name]
        values = site["fn"].log_prob(site["value"]) + log_dets.get(name, 0.0)
        values = values if site["scale"] is None else site["scale"] * values
        plates = plates_of(site)
        factor = Factor(sum_undeclared(values, plates, rank), plates)
        if any(values.ndim >= -axis and values.shape[axis] > 1 for axis in reserved):
            raise ValueError(
                f"site {name!r} depends on the last state of a scan, which is summed out: put the site into the scan"
            )
        if name in given.names or counts_as_data(site, rows) or factor.variables(result.variables):
            result.factors[name] = factor
        else:
            result.prior[name] = jnp.sum(values)
    result.sites |= traced
    result.impossible |= impossible_values(traced)
    return result

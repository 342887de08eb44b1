"""A NumPyro program, run once: which sites it has, and which values they are given.

Discrete ones take all of their values at once, each on an axis of its own.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array, PRNGKeyArray
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import seed, trace
from numpyro.primitives import Messenger

from marginax.model.program.enumeration import Plates

RADIUS = 2.0  # of the box in which unknowns start that have no prior to be drawn from


@dataclass(frozen=True)
class Site:
    """What is known about a site before there are numbers.

    Args:
        name: of the site.
        kind: "unknown", "discrete", "observed", "factor" or "deterministic".
        plates: that it is in, by name, the outermost first.
        shape: of its unconstrained value, or of a deterministic site.
        rank: number of batch axes.
    """

    name: str
    kind: str
    plates: tuple[str, ...]
    shape: tuple[int, ...]
    rank: int


@dataclass(frozen=True)
class Description:
    """Sites in order, and plates: their sizes with what they subsample, and their axes."""

    sites: tuple[Site, ...]
    plates: dict[str, tuple[int, int | None]]
    axes: dict[str, int]

    def of_kind(self, kind: str) -> tuple[Site, ...]:
        """Those of one kind."""
        return tuple(site for site in self.sites if site.kind == kind)

    @property
    def rank(self) -> int:
        """Most batch axes of any site."""
        return max((site.rank for site in self.sites), default=0)


@dataclass
class Rows:
    """The plate of the examples, and how many of them there are now."""

    plate: str | None
    num: int


class Conditioned(Messenger):
    """Gives values to the sites of a program.

    Args:
        rows: the examples that are seen: their plate is as long as they are, whatever size it asks for.
        unknown: (name, distribution, step) -> the value of a continuous site, or None to draw it; the step is that of a
            scan, and None outside of one and for all steps of one together.
        points: values of `numpyro.param`, by name, without their bounds.
        axes: leftmost batch axis of any site, if discrete sites are to take all their values; else they are drawn.
        draw_observed: whether observed sites are drawn, too.
        fixed: values of discrete sites, by name.
        on_scan: what is done with a scan in place of running it, if it gives the message a value.
    """

    def __init__(
        self,
        rows: Rows,
        unknown: Callable[[str, Any, Array | None], Any],
        points: Mapping[str, Any],
        *,
        axes: int | None = None,
        draw_observed: bool = False,
        fixed: Mapping[str, Array] | None = None,
        on_scan: Callable[["Conditioned", Any], None] | None = None,
    ):
        super().__init__()
        self.rows, self.unknown, self.points = rows, unknown, points
        self.axes, self.draw_observed, self.fixed, self.on_scan = axes, draw_observed, fixed or {}, on_scan
        self.thinning = 1.0  # of the plate of the examples, by what the program asks for
        self.names: set[str] = set()  # of discrete sites that take all their values
        self.variables: dict[int, Plates] = {}  # their axes and plates
        self.num_axes = 0  # that are taken

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "plate" and msg["name"] == self.rows.plate:
            self.thinning = msg["args"][0] / self.rows.num
            msg["args"], msg["value"] = (msg["args"][0], self.rows.num), jnp.arange(self.rows.num)
        elif msg["type"] == "param" and msg["name"] in self.points:
            msg["value"] = constrained_point(msg, self.points[msg["name"]])
        elif msg["type"] == "subsample" and self.rows.plate is not None:
            msg["kwargs"]["event_dim"] = None  # these are the rows of the batch already
        elif msg["type"] == "control_flow":
            self._process_scan(msg)
        elif msg["type"] == "sample":
            self._process_sample(msg)

    def _process_scan(self, msg: Any) -> None:
        if self.on_scan is not None:
            self.on_scan(self, msg)
        xs, length, reverse = msg["args"][2:]
        last = (jnp.shape(jax.tree.leaves(xs)[0])[0] if length is None else length) - 1

        def value_at_step(site: Any) -> Any:
            if site["is_observed"] or is_discrete(site["fn"]):
                return None
            step = site["infer"]["_scan_current_index"]
            return self.unknown(site["name"], site["fn"], last - step if reverse else step)

        msg["kwargs"]["substitute_stack"].append(("substitute", value_at_step))

    def undo_thinning(self, msg: Any) -> None:
        """Count the examples of a batch once each: how often they count is not the plate's to say."""
        if any(frame.name == self.rows.plate for frame in msg["cond_indep_stack"]) and self.thinning != 1:
            msg["scale"] = msg["scale"] / self.thinning

    def _process_sample(self, msg: Any) -> None:
        self.undo_thinning(msg)
        from_scan = "_scan_current_index" in msg.get("infer", {})  # where it had a value at every step
        if msg["is_observed"]:
            if self.draw_observed and not is_factor(msg):
                msg["value"], msg["is_observed"] = None, False
        elif msg["value"] is not None and not from_scan:
            return
        elif not is_discrete(msg["fn"]):
            value = self.unknown(msg["name"], msg["fn"], None)
            msg["value"] = msg["value"] if value is None else value
        elif from_scan:
            return
        elif msg["name"] in self.fixed:
            msg["value"] = self.fixed[msg["name"]]
        elif self.axes is not None:
            axis = self.new_axis()
            self.names.add(msg["name"])
            self.variables[axis] = plates_of(msg)
            take_all_values(msg, axis)

    def new_axis(self) -> int:
        """Left of the axes of plates and of those that are taken."""
        assert self.axes is not None
        self.num_axes += 1
        return -self.axes - self.num_axes


def take_all_values(msg: Any, axis: int) -> None:
    """Give a discrete site all its values along an axis. Its probabilities sum to one, so a mask changes nothing."""
    msg["fn"] = fn = _without_mask(msg["fn"])
    values = fn.enumerate_support(expand=False)
    msg["value"] = values.reshape(values.shape[:1] + (1,) * (-axis - 1) + fn.event_shape)


def _without_mask(fn: Any) -> Any:
    if isinstance(fn, numpyro.distributions.MaskedDistribution):
        return _without_mask(fn.base_dist)
    if isinstance(fn, numpyro.distributions.ExpandedDistribution):
        return _without_mask(fn.base_dist).expand(fn.batch_shape)
    return fn


def plates_of(msg: Any) -> Plates:
    """Axes and sizes of the plates that a site is in."""
    return frozenset((frame.dim, frame.size) for frame in msg["cond_indep_stack"])


def counts_as_data(site: Any, rows: Rows) -> bool:
    """Whether a site is a part of the likelihood wherever it stands: in the plate of the rows, or observed."""
    is_local = any(frame.name == rows.plate for frame in site["cond_indep_stack"])
    return is_local or (rows.plate is None and site["is_observed"])


def constrained_point(msg: Any, free: Any) -> Any:
    """The value of a `numpyro.param` from one without bounds."""
    constraint = msg["kwargs"].get("constraint")
    return free if constraint is None else biject_to(constraint)(free)


def is_discrete(fn: Any) -> bool:
    """Whether the values of a distribution are isolated points."""
    return bool(fn.support.is_discrete)


def is_factor(site: Any) -> bool:
    """Whether a site is a bare `numpyro.factor`."""
    return isinstance(_bare(site["fn"]), numpyro.distributions.Unit)


def _bare(fn: Any) -> Any:
    """A distribution without its wrappers."""
    wrappers = (
        numpyro.distributions.ExpandedDistribution,
        numpyro.distributions.Independent,
        numpyro.distributions.MaskedDistribution,
    )
    while isinstance(fn, wrappers):
        fn = fn.base_dist
    return fn


def check_proper(name: str, fn: Any) -> None:
    """Refuse to draw from what is no distribution, such as a flat prior on the line."""
    bare = _bare(fn)
    if type(bare).sample is numpyro.distributions.Distribution.sample:
        raise ValueError(
            f"site {name!r} has an improper prior ({type(bare).__name__}), which cannot be drawn from: give it a "
            "proper one to see draws of the prior"
        )


def check_enumerable(name: str, fn: Any, plate_axes: set[int]) -> None:
    """Refuse discrete unknowns that cannot be summed out, in a sentence."""
    if not fn.has_enumerate_support or fn.event_shape:
        raise ValueError(
            f"site {name!r} is neither observed nor can it be summed out ({type(_bare(fn)).__name__} has no short list "
            "of values): give the argument that it observes in the data"
        )
    axes = range(-len(fn.batch_shape), 0)
    if any(size > 1 for axis, size in zip(axes, fn.batch_shape, strict=True) if axis not in plate_axes):
        raise ValueError(f"site {name!r} has several discrete values outside of a plate: put it in a numpyro.plate")


def run(model: Callable[..., Any], arguments: Mapping[str, Any], given: Conditioned, key: PRNGKeyArray) -> dict:
    """The trace of a program under these conditions: its sites by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of plates whose size was changed
        with trace() as found, seed(rng_seed=key), given:
            model(**arguments)
    return found


def unconstrained_shape(fn: Any) -> tuple[int, ...]:
    """Of a value of the distribution, sent to where there are no bounds."""
    return biject_to(fn.support).inverse_shape(fn.shape())


def _origin(name: str, fn: Any, step: Array | None) -> Array:
    """A possible value."""
    return biject_to(fn.support)(jnp.zeros(unconstrained_shape(fn)))


def describe(
    model: Callable[..., Any], arguments: Mapping[str, Any], rows: Rows, points: Mapping[str, Any], key: PRNGKeyArray
) -> Description:
    """Sites and plates of a program, without computing anything: arguments may be shapes."""
    found: list[Description] = []

    def look(arrays: Mapping[str, Any]) -> None:
        given = Conditioned(rows, _origin, points)
        traced = run(model, {**arguments, **arrays}, given, key)
        sites = [_describe(name, site) for name, site in traced.items() if site["type"] in ("sample", "deterministic")]
        frames = [frame for site in traced.values() for frame in site.get("cond_indep_stack", ())]
        plates: dict[str, tuple[int, int | None]] = {frame.name: (frame.size, None) for frame in frames}
        plates |= {name: site["args"] for name, site in traced.items() if site["type"] == "plate"}
        found.append(Description(tuple(sites), plates, {frame.name: frame.dim for frame in frames}))

    jax.eval_shape(look, {name: v for name, v in arguments.items() if isinstance(v, jax.ShapeDtypeStruct)})
    return found[0]


def _describe(name: str, site: Any) -> Site:
    plates = tuple(frame.name for frame in reversed(site["cond_indep_stack"]))
    if site["type"] == "deterministic":
        return Site(name, "deterministic", plates, jnp.shape(site["value"]), 0)
    fn = site["fn"]
    if site["is_observed"]:
        return Site(name, "factor" if is_factor(site) else "observed", plates, fn.shape(), len(fn.batch_shape))
    if is_discrete(fn):
        steps = {-len(fn.batch_shape)} if "_scan_current_index" in site["infer"] else set()
        check_enumerable(name, fn, {frame.dim for frame in site["cond_indep_stack"]} | steps)
        return Site(name, "discrete", plates, fn.shape(), len(fn.batch_shape))
    return Site(name, "unknown", plates, unconstrained_shape(fn), len(fn.batch_shape))


def impossible_values(sites: Mapping[str, Any]) -> dict[str, Array]:
    """Which values of observed sites are outside of the support, where that does not depend on unknowns."""
    found = {}
    for name, site in sites.items():
        if site["type"] == "sample" and site["is_observed"] and not is_factor(site):
            kind = type(_bare(site["fn"]))
            if is_discrete(site["fn"]) or not isinstance(inspect.getattr_static(kind, "support", None), property):
                found[name] = ~jnp.asarray(site["fn"].support(site["value"]))
    return found

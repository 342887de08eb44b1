r"""Discrete sites inside a `scan`, summed out over all paths: hidden Markov models.

A step runs with the states of the step before along axes of their own and with its own states along others, which gives
its log factors $f_t(z_{t-1}, z_t)$. The sum over all that comes later is then passed from the last step to the first,
$\beta_{t-1}(z_{t-1}) = \log \sum_{z_t} \exp(f_t(z_{t-1}, z_t) + \beta_t(z_t))$, in time that grows with the number of
steps and the square of the number of states.

States of even steps have other axes than those of odd steps, so that what the scan carries may be any function of
them; two steps are one iteration of `jax.lax.scan`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree
from numpyro.handlers import seed, trace
from numpyro.ops.pytree import PytreeTrace
from numpyro.primitives import _PYRO_STACK, Messenger

from marginax.model.program.enumeration import Factor, Plates, contract, eliminate, sum_undeclared
from marginax.model.program.sites import (
    Conditioned,
    counts_as_data,
    impossible_values,
    is_discrete,
    plates_of,
    take_all_values,
)

_A_LOOP = "write the steps as a Python loop"


@dataclass
class Scanned:
    """What the sites of a scan add to the log density.

    Args:
        prior: log prior of unknowns on which no discrete site has a bearing.
        factors: all the rest, with the discrete sites of the scan summed out.
        values: of unknowns and deterministic sites, all steps of them.
        impossible: which observed values are, by site; the first axis is that of the rows, or of the steps.
        log_dets: of the bijections of unknowns.
        axes: of the states, on which nothing outside may depend.
    """

    prior: dict[str, Array]
    factors: dict[str, Factor]
    values: dict[str, Array]
    impossible: dict[str, Array]
    log_dets: dict[str, Array]
    axes: frozenset[int]


def sum_scan(given: Conditioned, msg: Any, log_dets: dict[str, Array]) -> Scanned | None:
    """Sum the discrete sites of a scan out and give its message a value; None if it has no such sites.

    Args:
        given: values of the other sites.
        msg: of the scan.
        log_dets: where `given.unknown` leaves the log determinant of a site.
    """
    body, init, xs, length, reverse = msg["args"]
    length = jnp.shape(jax.tree.leaves(xs)[0])[0] if length is None else length
    init, xs = jax.tree.map(jnp.asarray, (init, xs))
    order = slice(None, None, -1 if reverse else None)
    xs = jax.tree.map(lambda leaf: leaf[order], xs)
    steps = _Steps(body, given, log_dets, (lambda i: length - 1 - i) if reverse else (lambda i: i))
    if not length or not steps.have_states(init, xs):
        return None
    steps.check(init, xs)
    carry, first, later = steps.run_all(init, xs, length)
    parts = [jax.tree.map(lambda leaf: leaf[None], first), *([] if later is None else [later])]

    def joined(name: str) -> Any:
        return jax.tree.map(lambda *each: jnp.concatenate(each)[order], *(part[name] for part in parts))

    msg["value"] = (length, None, carry), (PytreeTrace({}), joined("ys"))
    factors = [Factor(jnp.sum(f.values, axis=0), f.plates) for part in parts for f in part["rest"]]
    if steps.carried:
        factors.append(steps.sum_paths(first["chain"], [] if later is None else later["chain"]))
    label = next(iter(steps.states))
    return Scanned(
        {name: jnp.sum(values) for name, values in joined("prior").items()},
        {f"{label}, {i}": factor for i, factor in enumerate(factors)},
        joined("values"),
        {name: steps.by_row(values) for name, values in joined("impossible").items()},
        joined("log_dets"),
        frozenset(axis for state in steps.states.values() for axis in state.axes),
    )


@dataclass(frozen=True)
class _State:
    """A discrete site of a step: its axes in even and in odd steps, its plates, and how many values it has."""

    axes: tuple[int, int]
    plates: Plates
    size: int


class _Step(Messenger):
    """Gives values to the sites of one step, and lets no message out."""

    def __init__(self, steps: "_Steps", is_odd: bool, index: Any):
        super().__init__()
        self.steps, self.is_odd, self.index = steps, is_odd, index

    def process_message(self, msg: Any) -> None:
        given = self.steps.given
        if msg["type"] == "plate" and msg["name"] != given.rows.plate and msg["args"][1] not in (None, msg["args"][0]):
            raise ValueError(f"plate {msg['name']!r} in a scan subsamples, which it must not")
        if msg["type"] == "sample":
            given.undo_thinning(msg)
            self._process_sample(msg)
        elif msg["type"] != "control_flow":
            given.process_message(msg)
        msg["stop"] = True

    def _process_sample(self, msg: Any) -> None:
        name, fn = msg["name"], msg["fn"]
        if msg["is_observed"]:
            return
        if "_scan_current_index" in msg["infer"] and is_discrete(fn):
            raise ValueError(f"site {name!r} is discrete and in a scan inside a scan: {_A_LOOP}")
        if msg["value"] is None and is_discrete(fn):
            take_all_values(msg, self.steps.state(msg).axes[self.is_odd])
        elif msg["value"] is None:
            msg["value"] = self.steps.given.unknown(name, fn, self.index)


class _Steps:
    """The steps of a scan.

    Args:
        body: the function that is scanned.
        given: values of sites.
        log_dets: of unknowns, left there when they are given a value.
        at: the index of a step among the values of unknowns.
    """

    def __init__(
        self, body: Callable[..., Any], given: Conditioned, log_dets: dict[str, Array], at: Callable[[Any], Any]
    ):
        self.body, self.given, self.log_dets, self.at = body, given, log_dets, at
        self.states: dict[str, _State] = {}
        self.carried: tuple[_State, ...] = ()  # states on which the next step depends
        self.plates: Plates = frozenset()  # of those
        self.rows: Plates = frozenset()  # the plate of the examples
        self.hidden: set[str] = set()  # deterministic sites that depend on states

    def state(self, msg: Any) -> _State:
        """The discrete site of a message."""
        if msg["name"] not in self.states:
            axes, size = (self.given.new_axis(), self.given.new_axis()), len(msg["fn"].enumerate_support(expand=False))
            self.states[msg["name"]] = _State(axes, plates_of(msg), size)
        return self.states[msg["name"]]

    @property
    def variables(self) -> dict[int, Plates]:
        """Of the step: those from outside, states before it, and its own."""
        return self.given.variables | {axis: state.plates for state in self.states.values() for axis in state.axes}

    # ---- before there are numbers

    def have_states(self, init: PyTree, xs: PyTree) -> bool:
        """Whether there are discrete sites that are not observed."""
        jax.eval_shape(lambda carry, x: self.trace(False, 0, carry, x)[:2], init, _row(xs, 0))
        return bool(self.states)

    def check(self, init: PyTree, xs: PyTree) -> None:
        """Find out which states are carried, and refuse what is no chain of first order."""
        name = next(iter(self.states))
        inside = _PYRO_STACK[_PYRO_STACK.index(self.given) + 1 :]
        for handler in inside:
            if not isinstance(handler, seed | trace):
                raise ValueError(
                    f"the scan with the discrete site {name!r} is inside a {type(handler).__name__!r} of NumPyro: put "
                    "that inside the function that is scanned"
                )
        depends: list[list[Factor]] = []

        def look(carry: PyTree, x: PyTree) -> Any:
            shapes = []
            for t in range(3):
                carry, ys, sites = self.trace(bool(t % 2), t, carry, x)
                depends.append([factor for _, _, factor in self.factors(sites, bool(t % 2))])
                values = {n: s["value"] for n, s in sites.items() if _is_shown(s)}
                self.rows = frozenset(
                    (frame.dim, frame.size)
                    for site in sites.values()
                    for frame in site.get("cond_indep_stack", ())
                    if frame.name == self.given.rows.plate
                )
                shapes.append((carry, ys, values))
            return shapes

        one, two, three = (
            (_shapes(carry), _shapes(ys), {name: _shapes(value) for name, value in values.items()})
            for carry, ys, values in jax.eval_shape(look, init, _row(xs, 0))
        )
        if one[0] != three[0]:
            raise ValueError(
                f"what the scan with the discrete site {name!r} carries must depend on no states but those of its last "
                f"step: {_A_LOOP}"
            )
        if not one[1] == two[1] == three[1]:
            raise ValueError(
                f"what the scan with the discrete site {name!r} gives out depends on it, but it is summed out: let the "
                "function that is scanned return None there"
            )
        self.hidden = {name for name in one[2] if not one[2][name] == two[2][name] == three[2][name]}
        before = {state.axes[0] for state in self.states.values()}
        used = set().union(*(factor.variables(self.variables) for factor in depends[1])) & before
        self.carried = tuple(state for state in self.states.values() if state.axes[0] in used)
        if len({state.plates for state in self.carried}) > 1:
            raise ValueError(f"discrete sites that a scan carries must be in the same plates: {_A_LOOP}")
        self.plates = self.carried[0].plates if self.carried else frozenset()

    # ---- one step

    def trace(self, is_odd: bool, index: Any, carry: PyTree, x: PyTree) -> tuple[PyTree, PyTree, Mapping[str, Any]]:
        """What a step hands on and gives out, and its sites."""
        with _Step(self, is_odd, jnp.asarray(self.at(index))), trace() as sites, seed(rng_seed=0):
            carry, ys = self.body(carry, x)
        return carry, ys, sites

    def factors(self, sites: Mapping[str, Any], is_odd: bool) -> list[tuple[str, bool, Factor]]:
        """Sites by name, whether they are all prior, and log factors: states before along their first axis."""
        found, rank = [], self.given.axes
        assert rank is not None
        for name, site in sites.items():
            if site["type"] != "sample":
                continue
            log_det = self.log_dets.get(name, 0.0) if not site["is_observed"] else 0.0
            values = site["fn"].log_prob(site["value"]) + log_det
            values = values if site["scale"] is None else site["scale"] * values
            plates = plates_of(site)
            values = sum_undeclared(values, plates, rank)
            values = values.reshape((1,) * (max(-axis for axis in self.variables) - values.ndim) + values.shape)
            factor = Factor(values if is_odd else self.exchanged(values), plates)
            is_data = name in self.states or counts_as_data(site, self.given.rows)
            found.append((name, not is_data and not factor.variables(self.variables), factor))
        return found

    def exchanged(self, values: Array) -> Array:
        """A factor with the two axes of each state exchanged."""
        for state in self.states.values():
            values = jnp.swapaxes(values, *state.axes)
        return values

    def run(self, is_odd: bool, index: Any, carry: PyTree, x: PyTree) -> tuple[PyTree, dict[str, Any]]:
        """A step: what it hands on, and what it adds to the density, with states that are not carried summed out."""
        carry, ys, sites = self.trace(is_odd, index, carry, x)
        found = self.factors(sites, is_odd)
        log_dets = {name: self.log_dets.pop(name) for name in sites if name in self.log_dets}
        chain = frozenset(axis for state in self.carried for axis in state.axes)
        retain = chain | frozenset(self.given.variables)
        factors = [factor for _, is_prior, factor in found if not is_prior]
        factors = contract(factors, self.variables, self.plates | self.rows, retain)
        in_chain = [bool(factor.variables(self.variables) & chain) for factor in factors]
        chained = [factor for factor, inside in zip(factors, in_chain, strict=True) if inside]
        if any(factor.plates != self.plates for factor in chained):
            raise ValueError(
                f"site {next(iter(self.states))!r} cannot be summed out of the scan: it is in other plates than what "
                "depends on it"
            )
        return carry, {
            "ys": ys,
            "chain": chained,
            "rest": [factor for factor, inside in zip(factors, in_chain, strict=True) if not inside],
            "prior": {name: jnp.sum(factor.values) for name, is_prior, factor in found if is_prior},
            "values": {n: s["value"] for n, s in sites.items() if _is_shown(s) and n not in self.hidden},
            "impossible": {n: v for n, v in impossible_values(sites).items() if v.ndim <= -max(self.variables) - 1},
            "log_dets": log_dets,
        }

    # ---- all steps

    def run_all(self, carry: PyTree, xs: PyTree, length: int) -> tuple[PyTree, dict[str, Any], dict[str, Any] | None]:
        """What the last step hands on, what the first gives, and what all later ones do, along a leading axis."""
        carry, first = self.run(False, 0, carry, _row(xs, 0))
        num_pairs, parts = (length - 1) // 2, []

        def two(carry: PyTree, given: tuple[Array, PyTree]) -> tuple[PyTree, Any]:
            index, x = given
            carry, odd = self.run(True, index, carry, _row(x, 0))
            carry, even = self.run(False, index + 1, carry, _row(x, 1))
            return carry, jax.tree.map(lambda *each: jnp.stack(each), odd, even)

        if num_pairs:
            some = jax.tree.map(lambda leaf: leaf[1 : 1 + 2 * num_pairs].reshape(num_pairs, 2, *leaf.shape[1:]), xs)
            carry, pairs = jax.lax.scan(two, carry, (1 + 2 * jnp.arange(num_pairs), some))
            parts.append(jax.tree.map(lambda leaf: leaf.reshape(2 * num_pairs, *leaf.shape[2:]), pairs))
        if length % 2 == 0:
            carry, last = self.run(True, length - 1, carry, _row(xs, -1))
            parts.append(jax.tree.map(lambda leaf: leaf[None], last))
        later = jax.tree.map(lambda *each: jnp.concatenate(each), *parts) if parts else None
        return carry, first, later

    def sum_paths(self, first: list[Factor], later: list[Factor]) -> Factor:
        """The sum over all states, from factors of the first step and of all later ones."""
        shape = [1] * max(-axis for axis in self.variables)
        for factor in later:
            for axis in range(-factor.values.ndim + 1, 0):
                shape[axis] = max(shape[axis], factor.values.shape[axis])
        for axis, size in self.plates:
            shape[axis] = size
        for state in self.carried:
            shape[state.axes[0]], shape[state.axes[1]] = 1, state.size

        def back(message: Array, factors: list[Factor]) -> tuple[Array, None]:
            return jnp.broadcast_to(self.exchanged(self._sum_states(message, factors)), shape), None

        dtype = jnp.result_type(*(factor.values for factor in (*first, *later)))
        message = jnp.zeros(shape, dtype)
        if later:
            message, _ = jax.lax.scan(back, message, later, reverse=True)
        return Factor(self._sum_states(message, first), self.plates)

    def _sum_states(self, message: Array, factors: list[Factor]) -> Array:
        """A message for states before a step, from that for its own."""
        factors = [*factors, Factor(message, self.plates)]
        for state in self.carried:
            factors = eliminate(factors, state.axes[1], self.variables)
        return sum((factor.values for factor in factors[1:]), factors[0].values)

    def by_row(self, values: Array) -> Array:
        """Values for all steps, with rows as the first axis."""
        axis = next((axis for axis, _ in self.rows), None)
        return values if axis is None or values.ndim < 1 - axis else jnp.moveaxis(values, axis, 0)


def _is_shown(site: Any) -> bool:
    """Whether a site has a value that does not only stand for many: unknowns and deterministic sites."""
    if site["type"] == "deterministic":
        return True
    return site["type"] == "sample" and not site["is_observed"] and not is_discrete(site["fn"])


def _shapes(tree: PyTree) -> list[tuple[int, ...]]:
    return [leaf.shape for leaf in jax.tree.leaves(tree)]


def _row(xs: PyTree, index: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], xs)

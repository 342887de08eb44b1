"""Bayesian optimisation: the minimum of a function that is dear to evaluate, in few evaluations.

`Search` is what is known: it says where to look (`ask`), and is told what was seen (`tell`). `optimise` goes back and
forth between it and a function, and keeps a directory from which it can go on:

    search/setup/   the search as it began, how many evaluations, how many at a time
    search/state/   points and values so far, and points that were asked for and not evaluated yet
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy import optimize

from marginax._keys import Key, as_key
from marginax.decide.acquisition import generator_of
from marginax.decide.search.acquisitions import AbstractSearchRule, ExpectedImprovement, score_all, score_and_slope
from marginax.decide.search.space import Box, spread_points
from marginax.decide.search.surrogates import AbstractBelief, AbstractSurrogate, ProcessSurrogate
from marginax.files import RunDirectory, register
from marginax.files.disk import well_formed
from marginax.predict.checks import check_array, check_count

_SPREAD, _LEARN, _CANDIDATES, _DRAWS = range(4)  # streams of keys
_LOCAL_SCALES = 0.1, 0.02, 0.004  # of candidates around the best point, in units of the box
_NUM_CLIMBS = 4


@register("search/search")
class Search(eqx.Module):
    """A search for the minimum of a function: what is known of it, and where to look next.

    It is frozen: `tell` gives a new one. What it asks depends on the key and on what it was told alone.

    Args:
        space: `Box(bounds)`.
        surrogate: what functions are believed to be: `ProcessSurrogate()`, or `NetworkSurrogate(model, method)`.
        rule: where to look: `ExpectedImprovement()`, `LowerConfidenceBound(beta)` or `ThompsonSampling()`.
        num_initial: points that are spread over the box before anything is believed.
        num_candidates: quasi-random points that are scored at every ask, besides points around the best; the best of
            them climb from there.
        capacity: evaluations that there will be, so that one program serves all of them.
        key: int seed or JAX key.

    >>> search = Search(Box([(-1.0, 2.0)]), num_initial=3, key=0)
    >>> for _ in range(8):
    ...     x = search.ask()
    ...     search = search.tell(x, (x[:, 0] - 0.5) ** 2)
    >>> bool(abs(search.best[0][0] - 0.5) < 0.1)
    True
    """

    space: Box
    surrogate: AbstractSurrogate
    rule: AbstractSearchRule
    num_initial: int
    num_candidates: int
    capacity: int
    key: PRNGKeyArray
    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]

    def __init__(
        self,
        space: Box,
        surrogate: AbstractSurrogate | None = None,
        rule: AbstractSearchRule | None = None,
        *,
        num_initial: int = 10,
        num_candidates: int = 512,
        capacity: int = 64,
        key: Key,
    ):
        self.space = space
        self.surrogate = ProcessSurrogate() if surrogate is None else surrogate
        self.rule = ExpectedImprovement() if rule is None else rule
        for name, value, kind, what in (
            ("space", self.space, Box, "an mx.decide.Box"),
            ("surrogate", self.surrogate, AbstractSurrogate, "an object such as mx.decide.ProcessSurrogate()"),
            ("rule", self.rule, AbstractSearchRule, "an object such as mx.decide.ExpectedImprovement()"),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be {what}, got {value!r}")
        for name, count, least in (("num_initial", num_initial, 2), ("num_candidates", num_candidates, 1)):
            check_count(count, name, least=least)
        check_count(capacity, "capacity")
        self.num_initial, self.num_candidates, self.capacity = int(num_initial), int(num_candidates), int(capacity)
        self.key = as_key(key)
        self.x, self.y = np.zeros((0, space.size)), np.zeros(0)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def best(self) -> tuple[Float[np.ndarray, " d"], float]:
        """The lowest value so far, and where it was."""
        if not len(self.y):
            raise ValueError("search was told nothing yet: search = search.tell(x, y)")
        return self.x[np.argmin(self.y)], float(self.y.min())

    def tell(self, x: Any, y: Any) -> "Search":
        """The search that knows these values, too.

        Args:
            x: points of the box, (n, d), or one of shape (d,).
            y: values there; finite.
        """
        values = np.atleast_1d(check_array(np.atleast_1d(y), "y"))
        points = np.atleast_2d(check_array(x, "x"))
        self.space.to_unit(points)  # it complains
        if values.shape != (len(points),):
            raise ValueError(f"y must have a value for each of the {len(points)} points, got shape {values.shape}")
        both = np.concatenate([self.x, points]), np.concatenate([self.y, values])
        return eqx.tree_at(lambda search: (search.x, search.y), self, both)

    def ask(self, num: int = 1) -> Float[np.ndarray, "num d"]:
        """Points to evaluate next."""
        check_count(num, "num")
        known = len(self.y)
        if known < self.num_initial:
            spread = spread_points(self.space.size, self.num_initial + num, generator_of(self._key(_SPREAD, 0)))
            return self.space.from_unit(spread[known : known + num])
        with self.surrogate.precision():
            belief, best = self.believe()
            if self.rule.is_drawn:
                return self.space.from_unit(self._minima_of_draws(belief, num))
            pending = np.zeros((0, self.space.size))
            for i in range(num):
                pending = np.append(pending, self._climb(belief, best, pending, i)[None], axis=0)
            return self.space.from_unit(pending)

    def believe(self) -> tuple[AbstractBelief, float]:
        """What is believed of the function in the unit cube, in standardised values; and the lowest of these."""
        y = (self.y - self.y.mean()) / max(float(self.y.std()), 1e-12)
        room = max(self.capacity, len(y))
        belief = self.surrogate.learn(self.space.to_unit(self.x), y, room, key=self._key(_LEARN, len(y)))
        return belief, float(y.min())

    # ---- pieces of an ask

    def _candidates(self, number: int) -> Float[np.ndarray, "m d"]:
        """Points all over the box, and around the best."""
        generator = generator_of(self._key(_CANDIDATES, len(self.y) + 7919 * number))
        spread = spread_points(self.space.size, self.num_candidates, generator)
        centre = self.space.to_unit(self.best[0])[0]
        near = [centre + scale * generator.normal(size=(32, self.space.size)) for scale in _LOCAL_SCALES]
        return np.clip(np.concatenate([spread, *near]), 0.0, 1.0)

    def _climb(
        self, belief: AbstractBelief, best: float, pending: Float[np.ndarray, "k d"], number: int
    ) -> Float[np.ndarray, " d"]:
        """The point with the highest score: from the best candidates upwards."""
        candidates = self._candidates(number)
        rest = jnp.asarray(best), jnp.asarray(pending)
        scores = np.asarray(score_all(self.rule, belief, jnp.asarray(candidates), *rest), float)

        def descend(u: np.ndarray) -> tuple[float, np.ndarray]:
            score, slope = score_and_slope(self.rule, belief, jnp.asarray(u), *rest)
            return -float(score), -np.asarray(slope, float)

        order = np.argsort(-scores)
        points, values = [candidates[order[0]]], [scores[order[0]]]
        for start in candidates[order[:_NUM_CLIMBS]]:
            found = optimize.minimize(descend, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(start))
            if np.isfinite(found.fun):
                points.append(np.clip(found.x, 0.0, 1.0))
                values.append(-found.fun)
        return points[int(np.argmax(values))]

    def _minima_of_draws(self, belief: AbstractBelief, num: int) -> Float[np.ndarray, "num d"]:
        candidates = self._candidates(0)
        draws = _drawn(belief, jnp.asarray(candidates), num, self._key(_DRAWS, len(self.y)))
        return candidates[np.argmin(np.asarray(draws), axis=1)]

    def _key(self, stream: int, number: int) -> PRNGKeyArray:
        return jax.random.fold_in(jax.random.fold_in(self.key, stream), number)


@eqx.filter_jit
def _drawn(belief: AbstractBelief, u: Any, num: int, key: PRNGKeyArray) -> Any:
    return belief.draws(u, num, key=key)


@register("search/optimised")
class Optimised(eqx.Module):
    """What a search has come to.

    Attributes:
        x: points that were evaluated, in order.
        y: values there.
        minimum: of the function, if it is known.
    """

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    minimum: float | None = None

    @property
    def best(self) -> tuple[Float[np.ndarray, " d"], float]:
        """The lowest value, and where it was."""
        return self.x[np.argmin(self.y)], float(self.y.min())

    @property
    def regret(self) -> Float[np.ndarray, " n"]:
        """After each evaluation: the lowest value so far, less the minimum."""
        if self.minimum is None:
            raise ValueError("regret needs the minimum of the function: optimise(..., minimum=...)")
        return np.minimum.accumulate(self.y) - self.minimum


@register("search/state")
class SearchState(eqx.Module):
    """Where it stands."""

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    pending: Float[np.ndarray, "p d"]


def optimise(
    function: Callable[[np.ndarray], Any],
    space: Box,
    *,
    num_evaluations: int,
    key: Key,
    surrogate: AbstractSurrogate | None = None,
    acquisition: AbstractSearchRule | None = None,
    batch: int = 1,
    num_initial: int = 10,
    num_candidates: int = 512,
    minimum: float | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Optimised:
    """Look for the minimum of a function; of what is to be large, give minus it.

    Args:
        function: of a point (d,), a number.
        space: `Box(bounds)`.
        num_evaluations: in all, the first ones included.
        key: int seed or JAX key.
        surrogate: as in `Search`, a Gaussian process by default.
        acquisition: as `rule` in `Search`, expected improvement by default.
        batch: points that are chosen at a time, before any of them is evaluated.
        num_initial: as in `Search`.
        num_candidates: as in `Search`.
        minimum: of the function where it is known, for `regret`.
        directory: where to keep it, so that `resume_optimising(directory, function)` can go on.

    >>> found = optimise(lambda x: (x[0] - 0.3) ** 2, Box([(0.0, 1.0)]), num_evaluations=12, num_initial=4, key=0)
    >>> bool(found.best[1] < 1e-3)
    True
    """
    check_count(num_evaluations, "num_evaluations")
    check_count(batch, "batch")
    if not callable(function):
        raise TypeError(f"function must be a function of a point, got {function!r}")
    counts = {"num_initial": num_initial, "num_candidates": num_candidates, "capacity": num_evaluations}
    search = Search(space, surrogate, acquisition, **counts, key=key)
    minimum = None if minimum is None else float(minimum)
    course = _Course(search, function, int(num_evaluations), int(batch), minimum)
    if directory is None:
        return course.execute()
    course.files = _directory(directory)
    with course.files.owned():
        parts = {"search": search, "plan": {"num": int(num_evaluations), "batch": int(batch), "minimum": minimum}}
        course.files.create(parts)
        return course.execute()


def resume_optimising(directory: str | os.PathLike[str], function: Callable[[np.ndarray], Any]) -> Optimised:
    """Go on with a search; what comes out is what an uninterrupted one gives, bit for bit.

    Args:
        directory: that was given to `optimise`.
        function: the same as there; values that are known are not asked for again.
    """
    files = _directory(directory)
    files.check_begun()
    with files.owned():
        with well_formed(directory):
            setup = files.read()
            search, plan = setup.get("search", of=Search), setup.get("plan", of=dict[str, int | float | None])
            state: Any = files.value("state", of=SearchState)
            course = _Course(search, function, plan["num"], plan["batch"], plan["minimum"], files)
            if state is not None:
                course.search = search.tell(state.x, state.y) if len(state.y) else search
                course.pending = state.pending
        return course.execute()


@dataclass
class _Course:
    """A search in progress."""

    search: Search
    function: Callable[[np.ndarray], Any]
    num: int
    batch: int
    minimum: float | None
    files: RunDirectory | None = None

    def __post_init__(self):
        self.pending = np.zeros((0, self.search.space.size))

    def execute(self) -> Optimised:
        """Points and values, until there are enough."""
        while len(self.search) < self.num:
            if not len(self.pending):
                self.pending = self.search.ask(min(self.batch, self.num - len(self.search)))
            value = np.asarray(self.function(self.pending[0].copy()), float)
            if value.size != 1 or not np.isfinite(value).all():
                raise ValueError(f"function must give a finite number, got {value} at {self.pending[0].tolist()}")
            self.search = self.search.tell(self.pending[0], value.reshape(()))
            self.pending = self.pending[1:]
            if self.files is not None:
                self.files.replace("state", SearchState(self.search.x, self.search.y, self.pending))
        return Optimised(self.search.x, self.search.y, self.minimum)


def _directory(path: str | os.PathLike[str]) -> RunDirectory:
    made_by = "mx.decide.optimise(..., directory=...)"
    return RunDirectory(Path(path), "search", made_by, "choose another, or resume_optimising it", kind="search")

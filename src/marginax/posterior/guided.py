"""A posterior by a guide: a program that draws the unknowns of another one."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from marginax._extras import require
from marginax.data import DataSpec
from marginax.files import register
from marginax.model.abstract import Params
from marginax.model.program import Program
from marginax.posterior.posterior import AbstractPosterior
from marginax.posterior.record import FitRecord


@register("posterior/guided")
class Guided(AbstractPosterior):
    """What a trained guide draws.

    Args:
        model: the program whose unknowns these are.
        guide: a function that calls `numpyro.sample`, or the name of an automatic guide of NumPyro.
        points: its trained parameters, without their bounds.
        spec: shapes and scaling of the data.
        record: the story of the fit.
        key: seed of predictions.
    """

    model: Program
    guide: Callable[..., Any] | str
    points: dict[str, Any]
    spec: DataSpec | None = None
    record: FitRecord = eqx.field(default_factory=FitRecord)
    key: PRNGKeyArray | None = None

    @property
    def is_point(self) -> bool:
        return self.guide == "AutoDelta"

    def describe(self) -> str:
        name = self.guide if isinstance(self.guide, str) else getattr(self.guide, "__name__", "a function")
        size = sum(leaf.size for leaf in jax.tree.leaves(self.points))
        return f"what the guide {name} draws, with {size} trained parameters"

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        drawn = _draw(self.model, self.guide, self.points, num, key, None)
        return {name: drawn[name] for name, _ in self.model.known.unknowns}

    def sample_given(self, arguments: dict[str, Any], num: int, *, key: PRNGKeyArray) -> Params:
        """Unknowns drawn with those that each example has for itself, given its row."""
        return _draw(self.model, self.guide, self.points, num, key, arguments)

    def starting_points(self, num: int) -> Params:
        return self.sample_params(num, key=self.prediction_key())


@eqx.filter_jit
def _draw(
    program: Program,
    guide: Callable[..., Any] | str,
    points: Any,
    num: int,
    key: PRNGKeyArray,
    arguments: dict[str, Any] | None,
) -> Params:
    draw = require("marginax.model.program.guides").draw
    return jax.vmap(lambda k: draw(program, guide, points, k, arguments).params)(jax.random.split(key, num))

"""Functions drawn afresh, for predictions whose closed form tells the law of each input alone."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from marginax.data import DataSpec
from marginax.predict.functions import AbstractFunctions, JoinedFunctions
from marginax.predict.loop import DrawLoop, components
from marginax.predict.mixture import Mixture


@dataclasses.dataclass(frozen=True, eq=False)
class FreshFunctions:
    """A way to draw functions of a posterior at the inputs of a prediction.

    Attributes:
        members: functions whose draws are keys, of one model.
        weights: of the members, summing to one.
        x: the inputs, in the user's units.
        spec: shapes and scaling of the training data.
        max_bytes: memory for intermediate results.
        factor: by which the prediction was scaled.
        centre: around which.
    """

    members: tuple[AbstractFunctions, ...]
    weights: np.ndarray
    x: Any
    spec: DataSpec
    max_bytes: int
    factor: float = 1.0
    centre: Float[np.ndarray, "n d"] | None = None

    def rows(self, index: Any) -> "FreshFunctions":
        """The same at some of the inputs."""
        centre = None if self.centre is None else self.centre[index]
        return dataclasses.replace(self, x=np.asarray(self.x)[index], centre=centre)

    def scaled(self, factor: float, centre: Float[np.ndarray, "n d"]) -> "FreshFunctions":
        """The same for a prediction that is scaled around its mean."""
        return dataclasses.replace(self, factor=self.factor * factor, centre=centre)

    def draw(self, num: int, *, key: PRNGKeyArray) -> Mixture:
        """As many functions, each of a member by its weight, and what they say at the inputs."""
        choosing, drawing = jax.random.split(key)
        chosen = np.asarray(jax.random.choice(choosing, len(self.members), (num,), p=jnp.asarray(self.weights)))
        keys = jax.random.split(drawing, num)
        places = [np.flatnonzero(chosen == i) for i in range(len(self.members))]
        pairs = [(member, found) for member, found in zip(self.members, places, strict=True) if len(found)]
        parts = tuple(eqx.tree_at(lambda f: f.draws, member, keys[found]) for member, found in pairs)
        functions = JoinedFunctions(parts, np.array([float(len(found)) for _, found in pairs]))
        loop = DrawLoop(functions, self.x, spec=self.spec, max_bytes=self.max_bytes)
        back = np.argsort(np.concatenate([found for _, found in pairs]))
        drawn = loop.rebuild([leaf[back] for leaf in loop.collect(components)])
        mixture = Mixture(drawn, loop.row_axes, np.full(num, -np.log(num)), loop.num_rows, self.max_bytes)
        return mixture if self.centre is None else mixture.scaled(self.factor, self.centre)

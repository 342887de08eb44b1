"""Posteriors while they come about, and what they say along a line."""

import contextlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from marginax.data import DataSpec
from marginax.infer import AbstractMethod, Event
from marginax.infer.method import NoPosteriorYet, Phase
from marginax.posterior import AbstractPosterior, Draws

_NUM_KEPT = 24  # draws of each chain that stand for it while it runs: always as many, so that one program serves all


class Watch:
    """Makes a posterior of where a run stands, and tells somebody.

    A method that keeps draws is shown by draws at the moments of looking, one that optimises a law by that law, and
    what comes before either by the networks where chains are.

    Args:
        method: that runs.
        spec: shapes and scaling of the data.
        key: of predictions.
        tell: is told the event and the posterior.
    """

    def __init__(
        self, method: AbstractMethod, spec: DataSpec, *, key: int, tell: Callable[[Event, AbstractPosterior], None]
    ):
        size = spec.num_examples
        phases = method.phases(size, min(method.batch_size or size, size))
        self._method, self._spec, self._tell = method, spec, tell
        self._phases: dict[str, Phase] = {phase.name: phase for phase in phases}
        self._key = jax.random.key(key)
        self._draws: list[PyTree] = []
        self._num_kept = 0

    def __call__(self, event: Event) -> None:
        """Look, unless it is a pass over the data, of which nothing is to be seen."""
        if event.num_steps > 1:
            self._tell(event, self._posterior(event))

    def _posterior(self, event: Event) -> AbstractPosterior:
        phase, found = self._phases[event.phase], None
        if phase.keep is not None:
            num_kept = phase.num_kept(event.step)
            if num_kept > self._num_kept:
                draws = jax.vmap(phase.keep)(phase.enter(event.states))
                self._draws.append(jax.tree.map(np.asarray, draws))
            self._num_kept = num_kept
            if self._draws:
                found = self._method.posterior(event.model, event.states, self._stacked(), {})
        elif event.phases_left == 0:
            with contextlib.suppress(NoPosteriorYet):
                found = self._method.posterior(event.model, event.states, None, {})
        if found is None:
            points = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], event.states.params)
            found = Draws(event.model, points)
        fields = (self._spec, self._key)
        return eqx.tree_at(lambda p: (p.spec, p.key), found, fields, is_leaf=lambda node: node is None)

    def _stacked(self) -> PyTree:
        chosen = np.linspace(0, len(self._draws) - 1, _NUM_KEPT).round().astype(int)
        return jax.tree.map(lambda *leaves: np.stack([leaves[i] for i in chosen], axis=1), *self._draws)


def summarise(posterior: AbstractPosterior, grid: np.ndarray, *, num_samples: int) -> dict[str, Any]:
    """Mean, bands and some curves along a line, in the units of the data."""
    prediction: Any = posterior.predict(grid[:, None], num_samples=num_samples)
    lower, upper = prediction.interval(0.9)
    return {
        "curves": draw_curves(posterior, prediction, grid),
        "mean": prediction.mean,
        "epistemic": np.sqrt(prediction.epistemic),
        "aleatoric": np.sqrt(prediction.aleatoric),
        "total": prediction.std,
        "lower": lower,
        "upper": upper,
    }


def draw_curves(posterior: AbstractPosterior, prediction: Any, grid: np.ndarray, *, num: int = 40) -> np.ndarray:
    """The mean functions of some draws, shape (num, grid)."""
    if prediction.fresh is None:
        means = prediction.means
        return means[np.unique(np.linspace(0, len(means) - 1, num).round().astype(int))]
    scaling: Any = posterior.data_spec().scaling
    networks = posterior.sample(num, key=0)
    locations = np.asarray(_first_outputs(networks, jax.numpy.asarray(scaling.transform_x(grid[:, None]))))
    return scaling.y_shift + scaling.y_factor * locations.astype(np.float64)


@eqx.filter_jit
def _first_outputs(networks: eqx.Module, x: Array) -> Array:
    return eqx.filter_vmap(lambda net, x: jax.vmap(net)(x)[:, 0], in_axes=(eqx.if_array(0), None))(networks, x)

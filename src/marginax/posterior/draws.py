"""A posterior made of draws: ensembles, Monte Carlo, and the single point of MAP."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from marginax.data import DataSpec
from marginax.files import register
from marginax.model import AbstractModel
from marginax.model.abstract import Params
from marginax.posterior.posterior import AbstractPosterior, merge_axes, stack_of, take
from marginax.posterior.record import FitRecord
from marginax.predict import ParameterDraws


@register("posterior/draws")
class Draws(AbstractPosterior):
    """Equally weighted networks. Every leaf of `params` has axes (chain, draw, ...).

    Args:
        model: the model whose parameters these are.
        params: stacked parameters.
        spec: shapes and scaling of the data.
        record: the story of the fit.
        key: seed of predictions.
    """

    model: AbstractModel
    params: Params
    spec: DataSpec | None = None
    record: FitRecord = eqx.field(default_factory=FitRecord)
    key: PRNGKeyArray | None = None

    @property
    def num_chains(self) -> int:
        """Chains that are in it."""
        return jax.tree.leaves(self.params)[0].shape[0]

    @property
    def num_draws(self) -> int:
        """Draws per chain."""
        return jax.tree.leaves(self.params)[0].shape[1]

    @property
    def is_point(self) -> bool:
        return self.num_chains * self.num_draws == 1

    @property
    def sample_info(self) -> dict[str, np.ndarray]:
        """What the sampler recorded while it drew: arrays with axes (chain, step), empty where there is none."""
        info, chains = self.record.info.get("sample", {}), self.num_chains
        return {name: v for name, v in info.items() if v.ndim == 2 and v.shape[0] == chains and v.size}

    def describe(self) -> str:
        chains, draws = self.num_chains, self.num_draws
        if chains * draws == 1:
            return f"a single {self.model.draw_name} (a point estimate)"
        return f"{chains * draws} {self.model.draw_name}s ({chains} chains x {draws} draws)"

    def flat(self) -> Params:
        """All draws along one axis."""
        return jax.tree.map(merge_axes, self.params)

    def sample_params(self, num: int, *, key: PRNGKeyArray) -> Params:
        """Draws without replacement while they last, then with."""
        flat = self.flat()
        total = stack_of(flat)
        order = jnp.tile(jax.random.permutation(key, total), -(-num // total))[:num]
        return take(flat, np.asarray(order))

    def mean_params(self) -> Params:
        """Of one chain; those of several may be around different modes, whose mean is nowhere."""
        if self.num_chains > 1:
            return super().mean_params()
        return jax.tree.map(lambda leaf: jnp.mean(jnp.asarray(leaf), (0, 1)), self.params)

    def functions(self, num: int | None = None, *, key: PRNGKeyArray) -> ParameterDraws:
        """All draws, or `num` of them evenly spaced."""
        flat = self.flat()
        chosen = flat if num is None or num >= stack_of(flat) else self.starting_points(num)
        differ = jax.tree.map(lambda leaf: not _is_constant(leaf), chosen)
        if all(jax.tree.leaves(differ)) or not any(jax.tree.leaves(differ)):
            return ParameterDraws(self.model, chosen)
        draws, same = eqx.partition(chosen, differ)
        return ParameterDraws(self.model, draws, shared=jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), same))

    def starting_points(self, num: int) -> Params:
        flat = self.flat()
        return take(flat, np.linspace(0, stack_of(flat) - 1, num).round().astype(int))


def _is_constant(leaf: Array | np.ndarray) -> bool:
    """Whether all draws of a leaf are the same: most differ between the first and the last."""
    if isinstance(leaf, Tracer):
        return False
    leaf = np.asarray(leaf)
    return bool(np.array_equal(leaf[0], leaf[-1]) and np.all(leaf == leaf[:1]))

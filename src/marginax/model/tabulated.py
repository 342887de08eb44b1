r"""Distribution functions and samples of a density that is known only by its logarithm, up to a constant.

Nodes $c + s \sinh(u)$ with equally spaced u: dense around a centre, and out to a million scales on both sides. Centre
and scale are found in a few rounds, as median and interquartile range; between two nodes the logarithm of the density
is taken to be a straight line. A density that is one narrow peak is found, since its logarithm points there; several
peaks that are narrow for the distance between them are seen coarsely.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

NUM_NODES = 513
FARTHEST = 1e6
_ROUNDS = 6
_LOG_2 = 0.6931471805599453

LogDensity = Callable[[Array], Array]


class Table(eqx.Module):
    """A density between nodes.

    Attributes:
        nodes: in order.
        cdf: mass below each node; 1 in all.
        rise: of the log density, from each node to the next.
    """

    nodes: Float[Array, " g"]
    cdf: Float[Array, " g"]
    rise: Float[Array, " intervals"]

    def below(self, y: Float[Array, ""]) -> Float[Array, ""]:
        """Mass up to a point."""
        at = jnp.clip(y, self.nodes[0], self.nodes[-1])
        place = jnp.clip(jnp.searchsorted(self.nodes, at, side="right") - 1, 0, self.rise.size - 1)
        width = self.nodes[place + 1] - self.nodes[place]
        part = (at - self.nodes[place]) / jnp.where(width > 0, width, 1)
        rise, size = self.rise[place], jnp.maximum(jnp.abs(self.rise[place]), 1e-6)
        along = jnp.where(rise > 0, 1 - part, part)  # from the end with the higher density
        share = jnp.expm1(-size * along) / jnp.expm1(-size)
        share = jnp.where(rise > 0, 1 - share, share)
        return self.cdf[place] + share * (self.cdf[place + 1] - self.cdf[place])

    def quantile(self, q: Float[Array, ""]) -> Float[Array, ""]:
        """The inverse of `below`."""
        place = jnp.clip(jnp.searchsorted(self.cdf, q, side="right") - 1, 0, self.rise.size - 1)
        mass = self.cdf[place + 1] - self.cdf[place]
        share = jnp.clip((q - self.cdf[place]) / jnp.where(mass > 0, mass, 1), 0, 1)
        rise, size = self.rise[place], jnp.maximum(jnp.abs(self.rise[place]), 1e-6)
        share = jnp.where(rise > 0, 1 - share, share)
        along = -jnp.log1p(share * jnp.expm1(-size)) / size
        part = jnp.clip(jnp.where(rise > 0, 1 - along, along), 0, 1)
        return self.nodes[place] + part * (self.nodes[place + 1] - self.nodes[place])


def tabulate(log_density: LogDensity, dtype: jnp.dtype, support: tuple[float, float] = (-jnp.inf, jnp.inf)) -> Table:
    """The table of a density of one number.

    >>> print(tabulate(lambda y: -0.5 * (y - 3) ** 2, jnp.dtype("float32")).below(jnp.array(4.0)).round(3))
    0.841

    Args:
        log_density: of several points at a time.
        dtype: of the points.
        support: outside of which the density is zero; a jump that is not at its ends is smeared over an interval.
    """
    end = jnp.arcsinh(jnp.asarray(FARTHEST, dtype))
    grid = jnp.sinh(jnp.linspace(-end, end, NUM_NODES, dtype=dtype))

    def table_at(centre: Array, scale: Array) -> Table:
        nodes = jnp.clip(centre + scale * grid, *support)
        log_masses, rise = _log_masses(log_density, nodes)
        below = jnp.concatenate([jnp.zeros(1, dtype), jnp.cumsum(jax.nn.softmax(log_masses))])
        return Table(nodes, below / below[-1], rise)

    def refine(place: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        table = table_at(*place)
        low, centre, high = jax.vmap(table.quantile)(jnp.asarray([0.25, 0.5, 0.75], dtype))
        at = jnp.clip(jnp.searchsorted(table.nodes, centre), 1, NUM_NODES - 1)
        width = table.nodes[at] - table.nodes[at - 1]
        return (centre, jnp.maximum(jnp.maximum(high - low, 0.1 * width), jnp.finfo(dtype).tiny)), None

    start = jnp.zeros((), dtype), jnp.ones((), dtype)
    place, _ = jax.lax.scan(refine, start, None, length=_ROUNDS)
    return table_at(*place)


def _log_masses(log_density: LogDensity, nodes: Array) -> tuple[Array, Array]:
    """Of each interval: the log mass, and the rise of the log density."""
    logs = log_density(nodes)
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    left, right = logs[:-1], logs[1:]
    at_edge = jnp.isinf(left) | jnp.isinf(right)
    rise = jnp.where(at_edge, 0.0, right) - jnp.where(at_edge, 0.0, left)
    size = jnp.maximum(jnp.abs(rise), 1e-6)
    mean = jnp.maximum(left, right) + jnp.where(at_edge, -_LOG_2, jnp.log(-jnp.expm1(-size) / size))
    return mean + jnp.log(jnp.diff(nodes)), rise

r"""Log densities of examples by importance sampling: $\hat p(x) = \frac1K \sum_k p(x, z_k) / q(z_k \mid x)$.

Unbiased for p; its logarithm is too low in expectation, by about half the square of its standard error. Memory stays
bounded, as examples are taken in blocks and draws in chunks, of which only sums of weights are kept; draws of an
example depend on the key and on its row number, and not on the blocks.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import derive, row_keys

_CHUNK = 50  # draws of latents at once


@dataclass(frozen=True)
class ImportanceEstimate:
    r"""Log densities of examples, and how well they are known.

    Args:
        values: $\log \hat p(x)$ of each example.
        standard_error: of each value, by the spread of its weights.
        effective_size: how many independent draws the weights are worth; values with few are not to be trusted.
        num_importance: draws of each example.
    """

    values: Float[np.ndarray, " n"]
    standard_error: Float[np.ndarray, " n"]
    effective_size: Float[np.ndarray, " n"]
    num_importance: int

    @property
    def mean(self) -> float:
        """Over examples."""
        return float(self.values.mean())

    @property
    def mean_standard_error(self) -> float:
        """Of the mean over these very examples, from the draws of latents."""
        return float(np.sqrt(np.sum(self.standard_error**2)) / len(self.values))

    def __repr__(self) -> str:
        return (
            f"ImportanceEstimate(mean={self.mean:.4g}, mean_standard_error={self.mean_standard_error:.2g}, "
            f"num_importance={self.num_importance}, smallest effective_size={self.effective_size.min():.3g})"
        )


def importance_estimate(
    model: Any, draws: PyTree, rows: dict[str, Array], num: int, key: PRNGKeyArray, max_bytes: int
) -> ImportanceEstimate:
    """Of the mixture of several networks, and with all of their weights."""
    sums = [np.asarray(part, np.float64) for part in weight_sums(model, draws, rows, num, key, max_bytes)]
    highest, first, second = sums  # axes (network, example)
    top = highest.max(0)
    first, second = first * np.exp(highest - top), second * np.exp(2 * (highest - top))
    total, networks = first.sum(0), len(first)
    values = top + np.log(total / (num * networks))
    variance = (second - first**2 / num).clip(0).sum(0) * num / max(num - 1, 1)
    return ImportanceEstimate(values, np.sqrt(variance) / total, total**2 / second.sum(0), num)


def weight_sums(
    model: Any, draws: PyTree, rows: dict[str, Array], num: int, key: PRNGKeyArray, max_bytes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Highest log weight, and sums of weights and of their squares in its unit, (network, example)."""
    num_rows, chunk = len(rows["x"]), min(_CHUNK, num)
    each = 4 * chunk * (model.output_size(rows) + model.num_entries)
    size = int(np.clip(max_bytes // (2 * each), 1, num_rows))
    blocks = []
    for start in range(0, num_rows, size):
        index = np.arange(start, start + size)
        taken = np.minimum(index, num_rows - 1)  # the last block is filled up, so that all have one shape
        block = {name: value[taken] for name, value in rows.items()}
        found = _sums(model, draws, block, row_keys(key, jnp.asarray(index)), num, chunk)
        blocks.append([np.asarray(part)[:, : num_rows - start] for part in found])
    return tuple(np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True))  # pyright: ignore


@eqx.filter_jit
def _sums(model: Any, draws: PyTree, rows: PyTree, keys: Array, num: int, chunk: int) -> tuple[Array, Array, Array]:
    def of_network(params: PyTree) -> tuple[Array, Array, Array]:
        def add(so_far: tuple[Array, Array, Array], i: Array) -> tuple[tuple[Array, Array, Array], None]:
            highest, first, second = so_far
            log_weights = model.log_weights(params, rows, chunk, jax.vmap(lambda k: derive(k, i))(keys))
            counted = (i * chunk + jnp.arange(chunk) < num)[:, None]
            log_weights = jnp.where(counted, log_weights, -jnp.inf)
            new = jnp.maximum(highest, jnp.max(log_weights, axis=0))
            weights, shrunk = jnp.exp(log_weights - new), jnp.exp(highest - new)
            sums = shrunk * first + jnp.sum(weights, 0), shrunk**2 * second + jnp.sum(weights**2, 0)
            return (new, *sums), None

        lowest = jnp.full(keys.shape, jnp.finfo(rows["x"].dtype).min)
        start = lowest, jnp.zeros_like(lowest), jnp.zeros_like(lowest)
        return jax.lax.scan(add, start, jnp.arange(-(-num // chunk)))[0]

    return jax.lax.map(of_network, draws)

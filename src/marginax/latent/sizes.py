r"""How many components, states, topics or factors: the size whose bound of the evidence is highest.

$\log p(D \mid K) \ge \mathcal L_K = \text{reconstruction} - \text{complexity}$ (Corduneanu & Bishop, 2001)

More parts explain the data better and cost more. A mixture of K components has K! posteriors that differ by the names
of its components, of which a belief holds one; Bishop (2006, section 10.2.4) adds $\log K!$ to the bound for them.
We do not: where components stay empty, their exchange makes no other posterior, and the sum would count it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginax._keys import Key
from marginax.infer import CoordinateAscent, fit
from marginax.model.conjugate import AbstractConjugate
from marginax.posterior import Conjugate


@dataclass(frozen=True)
class SizeRow:
    """The fit of one size.

    Attributes:
        size: how many parts.
        elbo: the highest bound of the restarts.
        reconstruction: how well it explains the data, in nats.
        complexity: what that costs.
        elbos: bounds of all restarts; where they differ much, more of them may find a better one.
    """

    size: int
    elbo: float
    reconstruction: float
    complexity: float
    elbos: tuple[float, ...]


@dataclass(frozen=True)
class SizeChoice:
    """Bounds of models of several sizes, and the fitted one with the highest.

    Attributes:
        rows: one for each size, in order.
        posterior: of the best size.
    """

    rows: tuple[SizeRow, ...]
    posterior: Conjugate

    @property
    def best(self) -> SizeRow:
        """The row with the highest bound."""
        return max(self.rows, key=lambda row: row.elbo)

    @property
    def size(self) -> int:
        """The best one."""
        return self.best.size

    def __str__(self) -> str:
        """A table."""
        lines = [f"{'size':>4}  {'bound':>12}  {'behind':>9}  {'reconstruction':>14}  {'complexity':>10}"]
        lines += [
            f"{row.size:>4}  {row.elbo:>12.1f}  {self.best.elbo - row.elbo:>9.1f}  {row.reconstruction:>14.1f}  "
            f"{row.complexity:>10.1f}"
            for row in self.rows
        ]
        return "\n".join(lines)


def choose_size(
    build: Callable[[int], AbstractConjugate],
    sizes: Sequence[int],
    data: Any,
    method: Any = None,
    *,
    key: Key,
    num_chains: int = 5,
    progress: bool | None = None,
    callback: Callable[[SizeRow], None] | None = None,
) -> SizeChoice:
    """Fit models of several sizes, and choose the one whose bound of the evidence is highest.

    Args:
        build: makes the model of a size: `mx.latent.GaussianMixture`, or `lambda k: mx.latent.HMM(k, "poisson")`.
        sizes: to compare.
        data: as for `mx.fit`, the same for all.
        method: by default `CoordinateAscent()`, on all data: bounds of minibatches are too noisy to compare.
        key: int seed or JAX key, the same for all sizes.
        num_chains: restarts of every size, of which the best counts.
        progress: as for `mx.fit`.
        callback: called with every row when it is there.

    Returns:
        The bounds, and the fitted model of the best size.

    >>> import marginax as mx
    >>> x = np.random.default_rng(0).normal(size=(120, 2)) + 6.0 * (np.arange(120) % 2)[:, None]
    >>> choice = choose_size(mx.latent.GaussianMixture, (1, 2, 3), x, key=0, num_chains=2)
    >>> choice.size, choice.posterior.model.num_components, len(choice.rows)
    (2, 2, 3)
    """
    method = CoordinateAscent() if method is None else method
    if not isinstance(method, CoordinateAscent) or method.batch_size is not None:
        raise ValueError("method must be mx.infer.CoordinateAscent() with batch_size=None, whose bounds are exact")
    given = [int(size) for size in sizes]
    if not given or min(given) < 1 or len(set(given)) < len(given):
        raise ValueError(f"sizes must be different whole numbers >= 1, such as range(1, 9), got {list(sizes)}")
    if not callable(build):
        raise TypeError(f"build must make a model of a size, such as mx.latent.GaussianMixture, got {build!r}")
    rows, best = [], None
    for size in given:
        posterior: Any = fit(build(size), data, method, key=key, num_chains=num_chains, progress=progress)
        info = posterior.record.info["iterate"]
        chain = int(np.argmax(posterior.elbos))
        explained, cost = (float(info[name][chain, -1]) for name in ("reconstruction", "complexity"))
        rows.append(SizeRow(size, posterior.elbo, explained, cost, tuple(map(float, posterior.elbos))))
        if callback is not None:
            callback(rows[-1])
        if best is None or posterior.elbo > best.elbo:
            best = posterior
    assert best is not None
    return SizeChoice(tuple(rows), best)

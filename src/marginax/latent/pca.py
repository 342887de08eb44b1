r"""Principal components with missing entries: probabilistic (Tipping & Bishop, 1999) and of the exponential family.

$z_i \sim N(0, I_q), \quad \eta_{id} = w_d^\top z_i + b_d, \quad x_{id} \sim N(\eta_{id}, 1/\tau)$,
$\text{Bernoulli}(\sigma(\eta_{id}))$ or $\text{Poisson}(\log(1 + e^{\eta_{id}}))$

With $(w_d, b_d) \mid \tau \sim N(0, (\tau P_0)^{-1})$ and $\tau \sim \text{Gamma}(a_0, b_0)$ every column is a
regression on factors that are themselves unknown. Binary entries and counts have a normal bound (`entries`), so that an
entry counts as an observation of known precision, and $\tau = 1$; bounds and factors of a row are repeated until they
stay. Where we differ from the papers: factors of a row that is to be imputed have the curvature of the density in the
place of the bound's, which is larger and would make intervals too narrow.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from jaxtyping import Key as KeyOf

from marginax._kernels.blocks import sum_of_blocks
from marginax._keys import Key, as_key
from marginax.data import AbstractSource, Batch, Rows
from marginax.files import register
from marginax.latent.entries import ENTRIES, AbstractEntries, Bound
from marginax.latent.family import check_positive
from marginax.latent.mixture import check_num, first_guess
from marginax.latent.normals import LOG_2PI
from marginax.latent.queries import AbstractQueries, as_batch, averaged
from marginax.latent.weights import RegressionWeights
from marginax.model.abstract import Params
from marginax.model.conjugate import AbstractConjugate, Expected, naturals

_FIRST_ROWS = 4096
_MOST_SWEEPS = 200  # between the factors of a row and the bounds of its entries


@dataclass(frozen=True)
class PCAQueries(AbstractQueries):
    """What posteriors of principal components can be asked."""

    def factors(self, data: Any) -> np.ndarray:
        """The mean factors of each row, (n, q); they are known up to a rotation."""
        model: Any = self.posterior.model
        return averaged(model.factors, naturals(self.posterior), as_batch(model, data).data)

    def loadings(self) -> np.ndarray:
        """In the middle of the posterior, (column, q)."""
        return np.asarray(self.posterior.starting_points(1)["loadings"][0])

    def impute(self, data: Any, level: float = 0.9, *, num: int = 200, key: Key = 0) -> tuple[np.ndarray, ...]:
        """Mean of every entry given those that are observed in its row, and an interval: (mean, lower, upper).

        Over draws of parameters, factors and noise; entries that are observed are as they are in all three. The mean of
        a binary entry is its probability. Intervals of binary entries and counts have their ends included, and cover
        more often than `level` says, as whole numbers leave no choice.

        Args:
            data: rows, with a mask.
            level: probability that an entry is inside.
            num: draws.
            key: seed.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be in (0, 1), got {level}")
        model: Any = self.posterior.model
        rows = as_batch(model, data).data
        for_params, for_rows = jax.random.split(as_key(key))
        params = jax.tree.map(jnp.asarray, self.posterior.sample_params(num, key=for_params))
        means, draws = _imputed(model, params, rows, jax.random.split(for_rows, num))
        lower, upper = np.quantile(np.asarray(draws), [0.5 - level / 2, 0.5 + level / 2], axis=0)
        x, mask = np.asarray(rows["x"]), np.asarray(rows["mask"], bool)
        return tuple(np.where(mask, x, part) for part in (np.asarray(means).mean(0), lower, upper))


@eqx.filter_jit
def _imputed(model: "PCA", params: Params, rows: PyTree, keys: KeyOf[Array, " num"]) -> tuple[Array, Array]:
    return jax.lax.map(lambda pair: model.redraw(pair[0], rows, key=pair[1]), (params, keys))


@register("latent/pca")
class PCA(AbstractConjugate):
    """Rows that are linear in a few factors; entries may be missing, numbers with normal noise, binary, or counts.

    Data are an array (n, columns), or a dict with "x" and "mask", which is False where an entry is missing. Posteriors
    have `factors`, `loadings`, `impute` and `log_likelihood` (a bound but for normal entries).

    Args:
        num_factors: q.
        outcome: "normal", "binary" or "poisson".
        shrinkage: $P_0$, the precision of loadings in the prior, in units of the noise.
        centre_of: of the columns, from which offsets are counted; by default the means of the data.
        noise_scale: the prior guess at the scale of the noise; by default the scale of the data.

    >>> import marginax as mx
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(100, 1)) @ np.array([[3.0, -2.0, 1.0]]) + 0.1 * rng.normal(size=(100, 3))
    >>> pca = mx.fit(mx.latent.PCA(1), x, mx.infer.CoordinateAscent(), key=0)
    >>> mask = np.array([[True, True, False]])
    >>> mean, lower, upper = pca.impute({"x": [[6.0, -4.0, 0.0]], "mask": mask})
    >>> bool(lower[0, 2] < 2.0 < upper[0, 2]), mean[0, :2].tolist()
    (True, [6.0, -4.0])
    """

    num_factors: int
    outcome: str
    shrinkage: float | Array
    centre_of: Float[Array, " d"] | None
    noise_scale: float | Array | None

    queries: ClassVar[type] = PCAQueries

    def __init__(
        self,
        num_factors: int,
        outcome: str = "normal",
        *,
        shrinkage: float | Array = 1e-2,
        centre_of: Any = None,
        noise_scale: float | Array | None = None,
    ):
        """Check the number and the name."""
        check_num("num_factors", num_factors)
        if outcome not in ENTRIES:
            raise ValueError(f"outcome must be one of {', '.join(map(repr, ENTRIES))}, got {outcome!r}")
        for name, value in (("centre_of", centre_of), ("noise_scale", noise_scale)):
            if value is not None and not ENTRIES[outcome].has_noise:
                raise ValueError(
                    f"{name} is for outcome='normal', got {value!r:.40} with outcome={outcome!r}: leave it out"
                )
        check_positive("shrinkage", shrinkage)
        self.num_factors, self.outcome, self.shrinkage = num_factors, outcome, shrinkage
        self.centre_of = None if centre_of is None else jnp.asarray(centre_of)
        self.noise_scale = noise_scale

    @property
    def _kind(self) -> AbstractEntries:
        return ENTRIES[self.outcome]

    # ---- data

    def read(self, data: Any) -> Rows:
        """Entries, and whether each is observed."""
        if isinstance(data, Rows):
            return data
        masked = isinstance(data, dict)
        if masked and set(data) != {"x", "mask"}:
            raise ValueError(f'data must have "x" and "mask", got {sorted(data)}')
        x = np.asarray(data["x"] if masked else data, np.float64)
        mask = np.asarray(data["mask"], bool) if masked else np.ones(x.shape, bool)
        if mask.shape != x.shape:
            raise ValueError(f"mask must have the shape of x, {x.shape}, got {mask.shape}")
        if not x.size:
            raise ValueError(f"data must have at least one row and one column, got shape {x.shape}")
        if not mask.any():
            raise ValueError("mask must be True where an entry is observed, got none: no entry is observed")
        x = np.where(mask, x, 0.0)
        if not np.isfinite(x).all():
            row = int(np.argwhere(~np.isfinite(x))[0][0])
            raise ValueError(f'data have NaN in row {row}: pass {{"x": ..., "mask": ...}} if an entry is missing')
        return Rows({"x": x, "mask": mask})

    def check(self, source: AbstractSource) -> None:
        rows = source.examples(source.spec.num_examples)
        self.check_rows(rows)
        num, size = rows["x"].shape
        if self.num_factors > min(num, size):
            raise ValueError(
                f"num_factors must be at most {min(num, size)} for data {num} x {size}, got {self.num_factors}"
            )

    def check_rows(self, rows: Any) -> None:
        """Raise if these cannot be the entries."""
        if np.ndim(rows["x"]) != 2:
            raise ValueError(f"data must have shape (n, columns), got {np.shape(rows['x'])}")
        self._kind.check(np.asarray(rows["x"]))

    def adapted_to(self, source: AbstractSource) -> "PCA":
        if not self._kind.has_noise:
            return self
        rows = source.examples(source.spec.num_examples)
        x, mask = np.asarray(rows["x"], np.float64), np.asarray(rows["mask"], bool)
        means = x.sum(0, where=mask) / np.maximum(mask.sum(0), 1)
        scale = float(np.sqrt(np.mean((x - means) ** 2, where=mask))) or 1.0
        centre = jnp.asarray(means, jax.dtypes.canonicalize_dtype(float)) if self.centre_of is None else self.centre_of
        noise = scale if self.noise_scale is None else self.noise_scale
        return PCA(self.num_factors, self.outcome, shrinkage=self.shrinkage, centre_of=centre, noise_scale=noise)

    def seed(self, batch: Batch, *, key: PRNGKeyArray) -> PyTree:
        """Random factors."""
        x, mask = self._entries(batch.data)
        z = jax.random.normal(key, (len(x), self.num_factors), x.dtype)
        z = jnp.concatenate([z, jnp.ones((len(x), 1), x.dtype)], 1)
        guess = self._kind.guess(x)
        _, target, weight = self._kind.bound(x, guess, guess**2)
        return self._statistics(x, mask, mask * target, mask * weight, z, z[:, :, None] * z[:, None, :])

    # ---- the density

    def init(self, source: AbstractSource) -> Params:
        """From random factors of some rows."""
        return first_guess(self, source.examples(min(source.spec.num_examples, _FIRST_ROWS)))

    def log_prior(self, params: Params) -> Float[Array, ""]:
        return self._family.log_prior(_as_weights(params))

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        return self._rows(self.natural(params), batch.data)["evidence"]

    def factors(self, natural: PyTree, rows: PyTree) -> Float[Array, "n q"]:
        """Mean factors of rows."""
        return self._rows(natural, rows)["mean"]

    def redraw(self, params: Params, rows: PyTree, *, key: PRNGKeyArray) -> tuple[Array, Array]:
        """Means of entries, and entries, under factors that are drawn given what is observed."""
        for_factors, for_noise = jax.random.split(key)
        x, mask = self._entries(rows)
        natural = self.natural(params)
        found = self._rows(natural, rows)
        eta = found["mean"] @ params["loadings"].T + params["offset"]
        q = self.num_factors
        quadratic = jnp.einsum("nd,def->nef", mask * self._kind.curvature(x, eta), natural["second"][:, :q, :q])
        root = jnp.swapaxes(jnp.linalg.cholesky(quadratic + jnp.eye(q, dtype=x.dtype)), 1, 2)
        noise = jax.random.normal(for_factors, found["mean"].shape, x.dtype)
        z = found["mean"] + jax.scipy.linalg.solve_triangular(root, noise[..., None])[..., 0]
        eta = z @ params["loadings"].T + params["offset"]
        eta = eta if self.centre_of is None else eta + self.centre_of
        scale = jnp.exp(-0.5 * params["log_precision"]) if self._kind.has_noise else None
        return self._kind.mean(eta), self._kind.draw(eta, scale, key=for_noise)

    def _entries(self, rows: PyTree) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """Entries about the centre, and whether each is observed."""
        real = jax.dtypes.canonicalize_dtype(float)
        x, mask = jnp.asarray(rows["x"], real), jnp.asarray(rows["mask"], real)
        return (x if self.centre_of is None else x - self.centre_of) * mask, mask

    def _rows(self, natural: PyTree, rows: PyTree) -> dict[str, Array]:
        """The normal belief about the factors of every row, and its log evidence or a bound of it."""
        x, mask = self._entries(rows)
        if self._kind.has_noise:
            return self._factors(natural, mask, self._kind.bound(x, x, x**2))

        fixed = jax.lax.stop_gradient(natural)

        def sweep(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            first, second, _, step = carry
            found = self._factors(fixed, mask, self._kind.bound(x, first, second))
            new = found["first"] @ fixed["first"].T, jnp.einsum("def,nef->nd", fixed["second"], found["second"])
            moved = jnp.max(jnp.abs(jnp.sqrt(new[1]) - jnp.sqrt(second)) + jnp.abs(new[0] - first))
            return *new, moved, step + 1

        def moves(carry: tuple[Array, Array, Array, Array]) -> Array:
            return (carry[2] > _settled(x.dtype)) & (carry[3] < _MOST_SWEEPS)

        start = jnp.ones_like(x) * fixed["first"][:, -1], jnp.ones_like(x) * fixed["second"][:, -1, -1]
        start = *start, jnp.asarray(jnp.inf, x.dtype), jnp.asarray(0)
        # the bound is best where the sweeps end, so its gradient is the one with the ends held fast
        first, second, *_ = jax.lax.while_loop(moves, sweep, start)
        return self._factors(natural, mask, self._kind.bound(x, first, second))

    def _factors(self, natural: PyTree, mask: Array, bound: Bound) -> dict[str, Array]:
        """The normal belief that follows from a bound of the entries."""
        q, target, weight = self.num_factors, mask * bound.target, mask * bound.weight
        offset = 0.5 * (natural["log_precision"] - LOG_2PI) if self._kind.has_noise else 0.0
        constant = jnp.sum(mask * (natural["precision"] * bound.constant + offset), 1)
        quadratic = jnp.einsum("nd,def->nef", weight, natural["second"])
        linear = target @ natural["first"][:, :q] - quadratic[:, :q, q]
        constant = constant + target @ natural["first"][:, q] - 0.5 * quadratic[:, q, q]
        precision = quadratic[:, :q, :q] + jnp.eye(q, dtype=target.dtype)
        covariance = jnp.linalg.inv(precision)
        mean = jnp.einsum("nef,nf->ne", covariance, linear)
        log_det = jnp.linalg.slogdet(precision)[1]
        evidence = constant + 0.5 * (jnp.sum(mean * linear, 1) - log_det)
        spread = jnp.trace(covariance, axis1=1, axis2=2) + jnp.sum(mean**2, 1)
        first = jnp.concatenate([mean, jnp.ones((len(mean), 1), mean.dtype)], 1)
        second = (first[:, :, None] * first[:, None, :]).at[:, :q, :q].add(covariance)
        found = {"mean": mean, "first": first, "second": second, "evidence": evidence}
        return found | {"complexity": 0.5 * (spread - q + log_det), "target": target, "weight": weight}

    def _statistics(self, x: Array, mask: Array, target: Array, weight: Array, first: Array, second: Array) -> PyTree:
        return {
            "second": jnp.einsum("nd,nef->def", weight, second),
            "first": target.T @ first,
            "square": jnp.sum(x**2),
            "count": jnp.sum(mask),
        }

    # ---- closed form

    def expect(self, natural: PyTree, batch: Batch) -> Expected:
        def block(rows: PyTree, counted: Float[Array, " b"]) -> Expected:
            found = self._rows(natural, rows)
            x, mask = self._entries(rows)
            each = counted[:, None]
            statistics = self._statistics(
                each * x, each * mask, each * found["target"], each * found["weight"], found["first"], found["second"]
            )
            complexity = jnp.sum(counted * found["complexity"])
            return Expected(statistics, jnp.sum(counted * found["evidence"]) + complexity, complexity)

        return sum_of_blocks(block, batch.data)

    def conjugate(self, statistics: PyTree) -> PyTree:
        return self._family.conjugate(statistics)

    def maximise(self, statistics: PyTree) -> Params:
        return _as_loadings(self._family.maximise(statistics))

    def natural(self, params: Params) -> PyTree:
        return self._family.natural(_as_weights(params))

    def expected_natural(self, belief: PyTree) -> PyTree:
        return self._family.expected_natural(belief)

    def divergence(self, belief: PyTree) -> Float[Array, ""]:
        return self._family.divergence(belief)

    def draw(self, belief: PyTree, *, key: PRNGKeyArray) -> Params:
        return _as_loadings(self._family.draw(belief, key=key))

    def centre(self, belief: PyTree) -> Params:
        return _as_loadings(self._family.centre(belief))

    @property
    def _family(self) -> RegressionWeights:
        """Of loadings and offsets: a regression of every column on the factors and one."""
        if not self._kind.has_noise:
            return RegressionWeights(self.shrinkage, 1.0)
        if self.noise_scale is None:
            raise ValueError("the prior of the noise is that of the data: fit the model, or pass noise_scale=")
        return RegressionWeights(self.shrinkage, None, 1.0, jnp.square(jnp.asarray(self.noise_scale)))


def _as_weights(params: Params) -> Params:
    rest = {name: value for name, value in params.items() if name == "log_precision"}
    return {"weights": jnp.concatenate([params["loadings"], params["offset"][:, None]], 1), **rest}


def _as_loadings(point: Params) -> Params:
    rest = {name: value for name, value in point.items() if name == "log_precision"}
    return {"loadings": point["weights"][:, :-1], "offset": point["weights"][:, -1], **rest}


def _settled(dtype: Any) -> float:
    """How little predictors move once rows have settled; the bound is then off by the square of it."""
    return 1e-6 if dtype == jnp.float64 else 3e-4

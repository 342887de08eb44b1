r"""Yesterday's posterior as today's prior: $p(w \mid D_1, D_2) \propto p(D_2 \mid w)\, p(w \mid D_1)$.

The posterior contains the prior that it was found with, so nothing of that is counted again. What is kept is a normal
distribution, or a mixture of some, over the weights and the likelihood's unknowns:

- Hyperparameters of the old prior (learned scales) are averaged over: given the weights, new data say nothing of them.
- Unknowns of the likelihood, such as the noise level, are part of it where the posterior has a spread for them
  (variational posteriors, draws), together with the weights. A Laplace approximation holds them fixed: then they keep
  the prior that the likelihood gives them, and every new data set finds its own.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from marginax.curvature import AbstractCovariance, DiagonalCovariance
from marginax.files import register
from marginax.model import distributions as dist
from marginax.model.numpyro_distribution import from_numpyro
from marginax.model.prior import AbstractPrior, Hyper, Leaf, Unknowns
from marginax.model.priors import AbstractWithScale, PriorScale, check_prior_scale, scale_at
from marginax.posterior.normal_families import AbstractNormalFamily
from marginax.posterior.normals import normals_around, normals_of
from marginax.posterior.posterior import AbstractPosterior


@register("prior/normal_around")
class NormalAround(AbstractWithScale):
    """Independent normals around given weights of a leaf.

    Args:
        mean: of the leaf.
        deviation: standard deviations.
        scale: by which these are multiplied.
    """

    mean: Array
    deviation: Array
    scale: PriorScale

    @property
    def has_centre(self) -> bool:
        return True

    def centre(self, leaf: Leaf) -> Array:
        return self.mean

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        return jnp.sum(dist.Normal(self.mean, self._width(leaf, hyper)).log_prob(value))

    def expected_log_prob(self, mean: Array, scale: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        """The log density at the mean, less what the spread costs."""
        width = self._width(leaf, hyper)
        return jnp.sum(dist.Normal(self.mean, width).log_prob(mean) - 0.5 * (scale / width) ** 2)

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        return dist.Normal(self.mean, self._width(leaf, hyper)).sample(key)

    def _width(self, leaf: Leaf, hyper: Hyper) -> Array:
        return self.deviation * scale_at(self.scale, leaf, hyper)


@register("prior/from_posterior")
class FromPosterior(AbstractWithScale):
    r"""The posterior of earlier data, or the weights of a trained network, as prior.

    A normal posterior (Laplace, variational, SWAG) is taken with the covariance that it has; draws by their means and
    variances. With a `scale` s the prior is $m + s\,(w - m)$ of that: as sure as the posterior at 1, less sure above.
    Around a network it is normal with standard deviation s, each weight by itself.

    Args:
        posterior: of a model with the same weights (by path and shape), or a network.
        scale: a number, `FanIn(gain)`, or a distribution to learn it from, one for each leaf; of the weights alone.
        family: the normals that stand for it: `DiagonalNormal()`, `LowRankNormal(rank)`, `DenseNormal()` or
            `NormalMixture(family)`, by moments; by default as it is, and `DiagonalNormal()` for draws.
        likelihood: whether what it knows of the likelihood's unknowns (the noise level) is taken over too.

    >>> import marginax as mx
    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian(0.1), mx.priors.Normal(1.0))
    >>> laplace = mx.infer.Laplace(mx.curvature.Dense())
    >>> first = mx.fit(model, (x[::2], x[::2, 0]), laplace, key=0)
    >>> model = mx.Model(model.network, model.likelihood, mx.priors.FromPosterior(first))
    >>> both = mx.fit(model, (x[1::2], x[1::2, 0]), laplace, key=0)
    >>> [round(float(p.covariance.variances()[0]), 5) for p in (first, both)]
    [0.00273, 0.00136]
    """

    paths: tuple[str, ...] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    unknowns: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    means: Float[Array, "normals size"]
    covariances: tuple[AbstractCovariance, ...]
    log_weights: Float[Array, " normals"]
    scale: PriorScale
    is_constant: bool = eqx.field(static=True)

    def __init__(
        self,
        posterior: Any,
        scale: Any = 1.0,
        family: AbstractNormalFamily | None = None,
        *,
        likelihood: bool = True,
    ):
        """Read the normals off the posterior."""
        if family is not None and not isinstance(family, AbstractNormalFamily):
            raise TypeError(f"family must be such as mx.priors.DiagonalNormal() or None, got {family!r}")
        self.scale = from_numpyro(scale)
        check_prior_scale(self.scale)
        self.is_constant = not isinstance(posterior, AbstractPosterior)
        if isinstance(posterior, AbstractPosterior):
            leaves, normals, self.unknowns = normals_of(posterior, family, likelihood)
        else:
            leaves, normals, self.unknowns = *normals_around(posterior, family), ()
        self.paths, self.shapes = zip(*((leaf.path, leaf.shape) for leaf in leaves), strict=True)
        weights, means = [weight for weight, _, _ in normals], [mean for _, mean, _ in normals]
        self.covariances = (normals[0][2], *(covariance for _, _, covariance in normals[1:]))
        self.means = jnp.asarray(np.stack(means), jnp.result_type(float))
        self.log_weights = jnp.asarray(np.log(np.asarray(weights) / np.sum(weights)), jnp.result_type(float))

    # ---- what it is about

    @property
    def couples_weights(self) -> bool:
        return len(self.covariances) > 1 or any(not isinstance(c, DiagonalCovariance) for c in self.covariances)

    @property
    def covers_likelihood(self) -> bool:
        return bool(self.unknowns)

    @property
    def has_centre(self) -> bool:
        return True

    def varies_within(self, path: str) -> bool:
        return not self.is_constant

    def check_leaves(self, leaves: list[Leaf]) -> None:
        known = dict(zip(self.paths, self.shapes, strict=True))
        for leaf in leaves:
            if known.get(leaf.path) != leaf.shape:
                found = f"{known[leaf.path]} there" if leaf.path in known else "nothing of the kind there"
                raise ValueError(
                    f"prior FromPosterior knows no leaf {leaf.path} of shape {leaf.shape}, {found}: give such leaves a "
                    "prior of their own with mx.priors.ByPath({...}, default=FromPosterior(...))"
                )
        absent = set(self.paths) - {leaf.path for leaf in leaves}
        if absent and self.couples_weights:
            raise ValueError(
                f"prior FromPosterior has weights that depend on those of {sorted(absent)}, which are not random here: "
                "use family=mx.priors.DiagonalNormal()"
            )

    def starting_unknowns(self, unknowns: Unknowns) -> Unknowns:
        """At their means, where it speaks of them."""
        if not self.unknowns:
            return unknowns
        found = tuple((name, jnp.shape(unknowns[name])) for name in sorted(unknowns))
        if found != self.unknowns:
            raise ValueError(
                f"prior FromPosterior knows a likelihood's unknowns {self.unknowns}, and this one has {found}: "
                "pass likelihood=False to leave them to the likelihood"
            )
        centre, start, given = jnp.exp(self.log_weights) @ self.means, self._num_weights, {}
        for name, shape in self.unknowns:
            num = int(np.prod(shape))
            given[name] = centre[start : start + num].reshape(shape).astype(unknowns[name].dtype)
            start += num
        return given

    @property
    def _deviations(self) -> Array:
        """Of independent weights."""
        covariance = self.covariances[0]
        assert isinstance(covariance, DiagonalCovariance)
        return covariance.scale

    @property
    def _num_weights(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def _slice(self, path: str) -> tuple[slice, tuple[int, ...]]:
        place = self.paths.index(path)
        start = sum(int(np.prod(shape)) for shape in self.shapes[:place])
        return slice(start, start + int(np.prod(self.shapes[place]))), self.shapes[place]

    # ---- one leaf

    def at(self, path: str) -> AbstractPrior:
        """That of a leaf by itself, where weights are independent."""
        if self.couples_weights:
            return self
        where, shape = self._slice(path)
        mean, deviation = self.means[0, where].reshape(shape), self._deviations[where].reshape(shape)
        return NormalAround(mean=mean, deviation=deviation, scale=self.scale)

    def centre(self, leaf: Leaf) -> Array:
        """The mean; a mixture has none that it could be moved by."""
        if len(self.covariances) > 1:
            raise ValueError("prior FromPosterior with several normals has no centre: use family=DiagonalNormal()")
        where, shape = self._slice(leaf.path)
        return self.means[0, where].reshape(shape)

    def log_prob(self, value: Array, leaf: Leaf, hyper: Hyper) -> Float[Array, ""]:
        self._refuse(leaf)
        return self.at(leaf.path).log_prob(value, leaf, hyper)

    def sample(self, leaf: Leaf, hyper: Hyper, *, key: PRNGKeyArray) -> Array:
        self._refuse(leaf)
        return self.at(leaf.path).sample(leaf, hyper, key=key)

    def _refuse(self, leaf: Leaf) -> None:
        if self.couples_weights:
            raise ValueError(
                f"prior FromPosterior has no density of {leaf.path} by itself, since its weights depend on each other: "
                "use family=mx.priors.DiagonalNormal()"
            )

    # ---- all leaves

    def log_joint(
        self, leaves: list[Leaf], values: Sequence[Array], hypers: dict[str, Hyper], unknowns: Unknowns
    ) -> Float[Array, ""]:
        if not self.couples_weights:
            return super().log_joint(leaves, values, hypers, unknowns) + self._log_prob_of(unknowns)
        place = {leaf.path: i for i, leaf in enumerate(leaves)}  # the model may hold its leaves in another order
        deviations, total = [], jnp.zeros(())
        for path in self.paths:
            leaf, value = leaves[place[path]], values[place[path]]
            hyper = hypers.get(path, {})
            width = scale_at(self.scale, leaf, hyper)
            where, _ = self._slice(path)
            deviations.append((value.ravel() - self.means[:, where]) / width)
            total = total + self.log_hyperprior(leaf, hyper) - value.size * jnp.log(width)
        deviations.append(self._flat(unknowns) - self.means[:, self._num_weights :])
        rows = jnp.concatenate(deviations, axis=1)
        each = [covariance.log_prob(row) for covariance, row in zip(self.covariances, rows, strict=True)]
        if len(each) == 1:
            return total + each[0]
        return total + jax.scipy.special.logsumexp(jnp.stack(each) + self.log_weights)

    def expected_log_joint(
        self,
        leaves: list[Leaf],
        moments: Sequence[tuple[Array, Array]],
        draws: Sequence[Array],
        hypers: dict[str, Hyper],
        unknowns: Unknowns,
    ) -> Float[Array, ""]:
        """By a formula where weights are independent: else it would take the covariance of what is averaged over."""
        if self.couples_weights:
            return self.log_joint(leaves, draws, hypers, unknowns)
        joint = super().expected_log_joint(leaves, moments, draws, hypers, unknowns)
        return joint + self._log_prob_of(unknowns)

    def sample_joint(self, leaves: list[Leaf], *, key: PRNGKeyArray) -> tuple[list[Array], dict[str, Hyper]]:
        if not self.couples_weights:
            return super().sample_joint(leaves, key=key)
        choosing, drawing, widths = jax.random.split(key, 3)
        drawn = [c.sample(jax.random.fold_in(drawing, i), 1)[0] for i, c in enumerate(self.covariances)]
        chosen = jax.random.categorical(choosing, self.log_weights)
        deviation, mean = jnp.stack(drawn)[chosen], self.means[chosen]
        values, hypers = [], {}
        for i, leaf in enumerate(leaves):
            hyper = self.sample_hyper(leaf, key=jax.random.fold_in(widths, i))
            if hyper:
                hypers[leaf.path] = hyper
            where, shape = self._slice(leaf.path)
            values.append((mean[where] + scale_at(self.scale, leaf, hyper) * deviation[where]).reshape(shape))
        return values, hypers

    def _log_prob_of(self, unknowns: Unknowns) -> Float[Array, ""]:
        """Of the likelihood's unknowns, where everything is independent."""
        if not self.unknowns:
            return jnp.zeros(())
        around = dist.Normal(self.means[0, self._num_weights :], self._deviations[self._num_weights :])
        return jnp.sum(around.log_prob(self._flat(unknowns)))

    def _flat(self, unknowns: Unknowns) -> Float[Array, " others"]:
        parts = [jnp.ravel(unknowns[name]) for name, _ in self.unknowns]
        return jnp.concatenate(parts) if parts else jnp.zeros(0)

r"""Classes with an order: $P(y \le k) = \sigma(c_k - f(x))$, with cut points that are learned (McCullagh, 1980)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.files import register
from marginax.model.distributions import Categorical
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns
from marginax.model.likelihoods.discrete import check_counts
from marginax.model.outcome import Outcome


@register("likelihood/ordinal")
class Ordinal(AbstractLikelihood):
    r"""One of K classes in order (grades, stages): the network gives one number, and a larger one means a later class.

    The K - 1 cut points are learned with the weights. Their prior is flat over the probabilities of the classes at
    $f = 0$, whatever K is.

    Args:
        num_classes: K; targets are labels 0..K-1.

    >>> grades = Ordinal(num_classes=4)
    >>> print(grades.distribution(jnp.zeros((1, 1)), grades.init(1)).probs.round(2))
    [[0.25 0.25 0.25 0.25]]
    """

    num_classes: int = eqx.field(default=3, static=True)

    def __check_init__(self):
        if isinstance(self.num_classes, bool) or not isinstance(self.num_classes, int) or self.num_classes < 2:
            raise ValueError(f"num_classes must be an int >= 2, got {self.num_classes!r}")

    def num_targets(self, output_size: int) -> int:
        if output_size != 1:
            raise ValueError(f"network must give 1 output for Ordinal(), got {output_size}: set its out_size to 1")
        return 1

    def outcome(self, output_size: int) -> Outcome:
        return Outcome.CLASS

    def check(self, output_size: int, y: np.ndarray) -> None:
        self.num_targets(output_size)
        if y.ndim != 1:
            raise ValueError(f"y must be labels of shape (n,) for Ordinal(), got {y.shape}")
        check_counts(y, self.num_classes - 1, f"Ordinal(num_classes={self.num_classes})")

    def init(self, output_size: int) -> Unknowns:
        """Cut points that make all classes equally probable at f = 0: the first, and the log gaps between them."""
        below = jnp.arange(1, self.num_classes) / self.num_classes
        cuts = jnp.log(below) - jnp.log1p(-below)
        return {"first_cut": cuts[:1], "log_gaps": jnp.log(jnp.diff(cuts))}

    def cuts(self, unknowns: Unknowns) -> Float[Array, " cuts"]:
        """The cut points, in order."""
        first = unknowns["first_cut"]
        return jnp.concatenate([first, first + jnp.cumsum(jnp.exp(unknowns["log_gaps"]))])

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        """Flat over probabilities: the slopes from cut points to those, and from log gaps to gaps."""
        cuts = self.cuts(unknowns)
        slopes = jnp.sum(jax.nn.log_sigmoid(cuts) + jax.nn.log_sigmoid(-cuts)) + jnp.sum(unknowns["log_gaps"])
        return slopes + jax.lax.lgamma(jnp.asarray(float(self.num_classes)))

    def distribution(self, output: Float[Array, "*n 1"], unknowns: Unknowns) -> Categorical:
        r"""$\sigma(b) - \sigma(a) = \sigma(b)\,\sigma(-a)\,(1 - e^{a-b})$, which does not cancel."""
        cuts = self.cuts(unknowns)
        above = jax.nn.log_sigmoid(output - cuts)  # of each cut point
        below = jax.nn.log_sigmoid(cuts - output)
        between = jnp.log(-jnp.expm1(-jnp.exp(unknowns["log_gaps"])))
        inner = below[..., 1:] + above[..., :-1] + between
        return Categorical(jnp.concatenate([below[..., :1], inner, above[..., -1:]], axis=-1))

    def log_prob(self, output: Float[Array, "n 1"], y: Array, unknowns: Unknowns) -> Float[Array, " n"]:
        return self.distribution(output, unknowns).log_prob(y)

    def fisher(self, output: Float[Array, "n 1"], unknowns: Unknowns) -> Float[Array, "n 1 1"]:
        """Of the one output: the mean over classes of the squared slope of their log probability."""
        cuts = self.cuts(unknowns)
        nothing = jnp.zeros_like(output)
        falls = jnp.concatenate([jax.nn.sigmoid(output - cuts), nothing], axis=-1)
        rises = jnp.concatenate([nothing, jax.nn.sigmoid(cuts - output)], axis=-1)
        probs = self.distribution(output, unknowns).probs
        return jnp.sum(probs * jnp.square(rises - falls), axis=-1)[:, None, None]

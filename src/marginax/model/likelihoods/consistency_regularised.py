r"""Rows with or without labels: what is said of a row should not depend on how it is looked at.

Sajjadi, Javanmardi & Tasdizen (2016) and Laine & Aila (2017) punish squared differences of the class probabilities of
two views; here it is their Jensen-Shannon divergence, which is in nats and at most the log of the number of views:

$-w \Big( H\big[\tfrac1V \sum_v p(y \mid T_v x)\big] - \tfrac1V \sum_v H\big[p(y \mid T_v x)\big] \Big)$

with the transforms $T_v$ drawn anew for every row and step where there is a key. Where there is none they are always
the same: spread evenly, as for `mx.augment`, with noise that is each row's own.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from jaxtyping import Key as KeyOf

from marginax.data.transforms import AbstractTransform, check_transforms
from marginax.data.views import check_num_views, views_of
from marginax.files import register
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns
from marginax.model.likelihoods.partly_labelled import AbstractPartlyLabelled


@register("likelihood/consistency_regularised")
class ConsistencyRegularised(AbstractPartlyLabelled):
    r"""Labels of which some may be missing (-1): every row is also asked for equal predictions of transformed views.

    That is a belief about what does not change a class, and **not a likelihood of data**: `is_density` is False,
    `posterior.summary()` says so, and `loo` refuses. The label of a row that has one counts at the row as it is. It
    runs under every method with an `mx.Model`. Predictions are of inputs as they are. The GGN, and with it the evidence
    of `Laplace`, has no part of the term, which is not convex. Where a method draws noise for every example (dropout,
    local reparameterisation), each view has its own, and is asked to agree in spite of it.

    Args:
        likelihood: of classes: `Categorical()`, `Bernoulli()` with one output, `Ordinal()`.
        transforms: from `mx.data`, applied in turn, in the units that the model sees.
        weight: $w$, >= 0; choose it on rows with labels that were kept back.
        num_views: of a row, at least two; None for all members of a finite orbit.

    >>> import marginax as mx
    >>> flipped = ConsistencyRegularised(mx.likelihoods.Categorical(), mx.data.Flip(), num_views=None)
    >>> model = mx.Model(mx.nets.MLP(3, (), 2, key=0), flipped)
    >>> x = jnp.array([[1.0, 5.0, 1.0], [0.0, 1.0, 2.0]])  # one is its own mirror image
    >>> batch = mx.data.FullBatch((x, jnp.array([-1, -1]))).batch(0, key=jax.random.key(0))
    >>> print((model.log_likelihood(model.initial(2), batch) < -1e-3).tolist())
    [False, True]
    """

    likelihood: AbstractLikelihood
    transforms: tuple[AbstractTransform, ...]
    weight: float | Array
    num_views: int | None

    compares_views: ClassVar[bool] = True

    def __init__(
        self, likelihood: AbstractLikelihood, transforms: Any, weight: float | Array = 1.0, num_views: int | None = 2
    ):
        """Check that the pieces are what they should be."""
        self.likelihood, self.weight = likelihood, weight
        self.transforms = check_transforms(transforms)
        check_num_views(self.transforms, num_views, least=2)
        self.num_views = num_views

    def without_label(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Nothing, by this output alone."""
        return jnp.zeros(output.shape[0])

    def check_inputs(self, shape: tuple[int, ...]) -> None:
        for transform in self.transforms:
            transform.check(shape)

    def views(self, x: Float[Array, "n ..."], keys: KeyOf[Array, " n"], *, fresh: bool) -> Float[Array, "n views ..."]:
        def of(row: Array, key: PRNGKeyArray) -> Array:
            return views_of(self.transforms, row, self.num_views, key=key, fresh=fresh)

        return jax.vmap(of)(x, keys)

    def agreement(self, outputs: Float[Array, "n views k"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Minus the weighted Jensen-Shannon divergence."""
        logits = self.likelihood.distribution(outputs.reshape(-1, outputs.shape[-1]), unknowns).class_logits
        each = jax.nn.log_softmax(logits, axis=-1).reshape(*outputs.shape[:2], -1)
        mean = jax.nn.logsumexp(each, axis=1) - jnp.log(each.shape[1])
        between = jnp.mean(jnp.sum(jnp.exp(each) * (each - mean[:, None]), axis=-1), axis=1)
        return -self.weight * between

r"""Contrastive learning (SimCLR; Chen, Kornblith, Norouzi & Hinton, 2020): which two views are of the same row?

Each of the $2B$ views of a batch has a partner, and is to name it among the $2B - 1$ others, without those of the same
row where the batch holds it twice, as at the end of an epoch:

$\ell(i, j) = \log \frac{\exp(\cos(z_i, z_j) / \tau)}{\sum_{k \neq i} \exp(\cos(z_i, z_k) / \tau)}$

That is the log probability of a choice, and the term of a row is the mean of its two, so that a batch is worth $B$
times their mean (the NT-Xent loss with its sign changed). The choice is among the rows of the batch: a larger one is a
harder question and not more of the same data, and N / B such batches are no likelihood of all data.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from jaxtyping import Key as KeyOf

from marginax.data.transforms import AbstractTransform, check_transforms
from marginax.files import register
from marginax.self_supervised.objective import AbstractTwoViews, check_number


@register("self_supervised/contrastive")
class Contrastive(AbstractTwoViews):
    r"""Two views of a row are told from those of the other rows of its batch by the angles of their outputs.

    Args:
        transforms: from `mx.data`, applied in turn, at random for each view.
        temperature: $\tau$ > 0.

    >>> import marginax as mx
    >>> outputs = jnp.array([[[1.0, 0.0], [2.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])  # two rows, two views of each
    >>> objective, keys = Contrastive(mx.data.Jitter(0.1), temperature=0.5), jax.random.split(jax.random.key(0))
    >>> terms = objective.terms(outputs, outputs, keys)
    >>> print(terms.round(4))  # log of exp(2) / (exp(2) + exp(0) + exp(0))
    [-0.2395 -0.2395]
    """

    transforms: tuple[AbstractTransform, ...] = eqx.field(converter=check_transforms)
    temperature: Any = 0.5

    def __check_init__(self):
        check_number("temperature", self.temperature, positive=True)

    def terms(
        self, outputs: Float[Array, "b views k"], x: Float[Array, "b ..."], keys: KeyOf[Array, " b"]
    ) -> Float[Array, " b"]:
        num, bits = outputs.shape[0], jax.random.key_data(keys)
        row_is_same = jnp.tile(jnp.all(bits[:, None] == bits, axis=-1), (2, 2))  # twice in a batch, a row has one key
        partner = jnp.roll(jnp.eye(2 * num, dtype=bool), num, axis=1)
        flat = jnp.concatenate([outputs[:, 0], outputs[:, 1]])
        flat = flat * jax.lax.rsqrt(jnp.sum(flat**2, axis=1, keepdims=True) + 1e-12)
        alike = jnp.where(row_is_same & ~partner, -jnp.inf, flat @ flat.T / self.temperature)
        log_probs, here = jax.nn.log_softmax(alike, axis=1), jnp.arange(num)
        return 0.5 * (log_probs[here, num + here] + log_probs[num + here, here])

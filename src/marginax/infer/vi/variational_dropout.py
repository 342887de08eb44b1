r"""Variational dropout (Kingma, Salimans & Welling, 2015; Molchanov, Ashukha & Vetrov, 2017).

Gaussian dropout with a rate for every weight, learned: $q(w) = N(\theta, \alpha\theta^2)$ with the prior
$p(w) \propto p_0(w) / |w|$, log-uniform near zero and with the tail of the model's prior $p_0$. The divergence from the
log-uniform part depends on $\alpha$ alone and is approximated by
$-\mathrm{KL} \approx k_1 \sigma(k_2 + k_3 \log\alpha) - \tfrac12 \log(1 + \alpha^{-1}) - k_1$; it is smallest where
$\alpha \to \infty$: weights that are not needed drown in noise, and `mx.decide.prune` takes them out.

The papers have no tail. Their prior cannot be normalised (Hron, Matthews & Ghahramani, 2018): nothing bounds weights
where classes can be separated, and predictions become far too sure.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marginax.files import register
from marginax.infer.catalogue import register_method
from marginax.infer.method import AbstractMethod, AbstractRecipe
from marginax.infer.optimisers import AbstractOptimiser, Adam, as_optimiser
from marginax.infer.vi.divergences import AbstractDivergence
from marginax.infer.vi.families import AbstractApproximation, MeanField
from marginax.infer.vi.vi import VI
from marginax.model import Model, Params

_K1, _K2, _K3 = 0.63576, 1.87320, 1.48695


@register("divergence/log_uniform")
class LogUniform(AbstractDivergence):
    """From the model's prior, which for weights with inputs is log-uniform near zero."""

    needs_layers: ClassVar[bool] = True

    def terms(
        self, model: Model, approximation: AbstractApproximation, draw: Params, log_prob: Array
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """As usual, with minus the divergence in place of the entropy of the weights."""
        scales = approximation.scales()
        assert scales is not None
        entropy, log_prior = jnp.zeros(()), model.expected_log_prior(approximation.mean, scales, draw)
        leaves = zip(model.leaves, *(jax.tree.leaves(t.network) for t in (approximation.mean, scales)), strict=True)
        for leaf, mean, scale in leaves:
            if leaf.fan_in is not None:
                log_prior = log_prior - divergence_from_log_uniform(mean, scale)
            else:
                entropy = entropy + jnp.sum(jnp.log(scale))
        for scale in jax.tree.leaves((scales.likelihood, scales.prior)):
            entropy = entropy + jnp.sum(jnp.log(scale))
        return entropy, log_prior


def divergence_from_log_uniform(mean: Array, scale: Array) -> Float[Array, ""]:
    """Molchanov's approximation, summed over the weights; 0 where noise drowns the weight."""
    log_alpha = jnp.clip(2.0 * (jnp.log(scale) - jnp.log(jnp.abs(mean) + 1e-8)), -8.0, 8.0)
    return jnp.sum(_K1 - _K1 * jax.nn.sigmoid(_K2 + _K3 * log_alpha) + 0.5 * jnp.log1p(jnp.exp(-log_alpha)))


@register_method(
    "method/variational_dropout",
    gives="VI with a learned noise for every weight",
    use_when="weights that are not needed should go",
    cost="20,000 steps",
    order=140,
)
class VariationalDropout(AbstractRecipe):
    """Multiplicative noise with a learned rate for every weight, by `VI`.

    Args:
        kl_warmup: as in VI; without it too many weights drown before they have learned.
        num_epochs: as in VI.
        batch_size: as in VI.
        optimiser: as in VI.
    """

    kl_warmup: float = 0.8
    num_epochs: int | None = None
    batch_size: int | None = 128
    optimiser: AbstractOptimiser = eqx.field(default_factory=lambda: Adam(learning_rate=3e-3), converter=as_optimiser)

    def __check_init__(self):
        assert self.inner  # its own checks

    @property
    def inner(self) -> AbstractMethod:
        return VI(
            family=MeanField(),
            divergence=LogUniform(),
            kl_warmup=self.kl_warmup,
            num_epochs=self.num_epochs,
            batch_size=self.batch_size,
            optimiser=self.optimiser,
        )

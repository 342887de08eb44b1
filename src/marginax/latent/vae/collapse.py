r"""Are latents in use? Three signs of a posterior that has fallen back to its prior.

The divergence of each latent, $E_x\, \mathrm{KL}(q(z_j \mid x) \,\|\, p(z_j))$; whether its mean varies over examples,
$\mathrm{Var}_x\, E[z_j \mid x] > 0.01$ (active units: Burda et al., 2016; where the prior depends on a context,
the mean less the prior's, in units of its scale); and the information between examples and
latents, $E_x E_q [\log q(z \mid x) - \log \frac1N \sum_i q(z \mid x_i)]$ (Hoffman & Johnson, 2016), by this
estimate at most $\log N$.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import row_keys

_ACTIVE = 0.01
_NUM_DRAWS = 20


@dataclass(frozen=True)
class Collapse:
    """How far latents are in use.

    Args:
        kl: of all latents of an example, in the mean over examples, in nats.
        kl_per_latent: the same by latent, where there is a formula.
        active: which latents have means that vary over examples.
        mutual_information: between examples and latents, in nats.
        most_information: the largest that the estimate can be, log N.
    """

    kl: float
    kl_per_latent: Float[np.ndarray, " d"] | None
    active: Bool[np.ndarray, " d"]
    mutual_information: float
    most_information: float

    @property
    def num_active(self) -> int:
        """Latents that are in use."""
        return int(self.active.sum())

    def lines(self) -> tuple[list[str], list[str]]:
        """For a summary: a line, and a warning where latents are not in use."""
        size = len(self.active)
        known = "at least " if self.mutual_information > 0.95 * self.most_information else ""
        line = (
            f"latents    {self.num_active} of {size} active, divergence {self.kl:.2f} nats, information {known}"
            f"{self.mutual_information:.2f} nats"
        )
        if self.num_active > 0.1 * size and self.num_active > 0:
            return [line], []
        return [line], [
            f"{size - self.num_active} of {size} latents say nothing about examples (posterior collapse): train "
            "longer, begin with a smaller beta and go on from there with init=, use ELBO(free_bits=0.1), or a weaker "
            "decoder"
        ]


def measure_collapse(
    model: Any, params: PyTree, rows: dict[str, Array], some: dict[str, Array], key: PRNGKeyArray
) -> Collapse:
    """Signs of collapse on rows; pairs of `some` of them are compared."""
    kl, by_latent, means, information = _measure(model, params, rows, some, key)
    return Collapse(
        float(kl),
        None if by_latent is None else np.asarray(by_latent),
        np.asarray(jnp.var(means, axis=0) > _ACTIVE),
        float(information),
        float(np.log(len(some["x"]))),
    )


@eqx.filter_jit
def _measure(
    model: Any, params: PyTree, rows: PyTree, some: PyTree, key: Any
) -> tuple[Array, Array | None, Array, Array]:
    inference = model.inference(params, rows, row_keys(key, jnp.arange(rows["x"].shape[0])))
    by_latent = inference.kl()
    if by_latent is None:
        z, log_prob = inference.draw(_NUM_DRAWS)
        kl = jnp.mean(log_prob - inference.log_prior(z))
    else:
        by_latent = jnp.mean(by_latent, axis=0)
        kl = jnp.sum(by_latent)
    num = some["x"].shape[0]
    few = model.inference(params, some, row_keys(key, jnp.arange(num)))
    z, log_prob = few.draw(1)

    def mixture(z: Array) -> Array:
        pairs = few.held_log_posterior(jnp.broadcast_to(z, (1, num, z.shape[-1])))[0]
        return jax.nn.logsumexp(pairs) - jnp.log(num)

    return kl, by_latent, inference.shifts(), jnp.mean(log_prob[0] - jax.lax.map(mixture, z[0]))

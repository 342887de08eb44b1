r"""What is believed of latents before an example is seen: $p(z)$.

What a prior has to train is among the unknowns of the model. `networks` are the networks of the model with the weights
that they have at the moment. That of latents given a context is in `conditional_prior.py`.
"""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.random import normal
from marginax._keys import Key, as_key
from marginax.files import register
from marginax.latent.mixture import check_num
from marginax.latent.normals import LOG_2PI


class NormalParts(NamedTuple):
    """Means, log standard deviations given the latents before, and the Cholesky factor where it is not diagonal."""

    mean: Float[Array, "*b"]
    log_scale: Float[Array, "*b"]
    factor: Float[Array, "b d d"] | None = None

    def whiten(self, apart: Float[Array, "b d *k"]) -> Float[Array, "b d *k"]:
        """Differences of latents in units in which the law is standard normal."""
        if self.factor is not None:
            columns = apart if apart.ndim == 3 else apart[..., None]
            return jax.scipy.linalg.solve_triangular(self.factor, columns, lower=True).reshape(apart.shape)
        scale = jnp.exp(-self.log_scale)
        return apart * (scale if apart.ndim == 2 else scale[..., None])


class AbstractLatentPrior(eqx.Module):
    """A distribution of latents."""

    @abc.abstractmethod
    def log_prob(self, z: Float[Array, "k b d"], networks: Any) -> Float[Array, "k b"]:
        """Log density."""

    @abc.abstractmethod
    def draw(self, num: int, latent_size: int, networks: Any, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        """Latents of examples that have not been seen."""

    def given(self, output: Float[Array, "b m"] | None) -> "AbstractLatentPrior":
        """That of examples about whose contexts its network says this; the same where it has none."""
        return self

    def normal(self) -> "NormalParts | None":
        """Its parts where it is normal, so that divergences from it have a formula."""
        return None

    def bound_to(self, latent_size: int) -> "AbstractLatentPrior":
        """The same with the unknowns that it needs for latents of this size."""
        return self

    def bound_to_examples(self, x: np.ndarray) -> "AbstractLatentPrior":
        """The same with the unknowns that it takes from examples."""
        return self

    @property
    def num_examples(self) -> int:
        """How many examples it wants to see."""
        return 0


@register("latent/standard_normal")
class StandardNormal(AbstractLatentPrior):
    """Independent standard normal latents."""

    def log_prob(self, z: Float[Array, "k b d"], networks: Any) -> Float[Array, "k b"]:
        return jnp.sum(-0.5 * z**2 - 0.5 * LOG_2PI, axis=-1)

    def draw(self, num: int, latent_size: int, networks: Any, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        return normal(key, (num, latent_size))

    def normal(self) -> "NormalParts":
        return NormalParts(jnp.zeros(()), jnp.zeros(()))


@register("latent/mixture_of_normals")
class MixtureOfNormals(AbstractLatentPrior):
    """A mixture of normals with diagonal covariances: weights, means and scales are trained with the networks.

    Args:
        num_components: of the mixture.
        key: of the first means.

    >>> MixtureOfNormals(3).bound_to(2).means.shape
    (3, 2)
    """

    num_components: int = eqx.field(static=True)
    key: Key = eqx.field(default=0, kw_only=True)
    logits: Float[Array, " c"] | None = eqx.field(default=None, kw_only=True)
    means: Float[Array, "c d"] | None = eqx.field(default=None, kw_only=True)
    log_scales: Float[Array, "c d"] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        check_num("num_components", self.num_components)

    def bound_to(self, latent_size: int) -> "MixtureOfNormals":
        return self if self.means is not None else self._drawn(as_key(self.key), latent_size)

    def reinitialise(self, key: PRNGKeyArray) -> "MixtureOfNormals":
        """Other means."""
        assert self.means is not None
        return self._drawn(key, self.means.shape[1])

    def _drawn(self, key: PRNGKeyArray, latent_size: int) -> "MixtureOfNormals":
        means = normal(key, (self.num_components, latent_size))
        logits, log_scales = jnp.zeros(self.num_components), jnp.zeros((self.num_components, latent_size))
        return MixtureOfNormals(self.num_components, key=self.key, logits=logits, means=means, log_scales=log_scales)

    def log_prob(self, z: Float[Array, "k b d"], networks: Any) -> Float[Array, "k b"]:
        assert self.means is not None
        assert self.log_scales is not None
        assert self.logits is not None
        apart = (z[..., None, :] - self.means) * jnp.exp(-self.log_scales)
        parts = jnp.sum(-0.5 * apart**2 - self.log_scales - 0.5 * LOG_2PI, axis=-1)
        return jax.nn.logsumexp(parts + jax.nn.log_softmax(self.logits), axis=-1)

    def draw(self, num: int, latent_size: int, networks: Any, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        assert self.means is not None
        assert self.log_scales is not None
        assert self.logits is not None
        for_component, for_noise = jax.random.split(key)
        chosen = jax.random.categorical(for_component, self.logits, shape=(num,))
        return self.means[chosen] + jnp.exp(self.log_scales)[chosen] * normal(for_noise, (num, latent_size))


@register("latent/vamp_prior")
class VampPrior(AbstractLatentPrior):
    r"""The mean of what the encoder says about inputs that are trained: $p(z) = \frac1K \sum_k q(z \mid u_k)$.

    Tomczak & Welling (2018). Pseudo-inputs start at examples of the data. It depends on the encoder, which is then part
    of what generates.

    Args:
        num_pseudo_inputs: K.
    """

    num_pseudo_inputs: int = eqx.field(static=True)
    pseudo_inputs: Float[Array, "c ..."] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        check_num("num_pseudo_inputs", self.num_pseudo_inputs)

    @property
    def num_examples(self) -> int:
        return 0 if self.pseudo_inputs is not None else self.num_pseudo_inputs

    def bound_to_examples(self, x: np.ndarray) -> "VampPrior":
        if self.pseudo_inputs is not None:
            return self
        rows = np.arange(self.num_pseudo_inputs) % len(x)
        inputs = jnp.asarray(x[rows], jax.dtypes.canonicalize_dtype(float))
        return VampPrior(self.num_pseudo_inputs, pseudo_inputs=inputs)

    def reinitialise(self, key: PRNGKeyArray) -> "VampPrior":
        """The same: they start at data."""
        return self

    def log_prob(self, z: Float[Array, "k b d"], networks: Any) -> Float[Array, "k b"]:
        outputs = networks.encode(self.pseudo_inputs)
        flat = z.reshape(1, -1, z.shape[-1])

        def under(output: Array) -> Array:
            repeated = jnp.broadcast_to(output, (flat.shape[1], *output.shape))
            return networks.latent_posterior.log_prob(repeated, flat)[0]

        parts = jax.vmap(under)(outputs)
        return (jax.nn.logsumexp(parts, axis=0) - math.log(self.num_pseudo_inputs)).reshape(z.shape[:-1])

    def draw(self, num: int, latent_size: int, networks: Any, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        for_input, for_noise = jax.random.split(key)
        outputs = networks.encode(self.pseudo_inputs)
        chosen = jax.random.randint(for_input, (num,), 0, self.num_pseudo_inputs)
        noise = networks.latent_posterior.noise(for_noise, (1, num, latent_size), outputs.dtype)
        return networks.latent_posterior.draw(outputs[chosen], noise)[0][0]


@register("latent/uniform_classes")
class UniformClasses(AbstractLatentPrior):
    """One-hot vectors of K classes, all as probable.

    Args:
        num_classes: K.
    """

    num_classes: int = eqx.field(static=True)

    def __check_init__(self):
        check_num("num_classes", self.num_classes)

    def log_prob(self, z: Float[Array, "k b d"], networks: Any) -> Float[Array, "k b"]:
        num_latents = z.shape[-1] // self.num_classes
        return jnp.full(z.shape[:-1], -num_latents * math.log(self.num_classes), z.dtype)

    def draw(self, num: int, latent_size: int, networks: Any, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        classes = jax.random.randint(key, (num, latent_size // self.num_classes), 0, self.num_classes)
        return jax.nn.one_hot(classes, self.num_classes).reshape(num, latent_size)

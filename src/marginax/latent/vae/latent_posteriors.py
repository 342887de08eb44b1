r"""What an encoder says about the latents of an example: $q(z \mid x)$.

An encoder gives a vector for each example, and an object from here reads it. Draws are functions of noise that does not
depend on the encoder, $z = g(\epsilon, e(x))$, so that gradients pass through them. Latents have axes (draw, example,
latent), what the encoder gives has (example, output).
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.examples_last import call_batched
from marginax._kernels.random import derive, normal, uniform
from marginax._keys import Key, as_key
from marginax.files import register
from marginax.latent.mixture import check_num
from marginax.latent.normals import LOG_2PI
from marginax.latent.vae.latent_priors import NormalParts, UniformClasses
from marginax.nets import MLP

Latents = Float[Array, "k b d"]
LogProbs = Float[Array, "k b"]


class AbstractLatentPosterior(eqx.Module):
    """A family of distributions of latents."""

    @abc.abstractmethod
    def num_outputs(self, latent_size: int) -> int:
        """How many numbers it reads from the encoder."""

    @abc.abstractmethod
    def draw(self, output: Float[Array, "b m"], noise: Latents) -> tuple[Latents, LogProbs]:
        """Latents, and their log densities."""

    @abc.abstractmethod
    def log_prob(self, output: Float[Array, "b m"], z: Latents) -> LogProbs:
        """Log density of latents that may come from elsewhere."""

    @abc.abstractmethod
    def moments(self, output: Float[Array, "b m"]) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        """Mean and standard deviation of every latent; of a flow, those before it, sent through it."""

    def normal(self, output: Float[Array, "b m"]) -> NormalParts | None:
        """Its parts where it is normal."""
        return None

    def kl(self, output: Float[Array, "b m"], prior: Any) -> Float[Array, "b d"] | None:
        """Divergence from a prior by latent, where there is a formula."""
        return None

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
        """What draws are made from."""
        return normal(key, shape, dtype)

    def bound_to(self, latent_size: int) -> "AbstractLatentPosterior":
        """The same with the weights that it needs for latents of this size."""
        return self

    @property
    def is_continuous(self) -> bool:
        """Whether latents have a density, along which gradients can be followed."""
        return True


@register("latent/diagonal_normal")
class DiagonalNormal(AbstractLatentPosterior):
    """Independent normal latents; the encoder gives means, then log standard deviations.

    >>> DiagonalNormal().num_outputs(50)
    100
    """

    def num_outputs(self, latent_size: int) -> int:
        return 2 * latent_size

    def draw(self, output: Float[Array, "b m"], noise: Latents) -> tuple[Latents, LogProbs]:
        mean, log_scale = jnp.split(output, 2, axis=-1)
        z = mean + jnp.exp(log_scale) * noise
        return z, jnp.sum(-0.5 * noise**2 - log_scale - 0.5 * LOG_2PI, axis=-1)

    def log_prob(self, output: Float[Array, "b m"], z: Latents) -> LogProbs:
        mean, log_scale = jnp.split(output, 2, axis=-1)
        return jnp.sum(-0.5 * ((z - mean) * jnp.exp(-log_scale)) ** 2 - log_scale - 0.5 * LOG_2PI, axis=-1)

    def moments(self, output: Float[Array, "b m"]) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        mean, log_scale = jnp.split(output, 2, axis=-1)
        return mean, jnp.exp(log_scale)

    def normal(self, output: Float[Array, "b m"]) -> NormalParts:
        return NormalParts(*jnp.split(output, 2, axis=-1))

    def kl(self, output: Float[Array, "b m"], prior: Any) -> Float[Array, "b d"] | None:
        before = prior.normal()
        return None if before is None else divergence_of_normals(self.normal(output), before)


@register("latent/full_normal")
class FullNormal(AbstractLatentPosterior):
    """Normal latents with a covariance of their own for every example, by its Cholesky factor.

    The encoder gives means, log standard deviations given the latents before, and the factor below its diagonal.

    >>> FullNormal().num_outputs(3)
    9
    """

    def num_outputs(self, latent_size: int) -> int:
        return 2 * latent_size + latent_size * (latent_size - 1) // 2

    def draw(self, output: Float[Array, "b m"], noise: Latents) -> tuple[Latents, LogProbs]:
        mean, log_scale, factor = self._parts(output, noise.shape[-1])
        z = mean + jnp.einsum("bij,kbj->kbi", factor, noise)
        return z, jnp.sum(-0.5 * noise**2 - log_scale - 0.5 * LOG_2PI, axis=-1)

    def log_prob(self, output: Float[Array, "b m"], z: Latents) -> LogProbs:
        mean, log_scale, factor = self._parts(output, z.shape[-1])
        apart = jnp.moveaxis(z - mean, 0, -1)
        noise = jnp.moveaxis(jax.scipy.linalg.solve_triangular(factor, apart, lower=True), -1, 0)
        return jnp.sum(-0.5 * noise**2 - log_scale - 0.5 * LOG_2PI, axis=-1)

    def moments(self, output: Float[Array, "b m"]) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        size = _size_of(output.shape[-1])
        mean, _, factor = self._parts(output, size)
        return mean, jnp.sqrt(jnp.sum(factor**2, axis=-1))

    def kl(self, output: Float[Array, "b m"], prior: Any) -> Float[Array, "b d"] | None:
        """By latent in the order of the factor: each given those before it, so that they add up to the whole."""
        before = prior.normal()
        return None if before is None else divergence_of_normals(self.normal(output), before)

    def normal(self, output: Float[Array, "b m"]) -> NormalParts:
        return NormalParts(*self._parts(output, _size_of(output.shape[-1])))

    def _parts(self, output: Array, size: int) -> tuple[Array, Array, Array]:
        mean, log_scale, below = output[:, :size], output[:, size : 2 * size], output[:, 2 * size :]
        rows, columns = jnp.tril_indices(size, -1)
        factor = jnp.zeros((output.shape[0], size, size), output.dtype).at[:, rows, columns].set(below)
        diagonal = jnp.arange(size)
        return mean, log_scale, factor.at[:, diagonal, diagonal].set(jnp.exp(log_scale))


def divergence_of_normals(belief: NormalParts, prior: NormalParts) -> Float[Array, "b d"]:
    """By latent, each given those before it, so that they add up to the whole.

    >>> belief, prior = NormalParts(jnp.ones((1, 2)), jnp.zeros((1, 2))), NormalParts(jnp.zeros(()), jnp.zeros(()))
    >>> divergence_of_normals(belief, prior).tolist()
    [[0.5, 0.5]]
    """
    ratio = belief.log_scale - prior.log_scale
    if belief.factor is None and prior.factor is None:
        spread = jnp.exp(2 * ratio)
    else:
        factor = jax.vmap(jnp.diag)(jnp.exp(belief.log_scale)) if belief.factor is None else belief.factor
        spread = jnp.sum(prior.whiten(factor) ** 2, axis=-1)
    return 0.5 * (prior.whiten(belief.mean - prior.mean) ** 2 + spread - 1.0) - ratio


def _size_of(num_outputs: int) -> int:
    """The number of latents d with d (d + 3) / 2 outputs."""
    return round((math.sqrt(9 + 8 * num_outputs) - 3) / 2)


@register("latent/coupling_flow")
class CouplingFlow(AbstractLatentPosterior):
    r"""A normalising flow of affine couplings (Dinh, Sohl-Dickstein & Bengio, 2017), from a diagonal normal.

    In every layer one half of the latents shifts and scales the other, $z_b \leftarrow z_b e^{s(z_a, h)} + t(z_a, h)$,
    then they change places. $h$ are further outputs of the encoder. Flows of affine couplings can be turned back, so
    that the density of any z is known: IAF (Kingma et al., 2016) is as fast to draw from, but not to ask.

    Args:
        num_layers: of couplings.
        hidden: units of the network of each.
        context_size: outputs of the encoder that they see.
        key: of their first weights, which leave latents as they are.
    """

    num_layers: int = eqx.field(default=4, static=True)
    hidden: int = eqx.field(default=32, static=True)
    context_size: int = eqx.field(default=0, static=True)
    key: Key = eqx.field(default=0, kw_only=True)
    networks: tuple[MLP, ...] = eqx.field(default=(), kw_only=True)

    def __check_init__(self):
        check_num("num_layers", self.num_layers)
        check_num("hidden", self.hidden)

    def num_outputs(self, latent_size: int) -> int:
        return 2 * latent_size + self.context_size

    def bound_to(self, latent_size: int) -> "CouplingFlow":
        if self.networks:
            return self
        if latent_size < 2:
            raise ValueError(f"latent_size must be >= 2 for CouplingFlow(), which couples halves, got {latent_size}")
        return self.reinitialise(as_key(self.key), latent_size)

    def reinitialise(self, key: PRNGKeyArray, latent_size: int | None = None) -> "CouplingFlow":
        """Fresh weights, whose last layers are zero."""
        size = self._size if latent_size is None else latent_size
        networks = []
        for i in range(self.num_layers):
            seen, moved = size // 2, size - size // 2
            net = MLP(seen + self.context_size, (self.hidden,), 2 * moved, activation=jnp.tanh, key=derive(key, i))
            last = net.layers[-1]
            networks.append(eqx.tree_at(lambda n: n.layers[-1].weight, net, jnp.zeros_like(last.weight)))
        return CouplingFlow(self.num_layers, self.hidden, self.context_size, key=self.key, networks=tuple(networks))

    @property
    def _size(self) -> int:
        """The number of latents."""
        moved = int(self.networks[0].layers[-1].out_features) // 2
        return moved + int(self.networks[0].layers[0].in_features) - self.context_size

    def draw(self, output: Float[Array, "b m"], noise: Latents) -> tuple[Latents, LogProbs]:
        size = noise.shape[-1]
        z, log_prob = DiagonalNormal().draw(output[:, : 2 * size], noise)
        for net in self.networks:
            seen, moved = z[..., : size // 2], z[..., size // 2 :]
            shift, log_scale = self._coupling(net, seen, output[:, 2 * size :])
            z = jnp.concatenate([moved * jnp.exp(log_scale) + shift, seen], axis=-1)
            log_prob = log_prob - jnp.sum(log_scale, axis=-1)
        return z, log_prob

    def log_prob(self, output: Float[Array, "b m"], z: Latents) -> LogProbs:
        size, total = z.shape[-1], jnp.zeros(z.shape[:-1], z.dtype)
        for net in reversed(self.networks):
            moved, seen = z[..., : size - size // 2], z[..., size - size // 2 :]
            shift, log_scale = self._coupling(net, seen, output[:, 2 * size :])
            z = jnp.concatenate([seen, (moved - shift) * jnp.exp(-log_scale)], axis=-1)
            total = total - jnp.sum(log_scale, axis=-1)
        return total + DiagonalNormal().log_prob(output[:, : 2 * size], z)

    def moments(self, output: Float[Array, "b m"]) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        size = (output.shape[-1] - self.context_size) // 2
        _, scale = DiagonalNormal().moments(output[:, : 2 * size])
        mean, _ = self.draw(output, jnp.zeros((1, output.shape[0], size), output.dtype))
        return mean[0], scale

    def _coupling(self, net: MLP, seen: Array, context: Array) -> tuple[Array, Array]:
        context = jnp.broadcast_to(context, (*seen.shape[:-1], context.shape[-1]))
        rows = jnp.concatenate([seen, context], axis=-1)
        found = call_batched(net, rows.reshape(-1, rows.shape[-1])).reshape(*seen.shape[:-1], -1)
        shift, raw = jnp.split(found, 2, axis=-1)
        return shift, 2.0 * jnp.tanh(0.5 * raw)  # a layer scales by at most e^2, so that no draw runs away


@register("latent/straight_through")
class StraightThrough(AbstractLatentPosterior):
    r"""Discrete latents: one of K classes each, as one-hot vectors.

    By the straight-through Gumbel-softmax estimator (Jang, Gu & Poole, 2017). Draws are exact, $z =
    \text{one-hot}(\arg\max_k \log \pi_k + g_k)$ with Gumbel noise, and so are the values of bounds. Gradients are those
    of the softmax at the temperature and are biased: the more, the higher the temperature; the lower it is, the larger
    is their variance. Goes with `latent_prior=UniformClasses(num_classes)`; `latent_size` counts the entries of all
    one-hot vectors.

    Args:
        num_classes: K.
        temperature: of the softmax.
    """

    num_classes: int = eqx.field(static=True)
    temperature: float | Array = 0.67

    def __check_init__(self):
        check_num("num_classes", self.num_classes)
        if isinstance(self.temperature, float | int) and not self.temperature > 0:
            raise ValueError(f"temperature must be > 0, got {self.temperature}")

    @property
    def is_continuous(self) -> bool:
        return False

    def num_outputs(self, latent_size: int) -> int:
        if latent_size % self.num_classes:
            raise ValueError(f"latent_size must be a multiple of num_classes={self.num_classes}, got {latent_size}")
        return latent_size

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
        index = jnp.arange(math.prod(shape)).reshape(shape)
        return -jnp.log(-jnp.log(uniform(key, index))).astype(dtype)

    def draw(self, output: Float[Array, "b m"], noise: Latents) -> tuple[Latents, LogProbs]:
        scores = self._split(jnp.broadcast_to(output, noise.shape)) + self._split(noise)
        hard = jax.nn.one_hot(jnp.argmax(scores, axis=-1), self.num_classes, dtype=output.dtype)
        soft = jax.nn.softmax(scores / self.temperature, axis=-1)
        z = (hard + (soft - jax.lax.stop_gradient(soft))).reshape(noise.shape)
        return z, self.log_prob(output, z)

    def log_prob(self, output: Float[Array, "b m"], z: Latents) -> LogProbs:
        return jnp.sum(self._split(z) * jax.nn.log_softmax(self._split(output), axis=-1), axis=(-2, -1))

    def moments(self, output: Float[Array, "b m"]) -> tuple[Float[Array, "b d"], Float[Array, "b d"]]:
        """Probabilities, and standard deviations of the entries."""
        probs = jax.nn.softmax(self._split(output), axis=-1).reshape(output.shape)
        return probs, jnp.sqrt(probs * (1.0 - probs))

    def kl(self, output: Float[Array, "b m"], prior: Any) -> Float[Array, "b d"] | None:
        """By latent, of which each has K entries: the terms of single classes may be negative."""
        if not isinstance(prior, UniformClasses):
            return None
        logs = jax.nn.log_softmax(self._split(output), axis=-1)
        return jnp.sum(jnp.exp(logs) * (logs + math.log(self.num_classes)), axis=-1)

    def _split(self, values: Array) -> Array:
        return values.reshape(*values.shape[:-1], -1, self.num_classes)

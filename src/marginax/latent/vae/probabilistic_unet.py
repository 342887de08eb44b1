r"""The probabilistic U-Net (Kohl et al., 2018): a conditional autoencoder of masks, given an image.

$z \sim p(z \mid \text{image}), \quad \text{mask} \mid z, \text{image} \sim p(\text{mask} \mid d(z, u(\text{image})))$

It is a `VAE` whose examples are masks and whose contexts are images: a `ConditionalPrior` sees the image, the encoder
image and mask, and the decoder is a `LatentUNet`. So bounds, ensembles, importance sampling and completion are those of
every `VAE`. Encoders are convolutions with stride 2 and a linear layer, where the paper has halves of a U-Net and means
over pixels. Masks of several graders are examples of one image, which counts once: the bound of an image is the mean
over its graders.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from marginax._kernels.random import derive, row_keys, uniform
from marginax._keys import Key, as_key
from marginax.data import Rows
from marginax.data.arrays import as_numeric
from marginax.files import register
from marginax.latent.mixture import check_num
from marginax.latent.vae.bounds import AbstractBound
from marginax.latent.vae.conditional_prior import ConditionalPrior
from marginax.latent.vae.generative import AbstractGenerative
from marginax.latent.vae.inference import Inference, Keys, draw_noise
from marginax.latent.vae.latent_posteriors import AbstractLatentPosterior, DiagonalNormal
from marginax.latent.vae.latent_unet import LatentUNet
from marginax.latent.vae.networks import Autoencoder, Extras
from marginax.latent.vae.queries import VAEQueries
from marginax.latent.vae.vae import VAE
from marginax.model.abstract import Params
from marginax.model.likelihoods import AbstractLikelihood
from marginax.model.priors import AbstractPrior
from marginax.model.subset import AbstractSubset
from marginax.nets import ConvEncoder

_GRADERS = 7  # a stream of random numbers
_MAX_BYTES = 2**27


@dataclass(frozen=True)
class ProbabilisticUNetQueries(VAEQueries):
    """Questions to a posterior over probabilistic U-Nets.

    Data are as for fitting; masks of several graders count as examples of their own, those of an image side by side.
    """

    def sample_masks(
        self, images: Any, num: int = 16, *, key: Key, noise: bool = False
    ) -> Int[np.ndarray, "num n height width"]:
        """Masks that a grader may draw, (sample, image, height, width): of latents given the image, networks in turn.

        Args:
            images: that nobody has looked at.
            num: of masks of each image.
            key: seed; masks of an image depend on its row number, and not on the images beside it.
            noise: whether to draw pixels given latents, and not to take the more probable value of each.
        """
        check_num("num", num)
        model, draws = self._model, self._draws
        rows = model.read_images(images)
        count = jax.tree.leaves(draws)[0].shape[0]
        networks = min(count, num)
        chosen, each = np.linspace(0, count - 1, networks).astype(int), -(-num // networks)
        some = jax.tree.map(lambda leaf: leaf[chosen], draws)
        block = int(np.clip(_MAX_BYTES // model.bytes_of_decoding, 1, len(rows)))
        found = []
        for start in range(0, len(rows), block):
            index = np.arange(start, start + block)
            taken = {"context": jnp.asarray(rows[np.minimum(index, len(rows) - 1)])}  # the last block is filled up
            keys = row_keys(as_key(key), jnp.asarray(index))
            masks = np.asarray(_sample_masks(model, some, taken, each, noise, keys))
            found.append(masks.reshape(networks * each, *masks.shape[2:])[:num, : len(rows) - start])
        return np.concatenate(found, axis=1)

    def _rows(self, data: Any) -> dict[str, Array]:
        rows = self._model.read(data).tree
        self._model.check_rows(rows)
        return self._model.as_rows(self._model.by_grader(rows))


@register("latent/probabilistic_unet")
class ProbabilisticUNet(AbstractGenerative):
    """Masks of an image as different graders would draw them, by latents whose law is read off the image.

    Data are a pair (images, masks), or a dict of "context" (images), "x" (masks) and, where only some pixels of masks
    are known, "mask", True at those. Masks have axes (image, height, width), or (image, grader, height, width) where
    several graders have drawn. Posteriors have `sample_masks`, and all that those of a `VAE` have: `complete(masks,
    seen, context=images, key=0)` gives masks that agree with the pixels that are seen.

    Args:
        in_shape: (channels, height, width) of an image, as for `UNet`.
        channels: of each level, from the largest images to the smallest, of the U-Net and of both encoders.
        latent_size: number of latents.
        num_convolutions: of 1x1 that see features and latents.
        num_graders: masks of each image that a step looks at, drawn anew each time; None for all.
        bound: of the log probability of a mask, as for `VAE`.
        latent_posterior: as for `VAE`.
        likelihood: of a pixel, as for `VAE`.
        activation: jax.nn.relu, gelu, tanh or another elementwise function.
        groups: of channels that are normalised together, as for `UNet`.
        first_logit: of all pixels, where training begins; -4 says that there is probably nothing.
        prior: of all weights, as in `mx.Model`.
        subset: which weights are random, as in `mx.Model`.
        key: seed or JAX key.

    >>> import marginax as mx
    >>> model = mx.latent.ProbabilisticUNet((1, 8, 8), channels=(4,), latent_size=2, groups=None, key=0)
    >>> images, masks = np.ones((10, 1, 8, 8)), np.ones((10, 4, 8, 8), int)
    >>> posterior = mx.fit(model, (images, masks), mx.infer.MAP(num_epochs=1), key=0)
    >>> posterior.sample_masks(images, 16, key=1).shape
    (16, 10, 8, 8)
    """

    vae: VAE
    num_graders: int | None = eqx.field(static=True)
    in_shape: tuple[int, int, int] = eqx.field(static=True)

    queries: ClassVar[type] = ProbabilisticUNetQueries

    def __init__(
        self,
        in_shape: tuple[int, int, int],
        channels: Sequence[int] = (32, 64, 128, 192),
        latent_size: int = 6,
        *,
        num_convolutions: int = 3,
        num_graders: int | None = None,
        bound: AbstractBound | None = None,
        latent_posterior: AbstractLatentPosterior | None = None,
        likelihood: AbstractLikelihood | None = None,
        activation: Callable[[Array], Array] = jax.nn.relu,
        groups: int | None = 8,
        first_logit: float = 0.0,
        prior: AbstractPrior | None = None,
        subset: AbstractSubset | None = None,
        key: Key,
    ):
        check_num("latent_size", latent_size)
        if num_graders is not None:
            check_num("num_graders", num_graders)
        latent_posterior = DiagonalNormal() if latent_posterior is None else latent_posterior
        of_prior, of_encoder, of_decoder = jax.random.split(as_key(key), 3)
        decoder = LatentUNet(
            in_shape,
            channels,
            latent_size,
            num_convolutions=num_convolutions,
            activation=activation,
            groups=groups,
            first_output=first_logit,
            key=of_decoder,
        )
        maps, height, width = self.in_shape = decoder.unet.in_shape
        size = latent_posterior.num_outputs(latent_size)
        network = ConvEncoder(self.in_shape, channels, 2 * latent_size, activation=activation, key=of_prior)
        # mask and image, one behind the other as numbers, are an image with one more channel
        encoder = ConvEncoder((1 + maps, height, width), channels, size, activation=activation, key=of_encoder)
        self.vae = VAE(
            encoder,
            decoder,
            latent_size,
            likelihood=likelihood,
            bound=bound,
            latent_prior=ConditionalPrior(network),
            latent_posterior=latent_posterior,
            prior=prior,
            subset=subset,
            x_shape=(height, width),
        )
        self.num_graders = num_graders

    @property
    def likelihood(self) -> AbstractLikelihood:
        return self.vae.likelihood

    @property
    def bound(self) -> AbstractBound:
        return self.vae.bound

    @property
    def prior(self) -> AbstractPrior:
        return self.vae.prior

    @property
    def subset(self) -> AbstractSubset:
        return self.vae.subset

    @property
    def x_shape(self) -> tuple[int, ...] | None:
        return self.vae.x_shape

    @property
    def networks(self) -> Autoencoder:
        return self.vae.networks

    @property
    def has_continuous_latents(self) -> bool:
        return self.vae.has_continuous_latents

    # ---- the density

    def estimate(self, params: Params, rows: Extras, keys: Keys) -> Float[Array, " b"]:
        """The bound; of several graders, the mean over them, or over those that are drawn where there is one key."""
        if not self.has_graders(rows):
            return self.vae.estimate(params, rows, keys)
        drawn = {name: rows[name] for name in ("x", "mask") if name in rows}
        size, num = rows["x"].shape[:2]
        if keys.ndim == 0 and self.num_graders is not None and self.num_graders < num:
            scores = uniform(derive(keys, 0, stream=_GRADERS), jnp.arange(size * num)).reshape(size, num)
            chosen, num = jnp.argsort(scores, axis=1)[:, : self.num_graders, None, None], self.num_graders
            drawn = {name: jnp.take_along_axis(value, chosen, axis=1) for name, value in drawn.items()}
        if keys.ndim:
            keys = jax.vmap(lambda key: jax.vmap(lambda i: derive(key, i))(jnp.arange(num)))(keys).reshape(-1)
        shared = self.vae.networks_of(params).condition({"context": rows["context"]})  # once for all graders
        flat = self.by_grader(drawn | shared)
        return jnp.mean(self.vae.estimate(params, flat, keys).reshape(size, num), axis=1)

    def inference(self, params: Params, rows: Extras, keys: Keys) -> Inference:
        return self.vae.inference(params, rows, keys)

    def decode(self, params: Params, z: Float[Array, "n d"], rows: Extras) -> Float[Array, "n k"]:
        return self.vae.decode(params, z, rows)

    def draw_latents(self, params: Params, num: int, rows: Extras, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        return self.vae.draw_latents(params, num, rows, key=key)

    def sample_masks(
        self, params: Params, rows: Extras, num: int, noise: bool, keys: Keys
    ) -> Int[Array, "num n height width"]:
        """Masks of images, of which no mask is seen."""
        networks: Any = eqx.nn.inference_mode(self.vae.networks_of(params))
        extras = networks.condition({"context": rows["context"]})
        prior = networks.prior_given(extras)
        size, dtype = extras["context"].shape[0], extras["context"].dtype
        z = prior.draw_each(draw_noise(prior.family, keys, num, size, self.vae.latent_size, dtype))

        def mask_at(pair: tuple[Array, Array]) -> Array:
            z, i = pair
            output = networks.decode(z, extras)
            if not noise:
                return (self.mean_of(params, output) > 0.5).astype(jnp.int32)
            each = jax.vmap(lambda key: derive(key, i, stream=_GRADERS))(keys)
            drawn = jax.vmap(lambda output, key: self.noisy(params, output[None], key=key)[0])(output, each)
            return drawn.astype(jnp.int32)

        return jax.lax.map(mask_at, (z, jnp.arange(num)))

    @property
    def bytes_of_decoding(self) -> int:
        """Of the maps of one image while a mask is made, about."""
        return 64 * int(np.prod(self.in_shape[1:])) * self.vae.decoder.latents.weight.shape[0]  # pyright: ignore

    # ---- data

    def read(self, data: Any) -> Rows:
        """A pair of images and masks, or a dict."""
        if isinstance(data, tuple) and len(data) == 2:
            data = {"x": data[1], "context": data[0]}
        elif not isinstance(data, Rows | dict):
            raise ValueError(f"data must be a pair (images, masks) or a dict of them, got {type(data).__name__}")
        return AbstractGenerative.read(self, data)

    def read_images(self, images: Any) -> np.ndarray:
        """Images alone, as the networks take them."""
        values = np.asarray(as_numeric(images, name="images"))
        if values.shape[1:] != self.in_shape and (1, *values.shape[1:]) != self.in_shape:
            raise ValueError(f"images must have shape (n, {', '.join(map(str, self.in_shape))}), got {values.shape}")
        return values.astype(jax.dtypes.canonicalize_dtype(float)).reshape(-1, *self.in_shape)

    def has_graders(self, rows: Any) -> bool:
        """Whether masks have an axis of graders."""
        return rows["x"].ndim == 2 + len(self.in_shape[1:])

    def by_grader(self, rows: Any) -> Any:
        """Every mask as an example, beside what is of its image."""
        if not self.has_graders(rows):
            return rows
        num = rows["x"].shape[1]
        return {
            name: value.reshape(-1, *value.shape[2:]) if name in ("x", "mask") else value.repeat(num, axis=0)
            for name, value in rows.items()
        }

    def output_sizes(self, rows: Extras) -> tuple[int, int]:
        return self.vae.output_sizes(self.by_grader(rows))

    def check_rows(self, rows: Any) -> None:
        if not isinstance(rows, dict) or "context" not in rows:
            raise ValueError('data must have images: a pair (images, masks), or {"context": images, "x": masks}')
        self.read_images(rows["context"])
        arrays = {name: np.asarray(value) for name, value in rows.items()}
        AbstractGenerative.check_rows(self, self.by_grader(arrays))

    def probe_rows(self, source: Any) -> dict[str, np.ndarray]:
        return self.by_grader(AbstractGenerative.probe_rows(self, source))

    def adapted_to_rows(self, rows: dict[str, np.ndarray]) -> "ProbabilisticUNet":
        return self

    def with_traced_numbers(self, trace: Any) -> "ProbabilisticUNet":
        return eqx.tree_at(lambda m: m.vae, self, self.vae.with_traced_numbers(trace))


@eqx.filter_jit
def _sample_masks(
    model: ProbabilisticUNet, draws: PyTree, rows: Extras, num: int, noise: bool, keys: Array
) -> Int[Array, "networks num n height width"]:
    def of_network(part: tuple[PyTree, Array]) -> Array:
        params, i = part
        return model.sample_masks(params, rows, num, noise, jax.vmap(lambda key: derive(key, i))(keys))

    return jax.lax.map(of_network, (draws, jnp.arange(jax.tree.leaves(draws)[0].shape[0])))

r"""The neural statistician (Edwards & Storkey, 2017): a set of examples has a context, each of its examples a latent.

$c \sim N(0, 1), \quad z_i \mid c \sim N(\mu(c), \sigma(c)), \quad x_i \mid z_i, c \sim p(x \mid d(z_i, c))$

The belief about c is a function of the mean of a network of the examples, so that their order does not matter; that
about $z_i$ is a function of c and $x_i$. The log likelihood of a set is a bound:

$E_{q(c \mid S)} \sum_i \left[ E_q \log p(x_i \mid z_i, c) - KL(q(z_i \mid c, x_i)\,\|\,p(z_i \mid c)) \right]
- KL(q(c \mid S)\,\|\,p(c))$

We differ: there is one layer of latents z, where they have up to three, and terms are not reweighted while training
begins; `ELBO(beta=...)` and `init=` do that.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import normal
from marginax.data import Rows
from marginax.data.arrays import as_numeric
from marginax.files import register
from marginax.latent.mixture import check_num
from marginax.latent.neural_statistician.inference import SetInference
from marginax.latent.neural_statistician.networks import StatisticianNetworks, draw_normal
from marginax.latent.neural_statistician.queries import NeuralStatisticianQueries
from marginax.latent.vae.bounds import ELBO, AbstractBound
from marginax.latent.vae.entries import check_entries
from marginax.latent.vae.generative import AbstractGenerative, check_parts, size_of_output
from marginax.latent.vae.inference import Keys
from marginax.latent.vae.networks import Extras, call_network
from marginax.model.abstract import Params
from marginax.model.likelihoods import AbstractLikelihood, Bernoulli
from marginax.model.priors import AbstractPrior, default_prior
from marginax.model.subset import AbstractSubset, All
from marginax.nets import as_network


@register("latent/neural_statistician")
class NeuralStatistician(AbstractGenerative):
    """A model of sets, such as a few drawings of one character: given some, it makes more.

    Data are an array (set, example, ...), a dict with "x" and "mask" (set, example), False where there is no example,
    or a list of sets (example, ...) of different sizes. Posteriors have `encode`, `generate_like`, `generate`,
    `log_likelihood`, `log_predictive`, `classify` and `context_divergences`. Networks are called without dropout.

    Args:
        encoder: a network from an example to any number of features.
        statistic: from the mean of the features over a set, and behind it the log of their number, to mean and log
            scale of the context.
        latent_encoder: from features and context, side by side, to mean and log scale of the latents of an example.
        latent_prior: from the context to mean and log scale of the latents of its examples.
        decoder: from latents and context, side by side, to what `likelihood` reads for all entries.
        context_size: numbers of a context.
        latent_size: latents of an example.
        likelihood: of the entries, as for `VAE`.
        bound: as for `VAE`, without free bits.
        prior: of all weights, as in `mx.Model`.
        subset: which weights are random.
        x_shape: of an example; known from the data.

    >>> import marginax as mx
    >>> rng = np.random.default_rng(0)
    >>> sets = (rng.random((60, 5, 4)) < rng.random((60, 1, 4))).astype(float)
    >>> networks = [mx.nets.MLP(n_in, (8,), n_out, key=i) for i, (n_in, n_out) in enumerate([(4, 6), (7, 4)])]
    >>> networks += [mx.nets.MLP(8, (8,), 2, key=2), mx.nets.MLP(2, (8,), 2, key=3), mx.nets.MLP(3, (8,), 4, key=4)]
    >>> model = mx.latent.NeuralStatistician(*networks, context_size=2, latent_size=1)
    >>> posterior = mx.fit(model, sets, mx.infer.MAP(num_epochs=1), key=0)
    >>> posterior.generate_like(sets[0], 10, key=1).shape, posterior.encode(sets).mean.shape
    ((10, 4), (60, 2))
    """

    encoder: eqx.Module
    statistic: eqx.Module
    latent_encoder: eqx.Module
    latent_prior: eqx.Module
    decoder: eqx.Module
    context_size: int = eqx.field(static=True)
    latent_size: int = eqx.field(static=True)
    likelihood: AbstractLikelihood
    bound: AbstractBound
    prior: AbstractPrior
    subset: AbstractSubset
    x_shape: tuple[int, ...] | None = eqx.field(static=True)

    queries: ClassVar[type] = NeuralStatisticianQueries
    names: ClassVar[tuple[str, ...]] = ("x", "mask")
    has_continuous_latents: ClassVar[bool] = True

    def __init__(
        self,
        encoder: Any,
        statistic: Any,
        latent_encoder: Any,
        latent_prior: Any,
        decoder: Any,
        *,
        context_size: int,
        latent_size: int,
        likelihood: AbstractLikelihood | None = None,
        bound: AbstractBound | None = None,
        prior: AbstractPrior | None = None,
        subset: AbstractSubset | None = None,
        x_shape: tuple[int, ...] | None = None,
    ):
        """Check that the pieces are what they should be; the data are checked when they come."""
        check_num("context_size", context_size)
        check_num("latent_size", latent_size)
        self.encoder, self.statistic = as_network(encoder), as_network(statistic)
        self.latent_encoder, self.latent_prior = as_network(latent_encoder), as_network(latent_prior)
        self.decoder = as_network(decoder)
        self.context_size, self.latent_size, self.x_shape = context_size, latent_size, x_shape
        self.likelihood = Bernoulli() if likelihood is None else likelihood
        self.bound = ELBO() if bound is None else bound
        self.prior = default_prior() if prior is None else prior
        self.subset = All() if subset is None else subset
        check_parts(likelihood=(self.likelihood, AbstractLikelihood), bound=(self.bound, AbstractBound))
        if self.bound.needs_kl:
            raise ValueError("bound must be without free_bits here: the latents of a set are not the same in each set")
        _ = self.core  # checks prior and subset

    @property
    def sizes(self) -> tuple[int, int]:
        """Of contexts and of latents."""
        return self.context_size, self.latent_size

    @property
    def networks(self) -> StatisticianNetworks:
        return StatisticianNetworks(self.encoder, self.statistic, self.latent_encoder, self.latent_prior, self.decoder)

    def networks_of(self, params: Params) -> Any:
        """All networks with these weights."""
        return eqx.nn.inference_mode(self.core.network_of(params))

    def inference(self, params: Params, rows: Extras, keys: Keys) -> SetInference:
        networks, unknowns = self.networks_of(params), params.likelihood
        more = {"keys": keys, "sizes": self.sizes}
        return SetInference(networks, self.likelihood, unknowns, rows["x"], rows["mask"], **more)

    def decode(self, params: Params, z: Float[Array, "n d"], rows: Extras) -> Float[Array, "n k"]:
        """What the decoder says, given contexts and latents side by side."""
        return self.networks_of(params).decode(z[:, : self.context_size], z[:, self.context_size :])

    def draw_latents(self, params: Params, num: int, rows: Extras, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        """Contexts of new sets, and latents of one example of each."""
        noise = normal(key, (num, self.context_size + self.latent_size))
        return self.with_latents(params, noise[:, : self.context_size], noise[:, self.context_size :])

    def with_latents(
        self, params: Params, c: Float[Array, "n d"], noise: Float[Array, "n e"]
    ) -> Float[Array, "n d_plus_e"]:
        """Contexts, and behind them latents of an example of each that are made from noise."""
        return jnp.concatenate([c, draw_normal(self.networks_of(params).expect(c), noise)], axis=-1)

    # ---- data

    def read(self, data: Any) -> Rows:
        """Sets as one array, with a mask."""
        if isinstance(data, Rows):
            return data
        given = _padded(data) if isinstance(data, list) else dict(data) if isinstance(data, dict) else {"x": data}
        if "x" not in given or not set(given) <= set(self.names):
            raise ValueError(f'data must have "x", and may have "mask", got {sorted(given)}')
        x = np.asarray(given["x"])
        if x.ndim < 3:
            raise ValueError(f"x must have shape (sets, examples, entries, ...), got {x.shape}")
        mask = np.asarray(given.get("mask", np.ones(x.shape[:2])), bool)
        if mask.shape != x.shape[:2]:
            raise ValueError(f"mask must have shape {x.shape[:2]} (set, example), got {mask.shape}")
        there = mask.reshape(*mask.shape, *[1] * (x.ndim - 2))
        return Rows({"x": as_numeric(np.where(there, x, 0), name="x"), "mask": mask})

    def as_rows(self, tree: PyTree) -> Extras:
        rows = dict(tree) if isinstance(tree, dict) else {"x": tree}
        rows.setdefault("mask", jnp.ones(rows["x"].shape[:2]))
        real = jax.dtypes.canonicalize_dtype(float)
        return {name: jnp.asarray(value, real) for name, value in rows.items()}

    def check_rows(self, rows: Any) -> None:
        """Raise if these cannot be sets of the model."""
        rows = rows if isinstance(rows, dict) else {"x": rows}
        x = np.asarray(rows["x"])
        if self.x_shape is not None and x.shape[2:] != self.x_shape:
            wanted = ", ".join(["sets", "examples", *map(str, self.x_shape)])
            raise ValueError(f"x must have shape ({wanted}) as in the training data, got {x.shape}")
        if "mask" in rows and (empty := ~np.asarray(rows["mask"], bool).any(1)).any():
            raise ValueError(f"mask must leave an example in every set, but set {int(empty.argmax())} has none")
        _, size = self.output_sizes(self.as_rows({"x": jnp.asarray(x[:1]).repeat(2, axis=0)}))
        check_entries(self.likelihood, size, x.reshape(len(x) * x.shape[1], -1))

    def output_sizes(self, rows: Extras) -> tuple[int, int]:
        """Of encoder and decoder, and a check of those between them."""
        x, (context, latent) = rows["x"][:, 0], self.sizes
        size = size_of_output("encoder", _shape(self.encoder, x), f"an example of shape {x.shape[1:]}")
        between = (
            ("statistic", size + 1, f"{size} pooled features and the log of their number", 2 * context),
            ("latent_encoder", size + context, f"{size} features and a context of {context}", 2 * latent),
            ("latent_prior", context, f"a context of {context}", 2 * latent),
        )
        for name, inputs, words, wanted in between:
            reader = f"mean and log scale of {wanted // 2} numbers"
            size_of_output(name, _shape(getattr(self, name), jnp.zeros((2, inputs))), words, wanted, reader)
        words = f"{latent} latents and a context of {context}"
        return size, size_of_output("decoder", _shape(self.decoder, jnp.zeros((2, latent + context))), words)

    def adapted_to_rows(self, rows: dict[str, np.ndarray]) -> "NeuralStatistician":
        return replace(self, x_shape=np.asarray(rows["x"]).shape[2:])


def _shape(network: Any, inputs: Array) -> Callable[[], Array]:
    return lambda: call_network(network, inputs, {}, key=None)


def _padded(sets: list[Any]) -> dict[str, np.ndarray]:
    """Sets of different sizes in one array, with a mask."""
    arrays = [np.asarray(each) for each in sets]
    if not arrays or any(each.ndim < 2 or each.shape[1:] != arrays[0].shape[1:] for each in arrays):
        shapes = [each.shape for each in arrays][:3]
        raise ValueError(f"data must be a list of sets (examples, entries, ...) of one shape of examples, got {shapes}")
    most = max(map(len, arrays))
    x = np.zeros((len(arrays), most, *arrays[0].shape[1:]), np.result_type(*arrays))
    mask = np.zeros(x.shape[:2], bool)
    for i, each in enumerate(arrays):
        x[i, : len(each)], mask[i, : len(each)] = each, True
    return {"x": x, "mask": mask}

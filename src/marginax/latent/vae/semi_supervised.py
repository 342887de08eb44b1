r"""The semi-supervised autoencoder M2 (Kingma, Rezende, Mohamed & Welling, 2014): a label is a latent that may be seen.

$y \sim \text{uniform}, \quad z \sim p(z), \quad x \mid y, z \sim p(x \mid d_\theta(z, y))$

With $L(x, y)$ the bound of $\log p(x \mid y)$ plus $\log p(y)$, a row with a label contributes $L(x, y)$, and one
without
$\sum_y q(y \mid x) [L(x, y) - \log q(y \mid x)]$, the label summed out. Labelled rows train the classifier $q(y \mid
x)$ by a term of their own, $w \log q(y \mid x)$, since the bound of a row with a label does not depend on it.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from marginax._keys import Key
from marginax.data import MISSING, Rows
from marginax.files import register
from marginax.latent.mixture import check_num
from marginax.latent.vae.bounds import AbstractBound
from marginax.latent.vae.generative import AbstractGenerative, size_of_output
from marginax.latent.vae.inference import Inference, Keys
from marginax.latent.vae.networks import Autoencoder, Extras, call_network
from marginax.latent.vae.queries import VAEQueries
from marginax.latent.vae.vae import VAE
from marginax.model.abstract import Params
from marginax.model.likelihoods import AbstractLikelihood
from marginax.model.priors import AbstractPrior
from marginax.model.subset import AbstractSubset
from marginax.nets import as_network, reinitialise


@register("latent/labelled_autoencoder")
class LabelledAutoencoder(eqx.Module):
    """An autoencoder that sees labels, and a classifier."""

    autoencoder: Autoencoder
    classifier: eqx.Module

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, " c"]:
        """Logits of the labels of one example."""
        return call_network(self.classifier, x[None], {}, key=None)[0]

    def reinitialise(self, key: PRNGKeyArray) -> "LabelledAutoencoder":
        """The same architecture with fresh weights."""
        first, second = jax.random.split(key)
        return LabelledAutoencoder(self.autoencoder.reinitialise(first), reinitialise(self.classifier, key=second))


@dataclass(frozen=True)
class SemiSupervisedQueries(VAEQueries):
    """Questions to a posterior over networks that know of labels.

    Where the label of a row is not given, latents and reconstructions are those of its most probable label. Log
    densities are those of x, with labels that are not given summed out, and of x and the label where it is.
    """

    def classify(self, x: Any) -> np.ndarray:
        """Probabilities of labels from the classifier, (example, label), averaged over networks."""
        rows = self._rows(x)
        return np.asarray(_classify(self._model, self._draws, rows)).mean(0)

    def generate(
        self, num: int, *, key: Key, noise: bool = False, context: Any = None, label: Any = None
    ) -> np.ndarray:
        """New examples; of these labels, one or as many as examples, or of labels in turn.

        Takes what `VAE` takes, and:

        Args:
            num: of examples.
            key: seed.
            noise: whether to draw entries, and not to give their means.
            context: none, as the label is what the decoder sees.
            label: one label, or one of each example.
        """
        check_num("num", num)
        if context is not None:
            raise ValueError("context must be left out: the decoder sees label= of a semi-supervised model")
        size = self._model.num_labels
        labels = np.arange(num) % size if label is None else np.broadcast_to(np.asarray(label), (num,))
        if labels.min() < 0 or labels.max() >= size:
            raise ValueError(f"label must be from 0 to {size - 1}, got {label!r}")
        return VAEQueries.generate(self, num, key=key, noise=noise, context=np.eye(size)[labels])


@register("latent/semi_supervised_vae")
class SemiSupervisedVAE(AbstractGenerative):
    """A VAE of examples of which some have labels.

    Data are a pair (x, label), or a dict with "x" and "label", -1 where it is missing. Encoder and decoder see the
    label as a one-hot vector behind their input (or as argument `context`). Posteriors have `classify` besides what
    those of a `VAE` have.

    Args:
        vae: a conditional one, whose context is the one-hot label.
        classifier: a network from an example to logits of labels.
        num_labels: of labels.
        label_weight: $w$ of the classifier's own term for labelled rows; with 0 they do not train it.

    >>> import marginax as mx
    >>> vae = mx.latent.VAE(mx.nets.MLP(6, (8,), 4, key=0), mx.nets.MLP(4, (8,), 4, key=1), latent_size=2)
    >>> model = SemiSupervisedVAE(vae, mx.nets.MLP(4, (8,), 2, key=2), num_labels=2)
    >>> x = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 50, axis=0)
    >>> data = {"x": x, "label": np.where(np.arange(100) % 10, -1, x[:, 3])}
    >>> posterior = mx.fit(model, data, mx.infer.MAP(num_epochs=1), key=0)
    >>> posterior.classify(x).shape, posterior.generate(3, key=0, label=1).shape
    ((100, 2), (3, 4))
    """

    vae: VAE
    classifier: eqx.Module = eqx.field(converter=as_network)
    num_labels: int = eqx.field(static=True)
    label_weight: float | Array = 1.0

    queries: ClassVar[type] = SemiSupervisedQueries
    names: ClassVar[tuple[str, ...]] = ("x", "mask", "label")

    def __check_init__(self):
        if not isinstance(self.vae, VAE):
            raise TypeError(f"vae must be an mx.latent.VAE, got {type(self.vae).__name__}")
        check_num("num_labels", self.num_labels)
        if isinstance(self.label_weight, float | int) and not 0 <= self.label_weight < float("inf"):
            raise ValueError(f"label_weight must be >= 0 and finite, got {self.label_weight}")

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
    def networks(self) -> LabelledAutoencoder:
        return LabelledAutoencoder(self.vae.networks, self.classifier)

    @property
    def has_continuous_latents(self) -> bool:
        return self.vae.has_continuous_latents

    # ---- the density

    def estimate(self, params: Params, rows: Extras, keys: Keys) -> Float[Array, " b"]:
        log_probs = self.label_log_probs(params, rows)
        bounds = self.bound(self._inference_of_all(params, rows, keys)).reshape(self.num_labels, -1).T + self._log_label
        summed = jnp.sum(jnp.exp(log_probs) * (bounds - log_probs), axis=1)
        if "label" not in rows:
            return summed
        chosen = jnp.maximum(rows["label"], 0)[:, None]
        given = jnp.take_along_axis(bounds + self.label_weight * log_probs, chosen, axis=1)[:, 0]
        return jnp.where(rows["label"] < 0, summed, given)

    def log_weights(self, params: Params, rows: Extras, num: int, keys: Keys) -> Float[Array, "num b"]:
        weights = self._inference_of_all(params, rows, keys).log_weights(num)
        weights = weights.reshape(num, self.num_labels, -1) + self._log_label
        summed = jax.nn.logsumexp(weights, axis=1)
        if "label" not in rows:
            return summed
        chosen = jnp.broadcast_to(jnp.maximum(rows["label"], 0), (num, 1, rows["label"].shape[0]))
        given = jnp.take_along_axis(weights, chosen, axis=1)[:, 0]
        return jnp.where(rows["label"] < 0, summed, given)

    def label_log_probs(self, params: Params, rows: Extras) -> Float[Array, "b c"]:
        """What the classifier says."""
        classifier = eqx.nn.inference_mode(self.core.network_of(params)).classifier  # pyright: ignore
        return jax.nn.log_softmax(call_network(classifier, rows["x"], _mask_of(rows), key=None), axis=-1)

    @property
    def _log_label(self) -> float:
        """Of every label, before anything is seen."""
        return -float(np.log(self.num_labels))

    def _inference_of_all(self, params: Params, rows: Extras, keys: Keys) -> Inference:
        """Of every row with every label: labels first, then rows."""
        size = rows["x"].shape[0]
        tiled = {name: jnp.tile(value, (self.num_labels, *(1,) * (value.ndim - 1))) for name, value in rows.items()}
        tiled["context"] = jnp.repeat(jnp.eye(self.num_labels, dtype=rows["x"].dtype), size, axis=0)
        return self._inference(params, tiled, keys if keys.ndim == 0 else jnp.tile(keys, self.num_labels))

    def _inference(self, params: Params, rows: Extras, keys: Keys) -> Inference:
        networks: Any = self.core.network_of(params)
        extras = {name: value for name, value in rows.items() if name in ("mask", "context")}
        more = {"latent_size": self.vae.latent_size, "keys": keys}
        return Inference(networks.autoencoder, self.likelihood, params.likelihood, rows["x"], extras, **more)

    def inference(self, params: Params, rows: Extras, keys: Keys) -> Inference:
        return self._inference(params, self.conditions(params, rows), keys)

    def conditions(self, params: Params, rows: Extras) -> Extras:
        likely = jnp.argmax(self.label_log_probs(params, rows), axis=1)
        label = jnp.where(rows["label"] < 0, likely, rows["label"]) if "label" in rows else likely
        return rows | {"context": jax.nn.one_hot(label, self.num_labels, dtype=rows["x"].dtype)}

    def decode(self, params: Params, z: Float[Array, "n d"], rows: Extras) -> Float[Array, "n k"]:
        networks: Any = eqx.nn.inference_mode(self.core.network_of(params))
        return networks.autoencoder.decode(z, rows)

    def draw_latents(self, params: Params, num: int, rows: Extras, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        networks: Any = eqx.nn.inference_mode(self.core.network_of(params))
        prior = networks.autoencoder.prior_given(rows)
        return prior.draw(num, self.vae.latent_size, networks.autoencoder, key=key)

    # ---- data

    def read(self, data: Any) -> Rows:
        """Also a pair of examples and labels, which are -1 or NaN where they are missing."""
        if isinstance(data, tuple) and len(data) == 2:
            label = np.asarray(data[1])
            if np.issubdtype(label.dtype, np.floating):
                label = np.where(np.isnan(label), MISSING, label)
            data = {"x": data[0], "label": label}
        return AbstractGenerative.read(self, data)

    def output_sizes(self, rows: Extras) -> tuple[int, int]:
        inputs, classifier = f"x of shape {rows['x'].shape[1:]}", eqx.nn.inference_mode(self.classifier)

        def call() -> Array:
            return call_network(classifier, rows["x"], _mask_of(rows), key=None)

        size_of_output("classifier", call, inputs, self.num_labels, f"num_labels={self.num_labels}")
        context = jnp.zeros((rows["x"].shape[0], self.num_labels))
        return self.vae.output_sizes({"x": rows["x"], **_mask_of(rows), "context": context})

    def check_rows(self, rows: Any) -> None:
        AbstractGenerative.check_rows(self, rows)
        label: Int[np.ndarray, " n"] | None = rows.get("label") if isinstance(rows, dict) else None
        if label is None:
            return
        values = np.asarray(label)
        if values.ndim != 1 or not np.all(values == np.round(values)):
            raise ValueError(f"label must hold one whole number for each row, -1 if it is missing, got {values!r:.60}")
        if values.min() < -1 or values.max() >= self.num_labels:
            raise ValueError(
                f"label must be from 0 to {self.num_labels - 1}, or -1 if it is missing, got values from "
                f"{values.min():g} to {values.max():g}"
            )

    def adapted_to_rows(self, rows: dict[str, np.ndarray]) -> "SemiSupervisedVAE":
        return replace(self, vae=self.vae.adapted_to_rows({"x": rows["x"]}))

    def with_traced_numbers(self, trace: Any) -> "SemiSupervisedVAE":
        vae = self.vae.with_traced_numbers(trace)
        return eqx.tree_at(lambda m: (m.vae, m.label_weight), self, (vae, trace(self.label_weight)))


def _mask_of(rows: Extras) -> Extras:
    return {name: value for name, value in rows.items() if name == "mask"}


@eqx.filter_jit
def _classify(model: SemiSupervisedVAE, draws: PyTree, rows: Extras) -> Float[Array, "s n c"]:
    return jax.lax.map(lambda params: jnp.exp(model.label_log_probs(params, rows)), draws)

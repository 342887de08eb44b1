r"""What models with an encoder and a decoder share: $\log p(x \mid \theta)$ is a bound, estimated by draws of latents.

Their unknowns are weights of networks, as those of `mx.Model`, with the same priors; so every method that needs no
layers runs: `MAP` trains, `DeepEnsemble` gives several, `VI` and `SGHMC` a distribution of them.

With a key a bound is estimated by fresh draws. Without one, as methods that want a function and not an estimate ask for
it (HMC, full-batch optimisers), the draws of row i are a fixed function of i: the bound is then a deterministic
function of the weights, and a little too high where it is maximised, as weights adapt to these draws.
"""

import abc
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import row_keys
from marginax.data import AbstractSource, Batch, Rows
from marginax.data.arrays import as_numeric
from marginax.latent.vae.bounds import AbstractBound
from marginax.latent.vae.entries import check_entries, draw_entries, mean_of_entries, num_logits
from marginax.latent.vae.inference import AbstractInference, Keys
from marginax.latent.vae.networks import Extras
from marginax.model import Model
from marginax.model.abstract import Params
from marginax.model.likelihoods import AbstractLikelihood
from marginax.model.priors import AbstractPrior, ByPath, Normal
from marginax.model.subset import AbstractSubset
from marginax.model.with_core import AbstractWithCore

LATENT_PRIOR_WEIGHTS = Normal(scale=3.0)  # of means of a mixture and of pseudo-inputs, which no fan-in is about
_NAMES = ("x", "mask", "context")
_FIRST_ROWS, _PROBES = 4096, 200


class AbstractGenerative(AbstractWithCore):
    """A model of examples by latents, with an inference network."""

    if TYPE_CHECKING:

        @property
        def likelihood(self) -> AbstractLikelihood: ...
        @property
        def bound(self) -> AbstractBound: ...
        @property
        def prior(self) -> AbstractPrior: ...
        @property
        def subset(self) -> AbstractSubset: ...
        @property
        def x_shape(self) -> tuple[int, ...] | None: ...

    else:
        likelihood: eqx.AbstractVar[AbstractLikelihood]
        bound: eqx.AbstractVar[AbstractBound]
        prior: eqx.AbstractVar[AbstractPrior]
        subset: eqx.AbstractVar[AbstractSubset]
        x_shape: eqx.AbstractVar[tuple[int, ...] | None]

    names: ClassVar[tuple[str, ...]] = _NAMES  # of what data may have

    @property
    @abc.abstractmethod
    def networks(self) -> Any:
        """All networks, as one module."""

    @abc.abstractmethod
    def inference(self, params: Params, rows: Extras, keys: Keys) -> AbstractInference:
        """Latents of examples."""

    @abc.abstractmethod
    def decode(self, params: Params, z: Float[Array, "n d"], rows: Extras) -> Float[Array, "n k"]:
        """What the decoder says, given latents."""

    @abc.abstractmethod
    def draw_latents(self, params: Params, num: int, rows: Extras, *, key: PRNGKeyArray) -> Float[Array, "num d"]:
        """Latents of examples that have not been seen, whose contexts are in rows."""

    @abc.abstractmethod
    def output_sizes(self, rows: Extras) -> tuple[int, int]:
        """What encoder and decoder give for two rows, as they are checked; ValueError if it does not fit."""

    @property
    @abc.abstractmethod
    def has_continuous_latents(self) -> bool:
        """Whether gradients can be followed along latents."""

    @abc.abstractmethod
    def adapted_to_rows(self, rows: dict[str, np.ndarray]) -> "AbstractGenerative":
        """The model for examples of this shape."""

    def estimate(self, params: Params, rows: Extras, keys: Keys) -> Float[Array, " b"]:
        """The bound."""
        return self.bound(self.inference(params, rows, keys))

    def log_weights(self, params: Params, rows: Extras, num: int, keys: Keys) -> Float[Array, "num b"]:
        """Log weights whose mean weight is the density of each example in expectation."""
        return self.inference(params, rows, keys).log_weights(num)

    def conditions(self, params: Params, rows: Extras) -> Extras:
        """The rows with all that the decoder needs besides latents."""
        return rows

    # ---- the density

    @property
    def core(self) -> Model:
        """Weights, priors and unknowns of the likelihood, as those of any network."""
        networks = self.networks
        core = Model(networks, self.likelihood, self.prior, self.subset)
        found = [leaf.path.partition("latent_prior/")[2] for leaf in core.leaves]
        if not any(path and not path.startswith(("network/", "family/")) for path in found):
            return core  # without one, or by a network, whose weights are as others
        prior = ByPath({"*latent_prior/*": LATENT_PRIOR_WEIGHTS}, default=self.prior)
        return Model(networks, self.likelihood, prior, self.subset)

    def init(self, source: AbstractSource) -> Params:
        return self.core.initial(self.output_sizes(self.as_rows(source.examples(2)))[1])

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        """The bound of each example; without a key the draws of a row are always the same."""
        keys = row_keys(jax.random.key(0), batch.index) if key is None else key
        return self.estimate(params, self.as_rows(batch.data), keys)

    # ---- data

    def read(self, data: Any) -> Rows:
        """An array of examples, a pair of examples and contexts, or a dict of those and masks."""
        if isinstance(data, Rows):
            return data
        if isinstance(data, tuple) and len(data) == 2:
            data = {"x": data[0], "context": data[1]}
        given = dict(data) if isinstance(data, dict) else {"x": data}
        if "x" not in given or not set(given) <= set(self.names):
            raise ValueError(f'data must have "x" and of {self.names[1:]} what there is, got {sorted(given)}')
        if "mask" in given:
            x, mask = np.asarray(given["x"]), np.asarray(given["mask"], bool)
            if mask.shape != x.shape:
                raise ValueError(f"mask must have the shape of x, {x.shape}, got {mask.shape}")
            given |= {"x": np.where(mask, x, 0), "mask": mask}
        read = {name: as_numeric(value, name=name) for name, value in given.items()}
        lengths = {name: len(value) for name, value in read.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"data must have as many rows each, got {lengths}")
        return Rows(read)

    def as_rows(self, tree: PyTree) -> Extras:
        """Rows by name, as floats."""
        rows = tree if isinstance(tree, dict) else {"x": tree}
        real = jax.dtypes.canonicalize_dtype(float)
        return {name: jnp.asarray(value, real if name != "label" else jnp.int32) for name, value in rows.items()}

    def check(self, source: AbstractSource) -> None:
        data = getattr(source, "data", None)
        self.check_rows(source.examples(min(2, source.spec.num_examples)) if data is None else data.tree)

    def check_rows(self, rows: Any) -> None:
        """Raise if these cannot be examples of the model."""
        rows = rows if isinstance(rows, dict) else {"x": rows}
        x = np.asarray(rows["x"])
        if x.ndim < 2 and self.x_shape is None:
            raise ValueError(f"x must have shape (n, entries) or (n, height, width, ...), got {x.shape}")
        if self.x_shape is not None and x.shape[1:] != self.x_shape:
            wanted = ", ".join(["n", *map(str, self.x_shape)])
            raise ValueError(f"x must have shape ({wanted}) as in the training data, got {x.shape}")
        two = {name: jnp.asarray(np.asarray(value)[:1].repeat(2, axis=0)) for name, value in rows.items()}
        _, size = self.output_sizes(self.as_rows(two))
        check_entries(self.likelihood, size, x.reshape(len(x), -1))

    def adapted_to(self, source: AbstractSource) -> "AbstractGenerative":
        rows = source.examples(min(_FIRST_ROWS, source.spec.num_examples))
        return self.adapted_to_rows(rows if isinstance(rows, dict) else {"x": rows})

    def probe_rows(self, source: AbstractSource) -> dict[str, np.ndarray]:
        """The first 200."""
        rows = source.examples(min(_PROBES, source.spec.num_examples))
        return {name: np.asarray(value) for name, value in (rows if isinstance(rows, dict) else {"x": rows}).items()}

    @property
    def num_entries(self) -> int:
        """Of an example."""
        if self.x_shape is None:
            raise ValueError("the model has not seen data, and does not know the shape of an example: fit it first")
        return math.prod(self.x_shape)

    def num_classes(self, rows: Extras) -> int:
        """Of each entry, 0 where entries are numbers."""
        return num_logits(self.likelihood, self.output_size(rows), self.num_entries)

    def output_size(self, rows: Extras) -> int:
        """What the decoder gives for an example such as the first of these."""
        return self.output_sizes({name: value[:1].repeat(2, 0) for name, value in rows.items()})[1]

    def mean_of(self, params: Params, output: Float[Array, "n k"]) -> Float[Array, "n ..."]:
        """Examples without their noise, given what the decoder says."""
        mean = mean_of_entries(self.likelihood, output, self.num_entries, params.likelihood)
        return mean.reshape(-1, *(self.x_shape or ()))

    def noisy(self, params: Params, output: Float[Array, "n k"], *, key: PRNGKeyArray) -> Float[Array, "n ..."]:
        """Examples with their noise."""
        drawn = draw_entries(self.likelihood, output, self.num_entries, params.likelihood, key=key)
        return drawn.reshape(-1, *(self.x_shape or ()))

    # ---- unknowns

    def with_traced_numbers(self, trace: Callable[[PyTree], PyTree]) -> "AbstractGenerative":
        """Those of likelihood, prior and bound."""
        return eqx.tree_at(
            lambda m: (m.likelihood, m.prior, m.bound), self, trace((self.likelihood, self.prior, self.bound))
        )


def check_parts(**parts: tuple[Any, type]) -> None:
    """Raise unless every argument is of its kind."""
    for name, (value, kind) in parts.items():
        if not isinstance(value, kind):
            word = name.replace("_", " ")
            raise TypeError(f"{name} must be a {word} such as those of mx.latent and mx.likelihoods, got {value!r}")
        if isinstance(value, AbstractLikelihood) and getattr(value, "temperature", 1.0) != 1.0:
            raise ValueError(f"{name} must not be tempered: weigh the divergence, bound=mx.latent.ELBO(beta=...)")


def size_of_output(
    name: str, function: Callable[[], Array], inputs: str, wanted: int | None = None, reader: str = ""
) -> int:
    """How many outputs a network gives for inputs, without running it; an error unless they are what a reader wants."""
    try:
        output = eqx.filter_eval_shape(function)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{name} cannot be called on {inputs}: {reason or type(error).__name__}") from error
    size = output.shape[-1]
    if wanted is not None and size != wanted:
        raise ValueError(f"{name} gives {size} outputs, but {reader} needs {wanted}: change its out_size to {wanted}")
    return size

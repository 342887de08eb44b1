r"""A network that is averaged over views of its input: augmentation inside of the likelihood.

With the average of logits, $p(y \mid x) = \mathrm{softmax}\big(\frac1K \sum_k f(T_k x)\big)$, and with that of
probabilities, $\frac1K \sum_k \mathrm{softmax}(f(T_k x))$: both are likelihoods of the label of x, which data
augmentation is not, and both are invariant where the views are a whole orbit (Nabarro et al., 2022). Being outputs of a
network, they are trained, sampled, linearised and predicted with like those of any other.

Fresh random views in place of the orbit make the log likelihood a lower bound in expectation, since the log softmax is
concave in the logits and the log in the probabilities (Jensen); it rises with the number of views. A finite orbit is
enumerated, and then exact.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._kernels.examples_last import call_batched
from marginax._kernels.random import derive
from marginax.data.transforms import AbstractTransform, check_transforms, num_in_orbit
from marginax.data.views import check_num_views, views_of
from marginax.files import register
from marginax.nets.adapters import as_network, is_random, reinitialise

_VIEWS, _INSIDE = 307, 308  # streams of keys: for views, and for the network's own noise


class AbstractAverage(eqx.Module):
    """How the outputs of a network for several views of an input become one output."""

    @abc.abstractmethod
    def __call__(self, outputs: Float[Array, "views k"]) -> Float[Array, " k"]:
        """Of one example."""

    @property
    @abc.abstractmethod
    def needs_logits(self) -> bool:
        """Whether outputs must be the logits of one label."""


@register("average/logits")
class Logits(AbstractAverage):
    """The mean of outputs: of logits, or of the means of real targets.

    >>> Logits()(jnp.array([[0.0, 2.0], [0.0, 4.0]])).tolist()
    [0.0, 3.0]
    """

    def __call__(self, outputs: Float[Array, "views k"]) -> Float[Array, " k"]:
        return jnp.mean(outputs, axis=0)

    @property
    def needs_logits(self) -> bool:
        return False


@register("average/probabilities")
class Probabilities(AbstractAverage):
    """The logarithms of the mean of class probabilities, which are logits again; one logit is that of yes against no.

    >>> jax.nn.softmax(Probabilities()(jnp.log(jnp.array([[0.5, 0.5], [0.9, 0.1]])))).round(3).tolist()
    [0.7, 0.3]
    """

    def __call__(self, outputs: Float[Array, "views k"]) -> Float[Array, " k"]:
        if outputs.shape[-1] == 1:
            return jax.nn.logsumexp(jax.nn.log_sigmoid(outputs), axis=0) - jax.nn.logsumexp(
                jax.nn.log_sigmoid(-outputs), axis=0
            )
        return jax.nn.logsumexp(jax.nn.log_softmax(outputs), axis=0) - jnp.log(outputs.shape[0])

    @property
    def needs_logits(self) -> bool:
        return True


@register("net/augmented")
class Augmented(eqx.Module):
    """The average of a network over views of its input.

    With a key, views are random, with a key for every example; without one (predictions, curvature, methods without
    noise) they are the same evenly spread ones for all examples. A finite orbit is always enumerated.

    Args:
        network: called per example.
        transforms: from `mx.data`, applied in turn.
        num_views: K; None for all members of a finite orbit.
        average: `Logits()` or `Probabilities()`.
        fresh: whether a key draws views; if not, they are always the evenly spread ones, so that the log likelihood is
            a function of the weights, without noise.

    >>> import marginax as mx
    >>> net = Augmented(mx.nets.MLP(3, (), 2, key=0), mx.data.Flip(), num_views=None)
    >>> x = jnp.array([1.0, 2.0, 3.0])
    >>> bool(jnp.allclose(net(x), net(x[::-1])))
    True
    """

    network: eqx.Module
    transforms: tuple[AbstractTransform, ...]
    num_views: int | None = eqx.field(static=True)
    average: AbstractAverage
    fresh: bool = eqx.field(static=True)

    def __init__(
        self,
        network: Any,
        transforms: Any,
        num_views: int | None = 8,
        average: AbstractAverage | None = None,
        fresh: bool = True,
    ):
        """Check that the pieces are what they should be."""
        self.network = as_network(network)
        self.transforms = check_transforms(transforms)
        check_num_views(self.transforms, num_views)
        self.num_views, self.fresh = num_views, bool(fresh)
        self.average = Logits() if average is None else average
        if not isinstance(self.average, AbstractAverage):
            raise TypeError(f"average must be mx.nets.Logits() or Probabilities(), got {average!r}")

    @property
    def num_averaged(self) -> int:
        """Views of an input."""
        return num_in_orbit(self.transforms) if self.num_views is None else self.num_views

    @property
    def one_view(self) -> eqx.Module:
        """The network that every view goes through, with the same noise in its layers."""
        return self.network

    def __call__(self, x: Float[Array, "..."], *, key: PRNGKeyArray | None = None) -> Float[Array, " k"]:
        """The averaged output of one example."""
        views, keys = self.views(x, key=key), self._inside(key)
        # one after the other, and not by a map: hooks on layers see each call
        outputs = [_call(self.network, view, k) for view, k in zip(views, keys, strict=True)]
        return self.average(jnp.stack([jnp.atleast_1d(output) for output in outputs]))

    def call_batch(self, xs: Float[Array, "n ..."], *, key: PRNGKeyArray | None = None) -> Float[Array, "n k"]:
        """The same for many examples, each with views of its own if there is a key."""
        if key is None:
            views, inside = jax.vmap(self.views)(xs), None
        else:
            keys = jax.random.split(derive(key, 0, stream=_VIEWS), xs.shape[0])
            views = jax.vmap(lambda x, k: self.views(x, key=k))(xs, keys)
            inside = derive(key, 0, stream=_INSIDE) if is_random(self.network) else None
        num, each = views.shape[:2]
        outputs = call_batched(self.network, views.reshape(num * each, *views.shape[2:]), key=inside)
        return jax.vmap(self.average)(outputs.reshape(num, each, -1))

    def views(self, x: Float[Array, "..."], *, key: PRNGKeyArray | None = None) -> Float[Array, "views ..."]:
        """Views of one example: random ones with a key, evenly spread ones without, all of them of a finite orbit."""
        return views_of(self.transforms, x, self.num_views, key=key if self.fresh else None)

    def reinitialise(self, key: PRNGKeyArray) -> "Augmented":
        """With fresh weights."""
        return eqx.tree_at(lambda net: net.network, self, reinitialise(self.network, key=key))

    def _inside(self, key: PRNGKeyArray | None) -> list[PRNGKeyArray | None]:
        if key is None or not is_random(self.network):
            return [None] * self.num_averaged
        return [derive(key, i, stream=_INSIDE) for i in range(self.num_averaged)]


def _call(network: Any, x: Array, key: PRNGKeyArray | None) -> Array:
    return network(x) if key is None else network(x, key=key)

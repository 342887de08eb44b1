r"""Random Fourier features: a linear model of them is a Gaussian process, about (Rahimi & Recht, 2007).

$f(h) = B\, \phi(h), \quad \phi(h) = \sqrt{2} \cos(\Omega h / \ell + b), \quad \Omega_{ij} \sim N(0, 1), \;
 b_i \sim U(0, 2\pi)$

With independent normal weights B of scale $g / \sqrt{L}$, as the default prior has them, f is a Gaussian process whose
covariance tends to that of the squared exponential kernel, $g^2 \exp(-|h - h'|^2 / 2 \ell^2)$, with the number L of
features. The head of a spectral-normalised neural Gaussian process (SNGP; Liu et al., 2020) is this one.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marginax._keys import Key, as_key
from marginax.files import register
from marginax.nets.adapters import FixedState
from marginax.nets.arguments import check_positive_ints
from marginax.nets.initialisers import lecun


@register("net/random_features")
class RandomFeatures(eqx.Module):
    """A head of random Fourier features; frequencies and phases are fixed, and only `output` has weights, no bias.

    Args:
        in_size: number of inputs.
        num_features: L; the kernel is met up to an error of about 1 / sqrt(L).
        out_size: number of outputs.
        length_scale: of the kernel, by default the root of `in_size`: half of the distance, about, between two vectors
            of standard normal numbers, which is sqrt(2) times that.
        key: seed or JAX key.

    >>> RandomFeatures(3, 100, 2, key=0)(jnp.ones(3)).shape
    (2,)
    """

    fixed: FixedState
    output: eqx.nn.Linear
    length_scale: float = eqx.field(static=True)

    def __init__(self, in_size: int, num_features: int, out_size: int, *, length_scale: float | None = None, key: Key):
        check_positive_ints(in_size=in_size, num_features=num_features, out_size=out_size)
        self.length_scale = math.sqrt(in_size) if length_scale is None else float(length_scale)
        if not self.length_scale > 0:
            raise ValueError(f"length_scale must be > 0, got {length_scale}")
        for_frequencies, for_phases, for_weights = jax.random.split(as_key(key), 3)
        frequencies = jax.random.normal(for_frequencies, (num_features, in_size))
        phases = jax.random.uniform(for_phases, (num_features,), maxval=2.0 * math.pi)
        self.fixed = FixedState({"frequencies": frequencies, "phases": phases})
        self.output = _output(num_features, out_size, for_weights)

    def features(self, h: Float[Array, " in_size"]) -> Float[Array, " num_features"]:
        """Of one vector."""
        tree = self.fixed.tree
        return math.sqrt(2.0) * jnp.cos(tree["frequencies"] @ h / self.length_scale + tree["phases"])

    def __call__(self, h: Float[Array, " in_size"], *, key: Array | None = None) -> Float[Array, " out_size"]:
        """Outputs of one example; `key` is ignored."""
        return self.output(self.features(h))

    @property
    def stochastic(self) -> bool:
        """Never."""
        return False

    def reinitialise(self, key: PRNGKeyArray) -> "RandomFeatures":
        """Fresh weights; the features stay."""
        num_out, num_features = self.output.weight.shape
        return eqx.tree_at(lambda net: net.output, self, _output(num_features, num_out, key))


def _output(num_features: int, out_size: int, key: PRNGKeyArray) -> eqx.nn.Linear:
    empty = eqx.filter_eval_shape(eqx.nn.Linear, num_features, out_size, use_bias=False, key=key)
    return eqx.tree_at(lambda layer: layer.weight, empty, lecun()((out_size, num_features), key=key))

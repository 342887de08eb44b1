"""A likelihood from any distribution of NumPyro: which of its parameters the network gives, and which are learned."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from marginax.files import register
from marginax.model.likelihoods.abstract import AbstractLikelihood, Unknowns, check_width
from marginax.model.likelihoods.discrete import check_counts
from marginax.model.numpyro_distribution import NumPyroDistribution, from_numpyro, outcome_of
from marginax.model.outcome import Outcome
from marginax.model.scale import Positive, initial_log_scale, log_prior_of_log


@register("likelihood/output")
class Output(eqx.Module):
    """A parameter that the network gives, one output per target.

    Args:
        link: from the output to the parameter, such as `jnp.exp` for what is positive; the identity by default.
    """

    link: Callable[[Array], Array] | None = None

    def __call__(self, output: Array) -> Array:
        """The parameter."""
        return output if self.link is None else self.link(output)


@register("likelihood/from_distribution")
class FromDistribution(AbstractLikelihood):
    """Targets with any distribution of NumPyro.

    Args:
        kind: the class, such as `numpyro.distributions.NegativeBinomial2`.
        params: each of its parameters: `Output(link)` if the network gives it (outputs are taken in the order of these
            arguments), a number if it is known, a distribution of positive values if it is to be learned.

    >>> import numpyro.distributions as dist
    >>> from marginax.model.likelihoods import FromDistribution, Output
    >>> counts = FromDistribution(dist.NegativeBinomial2, mean=Output(jnp.exp), concentration=2.0)
    >>> counts.num_targets(3), counts.outcome(3)
    (3, <Outcome.COUNT: 'count'>)
    """

    kind: Any
    params: dict[str, Any]

    def __init__(self, kind: Any, **params: Any):
        """Check the parameters against those of the class."""
        if not isinstance(kind, type) or not hasattr(kind, "arg_constraints"):
            raise TypeError(f"kind must be a class of numpyro.distributions, got {kind!r}")
        unknown = sorted(set(params) - set(kind.arg_constraints))
        if unknown or not any(isinstance(value, Output) for value in params.values()):
            names = ", ".join(kind.arg_constraints)
            raise ValueError(
                f"params must be among {names} of {kind.__name__}, at least one of them an Output(), got {params!r}"
            )
        self.kind, self.params = kind, {name: from_numpyro(value) for name, value in params.items()}

    @property
    def from_network(self) -> list[str]:
        """Parameters that the network gives, in order."""
        return [name for name, value in self.params.items() if isinstance(value, Output)]

    def num_targets(self, output_size: int) -> int:
        num = len(self.from_network)
        if output_size % num:
            raise ValueError(f"network gives {output_size} outputs, but {num} parameters per target come from it")
        return output_size // num

    def outcome(self, output_size: int) -> Outcome:
        return outcome_of(self.kind)

    def check(self, output_size: int, y: np.ndarray) -> None:
        check_width(output_size, self.num_targets(output_size), y)
        if self.outcome(output_size) is not Outcome.REAL:
            check_counts(y, None, f"{self.kind.__name__}")

    def init(self, output_size: int) -> Unknowns:
        shape = (self.num_targets(output_size),)
        learned = {name: value for name, value in self.params.items() if isinstance(value, Positive)}
        return {f"log_{name}": initial_log_scale(prior, shape) for name, prior in learned.items()}

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        parts = [log_prior_of_log(self.params[name.removeprefix("log_")], value) for name, value in unknowns.items()]
        return sum(parts, jnp.zeros(()))

    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> NumPyroDistribution:
        pieces = jnp.split(output, len(self.from_network), axis=-1)
        given = dict(zip(self.from_network, pieces, strict=True))
        found = {}
        for name, value in self.params.items():
            if name in given:
                found[name] = value(given[name])
            elif isinstance(value, Positive):
                found[name] = jnp.broadcast_to(jnp.exp(unknowns[f"log_{name}"]), pieces[0].shape)
            else:
                found[name] = jnp.full_like(pieces[0], value)
        return NumPyroDistribution(self.kind, found)

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        r"""What the target says about its mean $m$: $J^\top v^{-1} J$ with $J = dm/df$ and the variance $v$.

        That is the Fisher information where the network gives the one parameter of an exponential family, and less than
        it otherwise: use `kind=mx.curvature.EmpiricalFisher()` or `Hessian()` where other parameters matter.
        """

        def one(output: Array) -> Array:
            jacobian = jax.jacobian(lambda f: self.distribution(f[None], unknowns).mean[0])(output)
            return jacobian.T @ (jacobian / self.distribution(output[None], unknowns).variance[0][:, None])

        return jax.vmap(one)(output)

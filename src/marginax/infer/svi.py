r"""Stochastic variational inference of probabilistic programs, with a guide of one's own or an automatic one.

A guide is a program that draws the unknowns, with parameters by `numpyro.param`. They are trained to maximise a lower
bound of the log evidence, estimated from draws $\theta_k$ of the guide with weights $w_k = p(D, \theta_k) /
q(\theta_k)$ and from minibatches. A guide that draws unknowns of each example is given its rows, $q(z_n \mid x_n)$, and
their terms count N/B times; if examples share no unknowns, the bound is the sum of those of the examples:

$\mathrm{ELBO} = E[\log w]$, $\mathrm{IWAE} = E[\log \tfrac1K \sum_k w_k]$ (Burda et al., 2016),
$\mathrm{Renyi}_\alpha = E[\tfrac{1}{1-\alpha} \log \tfrac1K \sum_k w_k^{1-\alpha}]$ (Li & Turner, 2016).
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._extras import require
from marginax._kernels.random import derive
from marginax.data import Batch
from marginax.files import register
from marginax.infer.catalogue import register_method
from marginax.infer.method import Infos, check_count, mixture_of_chains, num_steps_for
from marginax.infer.optimisers import AbstractOptimiser, Adam, as_optimiser
from marginax.infer.training import AbstractOptimised
from marginax.model import AbstractModel, Program
from marginax.model.abstract import Params
from marginax.posterior import AbstractPosterior, Guided

# ---- bounds


class AbstractBound(eqx.Module):
    """A lower bound of the log evidence, from log weights of draws."""

    num_particles: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, log_weights: Float[Array, " k"]) -> Float[Array, ""]:
        """The bound."""


@register("bound/elbo")
class ELBO(AbstractBound):
    """The evidence lower bound: how well data are explained, less the divergence from the prior.

    Args:
        num_particles: draws per step, to average over.
    """

    num_particles: int = 1

    def __check_init__(self):
        check_count("num_particles", self.num_particles)

    def __call__(self, log_weights: Float[Array, " k"]) -> Float[Array, ""]:
        return jnp.mean(log_weights)


@register("bound/iwae")
class IWAE(AbstractBound):
    """The importance-weighted bound, which rises with the number of draws to the log evidence.

    Args:
        num_particles: draws per step.
    """

    num_particles: int = 10

    def __check_init__(self):
        check_count("num_particles", self.num_particles)

    def __call__(self, log_weights: Float[Array, " k"]) -> Float[Array, ""]:
        return jax.nn.logsumexp(log_weights) - jnp.log(log_weights.size)


@register("bound/renyi")
class Renyi(AbstractBound):
    """The bound by the Renyi divergence: 1 is near the ELBO, 0 is IWAE.

    Args:
        alpha: order of the divergence, >= 0 and not 1.
        num_particles: draws per step.
    """

    alpha: float = 0.5
    num_particles: int = 10

    def __check_init__(self):
        check_count("num_particles", self.num_particles)
        if isinstance(self.alpha, float | int) and (self.alpha < 0 or self.alpha == 1):
            raise ValueError(f"alpha must be >= 0 and not 1, which is ELBO(), got {self.alpha}")

    def __call__(self, log_weights: Float[Array, " k"]) -> Float[Array, ""]:
        power = 1.0 - self.alpha
        return (jax.nn.logsumexp(power * log_weights) - jnp.log(log_weights.size)) / power


# ---- the method


class SVIState(eqx.Module):
    """Parameters of guide and program, and the optimiser's memory."""

    params: dict[str, Any]
    optimiser: PyTree


class SVIInfo(eqx.Module):
    """The bound that is climbed, the ELBO, and its parts: reconstruction (log likelihood) and complexity (KL)."""

    bound: Array
    elbo: Array
    log_likelihood: Array
    kl: Array


def _as_guide(guide: Any) -> Any:
    """An automatic guide by its name: what NumPyro calls it is all that it is made from."""
    is_automatic = isinstance(guide, type) and guide.__module__ == "numpyro.infer.autoguide"
    return guide.__name__ if is_automatic else guide


@register_method(
    "method/svi",
    gives="what a guide draws, nearest to the posterior",
    use_when="an mx.Program, and a family of your own",
    cost="20,000 steps of two MAP steps each",
    order=125,
    only_for="mx.Program",
)
class SVI(AbstractOptimised):
    """Stochastic variational inference of an `mx.Program`.

    What the program itself declares by `numpyro.param` is trained, too; of several chains, that with the highest bound
    is then the posterior. So it is where a guide draws unknowns of each example from its row (an encoder).

    Args:
        guide: a function with the arguments of the program that draws its unknowns by `numpyro.sample`; or a class of
            `numpyro.infer.autoguide`. What it draws inside the plate of the examples may depend on their rows; for all
            else it is given the shapes of the data and never their values.
        loss: the bound that is maximised: `ELBO()`, `IWAE()` or `Renyi()`.
        num_epochs: passes over the data; by default at least 10 and enough for 20,000 steps.
        batch_size: rows per step, None for all.
        optimiser: `Adam`, `SGD`, `Optax(...)`, or an Optax transformation.

    >>> import marginax as mx
    >>> import numpy as np
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> def coin(flips):
    ...     prob = numpyro.sample("heads_prob", dist.Beta(2.0, 2.0))
    ...     with numpyro.plate("flip", len(flips)):
    ...         numpyro.sample("heads", dist.Bernoulli(prob), obs=flips)
    >>> def guide(flips):
    ...     a = numpyro.param("a", 5.0, constraint=dist.constraints.positive)
    ...     b = numpyro.param("b", 5.0, constraint=dist.constraints.positive)
    ...     numpyro.sample("heads_prob", dist.Beta(a, b))
    >>> data, method = {"flips": np.array([1, 1, 0, 1])}, mx.infer.SVI(guide, num_epochs=2000)
    >>> posterior = mx.fit(mx.Program(coin), data, method, key=0)
    >>> bool(abs(posterior.sites["heads_prob"].mean() - 5 / 8) < 0.05)
    True
    """

    guide: Callable[..., Any] | str = eqx.field(default="AutoNormal", converter=_as_guide)
    loss: AbstractBound = eqx.field(default_factory=ELBO)
    optimiser: AbstractOptimiser = eqx.field(
        default_factory=lambda: Adam(learning_rate=1e-2), converter=as_optimiser, kw_only=True
    )

    def __check_init__(self):
        if not isinstance(self.loss, AbstractBound):
            raise TypeError(f"loss must be mx.infer.ELBO(), IWAE() or Renyi(), got {self.loss!r}")
        if isinstance(self.guide, str):
            known = (
                require("marginax.model.program.guides").AUTOMATIC if self.guide != "AutoNormal" else ("AutoNormal",)
            )
            if self.guide not in known:
                raise ValueError(f"guide must be a function, or one of {', '.join(known)} of NumPyro, got {self.guide}")
        elif not callable(self.guide):
            raise TypeError(f"guide must be a function that calls numpyro.sample, got {self.guide!r}")

    def prepare_model(self, model: AbstractModel) -> AbstractModel:
        if not isinstance(model, Program):
            raise TypeError(f"SVI is for an mx.Program, got {type(model).__name__}: use mx.infer.VI()")
        return model if isinstance(self.guide, str) or model.layout is not None else model.guided_by(self.guide)

    def init(self, model: AbstractModel, params: Params, batch: Batch, *, key: PRNGKeyArray) -> SVIState:
        guides = require("marginax.model.program.guides")
        trained = {
            "guide": guides.first_points(model, self.guide, params, derive(key, 0)),
            "model": guides.model_points(model, derive(key, 1)),
        }
        if not jax.tree.leaves(trained):
            raise ValueError("guide has nothing to train: declare its parameters by numpyro.param")
        return SVIState(trained, self.first_memory(trained))

    def num_steps(self, num_examples: int, batch_size: int) -> int:
        least = 20_000 if self.num_epochs is None else 1
        return max(least, num_steps_for(self.num_epochs, num_examples, batch_size))

    def step(
        self, model: AbstractModel, state: SVIState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[SVIState, SVIInfo]:
        def loss(trained: dict[str, Any]) -> tuple[Float[Array, ""], SVIInfo]:
            log_likelihood, kl = self.terms(_trained(model, trained), trained["guide"], batch, key=key)
            log_weights, parts = log_likelihood - kl, (jnp.mean(log_likelihood, axis=0), jnp.mean(kl, axis=0))
            if log_weights.ndim == 1:
                bound = self.loss(log_weights)
            else:
                bound = batch.total(jax.vmap(self.loss, in_axes=1)(log_weights))
                parts = batch.total(parts[0]), batch.total(parts[1])
            return -bound / batch.num_examples, SVIInfo(bound, parts[0] - parts[1], *parts)

        gradient, info = jax.grad(loss, has_aux=True)(state.params)
        trained, memory = self.descend(gradient, state.optimiser, state.params, batch)
        return SVIState(trained, memory), info

    def terms(
        self, model: AbstractModel, points: dict[str, Any], batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "k *b"], Float[Array, "k *b"]]:
        """Log likelihood and log ratio of guide and prior, at draws of the guide: of all data, or by row."""
        weigh = require("marginax.model.program.guides").weigh

        def once(key: PRNGKeyArray) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
            return weigh(model, self.guide, points, batch, key)

        keys = jax.vmap(lambda i: derive(key, i))(jnp.arange(self.loss.num_particles))
        if self.loss.num_particles == 1:
            return jax.tree.map(lambda value: value[None], once(keys[0]))
        return jax.vmap(once)(keys)

    def posterior(self, model: AbstractModel, state: SVIState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        trained = state.params
        if jax.tree.leaves(trained["model"]) or _has_local(model):  # programs and encoders that cannot be mixed
            best = np.argmax(np.mean(infos["train"]["elbo"][:, -100:], axis=1))
            trained = jax.tree.map(lambda leaf: leaf[best : best + 1], trained)
        return mixture_of_chains(partial(_posterior, model, self.guide), trained)


def _has_local(model: Any) -> bool:
    return bool(model.known.local)


def _trained(model: Any, trained: dict[str, Any]) -> Any:
    """The program with its own parameters as they are now."""
    return eqx.tree_at(lambda p: p.points, model, trained["model"], is_leaf=lambda node: node == {})


def _posterior(model: AbstractModel, guide: Callable[..., Any] | str, trained: dict[str, Any]) -> AbstractPosterior:
    return Guided(model=_trained(model, trained), guide=guide, points=trained["guide"])

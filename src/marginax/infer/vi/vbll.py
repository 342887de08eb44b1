r"""Variational Bayesian last layers (VBLL; Harrison, Willes & Snoek, 2024): one pass to train, one pass to predict.

The weights w of the last layer have a normal posterior q, those of the body are points. Outputs are then normal,
$f(x) \sim N(\mu(x), J(x) \Sigma J(x)^\top)$ with J the features, and the bound of the log evidence

$\mathrm{ELBO} = \sum_i E_q[\log p(y_i \mid f(x_i))] - \mathrm{KL}(q \,\|\, p(w)) + \log p(\text{body})$

needs no draws of weights. The expectation is exact for normal noise, whose scale is known or learned, and for counts;
for classes it is bounded from below by Jensen's inequality, $E \log\sum_k e^{f_k} \le \log\sum_k e^{\mu_k + v_k / 2}$,
so that the whole stays a lower bound: the discriminative bound of the paper. For other likelihoods outputs are drawn,
which estimates the bound without bias. On features that do not move, with known normal noise, the optimum is Bayesian
linear regression and the bound its log evidence.

We differ from the paper in three ways: noise and other unknowns of the likelihood are at their mode under the prior of
the model, in place of an inverse Wishart prior; logits have no noise of their own; the prior is that of the model.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import derive
from marginax.curvature import SubsetCovariance, output_jacobian
from marginax.curvature.hooks import selected_part
from marginax.data import Batch
from marginax.infer.catalogue import register_method
from marginax.infer.method import Infos, mixture_of_chains, num_steps_for
from marginax.infer.optimisers import AbstractOptimiser, Adam, as_optimiser
from marginax.infer.training import AbstractOptimised
from marginax.infer.vi.families import AbstractApproximation, AbstractFamily, Flow, FullRank
from marginax.model import LastLayer, Model, Params
from marginax.posterior import AbstractPosterior, Gaussian
from marginax.predict import AbstractPredictive, Linearised

_LEAST_STEPS = 10_000  # scales settle later than means


class VBLLState(eqx.Module):
    """The body and what is not a weight, the normal of the last layer, and the optimiser's memory."""

    body: Params
    approximation: AbstractApproximation
    optimiser: PyTree

    @property
    def params(self) -> Params:
        """All unknowns, the last layer at its mean."""
        return _whole(self.body, self.approximation.mean)


class VBLLInfo(eqx.Module):
    """The bound, and how well the data are explained in expectation."""

    elbo: Float[Array, ""]
    log_likelihood: Float[Array, ""]


@register_method(
    "method/vbll",
    gives="a normal of the last layer, trained with the body",
    use_when="one network, one pass to predict, and the features may move",
    cost="10,000 steps of MAP, and the covariance of a layer",
    order=35,
)
class VBLL(AbstractOptimised):
    """A variational Bayesian last layer.

    The outputs must be linear in the weights of the last layer, which is that of `mx.LastLayer()`. Dropout that a
    network has is off. Predictions are in closed form where the likelihood has one, as those of `Laplace` with
    `subset=mx.LastLayer()`, whose features are trained without regard for the spread.

    Args:
        family: of the last layer: `FullRank()` for a dense covariance, quadratic in its weights, `MeanField()` for a
            diagonal one, which is for wide layers and many classes, or `LowRank(rank)`.
        predictive: `mx.predict.Linearised(link=...)` with the link of classes: `MonteCarlo()` or `Probit()`.
        temperature: of the posterior of the last layer; 1 is Bayes, less is sharper.
        num_epochs: passes over the data; by default at least 10 and enough for 10,000 steps.
        batch_size: rows per step, None for all.
        optimiser: `Adam`, `SGD`, `Optax(...)`, or an Optax transformation.
    """

    family: AbstractFamily = eqx.field(default_factory=FullRank)
    predictive: AbstractPredictive = eqx.field(default_factory=Linearised)
    temperature: float | Array = 1.0
    optimiser: AbstractOptimiser = eqx.field(
        default_factory=lambda: Adam(learning_rate=1e-2), converter=as_optimiser, kw_only=True
    )

    def __check_init__(self):
        if not isinstance(self.family, AbstractFamily) or isinstance(self.family, Flow):
            raise TypeError(f"family must be normal: mx.infer.FullRank(), MeanField(), LowRank(), got {self.family!r}")
        if not isinstance(self.predictive, Linearised):
            raise TypeError(f"predictive must be mx.predict.Linearised(...), got {self.predictive!r}")
        if isinstance(self.temperature, float) and not self.temperature > 0:
            raise ValueError(f"temperature must be > 0, got {self.temperature}")

    needs_layers: ClassVar[bool] = True

    def init(self, model: Model, params: Params, batch: Batch, *, key: PRNGKeyArray) -> VBLLState:
        LastLayer().check(model.network)
        if model.likelihood.compares_views:  # whose outputs depend on the same weights
            name = type(model.likelihood).__name__
            raise ValueError(f"likelihood must not compare views for VBLL(), as {name} does: choose VI()")
        body, last = _split(model, params)
        _check_linear(model, body, last, batch.x)
        approximation = self.family.start(last, key=key)
        trained = body, eqx.filter(approximation, eqx.is_inexact_array)
        return VBLLState(body, approximation, self.first_memory(trained))

    def num_steps(self, num_examples: int, batch_size: int) -> int:
        return num_steps_for(self.num_epochs, num_examples, batch_size, _LEAST_STEPS)

    def step(self, model: Model, state: VBLLState, batch: Batch, *, key: PRNGKeyArray) -> tuple[VBLLState, VBLLInfo]:
        """One step up the bound."""
        moving, fixed = eqx.partition(state.approximation, eqx.is_inexact_array)

        def loss(trained: tuple[Params, PyTree]) -> tuple[Float[Array, ""], Array]:
            body, moving = trained
            approximation = eqx.combine(moving, fixed)
            log_likelihood = expected_log_likelihood(model, body, approximation, batch, key=derive(key, 0))
            divergence = _divergence(model, body, approximation, self.temperature, key=derive(key, 1))
            return (divergence - log_likelihood) / batch.num_examples, log_likelihood

        trained = state.body, moving
        (value, log_likelihood), gradient = jax.value_and_grad(loss, has_aux=True)(trained)
        (body, moving), memory = self.descend(gradient, state.optimiser, trained, batch)
        new = VBLLState(body, eqx.combine(moving, fixed), memory)
        return new, VBLLInfo(-value * batch.num_examples, log_likelihood)

    def posterior(self, model: Model, state: VBLLState, draws: PyTree, infos: Infos) -> AbstractPosterior:
        def build(state: VBLLState) -> Gaussian:
            params, flags = state.params, _flags(model)
            sizes = [leaf.size for leaf in jax.tree.leaves(params.network)]
            num = sum(leaf.size for leaf in jax.tree.leaves(params))
            places = jnp.asarray(np.flatnonzero(np.repeat(flags, sizes)), jnp.int32)
            inner = state.approximation.covariance
            assert inner is not None
            covariance = SubsetCovariance(inner, places, num)
            return Gaussian(model, params, covariance, predictive=self.predictive, moves=flags)

        return mixture_of_chains(build, state)


def expected_log_likelihood(
    model: Model, body: Params, approximation: AbstractApproximation, batch: Batch, *, key: PRNGKeyArray
) -> Float[Array, ""]:
    """Of all data, estimated from a batch: exact, a lower bound, or by a draw of the outputs."""
    params, covariance = _whole(body, approximation.mean), approximation.covariance
    assert covariance is not None

    def moments(x: Array) -> tuple[Float[Array, "n k"], Float[Array, "n k k"]]:
        mean, jacobian = output_jacobian(model, params, x, _flags(model))
        return mean, covariance.spread(selected_part(jacobian))

    likelihood = model.likelihood
    if not likelihood.is_estimated:
        found = likelihood.expected_log_prob(*moments(batch.x), batch.y, params.likelihood)
        if found is not None:
            return batch.total(batch.weigh(found))

    def drawn(x: Array, _: Any) -> Float[Array, "n k"]:
        mean, spread = moments(x)
        width = mean.shape[-1]
        floor = 1e-6 * jnp.trace(spread, axis1=-2, axis2=-1) / width + jnp.finfo(mean.dtype).tiny
        root = jnp.linalg.cholesky(spread + floor[:, None, None] * jnp.eye(width, dtype=mean.dtype))
        noise = jax.random.normal(derive(key, 0), mean.shape, mean.dtype)
        return mean + jnp.einsum("nij,nj->ni", root, noise)

    return batch.total(model.log_likelihood_of(drawn, params, batch, key=derive(key, 1)))


def _divergence(
    model: Model, body: Params, approximation: AbstractApproximation, temperature: Any, *, key: PRNGKeyArray
) -> Float[Array, ""]:
    """Of the last layer from its prior, less the log prior of everything else."""
    entropy, scales = approximation.entropy(), approximation.scales()
    assert entropy is not None
    assert scales is not None
    mean, none = _whole(body, approximation.mean), jax.tree.map(jnp.zeros_like, body)
    draw = _whole(body, approximation.sample(key=key))
    return -model.expected_log_prior(mean, _whole(none, scales), draw) - temperature * entropy


def _flags(model: Model) -> tuple[bool, ...]:
    """Which random leaves are in the last layer."""
    return tuple(LastLayer().select([leaf.path for leaf in model.leaves]))


def _split(model: Model, params: Params) -> tuple[Params, PyTree]:
    """Body and last layer; a leaf that is in one of them is None in the other."""
    leaves, treedef = jax.tree.flatten(params.network)
    flags = jax.tree.unflatten(treedef, _flags(model))
    last, body = eqx.partition(jax.tree.unflatten(treedef, leaves), flags)
    return model.with_weights(params, body), last


def _whole(body: Params, last: PyTree) -> Params:
    return Params(eqx.combine(body.network, last), body.likelihood, body.prior)


def _check_linear(model: Model, body: Params, last: PyTree, x: Array) -> None:
    """Raise unless outputs can be transposed as a linear function of the last layer; nothing is computed."""

    def transposed(last: PyTree, out: Array) -> PyTree:
        return jax.linear_transpose(lambda weights: model.output(_whole(body, weights), x[:2]), last)(out)

    try:
        jax.eval_shape(transposed, last, jax.eval_shape(lambda: model.output(_whole(body, last), x[:2])))
    except Exception as error:
        paths = [leaf.path for leaf, flag in zip(model.leaves, _flags(model), strict=True) if flag]
        raise ValueError(
            "network must have outputs that are linear in the weights of its last layer for VBLL(), and here something "
            f"nonlinear comes after {', '.join(paths)}: "
            "leave that to the likelihood, or use Laplace()"
        ) from error

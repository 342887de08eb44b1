"""A network, a likelihood and a prior: together, a log density."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import derive, row_keys
from marginax.data import AbstractSource, Arrays, Batch, as_arrays
from marginax.data.scaling import warn_of_unit
from marginax.files import register
from marginax.model.abstract import AbstractModel, same_shapes
from marginax.model.likelihoods import AbstractLikelihood
from marginax.model.outcome import Outcome
from marginax.model.priors import AbstractPrior, Leaf, default_prior
from marginax.model.subset import AbstractSubset, All
from marginax.nets import (
    AbstractAverage,
    AbstractNoise,
    Perturbed,
    as_network,
    call_batched,
    fan_in,
    is_weight,
    reinitialise,
    takes_key,
)
from marginax.nets.adapters import network_at

_LIKELIHOOD_STREAM = 101  # of keys for draws within a likelihood, apart from those for the network's own noise


@register("model/params")
class Params(eqx.Module):
    """All unknowns, unconstrained: random weights, the likelihood's unknowns, the prior's hyperparameters."""

    network: PyTree
    likelihood: dict[str, Any]
    prior: dict[str, dict[str, Any]]


@register("model/model")
class Model(AbstractModel):
    """What we believe: how targets come about (network and likelihood) and which weights are plausible (prior).

    Args:
        network: an Equinox module called per example, a Flax NNX module, or a pair (params, apply_fn).
        likelihood: from `mx.likelihoods`.
        prior: from `mx.priors`; by default normal, with a scale of 2.8 / sqrt(fan-in).
        subset: which weights are random; the others stay as they are in `network`.

    >>> import marginax as mx
    >>> net = mx.nets.MLP(in_size=2, hidden=(3,), out_size=1, key=0)
    >>> model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(), prior=mx.priors.Normal(scale=1.0))
    >>> [leaf.path for leaf in model.leaves]
    ['layers/0/weight', 'layers/0/bias', 'layers/1/weight', 'layers/1/bias']
    """

    network: eqx.Module
    likelihood: AbstractLikelihood
    prior: AbstractPrior
    subset: AbstractSubset

    def __init__(
        self,
        network: Any,
        likelihood: AbstractLikelihood,
        prior: AbstractPrior | None = None,
        subset: AbstractSubset | None = None,
    ):
        """Check that the pieces are what they should be; the data are checked when they come."""
        self.network = as_network(network)
        self.likelihood = likelihood
        self.prior = default_prior() if prior is None else prior
        self.subset = All() if subset is None else subset
        for name, value, kind in (
            ("likelihood", self.likelihood, AbstractLikelihood),
            ("prior", self.prior, AbstractPrior),
            ("subset", self.subset, AbstractSubset),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be an object such as those in marginax.model, got {value!r}")
        self.subset.check(self.network)
        if self.subset.num_chosen is not None:
            raise ValueError(f"subset of a model must be whole leaves, got {subset!r}: that is for mx.infer.Laplace")
        if not self.leaves:
            raise ValueError("network has no floating-point weights, so there is nothing to infer")
        self.prior.check_leaves(self.leaves)

    @property
    def leaves(self) -> list[Leaf]:
        """The random leaves of the network, in order."""
        return leaves_of(self.network, eqx.filter(self.network, self.is_random()))

    def is_random(self) -> PyTree:
        """The network's tree with True at random leaves and False elsewhere."""
        weights = is_weight(self.network)
        paths = [leaf.path for leaf in leaves_of(self.network, eqx.filter(self.network, weights))]
        chosen = iter(self.subset.select(paths) if paths else [])
        return jax.tree.map(lambda weight: weight and next(chosen), weights)

    # ---- parameters

    def init(self, source: AbstractSource) -> Params:
        """The network's own weights, and unknowns of likelihood and prior at their medians."""
        x = source.examples(1)[0]
        return self.initial(self.output_size(x.shape[1:], x.dtype))

    def initial(self, output_size: int) -> Params:
        """The same for outputs of this size."""
        hyper = {leaf.path: self.prior.at(leaf.path).init(leaf) for leaf in self.leaves}
        return Params(
            eqx.filter(self.network, self.is_random()),
            self.prior.starting_unknowns(self.likelihood.init(output_size)),
            {path: values for path, values in hyper.items() if values},
        )

    def weights(self, params: Params) -> PyTree:
        return params.network

    @property
    def network_weights(self) -> PyTree:
        return eqx.filter(self.network, self.is_random())

    def scales(self, params: Params) -> PyTree:
        return params.likelihood, params.prior

    def with_weights(self, params: Params, weights: PyTree) -> Params:
        return Params(weights, params.likelihood, params.prior)

    def reinitialise(self, params: Params, *, key: PRNGKeyArray) -> Params:
        """Fresh random weights in place of those in `params`."""
        fresh = eqx.filter(reinitialise(self.network, key=key), self.is_random())
        return eqx.tree_at(lambda p: p.network, params, fresh)

    def sample_prior(self, params: Params, *, key: PRNGKeyArray) -> Params:
        """A draw of weights and hyperparameters from the prior; the likelihood's unknowns are kept."""
        leaves, treedef = jax.tree.flatten(params.network)
        drawn, hyper = self.prior.sample_joint(self.leaves, key=key)
        values = [new.astype(old.dtype) for new, old in zip(drawn, leaves, strict=True)]
        return Params(jax.tree.unflatten(treedef, values), params.likelihood, hyper)

    @property
    def prior_centre(self) -> PyTree:
        """What draws of the weights from the prior lie around."""
        weights = self.network_weights
        values = [self.prior.at(leaf.path).centre(leaf) for leaf in self.leaves]
        return jax.tree.unflatten(jax.tree.structure(weights), values)

    def network_of(self, params: Params) -> eqx.Module:
        """The network with these weights: something you can call."""
        return eqx.combine(params.network, self.network)

    # ---- densities

    def log_prior(self, params: Params) -> Float[Array, ""]:
        """Log prior density of weights, hyperparameters and the likelihood's unknowns."""
        weights = jax.tree.leaves(params.network)
        return self._log_prior_of(params) + self.prior.log_joint(self.leaves, weights, params.prior, params.likelihood)

    def _log_prior_of(self, params: Params) -> Float[Array, ""]:
        """What the likelihood says of its own unknowns, unless the prior does."""
        return jnp.zeros(()) if self.prior.covers_likelihood else self.likelihood.log_prior(params.likelihood)

    def prior_precision(self, params: Params) -> PyTree:
        self._refuse_coupled("the precision of each weight by itself")
        return super().prior_precision(params)

    def prior_precision_matrix(self, params: Params) -> Float[Array, "size size"]:
        """Minus all second derivatives of the log prior with respect to the raveled weights."""
        flat, unravel = ravel_pytree(params.network)
        return -jax.hessian(lambda w: self.log_prior(self.with_weights(params, unravel(w))))(flat)

    def _refuse_coupled(self, what: str) -> None:
        if self.prior.couples_weights:
            raise ValueError(
                f"prior {type(self.prior).__name__} has weights that depend on each other, and here {what} is needed: "
                "use family=mx.priors.DiagonalNormal()"
            )

    def expected_log_prior(self, mean: Params, scale: Params, draw: Params) -> Float[Array, ""]:
        """Expectation of the log prior over independent weights with these moments, and `draw` as one draw of them.

        In closed form where the prior of a leaf has one (given its hyperparameters), else at the draw.
        """
        centres, scales, draws = (jax.tree.leaves(tree.network) for tree in (mean, scale, draw))
        moments = list(zip(centres, scales, strict=True))
        joint = self.prior.expected_log_joint(self.leaves, moments, draws, draw.prior, draw.likelihood)
        return self._log_prior_of(draw) + joint

    def log_likelihood(
        self,
        params: Params,
        batch: Batch,
        *,
        key: PRNGKeyArray | None = None,
        noise: tuple[AbstractNoise | None, ...] | None = None,
    ) -> Float[Array, " b"]:
        """Log probability of each target of the batch, times the weight of its row."""
        outputs = lambda x, key: self.output(params, x, key=key, noise=noise)  # noqa: E731
        return self.log_likelihood_of(outputs, params, batch, key=key)

    def log_likelihood_of(
        self, outputs: Callable[..., Array], params: Params, batch: Batch, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " b"]:
        """The same, for a function (x, key) that gives outputs; without a key, all that is drawn is always the same."""
        base, inside = jax.random.key(0), None
        if key is not None:
            base, inside = (derive(key, i, stream=_LIKELIHOOD_STREAM) for i in (0, 2))
        likelihood, output = self.likelihood, outputs(batch.x, key)
        if likelihood.is_estimated:
            found = likelihood.estimate_log_prob(output, batch.y, params.likelihood, row_keys(base, batch.index))
        else:
            found = likelihood.log_prob(output, batch.y, params.likelihood)
        if likelihood.compares_views:
            views = likelihood.views(batch.x, row_keys(base, batch.index), fresh=key is not None)
            flat = outputs(views.reshape(-1, *views.shape[2:]), inside)
            found = found + likelihood.agreement(flat.reshape(*views.shape[:2], -1), params.likelihood)
        return batch.weigh(found)

    def is_judged(self, batch: Batch) -> Bool[Array, " b"]:
        return self.likelihood.is_judged(batch.y)

    def scaled_perturbation(self, params: Params, batch: Batch, noise: Array) -> Float[Array, ""]:
        """What noise on all targets adds to the log likelihood, estimated from the noise of a batch."""
        added = self.likelihood.perturbation(self.output(params, batch.x), params.likelihood, noise)
        if batch.row_weights is not None:  # the sum of two independent noises has root two times the spread of one
            added = jnp.sqrt(batch.row_weights) * added
        return batch.total(added)

    # ---- outputs

    def output(
        self,
        params: Params,
        x: Array,
        *,
        key: PRNGKeyArray | None = None,
        noise: tuple[AbstractNoise | None, ...] | None = None,
    ) -> Float[Array, "n k"]:
        """Raw outputs for a batch of inputs; a key switches the network's own randomness (dropout) on.

        With `noise` (a rule for each layer of the network), the key draws that instead, anew for every input.
        """
        network: Any = self.network_of(params)
        if noise is not None:
            network = Perturbed(eqx.nn.inference_mode(network), noise)
        elif key is None:
            network = eqx.nn.inference_mode(network)
        keyed = key is not None and takes_key(network) and getattr(network, "stochastic", True)
        return self.output_of(network, x, key=key if keyed else None)

    def output_of(self, network: Any, x: Array, *, key: PRNGKeyArray | None = None) -> Float[Array, "n k"]:
        """Raw outputs of a network for a batch of inputs, a vector for each."""
        output = call_batched(network, x, key=key)
        if output.ndim > 2 and self.likelihood.flattens:
            return output.reshape(len(output), -1)
        return output[:, None] if output.ndim == 1 else output

    def predictive(self, params: Params, x: Array, *, key: PRNGKeyArray | None = None) -> Any:
        """The distribution of the targets at inputs x under one setting of the parameters."""
        return self.likelihood.distribution(self.output(params, x, key=key), params.likelihood)

    # ---- checks

    def output_size(self, x_shape: tuple[int, ...], dtype: Any) -> int:
        """How many outputs the network gives for an input of this shape, found without computing anything."""
        params = Params(eqx.filter(self.network, self.is_random()), {}, {})
        x = jax.ShapeDtypeStruct((2, *x_shape), dtype)
        try:
            output = eqx.filter_eval_shape(lambda p, x: self.output(p, x), params, x)
        except Exception as error:
            reason = str(error).strip().splitlines()
            raise ValueError(
                f"network cannot be called on an example of shape {x_shape} (the shape of a row of x): "
                f"{reason[0] if reason else type(error).__name__}"
            ) from error
        if not isinstance(output, jax.ShapeDtypeStruct) or output.ndim != 2 or output.shape[0] != 2:
            shape = tuple(output.shape[1:]) if isinstance(output, jax.ShapeDtypeStruct) else output
            raise ValueError(
                f"network must give a vector of outputs per example, got {shape}: for outputs at every pixel or step, "
                "make a vector of them, eqx.nn.Sequential([network, eqx.nn.Lambda(jnp.ravel)])"
            )
        return output.shape[1]

    def check_average(self, output_size: int) -> None:
        """Raise if a network that is averaged over views averages what the likelihood has not."""
        average, likelihood = getattr(self.network, "average", None), self.likelihood
        is_class = likelihood.has_logits and likelihood.outcome(output_size) is Outcome.CLASS
        if isinstance(average, AbstractAverage) and average.needs_logits and not is_class:
            raise ValueError(
                f"average must be mx.nets.Logits() for {type(likelihood).__name__} with {output_size} outputs: "
                "Probabilities() averages those of the classes of one label"
            )

    def check(self, source: AbstractSource) -> None:
        x, y = source.examples(1)[:2]
        output_size = self.output_size(x.shape[1:], x.dtype)
        self.check_average(output_size)
        self.likelihood.check_inputs(x.shape[1:])
        outcome = self.likelihood.outcome(output_size)
        if source.mixes_targets and outcome is not Outcome.REAL:
            raise ValueError(f"data must not be mixed by Mixup for {type(self.likelihood).__name__}: y must be real")
        data = getattr(source, "data", None)
        self.likelihood.check(output_size, y if data is None else np.asarray(data.y))
        if data is not None:
            self.likelihood.check_training(np.asarray(data.y))
            if not (self.likelihood.bounds or np.isfinite(data.y).all()):
                raise ValueError("y has infinite values: for targets between two bounds use CensoredGaussian()")
            warn_of_unit(np.asarray(data.x), "x", stacklevel=4)
            if outcome is Outcome.REAL:
                warn_of_unit(np.asarray(data.y), "y", stacklevel=4)

    # ---- from and to the user

    def read(self, data: Any) -> Arrays:
        if self.likelihood.flattens and isinstance(data, tuple | list) and len(data) == 2 and np.ndim(data[1]) > 2:
            return Arrays(data[0], np.reshape(data[1], (len(data[1]), -1)))
        return as_arrays(data).as_bounds() if self.likelihood.bounds else as_arrays(data)

    def start_at(self, init: Any, params: Params, num_chains: int) -> Params:
        """The weights of a network of the same architecture, for all chains."""
        try:
            given = as_network(init)
        except TypeError as error:
            raise TypeError(f"init must be a posterior or a network: {error}") from None
        if _shapes(given) != _shapes(self.network):
            raise ValueError("init must be a network of the same architecture as the model's")
        # by position, since functions within two networks need not compare equal
        flags = jax.tree.leaves(self.is_random())
        values = []
        for is_random, theirs, ours in zip(flags, jax.tree.leaves(given), jax.tree.leaves(self.network), strict=True):
            if is_random:
                values.append(jnp.broadcast_to(theirs, (num_chains, *theirs.shape)))
            elif eqx.is_inexact_array(ours) and not np.array_equal(theirs, ours):
                raise ValueError(
                    "init has other values than the model's network where weights are not random, and those stay as "
                    "they are in the model: make the model of the trained network, mx.Model(network, ...)"
                )
        network = jax.tree.unflatten(jax.tree.structure(params.network), values)
        rest = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_chains, *leaf.shape)), params)
        return self.take_over(params, self.with_weights(rest, network))

    def take_over(self, params: Params, stacked: Params) -> Params:
        """Unknowns besides the weights start at their own place where the other posterior does not have them."""
        if not isinstance(stacked, Params) or not same_shapes(params.network, stacked.network):
            raise ValueError("init must be a network or a posterior over the same random weights as the model's")
        chains = jax.tree.leaves(stacked)[0].shape[0]

        def rest(mine: Any, theirs: Any) -> Any:
            fits = jax.tree.structure(mine) == jax.tree.structure(theirs)
            return theirs if fits else jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), mine)

        return Params(stacked.network, rest(params.likelihood, stacked.likelihood), rest(params.prior, stacked.prior))

    def probes(self, source: AbstractSource) -> np.ndarray:
        """32 training inputs."""
        return np.asarray(source.examples(32)[0])

    def with_traced_numbers(self, trace: Callable[[PyTree], PyTree]) -> "Model":
        """Those of likelihood and prior; the network's are its own business."""
        return eqx.tree_at(lambda m: (m.likelihood, m.prior), self, trace((self.likelihood, self.prior)))

    def sampled(self, params: Params) -> eqx.Module:
        """Networks: one module whose array leaves have the leading axis of the parameters."""
        num = jax.tree.leaves(params.network)[0].shape[0]
        frozen = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)) if eqx.is_array(leaf) else leaf, self.network
        )
        return eqx.combine(jax.tree.map(jnp.asarray, params.network), frozen)

    @property
    def draw_name(self) -> str:
        return "network"

    @property
    def structure(self) -> list[list[Any]]:
        return [[leaf.path, list(leaf.shape)] for leaf in self.leaves]


def _shapes(network: eqx.Module) -> list[tuple[str, tuple[int, ...] | None]]:
    return [
        (jax.tree_util.keystr(path), value.shape if eqx.is_array(value) else None)
        for path, value in jax.tree_util.tree_leaves_with_path(network)
    ]


def leaves_of(network: eqx.Module, tree: PyTree) -> list[Leaf]:
    """What priors may know of the weights of a network that are in a tree of its shape."""
    found = []
    for path, value in jax.tree_util.tree_leaves_with_path(tree):
        if eqx.is_inexact_array(value):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            found.append(Leaf(name, value.shape, fan_in(network_at(network, path), value.shape)))
    return found

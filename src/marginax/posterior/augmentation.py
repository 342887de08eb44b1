"""`mx.augment`: a model, or a posterior that was fitted without, averaged over views of its inputs."""

from typing import Any

import equinox as eqx
import jax

from marginax.model import Model, Params
from marginax.model.priors import Rescaled
from marginax.nets import AbstractAverage, Augmented
from marginax.posterior.posterior import AbstractPosterior

_PREFIX = "network/"  # of the paths of weights: those of the network inside


def augment(
    target: Any,
    transforms: Any,
    *,
    num_views: int | None = 8,
    average: AbstractAverage | None = None,
    fresh: bool = True,
) -> Any:
    r"""The average over views, inside of the likelihood and in predictions.

    A model's log likelihood becomes $\log p(y \mid \mathrm{mean}_k f(T_k x))$ (logits) or $\log \mathrm{mean}_k
    p(y \mid f(T_k x))$ (probabilities), which is one of labels, unlike that of augmented data: posteriors need no
    temperature for its sake. Predictions average over views, too. A posterior that was fitted without is only given
    that (test-time augmentation).

    Training (MAP, ensembles, SWAG, that before Laplace and before samplers) draws fresh views for every example and
    step, which bounds the log likelihood from below in expectation; samplers, VI, the curvature of Laplace and
    predictions take `num_views` that are spread evenly, the same for all, and so does training with `fresh=False`: it
    then ends at the mode of just this likelihood. The cost is that of `num_views` times the examples; N stays.

    Args:
        target: an `mx.Model`, or a posterior of one. Paths of its weights begin with `network/` afterwards.
        transforms: from `mx.data`, applied in turn: `Rotate(30.0)`, `[Flip(), Shift(2.0)]`.
        num_views: views of each input; None for all members of a finite orbit, of `Flip()` and `Rotations(degrees)`.
        average: `mx.nets.Logits()`, the default, or `mx.nets.Probabilities()` for one label.
        fresh: whether training draws views at random.

    >>> import jax.numpy as jnp
    >>> import marginax as mx
    >>> model = mx.Model(mx.nets.MLP(3, (4,), 2, key=0), mx.likelihoods.Categorical())
    >>> flipped = mx.augment(model, mx.data.Flip(), num_views=None, average=mx.nets.Probabilities())
    >>> x = jnp.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    >>> one, other = flipped.output(flipped.initial(2), x)
    >>> bool(jnp.allclose(one, other))
    True
    """
    if isinstance(target, Model):
        network = Augmented(target.network, transforms, num_views, average, fresh)
        return eqx.tree_at(lambda m: (m.network, m.prior), target, (network, _renamed(target.prior)))
    if not isinstance(target, AbstractPosterior) or not isinstance(target.model, Model):
        raise TypeError(f"target must be an mx.Model or a posterior of one, got {type(target).__name__}")
    if isinstance(target.model.network, Augmented):
        raise ValueError("target is augmented already, so that its predictions are averages over views")
    model = augment(target.model, transforms, num_views=num_views, average=average, fresh=fresh)
    if target.spec is not None:
        model.check_average(model.output_size(target.spec.x_shape, float))
    structure = jax.tree.structure(model.network_weights)

    def inside(node: Any) -> Any:
        if isinstance(node, Model):
            return augment(node, transforms, num_views=num_views, average=average, fresh=fresh)
        if isinstance(node, Params):
            network = jax.tree.unflatten(structure, jax.tree.leaves(node.network))
            return Params(network, node.likelihood, {_PREFIX + path: hyper for path, hyper in node.prior.items()})
        return node

    return jax.tree.map(inside, target, is_leaf=lambda node: isinstance(node, Model | Params))


def _renamed(prior: Any) -> Any:
    if not isinstance(prior, Rescaled):
        return prior
    return Rescaled(prior.prior, {_PREFIX + path: factor for path, factor in prior.log_factors.items()})

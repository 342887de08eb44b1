"""New data for a posterior that is there already: `posterior.update(data, key=...)`."""

import os
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from marginax._keys import Key
from marginax.data import AbstractSource, Arrays, DataSpec
from marginax.data.arrays import as_targets
from marginax.infer.catalogue import as_method
from marginax.infer.fit import fit
from marginax.infer.hooks import AbstractHook
from marginax.infer.method import AbstractMethod
from marginax.model import Model
from marginax.posterior import AbstractNormalFamily, AbstractPosterior, FromPosterior
from marginax.posterior.normals import core_of


def update(
    posterior: AbstractPosterior,
    data: Any,
    *,
    key: Key,
    method: AbstractMethod | str | None = None,
    scale: Any = 1.0,
    family: AbstractNormalFamily | None = None,
    num_chains: int | None = None,
    hooks: Sequence[AbstractHook] = (),
    directory: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> AbstractPosterior:
    """The posterior after new data: see `AbstractPosterior.update`."""
    chosen = method_of(posterior) if method is None else as_method(method)
    model = updated_model(posterior, scale=scale, family=family)
    if isinstance(chosen, AbstractMethod):
        prepared = chosen.prepare_model(model)
        if not isinstance(prepared, Model) or not isinstance(prepared.prior, FromPosterior):
            raise ValueError(
                f"method {type(chosen).__name__} brings a prior of its own, in place of the posterior so far: pass "
                "another method=, such as mx.infer.VI()"
            )
    chains = posterior.record.num_chains if num_chains is None and posterior.record.num_chains > 1 else num_chains
    options = {"hooks": hooks, "directory": directory, "progress": progress}
    return fit(model, in_its_units(posterior.spec, data), chosen, key=key, num_chains=chains, **options)


def method_of(posterior: AbstractPosterior) -> AbstractMethod:
    """The method that a posterior was found by."""
    method = posterior.record.configuration
    if not isinstance(method, AbstractMethod):
        raise ValueError(
            "this posterior does not know the method that it was found by (it is of an earlier version, or the method "
            "is not registered): pass method="
        )
    return method


def updated_model(
    posterior: AbstractPosterior, *, scale: Any = 1.0, family: AbstractNormalFamily | None = None
) -> Model:
    """The posterior's model with the posterior as prior, starting at its centre."""
    model = posterior.model
    if not isinstance(model, Model):
        raise TypeError(
            f"only posteriors of an mx.Model can be updated, got one of {type(model).__name__}: closed-form estimators "
            "have partial_fit"
        )
    prior = FromPosterior(posterior, scale, family)
    return Model(network_at(posterior), model.likelihood, prior, model.subset)


def network_at(posterior: AbstractPosterior) -> Any:
    """The network with weights at the centre of the posterior."""
    centre = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf[0])), posterior.starting_points(1).network)
    return eqx.combine(centre, core_of(posterior.model).network)


def in_its_units(spec: DataSpec | None, data: Any) -> Any:
    """New data scaled as the first were: they would mean something else by their own means and deviations."""
    scaling = None if spec is None else spec.scaling
    if spec is None or scaling is None:
        return data
    given = data.spec.scaling if isinstance(data, Arrays | AbstractSource) else None
    if given is not None:
        theirs, ours = jax.tree.leaves(given), jax.tree.leaves(scaling)
        if len(theirs) == len(ours) and all(np.array_equal(*pair) for pair in zip(theirs, ours, strict=True)):
            return data
        raise ValueError(
            "data must be in the units of the first data, whose scaling the posterior keeps, got data standardised by "
            "themselves: pass (x, y) as they are"
        )
    if isinstance(data, AbstractSource):
        raise TypeError(f"data must be a pair (x, y), which the posterior scales, got {type(data).__name__}")
    pair, weight, bounds = data, None, False
    if isinstance(data, Arrays):
        pair, weight, bounds = (data.x, data.y), data.weight, data.bounds
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"data must be a pair (x, y), got {type(data).__name__}")
    x, y = scaling.transform_x(np.asarray(spec.check_x(pair[0]), np.float64)), as_targets(pair[1])
    return Arrays(x, scaling.transform_y(y), scaling=scaling, weight=weight, bounds=bounds)

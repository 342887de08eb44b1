"""A probabilistic program of NumPyro as a model."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._compilation import compiled
from marginax._extras import require
from marginax._kernels.blocks import fits_a_block
from marginax._keys import Key, as_key
from marginax.data import AbstractSource, Arrays, Batch, Rows
from marginax.files import register
from marginax.model.abstract import AbstractModel, Params
from marginax.model.program.enumeration import sum_out
from marginax.model.program.layout import Layout, analyse, as_arguments

_MOST_ROWS = 100_000  # that are looked at before anything is fitted
_NUM_STARTS = 20


@register("model/program")
class Program(AbstractModel):
    """A NumPyro program wherever a model is accepted.

    Data are its arguments by name, arrays with one row per example; sites inside the plate over these rows are the
    likelihood, one term for each example, and minibatches are counted N/B times. A program without such a plate, or
    with unknowns inside of it that no guide draws from the rows, sees all data at once. Unknowns are unconstrained
    while they are inferred; `posterior.sites` has them as the program does. Discrete sites are summed out. What
    `numpyro.param` declares keeps its first value, except under `mx.infer.SVI`, which trains it.

    Args:
        model: a function that calls `numpyro.sample` and friends.
        settings: arguments that are not data: sizes, hyperparameters, arrays that all examples share.

    >>> import marginax as mx
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> def coin(flips):
    ...     prob = numpyro.sample("heads_prob", dist.Beta(2.0, 2.0))
    ...     with numpyro.plate("flip", len(flips)):
    ...         numpyro.sample("heads", dist.Bernoulli(prob), obs=flips)
    >>> posterior = mx.fit(mx.Program(coin), {"flips": np.array([1, 1, 0, 1])}, mx.infer.NUTS(), key=0)
    >>> posterior.sites["heads_prob"].shape
    (4, 500)
    """

    model: Callable[..., Any]
    settings: dict[str, Any]
    points: dict[str, Any]
    layout: Layout | None
    guide: Callable[..., Any] | None = None

    def __init__(self, model: Callable[..., Any], /, **settings: Any):
        """Check the names; the data are looked at when they come."""
        if not callable(model):
            raise TypeError(f"model must be a function that calls numpyro.sample, got {model!r}")
        require("numpyro")
        self.model, self.points, self.layout, self.guide = model, {}, None, None
        self.settings = {n: jnp.asarray(v) if isinstance(v, np.ndarray) else v for n, v in settings.items()}
        if unknown := [name for name in settings if name not in parameters_of(model)]:
            raise TypeError(f"settings must be arguments of the program, got {unknown[0]!r}: it takes {_list(model)}")

    # ---- data

    def bind(self, data: Any) -> "Program":
        """The program for data of these shapes: which sites it has, and which plate is that of the examples."""
        return self._with(analyse(self, data))

    def guided_by(self, guide: Callable[..., Any]) -> "Program":
        """The program before it sees its data, whose examples are told apart even if they have unknowns of their own.

        As long as the guide draws these from the rows that it is given: without parameters for each example.
        """
        return eqx.tree_at(lambda p: p.guide, self, guide, is_leaf=lambda node: node is None)

    def _with(self, layout: Layout) -> "Program":
        """The program for data of known shapes; which guide will draw its unknowns has done its part."""
        parts = (layout, None)
        return eqx.tree_at(lambda p: (p.layout, p.guide), self, parts, is_leaf=lambda node: node is None)

    def rebind(self, structure: Any) -> "Program":
        return self._with(Layout.from_structure(structure))

    def read(self, data: Any) -> Arrays | Rows:
        arguments = as_arguments(self, data)
        if self.known.splits or not arguments:
            return Rows(arguments or None)
        return Rows({name: array[None] for name, array in arguments.items()})

    @property
    def sees_all_at_once(self) -> bool:
        return not self.known.splits

    def check(self, source: AbstractSource) -> None:
        """Observed values must be possible, and the density finite at some start."""
        num = min(_MOST_ROWS, source.spec.num_examples)
        batch = Batch(source.examples(num), jax.device_put(np.arange(num)), num)
        real = jax.dtypes.canonicalize_dtype(float)
        params = {name: jax.device_put(np.zeros(shape, real)) for name, shape in self.known.unknowns}  # without a draw
        impossible, blamed, finite = jax.tree.map(np.asarray, _look(self, params, batch))
        for name, rows in impossible.items():
            if rows.any():
                where = f", the first in row {int(np.argwhere(rows)[0][0])}" if rows.ndim else ""
                raise ValueError(f"site {name!r} observes values that its distribution cannot have{where}")
        if not finite and not self._is_finite_elsewhere(params, batch):
            names = [name for name, is_bad in blamed.items() if is_bad]
            where = f": it is not at site {names[0]!r}" if names else ""
            raise ValueError(f"log density must be finite at one of {_NUM_STARTS + 1} starts{where}")

    def _is_finite_elsewhere(self, params: Params, batch: Batch) -> bool:
        keys = jax.random.split(jax.random.key(0), _NUM_STARTS)
        return any(_look(self, self.reinitialise(params, key=key), batch)[2] for key in keys)

    @property
    def known(self) -> Layout:
        """What is known of the data, or an error that says how to find out."""
        if self.layout is None:
            raise ValueError(
                "the program has not seen its data: mx.fit shows them to it, and so does program.bind(data)"
            )
        return self.layout

    # ---- density

    def init(self, source: AbstractSource) -> Params:
        """Medians of a few draws from the prior, which are the same every time."""
        return _medians(self, jax.random.key(0))

    def reinitialise(self, params: Params, *, key: PRNGKeyArray) -> Params:
        """Anywhere in a box around the origin."""
        radius = require("marginax.model.program.sites").RADIUS
        keys = dict(zip(params, jax.random.split(key, len(params)), strict=True))
        return {
            name: jax.random.uniform(keys[name], leaf.shape, leaf.dtype, -radius, radius)
            for name, leaf in params.items()
        }

    def log_prior(self, params: Params) -> Float[Array, ""]:
        """Of the unknowns without their bounds, so with a Jacobian."""
        if self.known.prior_sees_data:
            return jnp.zeros(())
        return _total(self.density(params, self.known.placeholders()).prior)

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        return self._prior_and_likelihood(params, batch)[1]

    def log_density(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """Prior and likelihood from one run of the program, unless its rows are many and taken block by block."""
        if not fits_a_block(batch.size):
            return self.log_prior(params) + self.scaled_log_likelihood(params, batch, key=key)
        prior, likelihood = self._prior_and_likelihood(params, batch)
        return prior + batch.total(likelihood)

    def _prior_and_likelihood(self, params: Params, batch: Batch) -> tuple[Float[Array, ""], Float[Array, " b"]]:
        layout, arguments = self.known, self.arguments_of(batch.data)
        found = self.density(params, arguments if layout.splits else {k: v[0] for k, v in arguments.items()})
        prior, factors = _total(found.prior), list(found.factors.values())
        if layout.splits:
            plates = frozenset({(layout.axis, batch.size)})
            return prior, sum_out(factors, found.variables, keep=plates)
        likelihood = sum_out(factors, found.variables) if factors else jnp.zeros(())
        return (jnp.zeros(()), (likelihood + prior)[None]) if layout.prior_sees_data else (prior, likelihood[None])

    def density(self, params: Params, arguments: Mapping[str, Any], fixed: Mapping[str, Any] | None = None) -> Any:
        """What the sites add to the log density, one by one; discrete ones are summed out unless they are `fixed`."""
        rows = self.rows(arguments)
        given = self.settings | dict(arguments)
        key, rank = jax.random.key(0), self.known.rank
        density = require("marginax.model.program.density").density
        params = self.known.local_zeros(rows.num) | params
        return density(self.model, given, params, self.points, rows, rank, key, fixed)

    def rows(self, arguments: Mapping[str, Any]) -> Any:
        """The examples among some arguments."""
        num = next((jnp.shape(value)[0] for value in arguments.values()), 1)
        return require("marginax.model.program.sites").Rows(self.known.plate, num)

    def arguments_of(self, tree: PyTree) -> dict[str, Any]:
        """The arguments in a batch: by name, or in the order in which the program takes them."""
        if tree is None or isinstance(tree, dict):
            return tree or {}
        names = [name for name in parameters_of(self.model) if name not in self.settings]
        return dict(zip(names, tree, strict=False))

    # ---- from and to the user

    def sites(self, params: Params) -> dict[str, Array]:
        """Values of the unknowns as the program has them, and of deterministic sites that do not depend on data."""
        found = self.density(params, self.known.placeholders()).sites
        return {name: found[name]["value"] for name in self.known.sites}

    def sampled(self, params: Params) -> dict[str, Array]:
        """Values of the sites."""
        return jax.vmap(self.sites)(jax.tree.map(jnp.asarray, params))

    def as_arguments(self, data: Any) -> dict[str, np.ndarray]:
        """Data as arrays by name, checked."""
        return as_arguments(self, data)

    def pointwise(self, params: Params, arguments: Mapping[str, Any]) -> dict[str, Array]:
        """Log likelihood of every observed value; where sites are summed out, of every example."""
        found = self.density(params, arguments)
        if not found.variables and not found.has_chains:
            sites = {name: site for name, site in found.sites.items() if name in found.factors and site["is_observed"]}
            return {name: site["fn"].log_prob(site["value"]) for name, site in sites.items()}
        plates = frozenset({(self.known.axis, self.rows(arguments).num)}) if self.known.splits else frozenset()
        return {"log_likelihood": sum_out(list(found.factors.values()), found.variables, keep=plates)}

    def unconstrained(self, values: Mapping[str, Array], arguments: Mapping[str, Any] | None = None) -> Params:
        """Unknowns without their bounds, from values of the sites; those of each example go with some arguments."""
        return _unconstrained(self, dict(values), self.known.placeholders() if arguments is None else arguments)

    def prior_predictive(self, num: int, arguments: Any = None, *, key: Key) -> dict[str, np.ndarray]:
        """Draws of all sites before any data are seen: arrays with a leading axis of `num`.

        Args:
            num: of draws.
            arguments: of the program by name, such as inputs; what it observes may be left out.
            key: int seed or JAX key.

        >>> import marginax as mx
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> program = mx.Program(lambda: numpyro.sample("rate", dist.Gamma(2.0)))
        >>> program.prior_predictive(5, key=0)["rate"].shape
        (5,)
        """
        sampling = require("marginax.model.program.sampling")
        return sampling.draw_sites(self, None, arguments, num, key=as_key(key))

    def take_over(self, params: Params, stacked: Params) -> Params:
        if set(params) != set(stacked):
            raise ValueError(f"init must have the unknowns of the program, {', '.join(params)}, got {list(stacked)}")
        return {name: stacked[name] for name in params}

    def start_at(self, init: Any, params: Params, num_chains: int) -> Params:
        """From values of the sites, as the program has them, for all chains."""
        if not isinstance(init, Mapping) or set(init) != set(params):
            raise ValueError(
                f"init must be a posterior, or a dict with values of {', '.join(params)}, got {init!r:.80}"
            )
        free = self.unconstrained({name: jnp.asarray(value, float) for name, value in init.items()})
        if bad := [name for name, value in free.items() if not bool(jnp.all(jnp.isfinite(value)))]:
            raise ValueError(f"init must be inside the support of every site, but {bad[0]!r} is not")
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_chains, *leaf.shape)), free)

    @property
    def structure(self) -> list[list[Any]]:
        return [] if self.layout is None else self.layout.to_structure()


def parameters_of(model: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Arguments of a program."""
    return dict(inspect.signature(model).parameters)


def _list(model: Callable[..., Any]) -> str:
    return ", ".join(parameters_of(model)) or "no arguments"


def _total(terms: Mapping[str, Array]) -> Float[Array, ""]:
    return sum(terms.values(), jnp.zeros(()))


@eqx.filter_jit
def _unconstrained(program: Program, values: dict[str, Array], arguments: Mapping[str, Any]) -> Params:
    return require("marginax.model.program.sampling").unconstrained(program, values, arguments)


@partial(compiled, once=True)
def _medians(program: Program, key: PRNGKeyArray) -> Params:
    draw = require("marginax.model.program.sampling").draw_prior
    draws = jax.vmap(lambda k: draw(program, k))(jax.random.split(key, 15))
    return jax.tree.map(lambda leaf: jnp.nan_to_num(jnp.sort(leaf, axis=0)[7]), draws)


@partial(compiled, once=True)
def _look(program: Program, params: Params, batch: Batch) -> tuple[dict[str, Array], dict[str, Array], Array]:
    """Which observed values are impossible, which sites are not finite, and whether all together is."""
    arguments = program.arguments_of(batch.data)
    arguments = arguments if program.known.splits else {name: value[0] for name, value in arguments.items()}
    found = program.density(params, arguments)
    terms = found.prior | {name: factor.values for name, factor in found.factors.items()}
    blamed = {name: ~jnp.all(jnp.isfinite(values)) for name, values in terms.items()}
    rest = sum_out(list(found.factors.values()), found.variables) if found.factors else jnp.zeros(())
    return found.impossible, blamed, jnp.isfinite(_total(found.prior) + rest)

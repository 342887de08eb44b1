"""What every method must do, whatever it computes: `check_method` runs it small and looks from all sides."""

import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from marginax._keys import Key
from marginax.files import register
from marginax.infer import AbstractHook, AbstractMethod, Event, Verdict, fit, resume
from marginax.model import Model, Params, likelihoods, priors
from marginax.nets import MLP, Function
from marginax.posterior import AbstractPosterior, Draws, load
from marginax.testing.linear import linear_regression
from marginax.testing.problem import HasModelAndData, single

_CHUNK = 3  # small and odd, so that chunks end at steps that mean nothing to the method


def check_method(
    method: AbstractMethod,
    problem: HasModelAndData | None = None,
    *,
    num_chains: int = 3,
    key: Key = 0,
    hooks: Sequence[AbstractHook] = (),
    any_network: bool = True,
) -> None:
    """Raise an AssertionError unless the method keeps the promises that all methods make.

    Checked are: parameters in a dict and in one array; one compilation per phase, none for another number; a result
    that depends neither on the size of chunks nor on an interruption in each phase (bit for bit); axes (chain, draw);
    no NaN; spread, or a summary that admits there is none; the same predictions after saving and loading; a chain that
    starts at NaN is dropped and named while the others stay the same, bit for bit.

    Args:
        method: with a small budget, about 50 steps per phase.
        problem: what to run it on, anything with a `model` and `data`; by default a small tanh network. It should not
            be a linear model for a method whose chains all end at the mode.
        num_chains: at least 2.
        key: seed.
        hooks: to run the method with.
        any_network: False for a method that needs layers it knows; it is not run on networks made of functions then.

    >>> import marginax as mx
    >>> mx.testing.check_method(mx.infer.MAP(num_epochs=5, batch_size=None))
    """
    if num_chains < 2:
        raise ValueError(f"num_chains must be at least 2, so that one can go wrong alone, got {num_chains}")
    model, data = _small_network() if problem is None else (problem.model, problem.data)
    case = _Case(type(method).__name__, model, data, method, num_chains, key, tuple(hooks))
    reference = case.fit()
    _check_axes(case, reference)
    _check_finite(case, reference)
    _check_spread(case, reference)
    _check_saved(case, reference)
    _same(case, reference, case.fit(chunk_size=_CHUNK), f"chunks of {_CHUNK} steps")
    _check_resume(case, reference)
    _check_dropped_chain(case, reference)
    if any_network:
        _check_compilations(case)
        _check_single_chain(case)


@dataclass(frozen=True)
class _Case:
    """A method at work."""

    name: str
    model: Model
    data: Any
    method: AbstractMethod
    num_chains: int
    key: Key
    hooks: tuple[AbstractHook, ...]

    @property
    def inputs(self) -> Any:
        return self.data[0][:7]

    def starts(self) -> Params:
        """A starting point of its own for every chain, with axes (chain, draw)."""
        x = jnp.asarray(self.data[0])
        params = self.model.initial(self.model.output_size(x.shape[1:], x.dtype))
        rng = np.random.default_rng(5)
        return jax.tree.map(
            lambda leaf: np.asarray(leaf + 0.3 * rng.normal(size=(self.num_chains, 1, *leaf.shape)), leaf.dtype),
            jax.tree.map(np.asarray, params),
        )

    def fit(self, *, hooks: tuple[AbstractHook, ...] = (), **options: Any) -> AbstractPosterior:
        options = {"key": self.key, "num_chains": self.num_chains, "progress": False, **options}
        if "init" not in options:
            options["init"] = Draws(model=self.model, params=self.starts())
        return fit(self.model, self.data, self.method, hooks=(*self.hooks, *hooks), **options)

    def require(self, condition: Any, text: str) -> None:
        if not condition:
            raise AssertionError(f"{self.name}: {text}")


# ---- one result


def _check_axes(case: _Case, posterior: AbstractPosterior) -> None:
    record = posterior.record
    if isinstance(posterior, Draws):
        for path, leaf in jax.tree_util.tree_leaves_with_path(posterior.params):
            wanted = (case.num_chains, posterior.num_draws)
            case.require(
                leaf.shape[:2] == wanted,
                f"draws of {jax.tree_util.keystr(path)} have shape {leaf.shape}, which should begin with {wanted}",
            )
    shapes = [(leaf.shape, like.shape) for leaf, like in zip(*_sampled(posterior, 5), strict=True)]
    wrong = [shape for shape, like in shapes if shape != (5, *like)]
    case.require(not wrong, f"sample_params(5) gives leaves of shapes {wrong} without a leading axis of 5")
    for phase, info in record.info.items():
        for name, values in info.items():
            wanted = (case.num_chains, record.num_steps[phase])
            case.require(
                values.shape[:2] == wanted,
                f"info {name!r} of phase {phase!r} has shape {values.shape}, which should begin with {wanted}",
            )


def _check_finite(case: _Case, posterior: AbstractPosterior) -> None:
    leaves, _ = _sampled(posterior, 5)
    case.require(all(np.isfinite(leaf).all() for leaf in leaves), "draws are not finite")
    for name, values in _predicted(posterior, case.inputs).items():
        case.require(np.isfinite(values).all(), f"{name} of predictions is not finite")


def _check_spread(case: _Case, posterior: AbstractPosterior) -> None:
    if posterior.is_point:
        return
    outputs = np.asarray(_outputs(posterior.sample(16, key=2), jnp.asarray(case.inputs)))
    size = np.abs(outputs).max()
    case.require(
        outputs.std(axis=0).max() > 1e-6 * size,
        "all draws give the same predictions, so the posterior has no spread",
    )


def _check_saved(case: _Case, posterior: AbstractPosterior) -> None:
    before = _predicted(posterior, case.inputs)
    model = case.method.prepare_model(case.model)  # with the prior that a method may bring
    with tempfile.TemporaryDirectory() as folder:
        posterior.save(Path(folder) / "posterior")
        after = _predicted(load(Path(folder) / "posterior", model=model), case.inputs)
    for name, values in before.items():
        case.require(np.array_equal(values, after[name]), f"{name} of predictions changed by saving and loading")


# ---- two results that must be the same


def _check_resume(case: _Case, reference: AbstractPosterior) -> None:
    places = tuple((name, max(1, num_steps // 2)) for name, num_steps in reference.record.num_steps.items())
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        hook = InterruptAt(places)
        found = _interrupted(lambda: case.fit(hooks=(hook,), directory=run, chunk_size=_CHUNK))
        for name, step in places:
            where = f"step {step} of phase {name!r}"
            case.require(found is None or not found.record.finished, f"an interruption at {where} had no effect")
            found = _interrupted(lambda: resume(run, model=case.model, progress=False))
    if found is None:
        raise AssertionError(f"{case.name}: a run that was interrupted and resumed gave no posterior")
    case.require(found.record.finished, "a run that was interrupted and resumed did not finish")
    _same(case, reference, found, "being interrupted in each phase and resumed")


def _interrupted(run: Callable[[], AbstractPosterior]) -> AbstractPosterior | None:
    """What a run gives when it is interrupted: a part of the answer, or nothing if there is none yet."""
    try:
        return run()
    except KeyboardInterrupt:
        return None


def _check_dropped_chain(case: _Case, reference: AbstractPosterior) -> None:
    bad = 1
    poisoned = case.starts()
    jax.tree.leaves(poisoned)[0][bad] = np.nan
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = case.fit(init=Draws(model=case.model, params=poisoned))
    heard = any(issubclass(w.category, RuntimeWarning) and f"chain {bad} " in str(w.message) for w in caught)
    case.require(heard, f"chain {bad} started at NaN, and no RuntimeWarning said so")
    dropped = found.record.dropped_chains
    case.require(dropped == (bad,), f"chain {bad} started at NaN, but record.dropped_chains is {dropped}")
    named = any(f"chain {bad} " in text for text in found.summary().warnings)
    case.require(named, f"chain {bad} was dropped, and summary() does not say so")
    good = [chain for chain in range(case.num_chains) if chain != bad]
    before, after = _by_chain(reference), _by_chain(found)
    for name, values in before.items():
        steps = min(values.shape[1], after[name].shape[1])  # the good chains may stop earlier without the bad one
        case.require(
            np.array_equal(values[good][:, :steps], after[name][:, :steps], equal_nan=True),
            f"{name} of the other chains changed because chain {bad} was NaN",
        )


def _same(case: _Case, reference: AbstractPosterior, other: AbstractPosterior, cause: str) -> None:
    before, after = _arrays(reference), _arrays(other)
    case.require(before.keys() == after.keys(), f"the posterior has other parts after {cause}")
    for name, values in before.items():
        same = values.shape == after[name].shape and np.array_equal(values, after[name], equal_nan=True)
        case.require(same, f"{name} changed by {cause}")


# ---- other networks, and compilations


def _check_compilations(case: _Case) -> None:
    """A dict of parameters; the network counts how often it is traced."""
    calls = []

    def network(params: dict[str, Any], x: Any) -> Any:
        calls.append(None)
        return jnp.tanh(x @ params["hidden"]["weight"]) @ params["output"] + params["bias"]

    rng = np.random.default_rng(3)
    params = {
        "hidden": {"weight": jnp.asarray(rng.normal(size=(1, 4)), float)},
        "output": jnp.asarray(rng.normal(size=(4, 1)), float),
        "bias": jnp.zeros(1),
    }
    data = _curve()
    for scale in (0.3, 0.4):
        model = Model(Function(params, network), likelihoods.Gaussian(scale), priors.Normal(1.0))
        counts: list[tuple[str, int]] = []
        small = _Case(f"{case.name} with a dict of parameters", model, data, case.method, case.num_chains, case.key, ())
        posterior = small.fit(init=None, hooks=(_Counter(calls, counts),), chunk_size=_CHUNK)
        _check_axes(small, posterior)
        _check_finite(small, posterior)
        for phase in dict(counts):
            seen = [count for name, count in counts if name == phase]
            case.require(
                seen[0] == seen[-1],
                f"phase {phase!r} was traced again after its first chunk ({seen[-1] - seen[0]} more network calls)",
            )
        if scale != 0.3:
            case.require(
                counts[-1][1] == 0,
                "another noise scale led to another compilation, though it is only another number",
            )


def _check_single_chain(case: _Case) -> None:
    """Parameters in one array; one chain has spread of its own, or says that it is a point."""
    linear = linear_regression(2)
    name = f"{case.name} with one chain and parameters in one array"
    small = _Case(name, linear.model, linear.data, case.method, 1, case.key, ())
    posterior = small.fit(init=None)
    _check_axes(small, posterior)
    _check_finite(small, posterior)
    _check_spread(small, posterior)
    if posterior.is_point:
        warned = any("point estimate" in text for text in posterior.summary().warnings)
        small.require(warned, "the posterior is a single network, and summary() does not call it a point estimate")


class _Counter(AbstractHook):
    """Notes how often a network has been called since the run began."""

    calls: list[None]
    counts: list[tuple[str, int]]

    def begin(self, model: Model, states: Any) -> None:
        """Start from zero: what came before was not the loop."""
        self.calls.clear()

    def after_chunk(self, memory: Any, event: Event) -> Verdict:
        self.counts.append((event.phase, len(self.calls)))
        return Verdict(memory, event.states)


@register("testing/interrupt_at")
class InterruptAt(AbstractHook):
    """Press Ctrl-C at given steps of given phases; for tests of what happens then.

    Args:
        places: pairs (phase, step).
    """

    places: tuple[tuple[str, int], ...]

    def every(self, phase: str, source: Any) -> int | None:
        return dict(self.places).get(phase)

    def after_chunk(self, memory: Any, event: Event) -> Verdict:
        """Strike once: a resumed run begins after the step."""
        if (event.phase, event.step) in self.places:
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("InterruptAt works in the main thread only, where Python handles signals")
            signal.raise_signal(signal.SIGINT)
        return Verdict(memory, event.states)


# ---- small things


def _curve() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    x = single(rng.uniform(-2, 2, size=(25, 1)))
    return x, single(np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=25))


def _small_network() -> tuple[Model, tuple[np.ndarray, np.ndarray]]:
    network = MLP(in_size=1, hidden=(5,), out_size=1, activation=jnp.tanh, key=0)
    return Model(network, likelihoods.Gaussian(), priors.Normal(1.0)), _curve()


def _sampled(posterior: AbstractPosterior, num: int) -> tuple[list[np.ndarray], list[Any]]:
    """Leaves of some draws, and leaves of one setting of the parameters."""
    params = posterior.sample_params(num, key=jax.random.key(1))
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    return leaves, [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in leaves]


def _predicted(posterior: AbstractPosterior, x: Any) -> dict[str, np.ndarray]:
    prediction = posterior.predict(x)
    names = ("probs",) if hasattr(prediction, "probs") else ("mean", "std")
    return {name: np.asarray(getattr(prediction, name)) for name in names}


@eqx.filter_jit
def _outputs(networks: Any, x: Any) -> Any:
    return eqx.filter_vmap(lambda network: jax.vmap(network)(x))(networks)


def _arrays(posterior: AbstractPosterior) -> dict[str, np.ndarray]:
    """Everything in a posterior but how long it took."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(posterior):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if eqx.is_array_like(leaf) and "/seconds" not in f"/{name}":
            keys = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            found[name] = np.asarray(jax.random.key_data(leaf) if keys else leaf)
    return found


def _by_chain(posterior: AbstractPosterior) -> dict[str, np.ndarray]:
    """What has an axis of chains, by name."""
    found = {
        f"info {name!r} of phase {phase!r}": values
        for phase, info in posterior.record.info.items()
        for name, values in info.items()
    }
    if isinstance(posterior, Draws):
        for path, leaf in jax.tree_util.tree_leaves_with_path(posterior.params):
            found[f"draws of {jax.tree_util.keystr(path, simple=True, separator='/')}"] = np.asarray(leaf)
    return found

r"""Hidden Markov models: what is observed depends on a state that moves from step to step, unseen.

$z_1 \sim \pi, \quad z_t \mid z_{t-1} = j \sim A_j, \quad x_t \mid z_t = k \sim p(x \mid \theta_k)$

An example is a whole sequence. Sequences may differ in length, and steps may be missing.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from jaxtyping import Key as KeyOf

from marginax._keys import Key, as_key
from marginax.data import AbstractSource, Batch, Rows
from marginax.files import register
from marginax.latent.chain import Chain, draw_path, log_total, most_probable, smooth
from marginax.latent.family import AbstractEmissions, AbstractFamily
from marginax.latent.mixture import as_emissions, check_num, described, first_guess
from marginax.latent.queries import AbstractQueries, as_batch, averaged
from marginax.latent.simplex import Dirichlet
from marginax.model.abstract import Params
from marginax.model.conjugate import AbstractConjugate, Expected, naturals

_ONE = Chain(None, None, -1, 0)  # type: ignore[arg-type]  # axes of sequences
_MOST_SEQUENCES = 1000  # that default priors and first guesses look at


@dataclass(frozen=True)
class HMMQueries(AbstractQueries):
    """What posteriors of hidden Markov models can be asked about sequences.

    States of several sequences come as one array (sequence, step, ...), and past the length of a sequence they are 0.
    """

    def states(self, data: Any) -> np.ndarray:
        """Probability of each state at each step given the whole sequence (smoothing), (sequence, step, K)."""
        model, batch = self._read(data)
        return averaged(model.smoothed, naturals(self.posterior), batch.data)

    def path(self, data: Any) -> np.ndarray:
        """The most probable path of states (Viterbi), under parameters in the middle of the posterior."""
        model, batch = self._read(data)
        params = jax.tree.map(lambda leaf: leaf[0], self.posterior.starting_points(1))
        return _inside(_paths(model, params, batch.data), batch)

    def sample_paths(self, data: Any, num: int, *, key: Key) -> np.ndarray:
        """Paths drawn given the sequences, each under parameters of its own draw, (num, sequence, step)."""
        model, batch = self._read(data)
        for_params, for_paths = jax.random.split(as_key(key))
        params = self.posterior.sample_params(num, key=for_params)

        return _inside(_drawn_paths(model, params, batch.data, jax.random.split(for_paths, num)), batch)

    def transitions(self) -> np.ndarray:
        """The mean transition matrix, from rows to columns."""
        return self.mean_of(_transitions)

    def components(self) -> dict[str, np.ndarray]:
        """Means and covariances, rates, or probabilities of the states, in the middle of the posterior."""
        model: Any = self.posterior.model
        params = jax.tree.map(lambda leaf: leaf[0], self.posterior.starting_points(1))
        return described(model.emissions, params["emissions"])

    def simulate(self, num_steps: int, *, key: Key) -> tuple[np.ndarray, np.ndarray]:
        """A new sequence: its states, and its observations."""
        model: Any = self.posterior.model
        for_params, for_data = jax.random.split(as_key(key))
        params = jax.tree.map(lambda leaf: leaf[0], self.posterior.sample_params(1, key=for_params))
        states, x = model.simulate(params, num_steps, key=for_data)
        return np.asarray(states), np.asarray(x)

    def _read(self, data: Any) -> tuple[Any, Batch]:
        model: Any = self.posterior.model
        return model, as_batch(model, data)


@eqx.filter_jit
def _paths(model: "HMM", params: Params, rows: PyTree) -> Array:
    return jax.vmap(most_probable, (_ONE,))(model.chains(model.natural(params), rows))


@eqx.filter_jit
def _drawn_paths(model: "HMM", params: Params, rows: PyTree, keys: KeyOf[Array, " num"]) -> Array:
    def draw(pair: tuple[Params, PRNGKeyArray]) -> Array:
        chains = model.chains(model.natural(pair[0]), rows)
        keys = jax.random.split(pair[1], len(chains.length))
        return jax.vmap(lambda chain, key: draw_path(chain, key=key), (_ONE, 0))(chains, keys)

    return jax.lax.map(draw, (jax.tree.map(jnp.asarray, params), keys))


def _inside(paths: Array, batch: Batch) -> np.ndarray:
    inside = jnp.arange(paths.shape[-1]) < batch.data["length"][:, None]
    return np.asarray(jnp.where(inside, paths, 0))


def _transitions(params: PyTree, model: Any) -> Array:
    return jnp.exp(model.transitions_prior.natural(params["transitions"]))


@register("latent/hmm")
class HMM(AbstractConjugate):
    """A hidden Markov model, with paths of states summed out.

    Data are a list of sequences (arrays with a leading axis of steps), one array (sequence, step, ...), or a dict with
    "x" (such an array) and "mask" (sequence, step), which is False where nothing was observed. Posteriors have
    `states`, `path`, `sample_paths`, `transitions`, `components`, `log_likelihood` and `simulate`.

    Args:
        num_states: K.
        emissions: `mx.latent.Normals(...)`, `Poissons(...)` or `Categoricals(...)`, or "normal", "poisson" or
            "categorical".
        initial: prior of the first state's probabilities.
        transitions: prior of the rows of the transition matrix.

    >>> import marginax as mx
    >>> x = [np.repeat([0.0, 5.0, 0.0], n)[:, None] + 0.1 * np.arange(3 * n)[:, None] % 0.3 for n in (4, 6)]
    >>> hmm = mx.fit(mx.latent.HMM(2), x, mx.infer.CoordinateAscent(), key=0)
    >>> path = hmm.path(x)[0, :12]
    >>> bool((path[:4] == path[8:]).all() and (path[4:8] != path[0]).all())
    True
    """

    num_states: int
    emissions: AbstractEmissions
    initial_prior: Dirichlet
    transitions_prior: Dirichlet

    queries: ClassVar[type] = HMMQueries

    def __init__(
        self,
        num_states: int,
        emissions: AbstractEmissions | str = "normal",
        initial: Dirichlet | None = None,
        transitions: Dirichlet | None = None,
    ):
        """Check the number and the names."""
        check_num("num_states", num_states)
        self.num_states, self.emissions = num_states, as_emissions(emissions)
        self.initial_prior = Dirichlet(1.0) if initial is None else initial
        self.transitions_prior = Dirichlet(1.0) if transitions is None else transitions

    # ---- data

    def read(self, data: Any) -> Rows:
        """Sequences as arrays of one length, with what is observed and how long each is."""
        return data if isinstance(data, Rows) else Rows(as_sequences(data))

    def check(self, source: AbstractSource) -> None:
        rows = source.examples(min(source.spec.num_examples, _MOST_SEQUENCES))
        self.check_rows(rows)
        num = int(np.sum(rows["mask"]))
        if num < self.num_states:
            raise ValueError(f"num_states must be at most the {num} observed steps of the data, got {self.num_states}")

    def check_rows(self, rows: Any) -> None:
        """Raise if such sequences cannot be observed."""
        self.emissions.check(_observed(rows), name="data")

    def adapted_to(self, source: AbstractSource) -> "HMM":
        rows = source.examples(min(source.spec.num_examples, _MOST_SEQUENCES))
        emissions = self.emissions.adapted_to(_observed(rows))
        return HMM(self.num_states, emissions, self.initial_prior, self.transitions_prior)

    def seed(self, batch: Batch, *, key: PRNGKeyArray) -> PyTree:
        """Steps are assigned as if they had no order; states that follow each other are counted."""
        x, mask = self._steps(batch.data)
        weights = self.emissions.seed(x, self.num_states, key=key).reshape(-1, *mask.shape)
        states = jnp.swapaxes(weights, 0, 1) * mask[:, None]
        return self._statistics(x, mask, states, jnp.einsum("tib,tjb->ij", states[:-1], states[1:]))

    # ---- the density

    def init(self, source: AbstractSource) -> Params:
        """From clusters of the steps of some sequences."""
        return first_guess(self, source.examples(min(source.spec.num_examples, _MOST_SEQUENCES)))

    def log_prior(self, params: Params) -> Float[Array, ""]:
        return sum((family.log_prior(params[name]) for name, family in self._families.items()), start=jnp.zeros(()))

    def log_likelihood(self, params: Params, batch: Batch, *, key: PRNGKeyArray | None = None) -> Float[Array, " b"]:
        return log_total(self.chains(self.natural(params), batch.data))

    def chains(self, natural: PyTree, rows: PyTree) -> Chain:
        """Log weights of paths, for all sequences."""
        x, mask = self._steps(rows)
        steps = x.reshape(*mask.shape, *x.shape[1:])
        logs = jax.vmap(lambda x: self.emissions.log_density(natural["emissions"], x))(steps)
        return Chain(
            natural["initial"], natural["transitions"], jnp.where(mask[:, None] > 0, logs, 0.0), rows["length"]
        )

    def smoothed(self, natural: PyTree, rows: PyTree) -> Float[Array, "b t k"]:
        """Probabilities of states given whole sequences."""
        return jnp.moveaxis(smooth(self.chains(natural, rows)).states, -1, 0)

    def simulate(self, params: Params, num_steps: int, *, key: PRNGKeyArray) -> tuple[Array, Array]:
        """States, and observations."""
        initial, transitions = (self._families[n].natural(params[n]) for n in ("initial", "transitions"))
        for_first, for_states, for_data = jax.random.split(key, 3)

        def move(state: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
            return jax.random.categorical(key, transitions[state]), state

        first = jax.random.categorical(for_first, initial)
        _, states = jax.lax.scan(move, first, jax.random.split(for_states, num_steps))
        return states, self.emissions.simulate(params["emissions"], states, key=for_data)

    def _steps(self, rows: PyTree) -> tuple[Array, Float[Array, "t b"]]:
        """All that is seen in a row, the first steps of all sequences first, and whether each is observed."""
        x = jnp.swapaxes(rows["x"], 0, 1)
        return x.reshape(-1, *x.shape[2:]), jnp.asarray(rows["mask"].T, jax.dtypes.canonicalize_dtype(float))

    def _statistics(
        self, x: Array, mask: Float[Array, "t b"], states: Float[Array, "t k b"], pairs: Float[Array, "k k"]
    ) -> PyTree:
        weights = jnp.swapaxes(states * mask[:, None], 0, 1).reshape(self.num_states, -1)
        emissions = self.emissions.statistics(x, weights)
        return {"initial": jnp.sum(states[0], 1), "transitions": pairs, "emissions": emissions}

    # ---- closed form

    def expect(self, natural: PyTree, batch: Batch) -> Expected:
        chains = self.chains(natural, batch.data)
        smoothed = smooth(chains)
        x, mask = self._steps(batch.data)
        reconstruction = jnp.sum(smoothed.states * chains.log_observed)
        complexity = reconstruction - jnp.sum(smoothed.log_total)
        statistics = self._statistics(x, mask, smoothed.states, smoothed.pairs)
        return Expected(statistics, reconstruction, complexity)

    def natural(self, params: Params) -> PyTree:
        return {name: family.natural(params[name]) for name, family in self._families.items()}

    def expected_natural(self, belief: PyTree) -> PyTree:
        return {name: family.expected_natural(belief[name]) for name, family in self._families.items()}

    def conjugate(self, statistics: PyTree) -> PyTree:
        return {name: family.conjugate(statistics[name]) for name, family in self._families.items()}

    def maximise(self, statistics: PyTree) -> Params:
        return {name: family.maximise(statistics[name]) for name, family in self._families.items()}

    def divergence(self, belief: PyTree) -> Float[Array, ""]:
        return sum((family.divergence(belief[name]) for name, family in self._families.items()), start=jnp.zeros(()))

    def draw(self, belief: PyTree, *, key: PRNGKeyArray) -> Params:
        families = zip(self._families.items(), jax.random.split(key, 3), strict=True)
        return {name: family.draw(belief[name], key=key) for (name, family), key in families}

    def centre(self, belief: PyTree) -> Params:
        return {name: family.centre(belief[name]) for name, family in self._families.items()}

    @property
    def _families(self) -> dict[str, AbstractFamily]:
        return {"emissions": self.emissions, "initial": self.initial_prior, "transitions": self.transitions_prior}


def as_sequences(data: Any) -> dict[str, np.ndarray]:
    """A list of sequences, an array of them, or a dict with a mask, as arrays "x", "mask" and "length".

    >>> rows = as_sequences([np.zeros((3, 2)), np.ones((5, 2))])
    >>> rows["x"].shape, rows["mask"].sum(1).tolist(), rows["length"].tolist()
    ((2, 5, 2), [3, 5], [3, 5])
    """
    if isinstance(data, dict):
        return _with_mask(data)
    sequences = [np.asarray(sequence) for sequence in data]
    if not sequences:
        raise ValueError("data must hold at least one sequence, got none")
    lengths = np.array([len(sequence) if sequence.ndim else 0 for sequence in sequences])
    if lengths.min() == 0:
        raise ValueError(f"data must hold sequences of length >= 1, got length 0 in sequence {int(lengths.argmin())}")
    if len({sequence.shape[1:] for sequence in sequences}) > 1:
        raise ValueError("data must hold sequences whose steps have one shape: all (steps, axes), or all (steps,)")
    x = np.zeros((len(sequences), lengths.max(), *sequences[0].shape[1:]), np.result_type(*sequences))
    for row, sequence in zip(x, sequences, strict=True):
        row[: len(sequence)] = sequence
    _check_finite(x)
    return {"x": x, "mask": np.arange(x.shape[1]) < lengths[:, None], "length": lengths}


def _with_mask(data: dict[str, Any]) -> dict[str, np.ndarray]:
    if not {"x", "mask"} <= set(data) <= {"x", "mask", "length"}:
        raise ValueError(f'data must have "x" and "mask", and may have "length", got {sorted(data)}')
    mask = np.asarray(data["mask"], bool)
    x = np.asarray(data["x"])
    if mask.shape != x.shape[:2]:
        raise ValueError(f"mask must have shape {x.shape[:2]} (sequence, step), got {mask.shape}")
    length = np.asarray(data.get("length", np.full(len(x), x.shape[1])))
    if length.shape != (len(x),) or length.min() < 1 or length.max() > x.shape[1]:
        raise ValueError(f"length must be one number from 1 to {x.shape[1]} for each sequence, got {length}")
    mask = mask & (np.arange(x.shape[1]) < length[:, None])
    seen = mask.reshape(*mask.shape, *[1] * (x.ndim - 2))
    x = np.where(seen, x, np.zeros((), x.dtype))
    _check_finite(x)
    return {"x": x, "mask": mask, "length": length}


def _check_finite(x: np.ndarray) -> None:
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        bad = int(np.argwhere(~np.isfinite(x))[0][0])
        raise ValueError(f'data have NaN in sequence {bad}: pass {{"x": ..., "mask": ...}} if a step is missing')


def _observed(rows: PyTree) -> np.ndarray:
    """The steps that are observed, in a row."""
    x = np.asarray(rows["x"])
    return x[np.asarray(rows["mask"], bool)]

"""Hidden Markov models against enumeration of all paths, and against themselves one sequence at a time."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import marginax as mx
from marginax.data import Batch, FullBatch
from marginax.latent import HMM, Categoricals, Normals
from marginax.latent.chain import Chain, draw_path, most_probable, smooth
from marginax.latent.hmm import as_sequences


def chain(num_steps=5, num_states=3, length=None, seed=0):
    """Weights that do not sum to one, as expectations of logarithms do not."""
    rng = np.random.default_rng(seed)
    parts = (
        rng.normal(size=num_states),
        rng.normal(size=(num_states, num_states)),
        rng.normal(size=(num_steps, num_states)),
    )
    return Chain(*map(jnp.asarray, parts), jnp.asarray(num_steps if length is None else length))


def enumerate_paths(chain):
    num_states, length = len(chain.log_initial), int(chain.length)
    paths = np.array(list(itertools.product(range(num_states), repeat=length)))
    initial, transition, observed = map(np.asarray, chain[:3])
    logs = initial[paths[:, 0]] + sum(observed[t, paths[:, t]] for t in range(length))
    return paths, logs + sum(transition[paths[:, t - 1], paths[:, t]] for t in range(1, length))


@pytest.mark.parametrize("length", [1, 3, 5])
def test_sums_maxima_and_pairs_are_those_of_all_paths(length):
    with jax.enable_x64(True):
        case = chain(length=length)
        paths, logs = enumerate_paths(case)
        found = SMOOTH(case)
        assert float(found.log_total) == pytest.approx(logsumexp(logs), abs=1e-10)
        weight = np.exp(logs - logsumexp(logs))
        states = np.stack([np.bincount(paths[:, t], weight, 3) for t in range(length)])
        np.testing.assert_allclose(found.states[:length], states, atol=1e-10)
        np.testing.assert_array_equal(found.states[length:], 0)
        pairs = np.zeros((3, 3))
        for t in range(1, length):
            np.add.at(pairs, (paths[:, t - 1], paths[:, t]), weight)
        np.testing.assert_allclose(found.pairs, pairs, atol=1e-10)
        np.testing.assert_array_equal(VITERBI(case)[:length], paths[logs.argmax()])


SMOOTH, VITERBI = jax.jit(smooth), jax.jit(most_probable)


def test_drawn_paths_have_the_weights_of_all_paths():
    case = chain(4, 2, length=3)
    paths, logs = enumerate_paths(case)
    drawn = jax.jit(jax.vmap(lambda key: draw_path(case, key=key)))(jax.random.split(jax.random.key(0), 20_000))
    drawn = np.asarray(drawn)[:, :3]
    weight = np.exp(logs - logsumexp(logs))
    for path, wanted in zip(paths, weight, strict=True):
        found = (drawn == path).all(1).mean()
        assert abs(found - wanted) < 4.9 * np.sqrt(wanted * (1 - wanted) / len(drawn))


def test_the_bound_holds_with_the_worst_conditioned_steps():
    """Observations that all but one state exclude leave no NaN behind."""
    logs = jnp.where(jnp.eye(4, 3, k=0) > 0, 0.0, -800.0).at[3, 0].set(0.0)
    case = Chain(jnp.log(jnp.full(3, 1 / 3)), jnp.log(jnp.full((3, 3), 1 / 3)), logs, jnp.asarray(4))
    assert np.isfinite(np.asarray(smooth(case).states)).all()
    np.testing.assert_array_equal(most_probable(case), [0, 1, 2, 0])


def sequences(lengths=(6, 3), seed=0):
    rng = np.random.default_rng(seed)
    return [np.where(np.arange(n) % 4 < 2, 0.0, 4.0)[:, None] + rng.normal(size=(n, 2)) for n in lengths]


def as_batch(rows):
    return Batch(jax.tree.map(jnp.asarray, rows), jnp.arange(len(rows["x"])), len(rows["x"]))


def test_ragged_and_masked_sequences_are_as_one_at_a_time():
    with jax.enable_x64(True):
        x = sequences()
        model = HMM(2)
        model = model.adapted_to(FullBatch(model.read(x)))
        params = model.init(FullBatch(model.read(x)))
        natural = model.natural(params)
        expect = eqx.filter_jit(model.expect)
        together = expect(natural, as_batch(as_sequences(x)))
        alone = [expect(natural, as_batch(as_sequences([each]))) for each in x]
        total = jax.tree.map(lambda *leaves: sum(leaves), *alone)
        for found, wanted in zip(jax.tree.leaves(together), jax.tree.leaves(total), strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-9)
        check_missing_steps(model, params)


def check_missing_steps(model, params):
    """A missing step is one whose observation says nothing, whatever number is in its place."""
    x = np.stack(sequences((5, 5)))
    mask = np.ones((2, 5), bool)
    mask[0, 2] = mask[1, 4] = False
    elsewhere = np.where(mask[..., None], x, 1e3)
    rows = [as_sequences({"x": each, "mask": mask}) for each in (x, elsewhere)]
    log_likelihood = eqx.filter_jit(model.log_likelihood)
    first, second = (np.asarray(log_likelihood(params, as_batch(each))) for each in rows)
    np.testing.assert_allclose(first, second, atol=1e-12)
    chains = eqx.filter_jit(model.chains)(model.natural(params), as_batch(rows[0]).data)
    case = chains._replace(log_observed=chains.log_observed[..., 0], length=chains.length[0])
    assert np.all(np.asarray(case.log_observed)[2] == 0)
    assert float(first[0]) == pytest.approx(logsumexp(enumerate_paths(case)[1]), abs=1e-9)


EMISSIONS = {
    "normal": (Normals(floor=1e-10), lambda x: x),  # EM adds the floor to variances, past the most likely ones
    "poisson": ("poisson", lambda x: np.round(np.abs(x)).astype(int)),
    "categorical": (Categoricals(4), lambda x: np.round(np.abs(x[:, 0])).astype(int) % 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EMISSIONS)
@pytest.mark.parametrize("method", [mx.infer.CoordinateAscent(40, tolerance=0.0), mx.infer.EM(40, tolerance=0.0)])
def test_no_update_lowers_the_bound(name, method):
    with jax.enable_x64(True):
        emissions, change = EMISSIONS[name]
        x = [change(each) for each in sequences((12, 5, 20, 9), seed=3)]
        posterior = mx.fit(HMM(3, emissions), x, method, key=1, num_chains=2, progress=False)
        info = posterior.record.info["iterate"]
        values = info.get("elbo", info.get("log_likelihood"))
        assert np.diff(values, axis=1).min() > -1e-8


@pytest.mark.slow
def test_planted_states_are_found_and_sampled(tmp_path):
    model = HMM(3, mx.latent.Normals("diagonal"))
    truth = {
        "initial": jnp.zeros(2),
        "transitions": jnp.array([[3.0, 0.0], [0.0, 3.0], [-3.0, -3.0]]),
        "emissions": {"means": jnp.array([[-4.0, 0.0], [0.0, 4.0], [4.0, 0.0]]), "precisions": jnp.zeros((3, 2))},
    }
    made = [model.simulate(truth, 100, key=key) for key in jax.random.split(jax.random.key(0), 5)]
    states, x = [np.asarray(s) for s, _ in made], [np.asarray(x) for _, x in made]
    hmm = mx.fit(model, x, mx.infer.CoordinateAscent(100), num_chains=3, key=0, progress=False)
    path = hmm.path(x)
    pairs = np.array([[np.mean((path.ravel() == i) & (np.ravel(states) == j)) for j in range(3)] for i in range(3)])
    assert pairs.max(axis=1).sum() > 0.98
    order = pairs.argmax(axis=0)
    wanted = np.exp(np.asarray(model.transitions_prior.natural(truth["transitions"])))
    np.testing.assert_allclose(hmm.transitions()[np.ix_(order, order)], wanted, atol=0.1)
    drawn = hmm.sample_paths(x, 50, key=1)
    assert drawn.shape == (50, 5, 100)
    smoothed = hmm.states(x)
    np.testing.assert_allclose((drawn == 0).mean(0), smoothed[..., 0], atol=0.35)
    assert hmm.log_likelihood(x).shape == (5,)
    hmm.save(tmp_path / "hmm")
    np.testing.assert_array_equal(mx.load(tmp_path / "hmm").path(x), path)


@pytest.mark.parametrize(
    ("build", "x", "text"),
    [
        (lambda: HMM(2), [np.zeros((3, 1)), np.zeros((0, 1))], "sequences of length >= 1, got length 0 in sequence 1"),
        (lambda: HMM(2), [np.array([[0.0], [np.nan]])], 'NaN in sequence 0: pass {"x": ..., "mask": ...}'),
        (lambda: HMM(2, "poisson"), [np.array([[1], [-1]])], "must hold whole numbers >= 0"),
        (lambda: HMM(9), [np.zeros((3, 1))], "num_states must be at most the 3 observed steps"),
        (lambda: HMM(2), [np.zeros((3, 1)), np.zeros((3, 2))], "whose steps have one shape"),
        (lambda: HMM(2), {"x": np.zeros((2, 3, 1)), "mask": np.ones((2, 4))}, r"mask must have shape \(2, 3\)"),
    ],
)
def test_mistakes_are_named(build, x, text):
    with pytest.raises(ValueError, match=text):
        mx.fit(build(), x, mx.infer.EM(), key=0)

"""Bayesian optimisation: beliefs, scores and batches against hand computation, exact resuming, and known minima."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import marginax as mx
from marginax.decide import (
    Box,
    ExpectedImprovement,
    LowerConfidenceBound,
    NetworkSurrogate,
    ProcessSurrogate,
    Search,
    ThompsonSampling,
    expected_improvement,
    optimise,
    resume_optimising,
)
from marginax.decide.search.acquisitions import score_all, score_and_slope
from marginax.decide.search.surrogates import ProcessBelief, _conditioned, stretched

PARAMS = {"amplitude": 0.2, "length": -0.4, "noise": -2.5, "offset": -1.0, "slope": -0.7, "relevance": [0.3, -0.5]}
RNG = np.random.default_rng(0)
U, Y = RNG.uniform(size=(7, 2)), RNG.normal(size=7)


@pytest.fixture
def precise():
    with jax.enable_x64(True):
        yield


def belief(room=16) -> ProcessBelief:
    rows, values = np.full((room, 2), 0.3), np.full(room, 9.0)  # what fills up must not matter
    rows[:7], values[:7] = stretched(U), Y
    params = {name: jnp.asarray(value, float) for name, value in PARAMS.items()}
    return _conditioned(params, mx.GaussianProcess(rows, values, present=np.arange(room) < 7))


def covariance(a, b):
    """The kernel of the page about Gaussian processes, in NumPy."""
    a, b = stretched(a), stretched(b)
    scaled = (a[:, None] - b) * np.exp(PARAMS["relevance"]) / np.exp(PARAMS["length"])
    smooth = np.exp(2 * PARAMS["amplitude"] - 0.5 * np.sum(scaled**2, -1))
    return smooth + np.exp(2 * PARAMS["slope"]) / 2 * a @ b.T + np.exp(2 * PARAMS["offset"])


def by_hand(u, rows=U, y=Y, known=0):
    """Mean and covariance at u; the last `known` rows have no noise."""
    own = covariance(rows, rows)
    noise = np.full(len(rows), np.exp(2 * PARAMS["noise"]) + 1e-6 * np.mean(np.diag(covariance(U, U))))
    noise[len(rows) - known :] = 1e-5
    gain = np.linalg.solve(own + np.diag(noise), covariance(rows, u)).T
    return gain @ y, covariance(u, u) - gain @ covariance(rows, u)


# ---- beliefs


@pytest.mark.usefixtures("precise")
def test_a_process_that_is_filled_up_is_the_process_by_hand():
    new = RNG.uniform(size=(5, 2))
    mean, spread = belief().joint(jnp.asarray(new))
    truth = by_hand(new)
    np.testing.assert_allclose(mean, truth[0], atol=1e-9)
    np.testing.assert_allclose(spread, truth[1], atol=1e-9)


@pytest.mark.usefixtures("precise")
def test_rows_that_are_not_present_do_not_matter_to_the_model():
    params = {name: jnp.asarray(value, float) for name, value in PARAMS.items()}
    small = mx.GaussianProcess(U, Y)
    large = mx.GaussianProcess(
        np.append(U, np.ones((3, 2)), axis=0), np.append(Y, [5.0, 5.0, 5.0]), present=[True] * 7 + [False] * 3
    )
    new = jnp.asarray(RNG.uniform(size=(4, 2)))
    a, b = small.predictive(params, new), large.predictive(params, new)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-9)
    np.testing.assert_allclose(a.covariance, b.covariance, atol=1e-9)
    densities = []
    for process in (small, large):
        source = mx.data.as_source(process.data, None, process.read)
        densities.append(float(process.log_density(params, source.batch(0, key=jax.random.key(0)))))
    np.testing.assert_allclose(*densities, atol=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("precise")
def test_draws_of_a_process_have_its_moments():
    new = jnp.asarray(RNG.uniform(size=(3, 2)))
    draws = np.asarray(belief().draws(new, 40_000, key=jax.random.key(0)))
    mean, spread = (np.asarray(each) for each in belief().joint(new))
    away = draws - mean
    assert np.abs(away.mean(0) / np.sqrt(np.diag(spread) / 40_000)).max() < 4.9
    products = away[:, :, None] * away[:, None]
    z = (products.mean(0) - spread) / (products.std(0) / 200.0)
    assert np.abs(z).max() < 4.9


def test_a_posterior_over_networks_is_believed_as_it_predicts():
    net = mx.nets.MLP(2, (8,), 1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(0.3))
    method = mx.infer.DeepEnsemble(4, mx.infer.MAP(num_epochs=30, batch_size=4))
    found = NetworkSurrogate(model, method).learn(U, Y, 16, key=jax.random.key(0))
    data = mx.data.GrowingMinibatches((stretched(U), Y), 4, 64)
    prediction = mx.fit(model, data, method, key=jax.random.key(0), progress=False).predict(stretched(U[:5]))
    mean, spread = found.joint(jnp.asarray(U[:5]))
    np.testing.assert_allclose(mean, prediction.mean, atol=1e-5)
    np.testing.assert_allclose(np.diag(spread), prediction.epistemic, atol=1e-5)
    draws = np.asarray(found.draws(jnp.asarray(U[:5]), 300, key=jax.random.key(1)))
    assert len(np.unique(draws[:, 0])) == 4


# ---- scores


def check_improvement_is_downwards():
    for mean, std, best in [(0.4, 0.7, 1.0), (-2.0, 1.5, 0.3), (3.0, 0.2, 2.7)]:
        law = stats.norm(mean, std)
        truth, _ = integrate.quad(
            lambda y, law=law, best=best: (best - y) * law.pdf(y), min(best, mean) - 12 * std, best
        )
        found = ExpectedImprovement().score(*(jnp.asarray(each) for each in (mean, std, best)))
        np.testing.assert_allclose(np.exp(found), truth, rtol=1e-4)


def test_expected_improvement_is_that_of_lower_values():
    check_improvement_is_downwards()


def test_log_expected_improvement_keeps_its_digits_and_its_slope():
    u = np.concatenate([np.linspace(-36, 6, 85), [-1.001, -0.999, -20.01, -19.99]])
    truth = np.log(expected_improvement(u, np.ones_like(u), 0.0))
    score = lambda mean: ExpectedImprovement().score(mean, jnp.ones(()), jnp.zeros(()))  # noqa: E731
    found, slopes = jax.vmap(jax.value_and_grad(score))(jnp.asarray(-u))
    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=1e-4)
    assert np.isfinite(slopes).all()
    assert (np.asarray(slopes) < 0).all()  # the lower the mean, the better
    assert np.isfinite(score(jnp.asarray(1e4)))


def test_lower_bounds_are_means_less_standard_deviations():
    assert float(LowerConfidenceBound(1.5).score(jnp.asarray(2.0), jnp.asarray(4.0), jnp.asarray(0.0))) == 4.0
    assert float(LowerConfidenceBound(0.0).score(jnp.asarray(2.0), jnp.asarray(4.0), jnp.asarray(0.0))) == -2.0


def check_batch_by_hand():
    """The second point of a batch: the process with the first in its data, at its mean and without noise."""
    pending, new = np.array([[0.35, 0.6], [0.8, 0.1]]), RNG.uniform(size=(6, 2))
    fantasies = by_hand(pending)[0]
    mean, spread = by_hand(new, np.append(U, pending, axis=0), np.append(Y, fantasies), known=2)
    best = min(0.2, fantasies.min())
    std = np.sqrt(np.diag(spread))
    arguments = belief(), jnp.asarray(new), jnp.asarray(0.2), jnp.asarray(pending)
    found = score_all(ExpectedImprovement(), *arguments)
    np.testing.assert_allclose(np.exp(found), expected_improvement(-mean, std, -best), rtol=1e-6)
    found = score_all(LowerConfidenceBound(2.0), *arguments)
    np.testing.assert_allclose(found, 2 * std - mean, atol=1e-7)


@pytest.mark.usefixtures("precise")
def test_a_batch_is_chosen_as_if_its_first_points_came_out_as_expected():
    check_batch_by_hand()


@pytest.mark.slow
@pytest.mark.usefixtures("precise")
def test_slopes_are_those_of_scores():
    rest = jnp.asarray(0.2), jnp.asarray([[0.3, 0.3]])
    u, step = np.array([0.4, 0.7]), 1e-5
    value, slope = score_and_slope(ExpectedImprovement(), belief(), jnp.asarray(u), *rest)
    moved = u + step * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    scores = np.asarray(score_all(ExpectedImprovement(), belief(), jnp.asarray(moved), *rest))
    np.testing.assert_allclose(slope, [(scores[0] - scores[1]) / 2e-5, (scores[2] - scores[3]) / 2e-5], rtol=1e-4)
    assert np.isfinite(value)


# ---- searches


@functools.cache
def found_minimum():
    problem = mx.testing.forrester()
    return optimise(problem, problem.space, num_evaluations=14, num_initial=5, minimum=problem.minimum, key=0)


def test_the_minimum_of_forresters_function_is_found():
    assert found_minimum().regret[-1] < 0.01
    assert abs(found_minimum().best[0][0] - 0.757249) < 0.01
    assert (np.diff(found_minimum().regret) <= 0).all()


def test_resuming_equals_going_on_and_nothing_is_evaluated_twice(tmp_path):
    problem, asked = mx.testing.forrester(), []

    def failing(x, last):
        if len(asked) == last:
            raise KeyboardInterrupt
        asked.append(x)
        return problem(x)

    options = {"num_evaluations": 14, "num_initial": 5, "minimum": problem.minimum, "key": 0}
    with pytest.raises(KeyboardInterrupt):
        optimise(lambda x: failing(x, 8), problem.space, **options, directory=tmp_path / "search")
    resumed = resume_optimising(tmp_path / "search", lambda x: failing(x, 99))
    assert len(asked) == 14
    for name in ("x", "y", "regret"):
        assert np.array_equal(getattr(resumed, name), getattr(found_minimum(), name)), name
    with pytest.raises(FileExistsError, match="resume_optimising it"):
        optimise(problem, problem.space, **options, directory=tmp_path / "search")


@pytest.mark.slow
def test_batches_have_different_points_and_draws_differ():
    problem = mx.testing.forrester()
    x = np.linspace(0, 1, 5)[:, None]
    for rule in (ExpectedImprovement(), ThompsonSampling()):
        search = Search(problem.space, ProcessSurrogate(), rule, num_initial=5, capacity=14, key=0)
        search = search.tell(x, [problem(each) for each in x])
        batch = search.ask(3)
        assert batch.shape == (3, 1)
        assert len(np.unique(batch.round(3))) >= 2
        assert np.array_equal(batch, search.ask(3))  # a question, not a step


@pytest.mark.slow
def test_the_minimum_of_branins_function_is_found_sooner_than_by_chance():
    problem = mx.testing.branin()
    ours, chance = [], []
    for seed in range(4):
        found = optimise(problem, problem.space, num_evaluations=30, minimum=problem.minimum, key=seed)
        ours.append(found.regret[-1])
        points = problem.space.from_unit(np.random.default_rng(seed).uniform(size=(30, 2)))
        chance.append(min(problem(x) for x in points) - problem.minimum)
    assert max(ours) < 0.1
    assert (np.array(ours) < np.array(chance)).all()


@pytest.mark.parametrize("make", ["forrester", "branin", "hartmann6", "ackley"])
def test_functions_have_the_minima_that_they_say(make):
    problem = getattr(mx.testing, make)()
    for place in problem.minimisers:
        np.testing.assert_allclose(problem(place), problem.minimum, atol=1e-5)
        problem.space.to_unit(np.array(place))
    points = problem.space.from_unit(np.random.default_rng(0).uniform(size=(3000, problem.space.size)))
    assert min(problem(x) for x in points) >= problem.minimum


# ---- boxes


def test_a_box_knows_its_log_scales_and_comes_back():
    box = Box({"rate": (1e-4, 1.0), "size": (-3.0, 5.0)}, log=["rate"])
    u = np.random.default_rng(0).uniform(size=(9, 2))
    x = box.from_unit(u)
    np.testing.assert_allclose(box.to_unit(x), u, atol=1e-12)
    np.testing.assert_allclose(x, np.stack([10 ** (4 * u[:, 0] - 4), 8 * u[:, 1] - 3], axis=1))
    corners = box.from_unit([[0, 0], [1, 1]])
    np.testing.assert_allclose(corners, [[1e-4, -3.0], [1.0, 5.0]])


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Box([(1.0, 1.0)]), ValueError, r"bounds of 'x0' must rise, got \(1.0, 1.0\)"),
        (lambda: Box([(0.0, 1.0)], log=[0]), ValueError, "must be > 0 on a log scale, got 0.0"),
        (lambda: Box({"a": (0.1, 1.0)}, log=["b"]), ValueError, "log must name inputs of a, got 'b'"),
        (lambda: Box([(0.0, 1.0)]).to_unit([2.0]), ValueError, "x must lie in the box"),
        (lambda: LowerConfidenceBound(-1.0), ValueError, "beta must be >= 0, got -1.0"),
        (lambda: Search(Box([(0.0, 1.0)]), key=0).best, ValueError, "told nothing yet"),
        (lambda: Search(Box([(0.0, 1.0)]), "process", key=0), TypeError, "surrogate must be an object"),
        (lambda: Search(Box([(0.0, 1.0)]), key=0).tell([[0.5]], [np.nan]), ValueError, "y has 1 values that are NaN"),
        (lambda: Search(Box([(0.0, 1.0)]), key=0).tell([[0.5]], [1.0, 2.0]), ValueError, "each of the 1 points"),
        (lambda: optimise(lambda x: np.nan, Box([(0.0, 1.0)]), num_evaluations=3, key=0), ValueError, "finite number"),
        (lambda: NetworkSurrogate(3, "map"), TypeError, "model must be an mx.Model, got 3"),
        (lambda: mx.decide.Optimised(np.zeros((1, 1)), np.zeros(1)).regret, ValueError, "needs the minimum"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()

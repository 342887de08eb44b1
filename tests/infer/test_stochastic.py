"""Stochastic-gradient samplers reach their DISCRETISED stationary laws, which are known on a normal posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax import testing
from marginax.data import Minibatches
from marginax.infer import (
    MAP,
    SGHMC,
    SGLD,
    SGNHT,
    ControlVariates,
    CyclicalSGMCMC,
    MinibatchMetropolis,
    PolynomialDecay,
    PreconditionedSGLD,
)
from marginax.infer.sgmcmc.diffusion import largest_curvature

NUM, BATCH = 20, 5
PROBLEM = testing.gaussian_mean(num_examples=NUM)
VARIANCE = float(PROBLEM.covariance[0, 0])  # s^2
PRECISION = 1 / VARIANCE


def independent() -> testing.IndependentBatches:
    return testing.IndependentBatches(PROBLEM.data, BATCH)


def gradient_variance() -> float:
    """V: of the scaled gradient of a batch of rows drawn with replacement; noise scale 0.5."""
    each = PROBLEM.y / 0.5**2
    return NUM**2 / BATCH * each.var()


def draws_of(method, data=None, *, num_chains: int = 64, key: int = 0) -> np.ndarray:
    start = mx.posterior.Draws(
        model=PROBLEM.model, params=jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], _mode_params())
    )
    posterior = mx.fit(
        PROBLEM.model,
        independent() if data is None else data,
        method,
        key=key,
        num_chains=num_chains,
        init=start,
        progress=False,
    )
    return np.asarray(testing.coordinates(posterior, PROBLEM))


def _mode_params():
    return PROBLEM.unflatten(PROBLEM.mode)


def assert_law(draws: np.ndarray, variance: float) -> None:
    testing.assert_moments_match(draws, PROBLEM.mean, np.array([[variance]]), min_ess=1e4, name="stationary law")


BUDGET = {"num_warmup": 300, "num_samples": 2000, "thin": 5, "batch_size": BATCH}


@pytest.mark.parametrize("share", [0.1, 0.8])
def test_sgld_has_its_discretised_variance(share):
    step = share * VARIANCE
    exact = VARIANCE * (1 + step * gradient_variance() / 4) / (1 - step / (4 * VARIANCE))
    assert exact > 1.05 * VARIANCE  # far enough from the posterior to tell the two apart
    assert_law(draws_of(SGLD(step_size=step, **BUDGET)), exact)


def test_sgld_on_all_rows_has_no_gradient_noise():
    step = 0.8 * VARIANCE
    budget = BUDGET | {"batch_size": None}
    assert_law(draws_of(SGLD(step_size=step, **budget), PROBLEM.data), VARIANCE / (1 - step / (4 * VARIANCE)))


def test_sgld_on_shuffled_epochs_has_less_noise_than_on_independent_batches():
    """Batches of an epoch add up to all the data, so their noise is anticorrelated; the law follows in closed form."""
    step, num_batches = 0.8 * VARIANCE, NUM // BATCH
    decay = 1 - step * PRECISION / 2
    each = PROBLEM.y / 0.5**2
    noise = NUM**2 / BATCH * each.var(ddof=1) * (1 - BATCH / NUM)
    lags = np.arange(1, num_batches)
    covariances = -noise / (num_batches - 1) * (num_batches - lags) / num_batches
    total = step + step**2 / 4 * (noise + 2 * np.sum(decay**lags * covariances))
    exact = total / (1 - decay**2)
    assert exact < 0.97 * VARIANCE * (1 + step * noise / 4) / (1 - step / (4 * VARIANCE))
    budget = BUDGET | {"thin": 7}  # kept at all places of the epoch alike
    assert_law(draws_of(SGLD(step_size=step, **budget), Minibatches(PROBLEM.data, BATCH)), exact)


def test_bias_vanishes_with_the_step():
    variances = []
    for share in (1.6, 0.4, 0.1):
        budget = BUDGET | {"thin": 10}
        variances.append(draws_of(SGLD(step_size=share * VARIANCE, **budget)).var() / VARIANCE)
    assert variances[0] > variances[1] > variances[2]
    assert variances[2] - 1 < 0.15 * (variances[0] - 1)


def test_temperature_scales_the_variance():
    step = 0.8 * VARIANCE
    budget = BUDGET | {"batch_size": None}
    draws = draws_of(SGLD(step_size=step, temperature=0.25, **budget), PROBLEM.data)
    assert_law(draws, 0.25 * VARIANCE / (1 - step / (4 * VARIANCE)))


def lyapunov(transition: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Stationary covariance of x' = A x + noise."""
    size = len(transition)
    flat = np.linalg.solve(np.eye(size**2) - np.kron(transition, transition), noise.reshape(-1))
    return flat.reshape(size, size)


def underdamped(step: float, friction: float, noise: float) -> float:
    """Variance of theta for theta' = theta + v', v' = (1 - a) v - step theta / s^2 + noise."""
    transition = np.array([[1 - step * PRECISION, 1 - friction], [-step * PRECISION, 1 - friction]])
    return lyapunov(transition, noise * np.ones((2, 2)))[0, 0]


@pytest.mark.parametrize("friction", [0.1, 0.5])
def test_sghmc_solves_its_lyapunov_equation(friction):
    step = 0.2 * VARIANCE
    exact = underdamped(step, friction, 2 * friction * step + step**2 * gradient_variance())
    assert_law(draws_of(SGHMC(step_size=step, friction=friction, **BUDGET | {"thin": 10})), exact)


def test_sghmc_with_full_friction_is_sgld():
    step = 0.2 * VARIANCE
    exact = VARIANCE * (1 + 2 * step * gradient_variance() / 4) / (1 - 2 * step / (4 * VARIANCE))
    assert abs(underdamped(step, 1.0, 2 * step + step**2 * gradient_variance()) / exact - 1) < 1e-9
    assert_law(draws_of(SGHMC(step_size=step, friction=1.0, **BUDGET)), exact)


def test_thermostat_removes_the_noise_of_batches():
    """With a slow thermostat the friction settles where velocities have temperature one: Lyapunov at that friction."""
    step, friction = 0.1 * VARIANCE, 0.1
    noise = 2 * friction * step + step**2 * gradient_variance()

    def warmth(damping):
        transition = np.array([[1 - step * PRECISION, 1 - damping], [-step * PRECISION, 1 - damping]])
        return lyapunov(transition, noise * np.ones((2, 2)))[1, 1] / step

    low, high = friction, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if warmth(middle) > 1 else (low, middle)
    exact = underdamped(step, low, noise)
    assert exact < 0.9 * underdamped(step, friction, noise)
    budget = BUDGET | {"num_warmup": 4000, "num_samples": 4000, "thin": 10}
    draws = draws_of(SGNHT(step_size=step, friction=friction, coupling=2e-4, **budget))
    # The friction goes on moving a little around its fixed point, which the equation leaves out: hence 2%.
    assert abs(draws.var() / exact - 1) < 0.02
    assert abs(draws.mean() - PROBLEM.mean[0]) < 0.02 * np.sqrt(VARIANCE)


def test_control_variates_remove_the_noise_of_batches_from_a_normal_posterior():
    step = 0.8 * VARIANCE
    method = SGLD(step_size=step, variance_reduction=ControlVariates(), **BUDGET)
    assert_law(draws_of(method, Minibatches(PROBLEM.data, BATCH)), VARIANCE / (1 - step / (4 * VARIANCE)))


@pytest.mark.parametrize("batch_size", [6, 20, 7])
def test_the_anchor_has_the_gradient_of_all_rows_when_the_last_batch_is_partial(batch_size):
    problem = testing.linear_regression(3, num_examples=20)
    method = SGLD(variance_reduction=ControlVariates(), step_size=1e-3, training=None, batch_size=batch_size)
    source, key = Minibatches(problem.data, batch_size), jax.random.key(0)
    state = method.init(problem.model, problem.start, source.batch(0, key=key), key=key)
    (anchor, *_) = (phase for phase in method.phases(20, batch_size) if phase.name == "anchor")
    for step in range(anchor.num_steps):
        state, _ = anchor.step(problem.model, state, source.batch(step, key=key), key=key)
    whole = mx.data.FullBatch(problem.data).batch(0, key=key)
    exact = jax.grad(lambda p: problem.model.log_density(p, whole))(problem.start)
    np.testing.assert_allclose(problem.flatten(state.anchor.gradient), problem.flatten(exact), rtol=1e-4)
    # at the anchor a batch adds nothing, whichever it is
    _, gradient = method.gradient(problem.model, state, source.batch(1, key=key))
    np.testing.assert_allclose(problem.flatten(gradient), problem.flatten(exact), rtol=1e-4)


@pytest.mark.slow
def test_control_variates_are_exact_when_the_last_batch_is_partial():
    step = 0.8 * VARIANCE
    method = SGLD(step_size=step, variance_reduction=ControlVariates(), **BUDGET | {"batch_size": 6})
    assert_law(draws_of(method, Minibatches(PROBLEM.data, 6)), VARIANCE / (1 - step / (4 * VARIANCE)))


def test_accept_step_on_all_rows_is_exact_and_on_batches_widens():
    exact = SGLD(step_size=2.0 * VARIANCE, correction=MinibatchMetropolis(), **BUDGET | {"batch_size": None})
    assert_law(draws_of(exact, PROBLEM.data), VARIANCE)
    biased = SGLD(step_size=2.0 * VARIANCE, correction=MinibatchMetropolis(), **BUDGET)
    assert draws_of(biased).var() > 1.2 * VARIANCE


def test_preconditioned_steps_have_the_law_of_their_scaling():
    """One parameter: G is nearly constant, so the law is that of SGLD with the step G e."""
    step, budget = 2e-3, BUDGET | {"num_warmup": 4000}
    method = PreconditionedSGLD(step_size=step, decay=0.9999, stabiliser=1e-3, **budget)
    draws = draws_of(method)
    noise = gradient_variance()
    # squared gradients per example at stationarity, whose own variance depends on G: solve by iteration
    variance = VARIANCE
    for _ in range(200):
        square = (noise + variance * PRECISION**2) / NUM**2
        scaled = step / (1e-3 + np.sqrt(square))
        variance = VARIANCE * (1 + scaled * noise / 4) / (1 - scaled / (4 * VARIANCE))
    assert abs(draws.var() / variance - 1) < 0.03


def test_the_scaling_of_the_first_steps_is_by_the_plain_mean_of_squares():
    """Nothing is to be unbiased: after one step it is that gradient's square, after three the mean of three."""
    method = PreconditionedSGLD(step_size=1e-3, decay=0.999)
    params, gradients = {"w": jnp.zeros(2)}, np.array([[3.0, -8.0], [1.0, 2.0], [-5.0, 4.0]], np.float32)
    memory = method.first_memory(params, NUM)
    for count, gradient in enumerate(gradients, start=1):
        _, memory, _ = method.update(params, memory, {"w": jnp.asarray(gradient)}, 1e-3, 1.0, jax.random.key(0))
        wanted = np.mean((gradients[:count] / NUM) ** 2, axis=0)
        np.testing.assert_allclose(memory.squares["w"], wanted, rtol=1e-5)


def test_default_step_comes_from_the_curvature():
    batch = mx.data.FullBatch(PROBLEM.data).batch(0, key=jax.random.key(0))
    found = largest_curvature(PROBLEM.model, _mode_params(), batch, key=jax.random.key(1))
    assert abs(float(found) / PRECISION - 1) < 1e-4
    problem = testing.linear_regression(10, condition_number=100.0)
    batch = mx.data.FullBatch(problem.data).batch(0, key=jax.random.key(0))
    found = largest_curvature(problem.model, problem.start, batch, key=jax.random.key(1))
    largest = np.linalg.eigvalsh(np.linalg.inv(problem.covariance))[-1]
    assert 0.9 < float(found) / largest < 1.001
    draws = draws_of(SGLD(**BUDGET | {"batch_size": None}), PROBLEM.data)
    assert_law(draws, VARIANCE / (1 - 0.25 / 4))


def test_decreasing_steps_lower_the_bias():
    first = 1.6 * VARIANCE
    constant = draws_of(SGLD(step_size=first, **BUDGET)).var() / VARIANCE
    falling = draws_of(SGLD(step_size=PolynomialDecay(first, delay=100.0), **BUDGET | {"thin": 20})).var() / VARIANCE
    assert falling - 1 < 0.5 * (constant - 1)


def test_cycles_keep_draws_from_the_end_of_each_only():
    method = CyclicalSGMCMC(
        SGLD(step_size=0.4 * VARIANCE, num_samples=40, training=None, batch_size=None),
        num_cycles=4,
        cycle_length=100,
        explore=0.6,
    )
    assert method.phases(NUM, NUM)[-1].num_kept(400) == 40
    assert draws_of(method, PROBLEM.data, num_chains=8).shape[1] == 40


@pytest.mark.parametrize("temperature", [1.0, 0.25])
@pytest.mark.parametrize("step", [0.4 * VARIANCE, None], ids=["given", "default"])
def test_cycles_have_the_variance_of_their_steps_and_no_noise_while_they_explore(step, temperature):
    """From the mode, v' = (1 - e_k / (2 s^2))^2 v + e_k T_k, with T_k = 0 in the first part of a cycle."""
    length, skip, num = 20, 8, 8000
    sampler = SGLD(step_size=step, temperature=temperature, num_samples=12, training=None, batch_size=None)
    method = CyclicalSGMCMC(sampler, num_cycles=2, cycle_length=length, explore=0.4, boost=1.5)
    start = mx.posterior.Draws(PROBLEM.model, jax.tree.map(lambda leaf: leaf[None, None], _mode_params()))
    posterior = mx.fit(PROBLEM.model, PROBLEM.data, method, key=0, num_chains=num, init=start)
    exact, kept = 0.0, []
    for step_number in range(2 * length):
        place = step_number % length
        first = 1.5 * 0.25 * VARIANCE if step is None else step
        size = first * 0.5 * (1 + np.cos(np.pi * place / length))
        exact = (1 - size / (2 * VARIANCE)) ** 2 * exact + size * (temperature if place >= skip else 0.0)
        if place >= skip and (place + 1 - skip) % 2 == 0:
            kept.append(exact)
    draws = np.asarray(testing.coordinates(posterior, PROBLEM))[:, :, 0]
    assert draws.shape == (num, len(kept))
    scores = (((draws - PROBLEM.mean[0]) ** 2).mean(axis=0) / kept - 1) * np.sqrt(num / 2)
    assert (np.abs(scores) < 4.9).all(), scores
    exploring = posterior.record.info["sample"]["log_density"][:, : skip + 1]
    assert np.ptp(exploring, axis=0).max() < 1e-4 < np.ptp(posterior.record.info["sample"]["log_density"][:, -1])


def test_training_comes_first_unless_a_start_is_given():
    method = SGLD(num_warmup=5, num_samples=5, thin=1, training=MAP(num_epochs=3))
    assert [phase.name for phase in method.phases(20, 20)] == ["train", "curvature", "warmup", "sample"]
    assert [phase.name for phase in method.warm_started().phases(20, 20)] == ["curvature", "warmup", "sample"]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: SGLD(step_size=-1.0), "step_size must be > 0"),
        (lambda: SGLD(temperature=-1.0), "temperature must be >= 0"),
        (lambda: SGHMC(friction=0.0), "friction must be in"),
        (lambda: SGNHT(coupling=0.0), "coupling must be > 0"),
        (lambda: PolynomialDecay(0.1, power=0.3), "power must be in"),
        (lambda: PreconditionedSGLD(decay=1.0), "decay must be in"),
        (lambda: CyclicalSGMCMC(explore=1.0), "explore must be in"),
        (lambda: SGLD(num_samples=0), "num_samples must be"),
    ],
)
def test_bad_settings_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()

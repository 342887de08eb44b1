"""Bandits: beliefs against closed forms, choices against probabilities, regret by hand, and exact resuming."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import marginax as mx
from marginax.decide import (
    GaussianRewards,
    Greedy,
    LinearThompson,
    LinearUCB,
    NeuralLinear,
    ReplayBandit,
    RewardTable,
    Thompson,
    Uniform,
    play,
    resume_play,
)
from marginax.decide.bandits import playing
from marginax.decide.bandits.linear import with_constant
from marginax.decide.bandits.network import model_of_arms, with_arm

PRIOR = {"precision": 0.7, "shape": 3.0, "rate": 1.5}
TRAINING = mx.infer.MAP(num_epochs=20, batch_size=16, optimiser=mx.infer.Adam(0.01))


def contexts(num=60, size=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num, size)), rng


def small_bandit():
    """A class for each half of a plane, and what is right gives 1."""
    x, _ = contexts(300, 2)
    return ReplayBandit(x, (x[:, 0] + 0.3 > x[:, 1]).astype(int))


def network_model(in_size=2, num_arms=2):
    return mx.Model(mx.nets.MLP(in_size, (8,), num_arms, key=0), likelihood=mx.likelihoods.Gaussian(0.3))


def exact_belief(x, rewards, *, precision, shape, rate):
    """Normal-inverse-gamma by the formulas of textbooks, in float64."""
    x = np.append(x, np.ones((len(x), 1)), axis=1)
    total = precision * np.eye(x.shape[1]) + x.T @ x
    mean = np.linalg.solve(total, x.T @ rewards)
    return total, mean, shape + len(x) / 2, rate + (rewards @ rewards - mean @ total @ mean) / 2


# ---- beliefs


def check_sequential_equals_batch():
    x, _ = contexts(2000, 6)
    bandit = ReplayBandit(x, np.zeros(2000, int), GaussianRewards([[0.5, -1.0, 2.0]], 1.3))
    agent = LinearThompson(**PRIOR)
    key = jax.random.key(3)
    rows = bandit.order(2000, key=key)
    keys = jax.random.split(key, 2000)
    belief, arms, rewards = agent.play(agent.init(6, 3), bandit.rounds(rows, keys), keys)
    assert min(np.bincount(np.asarray(arms), minlength=3)) > 3
    for arm in range(3):
        seen = np.asarray(arms) == arm
        total, mean, shape, rate = exact_belief(x[rows][seen], np.asarray(rewards, float)[seen], **PRIOR)
        np.testing.assert_allclose(belief.precision[arm], total, rtol=1e-5, atol=1e-5 * np.abs(total).max())
        np.testing.assert_allclose(belief.mean[arm], mean, atol=1e-5)
        np.testing.assert_allclose([belief.shape[arm], belief.rate[arm]], [shape, rate], rtol=1e-5)


def test_sequential_updates_are_the_closed_form_of_all_rounds():
    check_sequential_equals_batch()


def test_all_rounds_at_once_are_the_closed_form():
    x, rng = contexts(40, 3)
    arms, rewards = rng.integers(0, 2, 40), rng.normal(size=40)
    belief = LinearThompson(**PRIOR).learned(x, arms, rewards, 3)
    for arm in range(3):  # the last was never pulled
        seen = arms == arm
        total, mean, shape, rate = exact_belief(x[seen], rewards[seen], **PRIOR)
        np.testing.assert_allclose(belief.mean[arm], mean, atol=1e-5)
        np.testing.assert_allclose([belief.shape[arm], belief.rate[arm]], [shape, rate], rtol=1e-5)
        np.testing.assert_allclose(belief.root[arm] @ belief.root[arm].T, total, atol=1e-4)


# ---- choices


def two_armed_belief():
    rng = np.random.default_rng(1)
    x, arms = rng.normal(size=(9, 1)), np.array([0, 0, 0, 0, 0, 0, 1, 1, 1])
    return LinearThompson(**PRIOR).learned(x, arms, rng.normal(size=9) + 0.2 * arms, 2)


def exact_probability(belief, x):
    """That the reward of arm 1 is expected to be higher, given the rounds: of two Student variables."""
    mean, spread = (np.asarray(each, float) for each in belief.predict(with_constant(jnp.asarray(x))))
    scale = spread * np.sqrt(np.asarray(belief.rate, float) / np.asarray(belief.shape, float))
    low, high = (stats.t(2 * float(belief.shape[i]), mean[i], scale[i]) for i in range(2))
    return integrate.quad(lambda v: low.cdf(v) * high.pdf(v), -40, 40, points=[mean[1]], limit=300)[0]


def check_linear_choices(num=40_000):
    belief, agent = two_armed_belief(), LinearThompson(**PRIOR)
    for i, x in enumerate(([0.4], [-1.5])):
        x = np.asarray(x, np.float32)
        truth = exact_probability(belief, x)
        assert 0.1 < truth < 0.9
        bandit = ReplayBandit(np.tile(x, (num, 1)), np.zeros(num, int), GaussianRewards([[0.0, 0.0]], 1.0))
        keys = playing._Game(bandit, agent, num, jax.random.key(i))._keys(playing._AGENT, 0, num)
        arms = np.asarray(jax.vmap(lambda key, x=x: agent.choose(belief, jnp.asarray(x), key=key))(keys))
        assert abs(arms.mean() - truth) < 4.9 * np.sqrt(truth * (1 - truth) / num)


def test_linear_thompson_chooses_an_arm_as_often_as_it_is_the_better_one():
    check_linear_choices()


def check_network_choices(num=4000):
    """A linear network with known noise: its Laplace posterior is exact, so arm 1 is better with a normal's chance."""
    rng = np.random.default_rng(2)
    x, arms = rng.normal(size=(12, 1)).astype(np.float32), np.array([0, 1] * 6)
    rewards = (0.4 * arms - 0.2 * x[:, 0] + 0.8 * rng.normal(size=12)).astype(np.float32)
    net = mx.nets.MLP(1, (), 2, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.8), prior=mx.priors.Normal(scale=1.0))
    agent = Thompson(model, mx.infer.Laplace(structure=mx.curvature.Dense()), num_samples=num)
    history = playing.History(x, arms, rewards)
    state = agent.refit(agent.init(1, 2), history, 12, key=jax.random.key(0))
    at = np.array([0.5], np.float32)
    design = np.append(x, np.ones((12, 1)), axis=1)
    means, variances = [], []
    for arm in range(2):
        own = design[arms == arm]
        total = np.eye(2) + own.T @ own / 0.64
        new = np.append(at, 1.0)
        means.append(new @ np.linalg.solve(total, own.T @ rewards[arms == arm] / 0.64))
        variances.append(new @ np.linalg.solve(total, new))
    truth = stats.norm.cdf((means[1] - means[0]) / np.sqrt(sum(variances)))
    keys = jax.random.split(jax.random.key(5), num)
    chosen = agent.choose(state.posterior, np.tile(at, (num, 1)), 2, keys)
    error = np.sqrt(truth * (1 - truth) * 2 / num)  # of draws, and of picking among them
    assert 0.1 < truth < 0.9
    assert abs(chosen.mean() - truth) < 4.9 * error


def test_thompson_with_a_posterior_chooses_an_arm_as_often_as_it_is_the_better_one():
    check_network_choices()


def test_upper_bounds_are_means_and_standard_deviations():
    arms, rewards = np.array([0] * 8 + [1]), np.array([0.5] * 8 + [0.0])  # the second was pulled once
    belief, x = LinearThompson(**PRIOR).learned(np.linspace(-1, 1, 9)[:, None], arms, rewards, 2), jnp.array([0.7])
    mean, spread = belief.predict(with_constant(x))
    inverse = np.linalg.inv(np.asarray(belief.precision, float))
    new = np.array([0.7, 1.0])
    np.testing.assert_allclose(spread, np.sqrt([new @ each @ new for each in inverse]), rtol=1e-4)
    bounds = [np.asarray(mean + beta * jnp.sqrt(belief.rate / belief.shape) * spread) for beta in (0.0, 3.0)]
    chosen = [int(LinearUCB(beta).choose(belief, x, key=jax.random.key(0))) for beta in (0.0, 3.0)]
    assert chosen == [int(np.argmax(bound)) for bound in bounds]
    assert chosen[0] != chosen[1]  # the arm that was pulled less often is worth a look


# ---- rewards and regret


def check_regret_is_expected():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    bandit = ReplayBandit(np.eye(2)[y], y, RewardTable.mushrooms())
    played = play(bandit, Uniform(), 4000, key=1)
    cost = {(0, 0): 5.0, (0, 1): 0.0, (1, 0): 0.0, (1, 1): 15.0}  # an edible one left, a poisonous one eaten
    by_hand = [cost[int(y[row]), int(arm)] for row, arm in zip(played.rows, played.arms, strict=True)]
    np.testing.assert_allclose(played.regret, np.cumsum(by_hand))


def test_regret_is_what_is_expected_to_be_lost():
    check_regret_is_expected()


def test_rewards_follow_their_law():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    bandit = ReplayBandit(np.eye(2)[y], y, RewardTable.mushrooms())
    played = play(bandit, Uniform(), 20_000, key=0)
    poison = y[played.rows] == 1
    eaten = played.arms == 1
    assert set(played.rewards[~eaten]) == {0.0}
    assert set(played.rewards[eaten & ~poison]) == {5.0}
    bad = played.rewards[eaten & poison]
    assert set(bad) == {-35.0, 5.0}
    assert abs(np.mean(bad == 5.0) - 0.5) < 4.9 * 0.5 / np.sqrt(len(bad))
    np.testing.assert_array_equal(np.cumsum(played.rewards), played.cumulative_reward)


def test_the_key_decides_rows_and_luck_and_agents_share_them():
    bandit = small_bandit()
    noisy = ReplayBandit(bandit.x, bandit.y, GaussianRewards([[1.0, 0.0], [0.0, 1.0]], 0.5))
    one, same, other = (play(noisy, LinearThompson(), 600, key=key) for key in (0, 0, 1))
    for name in ("rows", "arms", "rewards"):
        assert np.array_equal(getattr(one, name), getattr(same, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))
    uniform = play(noisy, Uniform(), 600, key=0)
    assert np.array_equal(uniform.rows, one.rows)
    agree = uniform.arms == one.arms
    np.testing.assert_allclose(uniform.rewards[agree], one.rewards[agree], rtol=1e-6)
    assert sorted(one.rows[:300]) == sorted(one.rows[300:]) == list(range(300))
    assert not np.array_equal(one.rows[:300], one.rows[300:])


# ---- agents


@pytest.fixture(scope="module")
def bandit():
    return small_bandit()


AGENTS = {
    "linear": LinearThompson(),
    "neural-linear": NeuralLinear(network_model(), TRAINING, refit_every=40),
    "ensemble": Thompson(network_model(), mx.infer.DeepEnsemble(3, TRAINING), refit_every=40),
    "greedy": Greedy(network_model(), TRAINING, refit_every=40),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ("linear", "ensemble") else [pytest.mark.slow]) for n in AGENTS]
)
def test_resuming_equals_playing_on_and_agents_learn(name, bandit, tmp_path, monkeypatch):
    monkeypatch.setattr(playing, "_BLOCK", 40)
    whole = play(bandit, AGENTS[name], 200, key=0)
    saved = playing._Game._save

    def save(self, refitted):
        saved(self, refitted)
        if len(self.arms) == 120:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(playing._Game, "_save", save)
        with pytest.raises(KeyboardInterrupt):
            play(bandit, AGENTS[name], 200, key=0, directory=tmp_path / "play")
    resumed = resume_play(tmp_path / "play")
    again = resume_play(tmp_path / "play")  # of one that is done
    for field in ("rows", "arms", "rewards", "expected", "best"):
        assert np.array_equal(getattr(resumed, field), getattr(whole, field)), field
        assert np.array_equal(getattr(again, field), getattr(whole, field)), field
    with pytest.raises(FileExistsError, match="resume_play it"):
        play(bandit, AGENTS[name], 200, key=0, directory=tmp_path / "play")
    # half of the arms are wrong by chance; after 120 rounds few are
    assert whole.regret[-1] - whole.regret[119] < 25


def test_where_blocks_end_leaves_no_trace(bandit, monkeypatch):
    whole = play(bandit, LinearThompson(), 200, key=0)
    monkeypatch.setattr(playing, "_BLOCK", 40)
    parts = play(bandit, LinearThompson(), 200, key=0)
    assert np.array_equal(whole.arms, parts.arms)


def test_neural_linear_is_exact_given_its_features(bandit):
    agent = NeuralLinear(network_model(), TRAINING, head=LinearThompson(**PRIOR), refit_every=30)
    played = play(bandit, Uniform(), 60, key=0)
    history = playing.History(bandit.x[played.rows], played.arms, played.rewards)
    state = agent.refit(agent.init(2, 2), history, 100, key=jax.random.key(0))
    features = np.asarray(agent._features(state.posterior, jnp.asarray(history.x)), float)
    net = state.posterior.model.network_of(jax.tree.map(lambda a: a[0], state.posterior.starting_points(1))).network
    hidden = np.maximum(history.x @ np.asarray(net.layers[0].weight).T + np.asarray(net.layers[0].bias), 0)
    np.testing.assert_allclose(features, hidden, atol=1e-5)
    for arm in range(2):
        seen = history.arms == arm
        _, mean, shape, rate = exact_belief(features[seen], np.asarray(history.rewards[seen], float), **PRIOR)
        np.testing.assert_allclose(state.belief.mean[arm], mean, atol=1e-4)
        np.testing.assert_allclose([state.belief.shape[arm], state.belief.rate[arm]], [shape, rate], rtol=1e-4)


def test_the_model_sees_the_reward_of_the_arm_that_was_pulled():
    model = model_of_arms(network_model(), 2, 2)
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    arms = np.array([0, 1, 1, 0, 1])
    outputs = jax.vmap(network_model().network)(x)
    found = jax.vmap(model.network)(jnp.asarray(with_arm(x, arms, 2)))
    np.testing.assert_allclose(found[:, 0], outputs[np.arange(5), arms], rtol=1e-6)


# ---- what cannot be meant


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ReplayBandit(np.zeros(3), [0, 1, 0]), ValueError, r"x must have shape \(n, inputs\), got \(3,\)"),
        (lambda: ReplayBandit(np.eye(2), [0, 2], RewardTable.mushrooms()), ValueError, "y"),
        (lambda: ReplayBandit(np.eye(2), [0, 1], np.eye(2)), TypeError, "rewards must be an object"),
        (lambda: RewardTable(np.zeros((2, 2, 2))), ValueError, "probs must be given"),
        (lambda: RewardTable(np.zeros((1, 1, 2)), [[[0.5, 0.6]]]), ValueError, "probs must be >= 0 and sum to 1"),
        (lambda: GaussianRewards([[0.0]], -1.0), ValueError, "scale must be >= 0, got -1.0"),
        (lambda: LinearThompson(rate=0.0), ValueError, "rate must be > 0, got 0.0"),
        (lambda: Thompson(network_model(), TRAINING, refit_every=0), ValueError, "refit_every"),
        (lambda: Greedy(3), TypeError, "model must be an mx.Model, got 3"),
        (lambda: Greedy(network_model(), TRAINING, reward_scale=0.0), ValueError, "reward_scale must be > 0"),
        (lambda: play(small_bandit(), Greedy(network_model(2, 3)), 5, key=0), ValueError, "each of the 2 arms, got 3"),
        (lambda: play(small_bandit(), "linear", 5, key=0), TypeError, "agent must be an object"),
        (lambda: play(small_bandit(), Uniform(), 0, key=0), ValueError, "num_steps"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()

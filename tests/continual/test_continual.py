"""Tasks in turn: what is remembered, what is kept out, what is gone on with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.continual import AllData, AsStart, KCentreCoreset, MultiHead, RandomCoreset, learn

TRAINING = mx.infer.MAP(num_epochs=150, batch_size=None, optimiser=mx.infer.Adam(2e-2))
LAPLACE = mx.infer.Laplace(mx.curvature.Diagonal(), predictive=mx.predict.ThroughNetwork(), training=TRAINING)


def clusters(num, seed):
    """Three classes far apart, in six coordinates."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, num)
    return 2.0 * np.eye(6)[y] + 0.3 * rng.normal(size=(num, 6)), y


TASKS = mx.continual.permuted_tasks(clusters(120, 0), clusters(90, 1), 2, seed=3)
MODEL = mx.Model(mx.nets.MLP(6, (12,), 3, key=0), mx.likelihoods.Categorical(), mx.priors.Normal(1.0))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("continual")


@pytest.fixture(scope="module")
def online(directory):
    return learn(MODEL, TASKS, LAPLACE, coreset=RandomCoreset(20), key=0, directory=directory)


@pytest.mark.slow
def test_normal_posteriors_are_multiplied(online):
    """The precision after a task is that before it, and what its data say."""
    before, after = (1 / np.asarray(p.covariance.variances(), np.float64) for p in online.posteriors)
    nothing = jnp.full(before.shape, 1e-12)
    data = 1 / np.asarray(online.posteriors[1].mode.curvature.covariance(nothing).variances(), np.float64)
    np.testing.assert_allclose(after, before + data, rtol=1e-4)
    prior = online.posteriors[1].model.prior
    np.testing.assert_allclose(prior.means[0], jax.flatten_util.ravel_pytree(online.posteriors[0].mean)[0], rtol=1e-6)


@pytest.mark.slow
def test_the_first_task_is_remembered_and_fine_tuning_forgets(online):
    tuned = learn(MODEL, TASKS, TRAINING, carrying=AsStart(), key=0)
    assert np.isnan(online.accuracy[0, 1])
    assert np.diag(tuned.accuracy).min() > 0.95
    assert online.average[-1] > tuned.average[-1] + 0.05
    assert online.accuracy[1, 0] > tuned.accuracy[1, 0] + 0.1
    assert tuned.forgetting > 0.1


@pytest.mark.slow
def test_coresets_are_kept_out_of_updates_and_used_at_the_end(online):
    assert [p.spec.num_examples for p in online.posteriors] == [100, 100]
    assert [p.spec.num_examples for p in online.final] == [20, 40]
    assert all(len(np.unique(rows)) == 20 for rows in online.coresets)
    np.testing.assert_array_equal(  # what the next task finds has not seen them
        online.posteriors[1].model.prior.means[0], mx.priors.FromPosterior(online.posteriors[0]).means[0]
    )


@pytest.mark.slow
def test_a_run_goes_on_where_it_was(online, directory, monkeypatch):
    from marginax.continual import learning

    def again(*args, **options):
        raise AssertionError("fitted again")

    monkeypatch.setattr(learning, "fit", again)
    found = learn(MODEL, TASKS, LAPLACE, coreset=RandomCoreset(20), key=0, directory=directory)
    np.testing.assert_array_equal(found.accuracy, online.accuracy)


@pytest.mark.slow
def test_all_data_are_seen_together():
    joint = learn(MODEL, TASKS, mx.infer.DeepEnsemble(1, mx.infer.MAP(num_epochs=1)), carrying=AllData(), key=0)
    assert [p.spec.num_examples for p in joint.posteriors] == [120, 240]


def test_heads_that_are_not_asked_keep_their_prior():
    tasks = mx.continual.split_tasks(clusters(60, 0), clusters(30, 1), [(0, 1), (1, 2)])
    model = mx.Model(MultiHead(mx.nets.MLP(6, (4,), 4, key=0), 2), MODEL.likelihood, mx.priors.Normal(0.5))
    method = mx.infer.Laplace(mx.curvature.Diagonal(), training=mx.infer.MAP(num_epochs=20))
    first = learn(model, tasks[:1], method, key=0).posteriors[0]
    variances = jax.flatten_util.ravel_pytree(first.mean)[1](first.covariance.variances()).network.network
    np.testing.assert_allclose(variances.layers[1].weight[2:], 0.25, rtol=1e-5)
    assert float(variances.layers[1].weight[:2].min()) < 0.2


def test_k_centre_takes_the_farthest_row_each_time():
    x = np.random.default_rng(0).normal(size=(40, 3))
    chosen = KCentreCoreset(8).choose(x, np.random.default_rng(1))
    start = int(np.random.default_rng(1).integers(40))
    found = [start]
    for _ in range(7):
        away = np.min(np.linalg.norm(x[:, None] - x[found], axis=2), axis=1)
        found.append(int(np.argmax(away)))
    assert chosen.tolist() == sorted(found)


def test_tasks_are_permutations_and_groups():
    x, y = clusters(20, 0)
    for task in TASKS:
        np.testing.assert_array_equal(np.sort(task.data[0], axis=1), np.sort(clusters(120, 0)[0], axis=1))
    assert not np.array_equal(TASKS[0].data[0], TASKS[1].data[0])
    second = mx.continual.split_tasks((x, y), (x, y), [(0, 1), (2, 0)])[1]
    np.testing.assert_array_equal(second.data[1], np.where(y[y != 1] == 2, 0, 1))
    np.testing.assert_array_equal(second.data[0][:, -1], 1)


def test_what_cannot_be_meant_is_refused(as_users_run):
    with pytest.raises(TypeError, match="tasks must be one or more"):
        learn(MODEL, [], LAPLACE, key=0)
    with pytest.raises(TypeError, match="coreset must be an object"):
        learn(MODEL, TASKS, LAPLACE, coreset=20, key=0)
    with pytest.raises(ValueError, match="must leave rows"):
        learn(MODEL, TASKS, LAPLACE, coreset=RandomCoreset(120), key=0)
    with pytest.raises(ValueError, match="num_rows must be an int >= 1"):
        RandomCoreset(0)
    real = (np.zeros((2, 6)), np.zeros(2))
    with pytest.raises(ValueError, match="about labels"):
        learn(MODEL, [mx.continual.Task(real, real)], LAPLACE, key=0)
    with pytest.raises(ValueError, match="groups must hold classes"):
        mx.continual.split_tasks(clusters(20, 0), clusters(20, 0), [(0, 7)])

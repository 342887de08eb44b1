"""Neural processes: what must not matter does not, densities by hand and in closed form, and functions learned."""

import functools
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.data import Batch, FullBatch
from marginax.latent import CNP, AttentiveNP, ConvCNP, DeepSet, LatentNP, NeuralProcess
from marginax.latent.neural_process.tasks import Points, as_tasks, split_tasks
from marginax.testing import gaussian_process_predictive, gaussian_process_tasks

KINDS = {
    "cnp": lambda **more: CNP(width=8, num_layers=2, key=0, **more),
    "latent": lambda **more: LatentNP(width=8, num_layers=2, latent_size=3, key=0, **more),
    "attentive": lambda **more: AttentiveNP(width=8, num_layers=2, num_heads=2, key=0, **more),
    "both": lambda **more: AttentiveNP(width=8, num_layers=2, num_heads=2, latent_size=3, key=0, **more),
    "convolutional": lambda **more: ConvCNP(width=8, num_layers=2, kernel_size=3, key=0, **more),
}
SLOW = ("latent", "both")  # made of the same parts as the others
EVERY = pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] if k in SLOW else []) for k in KINDS])
RNG = np.random.default_rng(0)
X, Y, X_NEW = RNG.uniform(-2, 2, 6), RNG.normal(size=6), np.linspace(-2, 2, 9)


def tasks_of(num=4, points=7, seed=0):
    """Tasks of 3 to 7 points, padded."""
    tasks = gaussian_process_tasks(num, points, key=seed)
    lengths = np.linspace(3, points, num).astype(int)
    return {**tasks, "mask": np.arange(points) < lengths[:, None]}


def adapted(kind, tasks=None, **more):
    model = KINDS[kind](**more)
    return model.adapted_to(FullBatch(model.read(tasks_of() if tasks is None else tasks)))


def start(model):
    return model.init(FullBatch(model.read(tasks_of())))


@functools.cache
def untrained(kind, num_draws=1, **more):
    """A posterior of random weights, which are as sensitive as any; biases are random, too."""
    model = adapted(kind, **more)
    leaves, treedef = jax.tree.flatten(start(model))
    rng = np.random.default_rng(1)
    draws = [
        np.asarray(np.asarray(leaf) + 0.3 * rng.normal(size=(1, num_draws, *leaf.shape)), np.float32) for leaf in leaves
    ]
    return mx.posterior.Draws(model=model, params=jax.tree.unflatten(treedef, draws))


def first(posterior):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), posterior.params)


def batch_of(tasks):
    rows = {name: jnp.asarray(leaf, jnp.float32) for name, leaf in as_tasks(tasks).items()}
    return Batch(rows, jnp.arange(len(rows["x"])), len(rows["x"]))


LIKELIHOOD = eqx.filter_jit(lambda model, params, batch, key=None: model.log_likelihood(params, batch, key=key))
POINTS = eqx.filter_jit(lambda model, rows: model.points(rows))
BOUND = eqx.filter_jit(lambda model, *args: model.bound(*args))


# ---- what must not matter


@EVERY
def test_the_order_of_the_context_does_not_matter_and_targets_do_not_know_of_each_other(kind):
    posterior = untrained(kind)
    order = np.random.default_rng(2).permutation(len(X))
    one, other = (posterior.condition(c).predict(X_NEW) for c in ((X, Y), (X[order], Y[order])))
    np.testing.assert_allclose(one.mean, other.mean, atol=2e-5)
    np.testing.assert_allclose(one.std, other.std, atol=2e-5)
    far = 2.0 if kind != "convolutional" else 31.3
    others = np.concatenate([X_NEW[:4], far * X_NEW[4:]])
    few = posterior.condition((X, Y)).predict(others)
    np.testing.assert_allclose(few.mean[:4], one.mean[:4], atol=2e-5)
    np.testing.assert_allclose(few.std[:4], one.std[:4], atol=2e-5)
    moved = posterior.condition((X, Y + 1.0)).predict(X_NEW)
    assert np.abs(moved.mean - one.mean).max() > 1e-2


@EVERY
def test_padding_changes_nothing(kind):
    posterior = untrained(kind)
    model, params, tasks = posterior.model, first(posterior), tasks_of()
    padded = ~tasks["mask"][..., None]
    batch = batch_of(tasks)
    rubbish = {**batch.data, "x": batch.data["x"] + padded * 77.0, "y": batch.data["y"] + padded * 55.0}
    value = LIKELIHOOD(model, params, batch)
    np.testing.assert_array_equal(value, LIKELIHOOD(model, params, Batch(rubbish, batch.index, 4)))
    assert np.unique(value).size == 4
    points = POINTS(model, batch.data)
    context = jnp.asarray(np.arange(7) < 2, jnp.float32) * points.mask
    keys = jax.random.split(jax.random.key(0), 4)
    together = BOUND(model, params, points, context, points.mask - context, keys)
    alone = Points(points.x[:1, :3], points.y[:1, :3], points.mask[:1, :3])
    given = context[:1, :3]
    found = BOUND(model, params, alone, given, alone.mask - given, keys[:1])
    np.testing.assert_allclose(found[0], together[0], rtol=2e-5, atol=2e-5)


def test_predictions_of_the_convolutional_process_move_with_the_context():
    posterior, shift = untrained("convolutional"), 3.7
    here = posterior.condition((X, Y)).predict(X_NEW)
    there = posterior.condition((X + shift, Y)).predict(X_NEW + shift)
    np.testing.assert_allclose(there.mean, here.mean, atol=1e-4)
    np.testing.assert_allclose(there.std, here.std, atol=1e-4)
    assert np.ptp(here.mean) > 0.05
    deep_set = untrained("cnp")
    moved = deep_set.condition((X + shift, Y)).predict(X_NEW + shift).mean
    assert np.abs(moved - deep_set.condition((X, Y)).predict(X_NEW).mean).max() > 1e-2


@pytest.mark.parametrize("kind", ["attentive", "convolutional", pytest.param("both", marks=pytest.mark.slow)])
def test_an_empty_context_is_a_context_where_it_was_asked_for(kind):
    posterior = untrained(kind, num_context=(0, None))
    prediction = posterior.condition(([], [])).predict(X_NEW)
    assert np.isfinite(prediction.mean).all()
    assert (prediction.std > 0).all()
    with pytest.raises(ValueError, match=r"context must have at least one point.*num_context=\(0, "):
        untrained(kind).condition(([], []))


# ---- contexts and targets

SPLIT = eqx.filter_jit(lambda points, keys: jax.vmap(lambda k: split_tasks(points, (1, 3), k))(keys))


def test_contexts_are_drawn_uniformly_and_leave_a_target():
    mask = jnp.asarray(np.arange(8) < np.array([[8], [5], [3]]), jnp.float32)
    points = Points(jnp.zeros((3, 8, 1)), jnp.zeros((3, 8, 1)), mask)
    num = 4000
    keys = jax.random.split(jax.random.key(0), (num, 3))
    context, target = map(np.asarray, SPLIT(points, keys))
    np.testing.assert_array_equal(context + target, np.broadcast_to(mask, context.shape))
    for task, most in ((0, 3), (1, 3), (2, 2)):
        counts = np.bincount(context[:, task].sum(1).astype(int), minlength=9)
        assert counts[1 : most + 1].sum() == num
        assert stats.chisquare(counts[1 : most + 1]).pvalue > 1e-5
        inside = int(mask[task].sum())
        share = (1 + most) / 2 / inside
        z = (context[:, task, :inside].mean(0) - share) / np.sqrt(share * (1 - share) / num)
        assert np.abs(z).max() < 4.9


def test_without_a_key_a_row_always_has_the_same_context_and_a_key_draws_another():
    posterior = untrained("latent")
    model, params, batch = posterior.model, first(posterior), batch_of(tasks_of())
    one = LIKELIHOOD(model, params, batch)
    some = Batch(jax.tree.map(lambda leaf: leaf[2:], batch.data), batch.index[2:], 4)
    np.testing.assert_allclose(LIKELIHOOD(model, params, some), one[2:], rtol=1e-5)
    keyed = [LIKELIHOOD(model, params, batch, jax.random.key(i)) for i in (1, 1, 2)]
    np.testing.assert_array_equal(keyed[0], keyed[1])
    assert np.abs(keyed[0] - keyed[2]).min() > 0
    assert np.abs(keyed[0] - one).min() > 0


# ---- densities


def relu_network(net, rows):
    for layer in net.layers[:-1]:
        rows = np.maximum(rows @ np.asarray(layer.weight).T + np.asarray(layer.bias), 0)
    return rows @ np.asarray(net.layers[-1].weight).T + np.asarray(net.layers[-1].bias)


def test_the_likelihood_of_a_conditional_process_is_that_of_its_networks_point_by_point():
    posterior, tasks = untrained("cnp", num_context=(2, 2)), tasks_of()
    model, params, batch = posterior.model, first(posterior), batch_of(tasks)
    networks = model.networks_of(params)
    found = LIKELIHOOD(model, params, batch)
    keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(jax.random.key(0), i)))(batch.index)
    context, _ = map(np.asarray, split_tasks(POINTS(model, batch.data), (2, 2), keys[:, 0]))
    inside = tasks["mask"]
    shifts = [(tasks[name][inside].mean(), tasks[name][inside].std()) for name in ("x", "y")]
    for i in range(4):
        x, y = ((tasks[n][i, :, 0] - m) / s for n, (m, s) in zip("xy", shifts, strict=True))
        given = [j for j in range(7) if context[i, j]]
        assert len(given) == 2
        r = np.mean([relu_network(networks.encoder.points, np.array([[x[j], y[j]]]))[0] for j in given], 0)
        total = 0.0
        for j in set(np.flatnonzero(inside[i])) - set(given):
            mean, raw = relu_network(networks.decoder, np.concatenate([[x[j]], r])[None])[0]
            total += stats.norm.logpdf(y[j], mean, 0.01 + 0.99 * np.log1p(np.exp(raw))) - np.log(shifts[1][1])
        assert float(found[i]) == pytest.approx(total, rel=1e-4)


def test_targets_of_a_conditional_process_are_independent_and_draws_of_weights_are_averaged():
    posterior = untrained("attentive", num_draws=2)
    process = posterior.condition((X, Y))
    y_new = np.linspace(-1, 1, 9)
    parts = [jax.tree.map(lambda leaf, i=i: leaf[:, i : i + 1], posterior.params) for i in range(2)]
    draws = [mx.posterior.Draws(model=posterior.model, params=part) for part in parts]
    logs = []
    for draw in draws:
        one = draw.condition((X, Y))
        each = one.predict(X_NEW).log_prob(y_new)
        assert one.log_likelihood((X_NEW, y_new)) == pytest.approx(each.sum(), rel=1e-5)
        logs.append(each)
    logs = np.array(logs)
    np.testing.assert_allclose(process.predict(X_NEW).log_prob(y_new), np.logaddexp(*logs) - np.log(2), rtol=1e-5)
    joint = np.logaddexp(*logs.sum(1)) - np.log(2)
    assert process.log_likelihood((X_NEW, y_new)) == pytest.approx(joint, rel=1e-5)
    assert (process.predict(X_NEW).epistemic > 0).all()


def linear_process():
    """A latent process whose outputs are linear in the latent vector, with a noise that knows nothing of it."""
    posterior = untrained("latent")
    model = eqx.tree_at(lambda m: m.networks.decoder, posterior.model, mx.nets.MLP(4, (), 2, key=3))
    params = start(model)
    weight = jnp.asarray([[0.5, 1.0, -0.7, 0.4], [0.1, 0.0, 0.0, 0.0]])
    params = eqx.tree_at(lambda p: p.decoder.layers[0].weight, params, weight)
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], params)
    return mx.posterior.Draws(model=model, params=stacked)


def closed_form(posterior, x, y, x_new):
    """Mean and covariance of targets, in the units of the data, with the latent vector integrated out."""
    model, params = posterior.model, first(posterior)
    rows = {"x": x[None, :, None], "y": y[None, :, None], "mask": np.ones((1, len(x)))}
    belief = model.networks_of(params).latent(model.points(rows))
    scaling = model.scaling
    weight = np.asarray(params.decoder.layers[0].weight, np.float64)
    at = (x_new - scaling.x_shift) / scaling.x_factor
    mean = weight[0, 0] * at + weight[0, 1:] @ np.asarray(belief.loc[0])
    noise = 0.01 + 0.99 * np.log1p(np.exp(weight[1, 0] * at))
    shared = np.sum((weight[0, 1:] * np.asarray(belief.scale[0])) ** 2)
    factor = float(scaling.y_factor[0])
    return scaling.y_shift + factor * mean, factor**2 * (shared + np.diag(noise**2)), factor**2 * shared


def test_joint_density_moments_and_functions_of_a_linear_latent_process_are_normal():
    posterior = linear_process()
    x_new, y_new = np.array([-1.0, 0.5, 1.5]), np.array([0.3, -0.4, 0.8])
    mean, covariance, shared = closed_form(posterior, X, Y, x_new)
    process, exact = posterior.condition((X, Y)), stats.multivariate_normal(mean, covariance).logpdf(y_new)
    num = 4000
    values = [process.log_likelihood((x_new, y_new), num_importance=num, key=i) for i in range(12)]
    error = np.std(values, ddof=1)  # of one; their mean is low by about half the square of it
    assert error < 0.05
    assert abs(np.mean(values) + 0.5 * error**2 - exact) / (error / np.sqrt(12)) < 4.9
    prediction = process.predict(x_new, num_samples=4000)
    assert np.abs((prediction.mean - mean) / np.sqrt(shared / 4000)).max() < 4.9
    spread = np.sqrt(2 / 4000)
    assert np.abs(prediction.epistemic / shared - 1).max() < 4.9 * spread
    np.testing.assert_allclose(prediction.aleatoric, np.diag(covariance) - shared, rtol=1e-4)
    functions = process.sample_functions(x_new, 4000, key=1)
    assert functions.shape == (4000, 3)
    assert np.abs((functions.mean(0) - mean) / np.sqrt(shared / 4000)).max() < 4.9
    assert np.abs(functions.var(0) / shared - 1).max() < 4.9 * spread
    np.testing.assert_allclose(np.corrcoef(functions.T), 1.0, atol=1e-4)  # one latent vector moves them all


@pytest.mark.parametrize("kind", ["latent", pytest.param("both", marks=pytest.mark.slow)])
def test_the_bound_is_below_the_density_by_the_divergence_from_the_true_belief(kind):
    posterior = untrained(kind, min_scale=0.5)
    # weights so small that vectors from the context alone can do for all points
    model, params = posterior.model, jax.tree.map(lambda leaf: 0.6 * leaf, first(posterior))
    points = POINTS(model, batch_of(tasks_of()).data)
    context = jnp.asarray(np.arange(7) < 2, jnp.float32) * points.mask
    target, num = points.mask - context, 20_000
    networks = model.networks_of(params)
    proposal, prior = networks.latent(points), networks.latent(points.only(context))

    def terms(key):
        """A bound, the log of its importance weight, and the log density under a vector from the context alone."""
        bound = model.bound(params, points, context, target, jax.random.split(key, 4))
        weight = model.log_predictive(params, points, context, target, num_importance=1, key=key)
        z = prior.sample(key)
        return bound, weight, model._log_density(networks, points.only(context), points, target, z)

    found = jax.jit(jax.vmap(terms))(jax.random.split(jax.random.key(5), num))
    bounds, weights, plain = (np.asarray(part, np.float64) for part in found)
    by_proposal, by_prior = (average(logs) for logs in (weights, plain))
    error = np.hypot(by_proposal[1], by_prior[1])
    assert np.abs((by_proposal[0] - by_prior[0]) / error).max() < 4.9
    mean, noise = bounds.mean(0), bounds.std(0) / np.sqrt(num)
    assert ((mean - by_proposal[0]) / np.hypot(noise, by_proposal[1]) < 4.9).all()
    # the mean of the log weights is the bound as well, with the divergence by sampling
    sampled = weights.mean(0), weights.std(0) / np.sqrt(num)
    assert np.abs((mean - sampled[0]) / np.hypot(noise, sampled[1])).max() < 4.9
    assert (np.asarray(proposal.loc) != np.asarray(prior.loc)).all()


def average(logs):
    """The log of the mean of exponentials over the first axis, and its standard error."""
    top = logs.max(0)
    weights = np.exp(logs - top)
    return np.log(weights.mean(0)) + top, weights.std(0) / weights.mean(0) / np.sqrt(len(logs))


# ---- from and to the user


def test_units_of_the_data_are_units_of_predictions():
    tasks = tasks_of()
    scaled = {**tasks, "x": 10.0 * tasks["x"] + 3.0, "y": 1000.0 * tasks["y"] - 7.0}
    posterior = untrained("convolutional")
    other = mx.posterior.Draws(model=adapted("convolutional", scaled), params=posterior.params)
    one = posterior.condition((X, Y)).predict(X_NEW)
    two = other.condition((10 * X + 3, 1000 * Y - 7)).predict(10 * X_NEW + 3)
    np.testing.assert_allclose(two.mean, 1000 * one.mean - 7, rtol=1e-3, atol=0.2)
    np.testing.assert_allclose(two.std, 1000 * one.std, rtol=1e-3)
    logs = [p.log_likelihood(t, 2) for p, t in ((posterior, tasks), (other, scaled))]
    np.testing.assert_allclose(logs[1], logs[0] - np.log(1000) * (tasks["mask"].sum(1) - 2), rtol=1e-3)


@pytest.mark.parametrize("kind", ["both", "convolutional"])
def test_a_process_is_the_same_after_saving_and_loading(kind, tmp_path):
    posterior = untrained(kind)
    posterior.save(tmp_path / "process")
    loaded = mx.load(tmp_path / "process")
    one, two = (p.condition((X, Y)).predict(X_NEW) for p in (posterior, loaded))
    np.testing.assert_array_equal(one.mean, two.mean)
    np.testing.assert_array_equal(one.std, two.std)


def test_several_inputs_and_outputs_and_an_ensemble():
    rng = np.random.default_rng(0)
    tasks = [(rng.normal(size=(n, 2)), rng.normal(size=(n, 3))) for n in (3, 5, 4)]
    model = CNP(2, 3, width=8, num_layers=1, key=0)
    posterior = mx.fit(model, tasks, mx.infer.MAP(num_epochs=2), num_chains=2, key=0, progress=False)
    prediction = posterior.condition(tasks[0]).predict(rng.normal(size=(4, 2)))
    assert prediction.mean.shape == (4, 3)
    assert (prediction.epistemic > 0).all()
    assert prediction.sample(5, key=0).shape == (5, 4, 3)
    assert "process" in str(posterior.summary())


GOOD = (np.zeros((3, 4)), np.zeros((3, 4)))
NAN = np.array([[0.0, 1.0, 2.0], [np.nan, 1.0, 2.0]])
BAD_TASKS = [
    ([], "tasks must hold at least one task, got none"),
    (3.0, "tasks must be a dict"),
    ({"x": np.zeros((2, 3))}, 'must have "x" and "y"'),
    ({"x": np.zeros((0, 3)), "y": np.zeros((0, 3))}, "at least one task with points"),
    ((np.zeros((2, 3)), np.zeros((2, 4))), "the same tasks and points"),
    ((np.zeros(3), np.zeros(3)), r"must have shape \(task, point\)"),
    ((NAN, np.zeros((2, 3))), "x of task 1 has NaN"),
    ((np.zeros((2, 3)), NAN), "y of task 1 has NaN"),
    ({"x": GOOD[0], "y": GOOD[1], "mask": np.ones((3, 2))}, r"mask must have shape \(3, 4\)"),
    ({"x": GOOD[0], "y": GOOD[1], "mask": np.eye(3, 4)}, "at least 2 points each, got 1 in task 0"),
    ([(np.zeros(3), np.zeros(3)), (np.zeros(1), np.zeros(1))], "at least 2 points each, got 1 in task 1"),
    ([(np.zeros(3), np.zeros(2))], "task 0 must have as many x as y, got 3 and 2"),
    ([(np.zeros((3, 2)), np.zeros(3)), (np.zeros(3), np.zeros(3))], r"x with \[1, 2\] columns"),
    ([(np.zeros((3, 2)), np.zeros(3))], "x_size=1 columns, got 2"),
    ((np.full((2, 3), "a"), np.zeros((2, 3))), "must be numeric"),
]


@pytest.mark.parametrize(("data", "text"), BAD_TASKS, ids=map(str, range(len(BAD_TASKS))))
def test_bad_tasks_are_refused_by_name_in_under_a_second(data, text):
    model = KINDS["cnp"]()
    began = time.perf_counter()
    with pytest.raises((ValueError, TypeError), match=text):
        mx.fit(model, data, mx.infer.MAP(), key=0, progress=False)
    assert time.perf_counter() - began < 1.0


def test_bad_questions_and_settings_are_refused_by_name():
    posterior = untrained("cnp")
    for context, text in (
        ((X, Y[:3]), "context must have as many x as y, got 6 and 3"),
        ((np.zeros((2, 2)), np.zeros(2)), "x must have 1 columns"),
        (([np.nan], [0.0]), "x of context has 1 values that are NaN"),
        (X, "context must be a pair"),
    ):
        with pytest.raises((ValueError, TypeError), match=text):
            posterior.condition(context)
    with pytest.raises(TypeError, match=r"needs a process with a latent vector, such as LatentNP"):
        posterior.condition((X, Y)).sample_functions(X_NEW, 3, key=0)
    with pytest.raises(TypeError, match=r"posterior.condition\(\(x, y\)\).predict\(x_new\)"):
        posterior.predict(X_NEW)
    with pytest.raises(ValueError, match="num_context must be at least 1"):
        posterior.log_likelihood(tasks_of(), 0)
    with pytest.raises(ValueError, match="num_context must start below the 3 points of a task"):
        mx.fit(KINDS["cnp"](num_context=(3, 5)), tasks_of(), mx.infer.MAP(), key=0)
    for bad in ((2, 1), (-1, 2)):
        with pytest.raises(ValueError, match="num_context must be a pair"):
            KINDS["cnp"](num_context=bad)
    with pytest.raises(ValueError, match="num_heads must divide width=8, got 3"):
        AttentiveNP(width=8, num_heads=3, key=0)
    with pytest.raises(ValueError, match="kernel_size must be odd"):
        ConvCNP(kernel_size=4, key=0)
    with pytest.raises(ValueError, match="encoder must be given"):
        NeuralProcess(key=0)
    with pytest.raises(ValueError, match="prior must have no hyperparameters"):
        NeuralProcess(DeepSet(1, 1, key=0), prior=mx.priors.Normal(mx.priors.HalfNormal(1.0)), key=0)
    with pytest.raises(ValueError, match="makes a grid of"):
        untrained("convolutional").condition((X, Y)).predict([0.0, 1e6])


# ---- learned


def exact_score(tasks, num_context):
    """Log density of each target under the process that made it, averaged."""
    scores = []
    for x, y in zip(tasks["x"][..., 0], tasks["y"][..., 0], strict=True):
        mean, std = gaussian_process_predictive((x[:num_context], y[:num_context]), x[num_context:])
        scores.append(stats.norm.logpdf(y[num_context:], mean, std).mean())
    return np.mean(scores)


@pytest.mark.slow
def test_convolutions_learn_functions_better_than_a_deep_set_and_nearly_as_well_as_the_exact_process():
    # settings chosen on tasks with key=100: 0.03 there, the exact process 0.13; a deep set had -0.98 after 12 epochs
    train, test = gaussian_process_tasks(2000, 40, key=0), gaussian_process_tasks(300, 40, key=1)
    scores = {}
    for name, model in (("cnp", CNP(key=0)), ("convolutional", ConvCNP(key=0))):
        method = mx.infer.MAP(num_epochs=24, batch_size=16, optimiser=mx.infer.Adam(1e-3))
        posterior = mx.fit(model, train, method, key=2, progress=False)
        scores[name] = posterior.log_likelihood(test, 10).mean() / 30
    exact = exact_score(test, 10)
    print(scores, exact)
    assert scores["convolutional"] > scores["cnp"] + 0.2
    assert scores["convolutional"] > exact - 0.15
    assert scores["convolutional"] < exact + 0.1

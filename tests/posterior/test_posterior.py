"""Posteriors: draws, normals, mixtures; the same after saving; exported; honest about themselves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import marginax as mx
from marginax.curvature import DenseCovariance, DiagonalCovariance, LowRankCovariance, ReducedCovariance
from marginax.data import DataSpec
from marginax.files import FileError
from marginax.infer import MAP
from marginax.posterior import Draws, FitRecord, Gaussian, Mixture


class Mine(eqx.Module):
    linear: eqx.nn.Linear

    def __call__(self, x):
        return self.linear(jnp.sin(x))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, size=(60, 2))
    return x, 100 + 10 * (x[:, 0] - x[:, 1]) + rng.normal(size=60)


def _fit(data, net=None, likelihood=None, **kwargs):
    model = mx.Model(net or mx.nets.MLP(2, (8,), 1, key=0), likelihood=likelihood or mx.likelihoods.Gaussian())
    return mx.fit(
        model, mx.data.standardise(data), MAP(num_epochs=1500, batch_size=None), key=0, num_chains=3, **kwargs
    )


COVARIANCES = {
    "diagonal": lambda rng: DiagonalCovariance(jnp.asarray(rng.uniform(0.5, 2, 5), jnp.float32)),
    "low rank": lambda rng: LowRankCovariance(
        jnp.asarray(rng.uniform(0.5, 2, 5), jnp.float32), jnp.asarray(rng.normal(size=(5, 2)), jnp.float32)
    ),
    "reduced": lambda rng: ReducedCovariance(
        jnp.asarray(rng.uniform(0.5, 2, 5), jnp.float32),
        jnp.asarray(np.linalg.qr(rng.normal(size=(5, 2)))[0], jnp.float32),
        jnp.array([0.9, 0.5]),
    ),
    "dense": lambda rng: DenseCovariance(
        jnp.asarray(np.linalg.cholesky(np.cov(rng.normal(size=(5, 20)))), jnp.float32)
    ),
}


@pytest.mark.parametrize("name", COVARIANCES)
def test_draws_are_independent_of_each_other_and_their_parts_too(name):
    """Over many keys, two draws of each: what a draw shares and what is its own must not be the same noise."""
    covariance, num = COVARIANCES[name](np.random.default_rng(0)), 20_000
    keys = jax.random.split(jax.random.key(1), num)
    draws = np.asarray(jax.vmap(lambda key: covariance.sample(key, 2))(keys), np.float64).reshape(num, -1)
    dense = np.kron(np.eye(2), np.asarray(covariance.dense(), np.float64))
    error = np.sqrt((np.outer(np.diag(dense), np.diag(dense)) + dense**2) / num)
    assert (np.abs(draws.T @ draws / num - dense) < 4.9 * error).all()


@pytest.mark.parametrize("name", COVARIANCES)
def test_covariances_sample_and_evaluate_what_they_say(name):
    covariance = COVARIANCES[name](np.random.default_rng(0))
    dense = np.asarray(covariance.dense(), np.float64)
    at = np.linspace(-1, 1, 5)
    expected = stats.multivariate_normal(np.zeros(5), dense).logpdf(at)
    np.testing.assert_allclose(float(covariance.log_prob(jnp.asarray(at, jnp.float32))), expected, rtol=1e-4)
    draws = np.asarray(covariance.sample(jax.random.key(0), 20_000), np.float64)
    error = np.sqrt((np.outer(np.diag(dense), np.diag(dense)) + dense**2) / 20_000)
    assert (np.abs(draws.T @ draws / 20_000 - dense) < 4.9 * error).all()


def test_predictions_come_in_the_users_units(data):
    posterior = _fit(data)
    prediction = posterior.predict(data[0])
    assert np.sqrt(np.mean((prediction.mean - data[1]) ** 2)) < 3
    lower, upper = prediction.interval(0.9)
    assert 0.75 < np.mean((lower < data[1]) & (data[1] < upper)) <= 1
    np.testing.assert_allclose(prediction.variance, prediction.epistemic + prediction.aleatoric, rtol=1e-5)


def _posteriors(data):
    draws = _fit(data)
    mean = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), draws.params)
    size = ravel_pytree(mean)[0].size
    normal = Gaussian(
        draws.model, mean, DiagonalCovariance(jnp.full(size, 0.01)), spec=draws.spec, key=jax.random.key(5)
    )
    return {"draws": draws, "normal": normal, "mixture": Mixture([draws, normal], weights=np.array([0.25, 0.75]))}


@pytest.mark.parametrize("kind", ["draws", "normal", "mixture"])
def test_save_and_load_give_identical_predictions(kind, data, tmp_path):
    posterior = _posteriors(data)[kind]
    posterior.save(tmp_path / "run")
    loaded = mx.load(tmp_path / "run")
    before, after = posterior.predict(data[0]), loaded.predict(data[0])
    assert np.array_equal(before.mean, after.mean)
    assert np.array_equal(before.quantile(0.3), after.quantile(0.3))
    assert np.array_equal(before.log_prob(data[1]), after.log_prob(data[1]))
    assert str(loaded.summary()) == str(posterior.summary())


@pytest.mark.parametrize("kind", ["draws", "normal", "mixture"])
def test_samples_are_stacks_of_networks_that_can_be_called(kind, data):
    nets = _posteriors(data)[kind].sample(7, key=1)
    assert nets.layers[0].weight.shape == (7, 8, 2)
    assert eqx.filter_vmap(lambda net: net(jnp.ones(2)))(nets).shape == (7, 1)
    one = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, nets)
    assert one(jnp.ones(2)).shape == (1,)


def test_mixture_predicts_with_its_weights(data):
    parts = _posteriors(data)
    mixture = parts["mixture"].predict(data[0], key=3)
    inner = [
        parts["draws"].predict(data[0]).mean,
        parts["normal"].predict(data[0], key=jax.random.fold_in(jax.random.key(3), 1)).mean,
    ]
    np.testing.assert_allclose(mixture.mean, 0.25 * inner[0] + 0.75 * inner[1], rtol=1e-4)
    with pytest.raises(ValueError, match="weights must be 2 positive numbers"):
        Mixture([parts["draws"], parts["normal"]], weights=np.array([1.0, -1.0]))


@pytest.mark.parametrize(
    ("num", "components"), [(1, [0]), (2, [0, 2]), (3, [0, 1, 2]), (4, [0, 1, 1, 2]), (6, [0, 0, 1, 1, 2, 2])]
)
def test_chains_from_a_mixture_start_in_turn_at_all_of_its_components(num, components):
    model = mx.Density(lambda w: -jnp.sum(w**2), jnp.zeros(2))
    means = jnp.array([[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]])
    mixture = Mixture([Gaussian(model, mean, DiagonalCovariance(jnp.ones(2))) for mean in means])
    np.testing.assert_array_equal(mixture.starting_points(num), means[np.array(components)])


@pytest.mark.parametrize("draw", ["sample_params", "draw"])
def test_every_draw_of_a_mixture_is_of_a_component_by_its_weight(draw, data):
    """The first of several as much as the last, and two of them independently of each other."""
    model, start = _draws_parts(data)
    far = jax.tree.map(lambda leaf: 0.0 * leaf + 5.0, start)
    near = jax.tree.map(lambda leaf: 0.0 * leaf, start)
    mixture = Mixture([Draws(model, near), Draws(model, far)], weights=np.array([0.3, 0.7]))
    num, from_second = 100, []
    for seed in range(num):
        drawn = getattr(mixture, draw)(3, key=jax.random.key(seed))
        from_second.append(np.asarray(jax.tree.leaves(eqx.filter(drawn, eqx.is_array))[0]).reshape(3, -1)[:, 0] > 2.5)
    chosen = np.array(from_second, float)
    assert (np.abs(chosen.mean(axis=0) - 0.7) < 4.9 * np.sqrt(0.21 / num)).all()
    assert (np.abs(np.cov(chosen.T)[np.triu_indices(3, 1)]) < 4.9 * 0.21 / np.sqrt(num)).all()


def test_gaussian_log_prob_is_that_of_its_covariance(data):
    normal = _posteriors(data)["normal"]
    size = normal.covariance.size
    expected = -size * (np.log(0.01) + 0.5 * np.log(2 * np.pi))
    np.testing.assert_allclose(float(normal.log_prob(normal.mean)), expected, rtol=1e-5)


def test_a_network_of_the_users_is_brought_back_with_model_or_register(data, tmp_path):
    net = Mine(eqx.nn.Linear(2, 1, key=jax.random.key(0)))
    posterior = _fit(data, net=net)
    posterior.save(tmp_path / "run")
    with pytest.raises(FileError, match="pass model="):
        mx.load(tmp_path / "run")
    loaded = mx.load(tmp_path / "run", model=posterior.model)
    assert np.array_equal(loaded.predict(data[0]).mean, posterior.predict(data[0]).mean)
    other = mx.Model(mx.nets.MLP(2, (3,), 1, key=0), likelihood=mx.likelihoods.Gaussian())
    with pytest.raises(FileError, match="other names or shapes"):
        mx.load(tmp_path / "run", model=other)


@pytest.mark.parametrize("content", [None, b"", b"\x80\x04\x95pickle", b"{}", b'{"format": "marginax"}'])
def test_damaged_and_foreign_files_are_refused(content, tmp_path, data):
    path = tmp_path / "run"
    if content is not None:
        path.mkdir()
        (path / "manifest.json").write_bytes(content)
    with pytest.raises(FileError, match="run"):
        mx.load(path)


def test_a_flipped_bit_is_noticed(data, tmp_path):
    _fit(data).save(tmp_path / "run")
    file = tmp_path / "run" / "arrays.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(FileError):
        mx.load(tmp_path / "run")


def test_saving_over_something_needs_permission(data, tmp_path):
    posterior = _fit(data)
    posterior.save(tmp_path / "run")
    with pytest.raises(FileError):
        posterior.save(tmp_path / "run")
    posterior.save(tmp_path / "run", overwrite=True)


def test_summary_says_what_was_run_and_that_a_point_is_a_point(data):
    text = str(_fit(data).summary())
    assert "MAP(num_epochs=1500, batch_size=None)" in text
    assert "3 networks (3 chains x 1 draws)" in text
    assert "1500 steps" in text
    model = mx.Model(mx.nets.MLP(2, (), 1, key=0), likelihood=mx.likelihoods.Gaussian())
    point = mx.fit(model, data, MAP(num_epochs=1), key=0)
    assert "no epistemic part" in str(point.summary())


def test_phases_are_told_as_they_ran_after_saving_too(data, tmp_path):
    model = mx.Model(mx.nets.MLP(2, (), 1, key=0), likelihood=mx.likelihoods.Gaussian())
    posterior = mx.fit(model, data, mx.infer.NUTS(num_warmup=20, num_samples=20), num_chains=2, key=0)
    posterior.save(tmp_path / "kept")
    for each in (posterior, mx.load(tmp_path / "kept")):
        cost = next(line for line in str(each.summary()).splitlines() if line.startswith("cost"))
        assert cost.index("warmup") < cost.index("sample")
        assert each.record.phases == ("warmup", "sample")


def test_summary_compares_chains_in_weights_and_predictions(data):
    posterior = _fit(data)
    rng = np.random.default_rng(0)
    noisy = jax.tree.map(
        lambda leaf: np.asarray(leaf) + 0.01 * rng.normal(size=(3, 50, *leaf.shape[2:])).astype(np.float32),
        posterior.params,
    )
    sampled = FitRecord(method="NUTS()", num_steps={"sample": 50}, probes=posterior.record.probes)
    summary = eqx.tree_at(lambda p: (p.params, p.record), posterior, (noisy, sampled)).summary()
    assert any(line.startswith("predictions") for line in summary.lines)
    assert any("chains disagree" in text for text in summary.warnings)  # three modes, never visited by the same chain


def test_arviz_export_names_the_weights(data):
    posterior = _fit(data)
    with pytest.warns(UserWarning, match="More chains"):
        exported = posterior.to_arviz()
    assert exported.posterior["layers/0/weight"].shape == (3, 1, 8, 2)
    assert "likelihood/log_scale" in exported.posterior


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (np.ones((3, 5)), "x must have shape \\(n, 2\\)"),
        (np.full((3, 2), np.nan), "x has 6 values that are NaN"),
        (np.array([["a", "b"]]), "x must be numeric"),
        (np.ones((0, 2)), "x is empty"),
    ],
)
def test_bad_inputs_of_predictions_are_refused(x, match, data):
    posterior = Draws(*_draws_parts(data), spec=DataSpec(x_shape=(2,), y_shape=(), num_examples=60))
    with pytest.raises((ValueError, TypeError), match=match):
        posterior.predict(x)


def _draws_parts(data):
    model = mx.Model(mx.nets.MLP(2, (3,), 1, key=0), likelihood=mx.likelihoods.Gaussian())
    return model, jax.tree.map(lambda leaf: leaf[None, None], model.initial(1))

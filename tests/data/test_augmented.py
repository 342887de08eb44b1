"""Augmentation of data: geometry against SciPy, laws of transforms, batches that are functions of step and key."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

import marginax as mx
from marginax.data.transforms import rotate, spread_uniforms
from marginax.testing.conformance import InterruptAt

KEY = jax.random.key(0)
IMAGES = np.random.default_rng(0).uniform(size=(12, 1, 7, 8)).astype(np.float32)


# ---- one example


@pytest.mark.parametrize("shape", [(6, 6), (7, 7), (2, 6, 6)])
def test_quarter_turns_are_those_of_numpy(shape):
    image = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    for turns in (1, 2, 3, -1):
        turned = rotate(jnp.asarray(image), jnp.asarray(90.0 * turns))
        np.testing.assert_allclose(turned, np.rot90(image, turns, axes=(-2, -1)), atol=1e-5)


@pytest.mark.parametrize("degrees", [10.0, 37.0, -120.0])
def test_rotation_is_that_of_scipy(degrees):
    image = np.random.default_rng(1).normal(size=(9, 12))
    truth = ndimage.rotate(image, degrees, reshape=False, order=1, mode="nearest")
    np.testing.assert_allclose(rotate(jnp.asarray(image, jnp.float32), jnp.asarray(degrees)), truth, atol=1e-4)


def test_shift_is_that_of_scipy():
    image, uniforms = np.random.default_rng(1).normal(size=(9, 12)), np.array([0.1, 0.7])
    truth = ndimage.shift(image, 3.0 * (2 * uniforms - 1), order=1, mode="nearest")
    moved = mx.data.Shift(3.0).apply(jnp.asarray(image, jnp.float32), jnp.asarray(uniforms), key=KEY)
    np.testing.assert_allclose(moved, truth, atol=1e-5)


def test_random_crops_have_all_whole_shifts_equally_often():
    image, padding, num = np.arange(100.0, dtype=np.float32).reshape(10, 10), 2, 5000
    crops = jax.vmap(lambda k: mx.data.RandomCrop(padding)(jnp.asarray(image), key=k))(jax.random.split(KEY, num))
    middle = np.asarray(crops)[:, 5, 5]
    shifts = np.stack([middle // 10 - 5, middle % 10 - 5]).astype(int)
    counts = np.zeros((5, 5))
    np.add.at(counts, tuple(shifts + padding), 1)
    assert abs(counts / num - 1 / 25).max() < 4.9 * np.sqrt(1 / 25 * 24 / 25 / num)
    padded = np.pad(image, padding, mode="edge")
    down, right = shifts[:, 0] + padding
    np.testing.assert_array_equal(crops[0], padded[down : down + 10, right : right + 10])


def test_angles_and_noise_have_the_laws_that_are_said():
    column = jnp.arange(101.0)[:, None] * jnp.ones((1, 2))
    keys = jax.random.split(KEY, 4000)
    shifted = np.asarray(jax.vmap(lambda k: mx.data.TimeShift(8.0)(column, key=k))(keys))[:, 50, 0]
    late = 50.0 - shifted  # linear, so what is read off is the shift itself
    assert abs(late).max() < 8.0
    assert abs(late.mean()) < 4.9 * 8 / np.sqrt(3 * len(late))
    np.testing.assert_allclose(late.var(), 64 / 3, rtol=4.9 * np.sqrt(0.8 / len(late)))
    scale = np.array([0.5, 0.0], np.float32)
    noisy = np.asarray(jax.vmap(lambda k: mx.data.Jitter(scale)(jnp.zeros(2), key=k))(keys))
    np.testing.assert_allclose(noisy[:, 0].std(), 0.5, rtol=4.9 / np.sqrt(2 * len(keys)))
    assert np.all(noisy[:, 1] == 0)


def test_evenly_spread_numbers_are_a_latin_hypercube():
    for transforms in ((mx.data.Rotate(90.0),), (mx.data.Shift(2.0), mx.data.Rotate(30.0))):
        points = spread_uniforms(transforms, 64)
        for column in points.T:
            np.testing.assert_allclose(np.sort(column), (np.arange(64) + 0.5) / 64, atol=1e-6)
    for pair in ((0, 1), (0, 2), (1, 2)):  # and joint: 4 points in each of 16 cells, or nearly
        counts = np.histogram2d(*points[:, pair].T, bins=4, range=[(0, 1), (0, 1)])[0]
        assert counts.min() >= 2
        assert counts.max() <= 6


# ---- batches


def _turned(data=None, batch_size=4, transforms=None):
    data = (np.repeat(IMAGES[:1], 12, axis=0), np.arange(12.0)) if data is None else data
    return mx.data.augment(data, transforms or [mx.data.Rotate(90.0), mx.data.Shift(1.0)], batch_size=batch_size)


def test_every_example_and_every_step_has_transforms_of_its_own():
    source = _turned()
    batches = [np.asarray(source.batch(step, key=KEY).x).reshape(4, -1) for step in range(3)]
    rows = np.concatenate(batches)
    gaps = np.abs(rows[:, None] - rows[None]).max(-1)
    assert gaps[~np.eye(12, dtype=bool)].min() > 1e-3


def test_a_batch_is_a_pure_function_of_step_and_key_and_has_the_rows_of_the_source():
    source = _turned()
    first, again, other = (source.batch(5, key=key) for key in (KEY, KEY, jax.random.key(1)))
    assert np.array_equal(first.x, again.x)
    assert not np.array_equal(first.x, other.x)
    plain = source.source.batch(5, key=KEY)
    assert np.array_equal(first.index, plain.index)
    assert np.array_equal(first.y, plain.y)
    traced = jax.jit(lambda step: source.batch(step, key=KEY).x)(5)
    np.testing.assert_allclose(first.x, traced, atol=1e-6)


def test_augmented_examples_are_no_new_data():
    source = _turned()
    batch = source.batch(0, key=KEY)
    assert (batch.num_examples, batch.size, source.spec.num_examples) == (12, 4, 12)


def test_the_expected_log_density_is_that_of_ridge_regression():
    """Noise on inputs adds N s^2 w^2 / (2 sigma^2) to the loss (Bishop, 1995): with N, and not with N times views."""
    rng = np.random.default_rng(0)
    x, y, scale = rng.normal(size=(30, 2)).astype(np.float32), rng.normal(size=30).astype(np.float32), 0.7
    net = mx.nets.MLP(2, (), 1, key=0)
    model = mx.Model(net, mx.likelihoods.Gaussian(scale=0.5), mx.priors.Normal(1.0))
    source = mx.data.augment((x, y), mx.data.Jitter(scale), batch_size=10)
    params = model.init(source)
    densities = jax.lax.map(
        lambda k: model.log_density(params, source.batch(0, key=k)), jax.random.split(KEY, 20_000), batch_size=1000
    )
    plain = float(model.log_density(params, mx.data.FullBatch((x, y)).batch(0, key=KEY)))
    weights = np.asarray(net.layers[0].weight)[0]
    truth = plain - 30 * scale**2 * weights @ weights / (2 * 0.5**2)
    densities = np.asarray(densities)
    assert abs(densities.mean() - truth) < 4.9 * densities.std() / np.sqrt(len(densities))


def test_another_strength_is_not_compiled_again():
    traces = []

    @eqx.filter_jit
    def first(source):
        traces.append(1)
        return source.batch(0, key=KEY).x

    found = [first(_turned(transforms=[mx.data.Rotate(angle), mx.data.Flip()])) for angle in (10.0, 50.0)]
    assert len(traces) == 1
    assert not np.array_equal(*found)


# ---- in a fit


def _model(out_size=1):
    network = eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), mx.nets.MLP(56, (), out_size, key=0)])
    return mx.Model(network, mx.likelihoods.Gaussian(scale=0.5))


def _weights(posterior):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.params)])


@pytest.fixture(scope="module")
def whole():
    return _weights(mx.fit(_model(), _turned(), mx.infer.MAP(num_epochs=10), key=0, chunk_size=30))


def test_chunks_leave_no_trace_and_augmentation_does(whole):
    parts = mx.fit(_model(), _turned(), mx.infer.MAP(num_epochs=10), key=0, chunk_size=7)
    assert np.array_equal(_weights(parts), whole)
    plain = mx.fit(_model(), _turned().source, mx.infer.MAP(num_epochs=10), key=0)
    assert not np.allclose(_weights(plain), whole)


def test_a_resumed_run_is_the_same_run(whole, tmp_path):
    method, hooks = mx.infer.MAP(num_epochs=10), (InterruptAt((("train", 10),)),)
    partial = mx.fit(_model(), _turned(), method, key=0, chunk_size=10, hooks=hooks, directory=tmp_path / "run")
    assert not partial.record.finished
    resumed = mx.resume(tmp_path / "run", model=_model())
    assert np.array_equal(_weights(resumed), whole)


def test_mapped_files_are_augmented_like_arrays(tmp_path):
    np.save(tmp_path / "x.npy", np.repeat(IMAGES[:1], 12, axis=0))
    np.save(tmp_path / "y.npy", np.arange(12.0))
    files = mx.data.MappedFiles(tmp_path / "x.npy", tmp_path / "y.npy", batch_size=4)
    source, memory = mx.data.augment(files, [mx.data.Rotate(90.0), mx.data.Shift(1.0)]), _turned()
    assert source.on_host
    np.testing.assert_allclose(source.batch(3, key=KEY).x, memory.batch(3, key=KEY).x, atol=1e-6)
    assert np.isfinite(_weights(mx.fit(_model(), source, mx.infer.MAP(num_epochs=2), key=0))).all()


# ---- targets that are mixed


def test_mixup_keeps_pairs_together_and_means_where_they_are():
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    source = mx.data.augment((x, x @ np.array([1.0, 2.0, 3.0])), mx.data.Mixup(1.0))
    batch = source.batch(0, key=KEY)
    np.testing.assert_allclose(batch.y, batch.x @ np.array([1.0, 2.0, 3.0]), atol=1e-4)
    shares = np.linalg.norm(np.asarray(batch.x) - x, axis=1)
    assert (shares > 1e-3).mean() > 0.8
    keys = jax.random.split(KEY, 2000)
    mix = mx.data.Mixup(0.5).mix
    mixed = np.asarray(jax.vmap(lambda k: mix(jnp.asarray(x), jnp.zeros(50), key=k)[0][0, 0])(keys))
    truth = 0.5 * x[0, 0] + 0.5 * x[:, 0].mean()
    assert abs(mixed.mean() - truth) < 4.9 * mixed.std() / np.sqrt(len(keys))


def test_what_cannot_be_meant_is_refused():
    labels = np.arange(12) % 2
    with pytest.raises(ValueError, match="Mixup, got int32 labels"):
        mx.data.augment((IMAGES, labels), mx.data.Mixup(0.2))
    binary = mx.Model(_model().network, mx.likelihoods.Bernoulli())
    with pytest.raises(ValueError, match="must not be mixed by Mixup for Bernoulli"):
        mx.fit(binary, mx.data.augment((IMAGES, labels.astype(float)), mx.data.Mixup(0.2)), mx.infer.MAP(), key=0)
    with pytest.raises(ValueError, match="same at every step for NUTS"):
        mx.fit(_model(), _turned(batch_size=None), mx.infer.NUTS(), key=0)
    with pytest.raises(ValueError, match=r"images .* for Rotate, got examples of shape \(3,\)"):
        mx.data.augment((np.zeros((4, 3)), np.zeros(4)), mx.data.Rotate(10.0))
    with pytest.raises(ValueError, match="max_degrees must be between 0 and 180, got 200"):
        mx.data.Rotate(200.0)
    with pytest.raises(TypeError, match="transforms must be objects such as"):
        mx.data.augment((IMAGES, labels), "rotate")

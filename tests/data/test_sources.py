"""Batches are pure functions of step and key, visit every row once per epoch, and estimate without bias."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import marginax as mx
from marginax._kernels.permutation import permute, shuffled_rows


def _rows(num, size, steps, key=0):
    source = mx.data.Minibatches((np.zeros((num, 1)), np.arange(num)), batch_size=size)
    batch = jax.jit(lambda step: source.batch(step, key=jax.random.key(key)).index)
    return np.concatenate([np.asarray(batch(step)) for step in range(steps)])


@pytest.mark.parametrize("num", [1, 2, 3, 10, 64, 97, 1000])
def test_permutation_visits_every_row_once(num):
    rows = permute(jnp.arange(num), num, key=jax.random.key(1))
    assert sorted(rows.tolist()) == list(range(num))


@pytest.mark.parametrize(("num", "size"), [(10, 3), (10, 10), (97, 16), (5, 4), (100, 33)])
def test_every_epoch_visits_every_row_once_also_with_a_remainder(num, size):
    epochs = 7
    rows = _rows(num, size, -(-epochs * num // size))[: epochs * num].reshape(epochs, num)
    assert (np.sort(rows, axis=1) == np.arange(num)).all()
    assert len({tuple(epoch) for epoch in rows}) > 1


def test_positions_are_uniform_and_pairs_are_not_correlated():
    num, repeats = 7, 6000
    keys = jax.random.split(jax.random.key(5), repeats)
    rows = np.asarray(jax.vmap(lambda k: permute(jnp.arange(num), num, key=k))(keys))
    single = np.stack([(rows == v).mean(0) for v in range(num)])
    error = np.sqrt((1 / num) * (1 - 1 / num) / repeats)
    assert np.abs(single - 1 / num).max() < 4.9 * error
    pairs = np.zeros((num, num))
    np.add.at(pairs, (rows[:, 0], rows[:, 1]), 1 / repeats)
    expected = 1 / (num * (num - 1))
    off = pairs[~np.eye(num, dtype=bool)]
    assert np.abs(off - expected).max() < 4.9 * np.sqrt(expected / repeats)


def test_batch_of_a_step_is_a_pure_function_of_step_and_key():
    assert (_rows(50, 8, 20) == _rows(50, 8, 20)).all()
    assert (_rows(50, 8, 20) != _rows(50, 8, 20, key=1)).any()


def test_batch_far_into_a_run_does_not_overflow():
    source = mx.data.Minibatches((np.zeros((1000, 1)), np.zeros(1000)), batch_size=128)
    step = 40_000_000  # step * batch_size exceeds 2^32
    epoch, offset = divmod(step * 128, 1000)
    expected = shuffled_rows(epoch, offset, 128, 1000, key=jax.random.key(0))
    assert (source.batch(step, key=jax.random.key(0)).index == expected).all()


def test_scaled_batch_sums_are_unbiased_for_the_remainder_too():
    values = np.arange(10.0) ** 2
    source = mx.data.Minibatches((np.zeros((10, 1)), values), batch_size=4)
    keys = jax.random.split(jax.random.key(0), 4000)
    sums = np.asarray(jax.vmap(lambda k: 10 / 4 * source.batch(2, key=k).y.sum())(keys))  # step 2 crosses an epoch
    assert abs(sums.mean() - values.sum()) < 4.9 * sums.std() / np.sqrt(len(sums))


def test_pandas_jax_and_lists_are_accepted():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
    for x, y in (
        (frame, pd.Series([0, 1])),
        (jnp.ones((2, 2)), jnp.zeros(2)),
        ([[1, 2], [3, 4]], [0.5, 1.5]),
    ):
        arrays = mx.data.Arrays(x, y)
        assert arrays.x.dtype == np.float32
        assert arrays.num_examples == 2


def test_standardise_keeps_labels_and_returns_to_the_users_units():
    x = np.random.default_rng(0).normal(5.0, 3.0, size=(50, 2))
    labels = mx.data.standardise((x, np.arange(50) % 3))
    assert labels.y.dtype == np.int32
    assert labels.scaling.y_shift is None
    real = mx.data.standardise((x, 100 + 7 * x[:, 0]))
    np.testing.assert_allclose(real.x.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(real.scaling.y_shift + real.scaling.y_factor * real.y, 100 + 7 * x[:, 0], rtol=1e-5)


def test_constant_columns_warn_and_do_not_divide_by_zero():
    with pytest.warns(UserWarning, match="constant columns \\[1\\]"):
        data = mx.data.standardise((np.c_[np.arange(5.0), np.ones(5)], np.arange(5.0)))
    assert np.isfinite(data.x).all()


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        (np.array([[np.nan], [1.0]]), np.zeros(2), "x has 1 values that are NaN"),
        (np.zeros((2, 1)), np.array([0.0, np.inf]), "y has 1 values"),
        (np.zeros((0, 1)), np.zeros(0), "x is empty"),
        (np.zeros((3, 1)), np.zeros(2), "same number of rows, got 3 and 2"),
        (np.zeros((2, 1)), np.zeros((2, 1, 1)), "y must have shape"),
        (np.array([["a"], ["b"]]), np.zeros(2), "x must be numeric"),
        (np.zeros((2, 1)), np.array(["cat", "dog"]), "y must be numeric"),
        (1.0, np.zeros(2), "x must have one row per example"),
        (np.full((2, 1), 1e300), np.zeros(2), "too large"),
    ],
)
def test_bad_arrays_are_refused_by_name(x, y, match):
    with pytest.raises((ValueError, TypeError), match=match):
        mx.data.Arrays(x, y)


def test_what_overflows_when_squared_is_refused_by_name():
    x = np.ones((4, 1))
    for pair, name in (((1e30 * x, x), "x"), ((x, -1e30 * x), "y")):
        with pytest.raises(ValueError, match=rf"{name} has values too large for float32 \(1e\+30\): standardise"):
            mx.data.Arrays(*pair)
    assert mx.data.Arrays(1e18 * x, x).x.dtype == np.float32


def test_whole_numbers_beyond_int32_do_not_wrap_around():
    large = np.array([1, 2, 2**32 + 1])
    assert mx.data.Arrays(np.zeros((3, 1)), large).y.tolist() == pytest.approx([1, 2, 2**32])
    assert mx.data.Arrays(np.zeros((3, 1)), large % 5).y.dtype == np.int32


@pytest.mark.parametrize(("x_unit", "y_unit", "name"), [(1e6, 1.0, "x"), (1.0, 1e6, "y"), (1e-6, 1.0, "x")])
def test_units_far_from_one_are_said(x_unit, y_unit, name):
    x = np.linspace(-1, 1, 8)[:, None]
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Gaussian())
    with pytest.warns(UserWarning, match=rf"{name} has values of about .* pass mx.data.standardise"):
        model.check(mx.data.FullBatch((x_unit * x, y_unit * x[:, 0])))
    labels = mx.Model(mx.nets.MLP(1, (), 1, key=0), mx.likelihoods.Poisson())
    labels.check(mx.data.FullBatch((x, np.full(8, 10**6))))  # counts are what they are


def test_constant_target_and_single_row_cannot_be_standardised():
    with pytest.raises(ValueError, match="y is constant"):
        mx.data.standardise((np.arange(4.0)[:, None], np.ones(4)))
    with pytest.raises(ValueError, match="at least 2 rows"):
        mx.data.standardise((np.ones((1, 2)), np.ones(1)))


@pytest.fixture
def mapped(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(103, 2)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", (x @ np.array([1.0, -2.0])).astype(np.float32))
    return tmp_path


def test_mapped_files_give_the_same_epochs_as_arrays_in_memory(mapped):
    source = mx.data.MappedFiles(mapped / "x.npy", mapped / "y.npy", batch_size=10)
    inside = mx.data.Minibatches((np.load(mapped / "x.npy"), np.load(mapped / "y.npy")), batch_size=10)
    for step in (0, 10, 57):
        here, there = source.batch(step, key=jax.random.key(3)), inside.batch(step, key=jax.random.key(3))
        assert (np.asarray(here.index) == np.asarray(there.index)).all()
        np.testing.assert_array_equal(np.asarray(here.x), np.asarray(there.x))


def test_a_model_trains_from_mapped_files(mapped):
    source = mx.data.MappedFiles(mapped / "x.npy", mapped / "y.npy", batch_size=32)
    net = mx.nets.MLP(2, (), 1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.1))
    posterior = mx.fit(
        model, source, mx.infer.MAP(num_epochs=150, batch_size=32, optimiser=mx.infer.Adam(0.05)), key=0, num_chains=2
    )
    assert abs(float(posterior.predict([[1.0, 1.0]]).mean[0]) + 1.0) < 0.05


def test_mapped_files_name_the_row_with_a_nan_and_refuse_foreign_files(mapped):
    x = np.load(mapped / "x.npy")
    x[17, 1] = np.nan
    np.save(mapped / "bad.npy", x)
    source = mx.data.MappedFiles(mapped / "bad.npy", mapped / "y.npy", batch_size=103)
    with pytest.raises(ValueError, match="row 17"):
        source.batch(0, key=jax.random.key(0))
    (mapped / "text.npy").write_text("hello")
    with pytest.raises(ValueError, match=r"x_path must be a readable \.npy"):
        mx.data.MappedFiles(mapped / "text.npy", mapped / "y.npy", batch_size=2)
    with pytest.raises(ValueError, match="batch_size must be an int >= 1, got 0"):
        mx.data.MappedFiles(mapped / "x.npy", mapped / "y.npy", batch_size=0)


def test_mapped_files_are_found_from_any_folder(mapped, monkeypatch, tmp_path):
    monkeypatch.chdir(mapped)
    source = mx.data.MappedFiles("x.npy", "y.npy", batch_size=10)
    before = source.batch(3, key=jax.random.key(0))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ("x", "y"):
        np.save(f"{name}.npy", 7 + np.load(mapped / f"{name}.npy"))  # another file of that name
    np.testing.assert_array_equal(source.batch(3, key=jax.random.key(0)).x, before.x)


def test_mapped_files_that_have_changed_are_refused(mapped):
    source = mx.data.MappedFiles(mapped / "x.npy", mapped / "y.npy", batch_size=10)
    again = mx.files.decode(*mx.files.encode(source))
    content = (mapped / "x.npy").read_bytes()
    (mapped / "x.npy").write_bytes(content)  # another time, the same contents
    again.batch(0, key=jax.random.key(0))
    np.save(mapped / "x.npy", np.load(mapped / "x.npy") + np.float32(1))
    for each in (source, again):
        with pytest.raises(ValueError, match=r"x\.npy has changed since the run began"):
            each.batch(0, key=jax.random.key(0))
    (mapped / "x.npy").write_bytes(content)
    source.batch(0, key=jax.random.key(0))


def test_mapped_files_of_earlier_versions_have_no_stamps(mapped):
    document, arrays = mx.files.encode(mx.data.MappedFiles(mapped / "x.npy", mapped / "y.npy", batch_size=10))
    del document["fields"]["stamps"]
    assert mx.files.decode(document, arrays).batch(0, key=jax.random.key(0)).x.shape == (10, 2)

"""Chunks, memory, compilation and arguments of `predict`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marginax.data import DataSpec
from marginax.model import distributions as dist
from marginax.predict import ParameterDraws, predict
from marginax.predict.workload import chunk_size, chunk_sizes, measure_workload

HIDDEN = 8


class Network(eqx.Module):
    """A small regression network with a global noise scale, or a classifier."""

    offset: jax.Array
    classify: bool = eqx.field(static=True, default=False)

    def predictive(self, params, x, *, key=None):
        output = jnp.tanh(x @ params["in"]) @ params["out"] + self.offset
        if key is not None:
            output = output + jax.random.normal(key)
        return dist.Categorical(output) if self.classify else dist.Normal(output, jnp.exp(params["log_scale"]))


def _params(num_draws, out=1, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"in": (3, HIDDEN), "out": (HIDDEN, out), "log_scale": ()}
    return {name: rng.normal(size=(num_draws, *shape)).astype(np.float32) for name, shape in shapes.items()}


def _x(n):
    return np.random.default_rng(9).normal(size=(n, 3)).astype(np.float32)


SPEC = DataSpec(x_shape=(3,), y_shape=(), num_examples=5)


@pytest.mark.parametrize("max_bytes", [1, 3000])
def test_regression_does_not_depend_on_chunks(max_bytes):
    model, params, x = Network(jnp.ones(())), _params(9), _x(13)
    whole = predict(model, params, x, spec=SPEC)
    parts = predict(model, params, x, spec=SPEC, max_bytes=max_bytes)
    y = np.linspace(-3, 3, 13)
    np.testing.assert_allclose(parts.mixture.components.loc, whole.mixture.components.loc, rtol=1e-5, atol=1e-6)
    for use in [
        lambda p: p.mean,
        lambda p: p.variance,
        lambda p: p.quantile(0.2),
        lambda p: p.log_prob(y),
        lambda p: p.cdf(y),
        lambda p: p.sample(11, key=4),
    ]:
        np.testing.assert_allclose(use(parts), use(whole), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("max_bytes", [1, 20_000])
def test_classification_does_not_depend_on_chunks(max_bytes):
    model, params, x = Network(jnp.ones(()), classify=True), _params(23, out=3), _x(37)
    log_weights = np.random.default_rng(0).normal(size=23)
    whole = predict(model, params, x, spec=SPEC, log_weights=log_weights)
    parts = predict(model, params, x, spec=SPEC, log_weights=log_weights, max_bytes=max_bytes)
    for name in ["log_probs", "expected_entropy", "mutual_information", "epistemic_variance"]:
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-5, atol=2e-6)
    if max_bytes > 1:
        np.testing.assert_allclose(parts.covariance, whole.covariance, atol=1e-7)


def test_a_second_prediction_compiles_nothing():
    traces = 0

    class Counting:
        def predictive(self, params, x, *, key=None):
            nonlocal traces
            traces += isinstance(jnp.sum(x), jax.core.Tracer) and x.shape[0] != 8191
            return dist.Normal(params * x[:, :1], 1.0)

    model = Counting()

    def use(n, seed):
        prediction = predict(model, np.random.default_rng(seed).normal(size=5), _x(n), spec=SPEC)
        _ = prediction.mean, prediction.std, prediction.interval(0.9), prediction.log_prob(np.zeros(n))

    use(1000, 0)
    assert traces == 1
    use(1000, 1)
    use(1010, 2)  # close enough to share the padded shape
    assert traces == 1


def test_parameters_may_be_memory_mapped_or_on_the_device(tmp_path):
    params, x = _params(6), _x(4)
    expected = predict(Network(jnp.ones(())), params, x, spec=SPEC, max_bytes=5000).mean
    mapped = {}
    for name, value in params.items():
        np.save(tmp_path / f"{name}.npy", value)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    on_device = jax.tree.map(jnp.asarray, params)
    for same in (mapped, on_device):
        found = predict(Network(jnp.ones(())), same, jnp.asarray(x), spec=SPEC, max_bytes=5000).mean
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_each_draw_has_its_key():
    params = jax.tree.map(lambda leaf: np.repeat(leaf[:1], 7, axis=0), _params(1))
    keys = jax.random.split(jax.random.key(0), 7)
    model, x = Network(jnp.zeros(())), _x(5)
    without = predict(model, params, x, spec=SPEC)
    assert np.all(without.epistemic < 1e-12)
    noise = np.asarray(jax.vmap(jax.random.normal)(keys), float)
    for max_bytes in (2**20, 1):
        prediction = predict(model, params, x, spec=SPEC, keys=keys, max_bytes=max_bytes)
        np.testing.assert_allclose(prediction.epistemic, noise.var(), rtol=1e-4)


def test_leaves_without_rows_stay_small():
    prediction = predict(Network(jnp.zeros(())), _params(6), _x(50), spec=SPEC)
    assert prediction.mixture.components.loc.shape == (6, 50, 1)
    assert prediction.mixture.components.scale.shape == (6,)
    assert prediction.components.scale.shape == (6,)


def test_the_workload_sees_the_largest_intermediate():
    params = _params(4)
    functions = ParameterDraws(Network(jnp.zeros(())), params)
    workload = measure_workload(functions, jax.ShapeDtypeStruct((1, 3), jnp.float32))
    assert workload.numbers_per_row == HIDDEN
    assert workload.numbers_per_draw == 3 * HIDDEN + HIDDEN + 1
    assert workload.row_axes == (True, False)
    draws, rows = chunk_sizes(10**6, 10**6, workload, 2**20)
    assert draws * rows * HIDDEN * 4 <= 2**20
    assert draws * rows * HIDDEN * 4 > 2**16


def test_chunk_sizes_cover_everything_evenly():
    for total in [1, 7, 100, 2049, 10_000]:
        for limit in [0, 1, 5, 64, 2048]:
            size = chunk_size(total, limit)
            assert 1 <= size <= max(limit, 1)
            assert size * -(-total // size) < total * 1.2 + size


def test_bad_arguments_are_named():
    model, params, x = Network(jnp.zeros(())), _params(4), _x(3)
    with pytest.raises(ValueError, match=r"log_weights must have shape \(4,\)"):
        predict(model, params, x, spec=SPEC, log_weights=np.zeros(3))
    with pytest.raises(ValueError, match="log_weights must be finite"):
        predict(model, params, x, spec=SPEC, log_weights=np.full(4, -np.inf))
    with pytest.raises(ValueError, match="params must have one leading axis"):
        predict(model, {**params, "log_scale": np.zeros(5)}, x, spec=SPEC)
    with pytest.raises(ValueError, match="x must have at least one row"):
        predict(model, params, x[:0], spec=SPEC)

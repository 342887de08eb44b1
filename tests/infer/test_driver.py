"""The one loop: chunks leave no trace, runs survive being killed, chains are independent, hooks keep their word."""

import os
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.files import FileError, register
from marginax.infer import MAP, AbstractHook, Adam, DeepEnsemble, EarlyStopping, Verdict
from marginax.infer.method import AbstractMethod, Phase, params_of
from marginax.posterior import Draws

RUN = """
import numpy as np, marginax as mx
rng = np.random.default_rng(0)
x = rng.normal(size=(150, 3)); y = np.sin(x.sum(1)) + 0.1 * rng.normal(size=150)
net = mx.nets.MLP(3, (16,), 2, key=0)
model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()))
method = mx.infer.DeepEnsemble(3, mx.infer.MAP(num_epochs=60_000, batch_size=32))
"""


def _small():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    net = mx.nets.MLP(3, (8,), 1, key=0)
    return mx.Model(net, likelihood=mx.likelihoods.Gaussian()), (x, x.sum(1) + 0.1 * rng.normal(size=50))


def _same(a, b):
    return all(np.array_equal(u, v) for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("batch_size", [None, 16])
@pytest.mark.parametrize("chunk_size", [1, 7])
def test_result_does_not_depend_on_the_chunk_size(batch_size, chunk_size):
    model, data = _small()
    method = MAP(num_epochs=20, batch_size=batch_size)
    whole = mx.fit(model, data, method, key=0, num_chains=2)
    parts = mx.fit(model, data, method, key=0, num_chains=2, chunk_size=chunk_size)
    assert _same(whole.params, parts.params)
    assert np.array_equal(whole.record.info["train"]["log_density"], parts.record.info["train"]["log_density"])


def test_chains_do_not_depend_on_how_many_others_there_are():
    model, data = _small()
    three = mx.fit(model, data, MAP(num_epochs=20, batch_size=16), key=0, num_chains=3)
    two = mx.fit(model, data, MAP(num_epochs=20, batch_size=16), key=0, num_chains=2)
    for a, b in zip(jax.tree.leaves(three.params), jax.tree.leaves(two.params), strict=True):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-4, atol=1e-5)
    assert not _same(jax.tree.map(lambda a: a[0], three.params), jax.tree.map(lambda a: a[1], three.params))


def test_another_learning_rate_does_not_recompile(caplog):
    model, data = _small()
    mx.fit(model, data, MAP(num_epochs=5, batch_size=None, optimiser=Adam(1e-3)), key=0)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        mx.fit(model, data, MAP(num_epochs=5, batch_size=None, optimiser=Adam(2e-3)), key=1)
    assert not [r for r in caplog.records if "Compiling" in r.getMessage() and "run_chunk" in r.getMessage()]


def _killed_run(tmp_path, seconds):
    script = RUN + f"mx.fit(model, (x, y), method, key=3, directory={str(tmp_path / 'run')!r})"
    process = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoint-1").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_a_run_killed_at_any_time_resumes_bit_for_bit(tmp_path):
    space: dict = {}
    exec(RUN, space)  # noqa: S102
    method = DeepEnsemble(3, MAP(num_epochs=400, batch_size=32))
    whole = mx.fit(space["model"], (space["x"], space["y"]), method, key=3)

    class Kill(AbstractHook):
        def after_chunk(self, memory, event):
            if event.step >= 700:
                raise ConnectionAbortedError
            return Verdict(memory, event.states)

    with pytest.raises(ConnectionAbortedError):
        mx.fit(
            space["model"],
            (space["x"], space["y"]),
            method,
            key=3,
            hooks=[Kill()],
            directory=tmp_path / "run",
            chunk_size=50,
        )
    assert not (tmp_path / "run" / "posterior").exists()
    with pytest.raises(FileError, match=r"mx\.resume"):
        mx.load(tmp_path / "run")
    resumed = mx.resume(tmp_path / "run", hooks=[])
    assert _same(whole.params, resumed.params)
    assert np.array_equal(whole.record.info["train"]["log_density"], resumed.record.info["train"]["log_density"])
    assert _same(mx.load(tmp_path / "run").params, whole.params)
    assert _same(mx.resume(tmp_path / "run").params, whole.params)


class KeptKey(eqx.Module):
    """A state, and the words of a key."""

    params: object
    words: jax.Array


@register("tests/key_recorder")
class KeyRecorder(AbstractMethod):
    """Goes nowhere, and writes down the key of its start and of every step; the keys of batches are in the batches."""

    batch_size: int | None = 4
    num_steps: int = 40

    def init(self, model, params, batch, *, key):
        return KeptKey(params, jax.random.key_data(key))

    def phases(self, num_examples, batch_size):
        steps = [Phase(name, self.num_steps, self.step, as_next=name == "warmup") for name in ("train", "warmup")]
        return (*steps, Phase("sample", self.num_steps, self.step, params_of, 4))

    def step(self, model, state, batch, *, key):
        words = jax.random.key_data(key)
        return state, {"first": words[0], "second": words[1], "start": state.words[0], "rows": batch.index}

    def posterior(self, model, state, draws, infos):
        return Draws(model=model, params=draws)


class _Kill(AbstractHook):
    def after_chunk(self, memory, event):
        if event.phase == "warmup" and event.step >= 20:
            raise ConnectionAbortedError
        return Verdict(memory, event.states)


def test_no_two_steps_have_the_same_key(tmp_path):
    """Over phases (also those that share a program), steps, chains, starts, and before and after an interruption."""
    model, data = _small()
    method = KeyRecorder()
    whole = mx.fit(model, data, method, key=0, num_chains=3)
    with pytest.raises(ConnectionAbortedError):
        mx.fit(model, data, method, key=0, num_chains=3, hooks=[_Kill()], directory=tmp_path / "run", chunk_size=20)
    resumed = mx.resume(tmp_path / "run", hooks=[])
    for posterior in (whole, resumed):
        info = posterior.record.info
        assert set(info) == {"train", "warmup", "sample"}
        keys = np.concatenate([np.stack([p["first"], p["second"]], axis=-1).reshape(-1, 2) for p in info.values()])
        assert len(keys) == 3 * 3 * 40
        assert len(np.unique(keys, axis=0)) == len(keys)
        starts = np.unique(info["train"]["start"])
        assert len(starts) == 3
        assert not np.isin(starts, keys).any()
    assert all(np.array_equal(whole.record.info[p][n], resumed.record.info[p][n]) for p in info for n in info[p])


def test_batches_are_in_another_order_in_every_phase_and_chain():
    model, data = _small()
    info = mx.fit(model, data, KeyRecorder(), key=0, num_chains=3).record.info
    orders = [tuple(chain[:12].ravel().tolist()) for phase in info.values() for chain in phase["rows"]]
    assert len(set(orders)) == 9


@pytest.mark.slow
def test_sigkill_leaves_a_run_that_can_be_resumed(tmp_path):
    _killed_run(tmp_path, 0.3)
    assert mx.files.RunDirectory(tmp_path / "run").read().get("num_chains") == 3
    posterior = mx.resume(tmp_path / "run", hooks=[_Stop()])
    curve = posterior.record.info["train"]["log_density"]
    assert curve.shape == (3, posterior.record.num_steps["train"])  # no step lost, none doubled
    assert np.isfinite(curve).all()


class _Stop(AbstractHook):
    """End the phase after the next chunk."""

    def after_chunk(self, memory, event):
        return Verdict(memory, event.states, stop=True)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path):
    model, data = _small()
    method = MAP(num_epochs=400, batch_size=16)
    whole = mx.fit(model, data, method, key=0)

    class Crash(AbstractHook):
        def after_chunk(self, memory, event):
            if event.step >= 600:
                raise ConnectionAbortedError
            return Verdict(memory, event.states)

    with pytest.raises(ConnectionAbortedError):
        mx.fit(model, data, method, key=0, hooks=[Crash()], directory=tmp_path / "run", chunk_size=40)
    counts = {}
    for place in (0, 1):
        document, _ = mx.files.read_bundle(tmp_path / "run" / f"checkpoint-{place}", "checkpoint")
        counts[document["count"]] = place
    newest = tmp_path / "run" / f"checkpoint-{counts[max(counts)]}" / "arrays.safetensors"
    content = bytearray(newest.read_bytes())
    content[-5] ^= 0x10
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match="damaged and was passed over"):
        resumed = mx.resume(tmp_path / "run", hooks=[])
    assert _same(whole.params, resumed.params)


def test_ctrl_c_keeps_what_there_is_and_can_be_resumed(tmp_path):
    model, data = _small()

    class PressCtrlC(AbstractHook):
        def after_chunk(self, memory, event):
            if event.step >= 300:
                os.kill(os.getpid(), signal.SIGINT)
            return Verdict(memory, event.states)

    method = MAP(num_epochs=300, batch_size=16)
    posterior = mx.fit(model, data, method, key=0, hooks=[PressCtrlC()], directory=tmp_path / "run", chunk_size=100)
    assert not posterior.record.finished
    assert 300 <= posterior.record.num_steps["train"] <= 400
    assert any("interrupted" in text for text in posterior.summary().warnings)
    assert np.isfinite(posterior.predict(data[0]).mean).all()
    assert _same(mx.resume(tmp_path / "run", hooks=[]).params, mx.fit(model, data, method, key=0).params)


def test_one_bad_chain_is_reported_and_leaves_the_others_alone():
    model, data = _small()
    starts = mx.fit(model, data, MAP(num_epochs=1, batch_size=None), key=0, num_chains=3)
    poisoned = eqx.tree_at(
        lambda p: p.params.network.layers[0].bias, starts, np.asarray(starts.params.network.layers[0].bias).copy()
    )
    poisoned.params.network.layers[0].bias[1] = np.nan
    method = MAP(num_epochs=20, batch_size=None)
    healthy = mx.fit(model, data, method, key=1, num_chains=3, init=starts)
    with pytest.warns(RuntimeWarning, match="chain 1 became NaN"):
        rest = mx.fit(model, data, method, key=1, num_chains=3, init=poisoned)
    assert rest.record.dropped_chains == (1,)
    assert rest.num_chains == 2
    assert _same(rest.params, jax.tree.map(lambda leaf: leaf[[0, 2]], healthy.params))
    assert "chain 1 became NaN" in str(rest.summary())


def _positive(w):
    """Independent gamma variables, whose density is NaN on the other side of zero."""
    return jnp.sum(jnp.log(w) - w)


@pytest.mark.parametrize(
    "method",
    [mx.infer.MCLMC(200, 50), mx.infer.NUTS(100, 50), mx.infer.AdjustedMCLMC(100, 50), MAP(num_epochs=50)],
    ids=lambda method: type(method).__name__,
)
def test_starts_without_a_density_are_drawn_again(method):
    density = mx.Density(_positive, jnp.ones(2))
    posterior = mx.fit(density, None, method, key=0, num_chains=8)
    moved = [text for text in posterior.record.warnings if "began elsewhere" in text]
    assert 0 < len(moved) < 8
    assert posterior.record.dropped_chains == ()
    assert posterior.params.shape[0] == 8
    assert (np.asarray(posterior.params) > 0).all()
    assert np.isfinite(np.asarray(posterior.params)).all()


@pytest.mark.parametrize("method", [mx.infer.MCLMC(50, 20), mx.infer.NUTS(20, 20)], ids=["MCLMC", "NUTS"])
def test_a_start_that_was_given_is_not_replaced_but_named(method):
    density = mx.Density(_positive, jnp.ones(2))
    starts = Draws(density, np.array([[[1.0, 1.0]], [[-1.0, 1.0]], [[2.0, 0.5]]], np.float32))
    with pytest.warns(RuntimeWarning, match=r"chain 1 became NaN .*: its log density is not finite where it starts"):
        posterior = mx.fit(density, None, method, key=0, num_chains=3, init=starts)
    assert posterior.record.dropped_chains == (1,)
    assert np.isfinite(np.asarray(posterior.params)).all()


def test_starts_that_stay_bad_are_named_after_some_tries():
    density = mx.Density(lambda w: jnp.where(jnp.all(jnp.abs(w) < 1e-3), 0.0, jnp.nan) - jnp.sum(w**2), jnp.zeros(2))
    with pytest.warns(RuntimeWarning, match="chain 1 became NaN in phase 'train' .* where it starts"):
        posterior = mx.fit(density, None, MAP(num_epochs=2), key=0, num_chains=2)
    assert posterior.record.dropped_chains == (1,)
    model, (x, y) = _small()
    model = eqx.tree_at(lambda m: m.network, model, _Hopeless())
    with (
        pytest.raises(FloatingPointError, match=r"all 2 chains .* not finite where they start: .* or pass init="),
        pytest.warns(RuntimeWarning, match="where it starts"),
    ):
        mx.fit(model, (x, y), MAP(num_epochs=2), key=0, num_chains=2)


class _Hopeless(eqx.Module):
    weight: jax.Array = eqx.field(default_factory=lambda: jnp.ones((1, 3)))

    def __call__(self, x):
        return self.weight @ x + jnp.log(-1.0)


def test_all_chains_bad_is_an_error_that_says_what_to_do():
    model, data = _small()
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(FloatingPointError, match="lower the learning rate"),
    ):
        mx.fit(model, data, MAP(num_epochs=50, batch_size=None, optimiser=mx.infer.SGD(1e30)), key=0)


@pytest.mark.slow
def test_early_stopping_returns_to_the_best_weights_of_each_chain():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    y = x.sum(1) + rng.normal(size=40)
    model = mx.Model(
        mx.nets.MLP(3, (64,), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.3), prior=mx.priors.Flat()
    )
    held = (rng.normal(size=(200, 3)),)
    held = (held[0], held[0].sum(1) + rng.normal(size=200))
    method = MAP(num_epochs=2000, batch_size=None, optimiser=Adam(1e-2, schedule=mx.infer.Constant()))
    stopped = mx.fit(model, (x, y), method, key=0, num_chains=2, hooks=[EarlyStopping(held, patience=30)])
    assert stopped.record.num_steps["train"] < 2000
    plain = mx.fit(model, (x, y), method, key=0, num_chains=2)
    assert stopped.predict(held[0]).log_prob(held[1]).mean() > plain.predict(held[0]).log_prob(held[1]).mean() + 0.5
    chunked = mx.fit(model, (x, y), method, key=0, num_chains=2, hooks=[EarlyStopping(held, patience=30)], chunk_size=7)
    assert _same(stopped.params, chunked.params)


def test_early_stopping_can_hold_out_a_fraction():
    model, data = _small()
    posterior = mx.fit(model, data, MAP(num_epochs=5), key=0, hooks=[EarlyStopping(0.2)])
    assert posterior.spec.num_examples == 40


@pytest.mark.slow
def test_a_time_limit_ends_training_and_sampling_and_says_so():
    model, data = _small()
    method = mx.infer.SGLD(training=MAP(num_epochs=500), num_samples=200, thin=20)
    posterior = mx.fit(model, data, method, key=0, num_chains=2, hooks=[mx.infer.TimeLimit(1e-9)])
    for phase in method.phases(50, 50):
        ended = phase.name in ("train", "sample")  # after one chunk, but with a draw; a warm-up runs to its end
        assert (posterior.record.num_steps[phase.name] < phase.num_steps) == ended
        assert any(repr(phase.name) in note for note in posterior.record.warnings) == ended
    assert 1 <= jax.tree.leaves(posterior.params)[0].shape[1] < 200
    assert posterior.record.finished
    whole = mx.fit(model, data, MAP(num_epochs=200), key=0, hooks=[mx.infer.TimeLimit(3600)])
    assert whole.record.num_steps == {"train": 200}
    assert not any(repr("train") in note for note in whole.record.warnings)


def test_init_takes_a_network_or_a_posterior():
    model, data = _small()
    net = mx.nets.MLP(3, (8,), 1, key=9)
    still = MAP(num_epochs=1, batch_size=None, optimiser=Adam(1e-20))
    from_net = mx.fit(model, data, still, key=0, num_chains=2, init=net)
    assert np.allclose(from_net.params.network.layers[0].weight[1, 0], net.layers[0].weight)
    ensemble = mx.fit(model, data, MAP(num_epochs=2), key=1, num_chains=4)
    spread = mx.fit(model, data, still, key=0, num_chains=2, init=ensemble)
    first = np.asarray(ensemble.params.network.layers[0].weight)[:, 0]
    assert np.allclose(np.asarray(spread.params.network.layers[0].weight)[:, 0], first[[0, 3]])
    with pytest.raises(ValueError, match="init must be a network of the same architecture"):
        mx.fit(model, data, still, key=0, init=mx.nets.MLP(3, (9, 9), 1, key=0))


@pytest.mark.slow
def test_chains_are_spread_over_devices_without_environment_variables(tmp_path):
    script = """
import marginax as mx
mx.use_cores(2)
import jax, numpy as np
assert len(jax.devices()) == 2
rng = np.random.default_rng(0)
x = rng.normal(size=(50, 3)); y = x.sum(1)
model = mx.Model(mx.nets.MLP(3, (8,), 1, key=0), likelihood=mx.likelihoods.Gaussian())
method = mx.infer.MAP(num_epochs=20, batch_size=16)
spread = mx.fit(model, (x, y), method, key=0, num_chains=4)
odd = mx.fit(model, (x, y), method, key=0, num_chains=3)
a, b = spread.predict(x), odd.predict(x)
assert np.isfinite(a.mean).all() and a.num_draws == 4 and b.num_draws == 3
w, v = (np.asarray(p.params.network.layers[0].weight) for p in (spread, odd))
np.testing.assert_allclose(w[:3], v, rtol=1e-3, atol=1e-4)
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "XLA_FLAGS": ""})


def test_use_cores_after_jax_has_started_says_so():
    jnp.zeros(1).block_until_ready()
    with pytest.raises(RuntimeError, match="before JAX has computed anything"):
        mx.use_cores(2)


BAD = {
    "num_chains": (lambda m, d: mx.fit(m, d, MAP(), key=0, num_chains=0), "num_chains must be an int >= 1, got 0"),
    "method": (lambda m, d: mx.fit(m, d, "nutz", key=0), "method must be .*one of .*NUTS.* got 'nutz'"),
    "model": (lambda m, d: mx.fit(m.network, d, MAP(), key=0), "model must be an mx.Model"),
    "key": (lambda m, d: mx.fit(m, d, MAP(), key="seed"), "key must be an int seed or a JAX key"),
    "data": (lambda m, d: mx.fit(m, d[0], MAP(), key=0), "data must be a pair"),
    "hooks": (lambda m, d: mx.fit(m, d, MAP(), key=0, hooks=["stop"]), "hooks must be objects"),
    "num_epochs": (lambda m, d: MAP(num_epochs=0), "num_epochs must be an int >= 1 or None, got 0"),
    "batch_size": (lambda m, d: MAP(batch_size=-1), "batch_size must be an int >= 1 or None, got -1"),
    "optimiser": (lambda m, d: MAP(optimiser="adam"), "optimiser must be"),
    "lbfgs with batches": (lambda m, d: MAP(optimiser=mx.infer.LBFGS()), "needs batch_size=None"),
    "learning_rate": (lambda m, d: Adam(learning_rate=-1.0), "learning_rate must be > 0, got -1.0"),
    "validation": (lambda m, d: EarlyStopping(1.5), "validation must be a fraction"),
    "seconds": (lambda m, d: mx.infer.TimeLimit(0), "seconds must be > 0"),
    "members": (lambda m, d: DeepEnsemble(0), "num_members must be an int >= 1, got 0"),
    "minibatches for an exact sampler": (
        lambda m, d: mx.fit(m, mx.data.Minibatches(d, batch_size=10), mx.infer.NUTS(), key=0),
        "data must come as one full batch for NUTS",
    ),
    "flat anchors": (
        lambda m, d: mx.fit(
            mx.Model(m.network, m.likelihood, mx.priors.Flat()), d, mx.infer.AnchoredEnsemble(2), key=0
        ),
        "improper",
    ),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused_by_name_and_nothing_is_written(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, match = BAD[name]
    with pytest.raises((ValueError, TypeError), match=match):
        call(*_small())
    assert not list(tmp_path.iterdir())


def test_bad_data_leave_no_directory_behind(tmp_path):
    model, (x, y) = _small()
    with pytest.raises(ValueError, match="NaN"):
        mx.fit(model, (np.where(x > 1, np.nan, x), y), MAP(), key=0, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty"):
        mx.fit(model, (x, y), MAP(), key=0, directory=tmp_path / "full")
    with pytest.raises(FileError, match=r"holds no run: it was not made by mx\.fit"):
        mx.resume(tmp_path / "full")

"""Kept draws go to disk as they come: memory stays bounded, and a crash at any place loses nothing."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import marginax as mx
from marginax.files import FileError, read_bundle, register
from marginax.infer import AbstractHook, AbstractMethod, Phase, Verdict, room
from marginax.posterior import Draws


class WalkState(eqx.Module):
    params: mx.model.Params
    key: jax.Array


class WalkInfo(eqx.Module):
    log_density: jax.Array


@register
class Walk(AbstractMethod):
    """Adds noise to the weights: nothing to learn, everything to keep."""

    num_warmup: int = 20
    num_samples: int = 60
    thin: int = 1

    @property
    def batch_size(self) -> None:
        return

    def init(self, model, params, batch, *, key):
        return WalkState(params, key)

    def phases(self, num_examples, batch_size):
        sample = Phase("sample", self.num_samples * self.thin, self.step, lambda s: s.params, self.thin)
        return (Phase("warmup", self.num_warmup, self.step), sample)

    def step(self, model, state, batch, *, key):
        leaves, treedef = jax.tree.flatten(state.params)
        keys = jax.random.split(key, len(leaves))
        moved = [leaf + 0.01 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
        params = jax.tree.unflatten(treedef, moved)
        return WalkState(params, state.key), WalkInfo(jnp.sum(moved[0]))

    def posterior(self, model, state, draws, infos):
        if draws is None or jax.tree.leaves(draws)[0].shape[1] == 0:
            raise KeyboardInterrupt("no draw yet")
        return Draws(model=model, params=draws)


@register
class Line(eqx.Module):
    """One big vector of weights, of which a few matter."""

    weight: jax.Array

    def __call__(self, x):
        return x @ self.weight[: x.shape[-1], None]


def small(width=7):
    x = np.linspace(-1, 1, 24).reshape(8, 3)
    model = mx.Model(Line(jnp.zeros(width)), likelihood=mx.likelihoods.Gaussian(scale=0.1))
    return model, (x, x.sum(1))


def fit(method=None, *, num_chains=2, **options):
    model, data = small()
    return mx.fit(model, data, method or Walk(), key=0, num_chains=num_chains, progress=False, **options)


def is_mapped(array):
    """Whether the numbers lie in a file that is mapped into memory."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return type(array).__name__ in ("mmap", "memoryview")


def assert_same(found, wanted):
    for a, b in zip(jax.tree.leaves(found.params), jax.tree.leaves(wanted.params), strict=True):
        np.testing.assert_array_equal(a, b)
    for phase, info in wanted.record.info.items():
        for name, values in info.items():
            np.testing.assert_array_equal(found.record.info[phase][name], values)


@pytest.fixture(scope="module")
def whole():
    return fit()


class At(AbstractHook):
    """Do something once, when a phase has come to a step."""

    phase: str
    step: int
    action: object

    def every(self, phase, source):
        return self.step if phase == self.phase else None

    def after_chunk(self, memory, event):
        if (event.phase, event.step) == (self.phase, self.step):
            self.action()
        return Verdict(memory, event.states)


def fail():
    raise ConnectionAbortedError


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


# ---- where the draws are


def test_draws_of_a_run_on_disk_are_maps_of_its_one_file_of_draws(tmp_path, whole):
    run = tmp_path / "run"
    posterior = fit(directory=run, chunk_size=7)
    assert_same(posterior, whole)
    for found in (posterior, mx.load(run), mx.resume(run)):
        assert_same(found, whole)
        for leaf in jax.tree.leaves(found.params):
            assert is_mapped(leaf)
            assert not leaf.flags.writeable
        assert all(is_mapped(leaf) for leaf in jax.tree.leaves(found.flat()))  # merging (chain, draw) copies nothing
        np.testing.assert_array_equal(found.predict(np.ones((2, 3))).mean, whole.predict(np.ones((2, 3))).mean)
    draws = [path for path in run.rglob("*.safetensors") if "draws" in path.name]
    assert draws == [run / "posterior" / "draws.safetensors"]
    names = safetensors.numpy.load_file(draws[0])
    assert sum(value.nbytes for value in names.values()) == sum(a.nbytes for a in jax.tree.leaves(whole.params))


def test_a_mapped_posterior_can_be_saved_elsewhere_and_outlives_its_run(tmp_path, whole):
    posterior = fit(directory=tmp_path / "run")
    posterior.save(tmp_path / "copy")
    shutil.rmtree(tmp_path / "run")
    assert_same(posterior, whole)
    copy = mx.load(tmp_path / "copy")
    assert_same(copy, whole)
    copy.save(tmp_path / "copy", overwrite=True)
    assert_same(mx.load(tmp_path / "copy"), whole)
    assert "60 draws" in str(copy.summary())
    assert jax.tree.leaves(copy.sample(5, key=0))[0].shape == (5, 7)


def test_a_dropped_chain_leaves_no_gap_in_the_mapped_draws(tmp_path):
    model, data = small()
    starts = Draws(model=model, params=jax.tree.map(lambda a: np.zeros((3, 1, *a.shape), a.dtype), model.initial(1)))
    jax.tree.leaves(starts.params)[0][1] = np.nan
    with pytest.warns(RuntimeWarning, match="chain 1 became NaN"):
        found = mx.fit(model, data, Walk(), key=0, num_chains=3, init=starts, directory=tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="chain 1 became NaN"):
        wanted = mx.fit(model, data, Walk(), key=0, num_chains=3, init=starts)
    assert found.num_chains == 2
    assert all(is_mapped(leaf) for leaf in jax.tree.leaves(found.flat()))
    assert_same(found, wanted)
    assert_same(mx.load(tmp_path / "run"), wanted)
    assert not list((tmp_path / "run").glob("*draws*"))


def test_draws_that_do_not_fit_are_refused_before_they_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"GiB of memory are free: pass directory=.*thin="):
        fit()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type(usage)(usage.total, usage.total, 1000))
    with pytest.raises(FileError, match="GiB on the disk are free: choose another directory"):
        fit(directory=tmp_path / "run")


# ---- faults


@pytest.mark.parametrize(("phase", "step"), [("warmup", 10), ("sample", 30)])
def test_ctrl_c_returns_the_draws_so_far_and_a_resumed_run_the_rest(tmp_path, whole, phase, step):
    hook = At(phase, step, press_ctrl_c)
    if phase == "warmup":
        with pytest.raises(KeyboardInterrupt):
            fit(directory=tmp_path / "run", hooks=[hook], chunk_size=7)
    else:
        part = fit(directory=tmp_path / "run", hooks=[hook], chunk_size=7)
        assert part.num_draws == 30
        assert all(is_mapped(leaf) for leaf in jax.tree.leaves(part.flat()))
        before = jax.tree.map(lambda leaf: leaf[:, :30], whole.params)
        jax.tree.map(np.testing.assert_array_equal, part.params, before)
    assert_same(mx.resume(tmp_path / "run", hooks=[]), whole)


def damage(path, place):
    with path.open("r+b") as file:
        file.seek(place, os.SEEK_END)
        byte = file.read(1)
        file.seek(place, os.SEEK_END)
        file.write(bytes([byte[0] ^ 0x10]))


def broken_run(path):
    """A run on disk that crashed after some 40 draws of 60: the draws that its two checkpoints count, and the file."""
    with pytest.raises(ConnectionAbortedError):
        fit(directory=path, hooks=[At("sample", 40, fail)], chunk_size=10, num_chains=1)
    documents = [read_bundle(path / f"checkpoint-{place}", "checkpoint")[0] for place in (0, 1)]
    counts = sorted(document["kept"]["draws-1"]["count"] for document in documents)
    assert 0 < counts[0] < counts[1] < 40
    return *counts, path / "draws-1.safetensors"


@pytest.mark.parametrize("outcome", ["nothing", "warning", "error"])
def test_damaged_draws_are_noticed(tmp_path, outcome):
    """Not counted yet: written again. In the last chunk: the checkpoint before is good. Earlier: no way."""
    wanted = fit(num_chains=1)
    before, last, file = broken_run(tmp_path / "run")
    slot = {"nothing": last, "warning": last - 1, "error": before - 1}[outcome]
    damage(file, (slot - 60) * 7 * 4)
    if outcome == "error":
        with pytest.raises(FileError, match=rf"cannot be resumed.*first {last} slots does not match.*remove all"):
            mx.resume(tmp_path / "run", hooks=[])
        return
    if outcome == "warning":
        with pytest.warns(UserWarning, match=f"passed over.*first {last} slots does not match"):
            found = mx.resume(tmp_path / "run", hooks=[])
    else:
        found = mx.resume(tmp_path / "run", hooks=[])
    assert_same(found, wanted)


@pytest.mark.parametrize("how", ["missing", "truncated", "header"])
def test_a_file_of_draws_that_is_gone_or_cut_is_an_error(tmp_path, how):
    *_, file = broken_run(tmp_path / "run")
    content = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(content[:-1] if how == "truncated" else content[:20] + b"!" + content[21:])
    with pytest.raises(FileError, match=r"cannot be resumed.*draws-1"):
        mx.resume(tmp_path / "run", hooks=[])


def test_damaged_draws_of_a_finished_run_are_noticed_when_it_is_loaded(tmp_path):
    fit(directory=tmp_path / "run")
    damage(tmp_path / "run" / "posterior" / "draws.safetensors", -100)
    for read in (mx.load, mx.resume):
        with pytest.raises(FileError, match=r"draws\.safetensors: damaged: the SHA-256"):
            read(tmp_path / "run")


@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_a_full_disk_is_said_and_what_was_kept_is_there(tmp_path, whole, monkeypatch, call):
    real = getattr(os, call)
    hook = At("sample", 30, lambda: monkeypatch.setattr(os, call, full))

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "link":  # no links on this file system: the draws are copied
        monkeypatch.setattr(os, call, full)
        assert_same(fit(directory=tmp_path / "run"), whole)
        assert_same(mx.load(tmp_path / "run"), whole)
        return
    with pytest.raises(FileError, match="no space left on device"):
        fit(directory=tmp_path / "run", hooks=[hook], chunk_size=10)
    monkeypatch.setattr(os, call, real)
    kept = safetensors.numpy.load_file(tmp_path / "run" / "draws-1.safetensors")["draw/00000"]
    np.testing.assert_array_equal(kept[:, :20], jax.tree.leaves(whole.params)[0][:, :20])
    assert_same(mx.resume(tmp_path / "run", hooks=[]), whole)


CRASH = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import test_streaming as streaming
from marginax.files import GrowingFile, disk
import marginax.files.growing as growing

place, number = {place!r}, {number}
calls = 0
def dying(call, when):
    def wrapped(*args, **kwargs):
        global calls
        calls += 1
        if calls == number and when == "half":  # inside the write: half of the bytes are on disk
            os.write(args[0], args[1][: len(args[1]) // 2])
        if calls == number and when != "after":
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*args, **kwargs)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapped

if place == "inside the write of draws":
    growing.write_all = dying(growing.write_all, "half")
elif place == "between draws and checkpoint":
    GrowingFile.sync = dying(GrowingFile.sync, "after")
elif place == "inside the checkpoint":
    os.rename = dying(os.rename, "before")
elif place == "inside the link to the posterior":
    os.link = dying(os.link, "after")
streaming.fit(directory={run!r}, chunk_size=7)
"""


# 3 writes in adapt per chunk (2 rows of info and the header of the file at first), 4 in sample
PLACES = [
    ("inside the write of draws", 4),
    ("inside the write of draws", 17),
    ("between draws and checkpoint", 2),
    ("between draws and checkpoint", 9),
    ("inside the checkpoint", 9),
    ("inside the link to the posterior", 1),
]


def run_until_killed(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "number"),
    [*PLACES[::3], *(pytest.param(*p, marks=pytest.mark.slow) for p in PLACES if p not in PLACES[::3])],
)
def test_a_kill_at_any_place_loses_and_doubles_nothing(tmp_path, whole, place, number):
    folder, run = str(Path(__file__).parent), str(tmp_path / "run")
    run_until_killed(CRASH.format(folder=folder, place=place, number=number, run=run))
    assert_same(mx.resume(run, hooks=[]), whole)
    assert_same(mx.load(run), whole)


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["warmup", "sample"])
def test_sigkill_at_random_times_resumes_bit_for_bit(tmp_path, phase):
    """The sampler of the users: killed while it adapts or samples, at times that differ from run to run."""
    setup = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np, marginax as mx
x = np.linspace(-2, 2, 30)[:, None]
model = mx.Model(mx.nets.MLP(1, (8,), 1, key=0), likelihood=mx.likelihoods.Gaussian())
method = mx.infer.NUTS(num_warmup={warmup}, num_samples={samples})
def run(directory):
    return mx.fit(model, (x, np.sin(x[:, 0])), method, key=1, num_chains=2, directory=directory, chunk_size=5)
"""
    warmup, samples = (300, 20) if phase == "warmup" else (60, 300)
    script = setup.format(folder=str(Path(__file__).parent), warmup=warmup, samples=samples)
    space: dict = {}
    exec(script, space)  # noqa: S102
    wanted = space["run"](None)
    rng = np.random.default_rng()
    for repeat in range(5):
        run = tmp_path / f"run-{repeat}"
        process = subprocess.Popen([sys.executable, "-c", script + f"run({str(run)!r})"])
        file = run / ("info-0.safetensors" if phase == "warmup" else "draws-1.safetensors")
        deadline = time.monotonic() + 300
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 1.5))
        process.kill()
        process.wait()
        assert_same(mx.resume(run), wanted)


# ---- memory


MEASURE = """
import os, sys, threading, time
sys.path.insert(0, {folder!r})
import test_streaming as streaming
import jax
from marginax.infer import chunk, driver
chunk._MOST_BYTES = {most_bytes}

def anonymous():  # bytes of this process that no file stands behind
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon:"))

model, data = streaming.small({width})
streaming.mx.fit(model, data, streaming.Walk(1, 1), key=0, progress=False)  # what the libraries themselves take
first, peak, chunk = None, 0, 0
real = driver.run_chunk
def watched(*args):
    global first, chunk
    first = anonymous() if first is None else first
    result = real(*args)
    chunk = max(chunk, sum(leaf.nbytes for leaf in jax.tree.leaves(result[2])))
    return result
driver.run_chunk = watched
def sample():
    global peak
    while True:
        peak = max(peak, anonymous())
        time.sleep(0.001)
threading.Thread(target=sample, daemon=True).start()
began = time.perf_counter()
posterior = streaming.mx.fit(
    model, data, streaming.Walk(2, {num_samples}), key=0, num_chains={num_chains}, progress=False, directory={run!r}
)
seconds = time.perf_counter() - began
fitted = peak
began = time.perf_counter()
posterior = streaming.mx.load({run!r})
loading = time.perf_counter() - began
posterior.predict(data[0], max_bytes={most_bytes})
posterior.sample(3, key=0)
model_bytes = {width} * 4 * {num_chains}
print(fitted - first, peak - first, model_bytes, chunk, seconds, loading, posterior.num_draws)
"""


def measure_memory(tmp_path, *, width, num_samples, num_chains, most_bytes):
    script = MEASURE.format(
        folder=str(Path(__file__).parent),
        run=str(tmp_path / "run"),
        width=width,
        num_samples=num_samples,
        num_chains=num_chains,
        most_bytes=most_bytes,
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fitted, peak, model, chunk, seconds, loading, draws = (float(word) for word in done.stdout.split())
    assert draws == num_samples
    mib = 2**20
    print(
        f"{width} weights x {num_samples} draws x {num_chains} chains: fit {fitted / mib:.1f} MiB, load and predict "
        f"{peak / mib:.1f} MiB over the start; model {model / mib:.1f} MiB, chunk {chunk / mib:.1f} MiB, "
        f"bound {1.1 * (model + 2 * chunk) / mib:.1f} MiB; fit {seconds:.1f} s, load {loading:.1f} s"
    )
    return fitted, peak, model, chunk


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("num_chains", [1, 4])
def test_memory_does_not_grow_with_the_draws(tmp_path, num_chains):
    """200 MB of draws in chunks of 16 MB, besides what the compiler takes."""
    fitted, peak, model, chunk = measure_memory(
        tmp_path, width=250_000 // num_chains, num_samples=200, num_chains=num_chains, most_bytes=16_000_000
    )
    compiler = 32 * 2**20
    assert fitted < 1.1 * (model + 2 * chunk) + compiler
    assert peak < 1.1 * (model + 2 * chunk) + 16_000_000 + compiler


@needs_proc
@pytest.mark.slow
def test_a_million_weights_and_two_thousand_draws_take_two_chunks_of_memory(tmp_path):
    if shutil.disk_usage(tempfile.gettempdir()).free < 12 * 2**30:
        pytest.skip("8 GB of draws do not fit on this disk")
    fitted, _, model, chunk = measure_memory(
        tmp_path, width=1_000_000, num_samples=2000, num_chains=1, most_bytes=64 * 2**20
    )
    shutil.rmtree(tmp_path / "run")
    assert fitted < 1.1 * (model + 2 * chunk)

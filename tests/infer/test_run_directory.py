"""Who owns a run directory, what it depends on, and that nothing outside of it is touched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.files import FileError, RunDirectory
from marginax.infer import MALA, MAP, AbstractHook, Verdict

METHOD = MALA(num_warmup=20, num_samples=20)


def small(scale=1.0, width=4, activation=jax.nn.relu):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    net = mx.nets.MLP(2, (width,), 1, activation=activation, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.1), prior=mx.priors.Normal(scale=scale))
    return model, (x, x.sum(1))


def fit(directory=None, hooks=(), method=METHOD, **options):
    model, data = small()
    return mx.fit(model, data, method, key=0, hooks=hooks, directory=directory, chunk_size=5, progress=False, **options)


@pytest.fixture(scope="module")
def whole():
    return fit()


def assert_same(a, b):
    for u, v in zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True):
        np.testing.assert_array_equal(u, v)


class Doing(AbstractHook):
    """Something at a step of a phase; it cannot be stored, so that `resume` is given other hooks."""

    what: object
    phase: str = "sample"
    step: int = 10

    def after_chunk(self, memory, event):
        if event.phase == self.phase and event.step == self.step:
            self.what()
        return Verdict(memory, event.states)


def crash():
    raise ConnectionAbortedError


def cut(directory, step=10, phase="sample"):
    """A run that ended in the middle."""
    with pytest.raises(ConnectionAbortedError):
        fit(directory, [Doing(crash, phase, step)])


# ---- one owner


def test_a_second_run_in_a_directory_is_refused_by_the_name_of_the_owner(tmp_path, whole):
    refused = []

    def others():
        for call in (lambda: mx.resume(tmp_path / "run", hooks=[]), lambda: fit(tmp_path / "run")):
            thread = threading.Thread(target=lambda call=call: refused.append(attempt(call)))
            thread.start()
            thread.join()

    def attempt(call):
        try:
            return call()
        except FileError as error:
            return str(error)

    hooks = [Doing(others, "warmup", 10), Doing(others, "sample", 10)]
    assert_same(fit(tmp_path / "run", hooks), whole)
    assert len(refused) >= 2
    for text in refused:
        assert f"is in use by process {os.getpid()} on " in text
    assert not (tmp_path / "run" / ".lock").exists()


OWNER = """
import sys, time
sys.path.insert(0, {folder!r})
import test_run_directory as tests
tests.fit({run!r}, [tests.Doing(lambda: time.sleep(300), "sample", 10)])
"""


@pytest.mark.slow
def test_another_process_is_refused_until_the_owner_is_dead(tmp_path, whole):
    program = OWNER.format(folder=str(Path(__file__).parent), run=str(tmp_path / "run"))
    with subprocess.Popen([sys.executable, "-c", program]) as owner:
        try:
            while not (tmp_path / "run" / "checkpoint-0").exists():
                assert owner.poll() is None
                time.sleep(0.05)
            for call in (lambda: mx.resume(tmp_path / "run", hooks=[]), lambda: fit(tmp_path / "run")):
                with pytest.raises(FileError, match=f"is in use by process {owner.pid} on "):
                    call()
        finally:
            owner.kill()
    assert_same(mx.resume(tmp_path / "run", hooks=[]), whole)


def test_a_dead_owner_leaves_nothing_that_stands_in_the_way(tmp_path, whole):
    cut(tmp_path / "run")
    (tmp_path / "run" / ".lock").write_text(json.dumps({"process": 1, "host": "elsewhere", "since": "1970"}))
    assert_same(mx.resume(tmp_path / "run", hooks=[]), whole)


def test_a_directory_that_is_removed_under_a_run_is_not_written_again(tmp_path):
    def replace():
        shutil.rmtree(tmp_path / "run")
        (tmp_path / "run").mkdir()

    with pytest.raises(FileError, match="was removed or replaced while it was in use"):
        fit(tmp_path / "run", [Doing(replace)])


def test_bits_that_change_while_a_run_goes_on_are_not_sealed(tmp_path):
    def flip():
        path = tmp_path / "run" / "draws-1.safetensors"
        content = bytearray(path.read_bytes())
        place = 8 + int.from_bytes(content[:8], "little") + 3
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([content[place] ^ 1]))

    with pytest.raises(FileError, match="damaged: the SHA-256 of the first 20 slots"):
        fit(tmp_path / "run", [Doing(flip)])
    assert not (tmp_path / "run" / "posterior").exists()


def test_the_working_directory_may_change_during_a_run(tmp_path, monkeypatch, whole):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    assert_same(fit("run", [Doing(lambda: os.chdir("elsewhere"))]), whole)
    assert (tmp_path / "run" / "posterior" / "manifest.json").exists()
    assert not any((tmp_path / "elsewhere").iterdir())


# ---- links


@pytest.mark.parametrize("name", ["draws-1.safetensors", "info-0.safetensors", "checkpoint-0", "posterior"])
def test_links_in_a_run_directory_are_not_followed(tmp_path, name):
    cut(tmp_path / "run")
    outside = tmp_path / "outside"
    inner = tmp_path / "run" / name
    if inner.exists():
        inner.rename(outside)
    else:
        outside.mkdir()
        (outside / "manifest.json").write_text("mine")
    inner.symlink_to(outside)
    before = {path: path.read_bytes() for path in [outside, *outside.glob("*")] if path.is_file()}
    with pytest.raises(FileError, match="is a symbolic link"):
        mx.resume(tmp_path / "run", hooks=[])
    assert {path: path.read_bytes() for path in before} == before


def test_a_link_to_a_run_directory_is_the_directory(tmp_path, whole):
    cut(tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert_same(mx.resume(tmp_path / "link", hooks=[]), whole)
    assert_same(mx.load(tmp_path / "link"), whole)


# ---- the same model, data and setup


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scale": 2.0}, r"model is not what it was .*prior\.scale is 2\.0, was 1\.0"),
        ({"width": 5}, "model is not what it was .*weight"),
        ({"activation": jax.nn.tanh}, "model is not what it was .*activation is function .*tanh, was function .*relu"),
    ],
)
def test_another_model_is_refused_and_said_how_it_differs(tmp_path, whole, change, said):
    cut(tmp_path / "run")
    with pytest.raises(FileError, match=said):
        mx.resume(tmp_path / "run", hooks=[], model=small(**change)[0])
    assert_same(mx.resume(tmp_path / "run", hooks=[], model=small()[0]), whole)
    with pytest.raises(FileError, match=said):
        mx.load(tmp_path / "run", model=small(**change)[0])
    with pytest.raises(FileError, match=said):
        mx.resume(tmp_path / "run", model=small(**change)[0])


class Mine(eqx.Module):
    """A network that is not registered."""

    weight: jax.Array
    function: object

    def __call__(self, x):
        return self.function(x @ self.weight[:, None])


def test_functions_that_are_not_registered_are_known_by_their_code(tmp_path):
    data = small()[1]

    def model(function, weight=0.0):
        net = Mine(jnp.full(2, weight), function)
        return mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.1))

    def power(n):
        return lambda x: x**n

    posterior = mx.fit(model(power(1)), data, METHOD, key=0, directory=tmp_path / "run", progress=False)
    assert_same(mx.load(tmp_path / "run", model=model(power(1))), posterior)
    for other in (model(power(3)), model(lambda x: 2 * x), model(power(1), 1.0)):
        with pytest.raises(FileError, match="model is not what it was"):
            mx.load(tmp_path / "run", model=other)


def test_other_data_are_refused(tmp_path, whole):
    cut(tmp_path / "run")
    x, y = small()[1]
    with pytest.raises(FileError, match="data is not what it was"):
        mx.resume(tmp_path / "run", hooks=[], data=(x, y + 1e-3))
    assert_same(mx.resume(tmp_path / "run", hooks=[], data=(x, y)), whole)


def test_the_setup_of_another_run_is_refused(tmp_path):
    cut(tmp_path / "run")
    fit(tmp_path / "other", method=MALA(num_warmup=25, num_samples=20))
    shutil.rmtree(tmp_path / "run" / "setup")
    shutil.copytree(tmp_path / "other" / "setup", tmp_path / "run" / "setup")
    with pytest.raises(FileError, match="has the setup of another run"):
        mx.resume(tmp_path / "run", hooks=[])


# ---- decisions, early ends, signals


@mx.register("test/stop_once")
class StopAt(AbstractHook):
    """End the phase at a step."""

    step: int

    def every(self, phase, source):
        return self.step

    def after_chunk(self, memory, event):
        return Verdict(memory, event.states, stop=event.step == self.step)


def test_the_decision_to_stop_is_in_the_checkpoint(tmp_path, monkeypatch):
    method = MAP(num_epochs=200)
    stopped = fit(method=method, hooks=[StopAt(40)])
    assert stopped.record.num_steps["train"] == 40
    real = RunDirectory.save

    def dying(self, cursor, state, changed):
        if cursor["phase"] == 1:  # the checkpoint after the one that ended the phase
            raise ConnectionAbortedError
        real(self, cursor, state, changed)

    monkeypatch.setattr(RunDirectory, "save", dying)
    with pytest.raises(ConnectionAbortedError):
        fit(tmp_path / "run", method=method, hooks=[StopAt(40)])
    monkeypatch.setattr(RunDirectory, "save", real)
    resumed = mx.resume(tmp_path / "run")
    assert resumed.record.num_steps["train"] == 40
    assert_same(resumed, stopped)


def test_a_run_that_was_killed_before_its_setup_is_begun_by_the_same_call(tmp_path, whole):
    (tmp_path / "run" / ".setup.new-0123456789abcdef").mkdir(parents=True)
    (tmp_path / "run" / ".setup.new-0123456789abcdef" / "arrays.safetensors").write_bytes(b"half")
    (tmp_path / "run" / ".lock").touch()
    with pytest.raises(FileError, match="the same call begins it"):
        mx.resume(tmp_path / "run")
    assert_same(fit(tmp_path / "run"), whole)
    assert not list((tmp_path / "run").glob(".setup*"))


def test_files_of_others_are_in_the_way(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    with pytest.raises(FileExistsError, match="is not empty"):
        fit(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_another_number_of_devices_is_said(tmp_path, monkeypatch):
    cut(tmp_path / "run")
    monkeypatch.setattr("marginax.infer.driver.num_devices", lambda num_chains: 2)
    with pytest.warns(UserWarning, match="was on 1 devices and goes on with 2"):
        mx.resume(tmp_path / "run", hooks=[])


def test_a_state_of_another_structure_is_refused(tmp_path):
    cut(tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(FileError, match="its state has other parts"):
        run.latest({"other": 0})


TERMINATED = """
import sys
sys.path.insert(0, {folder!r})
import test_run_directory as tests
import os, signal
tests.fit({run!r}, [tests.Doing(lambda: os.kill(os.getpid(), signal.SIGTERM), "sample", 10)])
"""


@pytest.mark.slow
def test_sigterm_ends_a_run_after_its_checkpoint(tmp_path, whole):
    program = TERMINATED.format(folder=str(Path(__file__).parent), run=str(tmp_path / "run"))
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=300)
    assert found.returncode == -signal.SIGTERM, found.stderr.decode()
    documents = [
        mx.files.read_bundle(tmp_path / "run" / f"checkpoint-{place}", "checkpoint")[0]["cursor"] for place in (0, 1)
    ]
    assert max((each["phase"], each["step"]) for each in documents) == (1, 10)
    assert_same(mx.resume(tmp_path / "run", hooks=[]), whole)


@pytest.mark.slow  # by the clock, so on a machine that does nothing else
def test_checkpoints_take_little_of_the_time(tmp_path, monkeypatch):
    """By default; a slow disk makes them rare."""
    spent = []
    real = RunDirectory.save

    def slow(self, *args):
        began = time.perf_counter()
        time.sleep(0.02)
        real(self, *args)
        spent.append(time.perf_counter() - began)

    monkeypatch.setattr(RunDirectory, "save", slow)
    model, data = small()
    posterior = mx.fit(model, data, MAP(num_epochs=150_000), key=0, directory=tmp_path / "run", progress=False)
    assert sum(spent[1:-1]) < 0.04 * sum(posterior.record.seconds.values())  # the last may come early


# ---- what is not a posterior


@pytest.mark.parametrize("value", [3, "text", None, {"a": 1}])
def test_a_bundle_with_something_else_in_it_is_refused(tmp_path, value):
    parts = mx.files.Parts.encode({"model": small()[0], "posterior": value, "draws": {}})
    parts.write(tmp_path / "crafted", "posterior")
    with pytest.raises(FileError, match="where a posterior should be"):
        mx.load(tmp_path / "crafted")


def test_another_precision_is_said(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create({"size": 1})
    run.save({}, {"weight": jnp.zeros(2)}, [])
    with pytest.raises(FileError, match=r"float32 \(2,\) where float64 \(2,\) was expected: jax_enable_x64"):
        run.latest({"weight": np.zeros(2)})


def test_as_many_checkpoints_are_kept_as_asked_for_and_any_whole_one_is_used(tmp_path, whole):
    with pytest.raises(ConnectionAbortedError):
        fit(tmp_path / "run", [Doing(crash)], num_checkpoints=4)
    places = sorted((tmp_path / "run").glob("checkpoint-*"))
    assert [path.name for path in places] == [f"checkpoint-{i}" for i in range(4)]
    newest = sorted(places, key=lambda path: mx.files.read_bundle(path, "checkpoint")[0]["count"])[1:]
    for path in newest:
        (path / "arrays.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="damaged and was passed over"):
        assert_same(mx.resume(tmp_path / "run", hooks=[]), whole)
    with pytest.raises(ValueError, match="num_checkpoints must be >= 2"):
        fit(tmp_path / "other", num_checkpoints=1)

"""The second run finds its programs compiled, wherever they were."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from marginax import _compilation
from marginax._compilation import _known_options, _options, compiled

PROGRAM = """
import sys, time
import numpy as np
from marginax.estimators import BayesianRegressor
import jax
x = np.random.default_rng(0).normal(size=(40, 2))
if sys.argv[1] == "late":
    jax.numpy.ones(3).sum().block_until_ready()
began = time.perf_counter()
fitted = BayesianRegressor(method="map", hidden=(8,)).fit(x, x[:, 0])
print(repr(fitted.predict(x).tolist()))
print(jax.config.jax_compilation_cache_dir)
"""


def run(cache, when="early"):
    env = {**os.environ, "MARGINAX_CACHE": str(cache)}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, when], capture_output=True, text=True, env=env
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def last_used(cache):
    return {path.name: path.read_bytes() for path in cache.glob("*-atime")}


@pytest.mark.slow
def test_a_second_process_finds_every_program_and_predicts_the_same(tmp_path):
    cache = tmp_path / "compiled"
    first, folder = run(cache)
    before = last_used(cache)
    second, _ = run(cache, "late")
    after = last_used(cache)
    assert folder == str(cache)
    assert before
    assert all(after[name] != used for name, used in before.items())
    assert first == second


@pytest.mark.slow
def test_one_variable_turns_it_off():
    assert run("off")[1] == "None"


@pytest.mark.slow
def test_a_damaged_entry_is_compiled_again(tmp_path):
    cache = tmp_path / "compiled"
    first, _ = run(cache)
    for path in cache.glob("*-cache"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    env = {**os.environ, "MARGINAX_CACHE": str(cache)}
    found = subprocess.run([sys.executable, "-c", PROGRAM, "early"], capture_output=True, text=True, env=env)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[0] == first


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path):
    tmp_path.chmod(0o500)
    assert run(tmp_path / "compiled")[1] == "None"


def test_a_compiled_function_may_be_part_of_a_larger_program():
    double = compiled(lambda x: 2 * x)
    assert double(jnp.ones(3)).tolist() == [2, 2, 2]
    assert jax.jit(lambda x: double(x) + double(1))(jnp.ones(3)).tolist() == [4, 4, 4]
    assert jax.vmap(double)(jnp.ones((2, 3))).shape == (2, 3)
    assert jax.grad(lambda x: double(x).sum())(jnp.ones(3)).tolist() == [2, 2, 2]


def test_an_option_that_the_compiler_does_not_know_is_left_out(monkeypatch):
    _known_options.cache_clear()
    monkeypatch.setattr(_compilation, "_QUICK", {"xla_cpu_has_no_such_option": True})
    assert _options(False) is None
    assert _options(True) == {"xla_backend_optimization_level": 0}
    assert compiled(lambda x: 2 * x)(jnp.ones(3)).tolist() == [2, 2, 2]
    _known_options.cache_clear()

"""What the machine has: memory that is asked for is said, programs are few, forked processes are told."""

import multiprocessing
import os
import warnings

import jax
import numpy as np
import pytest

import marginax as mx
from marginax.infer import MAP, chunk
from marginax.predict import loop


def fitted(width=3):
    x = np.linspace(-1, 1, 20)[:, None]
    model = mx.Model(mx.nets.MLP(1, (width,), 1, key=0), likelihood=mx.likelihoods.Gaussian())
    return mx.fit(model, (x, x[:, 0]), MAP(num_epochs=3), key=0, num_chains=2, progress=False), x


def test_predictions_that_do_not_fit_are_refused_before_memory_is_taken(monkeypatch):
    posterior, x = fitted()
    monkeypatch.setattr(loop, "available_memory", lambda: 100)
    with pytest.raises(MemoryError, match=r"2 draws at 20 inputs take .* of memory are free: predict fewer"):
        posterior.predict(x)


@pytest.mark.slow
def test_programs_of_past_architectures_are_forgotten(monkeypatch):
    cleared = []
    real = jax.clear_caches
    monkeypatch.setattr(chunk, "_MOST_PROGRAMS", 3)
    monkeypatch.setattr(chunk, "_programs", set())
    monkeypatch.setattr(jax, "clear_caches", lambda: (cleared.append(1), real()))
    first = fitted(2)[0]
    for width in (3, 4, 2):  # three programs
        posterior = fitted(width)[0]
    assert not cleared
    fitted(5)
    assert len(cleared) == 1
    again = fitted(2)[0]
    for a, b, c in zip(*(jax.tree.leaves(p.params) for p in (first, posterior, again)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def _forked(pipe):
    try:
        fitted()
        pipe.send("fitted")
    except RuntimeError as error:
        pipe.send(str(error))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_says_so_instead_of_hanging():
    fitted()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_forked, args=(there,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of JAX and Python, which say that it may hang
        process.start()
    try:
        assert here.poll(60)
        assert "start processes by spawn" in here.recv()
    finally:
        process.kill()
        process.join()

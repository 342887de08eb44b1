"""Samplers with fixed steps: what is drawn of their moves is what they did, and densities have the truth they claim."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.playground.test_labs import play

import marginax as mx
from marginax.playground.labs.moves import FixedStep
from marginax.playground.labs.samplers import describe_move, inner_of
from marginax.playground.labs.targets import TARGETS

EXACT = ["MetropolisHastings", "MALA", "HMC", "NUTS"]


def fitted(sampler, num=200, step_size=0.4, chains=1, key=0):
    settings = play_settings(sampler=sampler, steps=max(num, 25), step_size=step_size)
    method = FixedStep(inner_of(settings), step_size=step_size, num_samples=num)
    density = mx.Density(lambda at: -0.5 * jnp.sum(at**2), jnp.array([0.5, -0.5]))
    return mx.fit(density, None, method, key=key, num_chains=chains, progress=False)


def play_settings(**given):
    from marginax.playground.labs import PLAYABLE

    return PLAYABLE["samplers"].lab.complete(given)


def moves_of(posterior, chain=0):
    info = posterior.record.info["sample"]
    return [describe_move({name: info[name][chain, i] for name in info}) for i in range(posterior.num_draws)]


@pytest.mark.parametrize("sampler", EXACT)
def test_paths_begin_where_the_chain_was_and_end_where_it_went(sampler):
    posterior = fitted(sampler)
    draws = np.asarray(posterior.params)[0]
    before = np.vstack([[0.5, -0.5], draws[:-1]])
    seen = {True: 0, False: 0}
    for start, end, move in zip(before, draws, moves_of(posterior), strict=True):
        path = np.asarray(move["path"])
        at = move["depth"].index(-1) if "depth" in move else 0
        np.testing.assert_allclose(path[at], start, atol=1e-5)
        np.testing.assert_allclose(move["end"], end, atol=1e-5)
        seen[move["accepted"]] += 1
        if not move["accepted"]:
            np.testing.assert_allclose(start, end, atol=1e-6)
        elif sampler == "NUTS":
            assert np.abs(path - end).sum(axis=1).min() < 1e-4
        else:
            np.testing.assert_allclose(path[-1], end, atol=1e-4)
    assert seen[True] > 20


def test_a_tree_has_the_leaves_that_were_visited_and_its_orbit_keeps_the_energy():
    posterior = fitted("NUTS", step_size=0.2)
    leaves = posterior.sample_info["num_gradients"][0]
    for move, num in zip(moves_of(posterior), leaves, strict=True):
        assert len(move["path"]) == len(move["depth"]) == num + 1
        full = [move["depth"].count(depth) for depth in range(max(move["depth"]))]
        assert full == [2**depth for depth in range(len(full))]
        assert np.ptp(move["energy"]) < 0.2
        steps = np.diff(np.asarray(move["path"]), axis=0)
        assert np.abs(steps).max() < 1.5  # neighbours on one orbit


def test_refusals_are_seen_where_steps_are_long():
    accepted = [move["accepted"] for move in moves_of(fitted("MALA", step_size=1.9))]
    assert 0.05 < np.mean(accepted) < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [*EXACT, "MCLMC", "ParallelTempering", "SGLD", "SGHMC"])
def test_chains_with_fixed_steps_reach_their_law(sampler):
    """Means and variances in Monte Carlo standard errors; those without an accept step have their known bias."""
    from marginax.evaluate.convergence import measure_convergence

    step = {"SGLD": 0.05, "SGHMC": 0.01, "MCLMC": 0.2}.get(sampler, 0.6)
    posterior = fitted(sampler, num=20_000, step_size=step, chains=4)
    draws = np.asarray(posterior.params, np.float64)[:, 1000:]
    ess = measure_convergence(draws).bulk_ess
    squares = measure_convergence(draws**2).bulk_ess
    assert np.all(np.abs(draws.mean((0, 1))) * np.sqrt(ess) <= 4.9)
    bias = 0.03 if sampler in ("SGLD", "SGHMC", "MCLMC") else 0.0
    z = (np.abs(draws.var((0, 1)) - 1.0) - bias) / np.sqrt(2 / squares)
    assert np.all(z <= 4.9)


@pytest.mark.parametrize("name", list(TARGETS))
def test_truth_integrates_to_one_and_has_its_own_moments(name):
    target = TARGETS[name]
    truth = target.truth
    for i, edges in enumerate(target.edges()):
        inside = np.sum(truth.marginals[i] * np.diff(edges))
        assert 0.9 < inside < 1.01
        middles = (edges[1:] + edges[:-1]) / 2
        if inside > 0.999:
            mean = np.sum(middles * truth.marginals[i] * np.diff(edges)) / inside
            assert mean == pytest.approx(truth.mean[i], abs=0.02)


def test_truths_that_are_known_in_closed_form():
    np.testing.assert_allclose(TARGETS["banana"].truth.std, [1.5, np.sqrt(0.25 + 0.36 * 2 * 1.5**4)], rtol=1e-3)
    np.testing.assert_allclose(TARGETS["banana"].truth.mean, [0.0, 0.0], atol=2e-3)
    np.testing.assert_allclose(TARGETS["two_modes"].truth.mean, [2 / 3, 1 / 3], atol=1e-3)
    np.testing.assert_allclose(TARGETS["network"].truth.mean, [0.0, 0.0], atol=1e-3)
    assert TARGETS["funnel"].truth.std[1] == pytest.approx(1.5)


def test_frames_hold_every_draw_once_and_the_histogram_of_all():
    _, frames, numbers = play("samplers", {"sampler": "MALA", "steps": 60, "chains": 2, "target": "ring"})
    draws = np.concatenate([np.asarray(frame.data["draws"]) for frame in frames], axis=1)
    assert draws.shape == (2, 60, 2)
    np.testing.assert_allclose(draws.mean((0, 1)), numbers["mean"], rtol=1e-5)
    for i, shown in enumerate(frames[-1].data["histogram"]):
        counts, _ = np.histogram(draws[:, :, i], shown["edges"])
        np.testing.assert_allclose(shown["density"], counts / 120 / np.diff(shown["edges"]))
    assert frames[-1].data["diagnostics"]["num_gradients"] == numbers["num_gradients"] == 120
    assert "map" in frames[0].data
    assert not any("map" in frame.data for frame in frames[1:])

"""Digits with wrong labels: all of the experiment at little expense, its noise, and the small budget as it is."""

from dataclasses import replace

import numpy as np
import pytest

import marginax as mx
from marginax.reproduce import experiment, noisy_mnist, reproduce
from marginax.reproduce.noisy_mnist import SETTINGS, transition, with_errors

TINY = SETTINGS["small"] | {
    "num_train": 64,
    "num_valid": 32,
    "num_test": 50,
    "channels": (2, 2),
    "hidden": 4,
    "num_epochs": 1,
    "start_epochs": 1,
    "batch_size": 32,
    "num_members": 2,
    "num_samples": 2,
}
NOISES = {"symmetric 20%": 20, "symmetric 50%": 50, "pair 45%": 45}


@pytest.mark.parametrize("noise", NOISES)
def test_labels_are_as_wrong_as_is_said(noise):
    truth = np.repeat(np.arange(10), 2000)
    given = with_errors(truth, transition(noise), np.random.default_rng(0))
    counts = np.zeros((10, 10))
    np.add.at(counts, (truth, given), 1)
    expected = 2000 * transition(noise)
    spread = np.sqrt(expected * (1 - transition(noise)))
    assert np.all(np.abs(counts - expected) <= 4.9 * spread)  # exactly none where a transition is impossible
    np.testing.assert_allclose(1 - np.diag(transition(noise)), NOISES[noise] / 100)


def test_all_of_it_at_little_expense(tmp_path, data_dir):
    record = reproduce(replace(experiment("noisy-mnist"), settings={"small": TINY}), tmp_path, progress=False)
    for noise in NOISES:
        ours, ignored = (record.row(f"{noise}: {each}, MC dropout, %").ours for each in ("learned", "ignored"))
        gap = record.row(f"{noise}: learned, MC dropout, less ignored, %")
        np.testing.assert_allclose(gap.ours, ours - ignored, atol=1e-6)
        assert 0 < record.row(f"{noise}: learned rate of errors, %").ours < 100
        assert record.row(f"{noise}: learned, MC dropout, %").published is None
    chosen = [name for name in record.curves if "MC dropout" in name and name.startswith("nats")]
    assert len(chosen) == 3 * 4  # known, and the two kinds or none that validation chooses among
    assert not any("VI" in name and "to the end" not in name for name in record.curves)  # nothing ends it early
    assert (tmp_path / "picture.png").stat().st_size > 5_000


@pytest.mark.parametrize("kind", ["symmetric", "full"])
def test_learned_matrices_start_where_they_are_put(kind):
    matrix = transition("symmetric 20%") if kind == "symmetric" else transition("pair 45%") * 0.9 + 0.01
    likelihood = {"symmetric": mx.likelihoods.SymmetricTransition, "full": mx.likelihoods.FullTransition}[kind]()
    found = likelihood.log_matrix({"transition": np.float32(noisy_mnist.unknowns(kind, matrix))}, 10)
    np.testing.assert_allclose(np.exp(found), matrix, atol=1e-5)


def test_a_matrix_is_estimated_where_predictions_of_noisy_labels_are_exact():
    truth = np.repeat(np.arange(10), 5)
    found = noisy_mnist.estimated(transition("pair 45%")[truth])
    np.testing.assert_allclose(found, transition("pair 45%"), atol=0.01)


@pytest.mark.slow
def test_a_likelihood_that_knows_of_errors_is_better_than_none(tmp_path, data_dir):
    record = reproduce(experiment("noisy-mnist"), tmp_path, progress=False)
    for noise in ("symmetric 50%", "pair 45%"):
        gap = record.row(f"{noise}: known, MC dropout, less ignored, %")
        assert gap.ours > 2 * gap.standard_error

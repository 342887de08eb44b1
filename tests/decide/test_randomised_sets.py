"""Randomised conformal sets: the numbers that calibrate and the numbers that decide are not the same."""

import numpy as np

from marginax.decide import APS, Randomised, conformalise


def test_calibration_and_sets_from_one_seed_are_independent():
    """Nine rows whose scores are nothing but random: a tenth lies above all nine, also from the seed of the nine."""
    probs, labels = np.tile([0.9, 0.1], (9, 1)), np.zeros(9, int)
    covered = [
        conformalise(probs, labels, Randomised(APS()), key=seed).sets(probs, 0.9, key=seed)[:, 0].mean()
        for seed in range(200)
    ]
    error = np.std(covered) / np.sqrt(len(covered))
    assert error > 0
    assert abs(np.mean(covered) - 0.9) < 4.9 * error

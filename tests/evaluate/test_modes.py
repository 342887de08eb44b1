"""When chains that stay apart are called modes: only if they have settled."""

import numpy as np
import pytest

from marginax.evaluate.chains import find_modes


@pytest.mark.parametrize(("drift", "is_settled"), [(0.4, True), (0.6, False)])
def test_a_chain_has_settled_if_its_halves_are_near(drift, is_settled):
    """By the square of their distance in units of the variance: half is the limit."""
    apart = np.sqrt(drift / (1 - drift / 4))
    values = np.tile([1.0, -1.0], 50) + apart * (np.arange(100) >= 50)
    values = np.stack([np.tile([1.0, -1.0], 50), values + 20.0])[..., None]
    assert (len(find_modes([values], np.array([True, True]))) == 2) == is_settled


@pytest.mark.parametrize(("num_drifting", "is_settled"), [(2, True), (3, False)])
def test_a_chain_has_settled_if_most_quantities_have(num_drifting, is_settled):
    """Of five; half is the limit."""
    values = np.tile(np.tile([1.0, -1.0], 50)[:, None], (2, 1, 5))
    values[1] += 20.0
    values[1, 50:, :num_drifting] += 3.0
    assert (len(find_modes([values], np.array([True, True]))) == 2) == is_settled

"""Series that were recorded, with their times."""

import numpy as np
import pytest

from marginax.data import load_sunspots


def test_sunspots_have_their_times(tmp_path, monkeypatch):
    monkeypatch.setenv("MARGINAX_DATA", str(tmp_path))
    (tmp_path / "timeseries").mkdir()
    arrays = {"year": np.arange(1700, 1989, dtype=np.int16), "yearly": np.linspace(0, 1, 289)}
    arrays |= {"month": 1749 + np.arange(2820) / 12, "monthly": np.linspace(1, 2, 2820)}
    np.savez(tmp_path / "timeseries" / "sunspots.npz", **arrays)
    for which, time in (("yearly", "year"), ("monthly", "month")):
        found = load_sunspots(which)
        np.testing.assert_array_equal(found[0], arrays[time])
        np.testing.assert_array_equal(found[1], arrays[which])
    with pytest.raises(ValueError, match="which must be 'monthly' or 'yearly', got 'daily'"):
        load_sunspots("daily")

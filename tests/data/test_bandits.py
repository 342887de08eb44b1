"""Data sets of bandits: what is in them, and that damaged files are refused."""

import os

import numpy as np
import pytest

import marginax as mx
from marginax.files import FileError

needs_data = pytest.mark.skipif(
    not os.environ.get("MARGINAX_DATA"), reason="needs the data sets: set MARGINAX_DATA to their folder"
)


@needs_data
@pytest.mark.parametrize(
    ("name", "shape", "counts"),
    [  # as published by the UCI repository; of covertype, a sample with its shares
        ("mushroom", (8124, 117), [4208, 3916]),
        ("shuttle", (58_000, 9), [45_586, 50, 171, 8903, 3267, 10, 13]),
        ("covertype_20k", (20_000, 54), [7342, 9714, 1204, 99, 336, 596, 709]),
        ("adult", (48_842, 108), [37_155, 11_687]),
    ],
)
def test_rows_columns_and_classes(name, shape, counts):
    x, y = mx.data.load_bandit(name)
    assert (x.shape, x.dtype, y.dtype) == (shape, np.float32, np.int32)
    assert np.bincount(y).tolist() == counts
    assert np.isfinite(x).all()


@needs_data
def test_categories_are_indicators_and_numbers_are_standardised():
    mushroom, _ = mx.data.load_bandit("mushroom")
    assert set(np.unique(mushroom)) == {0, 1}
    assert (mushroom.sum(1) == 22).all()
    adult, _ = mx.data.load_bandit("adult")
    assert (adult[:, 6:].sum(1) == 8).all()
    for x in (adult[:, :6], mx.data.load_bandit("shuttle")[0]):
        np.testing.assert_allclose(x.mean(0, dtype=float), 0, atol=1e-4)
        np.testing.assert_allclose(x.std(0, dtype=float), 1, atol=1e-4)
    covertype, _ = mx.data.load_bandit("covertype_20k")
    assert (covertype[:, 10:14].sum(1) == 1).all()
    assert (covertype[:, 14:].sum(1) == 1).all()


def test_what_cannot_be_is_refused(tmp_path, monkeypatch):
    with pytest.raises(
        ValueError, match="name must be one of mushroom, shuttle, covertype_20k, adult, got 'toadstool'"
    ):
        mx.data.load_bandit("toadstool")
    monkeypatch.setenv("MARGINAX_DATA", str(tmp_path))
    with pytest.raises(FileError, match=r"mushroom.npz is missing.*x \(8124, 22\)"):
        mx.data.load_bandit("mushroom")
    (tmp_path / "bandits").mkdir()
    text = {"columns": np.zeros(54, "U1"), "class_names": np.zeros(7, "U1")}
    arrays = {"x": np.zeros((20_000, 54), np.int16), "y": np.full(20_000, 7, np.uint8), **text}
    np.savez(tmp_path / "bandits" / "covertype_20k.npz", **arrays)
    with pytest.raises(FileError, match="the classes go up to 7, not 6"):
        mx.data.load_bandit("covertype_20k")
    np.savez(tmp_path / "bandits" / "covertype_20k.npz", **(arrays | {"x": np.zeros((20_000, 53), np.int16)}))
    with pytest.raises(FileError, match=r"x must be of shape \(20000, 54\)"):
        mx.data.load_bandit("covertype_20k")

"""Autoencoders of molecules: all of the experiment on few of them, and the small budget as it is."""

from dataclasses import replace

import numpy as np
import pytest

from marginax.reproduce import experiment, molecules, reproduce

TINY = {
    "num_train": 300,
    "num_valid": 40,
    "num_test": 40,
    "embedding_size": 4,
    "hidden": (32,),
    "latent_size": 6,
    "batch_size": 50,
    "stages": {"beta 0.3": [(2, 1e-3, 0.3)], "beta 1": [(1, 1e-3, 1.0)]},
    "num_importance": 10,
    "num_generated": 50,
    "properties": ("logP",),
    "num_seeds": 2,
    "num_initial": 5,
    "num_rounds": 1,
    "num_per_round": 3,
    "num_candidates": 200,
}


def test_all_of_it_on_a_few_molecules(tmp_path, data_dir):
    tiny = replace(experiment("molecules"), settings={"small": TINY})
    record = reproduce(tiny, tmp_path, progress=False)
    for name in TINY["stages"]:
        assert record.row(f"{name}: valid").ours == 1
        whole, parts = (record.row(f"{name}: {each} reconstructed").ours for each in ("molecules", "tokens"))
        assert 0 <= whole <= parts <= 1
        assert 20 < record.row(f"{name}: nats of a molecule").ours < 80
    ways = record.curves["search for logP"]
    both = np.array([ways["expected improvement"], ways["random search"]])
    assert both.shape == (2, 2, 8)
    np.testing.assert_array_equal(both[0, :, :5], both[1, :, :5])  # the same molecules first
    assert (np.diff(both) >= 0).all()
    difference = record.row("best logP: difference")
    gaps = both[0, :, -1] - both[1, :, -1]
    np.testing.assert_allclose([difference.ours, difference.standard_error], [gaps.mean(), np.ptp(gaps) / 2], atol=1e-6)


def test_a_machine_without_drawing_shows_text():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(molecules, "require", _no_drawing)
        molecules._show(ax, ["CCO", None], "two", columns=2)
    assert [text.get_text() for text in ax.texts] == ["CCO", "-"]


def _no_drawing(name):
    raise ImportError("libXrender.so.1: cannot open shared object file")


@pytest.mark.slow
def test_the_small_budget_keeps_its_promises(tmp_path, data_dir):
    record = reproduce(experiment("molecules"), tmp_path, progress=False)
    for name in ("beta 0.3", "beta 1"):
        assert record.row(f"{name}: valid").ours == 1
        assert record.row(f"{name}: unique").ours > 0.95
    assert record.row("beta 0.3: molecules reconstructed").ours > 0.7
    assert record.row("beta 1: nats of a molecule").ours < record.row("beta 0.3: nats of a molecule").ours
    for name in ("logP", "QED"):
        difference = record.row(f"best {name}: difference")
        assert difference.ours > 2 * (difference.standard_error or 0)

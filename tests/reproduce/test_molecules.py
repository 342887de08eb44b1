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
    "stages": {"beta 0.3": [(1, 1e-3, 0.3), (1, 3e-4, 0.3)]},
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
    best = np.array(list(ways.values()))
    assert best.shape == (3, 2, 8)
    assert (best[..., :5] == best[:1, :, :5]).all()  # the same molecules first
    assert (np.diff(best) >= 0).all()
    difference = record.row("best logP: gain over random search")
    gaps = best[0, :, -1] - best[2, :, -1]
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
    for name, errors in (("logP", 2), ("QED", 0)):  # the gain in QED is too small to say more
        gain = record.row(f"best {name}: gain over random search")
        assert gain.standard_error
        assert gain.ours > errors * gain.standard_error

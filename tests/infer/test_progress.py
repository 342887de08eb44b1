"""The progress bar is shown where somebody can see it: at a terminal, and in a notebook without any widgets."""

import re
import subprocess
import sys
import types

import numpy as np
import pytest

import marginax as mx
from marginax.infer.progress import Progress, in_notebook


class Cell:
    """What a notebook shows: outputs that can be replaced."""

    def __init__(self):
        self.shown = []

    def display(self, data, *, raw, display_id):
        assert raw
        assert display_id
        self.shown.append([data])
        return self

    def update(self, data, *, raw):
        assert raw
        self.shown[-1].append(data)


@pytest.fixture
def cell(monkeypatch):
    """A process that runs a notebook."""
    cell = Cell()
    found = types.ModuleType("IPython")
    found.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    found.display = types.SimpleNamespace(display=cell.display)
    monkeypatch.setitem(sys.modules, "IPython", found)
    return cell


def _fit(**options):
    x = np.linspace(-1, 1, 8)[:, None]
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.1))
    return mx.fit(model, (x, x[:, 0]), "MAP", key=0, **options)


def test_a_fit_in_a_notebook_has_one_bar_that_reaches_its_end(cell):
    _fit()
    assert len(cell.shown) == 1
    first, *_, last = cell.shown[0]
    assert "compiling" in first["text/plain"]
    done, steps = re.search(r"(\d+)/(\d+)", last["text/plain"]).groups()
    assert done == steps
    assert "steps/s" in last["text/html"]


def test_no_bar_where_it_is_not_wanted_or_nobody_looks(cell, monkeypatch):
    _fit(progress=False)
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: types.SimpleNamespace())  # a terminal's
    _fit()
    assert not cell.shown
    assert not in_notebook()


def test_a_terminal_still_has_its_bar(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert Progress(None)._show
    assert not Progress(False)._show


def test_ipython_is_not_imported_to_find_out():
    code = "import sys, marginax.infer.progress as p; assert not p.in_notebook(); assert 'IPython' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

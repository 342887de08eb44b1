"""Pictures of chains: they draw what they say, for one chain and for eight."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("agg")
import matplotlib.pyplot as plt

from marginax.plot import plot_autocorrelation, plot_energy, plot_rank, plot_trace


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    figure.canvas.draw()  # a picture that cannot be drawn fails here
    plt.close(figure)


def _walks(rng, chains, draws, rho):
    values = np.zeros((chains, draws))
    for t in range(1, draws):
        values[:, t] = rho * values[:, t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=chains)
    return values


@pytest.mark.parametrize("chains", [1, 2, 8])
@pytest.mark.parametrize("plot", [plot_trace, plot_rank, plot_autocorrelation, plot_energy])
def test_pictures_return_their_axes_for_any_number_of_chains(plot, chains, ax):
    assert plot(ax, np.random.default_rng(0).normal(size=(chains, 60))) is ax


@pytest.mark.parametrize("num", [1, 8, 10, 12, 13, 40])
def test_every_chain_has_a_colour_of_its_own(num, ax):
    plot_trace(ax, np.random.default_rng(0).normal(size=(num, 50)))
    colors = [matplotlib.colors.to_rgb(line.get_color()) for line in ax.lines[:num]]
    apart = [np.abs(np.subtract(one, two)).max() for i, one in enumerate(colors) for two in colors[:i]]
    assert min(apart, default=1) > (0.2 if num <= 12 else 0.02)


def test_trace_shows_every_chain_and_marks_divergences(ax):
    values = np.random.default_rng(0).normal(size=(3, 50))
    diverging = np.zeros((3, 50), bool)
    diverging[1, [4, 30]] = True
    plot_trace(ax, values, diverging=diverging, name="slope")
    assert np.array_equal([line.get_ydata() for line in ax.lines[:3]], values)
    assert ax.lines[3].get_xdata().tolist() == [4, 30]
    assert ax.get_ylabel() == "slope"
    assert len({line.get_color() for line in ax.lines[:3]}) == 3


def test_rank_bars_are_flat_for_equal_chains_and_not_for_different_ones(ax):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 2000))
    plot_rank(ax, values, num_bins=10)
    flat = values.size * np.reshape([bar.get_height() for bar in ax.patches], (2, 10))
    np.testing.assert_allclose(flat, 1, atol=0.3)
    np.testing.assert_allclose(flat.mean(axis=1), 1)
    ax.clear()
    plot_rank(ax, values + np.array([[0.0], [5.0]]), num_bins=10)
    low, high = values.size * np.reshape([bar.get_height() for bar in ax.patches], (2, 10))
    np.testing.assert_allclose(low, [2] * 5 + [0] * 5, atol=0.05)
    np.testing.assert_allclose(high, [0] * 5 + [2] * 5, atol=0.05)


def test_autocorrelation_falls_as_that_of_the_process(ax):
    plot_autocorrelation(ax, _walks(np.random.default_rng(0), 2, 20_000, 0.9), max_lag=20)
    curves = [line.get_ydata() for line in ax.lines if len(line.get_ydata()) == 21]
    assert len(curves) == 2
    for curve in curves:
        np.testing.assert_allclose(curve, 0.9 ** np.arange(21), atol=0.12)


def test_autocorrelation_of_a_frozen_chain_has_no_curve_and_no_error(ax):
    values = np.random.default_rng(0).normal(size=(2, 100))
    values[1] = 3.0
    plot_autocorrelation(ax, values)


def test_energy_picture_tells_slow_from_fast(ax):
    rng = np.random.default_rng(0)
    plot_energy(ax, rng.normal(size=(4, 500)))
    assert float(ax.get_legend().get_title().get_text().split()[-1]) > 1.5
    ax.clear()
    plot_energy(ax, _walks(rng, 4, 500, 0.98))
    assert float(ax.get_legend().get_title().get_text().split()[-1]) < 0.3

"""Pictures of decisions: points and bars are at the numbers."""

import matplotlib
import numpy as np
import pytest
from scipy import stats

matplotlib.use("agg")
import matplotlib.pyplot as plt

from marginax.decide import RiskCoverage
from marginax.plot import plot_group_coverage, plot_risk_coverage, plot_set_sizes


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    figure.canvas.draw()
    plt.close(figure)


def test_the_curve_and_the_best_order_are_shown(ax):
    rng = np.random.default_rng(0)
    losses = rng.uniform(size=200) < 0.3
    curve = RiskCoverage(losses + rng.normal(size=200), losses)
    assert plot_risk_coverage(ax, curve, label="mine") is ax
    best, shown = ax.lines
    assert np.array_equal(shown.get_xdata(), curve.coverage)
    assert np.array_equal(shown.get_ydata(), curve.risk)
    np.testing.assert_allclose(np.mean(best.get_ydata()), curve.best_aurc)
    assert (best.get_ydata() <= np.interp(best.get_xdata(), curve.coverage, curve.risk) + 1e-12).all()
    plot_risk_coverage(ax, RiskCoverage(np.zeros(200), losses), color="C1")
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [f"mine, AURC {curve.aurc:.3g}", f"AURC {losses.mean():.3g}"]


def test_coverage_of_each_group_is_shown_with_its_doubt(ax):
    groups = np.repeat([3, 7], [50, 10])
    covered = np.r_[np.arange(50) >= 5, np.arange(10) >= 4]
    assert plot_group_coverage(ax, covered, groups, level=0.8) is ax
    line = ax.lines[0]
    assert line.get_ydata()[0] == 0.8
    points, _, (bars,) = ax.containers[0]
    np.testing.assert_allclose(points.get_ydata(), [0.9, 0.6])
    ends = np.array(bars.get_segments())[:, :, 1]
    expected = [stats.binomtest(45, 50).proportion_ci(0.95), stats.binomtest(6, 10).proportion_ci(0.95)]
    np.testing.assert_allclose(ends, expected)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["3\nn = 50", "7\nn = 10"]


def test_sizes_of_sets_are_counted_from_none_to_all(ax):
    sets = np.arange(4) < np.array([0, 1, 1, 1, 2, 4, 4, 4])[:, None]
    assert plot_set_sizes(ax, sets, label="mine") is ax
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], np.array([1, 3, 1, 0, 3]) / 8)
    assert ax.lines[0].get_xdata()[0] == 17 / 8
    assert ax.get_legend().get_texts()[0].get_text() == "mine, mean size 2.12"


def test_bad_arguments_are_refused(ax, as_users_run):
    with pytest.raises(ValueError, match=r"covered must be boolean of shape \(n,\), got an array of int64"):
        plot_group_coverage(ax, np.zeros(3, np.int64), np.zeros(3))
    with pytest.raises(ValueError, match=r"groups must have shape \(3,\) as covered has, got \(2,\)"):
        plot_group_coverage(ax, np.zeros(3, bool), np.zeros(2))
    with pytest.raises(ValueError, match=r"sets must be boolean of shape \(n, k\), got an array of float64"):
        plot_set_sizes(ax, np.zeros((3, 2)))

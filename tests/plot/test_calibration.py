"""Pictures of calibration: points, bars and bands are at the numbers."""

import matplotlib
import numpy as np
import pytest
from scipy import stats

matplotlib.use("agg")
import matplotlib.pyplot as plt

from marginax.evaluate import EqualWidth, coverage, ece, separate
from marginax.plot import plot_coverage, plot_ood, plot_pit, plot_reliability


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    figure.canvas.draw()
    plt.close(figure)


def test_reliability_shows_accuracy_by_confidence(ax):
    rng = np.random.default_rng(0)
    probs = rng.uniform(size=300)
    y = (rng.uniform(size=300) < probs**2).astype(int)
    assert plot_reliability(ax, probs, y, bins=EqualWidth(4), label="before") is ax
    plot_reliability(ax, probs**2, y, bins=EqualWidth(4), color="C1", label="after")
    points, _, (bars,) = ax.containers[0]
    confidence = np.maximum(probs, 1 - probs)
    right = (probs > 0.5) == y
    inside = confidence > 0.75
    np.testing.assert_allclose(points.get_xdata(), [confidence[~inside].mean(), confidence[inside].mean()])
    np.testing.assert_allclose(points.get_ydata(), [right[~inside].mean(), right[inside].mean()])
    ends = np.array(bars.get_segments())[1, :, 1]
    np.testing.assert_allclose(ends, stats.binomtest(int(right[inside].sum()), int(inside.sum())).proportion_ci(0.95))
    errors = [ece(p, y, bins=EqualWidth(4)).text for p in (probs, probs**2)]
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [f"before, ECE {errors[0]}", f"after, ECE {errors[1]}"]
    assert sum(line.get_gid() == "diagonal" for line in ax.lines) == 1


def test_pit_is_a_density_with_its_band(ax):
    y = np.random.default_rng(0).normal(size=500)
    assert plot_pit(ax, (np.zeros(500), np.ones(500)), y, num_bins=10, label="right") is ax
    plot_pit(ax, (np.zeros(500), np.full(500, 2.0)), y, num_bins=10, color="C1", label="wide")
    values = np.histogram(stats.norm.cdf(y), 10, (0, 1))[0] / 50
    stairs = [patch for patch in ax.patches if hasattr(patch, "get_data")]
    np.testing.assert_allclose(stairs[0].get_data().values, values)
    band = ax.patches[0]
    np.testing.assert_allclose(
        [band.get_y(), band.get_y() + band.get_height()], np.array(stats.binom.interval(0.95, 500, 0.1)) / 50
    )
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["right", "wide"]
    assert len(ax.patches) == 5


def test_coverage_is_shown_level_by_level(ax):
    y = np.random.default_rng(0).normal(size=400)
    prediction = (np.zeros(400), np.full(400, 0.7))
    assert plot_coverage(ax, prediction, y, levels=[0.9, 0.5], label="narrow") is ax
    line = ax.lines[-1]
    assert line.get_xdata().tolist() == [0.5, 0.9]
    np.testing.assert_allclose(line.get_ydata(), [float(coverage(prediction, y, level)) for level in (0.5, 0.9)])
    plot_coverage(ax, (np.zeros(400), np.ones(400)), y, color="C1", label="right")
    assert len(ax.collections) == 1


def test_scores_in_and_out_are_shown(ax):
    rng = np.random.default_rng(0)
    result = separate(rng.normal(size=200), 2 + rng.normal(size=100))
    assert plot_ood(ax, result, num_bins=12) is ax
    near, far = (patch.get_data() for patch in ax.patches)
    for shown, scores in ((near, result.scores_in), (far, result.scores_out)):
        np.testing.assert_allclose(shown.values, np.histogram(scores, shown.edges, density=True)[0])
    assert ax.get_title() == f"AUROC {float(result.auroc):.3g}"


def test_bad_arguments_are_refused(ax, as_users_run):
    normal = (np.zeros(3), np.ones(3))
    with pytest.raises(ValueError, match="num_bins must be an int >= 1, got 0"):
        plot_pit(ax, normal, np.zeros(3), num_bins=0)
    with pytest.raises(ValueError, match="levels must be a list of numbers strictly between 0 and 1"):
        plot_coverage(ax, normal, np.zeros(3), levels=[1.0])
    with pytest.raises(TypeError, match=r"bins must be EqualWidth\(\), EqualMass\(\) or Distinct\(\), got 10"):
        plot_reliability(ax, [0.5, 0.7], [0, 1], bins=10)

"""Pictures of learning curves: the mean over repeats where all have it, and its band."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("agg")
import matplotlib.pyplot as plt

from marginax.decide import LearningCurve
from marginax.plot import plot_learning_curves


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    figure.canvas.draw()
    plt.close(figure)


def curve(*points):
    result = LearningCurve()
    for num, error in points:
        result = result.add(num, error=error)
    return result


def test_repeats_are_averaged_where_all_have_a_point(ax):
    repeats = [curve((10, 0.4), (20, 0.2), (30, 0.1)), curve((10, 0.6), (20, 0.4))]
    assert plot_learning_curves(ax, {"BALD": repeats, "random": curve((10, 0.5), (15, 0.45))}, target=0.1) is ax
    mean, single, target = ax.lines
    assert mean.get_xdata().tolist() == [10, 20]
    np.testing.assert_allclose(mean.get_ydata(), [0.5, 0.3])
    assert single.get_xdata().tolist() == [10, 15]
    assert target.get_ydata()[0] == 0.1
    (band,) = ax.collections
    edges = band.get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([edges.min(), edges.max()], [0.3 - np.sqrt(0.02), 0.5 + np.sqrt(0.02)])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["BALD (2 repeats)", "random"]


def test_bad_curves_are_refused(ax, as_users_run):
    with pytest.raises(ValueError, match="at least one"):
        plot_learning_curves(ax, {})
    with pytest.raises(TypeError, match="LearningCurve"):
        plot_learning_curves(ax, {"mine": [[1, 2]]})
    with pytest.raises(ValueError, match="share none"):
        plot_learning_curves(ax, {"mine": [curve((10, 0.1)), curve((20, 0.1))]})
    with pytest.raises(ValueError, match="test="):
        plot_learning_curves(ax, {"mine": curve((10, np.nan))})
    ax.plot([0], [0], label="drawn")

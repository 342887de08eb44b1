"""Pictures of wrong labels and of annotators show the numbers they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import marginax as mx
from marginax.posterior.hidden_labels import Confusion


def test_labels_are_ranked_and_counted():
    errors = np.array([[0.1, np.nan], [0.9, 0.4]])
    wrong = np.array([[False, True], [True, False]])
    ax = mx.plot.plot_label_errors(plt.figure().gca(), errors, wrong)
    expected, found = ax.get_lines()
    np.testing.assert_allclose(expected.get_ydata(), [0.9, 1.3, 1.4])
    np.testing.assert_array_equal(found.get_ydata(), [1, 1, 1])
    with pytest.raises(ValueError, match="probabilities"):
        mx.plot.plot_label_errors(plt.figure().gca(), [1.2])
    with pytest.raises(ValueError, match="boolean of shape"):
        mx.plot.plot_label_errors(plt.figure().gca(), [0.2], [1])
    plt.close("all")


def test_annotators_are_ordered_with_their_intervals():
    draws = np.random.default_rng(0).dirichlet([8, 2], size=(50, 3, 2))
    draws[:, 2] = [[0.1, 0.9], [0.9, 0.1]]
    confusion = Confusion(draws, level=0.8)
    ax = mx.plot.plot_annotators(plt.figure().gca(), confusion)
    shown = ax.containers[0].lines[0].get_ydata()
    np.testing.assert_allclose(shown, np.sort(confusion.accuracy)[::-1])
    with pytest.raises(ValueError, match="several annotators"):
        mx.plot.plot_annotators(plt.figure().gca(), Confusion(draws[:, 0]))
    with pytest.raises(ValueError, match="level"):
        Confusion(draws, level=1.0)
    plt.close("all")

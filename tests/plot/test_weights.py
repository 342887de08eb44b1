"""Pictures of weights: bars where the weights are, lines where pruning cuts."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

matplotlib.use("agg")
import matplotlib.pyplot as plt

import marginax as mx
from marginax.curvature import DiagonalCovariance
from marginax.decide import prune
from marginax.plot import plot_signal_to_noise, plot_weights
from marginax.posterior import Draws, Gaussian, Mixture, Stochastic

MODEL = mx.Model(mx.nets.MLP(9, (10,), 10, key=0), mx.likelihoods.Categorical())
SIZE = 210


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    figure.canvas.draw()
    plt.close(figure)


def _gaussian():
    """Weight i has a ratio of i decibels, from -105 to 104, in disorder."""
    decibels = np.random.default_rng(0).permutation(np.arange(SIZE) - 105.0)
    mean = ravel_pytree(MODEL.initial(10))[1](jnp.asarray(np.linspace(-2, 2, SIZE), jnp.float32))
    scale = np.abs(np.linspace(-2, 2, SIZE)) / 10 ** (decibels / 10)
    return Gaussian(MODEL, mean, DiagonalCovariance(jnp.asarray(scale, jnp.float32)))


def _stack(num_axes):
    axes = (1,) * num_axes
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*axes, *leaf.shape), _gaussian().mean)


def _outline(ax):
    """Height of the bars by their edges."""
    points = ax.patches[-1].get_xy()
    return points[:, 0].min(), points[:, 0].max()


@pytest.mark.parametrize(
    "posterior",
    [
        _gaussian,
        lambda: Draws(MODEL, _stack(2)),
        lambda: Stochastic(MODEL, jax.tree.map(jnp.asarray, _stack(1)), ()),
        lambda: Mixture([_gaussian(), _gaussian()]),
    ],
    ids=["normal", "point", "stochastic", "mixture"],
)
def test_weights_are_shown_for_every_kind_of_posterior(posterior, ax):
    assert plot_weights(ax, posterior(), num_bins=20, label="mine") is ax
    np.testing.assert_allclose(_outline(ax), (-2, 2))
    heights = [bar.get_height() for bar in ax.patches[:20]]
    np.testing.assert_allclose(heights, 0.25, rtol=0.1)  # a density, here even over a width of 4
    assert ax.get_legend_handles_labels()[1] == ["mine"]


def test_the_means_of_draws_are_shown(ax):
    params = jax.tree.map(lambda leaf: np.concatenate([leaf - 1, leaf + 1], axis=1), _stack(2))
    plot_weights(ax, Draws(MODEL, params))
    np.testing.assert_allclose(_outline(ax), (-2, 2), rtol=1e-6)


def test_signal_to_noise_is_in_decibels_with_lines_where_pruning_cuts(ax):
    assert plot_signal_to_noise(ax, _gaussian(), fractions=(0.5, 0.9)) is ax
    np.testing.assert_allclose(_outline(ax), (-105, 104), rtol=1e-4)
    cuts = [line.get_xdata()[0] for line in ax.lines]
    np.testing.assert_allclose(cuts, [-0.5, 83.5], atol=0.01)  # between the 105th and 106th, the 189th and 190th
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["50% removed", "90% removed"]


def test_lines_separate_what_is_removed_from_what_is_kept(ax):
    plot_signal_to_noise(ax, _gaussian(), fractions=(0.33,))
    plot_signal_to_noise(ax, prune(_gaussian(), 0.33).posterior, fractions=())
    assert _outline(ax)[0] > ax.lines[0].get_xdata()[0] > _outline(ax)[0] - 1


def test_weights_that_were_removed_have_no_bar_but_count(ax):
    pruned = prune(_gaussian(), 0.5).posterior
    plot_signal_to_noise(ax, pruned, fractions=(0.2, 0.9))
    np.testing.assert_allclose(_outline(ax), (0, 104), atol=0.01)
    np.testing.assert_allclose([line.get_xdata()[0] for line in ax.lines], [0, 83.5], atol=0.01)


def test_mixtures_and_draws_have_a_ratio_too(ax):
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: leaf + rng.normal(size=(2, 5, *leaf.shape[2:])), _stack(2))
    plot_signal_to_noise(ax, Mixture([_gaussian(), Draws(MODEL, params)]))
    assert len(ax.lines) == 1


def test_bad_arguments_are_refused(ax):
    with pytest.raises(ValueError, match=r"fractions must be in \[0, 1\), got 1.5"):
        plot_signal_to_noise(ax, _gaussian(), fractions=(1.5,))
    with pytest.raises(TypeError, match="posterior must say how sure it is"):
        plot_signal_to_noise(ax, Draws(MODEL, _stack(2)))
    with pytest.raises(ValueError, match="posterior must have a weight with mean and spread"):
        plot_signal_to_noise(ax, prune(_gaussian(), 0.999).posterior)

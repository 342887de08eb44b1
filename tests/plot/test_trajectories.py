"""The leapfrog of the teaching picture is a leapfrog, and the picture shows where it goes."""

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

matplotlib.use("agg")
import matplotlib.pyplot as plt

from marginax.plot import plot_trajectories
from marginax.plot.trajectories import leapfrog


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    figure.canvas.draw()
    plt.close(figure)


def banana(q):
    return -0.5 * q[0] ** 2 - 2.0 * (q[1] - 0.5 * q[0] ** 2) ** 2


START, MOMENTUM = jnp.array([0.5, -0.3]), jnp.array([1.0, 0.7])


def test_leapfrog_is_reversible():
    path, momenta, _ = leapfrog(banana, START, MOMENTUM, 0.1, 30)
    back, _, _ = leapfrog(banana, path[-1], -momenta[-1], 0.1, 30)
    np.testing.assert_allclose(back[::-1], path, atol=1e-4)


def test_half_the_step_has_a_quarter_of_the_energy_error():
    coarse, fine = (
        float(jnp.abs(leapfrog(banana, START, MOMENTUM, step, num)[2]).max()) for step, num in ((0.2, 15), (0.1, 30))
    )
    assert 3 < coarse / fine < 5


def test_picture_shows_the_paths(ax):
    starts = np.array([[0.5, -0.3], [-1.0, 0.5]])
    momenta = np.array([[1.0, 0.7], [0.0, -1.0]])
    assert plot_trajectories(ax, banana, starts, 0.1, 25, momenta=momenta) is ax
    shown = [line.get_xydata() for line in ax.lines if len(line.get_xydata()) == 26]
    assert len(shown) == 2
    np.testing.assert_allclose(shown[0], leapfrog(banana, START, MOMENTUM, 0.1, 25)[0], rtol=1e-4, atol=1e-5)
    left, right, bottom, top = *ax.get_xlim(), *ax.get_ylim()
    for path in shown:
        assert ((left < path[:, 0]) & (path[:, 0] < right) & (bottom < path[:, 1]) & (path[:, 1] < top)).all()


def test_a_divergent_trajectory_is_drawn_and_marked(ax):
    plot_trajectories(ax, lambda q: -50.0 * q @ q, np.array([1.0, 1.0]), 0.5, 20, momenta=np.zeros(2))
    assert [line.get_marker() for line in ax.lines].count("X") == 1


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"starts": np.zeros((3, 3)), "key": 0}, "starts must have shape"),
        ({}, "momenta or key must be given"),
        ({"momenta": np.zeros((2, 2))}, "momenta must have the shape of starts"),
        ({"key": 0, "step_size": -0.1}, "step_size must be > 0"),
        ({"key": 0, "extent": (1, -1, -1, 1)}, "extent must be"),
    ],
)
def test_bad_arguments_are_refused(changes, match, ax):
    arguments = {"starts": np.zeros((3, 2)), "step_size": 0.1, "num_steps": 5, **changes}
    with pytest.raises(ValueError, match=match):
        plot_trajectories(ax, banana, **arguments)

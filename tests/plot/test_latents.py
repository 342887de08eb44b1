"""A map of latents shows where the encoder puts examples."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from tests.latent.vae_linear import Truth, posterior_of

from marginax.plot import latent_map


def test_points_are_mean_latents_by_label():
    truth = Truth()
    posterior = posterior_of(truth.model())
    labels = np.array([0, 1, 0, 1, 1, 0])
    _, ax = plt.subplots()
    assert latent_map(ax, posterior, truth.x, labels) is ax
    mean = posterior.encode(truth.x).mean
    for label, points in zip((0, 1), ax.collections, strict=True):
        np.testing.assert_allclose(points.get_offsets(), mean[labels == label])
    with pytest.raises(ValueError, match="labels must have one of each of the 6 examples"):
        latent_map(ax, posterior, truth.x, labels[:3])
    plt.close("all")

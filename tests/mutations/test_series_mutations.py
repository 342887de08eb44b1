"""Bugs that forecasts and folders of images can have, each planted alone and caught by a check of the suite."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.data import test_images as images
from tests.data.pictures import write_labels, write_pictures
from tests.estimators import test_forecaster as forecasts
from tests.mutations.bug import Bug, assert_caught

from marginax.data import image_files, image_folder
from marginax.estimators import forecast, series

ROWS, HEADER, LABELS = image_files.rows_on_host, image_folder.read_header, image_folder.labels_of_table
FAILS = (AssertionError, pytest.fail.Exception)


def noise_shared_over_paths(key, k):
    return jax.random.fold_in(jax.random.key(0), k)


def noise_shared_over_steps(key, k):
    return key


def weights_redrawn_at_each_step(functions, windows, places, z, known, horizon, keys):
    """Other weights at every step of a path."""
    window, values = jnp.tile(z, (len(keys), 1)), []
    for k in range(horizon):
        mine = jnp.roll(places, 7 * k)
        draws = functions.prepare(jax.tree.map(lambda leaf, mine=mine: leaf[mine], functions.draws))
        inputs = jax.vmap(lambda each: windows.inputs(each, known))(window)[:, None]
        found = jax.vmap(functions.distribution)(draws, inputs)
        noise = jax.vmap(lambda key, k=k: jax.random.normal(jax.random.fold_in(key, k)))(keys)
        values.append(found.mean[:, 0, 0] + forecasts.NOISE * noise)
        window = jnp.concatenate([window[:, 1:], values[-1][:, None]], axis=1)
    values = jnp.stack(values, axis=1)
    return values, found


def only_the_mean_function(functions, windows, places, *rest):
    return SIMULATE(functions, windows, jnp.zeros_like(places), *rest)


SIMULATE = forecast._simulate


def missing_targets_are_zero(self, z, known):
    return ROWS_OF_SERIES(self, np.nan_to_num(z), known)


ROWS_OF_SERIES = series.Windows.rows


def the_last_value_is_not_seen(self, z, known):
    return INPUTS(self, jnp.roll(z, 1), known)


INPUTS = series.Windows.inputs


def labels_by_order(path, names, column):
    """Line by line, as files are sorted."""
    found, notes = LABELS(path, names, column)
    lines = [line.split(",")[1] for line in path.read_text().splitlines()[1:]]
    return lines[: len(found)], notes


def no_limit_of_pixels(path, content, *, max_pixels):
    with images.Image.open(io.BytesIO(content), formats=("PNG",)) as image:
        return HEADER(path, content, max_pixels=max(max_pixels, image.width * image.height))


def always_the_first_epoch(step, size, num, *, key):
    return ROWS(step % (num // size), size, num, key=key)


def moments_of_steps():
    forecasts.check_the_joint_law_of_steps_with_unknown_weights()


def gaps():
    forecasts.test_missing_values_are_no_targets_and_are_told_apart()


def folder_of(tmp_path):
    labels = write_pictures(tmp_path / "pictures")
    return tmp_path / "pictures", write_labels(tmp_path / "labels.csv", labels), labels


FORECASTS = [
    Bug("noise-over-paths", forecast, "noise_key", noise_shared_over_paths, moments_of_steps, "are off"),
    Bug("noise-over-steps", forecast, "noise_key", noise_shared_over_steps, moments_of_steps, "covariances are off"),
    Bug("weights-redrawn", forecast, "_simulate", weights_redrawn_at_each_step, moments_of_steps, "are off"),
    Bug("one-function", forecast, "_simulate", only_the_mean_function, moments_of_steps, "are off"),
    Bug("last-value", series.Windows, "inputs", the_last_value_is_not_seen, gaps),
    Bug("missing-zero", series.Windows, "rows", missing_targets_are_zero, gaps),
]

PICTURES = [
    Bug("labels-by-order", image_folder, "labels_of_table", labels_by_order, images.check_labels_are_joined_by_name),
    Bug("no-limit", image_folder, "read_header", no_limit_of_pixels, images.check_bombs_are_refused_by_name),
    Bug(
        "same-epoch",
        image_files,
        "rows_on_host",
        always_the_first_epoch,
        images.check_batches_are_those_of_arrays_in_memory,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", FORECASTS, ids=lambda bug: bug.name)
def test_bugs_of_forecasts_are_caught(bug):
    assert_caught(bug, bug.check)


@pytest.mark.slow
@pytest.mark.parametrize("bug", PICTURES, ids=lambda bug: bug.name)
def test_bugs_of_images_are_caught(bug, tmp_path):
    folder = folder_of(tmp_path)
    bug.check(folder)
    image_files._reader.cache_clear()
    folder = folder_of(tmp_path)
    assert_caught(bug, lambda: bug.check(folder), FAILS)

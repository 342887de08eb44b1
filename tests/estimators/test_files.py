"""Estimators in files: saved as a whole or not at all, and begun again where nothing was kept."""

import contextlib
import copy
import os
import shutil

import equinox as eqx
import numpy as np
import pytest

import marginax as mx
from marginax.files import FileError
from marginax.infer import MAP

METHOD = MAP(num_epochs=5)


def fitted(scale, directory=None):
    x = np.linspace(-1, 1, 30)[:, None] * scale
    estimator = mx.estimators.BayesianRegressor(method=METHOD, hidden=(4,), progress=False)
    return estimator.fit(x, x[:, 0], directory=directory), x


@pytest.fixture(scope="module")
def two():
    return fitted(1.0), fitted(1000.0)


CALLS = ("mkdir", "rename", "replace", "write", "fsync")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")], ids=["end", "full"])
def test_an_end_at_any_call_leaves_the_old_estimator_or_the_new_one(tmp_path, monkeypatch, two, error):
    (old, x), (new, _) = two
    known = [each.predict(x).tolist() for each in (old, new)]
    old.save(tmp_path / "saved")
    place, seen = 0, []
    while True:
        place, count = place + 1, 0
        shutil.copytree(tmp_path / "saved", tmp_path / f"copy-{place}")

        def ending(call, limit):
            def wrapped(*args, **options):
                nonlocal count
                count += 1
                if count == limit:
                    raise error
                return call(*args, **options)

            return wrapped

        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, ending(getattr(os, name), place))
            with contextlib.suppress(KeyboardInterrupt, FileError):
                new.save(tmp_path / f"copy-{place}", overwrite=True)
        found = mx.estimators.load(tmp_path / f"copy-{place}").predict(x).tolist()
        assert found in known
        seen.append(known.index(found))
        if count < place:
            break
    assert seen[-1] == 1
    assert len(seen) > 5


def test_an_estimator_that_an_earlier_version_saved_in_two_parts_is_read_and_replaced(tmp_path, two):
    from marginax.estimators.storage import estimator_directory, parts_of
    from marginax.files import Parts

    (old, x), (new, _) = two
    files = estimator_directory(tmp_path / "saved")
    Parts.encode(parts_of(old)).write(files.path / files.folder, files.kind)
    old.posterior_.save(files.posterior)
    np.testing.assert_array_equal(mx.estimators.load(tmp_path / "saved").predict(x), old.predict(x))
    new.save(tmp_path / "saved", overwrite=True)
    np.testing.assert_array_equal(mx.estimators.load(tmp_path / "saved").predict(x), new.predict(x))


def test_a_fit_that_was_killed_before_its_run_began_is_begun_by_the_same_call(tmp_path, two):
    (old, x), _ = two
    fitted(1000.0, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "run")
    (tmp_path / "run" / "run" / ".setup.new-0123456789abcdef").mkdir(parents=True)
    with pytest.raises(FileError, match="the same call begins it"):
        mx.estimators.resume(tmp_path / "run")
    again, _ = fitted(1.0, tmp_path / "run")
    np.testing.assert_array_equal(mx.estimators.load(tmp_path / "run").predict(x), again.predict(x))
    np.testing.assert_array_equal(again.predict(x), old.predict(x))
    with pytest.raises(FileExistsError, match="resume the run in it"):
        fitted(1.0, tmp_path / "run")


def test_bad_data_leave_no_directory_behind(tmp_path):
    with pytest.raises(ValueError, match="NaN"):
        fitted(np.nan, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_", 3),
        ("stack_", 1.5),
        ("method_", "text"),
        ("reason_", None),
        ("n_features_in_", 7),
        ("classes_", [1]),
    ],
)
def test_a_forged_state_is_refused_in_a_sentence(tmp_path, two, name, value):
    forged = copy.copy(two[0][0])
    setattr(forged, name, value)
    forged.save(tmp_path / "forged")
    with pytest.raises(FileError) as caught:
        mx.estimators.load(tmp_path / "forged")
    assert "\n" not in str(caught.value)


def test_a_forged_encoder_is_refused_in_a_sentence(tmp_path, two):
    for name, value in [("kinds", ("number",) * 5), ("names", ("a", "b")), ("has_missing", ()), ("typical", None)]:
        forged = copy.copy(two[0][0])
        forged.encoder_ = eqx.tree_at(lambda e: getattr(e, name), forged.encoder_, value)  # noqa: B023
        forged.save(tmp_path / name)
        if name == "typical":  # which older files lack
            mx.estimators.load(tmp_path / name)
            continue
        with pytest.raises(FileError, match=r"entries|columns") as caught:
            mx.estimators.load(tmp_path / name)
        assert "\n" not in str(caught.value)

"""Fixtures shared by the tests."""

import gc
import os
from itertools import count
from pathlib import Path

import equinox as eqx
import jax
import pytest

from marginax._compilation import VARIABLE

_TESTS = count()
_MAPS = Path("/proc/self/maps")


def pytest_configure(config):
    """Tests compile for themselves, and leave the user's cache alone."""
    os.environ[VARIABLE] = "off"


@pytest.fixture(autouse=True)
def room_for_programs(monkeypatch):
    """Forget what was compiled before a process has as many memory maps as Linux allows (65,530), where XLA crashes.

    And no earlier: the driver's own bound is for searches over architectures, and costs a tenth of the time here.
    """
    from marginax.infer import chunk  # not before the plugin that checks types at run time

    monkeypatch.setattr(chunk, "_MOST_PROGRAMS", 10_000)
    yield
    if next(_TESTS) % 20 == 19 and _MAPS.exists() and len(_MAPS.read_bytes().splitlines()) > 25_000:
        jax.clear_caches()
        eqx.clear_caches()
        gc.collect()


@pytest.fixture
def data_dir() -> Path:
    """The folder of data sets; a test that needs it is skipped on a machine without one."""
    folder = os.environ.get("MARGINAX_DATA")
    if folder is None:
        pytest.skip("MARGINAX_DATA is not set: no folder of data sets on this machine")
    return Path(folder)


@pytest.fixture
def as_users_run():
    """Runtime shape checks off, as outside the tests: for tests of our own errors about wrong types."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)

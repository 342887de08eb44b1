"""Fixtures shared by the tests."""

import os
from pathlib import Path

import pytest


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

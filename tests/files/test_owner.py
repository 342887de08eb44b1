"""One owner per directory, whatever interrupts it."""

import os
import platform

import pytest

from marginax.files import FileError
from marginax.files.owner import LOCK, owned


def interrupt(*args, **options):
    raise KeyboardInterrupt


def test_ctrl_c_while_the_lock_is_taken_leaves_none_behind(tmp_path, monkeypatch):
    """The process that was interrupted (a notebook) said of its own directory that it is in use."""
    with monkeypatch.context() as patch:
        patch.setattr(platform, "node", interrupt)
        with pytest.raises(KeyboardInterrupt), owned(tmp_path / "run"):
            pass
    assert not (tmp_path / "run").exists()
    with owned(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK).exists()


def test_ctrl_c_while_it_is_let_go_leaves_none_behind(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), owned(tmp_path):
        patch.setattr(os, "unlink", interrupt)
    with owned(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_who_is_refused_leaves_the_lock_alone(tmp_path):
    with owned(tmp_path) as owner:
        with pytest.raises(FileError, match="is in use by process"), owned(tmp_path):
            pass
        owner.check()
        with pytest.raises(FileError, match="is in use by process"), owned(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_an_owner_notices_that_the_directory_was_replaced(tmp_path):
    with owned(tmp_path / "run") as owner:
        (tmp_path / "run").rename(tmp_path / "other")
        (tmp_path / "run").mkdir()
        with pytest.raises(FileError, match="was removed or replaced while it was in use"):
            owner.check()


def test_an_owner_notices_that_another_machine_has_taken_the_directory(tmp_path):
    """As on a network file system that locks for each machine alone."""
    with owned(tmp_path) as owner:
        owner.check()
        (tmp_path / LOCK).write_text('{"process": 7, "host": "elsewhere", "since": "now"}')
        with pytest.raises(FileError, match="was taken by process 7 on elsewhere since now while it was in use"):
            owner.check()

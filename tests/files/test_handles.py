"""A directory that becomes a link between the look and the use: nothing is read or written where it leads."""

import os
import shutil

import numpy as np
import pytest

from marginax.files import FileError, GrowingFile, read_bundle, write_bundle
from marginax.files.disk import inside, new_file, open_directory, open_regular, real_path, replacing_file
from marginax.files.handles import Resolved, link, opened
from marginax.files.owner import owned

linux = pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="the system cannot open a directory for its name alone")
pytestmark = linux

OPERATIONS = {
    "read": lambda path: opened(path / "file", os.O_RDONLY),
    "read a regular file": lambda path: open_regular(path / "file").__enter__(),
    "hold a directory": lambda path: open_directory(path / "folder").__enter__(),
    "write": lambda path: new_file(path / "new").__enter__(),
    "replace a file": lambda path: replacing_file(path / "file").__enter__(),
    "rename": lambda path: (path / "file").rename(path / "other"),
    "replace": lambda path: (path / "file").replace(path / "other"),
    "remove": lambda path: (path / "file").unlink(),
    "remove a folder": lambda path: (path / "folder").rmdir(),
    "make a folder": lambda path: (path / "new").mkdir(),
    "link": lambda path: link(path / "file", path / "new"),
    "lock": lambda path: owned(path / "folder").__enter__(),
    "bundle": lambda path: write_bundle(path / "bundle", "numbers", {}, {"a": np.ones(2)}),
    "read a bundle": lambda path: read_bundle(path / "stored", "numbers"),
    "grow": lambda path: GrowingFile.create(path / "file", {"a": np.ones((1, 2))}),
}


def contents(path):
    return {str(each.relative_to(path)): each.read_bytes() if each.is_file() else b"" for each in path.rglob("*")}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_link_that_came_after_the_check_is_not_followed(name, tmp_path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    for folder in (run / "part", outside):
        (folder / "folder").mkdir(parents=True)
        (folder / "file").write_text("mine")
        write_bundle(folder / "stored", "numbers", {}, {"a": np.ones(2)})
    path = inside(real_path(run), "part")  # no link, as yet
    shutil.rmtree(run / "part")
    (run / "part").symlink_to(outside)
    before = contents(outside)
    with pytest.raises((OSError, FileError)):
        OPERATIONS[name](path)
    assert contents(outside) == before


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_same_is_done_where_there_is_none(name, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    write_bundle(tmp_path / "stored", "numbers", {}, {"a": np.ones(2)})
    OPERATIONS[name](real_path(tmp_path))


def test_paths_within_stay_resolved(tmp_path):
    path = real_path(tmp_path)
    (path / "a" / "b").mkdir(parents=True)
    assert isinstance(inside(path, "a", "b"), Resolved)
    assert all(isinstance(each, Resolved) for each in (path / "a", path.parent, path.with_name("b"), *path.iterdir()))
    assert real_path(path / "a") == path / "a"


def test_a_path_of_the_user_may_lead_through_links(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "latest").symlink_to(tmp_path / "runs")
    write_bundle(tmp_path / "latest" / "run", "numbers", {"size": 3}, {})
    assert read_bundle(tmp_path / "runs" / "run", "numbers")[0] == {"size": 3}


def test_folders_are_made_with_their_parents_and_only_once(tmp_path):
    path = real_path(tmp_path) / "a" / "b"
    with pytest.raises(FileNotFoundError):
        path.mkdir()
    path.mkdir(parents=True)
    path.mkdir(exist_ok=True)
    with pytest.raises(FileExistsError):
        path.mkdir()


def test_directories_that_may_be_passed_and_not_read_are_no_hindrance(tmp_path):
    (tmp_path / "home" / "me").mkdir(parents=True)
    (tmp_path / "home").chmod(0o111)
    try:
        write_bundle(tmp_path / "home" / "me" / "run", "numbers", {"size": 3}, {})
        assert read_bundle(tmp_path / "home" / "me" / "run", "numbers")[0] == {"size": 3}
    finally:
        (tmp_path / "home").chmod(0o755)

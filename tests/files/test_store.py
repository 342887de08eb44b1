import errno
import hashlib
import json
import os
import pickle
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import marginax.files.disk
from marginax.files import (
    FileError,
    load_tree,
    read_arrays,
    read_bundle,
    save_tree,
    store,
    write_arrays,
    write_bundle,
)

DOCUMENT = {"numbers": [1, 2.5, None], "text": "naïve ∂", "nested": {"a": [True, {}]}}
ARRAYS = {"weight": np.arange(12.0).reshape(3, 4), "bias": np.array([1, 2], np.int32)}
MANIFEST, TENSORS = "manifest.json", "arrays.safetensors"


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    write_bundle(path, "test", DOCUMENT, ARRAYS)
    return path


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def assert_whole(path, document=DOCUMENT, arrays=ARRAYS):
    back, values = read_bundle(path, "test")
    assert back == document
    assert values.keys() == arrays.keys()
    for name in arrays:
        np.testing.assert_array_equal(values[name], arrays[name])


def manifest_with(run, **changes):
    """The manifest with other entries, and with the right hash: what a hostile writer would make."""
    entries = json.loads((run / MANIFEST).read_text()) | changes
    entries.pop("sha256")
    body = ("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(entries[key])}" for key in entries)).encode()
    return body + b',\n"sha256": "%b"\n}\n' % hashlib.sha256(body).hexdigest().encode()


def test_bundles_come_back(run):
    assert_whole(run)
    assert_whole(str(run) + "/")
    assert names(run) == [TENSORS, MANIFEST]
    assert names(run.parent) == ["run"]


def test_the_manifest_says_what_and_with_what(run):
    manifest = json.loads((run / MANIFEST).read_text())
    assert manifest["format"] == "marginax"
    assert manifest["version"] == 2
    assert manifest["kind"] == "test"
    assert manifest["versions"].keys() == {"python", "marginax", "jax", "equinox", "numpy"}
    content = (run / TENSORS).read_bytes()
    assert manifest["files"] == {TENSORS: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}}


def test_equal_contents_give_equal_bytes(run):
    write_bundle(run.parent / "again", "test", DOCUMENT, ARRAYS)
    for name in (MANIFEST, TENSORS):
        assert (run / name).read_bytes() == (run.parent / "again" / name).read_bytes()


def test_parents_are_made_and_empty_directories_filled(tmp_path):
    write_bundle(tmp_path / "a" / "b", "test", DOCUMENT, {})
    assert_whole(tmp_path / "a" / "b", arrays={})
    (tmp_path / "c").mkdir()
    write_bundle(tmp_path / "c", "test", DOCUMENT, ARRAYS)
    assert_whole(tmp_path / "c")
    assert names(tmp_path) == ["a", "c"]


def test_trees_come_back(tmp_path):
    layer = eqx.nn.LayerNorm(3)
    save_tree(tmp_path / "tree", "layer", {"layer": layer, "key": jax.random.key(1)})
    back = load_tree(tmp_path / "tree", "layer")
    assert back["layer"].shape == layer.shape
    np.testing.assert_array_equal(back["layer"].weight, layer.weight)
    assert back["key"] == jax.random.key(1)


def test_errors_of_loaded_trees_name_the_path(tmp_path):
    write_bundle(tmp_path / "tree", "layer", {"@": "object", "class": "MyNet", "fields": {}}, {})
    with pytest.raises(FileError, match=r"tree: the root: class 'MyNet' is not registered: decorate it with @mx"):
        load_tree(tmp_path / "tree", "layer")


def test_documents_that_are_not_json_are_refused(tmp_path):
    for document in ({"a": float("nan")}, {"a": object()}, {"a": {1, 2}}, {"a": b"b"}):
        with pytest.raises(FileError, match="document must be JSON"):
            write_bundle(tmp_path / "run", "test", document, {})
    with pytest.raises(FileError, match="too many"):
        write_bundle(tmp_path / "run", "test", ["x" * 2**20] * 16, {})
    assert names(tmp_path) == []


# Replacing.


def test_an_existing_bundle_is_only_replaced_on_request(run):
    with pytest.raises(FileError, match="exists already: choose another path or pass overwrite=True"):
        write_bundle(run, "test", {}, {})
    assert_whole(run)
    write_bundle(run, "test", {"new": 1}, {}, overwrite=True)
    assert_whole(run, {"new": 1}, {})
    assert names(run.parent) == ["run"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_a_bundle_is_never_replaced(run, overwrite):
    (run / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match=r"holds other files \('notes.txt' ...\)"):
        write_bundle(run, "test", {}, {}, overwrite=overwrite)
    other = run.parent / "web"
    other.mkdir()
    (other / MANIFEST).write_text('{"name": "a web page"}')
    with pytest.raises(FileError, match="not a marginax bundle"):
        write_bundle(other, "test", {}, {}, overwrite=overwrite)
    (run.parent / "file").write_text("mine")
    with pytest.raises(FileError, match="not a directory"):
        write_bundle(run.parent / "file", "test", {}, {}, overwrite=overwrite)
    assert (run / "notes.txt").read_text() == (run.parent / "file").read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"\x00" * 100])
def test_a_damaged_bundle_can_be_replaced(run, content):
    (run / MANIFEST).write_bytes(content)
    write_bundle(run, "test", {"new": 1}, ARRAYS, overwrite=True)
    assert_whole(run, {"new": 1})


def test_links_to_bundles_are_followed_for_the_directory(run):
    (run.parent / "link").symlink_to(run)
    assert_whole(run.parent / "link")
    write_bundle(run.parent / "link", "test", {"new": 1}, ARRAYS, overwrite=True)
    assert_whole(run, {"new": 1})
    assert (run.parent / "link").is_symlink()


class Crash(BaseException):
    """As if the process had been killed."""


@pytest.mark.parametrize("place", [1, 2])
def test_an_error_in_either_rename_is_undone(run, monkeypatch, place):
    calls, rename = [], os.rename

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == place:
            raise OSError(errno.EIO, "Input/output error")
        return rename(*args, **kwargs)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(FileError, match="input/output error; nothing was written"):
        write_bundle(run, "test", {}, {}, overwrite=True)
    assert_whole(run)
    assert names(run.parent) == ["run"]


def test_a_crash_between_the_renames_loses_nothing(run, monkeypatch):
    rename = os.rename

    def crashing(source, target, **kwargs):
        if ".new-" in str(source) or str(target) == run.name:
            raise Crash
        return rename(source, target, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", crashing)
        patch.setattr(marginax.files.disk, "remove_directory", lambda path, names: None)
        with pytest.raises(Crash):
            write_bundle(run, "test", {"new": 1}, {}, overwrite=True)
    assert not run.exists()
    assert len(names(run.parent)) == 2
    assert_whole(run)  # found under the name it was moved to

    run.mkdir()  # somebody makes the folder before looking
    assert_whole(run)
    with pytest.raises(FileError, match="exists already"):
        write_bundle(run, "test", {}, {})
    assert_whole(run)
    write_bundle(run, "test", {"new": 2}, ARRAYS, overwrite=True)
    assert_whole(run, {"new": 2})
    assert names(run.parent) == ["run"]


def test_dying_at_any_system_call_loses_nothing(tmp_path):
    script = Path(__file__).with_name("crash.py")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 30


def test_the_temporaries_of_a_running_writer_are_left_alone(run):
    with marginax.files.disk.temporary_directory(run, (MANIFEST, TENSORS)) as temporary:
        abandoned = run.parent / ".run.new-0"
        abandoned.mkdir()
        (abandoned / TENSORS).write_bytes(b"half")
        write_bundle(run, "test", {"new": 1}, ARRAYS, overwrite=True)
        assert temporary.exists()
        assert not abandoned.exists()
    assert names(run.parent) == ["run"]


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("place", [1, 2])
def test_a_full_disk_is_said_and_leaves_nothing(run, monkeypatch, call, place):
    calls, real = [], getattr(os, call)

    def full(*args):
        calls.append(args)
        if len(calls) >= place:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(FileError, match="no space left on device; nothing was written, what was") as caught:
            write_bundle(run, "test", {}, ARRAYS, overwrite=True)
        assert caught.value.__cause__.errno == errno.ENOSPC
        with pytest.raises(FileError, match="other: no space left on device"):
            write_bundle(run.parent / "other", "test", {}, ARRAYS)
        with pytest.raises(FileError, match="no space left on device"):
            write_arrays(run.parent / "draws.safetensors", ARRAYS)
    assert_whole(run)
    assert names(run.parent) == ["run"]


def test_short_writes_are_completed(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    write_bundle(tmp_path / "run", "test", DOCUMENT, ARRAYS)
    assert_whole(tmp_path / "run")


def test_single_files_are_replaced_at_once(tmp_path, monkeypatch):
    path = tmp_path / "draws.safetensors"
    first = write_arrays(path, {"a": np.ones(3)})
    with monkeypatch.context() as patch:

        def crashing(*args, **kwargs):
            raise Crash

        patch.setattr(os, "replace", crashing)
        with pytest.raises(Crash):
            write_arrays(path, {"a": np.zeros(3)})
    np.testing.assert_array_equal(read_arrays(path, first)["a"], 1)
    (tmp_path / ".draws.safetensors.new-0").write_bytes(b"half")  # left by a killed process
    write_arrays(path, {"a": np.zeros(3)})
    np.testing.assert_array_equal(read_arrays(path)["a"], 0)
    assert names(tmp_path) == ["draws.safetensors"]


# Damage.


@pytest.mark.parametrize("file", [MANIFEST, TENSORS])
def test_every_flipped_byte_is_noticed(run, file):
    content = bytearray((run / file).read_bytes())
    for place in range(len(content)):
        content[place] ^= 1 << (place % 8)
        (run / file).write_bytes(content)
        with pytest.raises(FileError, match="run: "):
            read_bundle(run, "test")
        content[place] ^= 1 << (place % 8)
    (run / file).write_bytes(content)
    assert_whole(run)


@pytest.mark.parametrize("file", [MANIFEST, TENSORS])
def test_every_truncation_and_extension_is_noticed(run, file):
    content = (run / file).read_bytes()
    for size in range(len(content)):
        (run / file).write_bytes(content[:size])
        with pytest.raises(FileError, match="run: "):
            read_bundle(run, "test")
    for more in (b"\n", b" ", b"\x00" * 4096):
        (run / file).write_bytes(content + more)
        with pytest.raises(FileError, match="truncated or damaged"):
            read_bundle(run, "test")


def test_missing_parts_are_named(run):
    with pytest.raises(FileError, match=r"nowhere: no such file or directory"):
        read_bundle(run.parent / "nowhere", "test")
    with pytest.raises(FileError, match=r"manifest\.json: not a marginax bundle: not a directory"):
        read_bundle(run / MANIFEST, "test")
    with pytest.raises(FileError, match=r"not a marginax bundle: it has no manifest\.json"):
        read_bundle(run.parent, "test")
    (run / TENSORS).unlink()
    with pytest.raises(FileError, match=r"damaged: arrays\.safetensors is missing"):
        read_bundle(run, "test")
    with pytest.raises(FileError, match="path is empty"):
        read_bundle("", "test")
    with pytest.raises(FileError, match="not a valid path"):
        read_bundle("a\0b", "test")


def test_arrays_of_another_bundle_are_noticed(run):
    write_bundle(run.parent / "other", "test", DOCUMENT, ARRAYS | {"bias": np.array([1, 3], np.int32)})
    (run.parent / "other" / TENSORS).replace(run / TENSORS)
    with pytest.raises(FileError, match="SHA-256 of the contents does not match"):
        read_bundle(run, "test")


def test_other_kinds_and_newer_formats_are_named(run):
    with pytest.raises(FileError, match="holds a 'test', not a 'posterior'"):
        read_bundle(run, "posterior")
    (run / MANIFEST).write_bytes(manifest_with(run, version=3, versions={"marginax": "9.0"}))
    with pytest.raises(FileError, match=r"newer marginax \('9\.0', format 3; this one reads up to 2\): upgrade"):
        read_bundle(run, "test")


# Hostile files, with every hash right.


def files_entry(run, name):
    entry = json.loads((run / MANIFEST).read_text())["files"][TENSORS]
    return {name: entry}


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "a/../../b", "C:\\x", "manifest.json", "", "\x00"])
def test_files_elsewhere_are_refused(run, name):
    (run.parent / "secret").write_bytes((run / TENSORS).read_bytes())
    (run / MANIFEST).write_bytes(manifest_with(run, files=files_entry(run, name)))
    with pytest.raises(FileError, match="which is no part of a bundle"):
        read_bundle(run, "test")


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1"},
        {"version": 0},
        {"version": True},
        {"versions": []},
        {"files": []},
        {"files": {}},
        {"files": {TENSORS: {}}},
        {"files": {TENSORS: {"size": "1", "sha256": ""}}},
        {"files": {TENSORS: {"size": 10**30, "sha256": ""}}},
        {"kind": ["test"]},
        {"more": 1},
    ],
    ids=str,
)
def test_malformed_manifests_are_refused(run, changes):
    (run / MANIFEST).write_bytes(manifest_with(run, **changes))
    with pytest.raises(FileError, match="run: "):
        read_bundle(run, "test")


def test_well_made_manifests_of_others_are_read(run):
    (run / MANIFEST).write_bytes(manifest_with(run))
    assert_whole(run)


def signed(body):
    return body + b',\n"sha256": "%b"\n}\n' % hashlib.sha256(body).hexdigest().encode()


@pytest.mark.parametrize(
    "body",
    [
        b'{\n"format": "marginax",\n"format": "marginax"',
        b'{\n"format": "marginax",\n"version": NaN',
        b'{\n"format": "marginax",\n"version": 1, "versions": {}, "a": ' + b"[" * 10**5 + b"]" * 10**5,
        b'{\n"format": "marginax",\n"version": ' + b"1" * 10**5,
        b'{\n"format": "marginax",\n"\xff": 1',
        b'{\n"format": "marginax",\n',
    ],
    ids=range(6),
)
def test_absurd_json_is_refused(run, body):
    (run / MANIFEST).write_bytes(signed(body))
    start = time.perf_counter()
    with pytest.raises(FileError, match="damaged"):
        read_bundle(run, "test")
    assert time.perf_counter() - start < 1


def test_a_manifest_of_millions_of_brackets_is_refused_at_once(run):
    with pytest.raises(FileError, match="too many lists"):
        write_bundle(run.parent / "many", "run", [[] for _ in range(2**19)], {})
    manifest = run / "manifest.json"
    body = manifest.read_bytes()[: -store._TAIL_SIZE].rpartition(b'"document": ')[0]
    body += b'"document": [' + b"[]," * 4_000_000 + b"[]]"
    manifest.write_bytes(body + store._TAIL % hashlib.sha256(body).hexdigest().encode())
    began = time.perf_counter()
    with pytest.raises(FileError, match="lists and objects"):
        read_bundle(run, "run")
    assert time.perf_counter() - began < 2


def test_huge_manifests_are_not_read(run):
    with (run / MANIFEST).open("r+b") as file:
        file.truncate(2**40)  # a hole: it takes no room
    start = time.perf_counter()
    with pytest.raises(FileError, match=r"manifest\.json has 1099511627776 bytes"):
        read_bundle(run, "test")
    assert time.perf_counter() - start < 1


def test_links_pipes_and_directories_inside_are_refused(run):
    for file in (MANIFEST, TENSORS):
        outside = run.parent / file
        (run / file).rename(outside)
        (run / file).symlink_to(outside)
        with pytest.raises(FileError, match=f"{file} is a symbolic link"):
            read_bundle(run, "test")
        (run / file).unlink()
        os.mkfifo(run / file)
        with pytest.raises(FileError, match=f"{file} is not a regular file"):
            read_bundle(run, "test")
        (run / file).unlink()
        (run / file).mkdir()
        with pytest.raises(FileError, match=f"{file} is not a regular file"):
            read_bundle(run, "test")
        (run / file).rmdir()
        outside.rename(run / file)
    assert_whole(run)


class Bomb:
    """Unpickling it would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("file", [MANIFEST, TENSORS])
def test_pickles_under_any_name_are_never_run(run, protocol, file):
    proof = run.parent / "proof"
    bomb = pickle.dumps(Bomb(proof), protocol)
    (run / file).write_bytes(bomb)
    with pytest.raises(FileError):
        read_bundle(run, "test")
    if file == TENSORS:
        entry = {"size": len(bomb), "sha256": hashlib.sha256(bomb).hexdigest()}
        (run / MANIFEST).write_bytes(manifest_with(run, files={TENSORS: entry}))
        with pytest.raises(FileError, match=r"arrays\.safetensors"):
            read_bundle(run, "test")
        with pytest.raises(FileError):
            read_arrays(run / TENSORS)
    assert not proof.exists()


def test_object_arrays_and_zip_files_are_never_opened(run):
    proof = run.parent / "proof"
    np.save(run.parent / "bomb.npy", np.array([Bomb(proof)], dtype=object), allow_pickle=True)
    np.savez(run.parent / "bomb.npz", a=np.ones(3))
    with zipfile.ZipFile(run.parent / "slip.zip", "w") as archive:
        archive.writestr("../../proof", "written outside")
    for name in ("bomb.npy", "bomb.npz", "slip.zip"):
        for file in (MANIFEST, TENSORS):
            good = (run / file).read_bytes()
            (run / file).write_bytes((run.parent / name).read_bytes())
            with pytest.raises(FileError):
                read_bundle(run, "test")
            (run / file).write_bytes(good)
        with pytest.raises(FileError):
            read_bundle(run.parent / name, "test")
    assert not proof.exists()

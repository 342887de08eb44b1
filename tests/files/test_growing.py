import errno
import os

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from marginax.files import FileError, GrowingArrays, GrowingFile, read_arrays, read_bundle, write_bundle
from marginax.files.tensors import pieces

RNG = np.random.default_rng(0)
FULL = {
    "weight": RNG.normal(size=(3, 20, 4, 2)).astype(np.float32),
    "count": RNG.integers(0, 100, size=(3, 20)),
    "flag": RNG.integers(0, 2, size=(3, 20, 5)).astype(bool),
    "half": RNG.normal(size=(3, 20, 3)).astype(ml_dtypes.bfloat16),
}


def part(start, stop):
    return {name: value[:, start:stop] for name, value in FULL.items()}


def filled(path, *cuts):
    growing = GrowingFile.create(path, FULL)
    for start, stop in zip((0, *cuts), cuts, strict=False):
        growing.write(start, part(start, stop))
    growing.sync()
    return growing


def assert_holds(arrays, rows, stop):
    assert arrays.keys() == FULL.keys()
    for name, value in FULL.items():
        np.testing.assert_array_equal(arrays[name], value[rows, :stop])
        assert arrays[name].dtype == value.dtype


def test_a_full_file_is_an_ordinary_file_of_the_arrays(tmp_path):
    filled(tmp_path / "a", 7, 8, 20)
    assert_holds(read_arrays(tmp_path / "a"), slice(None), 20)
    numbers = {name: FULL[name] for name in ("weight", "flag")}  # their reader has no bfloat16
    growing = GrowingFile.create(tmp_path / "b", numbers)
    growing.write(0, numbers)
    theirs = safetensors.numpy.load_file(tmp_path / "b")
    assert all(np.array_equal(theirs[name], value) for name, value in numbers.items())


def test_the_hash_knows_the_slots_and_not_the_writes(tmp_path):
    one, many, fewer = filled(tmp_path / "a", 12), filled(tmp_path / "b", 1, 2, 9, 12), filled(tmp_path / "c", 11)
    assert one.sha256 == many.sha256 != fewer.sha256
    many.write(4, part(4, 9))  # slots that are written again, as after a crash
    assert many.count == 9
    many.write(9, part(9, 12))
    assert many.sha256 == one.sha256
    assert_holds(many.arrays(), slice(None), 12)


def test_a_file_is_opened_again_with_its_count_and_hash_only(tmp_path):
    growing = filled(tmp_path / "a", 5, 12)
    again = GrowingFile.open(tmp_path / "a", 12, growing.sha256)
    again.write(12, part(12, 20))
    assert_holds(again.arrays(), slice(None), 20)
    assert again.sha256 == filled(tmp_path / "b", 20).sha256
    for count, sha256 in ((11, growing.sha256), (12, "0" * 64), (21, growing.sha256)):
        with pytest.raises(FileError, match="damaged"):
            GrowingFile.open(tmp_path / "a", count, sha256)
    with pytest.raises(FileError, match="no such file"):
        GrowingFile.open(tmp_path / "missing", 12, growing.sha256)


def test_every_flipped_byte_of_a_filled_slot_is_noticed_and_of_an_empty_one_forgiven(tmp_path):
    growing = filled(tmp_path / "a", 12)
    content = bytearray((tmp_path / "a").read_bytes())
    start = len(content) - sum(value.nbytes for value in FULL.values())
    noticed = 0
    for place in range(start, len(content), 3):
        content[place] ^= 1
        (tmp_path / "a").write_bytes(content)
        try:
            GrowingFile.open(tmp_path / "a", 12, growing.sha256)
        except FileError:
            noticed += 1
        content[place] ^= 1
    assert noticed / len(range(start, len(content), 3)) == pytest.approx(12 / 20, abs=0.02)


def test_rows_and_slots_that_lie_together_are_views_and_others_a_file_without_gaps(tmp_path):
    full = filled(tmp_path / "a", 20)
    arrays, path = full.gather([0, 1, 2])
    assert path == tmp_path / "a"
    assert_holds(arrays, slice(None), 20)
    for growing, rows in ((full, [0, 2]), (filled(tmp_path / "b", 12), [0, 1, 2])):
        arrays, path = growing.gather(rows)
        assert path is not None
        assert_holds(arrays, rows, growing.count)
        assert_holds(read_arrays(path), rows, growing.count)
        assert all(value.flags.c_contiguous for value in arrays.values())
        growing.remove()
    assert not list(tmp_path.iterdir())
    one = GrowingFile.create(tmp_path / "c", {"a": np.empty((1, 9, 2))})
    one.write(0, {"a": np.ones((1, 4, 2))})
    arrays, path = one.gather([0])
    assert path is None
    assert arrays["a"].shape == (1, 4, 2)


def test_memory_and_disk_keep_the_same(tmp_path):
    on_disk, in_memory = GrowingFile.create(tmp_path / "a", FULL), GrowingArrays(FULL)
    for growing in (on_disk, in_memory):
        growing.write(0, part(0, 9))
        growing.write(6, part(6, 15))
        assert_holds(growing.arrays(), slice(None), 15)
        assert_holds(growing.gather([2, 0])[0], [2, 0], 15)


def test_no_slots_at_all(tmp_path):
    growing = GrowingFile.create(tmp_path / "a", {"a": np.empty((2, 0, 3))})
    growing.write(0, {"a": np.empty((2, 0, 3))})
    assert GrowingFile.open(tmp_path / "a", 0, growing.sha256).arrays()["a"].shape == (2, 0, 3)


def test_what_does_not_fit_is_refused(tmp_path):
    growing = filled(tmp_path / "a", 12)
    for start, values in (
        (12, {"count": np.ones((3, 9), int)}),
        (12, {"weight": FULL["weight"][:2, :3]}),
        (12, {"count": np.ones((3, 2))}),
    ):
        with pytest.raises(FileError, match="does not fit"):
            growing.write(start, values)
    with pytest.raises(ValueError, match="start must be <= 12"):
        growing.write(13, part(13, 14))


def test_a_full_disk_leaves_what_was_counted(tmp_path, monkeypatch):
    growing = filled(tmp_path / "a", 12)
    sha256 = growing.sha256

    def full(fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(FileError, match=r"no space left on device; what was kept before is whole.*mx\.resume"):
            growing.write(12, part(12, 20))
    assert growing.count == 12
    assert_holds(GrowingFile.open(tmp_path / "a", 12, sha256).arrays(), slice(None), 12)


def test_links_are_not_followed(tmp_path):
    growing = filled(tmp_path / "a", 12)
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    with pytest.raises(FileError, match="is a symbolic link"):
        growing.write(12, part(12, 20))


# ---- as a part of a bundle


def test_a_bundle_takes_a_file_over_without_writing_it_again(tmp_path):
    filled(tmp_path / "a", 20)
    write_bundle(tmp_path / "run", "test", {}, {"more": np.ones(3)}, linked=tmp_path / "a")
    assert (tmp_path / "run" / "draws.safetensors").stat().st_ino == (tmp_path / "a").stat().st_ino
    (tmp_path / "a").unlink()
    for mapped in (False, True):
        _, arrays = read_bundle(tmp_path / "run", "test", mapped=mapped)
        np.testing.assert_array_equal(arrays.pop("more"), np.ones(3))
        assert_holds(arrays, slice(None), 20)
        assert all(value.flags.writeable != mapped and value.flags.aligned for value in arrays.values())
    write_bundle(tmp_path / "run", "test", {}, {}, overwrite=True)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["arrays.safetensors", "manifest.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert_holds(arrays, slice(None), 20)  # a map outlives its file


@pytest.mark.parametrize("mapped", [False, True])
def test_a_damaged_part_is_noticed(tmp_path, mapped):
    filled(tmp_path / "a", 20)
    write_bundle(tmp_path / "run", "test", {}, {"more": np.ones(3)}, linked=tmp_path / "a")
    for name in ("draws.safetensors", "arrays.safetensors"):
        file = tmp_path / "run" / name
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(content)
        with pytest.raises(FileError, match=f"{name}: damaged: the SHA-256"):
            read_bundle(tmp_path / "run", "test", mapped=mapped)
        file.write_bytes(content[:-1])
        with pytest.raises(FileError, match=f"{name}: truncated"):
            read_bundle(tmp_path / "run", "test", mapped=mapped)
        content[-3] ^= 1
        file.write_bytes(content)
    (tmp_path / "run" / "draws.safetensors").unlink()
    with pytest.raises(FileError, match=r"damaged: draws\.safetensors is missing"):
        read_bundle(tmp_path / "run", "test", mapped=mapped)


@pytest.mark.parametrize("shape", [(3, 5), (2, 700_000), (700_000, 2), (2, 3, 300_000)])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_pieces_are_the_bytes_in_order_and_small(shape, order):
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    array = {"C": array, "F": np.asfortranarray(array), "strided": array[:, ::2]}[order]
    found = list(pieces(array))
    assert b"".join(found) == array.tobytes()
    assert max(map(len, found)) <= 4 * 2**20


def test_every_flipped_byte_of_a_header_is_noticed(tmp_path):
    path = tmp_path / "a.safetensors"
    growing = GrowingFile.create(path, {"a": np.empty((1, 3), np.float32), "b": np.empty((1, 3), np.float32)})
    growing.write(0, {name: np.zeros((1, 2), np.float32) for name in "ab"})
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    accepted = set()
    for place in range(size):
        for bit in (1, 2, 4, 32):
            damaged = bytearray(content)
            damaged[place] ^= bit
            path.write_bytes(damaged)
            try:
                found = GrowingFile.open(path, 2, growing.sha256, growing.header)
            except FileError:
                continue
            accepted.add(found.names)  # white space, which says nothing
            found.write(2, {name: np.ones((1, 1), np.float32) for name in "ab"})
    assert accepted <= {frozenset("ab")}
    path.write_bytes(content)
    growing.verify()

import hashlib
import json
import os

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from marginax.files import FileError, read_arrays, write_arrays

ARRAYS = {
    "float32": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "transposed": np.arange(12.0).reshape(3, 4).T,
    "strided": np.arange(12.0).reshape(3, 4)[:, ::2],
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3)),
    "int8": np.array([-1, 2], np.int8),
    "bool": np.array([True, False, True]),
    "naïve ∂": np.array([1], np.uint16),
    "complex": np.array([1 + 2j], np.complex64),
}


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_the_hash_is_that_of_the_file(tmp_path):
    path = tmp_path / "a.safetensors"
    assert write_arrays(path, ARRAYS) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_arrays_come_back(tmp_path):
    path = tmp_path / "a.safetensors"
    sha256 = write_arrays(path, ARRAYS | {"bfloat16": jnp.ones(3, jnp.bfloat16), "big": np.array([1.5], ">f8")})
    back = read_arrays(path, sha256)
    assert back.keys() == ARRAYS.keys() | {"bfloat16", "big"}
    for name, value in ARRAYS.items():
        assert back[name].dtype == value.dtype
        np.testing.assert_array_equal(back[name], value)
        assert back[name].flags.writeable
        assert back[name].flags.aligned
    assert back["bfloat16"].dtype == ml_dtypes.bfloat16
    assert back["big"] == 1.5


def test_the_safetensors_package_reads_what_we_write(tmp_path):
    path = tmp_path / "a.safetensors"
    write_arrays(path, ARRAYS)
    theirs = safetensors.numpy.load_file(path)
    assert theirs.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        np.testing.assert_array_equal(theirs[name], value)


def test_we_read_what_the_safetensors_package_writes(tmp_path):
    path = tmp_path / "a.safetensors"
    contiguous = {name: np.array(value, order="C") for name, value in ARRAYS.items()}
    safetensors.numpy.save_file(contiguous, path, metadata={"made by": "them"})
    ours = read_arrays(path)
    assert ours.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        np.testing.assert_array_equal(ours[name], value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.array(["text"])}, "dtype <U4 cannot be stored"),
        ({"a": np.array([object()])}, "dtype object cannot be stored"),
        ({"__metadata__": np.ones(1)}, "array names must be"),
        ({"": np.ones(1)}, "array names must be"),
        ({"a\nb": np.ones(1)}, "array names must be"),
    ],
    ids=range(5),
)
def test_what_cannot_be_written_leaves_nothing_behind(tmp_path, arrays, message):
    with pytest.raises(FileError, match=message):
        write_arrays(tmp_path / "a.safetensors", {"good": np.ones(3)} | arrays)
    assert not list(tmp_path.iterdir())


HOSTILE = {
    "nothing": b"",
    "too short": b"\x00" * 9,
    "zeros": b"\x00" * 64,
    "header longer than the file": (1000).to_bytes(8, "little") + b"{}" + b" " * 100,
    "header of 2^63 bytes": (2**63).to_bytes(8, "little") + b"{}",
    "header of 2^64 - 1 bytes": (2**64 - 1).to_bytes(8, "little") + b"{}",
    "not JSON": file_of(b"{'a': 1}"),
    "not an object": file_of(b'["a"]'),
    "not UTF-8": file_of(b'{"\xff": 1}'),
    "cut JSON": file_of(b'{"a": {"dtype": "F32"'),
    "NaN": file_of(b'{"a": NaN}'),
    "nested without end": file_of(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "number without end": file_of(b'{"a":' + b"9" * 100_000 + b"}"),
    "repeated key": file_of(b'{"a": %b, "a": %b}' % ((json.dumps(entry()).encode(),) * 2), b"\x00\x00\x00\x00"),
    "repeated inner key": file_of(
        b'{"a": {"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', b"\x00\x00\x00\x00"
    ),
    "missing entry": file_of({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    "extra entry": file_of({"a": entry() | {"code": "1"}}, bytes(4)),
    "unknown dtype": file_of({"a": entry(dtype="O")}, bytes(4)),
    "pickled dtype": file_of({"a": entry(dtype=["O"])}, bytes(4)),
    "negative size": file_of({"a": entry(shape=(-1,), offsets=(0, -4))}),
    "huge shape": file_of({"a": entry(shape=(2**62,), offsets=(0, 2**64))}, bytes(4)),
    "huge shape of nothing": file_of({"a": entry(shape=(0, 2**62, 2**62), offsets=(0, 0))}),
    "too many axes": file_of({"a": entry(shape=(1,) * 70)}, bytes(4)),
    "fractional size": file_of({"a": entry(shape=(1.0,))}, bytes(4)),
    "boolean size": file_of({"a": entry(shape=(True,))}, bytes(4)),
    "offsets beyond the end": file_of({"a": entry(offsets=(0, 4))}, bytes(2)),
    "offsets backwards": file_of({"a": entry(shape=(0,), offsets=(4, 0))}, bytes(4)),
    "bytes left over": file_of({"a": entry()}, bytes(5)),
    "overlap": file_of({"a": entry(), "b": entry()}, bytes(4)),
    "hole": file_of({"a": entry(), "b": entry(offsets=(8, 12))}, bytes(12)),
    "boolean that is neither": file_of({"a": entry(dtype="BOOL", offsets=(0, 1))}, b"\x02"),
    "a zip file": b"PK\x03\x04" + bytes(100),
    "a pickle": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(tmp_path, name):
    path = tmp_path / "a.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(FileError, match=r"a\.safetensors: "):
        read_arrays(path)


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "a.safetensors"
    write_arrays(path, ARRAYS)
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(FileError):
            read_arrays(path)


def test_every_flipped_byte_is_noticed_with_the_hash(tmp_path):
    path = tmp_path / "a.safetensors"
    sha256 = write_arrays(path, ARRAYS)
    content = bytearray(path.read_bytes())
    for place in range(len(content)):
        content[place] ^= 1 << (place % 8)
        path.write_bytes(content)
        with pytest.raises(FileError):
            read_arrays(path, sha256)
        content[place] ^= 1 << (place % 8)


def test_pipes_and_directories_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(FileError, match="not a regular file"):
            read_arrays(path)
    with pytest.raises(FileError, match="exists and is not a regular file"):
        write_arrays(tmp_path / "pipe", ARRAYS)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"missing\.safetensors: no such file or directory"):
        read_arrays(tmp_path / "missing.safetensors")

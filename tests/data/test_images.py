"""Folders of images: labels by name, pixels as they are, nothing trusted, batches as from memory."""

import os
import signal
import struct
import zlib

import jax
import numpy as np
import pytest
from PIL import Image
from tests.data.pictures import write_labels, write_pictures

import marginax as mx
from marginax._extras import require
from marginax.data import image_files, load_images
from marginax.files import FileError
from marginax.infer import AbstractHook, Verdict


@pytest.fixture
def folder(tmp_path):
    labels = write_pictures(tmp_path / "pictures")
    write_labels(tmp_path / "labels.csv", labels)
    return tmp_path / "pictures", tmp_path / "labels.csv", labels


def check_labels_are_joined_by_name(folder):
    images = load_images(*folder[:2])
    assert {name: images.classes[label] for name, label in zip(images.names, images.labels, strict=True)} == folder[2]


def test_labels_are_joined_by_name(folder):
    check_labels_are_joined_by_name(folder)
    assert list(folder[2]) != sorted(folder[2])  # or the order would do


def test_pixels_are_those_of_the_file(folder):
    images = load_images(*folder[:2])
    assert images.shape == (1, 12, 10)
    rows = np.array([5, 0])
    expected = [np.asarray(Image.open(folder[0] / images.names[row])) / 255 for row in rows]
    np.testing.assert_allclose(images.pixels(rows)[:, 0], expected, rtol=1e-6)
    data = images.arrays()
    np.testing.assert_allclose([data.x.mean(), data.x.std()], [0, 1], atol=1e-5)
    np.testing.assert_allclose(
        data.scaling.x_shift + data.scaling.x_factor * data.x[rows], images.pixels(rows), atol=1e-6
    )


@pytest.mark.parametrize(
    ("header", "delimiter", "write"),
    [
        (("name", "class"), ";", lambda name: name),
        (None, ",", lambda name: name),
        (("x", "y"), "\t", lambda name: f"/somewhere/else/{name}"),
        (("x", "y"), ",", lambda name: name.partition(".")[0]),
        (("x", "y"), ",", lambda name: f"C:\\pictures\\{name}"),
    ],
    ids=["semicolons", "no-header", "other-folder", "no-ending", "backslashes"],
)
def test_names_may_be_written_in_several_ways(folder, header, delimiter, write):
    labels = {write(name): label for name, label in folder[2].items()}
    write_labels(folder[1], labels, header=header, delimiter=delimiter)
    check_labels_are_joined_by_name(folder)


def test_labels_without_a_file_and_files_without_a_label_are_counted_and_named(folder):
    pictures, table, labels = folder
    del labels["p003.png"], labels["p011.png"]
    write_labels(table, labels | {"gone.png": "top", "p005.png": ""})
    images = load_images(pictures, table)
    assert len(images) == 21
    text = " ".join(images.notes)
    assert "1 label is without a file: gone.png." in text
    assert "3 images are without a label and left out: p003.png, p005.png, p011.png." in text
    everything = load_images(pictures, table, labelled=False)
    assert (len(everything), int(np.sum(everything.labels < 0))) == (24, 3)
    with pytest.raises(ValueError, match=r"3 images are without a label, such as p003\.png"):
        everything.arrays()


def test_folders_are_classes(tmp_path):
    for name in ("cats", "dogs"):
        write_pictures(tmp_path / name, 4)
    write_pictures(tmp_path, 1)
    images = load_images(tmp_path)
    assert images.classes == ("cats", "dogs")
    assert [
        images.classes[label] == name.split("/")[0] for name, label in zip(images.names, images.labels, strict=True)
    ]
    assert images.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert any("1 image is in no folder of a class and left out: p000.png" in note for note in images.notes)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("p001.png", "a"), ("p001.png", "b")], r"line 3 says that p001\.png is 'b', line 2 that it is 'a'"),
        ([("q.png", "a"), ("r.png", "b")], "no column names images that are there"),
        ([("p001.png", "a", "1"), ("p002.png", "b", "2")], r"several columns may be the labels \(b, c\): say which"),
        ([("p001.png",), ("p002.png",)], "must have a column of names of files and one of labels"),
        ([("p001.png", "a"), ("p002.png",)], "line 3 has 1 cells"),
    ],
    ids=["twice", "others", "three-columns", "one-column", "ragged"],
)
def test_tables_that_say_nothing_or_two_things_are_refused(folder, rows, says):
    pictures, table, _ = folder
    table.write_text("\n".join(",".join(row) for row in [("a", "b", "c")[: len(rows[0])], *rows]) + "\n")
    with pytest.raises(FileError, match=says):
        load_images(pictures, table)


def test_a_column_of_labels_can_be_named(folder):
    pictures, table, labels = folder
    lines = ["file,who,kind", *(f"{name},anna,{label}" for name, label in labels.items())]
    table.write_text("\n".join(lines))
    assert load_images(pictures, table, label="kind").classes == ("bottom", "top")
    with pytest.raises(FileError, match="has no column 'colour', only file, who, kind"):
        load_images(pictures, table, label="colour")


def test_a_name_in_two_folders_needs_its_folder(tmp_path):
    for name in ("a", "b"):
        write_pictures(tmp_path / "in" / name, 2)
    labels = {f"{place}/p00{i}.png": f"{place}{i}" for place in "ab" for i in range(2)}
    images = load_images(tmp_path / "in", write_labels(tmp_path / "labels.csv", labels))
    assert [images.classes[label] for label in images.labels] == ["a0", "a1", "b0", "b1"]
    write_labels(tmp_path / "labels.csv", {"p000.png": "x", "b/p001.png": "y"})
    with pytest.raises(FileError, match=r"p000\.png is the name of several images"):
        load_images(tmp_path / "in", tmp_path / "labels.csv")


def test_images_of_several_sizes_are_resized_or_refused(folder):
    Image.fromarray(np.full((40, 20), 90, np.uint8)).save(folder[0] / "p000.png")
    with pytest.raises(ValueError, match=r"most in .* have 12 x 10 pixels, 1 have not: p000\.png"):
        load_images(*folder[:2])
    images = load_images(*folder[:2], size=(6, 5))
    assert images.pixels().shape == (24, 1, 6, 5)
    assert np.ptp(images.pixels(np.array([0]))) == 0
    assert any("resized to 6 x 5" in note for note in images.notes)
    with pytest.raises(ValueError, match="size must be a number of pixels"):
        load_images(*folder[:2], size=0)


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [
        ("RGB", (10, 20, 30), (10, 20, 30)),
        ("RGBA", (10, 20, 30, 0), (255, 255, 255)),
        ("P", 7, None),
        ("LA", (100, 255), (100, 100, 100)),
        ("1", 1, (255, 255, 255)),
        ("I;16", 2**15, (128, 128, 128)),
    ],
)
def test_kinds_of_pictures_become_eight_bits(tmp_path, mode, value, expected):
    image = Image.new(mode, (4, 3), value)
    if mode == "P":
        image.putpalette([each for i in range(256) for each in (i, 2 * i % 256, 255 - i)])
        expected = (7, 14, 248)
    image.save(tmp_path / "a.png")
    found = load_images(tmp_path, labelled=False, colour=True).bytes()
    assert found.shape == (1, 3, 3, 4)
    assert tuple(found[0, :, 0, 0].tolist()) == expected
    grey = load_images(tmp_path, labelled=False)
    assert grey.shape[0] == (3 if mode in ("RGB", "RGBA", "P") else 1)


def test_photographs_are_turned_upright(tmp_path):
    pixels = np.zeros((8, 16), np.uint8)
    pixels[:, 8:] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned to the right
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=95, exif=exif)
    images = load_images(tmp_path, labelled=False)
    assert images.shape == (1, 16, 8)
    assert images.pixels()[0, 0, :8].max() < 0.1
    assert images.pixels()[0, 0, 8:].min() > 0.9


def bomb(height, width):
    """A PNG that says that it is large, of a few bytes."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def check_bombs_are_refused_by_name(folder):
    for size in ((9000, 9000), (2**31 - 1, 2**31 - 1)):
        (folder[0] / "p004.png").write_bytes(bomb(*size))
        with pytest.raises(FileError, match=r"p004\.png: says that it has .* pixels.* and was not decoded"):
            load_images(*folder[:2], size=10)


def test_bombs_are_refused_by_name(folder):
    check_bombs_are_refused_by_name(folder)
    with pytest.raises(FileError, match="more than 100, and was not decoded"):
        load_images(*folder[:2], max_pixels=100)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"GIF89a" + 20 * b"\0", b"\x80\x04cos\nsystem\n(S'true'\ntR.", b"\x89PNG\r\n\x1a\n" + 30 * b"\0"],
    ids=["empty", "text", "gif", "pickle", "png-head"],
)
def test_what_is_no_picture_is_refused_by_name(folder, content):
    (folder[0] / "p004.png").write_bytes(content)
    with pytest.raises(FileError, match=r"1 image is not usable: p004\.png: neither a PNG nor a JPEG"):
        load_images(*folder[:2])


def test_a_cut_picture_is_named_when_it_is_decoded(folder):
    content = (folder[0] / "p004.png").read_bytes()
    (folder[0] / "p004.png").write_bytes(content[: len(content) // 2])
    images = load_images(*folder[:2])
    with pytest.raises(FileError, match=r"p004\.png: a damaged picture"):
        images.pixels()


def test_files_that_are_missing_or_have_changed_are_named(folder):
    images = load_images(*folder[:2])
    Image.new("L", (10, 12)).save(folder[0] / "p002.png")
    with pytest.raises(FileError, match=r"p002\.png has changed since it was looked at"):
        images.pixels()
    (folder[0] / "p002.png").unlink()
    with pytest.raises(FileError, match=r"p002\.png: no such file"):
        images.pixels()
    with pytest.raises(FileError, match="no such folder"):
        load_images(folder[0] / "none")
    (folder[0].parent / "void").mkdir()
    with pytest.raises(FileError, match="holds no image"):
        load_images(folder[0].parent / "void")


def check_batches_are_those_of_arrays_in_memory(folder, **options):
    images = load_images(*folder[:2])
    source = mx.data.ImageFiles(images, batch_size=5, **options)
    inside = mx.data.Minibatches(images.arrays(), batch_size=5)
    for step in (0, 1, 2, 3, 9, 2, 40):
        for seed in (3, 3, 4):
            here, there = source.batch(step, key=jax.random.key(seed)), inside.batch(step, key=jax.random.key(seed))
            np.testing.assert_array_equal(np.asarray(here.index), np.asarray(there.index))
            np.testing.assert_allclose(np.asarray(here.x), np.asarray(there.x), atol=1e-6)
            np.testing.assert_array_equal(np.asarray(here.y), np.asarray(there.y))


@pytest.mark.parametrize("memory", [1200, 2000, 2**20], ids=["two-batches", "some", "all"])
def test_batches_are_those_of_arrays_in_memory(folder, memory):
    check_batches_are_those_of_arrays_in_memory(folder, memory=memory)


def test_decoded_images_stay_within_their_memory(folder):
    images, size = load_images(*folder[:2]), 12 * 10
    for memory in (10 * size, 17 * size, 1000 * size):
        reader = image_files._Reader(images, 5, memory)
        for step in range(12):
            reader.batch(step, jax.random.key(0))
        waiting = sum(len(rows) for rows, _ in reader.pending.values())
        assert reader.kept.size + size * (waiting + 5) <= max(memory, 10 * size) + 5 * size
        assert reader.is_kept.sum() == min(reader.num_kept, 24)
    with pytest.raises(ValueError, match="memory must hold two batches, 1,200 bytes, got 1000"):
        mx.data.ImageFiles(images, batch_size=5, memory=1000)


def test_images_in_memory_are_decoded_once(folder, monkeypatch):
    images, count = load_images(*folder[:2]), []
    decode = type(images).decode
    monkeypatch.setattr(type(images), "decode", lambda self, row, names: count.append(row) or decode(self, row, names))
    reader = image_files._Reader(images, 24, 2**20)
    for step in range(20):
        reader.batch(step, jax.random.key(1))
        for _, future in reader.pending.values():
            future.result()
    assert len(count) <= 24 * (reader.pool._max_workers + 1)  # threads may both find it missing


class PressCtrlC(AbstractHook):
    def after_chunk(self, memory, event):
        if event.step >= 20:
            os.kill(os.getpid(), signal.SIGINT)
        return Verdict(memory, event.states)


def test_a_network_learns_as_from_arrays_in_files_and_goes_on_after_an_interrupt(folder, tmp_path):
    images = load_images(*folder[:2])
    source = mx.data.ImageFiles(images, batch_size=8)
    np.save(tmp_path / "x.npy", images.pixels())
    np.save(tmp_path / "y.npy", images.labels)
    mapped = mx.data.MappedFiles(tmp_path / "x.npy", tmp_path / "y.npy", batch_size=8, scaling=source.scaling)
    model = mx.Model(mx.nets.LeNet((1, 12, 10), (4,), 8, 2, key=0), mx.likelihoods.Categorical())
    method = mx.infer.MAP(num_epochs=20, batch_size=8)
    whole = mx.fit(model, source, method, key=0, progress=False)
    other = mx.fit(model, mapped, method, key=0, progress=False)
    x = images.pixels()
    assert np.mean(whole.predict(x).labels == images.labels) == 1
    np.testing.assert_allclose(whole.predict(x).probs, other.predict(x).probs, atol=1e-5)
    part = mx.fit(model, source, method, key=0, directory=tmp_path / "run", hooks=[PressCtrlC()], chunk_size=10)
    assert not part.record.finished
    again = mx.resume(tmp_path / "run", hooks=[])
    np.testing.assert_array_equal(again.predict(x).probs, whole.predict(x).probs)


def test_pillow_is_an_extra(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=r"PIL is not installed: pip install 'marginax\[images\]'"):
        require("PIL.Image")

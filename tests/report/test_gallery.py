"""Images in reports: the most uncertain ones first, the wrong ones by their confidence, pixels as they are."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

import marginax as mx
from marginax.report import Bitmap, Gallery, write_report


@pytest.fixture(scope="module")
def told():
    """Images whose mean tells the class, some of them hard; labels of which a few are wrong."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(60, 1)) * np.ones((1, 36)) + rng.uniform(-0.2, 0.2, size=(60, 36))
    x = np.clip(x, 0, 1).reshape(60, 1, 6, 6).astype(np.float32)
    y = (x.mean(axis=(1, 2, 3)) > 0.5).astype(int)
    y[:3] = 1 - y[:3]
    net = mx.nets.LeNet((1, 6, 6), (2,), 8, 2, key=0)
    model = mx.Model(net, mx.likelihoods.Categorical())
    method = mx.infer.DeepEnsemble(2, member=mx.infer.MAP(num_epochs=40, batch_size=20))
    posterior = mx.fit(model, mx.data.standardise((x[20:], y[20:])), method, key=0, progress=False)
    return posterior, x[:20], y[:20]


@pytest.fixture(scope="module")
def page(told, tmp_path_factory):
    posterior, x, y = told
    names = [f"image-{i}.png" for i in range(20)]
    path = tmp_path_factory.mktemp("gallery") / "report.html"
    write_report(path, posterior=posterior, x=x, y=y, classes=("dark", "bright"), row_names=names)
    return path.read_text(encoding="utf-8")


def shown_in(page):
    """Name, what was said and pixels of each picture, gallery by gallery."""
    galleries = page.split('<div class="gallery">')[1:]
    pattern = r'<img alt="image-(\d+)\.png: predicted (.*?)" src="data:image/png;base64,([\w+/=]+)"'
    return [re.findall(pattern, gallery.split("</figure></div>")[0]) for gallery in galleries]


def test_the_most_uncertain_images_come_first(told, page):
    posterior, x, _ = told
    order = np.argsort(-posterior.predict(x).entropy, kind="stable")[:12]
    assert [int(name) for name, *_ in shown_in(page)[0]] == order.tolist()


def test_wrong_answers_come_by_their_confidence(told, page):
    posterior, x, y = told
    prediction = posterior.predict(x)
    wrong = np.flatnonzero((prediction.labels != y) & (prediction.confidence > 0.5))
    assert len(wrong) >= 2
    wrong = wrong[np.argsort(-prediction.confidence[wrong], kind="stable")][:12]
    found = shown_in(page)[1]
    assert [int(name) for name, *_ in found] == wrong.tolist()
    names = ("dark", "bright")
    said = [f"{names[prediction.labels[i]]} ({prediction.confidence[i]:.0%}), is {names[y[i]]}" for i in wrong]
    assert [text for _, text, _ in found] == said


def test_pictures_have_the_pixels_of_the_images(told, page):
    name, _, content = shown_in(page)[0][0]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
    assert pixels.shape == (96, 96)
    np.testing.assert_array_equal(pixels[::16, ::16], np.round(255 * told[1][int(name), 0]).astype(np.uint8))


def test_row_names_are_one_for_each_row(told, tmp_path):
    posterior, x, y = told
    with pytest.raises(ValueError, match="row_names must have 20 entries, one per held-out row, got 3"):
        write_report(tmp_path / "report.html", posterior=posterior, x=x, y=y, row_names=["a", "b", "c"])


def test_captions_are_escaped_and_keep_their_lines():
    html = Gallery((Bitmap(b"png", "a", "1 < 2\nb"),)).html()
    assert "<figcaption>1 &lt; 2<br>b</figcaption>" in html

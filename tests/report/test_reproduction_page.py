"""The page of published results that were run again, in a browser."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from tests.report.browser import Browser, find_browser

from marginax.report import Bitmap, Section, page, write_reproductions
from marginax.reproduce import Record

RECORDS = Path(__file__).resolve().parents[2] / "docs" / "reproductions"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine")
    return Browser(program, tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two records that are kept with the documentation."""
    folders = [RECORDS / name for name in ("gal-rotated-one-small", "segmentation-small")]
    records = {folder: record for folder in folders if (record := Record.read(folder)) is not None}
    assert len(records) == len(folders)
    return write_reproductions(tmp_path_factory.mktemp("page") / "page.html", records, title="Run again")


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_and_fetch_nothing(browser, written, width):
    seen = browser.measure(written, width=width)
    assert seen["scroll_width"] <= seen["width"]
    assert seen["cut"] == []
    assert seen["scripts"] == 0
    assert [name for name in seen["fetched"] if not name.startswith("data:")] == []


def test_the_browser_lets_the_picture_be(browser, written):
    assert browser.console(written) == []


def test_the_picture_is_seen(browser, tmp_path):
    plt.imsave(tmp_path / "red.png", np.tile([1.0, 0.0, 0.0], (40, 80, 1)))
    path = tmp_path / "page.html"
    block = Bitmap((tmp_path / "red.png").read_bytes(), "all is red")
    path.write_text(page("Red", [Section("Picture", (block,))]), encoding="utf-8")
    shown = browser.screenshot(path, tmp_path / "shown.png", width=800, height=900)
    assert np.mean(np.all(np.abs(shown - [1.0, 0.0, 0.0]) < 0.1, axis=-1)) > 0.2

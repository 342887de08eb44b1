"""The page without a server: it plays what was recorded."""

import contextlib
import functools
import json
import runpy
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.playground.conftest import asking

from marginax.playground.labs import PLAYABLE
from marginax.playground.record import record

PAGE = Path(__file__).resolve().parents[2] / "src" / "marginax" / "playground" / "page"
pytestmark = pytest.mark.slow


def test_a_recording_runs_without_a_server(tmp_path, visitor):
    runs = [("variational", {"example": "coin"}), ("variational", {"example": "coin", "heads": 5.0})]
    with recorded(tmp_path, runs) as site:
        page = visitor(site)
        page.locator("#status", has_text="recorded").wait_for()
        before = page.inner_text("#reading")
        assert page.locator("#set-a-heads").is_enabled()
        assert page.locator("#set-a-tails").is_disabled()
        with asking(page):
            page.locator("#set-a-heads").fill("150")
        page.locator("#status", has_text="recorded").wait_for()
        assert page.inner_text("#reading") != before
        page.click("#python")
        page.locator("#code-text", has_text="import marginax").wait_for()


def test_a_recording_shows_side_by_side_only_what_was_recorded(tmp_path, visitor):
    walk = {"sampler": "MetropolisHastings", "steps": 25}
    runs = [
        ("samplers", {"steps": 25}),
        ("samplers", walk),
        ("samplers", {**walk, "sampler": "MALA", "target": "ring"}),
    ]
    with recorded(tmp_path, runs) as site:
        page = visitor(site + "#samplers?b.sampler=MALA")
        page.locator("#status", has_text="Metropolis-Hastings: recorded").wait_for()
        said = page.locator("#reading h2").all_inner_texts()
        assert [words.split(":")[0] for words in said] == ["HMC"] * 3 + ["Metropolis-Hastings"] * 3
        assert "densities" in page.locator("#reading > div:nth-child(5)").inner_text()
        with asking(page):
            page.select_option("#set-a-target", "ring")
        page.locator("#status", has_text="recorded").wait_for()
        assert page.locator("#compare").is_disabled()
        assert page.locator("#picture figure b", has_text="MALA").count() == 1


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """What the documentation has of the playground."""
    folder = tmp_path_factory.mktemp("site")
    hook = runpy.run_path(str(PAGE.parents[3] / "docs" / "recorded_playground.py"))["on_post_build"]
    hook(config={"site_dir": str(folder)})
    return folder / "assets" / "playground" / "recorded.html"


@pytest.mark.parametrize("lab", ["functions", "boundaries", "samplers", "variational"])
def test_the_recording_of_the_site_plays_from_a_folder_of_files(site, visitor, lab):
    page = visitor(f"{site.as_uri()}#{lab}")
    page.locator("#status", has_text="recorded").wait_for()
    assert page.locator("#reading strong").count() > 0
    assert page.locator("#about a").get_attribute("href").startswith("../../")
    page.click("#python")
    page.locator("#code-text", has_text="import marginax").wait_for()


@contextlib.contextmanager
def recorded(folder, runs):
    """The page beside a recording, and a server that knows files only."""
    (folder / "page").mkdir()
    for path in PAGE.iterdir():
        (folder / "page" / path.name).write_bytes(path.read_bytes())
    (folder / "index.html").write_bytes((PAGE / "index.html").read_bytes())
    (folder / "page" / "recording.json").write_text(json.dumps(record(PLAYABLE, runs)))
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

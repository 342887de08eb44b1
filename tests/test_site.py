"""The documentation as a reader without network sees it: every page, opened in Chromium.

`MARGINAX_CHROMIUM` names a browser that is not on the path.
"""

import functools
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.report.browser import Browser, find_browser

ROOT = Path(__file__).resolve().parent.parent
WALK = ROOT / "tests" / "files" / "walk.html"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def visit(tmp_path_factory):
    """What a browser saw of the built site: pages by address, the console, files that were missing."""
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine")
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install -r requirements-docs.txt")
    site = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    subprocess.run(build, cwd=ROOT, check=True)
    addresses = ["/" + page.parent.relative_to(site).as_posix() + "/" for page in site.rglob("index.html")]
    addresses = sorted(address.replace("/./", "/") for address in addresses)
    (site / "walk.html").write_text(WALK.read_text(encoding="utf-8").replace("ADDRESSES", json.dumps(addresses)))
    browser = Browser(program, tmp_path_factory.mktemp("browser"))
    with _served(site) as server:
        console = browser.open(f"http://127.0.0.1:{server.server_port}/walk.html", until=server.done, seconds=180)
    assert sorted(server.seen["pages"]) == addresses
    return {**server.seen, "console": console, "missing": server.missing}


def test_nothing_is_missing_and_nobody_complains(visit):
    assert visit["missing"] == []
    assert visit["console"] == []


def test_nothing_is_asked_of_other_hosts(visit):
    assert _found(visit, "foreign") == {}


def test_formulas_are_set(visit):
    assert _found(visit, "unset") == {}
    assert sum(page["formulas"] for page in visit["pages"].values()) > 100
    assert visit["pages"]["/course/07-laplace/"]["formulas"] > 0
    assert visit["pages"]["/reference/model/"]["formulas"] > 0


def test_code_fits_the_column(visit):
    assert _found(visit, "wide_code") == {}


def test_nothing_is_cut_off_on_a_phone(visit):
    assert _found(visit, "cut_off") == {}


def test_pictures_load_and_say_what_they_show(visit):
    assert _found(visit, "bad_pictures") == {}


def test_dark_is_one_click_away(visit):
    assert visit["schemes"] == ["default", "slate", "default"]


def test_search_finds_pages(visit):
    assert "/course/07-laplace/" in visit["search"]


def test_pages_of_the_course_lead_on(visit):
    assert visit["pages"]["/course/02-map/"]["neighbours"] == ["/course/01-basis-functions/", "/course/03-sgld/"]


def _found(visit: dict, what: str) -> dict[str, list[str]]:
    return {address: page[what] for address, page in visit["pages"].items() if page[what]}


class _Server(ThreadingHTTPServer):
    """Serves the site, notes what it does not have, and is told what was seen."""

    def __init__(self, site: Path):
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(site)))
        self.done, self.seen, self.missing = threading.Event(), {}, []


class _Handler(SimpleHTTPRequestHandler):
    server: _Server

    def do_POST(self):
        self.server.seen = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.done.set()

    def send_error(self, code, message=None, explain=None):
        self.server.missing.append(f"{code} {self.path}")
        super().send_error(code, message, explain)

    def log_message(self, *args):
        pass


@contextmanager
def _served(site: Path) -> Iterator[_Server]:
    with _Server(site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

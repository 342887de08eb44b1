"""A server of fake labs, in a thread, and a page that talks to it."""

import asyncio
import contextlib
import json
import re
import sys
import threading
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
websockets = pytest.importorskip("websockets")

from tests.playground.fake_worker import PLAYABLE  # noqa: E402
from tests.report.browser import find_browser  # noqa: E402

from marginax.playground.labs import PLAYABLE as LABS  # noqa: E402
from marginax.playground.server import Door, make_app  # noqa: E402
from marginax.playground.serving import listening_socket, server_of  # noqa: E402
from marginax.playground.slots import COMMAND, Slot  # noqa: E402

PATIENCE = 240_000  # milliseconds: compilations on a machine that is busy
FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


@contextlib.contextmanager
def serving(*, playable=PLAYABLE, command=FAKE, patience=1.0, **more):
    """A server in a thread; gives its door and its slots."""
    listening = listening_socket("127.0.0.1", 0)
    door = Door(listening.getsockname()[1])
    slots = [Slot(command, patience=patience, **more) for _ in range(2)]
    server = server_of(make_app(door, playable=playable, slots=slots))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield door, slots
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def served():
    with serving() as found:
        yield found


class Page:
    """The page's side of a websocket."""

    def __init__(self, connection):
        self.connection = connection
        self.num = 0

    async def say(self, **message):
        await self.connection.send(json.dumps(message))

    async def run(self, slot="a", lab="fake", **settings):
        """Ask for a run; gives its id."""
        self.num += 1
        await self.say(type="run", id=self.num, slot=slot, lab=lab, settings=settings)
        return self.num

    async def hear(self, seconds=60):
        return json.loads(await asyncio.wait_for(self.connection.recv(), seconds))

    async def until(self, *kinds, id=None, seconds=60):
        """Messages until one of these kinds, of a run if an id is given."""
        heard = []
        while True:
            heard.append(await self.hear(seconds))
            if heard[-1]["type"] in kinds and (id is None or heard[-1]["id"] == id):
                return heard


@contextlib.asynccontextmanager
async def opened(door, *, token=None, origin=None, host=None):
    """A page, by default an honest one."""
    at = f"127.0.0.1:{door.port}"
    address = f"ws://{at}/ws?token={door.token if token is None else token}"
    headers = {} if host is None else {"Host": host}
    async with websockets.connect(
        address, origin=f"http://{at}" if origin is None else origin, additional_headers=headers, max_size=2**25
    ) as connection:
        page = Page(connection)
        assert (await page.hear())["type"] == "ready"
        yield page


# ---- the page in a browser


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = started.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address():
    with serving(playable=LABS, command=COMMAND, patience=60.0) as (door, _):
        yield door.address


@pytest.fixture
def visitor(chromium):
    """Opens pages, and in the end asks whether the console was quiet."""
    contexts, said = [], []

    def visit(address, *, width=1280, height=800, scheme="light"):
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert said == []


def finish(page):
    """Until what was asked for is computed."""
    page.locator("#status", has_text="done in").wait_for()
    page.locator("body[data-running='0']").wait_for()
    assert page.locator("#error").is_hidden(), page.inner_text("#error")


def again(page, act):
    """Do something that asks for another run, and wait for its end."""
    with asking(page):
        act()
    finish(page)


@contextlib.contextmanager
def asking(page):
    """Until the page has asked the server for a run."""
    before = int(page.get_attribute("body", "data-asked") or 0)
    yield
    for _ in range(600):
        if int(page.get_attribute("body", "data-asked") or 0) > before:
            return
        page.wait_for_timeout(20)
    raise AssertionError("the page did not ask for a run")


def link_of(page):
    return unquote(urlsplit(page.url).fragment)


def points_in(page):
    found = re.search(r"points=([^&]*)", link_of(page))
    return [[float(x) for x in each.split(",")] for each in found[1].split(";") if each] if found else None

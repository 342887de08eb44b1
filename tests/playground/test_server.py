"""Who may talk to the server, and what it does with what it is told: attacks are refused, and the page still works."""

import asyncio
import contextlib
import http.client
import json

import pytest
from tests.playground.conftest import opened
from websockets.exceptions import ConnectionClosed, InvalidStatus

from marginax.playground.protocol import MAX_MESSAGE_BYTES
from marginax.playground.server import MAX_SOCKETS
from marginax.playground.serving import listening_socket


def ask(door, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


async def still_works(door):
    """A run comes to its end."""
    async with opened(door) as page:
        number = await page.run(num=2)
        heard = await page.until("done", "error", id=number)
        assert heard[-1]["type"] == "done"


def test_a_run_is_started_shown_and_done(served):
    async def use():
        async with opened(served[0]) as page:
            number = await page.run(num=3)
            return await page.until("done", id=number)

    heard = asyncio.run(use())
    assert [message["type"] for message in heard] == ["started", "state", "state", "state", "done"]
    assert [message["data"]["values"] for message in heard[1:4]] == [[0], [1], [2]]
    assert heard[0]["settings"] == {"do": "count", "num": 3, "size": 1, "seconds": 0.0}
    assert heard[-1]["numbers"] == {"last": 2, "unknown": None}


def test_labs_and_python_are_given_to_who_knows_the_token(served):
    door, _ = served
    status, headers, body = ask(door, f"/labs.json?token={door.token}")
    assert status == 200
    assert json.loads(body)["labs"][0]["name"] == "fake"
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"

    async def use():
        async with opened(door) as page:
            await page.say(type="python", id=3, lab="fake", settings={"num": 4})
            return await page.hear()

    assert asyncio.run(use()) == {"type": "python", "id": 3, "code": "numbers = {'last': 3}\n"}


@pytest.mark.parametrize("path", ["/", "/labs.json", "/?token=wrong", "/labs.json?token=", "/labs.json?token=%C3%A9"])
def test_without_the_token_nothing_is_given_out(served, path):
    assert ask(served[0], path)[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""])
def test_another_host_is_refused(served, host):
    door, _ = served
    assert ask(door, f"/labs.json?token={door.token}", Host=host)[0] in (400, 403)


@pytest.mark.parametrize("path", ["/page/../server.py", "/page/%2e%2e/server.py", "/page//etc/passwd", "/../../x"])
def test_no_file_outside_of_the_page_is_given_out(served, path):
    assert ask(served[0], path)[0] in (403, 404)


@pytest.mark.parametrize(
    "attack",
    [
        {"token": ""},
        {"token": "wrong"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "https://127.0.0.1:1"},
        {"host": "evil.example"},
    ],
    ids=str,
)
def test_a_websocket_of_somebody_else_is_refused(served, attack):
    async def use():
        with pytest.raises(InvalidStatus) as refused:
            async with opened(served[0], **attack):
                pass
        assert refused.value.response.status_code in (400, 403)  # 400: two hosts
        await still_works(served[0])

    asyncio.run(use())


MALFORMED = [
    "",
    "{",
    "[]",
    "null",
    "3",
    '"run"',
    "[" * 50_000,
    '{"type": "run", "id": NaN}',
    '{"type": "run", "id": 1, "slot": "a", "lab": "fake", "settings": {"num": 1' + "0" * 400 + "}}",
    '{"type": "eval", "code": "1"}',
    '{"type": "run", "id": 1, "slot": "c", "lab": "fake", "settings": {}}',
    '{"type": "run", "id": -1, "slot": "a", "lab": "fake", "settings": {}}',
    '{"type": "run", "id": 1, "slot": "a", "lab": "__init__", "settings": {}}',
    '{"type": "run", "id": 1, "slot": "a", "lab": ["fake"], "settings": {}}',
    '{"type": "run", "id": 1, "slot": "a", "lab": "fake", "settings": []}',
    '{"type": "run", "id": 1, "slot": "a", "lab": "fake", "settings": {"num": 1e9}}',
    '{"type": "run", "id": 1, "slot": "a", "lab": "fake", "settings": {"__class__": 1}}',
    '{"type": "run", "id": 1, "slot": {}, "lab": "fake"}',
    '{"type": "cancel", "slot": []}',
    '{"type": {"a": 1}}',
]


def test_malformed_messages_are_answered_by_errors_on_the_same_socket(served):
    async def use():
        async with opened(served[0]) as page:
            for text in MALFORMED:
                await page.connection.send(text)
                found = await page.hear()
                assert found["type"] == "error", text
                assert len(found["message"]) < 400
            await page.connection.send(b"\x00\xff")
            assert (await page.hear())["type"] == "error"
            number = await page.run(num=2)
            assert (await page.until("done", id=number))[-1]["numbers"]["last"] == 1

    asyncio.run(use())


def test_whatever_the_server_trips_over_is_told_on_the_same_socket(served, capfd):
    async def use():
        async with opened(served[0]) as page:
            number = await page.run(do="trip")
            assert (await page.hear())["message"] == "OSError: the server itself trips over this"
            await page.say(type="python", id=5, lab="fake", settings={"do": "fail"})
            told = await page.hear()
            assert (told["id"], told["message"]) == (5, "there are no data: fetch them")
            number = await page.run(num=2)
            assert (await page.until("done", id=number))[-1]["type"] == "done"

    asyncio.run(use())
    assert "trips over this" in capfd.readouterr().err


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES + 1, 10 * 2**20])
def test_a_huge_message_ends_its_socket_alone(served, size):
    async def use():
        async with opened(served[0]) as other, opened(served[0]) as page:
            with contextlib.suppress(ConnectionClosed):  # it may be refused before all of it is sent
                await page.connection.send("x" * size)
            with pytest.raises(ConnectionClosed):
                await page.hear()
            number = await other.run(num=2)
            assert (await other.until("done", id=number))[-1]["type"] == "done"

    asyncio.run(use())


def test_a_hundred_sockets_are_bounded_and_the_first_still_works(served):
    door, _ = served

    async def attack():
        refused = 0
        async with contextlib.AsyncExitStack() as stack, opened(door) as first:
            for _ in range(100):
                try:
                    await stack.enter_async_context(opened(door))
                except (AssertionError, ConnectionClosed, InvalidStatus):
                    refused += 1
            number = await first.run(num=2)
            assert (await first.until("done", id=number))[-1]["type"] == "done"
        return refused

    assert asyncio.run(attack()) == 101 - MAX_SOCKETS
    asyncio.run(still_works(door))


def test_a_page_that_does_not_read_holds_nobody_up(served):
    door, _ = served

    async def use():
        async with opened(door) as lazy:
            await lazy.run(num=100_000, size=100_000)
            await asyncio.sleep(2.0)
            await still_works(door)

    asyncio.run(use())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_only_loopback_addresses_are_listened_on(host):
    with pytest.raises(ValueError, match="loopback"):
        listening_socket(host, 0)


def test_a_port_that_is_taken_is_named():
    with listening_socket("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port}"):
            listening_socket("127.0.0.1", port)

"""Start the server and show the address of the page."""

import asyncio
import contextlib
import ipaddress
import socket
import webbrowser
from collections.abc import Callable
from typing import Any

from marginax._extras import require
from marginax.playground.protocol import MAX_MESSAGE_BYTES, SLOTS

_LONGEST_START = 60.0  # seconds, after which the address is said all the same


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free.

    Args:
        host: a loopback address, such as 127.0.0.1.
        port: to listen on.
    """
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ValueError(f"host must be a loopback address such as 127.0.0.1, got {host!r}") from None
    if not address.is_loopback:
        raise ValueError(f"host must be a loopback address such as 127.0.0.1, got {host}: others could read along")
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((str(address), port))
    except OSError as error:
        found.close()
        raise ValueError(
            f"port {port} of {host} cannot be used ({error.strerror}): choose another, or 0 for any"
        ) from None
    return found


def server_of(app: Any) -> Any:
    """A uvicorn server of the application, with bounds on what it takes."""
    uvicorn = require("uvicorn")
    require("websockets")
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # addresses have the token
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE_BYTES,
        limit_concurrency=1000,  # connections that say nothing are not closed, and keep nobody out
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    return uvicorn.Server(config)


def serve(listening: socket.socket, *, browser: bool = True, say: Callable[[str], None] = print) -> None:
    """Serve the playground until Ctrl-C.

    Args:
        listening: a socket on a loopback address, from `listening_socket`.
        browser: whether to open the page in the browser.
        say: is told the address of the page.
    """
    require("starlette")
    from marginax.playground.server import Door, make_app
    from marginax.playground.slots import Slot

    address, bound = listening.getsockname()[:2]
    door = Door(bound, address)
    slots = [Slot() for _ in SLOTS]
    server = server_of(make_app(door, slots=slots))

    async def announce() -> None:
        while not server.started:
            await asyncio.sleep(0.02)
        await asyncio.gather(*(slot.wait_until_ready(_LONGEST_START) for slot in slots))
        say(door.address)  # a page that is opened now has its first picture at once
        if browser:
            await asyncio.to_thread(webbrowser.open, door.address)

    async def run() -> None:
        telling = asyncio.create_task(announce())
        try:
            await server.serve(sockets=[listening])
        finally:
            telling.cancel()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())

"""The server: the page, its files, and a websocket; on loopback, for those who know the token.

Nothing that comes from the page is evaluated: it chooses among labs and settings, and those are checked.
"""

import asyncio
import json
import secrets
import sys
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from marginax.playground.labs import PLAYABLE
from marginax.playground.playable import Playable, told
from marginax.playground.protocol import MAX_MESSAGE_BYTES, SLOTS, ProtocolError
from marginax.playground.slots import Slot, Ticket

PAGE = Path(__file__).parent / "page"
MAX_SOCKETS = 8
_MAX_WAITING = 16  # messages that a page has not taken yet
_MAX_ID = 2**53


@dataclass(frozen=True)
class Door:
    """Where the server listens, and who may come in.

    Args:
        port: it listens on.
        host: a loopback address.
        token: in the address of the page.
    """

    port: int
    host: str = "127.0.0.1"
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a `Host` may be."""
        named = f"[{self.host}]" if ":" in self.host else self.host
        names = ("127.0.0.1", "localhost", "[::1]") if self.host in ("127.0.0.1", "::1") else (named,)
        return tuple(f"{name}:{self.port}" for name in names)

    @property
    def address(self) -> str:
        """Of the page."""
        named = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{named}:{self.port}/?token={self.token}"

    def knows(self, token: str | None) -> bool:
        """Whether somebody has the token."""
        return secrets.compare_digest((token or "").encode(), self.token.encode())


def make_app(
    door: Door,
    *,
    playable: Mapping[str, Playable] = PLAYABLE,
    slots: Sequence[Slot] | None = None,
    max_sockets: int = MAX_SOCKETS,
) -> ASGIApp:
    """The application.

    Args:
        door: where it listens.
        playable: labs by name.
        slots: that compute, one for each name of a slot; by default with workers of their own.
        max_sockets: pages that may be open at a time.
    """
    from marginax import __version__

    own: dict[str, Slot] = dict(zip(SLOTS, slots or [Slot() for _ in SLOTS], strict=True))
    sessions: set[Session] = set()

    def page(request: Request) -> Response:
        if not door.knows(request.query_params.get("token")):
            return PlainTextResponse("The address of the page has a token, which this one has not.", 403)
        if not (PAGE / "index.html").is_file():
            return PlainTextResponse("The page is not part of this installation.", 404)
        return FileResponse(PAGE / "index.html")

    def labs(request: Request) -> Response:
        if not door.knows(request.query_params.get("token")):
            return PlainTextResponse("The address has no token, or another one.", 403)
        return JSONResponse({"version": __version__, "labs": [p.lab.described() for p in playable.values()]})

    async def socket(websocket: WebSocket) -> None:
        own_page = websocket.headers.get("origin") in [f"http://{host}" for host in door.hosts]
        if not own_page or not door.knows(websocket.query_params.get("token")):
            await websocket.close(1008)
            return
        await websocket.accept()
        if len(sessions) >= max_sockets:
            await websocket.send_json(_error(None, None, f"{max_sockets} pages are open already: close one of them"))
            await websocket.close(1013)
            return
        session = Session(websocket, own, playable)
        sessions.add(session)
        try:
            await session.serve(__version__)
        finally:
            sessions.discard(session)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await asyncio.gather(*(slot.start() for slot in own.values()))
        yield
        await asyncio.gather(*(slot.close() for slot in own.values()))

    routes = [Route("/", page), Route("/labs.json", labs), WebSocketRoute("/ws", socket)]
    if PAGE.is_dir():
        routes.append(Mount("/page", StaticFiles(directory=PAGE)))  # type: ignore[arg-type]
    return _Guard(Starlette(routes=routes, lifespan=lifespan), door)


@dataclass(frozen=True)
class _Guard:
    """Refuses other hosts, and tells browsers what the page may do."""

    app: ASGIApp
    door: Door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self.door.hosts:
            if scope["type"] == "http":
                await PlainTextResponse("Another host was asked for.", 403)(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_headers(self.door)]
            await send(message)

        await self.app(scope, receive, with_headers)


def _headers(door: Door) -> list[tuple[bytes, bytes]]:
    named = (host for host in door.hosts if "[" not in host)  # browsers take no such address here: 'self' is the one
    sockets = " ".join(f"ws://{host}" for host in named)
    policy = (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        f"connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    values = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }
    return [(name.encode(), value.encode()) for name, value in values.items()]


class Session:
    """A page that is open: what it says, and what it is told."""

    def __init__(self, websocket: WebSocket, slots: Mapping[str, Slot], playable: Mapping[str, Playable]):
        self._websocket, self._slots, self._playable = websocket, slots, playable
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._room, self._gone = asyncio.Event(), False
        self._room.set()

    async def serve(self, version: str) -> None:
        """Until the page is closed."""
        self.tell({"type": "ready", "version": version})
        writer = asyncio.create_task(self._write())
        try:
            while True:
                event = await self._websocket.receive()
                if event["type"] == "websocket.receive":
                    await self._room.wait()
                await self._hear(event)
        except (WebSocketDisconnect, RuntimeError):  # the second where the connection broke while something was sent
            pass
        finally:
            writer.cancel()
            for slot in self._slots.values():
                await slot.cancel(self.tell)

    def tell(self, message: dict[str, Any]) -> None:
        """Send this in its turn."""
        if self._gone:
            return
        self._waiting.put_nowait(message)
        if self._waiting.qsize() >= _MAX_WAITING:
            self._room.clear()

    async def show(self, message: dict[str, Any]) -> None:
        """Send this when the page has taken what came before."""
        await self._room.wait()
        self.tell(message)

    async def _write(self) -> None:
        try:
            while True:
                message = await self._waiting.get()
                await self._websocket.send_text(json.dumps(message, separators=(",", ":")))
                if self._waiting.qsize() < _MAX_WAITING:
                    self._room.set()
        finally:  # the page has gone: nobody waits for it
            self._gone = True
            self._room.set()

    async def _hear(self, event: Message) -> None:
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event.get("code", 1005))
        message: Any = {}
        try:
            message = _read(event)
            await self._do(message)
        except ProtocolError as error:
            self._refuse(message, str(error))
        except Exception as error:  # of whatever kind: the page is told, and its socket stays
            traceback.print_exc(file=sys.stderr)
            self._refuse(message, told(error))

    def _refuse(self, message: Any, text: str) -> None:
        known = message if isinstance(message, dict) else {}
        number = known.get("id")
        slot = known.get("slot") if known.get("slot") in SLOTS else None
        self.tell(_error(number if _is_id(number) else None, slot, text))

    async def _do(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise ProtocolError("a message must be an object with a type")
        kind = message.get("type")
        if kind == "cancel":
            await self._slots[_slot_of(message)].cancel(self.tell)
            return
        if kind not in ("run", "python"):
            raise ProtocolError(f"type must be run, cancel or python, got {str(kind)[:60]!r}")
        number, name = _id_of(message), message.get("lab")
        if not isinstance(name, str) or name not in self._playable:
            raise ProtocolError(f"lab must be one of {', '.join(self._playable)}, got {str(name)[:60]!r}")
        playable = self._playable[name]
        slot = _slot_of(message) if kind == "run" else ""
        settings = playable.lab.complete(message.get("settings", {}))
        playable.check(settings)
        if kind == "python":
            code = await asyncio.to_thread(playable.to_python, settings)  # it may have to read data
            self.tell({"type": "python", "id": number, "code": code})
            return
        await self._slots[slot].cancel()  # whosever it is: the newest request wins
        self.tell({"type": "started", "id": number, "slot": slot, "settings": settings})
        await self._slots[slot].run(Ticket(number, slot, name, settings, self.tell, self.show))


def _read(event: Message) -> Any:
    text = event.get("text")
    if text is None:
        raise ProtocolError("a message must be text")
    if len(text) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"a message must have at most {MAX_MESSAGE_BYTES} bytes")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a message must be JSON") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _slot_of(message: dict[str, Any]) -> str:
    slot = message.get("slot")
    if slot not in SLOTS:
        raise ProtocolError(f"slot must be one of {', '.join(SLOTS)}, got {str(slot)[:60]!r}")
    return slot


def _id_of(message: dict[str, Any]) -> int:
    number: Any = message.get("id")
    if not _is_id(number):
        raise ProtocolError("id must be a whole number")
    return number


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_ID


def _error(number: int | None, slot: str | None, message: str) -> dict[str, Any]:
    return {"type": "error", "id": number, "slot": slot, "message": message}

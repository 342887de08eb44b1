"""Where runs are computed: a worker process for each slot, which is replaced when it dies or does not listen."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 10.0  # seconds in which a worker must react to a cancel: longer than most programs take to compile
MOST_MEGABYTES = 3000  # of a worker, which keeps all that it has compiled: beyond it another one takes its place
_MAX_LINE = 32 * 2**20
COMMAND = (sys.executable, "-m", "marginax.playground.worker")


@dataclass(eq=False)
class Ticket:
    """A run, and who asked for it."""

    id: int
    slot: str
    lab: str
    settings: dict[str, Any]
    tell: Callable[[dict[str, Any]], None]
    show: Callable[[dict[str, Any]], Coroutine[Any, Any, None]]  # waits until there is room
    serial: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, message: dict[str, Any]) -> None:
        """The last message of this run."""
        self.ended.set()
        self.tell({"id": self.id, "slot": self.slot, **message})


class Slot:
    """A worker and the run that it computes.

    Args:
        command: that starts a worker.
        patience: seconds that a worker has to react to a cancel before it is replaced.
        most_megabytes: of memory of a worker; one that had more is replaced when it has nothing to do.
    """

    def __init__(
        self,
        command: tuple[str, ...] = COMMAND,
        *,
        patience: float = PATIENCE,
        most_megabytes: int = MOST_MEGABYTES,
    ):
        self._command, self._patience, self._most_megabytes = command, patience, most_megabytes
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._watches: set[asyncio.Task[None]] = set()
        self._current: Ticket | None = None
        self._serial = 0  # of the last run
        self._sent = 0  # the last run that the worker was given
        self._finished = 0  # the last run that it is done with
        self._watched = 0  # the last run of which it is watched that it is left off
        self._starting = asyncio.Lock()
        self._ready = asyncio.Event()  # the worker has imported what it needs
        self._closing = self._retired = False
        self.num_replaced = 0

    async def start(self) -> None:
        """Have a worker, so that the first run need not wait for one."""
        async with self._starting:
            if self._closing or (self._process is not None and self._process.returncode is None):
                return
            self._ready.clear()
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, limit=_MAX_LINE, start_new_session=True
            )
            self._reader = asyncio.create_task(self._read(self._process))

    async def wait_until_ready(self, seconds: float) -> None:
        """Until the worker can compute, or so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), seconds)

    async def run(self, ticket: Ticket) -> None:
        """Compute this now; what was computed before is of no interest any more."""
        self._forget()
        self._serial += 1
        ticket.serial, self._current = self._serial, ticket
        await self.start()
        await self._give(ticket)

    async def cancel(self, tell: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Forget the run, if it is that of whoever asks."""
        if self._current is None or (tell is not None and self._current.tell != tell):
            return
        self._forget()
        await self._send({"type": "cancel"})
        self._watch_over()

    async def close(self) -> None:
        """End the worker."""
        self._closing = True
        self._forget()
        for task in (*self._watches, *filter(None, [self._reader])):
            task.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    @property
    def process_id(self) -> int | None:
        """Of the worker."""
        return None if self._process is None else self._process.pid

    def _forget(self) -> None:
        if self._current is not None:
            self._current.end({"type": "cancelled"})
            self._current = None

    async def _give(self, ticket: Ticket) -> None:
        if self._current is not ticket or self._sent >= ticket.serial:  # a newer one came, or it has it already
            return
        self._watch_over()
        self._sent = ticket.serial
        run = {"type": "run", "serial": ticket.serial, "lab": ticket.lab, "settings": ticket.settings}
        await self._send(run)

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it died: the reader tells
            self._process.stdin.write((json.dumps(message) + "\n").encode())
            await self._process.stdin.drain()

    def _watch_over(self) -> None:
        """See to it that the worker leaves off what nobody wants any more."""
        if self._sent > max(self._finished, self._watched):
            self._watched = self._sent
            watch = asyncio.create_task(self._replace_if_stuck(self._sent))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)

    async def _replace_if_stuck(self, serial: int) -> None:
        await self._ready.wait()  # it does not hear while it imports
        process = self._process
        await asyncio.sleep(self._patience)
        if self._finished < serial and process is not None and process.returncode is None:
            process.kill()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while (line := await process.stdout.readline()).endswith(b"\n"):  # else it was ended within a message
            message = json.loads(line)
            serial, kind = message.pop("serial", None), message["type"]
            if kind == "hello":
                self._ready.set()
            if kind == "free":
                self._finished = max(self._finished, serial)
                if message["megabytes"] > self._most_megabytes and self._current is None:
                    self._retired = True
                    process.kill()
                continue
            ticket = self._current
            if ticket is None or ticket.serial != serial:
                continue
            if kind == "state":
                await _first_of(ticket.show({"id": ticket.id, "slot": ticket.slot, **message}), ticket.ended.wait())
            else:
                self._current = None
                ticket.end(message)
        await process.wait()
        if not self._closing:
            await self._replace(process)

    async def _replace(self, process: asyncio.subprocess.Process) -> None:
        """The worker has gone: tell whose run it had, and have another one for who waits."""
        if self._process is not process:  # a run that came in between has started another one
            return
        self.num_replaced += 1
        ticket, last_of_it = self._current, self._finished + (not self._retired)
        self._retired = False
        self._finished = self._sent = self._serial
        if not self._ready.is_set():  # another one would fare no better: the next run tries again
            self._current = None
            if ticket is not None:
                text = f"no process can be started ({_how(process.returncode)}): the terminal says why"
                ticket.end({"type": "error", "message": text})
            return
        if ticket is not None and ticket.serial <= last_of_it:
            self._current = None
            text = f"the process that computed this ended ({_how(process.returncode)}): there is another one, run again"
            ticket.end({"type": "error", "message": text})
            ticket = None
        await self.start()
        if ticket is not None:
            self._finished = self._sent = ticket.serial - 1
            await self._give(ticket)


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _how(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

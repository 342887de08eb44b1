"""A process that computes: one line of JSON for each message, in and out.

It knows one run at a time. A thread listens, so that a cancel is heard while the main thread computes; where the parent
has gone, the process ends.
"""

import contextlib
import json
import math
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from marginax.playground.playable import Cancelled, Frame, Playable, Stage, as_json, told

_LEAST_SECONDS_BETWEEN_STATES = 0.03


class Worker:
    """Runs what it is told to; the newest request wins.

    Args:
        out: where messages go.
        playable: labs by name.
    """

    def __init__(self, out: IO[str], playable: Mapping[str, Playable]):
        self._out, self._playable = out, playable
        self._wanted: int | None = None
        self._requests: queue.Queue[dict[str, Any]] = queue.Queue()

    def listen(self, lines: IO[str]) -> None:
        """Hear what is wanted until the parent hangs up."""
        for line in lines:
            message = json.loads(line)
            self._wanted = message["serial"] if message["type"] == "run" else None
            if message["type"] == "run":
                self._requests.put(message)
        os._exit(0)

    def work(self) -> None:
        """Compute, for ever."""
        self._say({"type": "hello"})
        while True:
            request = self._requests.get()
            if request["serial"] == self._wanted:
                self._run(self._playable[request["lab"]], request)
            self._say({"type": "free", "serial": request["serial"], "megabytes": peak_megabytes()})

    def _run(self, playable: Playable, request: dict[str, Any]) -> None:
        serial, began, last = request["serial"], time.perf_counter(), 0.0

        def alive() -> None:
            if self._wanted != serial:
                raise Cancelled

        def show(frame: Frame) -> None:
            nonlocal last
            alive()
            wait = last + _LEAST_SECONDS_BETWEEN_STATES - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            last = time.perf_counter()
            state = {"step": frame.step, "of": frame.of, "phase": frame.phase, "data": as_json(frame.data)}
            self._say({"type": "state", "serial": serial, **state})

        try:
            numbers = playable.run(request["settings"], Stage(show, alive))
        except Cancelled:
            return
        except Exception as error:  # of whatever kind: the page is told, and the worker goes on
            traceback.print_exc(file=sys.stderr)
            self._say({"type": "error", "serial": serial, "message": told(error)})
            return
        seconds = round(time.perf_counter() - began, 3)
        self._say({"type": "done", "serial": serial, "seconds": seconds, "numbers": without_nan(numbers)})

    def _say(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message, separators=(",", ":")) + "\n")
        self._out.flush()


def peak_megabytes() -> int:
    """The most memory that this process has had; 0 where that cannot be known.

    Linux counts what the parent had when it started this process in `ru_maxrss`, but not in VmHWM.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 2**10
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (2**20 if sys.platform == "darwin" else 2**10)


def without_nan(value: Any) -> Any:
    """JSON has no word for what is not finite.

    >>> without_nan({"rhat": [1.5, float("nan")]})
    {'rhat': [1.5, None]}
    """
    if isinstance(value, dict):
        return {name: without_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def serve(playable: Mapping[str, Playable]) -> None:
    """Compute for the server that started this process."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no message
    worker = Worker(out, playable)
    threading.Thread(target=worker.listen, args=(sys.stdin,), daemon=True).start()
    worker.work()


def main() -> None:
    """All labs, with what they have compiled before."""
    from marginax._compilation import use_compilation_cache
    from marginax.playground.labs import PLAYABLE

    use_compilation_cache()
    serve(PLAYABLE)


if __name__ == "__main__":
    main()

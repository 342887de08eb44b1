"""The progress bar and the polite Ctrl-C."""

import importlib.util
import signal
import sys
import threading
from types import FrameType
from typing import Any

from marginax._extras import require


def bar_of_tasks(*, transient: bool = False) -> Any:
    """A bar of rich on standard error: count, rate (a field of the task), time gone and time left."""
    rich = require("rich.progress")
    return rich.Progress(
        rich.TextColumn("{task.description:>10}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[rate]}"),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
        console=require("rich.console").Console(stderr=True),
        transient=transient,
    )


class Progress:
    """A bar with phase, rate and time left; silent when there is nobody to see it, or no rich to draw it."""

    def __init__(self, show: bool | None):
        self._show = sys.stderr.isatty() and importlib.util.find_spec("rich") is not None if show is None else show
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self._show:
            self._bar = bar_of_tasks()
            self._bar.start()
        return self

    def phase(self, name: str, step: int, num_steps: int) -> None:
        """Begin a phase."""
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=num_steps, completed=step, rate="compiling")

    def update(self, step: int, rate: float, num_steps: int) -> None:
        """After a chunk."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step, total=num_steps, rate=f"{rate:,.0f} steps/s")

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


class Interrupt:
    """Ctrl-C once: finish the chunk and keep what there is. Twice: stop at once."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

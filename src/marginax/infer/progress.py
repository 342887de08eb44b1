"""The progress bar and the polite Ctrl-C."""

import signal
import sys
import threading
from types import FrameType
from typing import Any


def bar_of_tasks(*, transient: bool = False) -> Any:
    """A bar of rich on standard error: count, rate (a field of the task), time gone and time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=transient,
    )


class Progress:
    """A bar with phase, rate and time left; silent when there is nobody to see it."""

    def __init__(self, show: bool | None):
        self._show = sys.stderr.isatty() if show is None else show
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

"""The progress bar and the polite Ctrl-C."""

import html
import importlib.util
import io
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


class NotebookBar:
    """The same bar as output of a notebook's cell, written anew at every update: no widgets are needed."""

    def __init__(self) -> None:
        self._bar = bar_of_tasks()
        self._shown: Any = None

    def start(self) -> None:
        """Nothing is shown before there is a task."""

    def add_task(self, description: str, **fields: Any) -> Any:
        """Its number."""
        task = self._bar.add_task(description, **fields)
        self._draw()
        return task

    def update(self, task: Any, **fields: Any) -> None:
        """Other values of its fields."""
        self._bar.update(task, **fields)
        self._draw()

    def stop(self) -> None:
        """It stays as it is."""

    def _draw(self) -> None:
        text = io.StringIO()
        require("rich.console").Console(file=text, force_jupyter=False, width=100).print(self._bar.get_renderable())
        plain = text.getvalue()
        data = {"text/plain": plain, "text/html": f"<pre>{html.escape(plain)}</pre>"}
        if self._shown is None:
            self._shown = sys.modules["IPython"].display.display(data, raw=True, display_id=True)
        else:
            self._shown.update(data, raw=True)


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook; IPython is not imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Progress:
    """A bar with phase, rate and time left; silent when there is nobody to see it, or no rich to draw it.

    Somebody sees it where standard error is a terminal, and in a notebook.
    """

    def __init__(self, show: bool | None):
        audience = in_notebook() or sys.stderr.isatty()
        self._show = audience and importlib.util.find_spec("rich") is not None if show is None else show
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self._show:
            self._bar = NotebookBar() if in_notebook() else bar_of_tasks()
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
    """Ctrl-C once: finish the chunk and keep what there is. Twice: stop at once.

    SIGTERM, which schedulers send before they end a process, has the chunk finished and its checkpoint written, if the
    run has a directory; then it goes to whoever handled it before, by default to the end of the process.
    """

    def __init__(self, *, checkpoints: bool = False) -> None:
        self.requested = False
        self._terminated = False
        self._numbers = (signal.SIGINT, signal.SIGTERM) if checkpoints else (signal.SIGINT,)
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) not in (None, signal.SIG_IGN):
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            self._restore()
            if number == signal.SIGTERM:
                signal.raise_signal(number)
            raise KeyboardInterrupt
        self.requested, self._terminated = True, number == signal.SIGTERM

    def _restore(self) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    def __exit__(self, *_: object) -> None:
        self._restore()
        if self._terminated:
            signal.raise_signal(signal.SIGTERM)

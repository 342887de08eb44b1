"""What commands print: results on standard output, everything else on standard error, errors in one line."""

import contextlib
import json
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from marginax.cli.signals import handling_signals

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only: no notes, no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

_IMPORTED = [time.perf_counter()]  # until the first command takes it


class Clock:
    """What a command took, and which part of it how long; the first one of a process from its imports on."""

    def __init__(self):
        self._last = _IMPORTED.pop() if _IMPORTED else time.perf_counter()
        self.parts: dict[str, float] = {}

    def note(self, part: str) -> None:
        """A part ends here."""
        now = time.perf_counter()
        self.parts[part], self._last = now - self._last, now

    @property
    def total(self) -> float:
        """Seconds so far noted."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        each = ", ".join(f"{part} {seconds:.1f}" for part, seconds in self.parts.items())
        return f"{self.total:.1f} s ({each})"


@dataclass(frozen=True)
class Output:
    """How a command speaks.

    Attributes:
        quiet: results only.
        json: results as one JSON object.
        debug: errors with their traceback.
        notes: what was said on the way, for the JSON object.
        clock: that runs since the command began.
        remedies: how to go on after an interrupt, the last one counts.
    """

    quiet: bool = False
    json: bool = False
    debug: bool = False
    notes: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    remedies: list[str] = field(default_factory=list)

    @property
    def progress(self) -> bool | None:
        """For `progress=` of a fit: None shows a bar if standard error is a terminal."""
        return False if self.quiet else None

    def note(self, text: str) -> None:
        """Something to know, on standard error."""
        self.notes.append(text)
        if not self.quiet:
            typer.echo(text, err=True)

    def result(self, values: dict[str, Any], shown: Any) -> None:
        """The result: as JSON, or as text or a table of rich."""
        if self.json:
            typer.echo(json.dumps(values | {"notes": self.notes}, default=_plain, allow_nan=False))
        else:
            self.show(shown)

    @staticmethod
    def show(shown: Any) -> None:
        """Text, or a table of rich."""
        if isinstance(shown, str):
            typer.echo(shown)
        else:
            from rich.console import Console

            Console().print(shown)

    @contextlib.contextmanager
    def speaking(self, *, compiles: bool = True) -> Iterator[None]:
        """Warnings are notes; an error is one line and exit code 1; Ctrl-C is exit code 130, SIGTERM 143.

        Args:
            compiles: whether the command computes something, so that it is worth to keep what is compiled.
        """
        with handling_signals() as signals:
            try:
                if compiles:
                    from marginax._compilation import use_compilation_cache

                    use_compilation_cache()
                with warnings.catch_warnings():
                    warnings.simplefilter("default")
                    warnings.showwarning = lambda message, *_, **__: self.note(f"note: {message}")
                    yield
                if signals.number is not None:  # it was swallowed, and the end came before it came again
                    raise KeyboardInterrupt
            except (typer.Exit, typer.Abort):
                signals.seen()
                raise
            except KeyboardInterrupt:
                signals.seen()
                kept = f": {self.remedies[-1]}" if self.remedies else ""
                typer.echo(f"{signals.word}{kept}", err=True)
                raise typer.Exit(signals.exit_code) from None
            except Exception as error:
                signals.seen()
                if self.debug:
                    traceback.print_exc()
                typer.echo(f"error: {say(error)}", err=True)
                raise typer.Exit(1) from None

    @contextlib.contextmanager
    def resumable(self, remedy: str) -> Iterator[None]:
        """While this goes on, an interrupt says how to go on."""
        self.remedies.append(remedy)
        yield
        self.remedies.pop()

    @contextlib.contextmanager
    def counting(self, what: str, total: int) -> Iterator[Any]:
        """A bar with rate and time left for counted work; gives a function to call after each piece."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda num=1: None
            return
        from marginax.infer.progress import bar_of_tasks

        with bar_of_tasks(transient=True) as bar:
            task = bar.add_task(what, total=total, rate="")

            def advance(num: int = 1) -> None:
                bar.advance(task, num)
                bar.update(task, rate=_rate(bar.tasks[0].speed))

            yield advance


def say(error: BaseException) -> str:
    r"""An error in one line; one that is not about the user's input names its kind.

    >>> say(ValueError("target 'z' is no column\n  of a.csv")), say(KeyError("z"))
    ("target 'z' is no column of a.csv", "KeyError: 'z' (this looks like a bug: --debug shows where)")
    """
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | TypeError | OSError | MemoryError | RuntimeError | ImportError) and text:
        return text
    return f"{type(error).__name__}: {text} (this looks like a bug: --debug shows where)"


def _rate(speed: float | None) -> str:
    """Pieces per second, or seconds per piece.

    >>> _rate(None), _rate(1200.0), _rate(0.25)
    ('', '1,200.0/s', '4.0 s each')
    """
    if not speed:
        return ""
    return f"{speed:,.1f}/s" if speed >= 1 else f"{1 / speed:,.1f} s each"


def table(
    header: Iterable[str], rows: Iterable[Iterable[str]], *, title: str | None = None, caption: str | None = None
) -> Any:
    """A table without lines, whose first column stands left, and is broken before numbers are cut off."""
    from rich.table import Table

    found = Table(title=title, caption=caption, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for i, name in enumerate(header):
        found.add_column(name, justify="left" if i == 0 else "right", no_wrap=i > 0)
    for row in rows:
        found.add_row(*row)
    return found


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)

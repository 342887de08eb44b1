"""One handler for a whole command: Ctrl-C and the polite end that schedulers ask for are never lost."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_AGAIN = 1.0  # seconds after which an interrupt that nobody has seen comes again
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Signals:
    """Which signal has come, if any.

    The handler raises KeyboardInterrupt. Where that is swallowed (an exception within a callback of JAX is), it comes
    again every second until the command has seen it.
    """

    def __init__(self) -> None:
        self.number: signal.Signals | None = None

    @property
    def word(self) -> str:
        """What has happened."""
        return _WORDS[self.number or signal.SIGINT]

    @property
    def exit_code(self) -> int:
        """As of a process that the signal has ended: 130 or 143."""
        return 128 + (self.number or signal.SIGINT)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Remember it, and raise."""
        if number != getattr(signal, "SIGALRM", None):
            self.number = signal.Signals(number)
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        raise KeyboardInterrupt

    def seen(self) -> None:
        """It need not come again."""
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def handling_signals() -> Iterator[Signals]:
    """Handle them from here on, in the main thread."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGALRM] if hasattr(signal, "SIGALRM") else [])]
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, signals.handle)
    try:
        yield signals
    finally:
        signals.seen()
        for number, handler in before.items():
            signal.signal(number, handler)

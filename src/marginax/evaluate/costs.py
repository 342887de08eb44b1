"""Seconds and memory of a piece of work."""

import time
from pathlib import Path
from types import TracebackType

_STATUS, _MARK = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # Linux keeps a high-water mark


class Costs:
    """Measures what is done within a `with` block.

    >>> with Costs() as costs:
    ...     total = sum(range(1000))
    >>> costs.seconds < 1.0
    True

    Attributes:
        seconds: wall time.
        megabytes: by which the memory of the process grew at most; None where the system does not say.
    """

    seconds: float = 0.0
    megabytes: float | None = None

    def __enter__(self) -> "Costs":
        try:
            _MARK.write_text("5")  # from now on
            self._before = _megabytes("VmRSS")
        except OSError:
            self._before = None
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        if self._before is not None:
            self.megabytes = max(0.0, _megabytes("VmHWM") - self._before)


def _megabytes(name: str) -> float:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))

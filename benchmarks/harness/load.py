"""How busy the machine is with other things: a time measured beside someone else's work is not a measurement."""

import os
import time
from pathlib import Path

_STAT = Path("/proc/stat")


class Others:
    """Cores used by processes other than one's own, since this object was made; 0 where that cannot be known.

    >>> Others(os.getpid()).cores() >= 0
    True
    """

    def __init__(self, pid: int):
        self.pid = pid
        self.began = time.perf_counter()
        self.busy, self.own = _busy_seconds(), _process_seconds(pid)

    def cores(self) -> float:
        elapsed = time.perf_counter() - self.began
        theirs = (_busy_seconds() - self.busy) - (_process_seconds(self.pid) - self.own)
        return max(0.0, theirs / elapsed) if elapsed > 0 else 0.0


def _busy_seconds() -> float:
    if not _STAT.exists():
        return 0.0
    user, nice, system = (int(word) for word in _STAT.read_text().split(maxsplit=4)[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def _process_seconds(pid: int) -> float:
    """CPU time of a process and of its children that have ended."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    words = stat.read_text().rpartition(")")[2].split()
    return sum(int(word) for word in words[11:15]) / os.sysconf("SC_CLK_TCK")

"""Hosts for trials: processes of this machine that find each other on loopback, and end together."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from marginax.launch.hosts import ADDRESS, INDEX, NUM

_SECONDS_BETWEEN_LOOKS = 0.05


def run_hosts(arguments: Sequence[str], num_hosts: int, *, grace: float | int = 10.0) -> tuple[int, str]:
    """Run a Python script as so many processes; when one of them fails, the others are ended.

    Args:
        arguments: the script and what it is given.
        num_hosts: how many.
        grace: seconds from the request to end to the end by force.

    Returns:
        0, or the first exit code that is not, and a sentence on it.
    """
    shared = {**os.environ, ADDRESS: f"127.0.0.1:{_free_port()}", NUM: str(num_hosts)}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for index in range(num_hosts):
            processes.append(subprocess.Popen([sys.executable, *arguments], env={**shared, INDEX: str(index)}))
        while True:
            codes = [process.poll() for process in processes]
            for index, code in enumerate(codes):
                if code:
                    how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
                    return code, f"host {index} of {num_hosts} {how}: the others were ended, too"
            if not any(code is None for code in codes):
                return 0, ""
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    finally:
        _end(processes, grace)


def _end(processes: Sequence[subprocess.Popen[bytes]], grace: float | int) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + grace
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]

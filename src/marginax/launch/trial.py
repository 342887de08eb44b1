"""Hosts for trials: processes of this machine that find each other on loopback, and end together."""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from marginax.launch.hosts import ADDRESS, INDEX, JOB_OF_TRIAL, NUM

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
    found_by = {ADDRESS: f"127.0.0.1:{_free_port()}", NUM: str(num_hosts), JOB_OF_TRIAL: secrets.token_hex(16)}
    shared = {**os.environ, **found_by}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for index in range(num_hosts):
            given = {**shared, INDEX: str(index)}
            command = [sys.executable, *arguments]  # in a group of its own: a Ctrl-C is told once, by `_end`
            processes.append(subprocess.Popen(command, env=given, process_group=0))
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
    deadline, asked = time.monotonic() + grace, set()
    while left := [process for process in processes if process.poll() is None]:
        try:
            for process in left:
                if time.monotonic() > deadline:
                    process.kill()
                elif process.pid not in asked:
                    asked.add(process.pid)
                    process.terminate()
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        except KeyboardInterrupt:  # the handler of the command says it again and again: the grace bounds this
            continue


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]

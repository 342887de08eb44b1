"""What the machine has, and what a process of it may do."""

import os
from pathlib import Path

__all__ = ["available_memory", "check_process"]

_computing: list[int] = []  # the process that has computed first


def available_memory() -> int | float:
    """Bytes that can be had without swapping, all of the machine's where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        names = getattr(os, "sysconf_names", {})
        known = "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else float("inf")


def check_process() -> None:
    """Raise in a process that was forked from one which has computed: JAX has threads, so it would wait for ever."""
    if not _computing:
        _computing.append(os.getpid())
    elif _computing[0] != os.getpid():
        raise RuntimeError(
            f"this process was forked from process {_computing[0]}, in which JAX has computed already, and would hang: "
            "start processes by spawn (multiprocessing.get_context('spawn')), or with joblib's backend 'loky'"
        )

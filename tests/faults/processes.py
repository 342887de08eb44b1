"""Attacks by processes of their own: real kills, and rivals that the kernel's lock has to keep apart."""

import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.faults.work import LONGEST, NOT_BEGUN, REFUSALS, RefusedError, Work, judge, quiet, works

ALLOWED = ("is in use by", "exists", "holds", "is not empty", *NOT_BEGUN)
Case = tuple[str, str]  # outcome, and what was done


def killed(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """SIGKILL at a random moment, sometimes once more while it goes on; then the work goes on to its end."""
    whole = _seconds(work, folder)
    for number in range(num or 77):
        path, moments = folder / f"run-{number}", []
        for how in ("begin", "go on")[: rng.choice([1, 1, 2])]:
            moments.append(round(rng.random() * whole, 3))
            process = _start(work, path, how)
            process.join(moments[-1])
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join(LONGEST)
        yield judge(work, path, truth, may_refuse=False), f"killed after {moments} s of {whole:.1f}"
        shutil.rmtree(path, ignore_errors=True)


def rivals(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """Two to four at once in one directory: one wins, the others are refused, and the result is right."""
    whole = _seconds(work, folder)
    for number in range(num or 6):
        path, context = folder / f"run-{number}", _context()
        said, processes = context.Queue(), []
        for rival in range(rng.randrange(2, 5)):
            processes.append(_start(work, path, "go on" if rival else "begin", said))
            time.sleep(rng.random() * 0.3 * whole)
        for process in processes:
            process.join(LONGEST)
        problems = [text for _ in processes if (text := said.get(timeout=LONGEST))]
        outcome = "error" if problems else judge(work, path, truth, may_refuse=False)
        yield outcome, f"{len(processes)} processes, round {number} {problems[:1]}"
        shutil.rmtree(path, ignore_errors=True)


def _context() -> Any:
    """Processes forked from one that has imported everything and computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.processes"])
    return context


def _start(work: Work, path: Path, how: str, said: Any = None) -> Any:
    process = _context().Process(target=act, args=(work.name, path, how, said))
    process.start()
    return process


def _seconds(work: Work, folder: Path) -> float:
    _start(work, folder / "warm", "begin").join(LONGEST)
    began = time.monotonic()
    _start(work, folder / "timed", "begin").join(LONGEST)
    return time.monotonic() - began


def act(name: str, path: Path, how: str, said: Any) -> None:
    """What a process does; it tells what it was refused for where it should not have been."""
    problem = ""
    with quiet():
        work = works()[name]
        try:
            work.begin(path) if how == "begin" else work.go_on(path)
        except (*REFUSALS, RefusedError) as error:
            problem = "" if any(each in str(error) for each in ALLOWED) else str(error)
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"
    if said is not None:
        said.put(problem)

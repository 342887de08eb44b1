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
from tests.faults.calls import Calls, count_calls
from tests.faults.work import LONGEST, NOT_BEGUN, REFUSALS, RefusedError, Work, judge, quiet, works

ALLOWED = ("is in use by", "exists", "holds", "is not empty", *NOT_BEGUN)
PRELOADED = ("marginax.cli", "marginax.decide", "marginax.estimators", "marginax.evaluate", "sklearn.model_selection")
Case = tuple[str, str]  # outcome, and what was done


def killed(work: Work, truth: list[np.ndarray], folder: Path, num: int | None, rng: random.Random) -> Iterator[Case]:
    """SIGKILL at a random moment or inside of a write, sometimes once more while it goes on; then it ends.

    The kernel ends a process here, and nothing is copied by the one that is ended.
    """
    whole, calls = _seconds(work, folder), count_calls(work, folder)
    for number in range(num or 77):
        path, moments = folder / f"run-{number}", []
        for how in ("begin", "go on")[: rng.choice([1, 1, 2])]:
            aim = rng.randrange(1, calls + 1) if rng.random() < 0.5 else None
            seconds = LONGEST if aim else rng.random() * whole
            moments.append(f"call {aim}" if aim else f"{seconds:.3f} s of {whole:.3f}")
            process = _start(work, path, how, aim=aim)
            process.join(seconds)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join(LONGEST)
        yield judge(work, path, truth, f"killed at {', '.join(moments)}", may_refuse=False)
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
        what = f"{len(processes)} processes, round {number} {problems[:1]}"
        yield ("error", what) if problems else judge(work, path, truth, what, may_refuse=False)
        shutil.rmtree(path, ignore_errors=True)


def _context() -> Any:
    """Processes forked from one that has imported everything and computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.processes", *PRELOADED])
    return context


def _start(work: Work, path: Path, how: str, said: Any = None, aim: int | None = None) -> Any:
    process = _context().Process(target=act, args=(work.name, path, how, said, aim))
    process.start()
    return process


def _seconds(work: Work, folder: Path) -> float:
    _start(work, folder / "warm", "begin").join(LONGEST)
    began = time.monotonic()
    _start(work, folder / "timed", "begin").join(LONGEST)
    return time.monotonic() - began


def act(name: str, path: Path, how: str, said: Any, aim: int | None) -> None:
    """What a process does; it tells what it was refused for where it should not have been."""

    def end(number: int) -> None:
        if number == aim:
            os.kill(os.getpid(), signal.SIGKILL)

    problem = ""
    with quiet(), Calls(end):
        work = works()[name]
        try:
            work.begin(path) if how == "begin" else work.go_on(path)
        except (*REFUSALS, RefusedError) as error:
            problem = "" if any(each in str(error) for each in ALLOWED) else str(error)
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"
    if said is not None:
        said.put(problem)

"""Chains as tasks: how a run is cut, what a task does, and how the parts are put together again.

    run/setup/              how the whole run was set up, and how many chains a task has
    run/fits/chains-0-1/    the run directory of a task: its own owner, checkpoints and draws
    run/stop                there while tasks are asked to stop

A task needs nothing but the path: it reads the setup, runs some of the chains with the keys and starts that they have
in the whole run, and leaves its checkpoint and draws on disk. Whoever comes second to a directory waits, or goes on
from the last checkpoint of an owner that has died. So a task may be run anywhere, twice, and as often as need be.
"""

import abc
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from marginax._machine import check_process
from marginax.files import FileError, InUseError, RunDirectory
from marginax.files.hints import check_document
from marginax.infer.driver import Run
from marginax.infer.joining import joined
from marginax.infer.method import check_count
from marginax.infer.progress import Interrupt, Progress
from marginax.infer.restoring import restored
from marginax.posterior import AbstractPosterior

CHAINS_PER_TASK = "chains_per_task"  # in a setup
PATIENCE = 600.0
_STOP = "stop"
_OUTCOME = {"finished": bool, "steps": int, "bad_chains": dict[str, str]}
_SECONDS_BETWEEN_LOOKS = 0.5

Told = Callable[["Task", int], None]


@dataclasses.dataclass(frozen=True)
class Task:
    """Some of the chains of a run.

    Attributes:
        directory: of the whole run.
        setup: what decides its setup, a SHA-256.
        first: chain.
        stop: the chain after the last.
    """

    directory: str
    setup: str
    first: int
    stop: int

    @property
    def name(self) -> str:
        """For people, and of its directory."""
        last = self.stop - 1
        return f"chain-{self.first}" if last == self.first else f"chains-{self.first}-{last}"

    @property
    def files(self) -> RunDirectory:
        """Its own directory."""
        return RunDirectory(Path(self.directory)).run(self.name)

    def progress(self) -> tuple[int, ...]:
        """Something that changes with every checkpoint."""
        found = self.files.path.glob("checkpoint-*/manifest.json")
        return tuple(sorted(_time_of(path) for path in found))

    def signs_of_life(self) -> tuple[int, ...]:
        """Something that changes with every checkpoint, and with draws in between."""
        found = self.files.path.glob("*.safetensors")
        return (*self.progress(), *sorted(_time_of(path) for path in found))


class AbstractLauncher(abc.ABC):
    """Where tasks are run."""

    @property
    def chains_per_task(self) -> int:
        """How many chains share a program; it decides the last digits, and nothing else does."""
        return 1

    @property
    def leads(self) -> bool:
        """Whether this process sets up the run and joins what tasks leave; if not, it follows one that does."""
        return True

    def follow(self, files: RunDirectory, *, resumed: bool) -> None:
        """Do this process's share of the run that another one leads, until its result is there."""
        raise NotImplementedError

    @property
    def num_processes(self) -> int:
        """How many call `fit` with it."""
        return 1

    @abc.abstractmethod
    def run(self, tasks: Sequence[Task], told: Told, interrupt: Interrupt) -> dict[Task, dict[str, Any]]:
        """Have `run_task` done for each; its outcomes, without those that were given up when it was interrupted.

        Args:
            tasks: to be run.
            told: is called with a task and the steps that it has done.
            interrupt: says when to stop (`requested`).
        """


@dataclasses.dataclass(frozen=True)
class Serial(AbstractLauncher):
    """Tasks one after another in this process: what a cluster would give, bit for bit, without a cluster.

    Args:
        chains_per_task: chains that share a program.
    """

    chains_per_task: int = 1  # type: ignore[misc]

    def run(self, tasks: Sequence[Task], told: Told, interrupt: Interrupt) -> dict[Task, dict[str, Any]]:
        """Each to its end."""
        found = {}
        for task in tasks:
            if not interrupt.requested:
                found[task] = run_task(task, lambda steps, task=task: told(task, steps), interrupt)
        return found


# ---- what a task does


def run_task(
    task: Task,
    told: Callable[[int], None] = lambda steps: None,
    interrupt: Any = None,
    patience: float | int = PATIENCE,
) -> dict[str, Any]:
    """Run chains to their end, from where they stand.

    Args:
        task: which.
        told: is called with the steps that are done.
        interrupt: as in `Run.advance`; besides it the file `stop` ends the task at its next checkpoint.
        patience: seconds to wait for an owner that makes no progress.

    Returns:
        Whether they are at the end, the steps that are done, and which became NaN if all did.
    """
    check_process()
    whole = RunDirectory(Path(task.directory))
    if not whole.exists:
        raise FileError(f"{task.directory} is not here: it must be on storage that all workers see under this path")
    if whole.identity != task.setup:
        raise FileError(f"{task.directory} has the setup of another run here: it must be on storage that all share")
    stop = _Stop(whole.at(_STOP), interrupt)
    part = part_of(restored(whole, None, None, None), task)
    assert part.directory is not None
    with _owned_when_free(part.directory, task, stop, patience) as is_ours:
        if not is_ours:
            return {"finished": False, "steps": 0, "bad_chains": {}}
        if whole.finished:  # by others: what this task has drawn is in the result, and may be here no more
            return {"finished": True, "steps": 0, "bad_chains": {}}
        part.directory.create({"first": task.first, "stop": task.stop}, inputs={"run": task.setup})
        states, memories = part.stand()
        try:
            part.advance(states, memories, _Teller(told, part), stop)
            ended, bad = part.phase == len(part.phases), {}
        except FloatingPointError:  # all of its chains: the others go on
            ended, bad = True, {str(chain + task.first): text for chain, text in part.bad_chains.items()}
        return {"finished": ended, "steps": sum(part.num_steps.values()), "bad_chains": bad}


def part_of(run: Run, task: Task) -> Run:
    """The chains of a task, as a run with a directory of its own."""
    start = jax.tree.map(lambda leaf: leaf[task.first : task.stop], run.start)
    files = task.files
    files.num_checkpoints = 2 if run.directory is None else run.directory.num_checkpoints
    return Run(
        run.model,
        run.method,
        run.source,
        (),
        run.key,
        task.stop - task.first,
        start,
        files,
        run.chunk_size,
        run.num_retries,
        first_chain=task.first,
        num_in_all=run.num_chains,
    )


@contextlib.contextmanager
def _owned_when_free(files: RunDirectory, task: Task, stop: "_Stop", patience: float | int) -> Iterator[bool]:
    """Own the directory of a task, after another one that does it has ended; not if asked to stop before."""
    stack, seen, since = contextlib.ExitStack(), task.signs_of_life(), time.monotonic()
    while not stop.requested:
        try:
            stack.enter_context(files.owned())
        except InUseError:
            now = task.signs_of_life()
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > patience:
                raise
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            continue
        with stack:
            yield True
        return
    yield False


class _Stop:
    """Whether a task is to end at its next checkpoint."""

    def __init__(self, path: Path, interrupt: Any):
        self._path, self._interrupt, self._asked = path, interrupt, False

    @property
    def requested(self) -> bool:
        """Once it was asked for, it is: another run may take the file away."""
        by_signal = self._interrupt is not None and self._interrupt.requested
        self._asked = self._asked or by_signal or self._path.exists()
        return self._asked


class _Teller:
    """The bar of a task: tells how many steps of all phases are done."""

    def __init__(self, told: Callable[[int], None], part: Run):
        self._told, self._part, self._before = told, part, 0

    def phase(self, name: str, step: int, num_steps: int) -> None:
        self._before = sum(phase.num_steps for phase in self._part.phases[: self._part.phase])
        self._told(self._before + step)

    def update(self, step: int, rate: float, num_steps: int) -> None:
        self._told(self._before + step)


# ---- the whole


def check_launched(launcher: Any, directory: Any, hooks: Sequence[Any]) -> None:
    """Raise if chains cannot be tasks."""
    if not isinstance(launcher, AbstractLauncher):
        raise TypeError(f"launcher must be an object such as mx.launch.Dask('scheduler:8786'), got {launcher!r}")
    if directory is None:
        raise ValueError("directory must be given with a launcher: a path on storage that all workers see")
    if hooks:
        raise ValueError(f"hooks must be left out with a launcher, got {hooks!r}: they look at all chains together")
    check_count("chains_per_task", launcher.chains_per_task)


def chains_per_task(files: RunDirectory) -> int | None:
    """Of a run that was begun with a launcher."""
    setup = files.read()
    if CHAINS_PER_TASK not in setup:
        return None
    size = setup.get(CHAINS_PER_TASK, of=int)
    check_count(CHAINS_PER_TASK, size)
    return size


def ask_to_stop(directory: Path) -> None:
    """Have all tasks of a run end at their next checkpoint."""
    with contextlib.suppress(OSError, FileError):
        RunDirectory(directory).at(_STOP).touch()


def run_tasks(run: Run, launcher: AbstractLauncher, progress: bool | None) -> AbstractPosterior:
    """Have all chains run as tasks, and join what they leave."""
    assert run.directory is not None
    if any(leaf.shape[:1] != (run.num_chains,) for leaf in jax.tree.leaves(run.start)):  # only a forger writes it
        raise FileError(f"{run.directory.path} has other starts than those of {run.num_chains} chains")
    run.directory.at(_STOP).unlink(missing_ok=True)
    tasks = tasks_of(run.directory)
    with Progress(progress) as bar, Interrupt(checkpoints=True) as interrupt:
        counter = _Counter(bar, run, tasks)
        outcomes = launcher.run(tasks, counter.told, interrupt)
        for task, outcome in outcomes.items():
            check_document(outcome, _OUTCOME, "the outcome of a task")
            counter.told(task, outcome["steps"])
    finished = all(task in outcomes and outcomes[task]["finished"] for task in tasks)
    bad = {int(chain): text for outcome in outcomes.values() for chain, text in outcome["bad_chains"].items()}
    parts = [part_of(run, task) for task in tasks]
    posterior = joined(run, parts, bad, finished=finished)
    if finished:
        run.directory.at(_STOP).unlink(missing_ok=True)  # it came too late
        for part in parts:
            assert part.directory is not None
            with contextlib.suppress(InUseError), part.directory.owned():  # no host that is late begins to read it now
                part.directory.forget()
    return posterior


def tasks_of(files: RunDirectory) -> list[Task]:
    """Of a run that is set up."""
    num_chains, size = files.read().get("num_chains", of=int), chains_per_task(files) or 1
    check_count("num_chains", num_chains)
    path, setup = os.fspath(files.path), files.identity
    return [Task(path, setup, first, min(first + size, num_chains)) for first in range(0, num_chains, size)]


def asked_to_stop(files: RunDirectory) -> bool:
    """Whether tasks are to end."""
    return files.at(_STOP).exists()


class _Counter:
    """Steps of all chains in one bar."""

    def __init__(self, bar: Progress, run: Run, tasks: Sequence[Task]):
        self._bar, self._done, self._first, self._began = bar, dict.fromkeys(tasks, 0), None, time.monotonic()
        self._total = run.num_chains * sum(phase.num_steps for phase in run.phases)
        bar.phase(f"{run.num_chains} chains", 0, self._total)

    def told(self, task: Task, steps: int) -> None:
        self._done[task] = max(steps, self._done[task])  # who goes on elsewhere may begin a little before
        done = sum(steps * (task.stop - task.first) for task, steps in self._done.items())
        if self._first is None:
            self._first, self._began = done, time.monotonic()
        self._bar.update(done, (done - self._first) / max(time.monotonic() - self._began, 1e-9), self._total)


def _time_of(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it is being replaced
        return 0

"""The same script on several hosts, each of which takes its share of the chains.

Hosts are counted by `jax.distributed`. The first one sets a run up, and joins what the tasks leave; all of them do
tasks, their own first and then those that nobody has done yet. Hosts meet in the run directory, on storage that they
share: nothing is summed over them.
"""

import dataclasses
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from marginax.files import RunDirectory, write_text
from marginax.infer.launching import (
    PATIENCE,
    AbstractLauncher,
    Task,
    Told,
    ask_to_stop,
    asked_to_stop,
    run_task,
    tasks_of,
)
from marginax.infer.progress import Interrupt

ADDRESS, NUM, INDEX = "MARGINAX_COORDINATOR", "MARGINAX_NUM_PROCESSES", "MARGINAX_PROCESS_ID"
JOB_OF_TRIAL = "MARGINAX_JOB"
_JOB = "job"
_SECONDS_BETWEEN_LOOKS = 0.1


@dataclasses.dataclass(frozen=True)
class Hosts(AbstractLauncher):
    """Processes that run the same script; `initialize` makes it.

    A job whose host is lost ends (`jax.distributed` sees to that), and `mx.resume(directory, launcher=...)` goes on
    from the checkpoints, on as many hosts as there are then.

    Args:
        job: the same text on all hosts, and of this job alone.
        index: of this process.
        count: of processes.
        chains_per_task: chains that share a program; it decides the last digits of a computation.
        patience: seconds to wait for others that make no progress.
    """

    job: str
    index: int
    count: int
    chains_per_task: int = 1  # type: ignore[misc]
    patience: float | int = PATIENCE

    @property
    def leads(self) -> bool:
        """Whether it is the first."""
        return self.index == 0

    @property
    def num_processes(self) -> int:
        return self.count

    def run(self, tasks: Sequence[Task], told: Told, interrupt: Interrupt) -> dict[Task, dict[str, Any]]:
        """Its own tasks, and then those of others: they are done, or under way, or left to be done."""
        write_text(RunDirectory(Path(tasks[0].directory)).at(_JOB), self.job)
        return self._visit(tasks, told, interrupt)

    def follow(self, files: RunDirectory, *, resumed: bool) -> None:
        with Interrupt(checkpoints=True) as interrupt:
            for _ in self._waiting(f"the first host has not begun {files.path}", interrupt):
                if _job_of(files) == self.job or (resumed and files.finished):
                    break
            if not files.finished:
                self._visit(tasks_of(files), lambda task, steps: None, interrupt)
            for _ in self._waiting(f"the first host has not joined what is in {files.path}", interrupt):
                if files.finished:
                    return
                if asked_to_stop(files):
                    break
        raise KeyboardInterrupt(f"interrupted: {files.path} has what there is")

    def _visit(self, tasks: Sequence[Task], told: Told, interrupt: Interrupt) -> dict[Task, dict[str, Any]]:
        own = list(tasks[self.index :: self.count])
        found = {}
        for task in [*own, *(task for task in tasks if task not in own)]:
            if not interrupt.requested:
                tell = lambda steps, task=task: told(task, steps)  # noqa: E731
                found[task] = run_task(task, tell, interrupt, self.patience)
        if interrupt.requested:
            ask_to_stop(Path(tasks[0].directory))
        return found

    def _waiting(self, what: str, interrupt: Interrupt) -> Iterator[None]:
        began = time.monotonic()
        while not interrupt.requested:
            yield
            if time.monotonic() - began > self.patience:
                raise TimeoutError(f"{what} for {self.patience:g} s: see what it says, then go on with mx.resume")
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _job_of(files: RunDirectory) -> str:
    try:
        return files.at(_JOB).read_text(encoding="utf-8")
    except OSError:
        return ""


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    chains_per_task: int = 1,
    patience: float | int = PATIENCE,
) -> Hosts:
    """Count the hosts, by `jax.distributed.initialize`; call it once, before anything is computed.

    Under `marginax launch` nothing need be said, and under SLURM, Open MPI or Kubernetes JAX finds out by itself.

    Args:
        coordinator: address and port of the first host. It listens there for the others.
        num_processes: how many there are.
        process_id: which of them this is.
        chains_per_task: chains that share a program; it decides the last digits of a computation.
        patience: seconds to wait for others that make no progress.

    Returns:
        What `mx.fit` and `mx.resume` take as `launcher=`.
    """
    if not patience > 0:
        raise ValueError(f"patience must be > 0 seconds, got {patience}")
    bind = None
    if coordinator is None and ADDRESS in os.environ:  # a local trial: on loopback, and nowhere else
        coordinator = bind = os.environ[ADDRESS]
        num_processes, process_id = int(os.environ[NUM]), int(os.environ[INDEX])
        jax.config.update("jax_cpu_collectives_implementation", None)  # they would listen, and not on loopback
    jax.distributed.initialize(coordinator, num_processes, process_id, coordinator_bind_address=bind)
    if bind is not None:
        return Hosts(os.environ[JOB_OF_TRIAL], jax.process_index(), jax.process_count(), chains_per_task, patience)
    from jax.experimental import multihost_utils

    own = np.frombuffer(secrets.token_bytes(16), np.uint8)
    job = bytes(np.asarray(multihost_utils.broadcast_one_to_all(own)).astype(np.uint8)).hex()
    return Hosts(job, jax.process_index(), jax.process_count(), chains_per_task, patience)

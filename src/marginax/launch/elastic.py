"""Chains as tasks of a Dask cluster, which may lose workers.

What goes over the wire is data: the path of the run, a few numbers and names; back come steps that are done, and
whether the end was reached. (Dask itself pickles what it sends, functions by their name.) All else is in the run
directory, on storage that client and workers share.
"""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from marginax._extras import require
from marginax.infer.launching import PATIENCE, AbstractLauncher, Task, Told, ask_to_stop, run_task
from marginax.infer.progress import Interrupt

_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable")
_LIBRARIES = ("marginax", "jax", "jaxlib", "numpy")
_SECONDS_BETWEEN_LOOKS = 0.2


@dataclasses.dataclass(frozen=True)
class Dask(AbstractLauncher):
    """Tasks of a Dask cluster.

    A task whose worker is lost goes on elsewhere from its last checkpoint. How many workers there are, and which of
    them are lost, leaves no trace in the draws.

    Args:
        cluster: the address of a scheduler ("scheduler:8786"), a `distributed.Client`, or a cluster of Dask.
        chains_per_task: chains that share a program; more of them use a machine better, fewer use more machines. It
            decides the last digits of a computation.
        modules: that workers import first: those in which you register networks of your own (`mx.register`).
        patience: seconds without any progress, compilation included, after which it is given up.
        num_losses: workers that a task may lose without a new checkpoint, before it is said that it ends them.
        stop_seconds: to wait for checkpoints after Ctrl-C.
    """

    cluster: Any
    chains_per_task: int = 1  # type: ignore[misc]
    modules: tuple[str, ...] = ()
    patience: float | int = PATIENCE
    num_losses: int = 3
    stop_seconds: float | int = 60.0

    def __post_init__(self) -> None:
        require("distributed")
        if not self.patience > 0:
            raise ValueError(f"patience must be > 0 seconds, got {self.patience}")

    @staticmethod
    @contextlib.contextmanager
    def local(num_workers: int = 2, **options: Any) -> "Iterator[Dask]":
        """For trials: workers of this machine, as processes of their own that are ended at the end.

        Nothing listens on anything but loopback.

        Args:
            num_workers: how many.
            options: of the launcher.
        """
        distributed = require("distributed")
        with distributed.LocalCluster(
            n_workers=num_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster:
            yield Dask(cluster, **options)

    def run(self, tasks: Sequence[Task], told: Told, interrupt: Interrupt) -> dict[Task, dict[str, Any]]:
        """Submit all, and those again whose workers are lost."""
        with self._client() as client:
            watch = _Watch(self, client, tasks, told)
            try:
                return watch.run(interrupt)
            finally:
                watch.close()

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        distributed = require("distributed")
        if isinstance(self.cluster, distributed.Client):
            yield self.cluster
            return
        try:
            client = distributed.Client(self.cluster, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ConnectionError(f"no scheduler of Dask answers at {self.cluster}: {error}") from None
        with client:
            yield client


class _Watch:
    """Tasks that are under way."""

    def __init__(self, launcher: Dask, client: Any, tasks: Sequence[Task], told: Told):
        self._launcher, self._client, self._told = launcher, client, told
        self._topic = f"marginax-{secrets.token_hex(8)}"
        self._tasks = {task.name: task for task in tasks}
        self._steps: dict[str, int] = {}
        self._futures: dict[Any, Task] = {}
        self._losses = dict.fromkeys(tasks, 0)
        self._progress = {task: task.progress() for task in tasks}
        self._last = time.monotonic()
        self._wire = {
            "settings": _settings(),
            "versions": _versions(),
            "modules": list(launcher.modules),
            "topic": self._topic,
            "patience": launcher.patience,
        }
        client.subscribe_topic(self._topic, self._hear)
        for task in tasks:
            self._submit(task)

    def _submit(self, task: Task) -> None:
        name = f"{task.name}-{self._topic}-{secrets.token_hex(4)}"
        arguments = {
            **self._wire,
            **dataclasses.asdict(task),
            "topic": self._topic,
            "patience": self._launcher.patience,
        }
        future = self._client.submit(run_on_worker, arguments, key=name, pure=False)
        self._futures[future] = task

    def _hear(self, event: Any) -> None:
        """In a thread of the client: what a worker tells."""
        message = event[1] if isinstance(event, tuple) else event
        if isinstance(message, Mapping) and message.get("task") in self._tasks and type(message.get("steps")) is int:
            self._steps[message["task"]] = message["steps"]
            self._last = time.monotonic()

    def run(self, interrupt: Interrupt) -> dict[Task, dict[str, Any]]:
        outcomes: dict[Task, dict[str, Any]] = {}
        deadline = None
        while self._futures:
            for name, steps in list(self._steps.items()):
                self._told(self._tasks[name], steps)
            for future in [future for future in self._futures if future.done()]:
                task, self._last = self._futures.pop(future), time.monotonic()
                if (outcome := self._outcome(future, task)) is not None:
                    outcomes[task] = outcome
                    self._steps[task.name] = outcome["steps"]
                elif not interrupt.requested:
                    self._submit(task)
            if interrupt.requested and deadline is None:
                ask_to_stop(Path(next(iter(self._tasks.values())).directory))
                deadline = time.monotonic() + self._launcher.stop_seconds
            if deadline is not None and time.monotonic() > deadline:
                break
            self._check_patience()
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return outcomes

    def _outcome(self, future: Any, task: Task) -> dict[str, Any] | None:
        """What came of a task; None if it has to be submitted again."""
        if future.status == "finished":
            return future.result(timeout=self._launcher.patience)
        if self._client.status not in ("running", "connecting"):
            raise self._disconnected()
        error = future.exception() if future.status == "error" else None
        if error is None or isinstance(error, require("distributed").KilledWorker):  # cancelled or lost
            now = task.progress()
            self._losses[task] = 1 if now != self._progress[task] else self._losses[task] + 1
            self._progress[task] = now
            if self._losses[task] >= self._launcher.num_losses:
                raise RuntimeError(
                    f"{task.name} has ended the workers that ran it, without a new checkpoint: see what they say "
                    f"(memory?), then go on with mx.resume({task.directory!r}, launcher=...)"
                ) from error
            return None
        error.add_note(f"in {task.name} of {task.directory}, on a worker; mx.resume(..., launcher=...) goes on")
        raise error

    def _check_patience(self) -> None:
        if time.monotonic() - self._last <= self._launcher.patience:
            return
        if self._client.status != "running":
            raise self._disconnected()
        num = len(self._client.scheduler_info()["workers"])
        raise TimeoutError(
            f"no task has made progress for {self._launcher.patience:g} s, with {num} workers: start workers, or raise "
            "patience=...; mx.resume(..., launcher=...) goes on"
        )

    def _disconnected(self) -> ConnectionError:
        directory = next(iter(self._tasks.values())).directory
        return ConnectionError(
            f"the scheduler of Dask is lost: go on with mx.resume({directory!r}, launcher=...) when it is back"
        )

    def close(self) -> None:
        """Leave nothing behind that computes."""
        with contextlib.suppress(Exception):
            if self._futures:
                ask_to_stop(Path(next(iter(self._tasks.values())).directory))
                self._client.cancel(list(self._futures))
            self._client.unsubscribe_topic(self._topic)


def run_on_worker(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker does: `run_task`, with the settings of the client."""
    if arguments["versions"] != (found := _versions()):
        raise RuntimeError(f"workers must have the versions of the client, {arguments['versions']}, got {found}")
    for name in arguments["modules"]:
        importlib.import_module(name)
    names = [field.name for field in dataclasses.fields(Task)]
    task = Task(**{name: arguments[name] for name in names})
    worker, last = require("distributed").get_worker(), [0.0]

    def tell(steps: int) -> None:
        if time.monotonic() - last[0] > _SECONDS_BETWEEN_LOOKS:
            last[0] = time.monotonic()
            worker.log_event(arguments["topic"], {"task": task.name, "steps": steps})

    with contextlib.ExitStack() as stack:
        for name, value in arguments["settings"].items():
            stack.enter_context(getattr(jax, name.removeprefix("jax_"))(value))
        return run_task(task, tell, patience=arguments["patience"])


def _settings() -> dict[str, Any]:
    return {name: getattr(jax.config, name) for name in _SETTINGS}


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _LIBRARIES}

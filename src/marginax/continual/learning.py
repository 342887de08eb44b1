r"""Tasks in turn (Nguyen et al., 2018; Ritter, Botev & Barber, 2018).

$q_t(w) \approx q_{t-1}(w)\, p(D_t \setminus C_t \mid w)$, and for predictions $q_t(w)\, p(C_1, \dots, C_t \mid w)$,
where the coreset C has a few rows of each task that no update has seen.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from marginax._keys import Key, as_key
from marginax.continual.carrying import AbstractCarrying, AsPrior
from marginax.continual.coresets import AbstractCoreset
from marginax.continual.tasks import Task
from marginax.files import RunDirectory
from marginax.infer import AbstractMethod, fit, resume
from marginax.infer.catalogue import as_method
from marginax.infer.updating import updated_model
from marginax.model import Model
from marginax.posterior import AbstractPosterior, load


@dataclass(frozen=True, eq=False)
class ContinualResult:
    """What was learned.

    Args:
        posteriors: after each task, as the next one finds it.
        final: after each task with the coresets of all tasks so far, which predict; the same without coresets.
        accuracy: row t, column s: share of right labels of task s after task t; NaN for tasks to come.
        coresets: rows of each task that were kept, as places in its data.
    """

    posteriors: tuple[AbstractPosterior, ...]
    final: tuple[AbstractPosterior, ...]
    accuracy: Float[np.ndarray, "tasks tasks"]
    coresets: tuple[np.ndarray, ...]

    @property
    def average(self) -> Float[np.ndarray, " tasks"]:
        """Accuracy after each task, averaged over the tasks so far."""
        return np.nanmean(self.accuracy, axis=1)

    @property
    def forgetting(self) -> float:
        """How much worse tasks are at the end than when they were learned, on average."""
        return float(np.mean(np.diag(self.accuracy)[:-1] - self.accuracy[-1, :-1])) if len(self.accuracy) > 1 else 0.0


def learn(
    model: Model,
    tasks: Sequence[Task],
    method: AbstractMethod | str,
    *,
    key: Key,
    coreset: AbstractCoreset | None = None,
    carrying: AbstractCarrying | None = None,
    coreset_method: AbstractMethod | str | None = None,
    num_samples: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> ContinualResult:
    """Learn classification tasks one after the other, and judge all tasks so far after each.

    Args:
        model: for all tasks; its network may be a `MultiHead`.
        tasks: in their order.
        method: of inference, for each task: `mx.infer.VI(...)` for variational continual learning,
            `mx.infer.Laplace(mx.curvature.Diagonal())` for online Laplace, `MAP()` with `carrying=AsStart()`.
        key: int seed or JAX key.
        coreset: rows of each task that are kept out of the updates: `RandomCoreset(200)` or `KCentreCoreset(200)`.
        carrying: what a task leaves to the next: `AsPrior()` (default), `AsStart()` or `AllData()`.
        coreset_method: of the fit to the coresets; by default as `method`.
        num_samples: networks to average over in predictions, as in `posterior.predict`.
        directory: where runs are kept, one folder for each; called again with the same arguments, it goes on there.
        progress: as in `mx.fit`.

    >>> import marginax as mx
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(60, 4)), rng.integers(0, 2, 60)
    >>> x[:, 0] += 4 * y
    >>> tasks = mx.continual.permuted_tasks((x, y), (x, y), 2, seed=0)
    >>> model = mx.Model(mx.nets.MLP(4, (8,), 2, key=0), mx.likelihoods.Categorical())
    >>> result = mx.continual.learn(model, tasks, mx.infer.VI(num_epochs=1500), key=0)
    >>> result.accuracy.shape, bool(result.average[1] > 0.8)
    ((2, 2), True)
    """
    carrying = AsPrior() if carrying is None else carrying
    _check(model, tasks, coreset, carrying)
    method = as_method(method)
    last_method = method if coreset_method is None else as_method(coreset_method)
    runs = _Runs(as_key(key), None if directory is None else Path(directory), progress)
    posteriors, finals, kept, seen = [], [], [], []
    accuracy = np.full((len(tasks), len(tasks)), np.nan)
    for number, task in enumerate(tasks):
        x, y = task.data
        places = np.zeros(0, int)
        if coreset is not None:
            places = coreset.choose(x, np.random.default_rng(runs.seed(number)))
        kept.append(places)
        rest = np.setdiff1d(np.arange(len(x)), places)
        if not len(rest):
            raise ValueError(f"coreset must leave rows of task {number} to learn from, got {len(x)} of {len(x)}")
        seen.append((x[rest], y[rest]))
        current = model if number == 0 else carrying.model(model, posteriors[-1])
        posteriors.append(runs.fit(f"task-{number:02d}", current, carrying.rows(seen), method, 2 * number))
        finals.append(posteriors[-1])
        if coreset is not None:
            pairs = [(t.data[0][rows], t.data[1][rows]) for t, rows in zip(tasks, kept, strict=False)]
            rows = tuple(np.concatenate(parts) for parts in zip(*pairs, strict=True))
            name, last = f"coreset-{number:02d}", updated_model(posteriors[-1])
            finals[-1] = runs.fit(name, last, rows, last_method, 2 * number + 1)
        for s, other in enumerate(tasks[: number + 1]):
            prediction: Any = finals[-1].predict(other.test[0], num_samples=num_samples)
            accuracy[number, s] = np.mean(prediction.labels == other.test[1])
    return ContinualResult(tuple(posteriors), tuple(finals), accuracy, tuple(kept))


class _Runs:
    """Fits with keys and folders of their own, of which those that are there already go on."""

    def __init__(self, key: Any, directory: Path | None, progress: bool | None):
        self._key, self._directory, self._progress = key, directory, progress

    def seed(self, number: int) -> int:
        """For what is drawn on the host."""
        return int(jax.random.randint(jax.random.fold_in(self._key, 10_000 + number), (), 0, 2**31 - 1))

    def fit(self, name: str, model: Model, data: Any, method: AbstractMethod | str, number: int) -> AbstractPosterior:
        place = None if self._directory is None else self._directory / name
        if place is not None and RunDirectory(place).finished:  # its data may be gone
            return load(place, model=as_method(method).prepare_model(model))
        if place is not None and RunDirectory(place).begun:
            return resume(place, model=model, data=data, progress=self._progress)
        key = jax.random.fold_in(self._key, number)
        return fit(model, data, method, key=key, directory=place, progress=self._progress)


def _check(model: Any, tasks: Any, coreset: Any, carrying: Any) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"model must be an mx.Model, got {type(model).__name__}")
    if not len(tasks) or not all(isinstance(task, Task) for task in tasks):
        raise TypeError("tasks must be one or more mx.continual.Task(data, test)")
    if not all(np.issubdtype(task.data[1].dtype, np.integer) for task in tasks):
        raise ValueError("tasks must be about labels: y must be whole numbers")
    for name, value, kind, example in (
        ("coreset", coreset, AbstractCoreset | None, "mx.continual.RandomCoreset(200)"),
        ("carrying", carrying, AbstractCarrying, "mx.continual.AsPrior()"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be an object such as {example}, got {value!r}")

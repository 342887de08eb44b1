"""Methods side by side: the same model, data, seed and budget; what each is worth, and what it costs."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from marginax._keys import Key, as_key
from marginax.data import AbstractSource, Arrays, as_arrays
from marginax.evaluate.costs import Costs
from marginax.evaluate.out_of_distribution import AbstractOODScore, Entropy, Std, separate
from marginax.evaluate.score import AbstractScore, Score, registered_scores
from marginax.evaluate.table import scores as scores_of
from marginax.files import FileError, RunDirectory, register
from marginax.files.disk import well_formed
from marginax.infer import AbstractMethod, TimeLimit, fit, resume
from marginax.infer.catalogue import as_method
from marginax.infer.launching import AbstractLauncher, check_launched
from marginax.model import Model
from marginax.posterior import AbstractPosterior, describe, load

PathLike = str | os.PathLike[str]

_BETTER = {"seconds": "less", "predict_seconds": "less", "megabytes": "less", "num_stored": "less", "ood": "more"}


@register("comparison/row")
class ComparisonRow(eqx.Module):
    """What one method is worth, and what it costs.

    Attributes:
        method: its configuration in words.
        scores: on the test data, as `mx.evaluate.scores` gives them.
        ood: how often an input from elsewhere scores higher than a test input; None if there were none.
        seconds: wall time of the fit, compilation included.
        predict_seconds: of the predictions at the test data.
        megabytes: by which the memory of the process grew at most meanwhile; None where the system does not say. Memory
            that earlier methods left behind is used again, and not counted.
        num_stored: numbers that the posterior consists of.
        warnings: from the fit.
        failure: what went wrong, if there is no posterior.
    """

    method: str
    scores: dict[str, AbstractScore]
    ood: Score | None
    seconds: float
    predict_seconds: float
    megabytes: float | None
    num_stored: int
    warnings: tuple[str, ...] = ()
    failure: str | None = None


class Comparison(Mapping[str, ComparisonRow]):
    """Methods by name, in the order they were given; print it.

    Attributes:
        rows: by name.
        posteriors: by name; a method that failed has none.
        test: what they were judged by.
        heading: the first line.
    """

    def __init__(
        self, rows: dict[str, ComparisonRow], posteriors: dict[str, AbstractPosterior], test: Arrays, heading: str
    ):
        self.rows, self.posteriors, self.test, self.heading = rows, posteriors, test, heading

    def __getitem__(self, name: str) -> ComparisonRow:
        if name not in self.rows:
            raise KeyError(f"{name!r} is not in this comparison: the names are {', '.join(self.rows)}")
        return self.rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def values_of(self, column: str) -> dict[str, float]:
        """A score, `ood`, `seconds`, `predict_seconds`, `megabytes` or `num_stored`, of the methods that have it."""
        found = {}
        for name, row in self.rows.items():
            value = row.scores.get(column, None if row.failure else getattr(row, column, None))
            if value is not None:
                found[name] = float(value)
        if not found:
            raise ValueError(f"column must be a score or a cost of these methods, got {column!r}")
        return found

    def best(self, column: str = "nll") -> str:
        """The method of the best value: least of a loss or a cost, most of accuracy, auroc and ood."""
        pick, values = max if better_of(column) == "more" else min, self.values_of(column)
        return pick(values, key=lambda name: values[name])

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Names of columns, and a line of cells for each method."""
        judged_by = {name for row in self.rows.values() for name in row.scores}
        shown = [name for name in registered_scores("comparison") if name in judged_by]
        has_ood = any(row.ood is not None for row in self.rows.values())
        header = ["method", *shown, *(["ood auroc"] if has_ood else []), "seconds", "MB", "numbers"]
        lines = []
        for name, row in self.rows.items():
            if row.failure is not None:
                lines.append([name, f"failed: {row.failure}", *[""] * (len(header) - 2)])
                continue
            judged = [_cell(row.scores.get(score)) for score in shown] + ([_cell(row.ood)] if has_ood else [])
            memory = "" if row.megabytes is None else f"{row.megabytes:.0f}"
            lines.append([name, *judged, f"{row.seconds:.1f}", memory, f"{row.num_stored:,}"])
        return header, lines

    def __repr__(self) -> str:
        header, lines = self.table()
        whole = [line for line in [header, *lines] if not line[1].startswith("failed: ")]
        widths = [max(len(line[i]) for line in whole) for i in range(len(header))]
        widths[0] = max(len(line[0]) for line in [header, *lines])
        text = [self.heading]
        for line in [header, *lines]:
            if line[1].startswith("failed: "):
                text.append(f"{line[0]:<{widths[0]}}  {line[1]}")
            else:
                rest = (f"{cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
                text.append("  ".join([f"{line[0]:<{widths[0]}}", *rest]))
        return "\n".join(text)

    def save(self, path: PathLike) -> None:
        """Write the table, the test data and all posteriors to a new directory; `load_comparison` reads them."""
        files = _directory(path)
        with files.owned():
            files.create({"test": self.test, "heading": self.heading})
            for name, row in self.rows.items():
                posterior = self.posteriors.get(name)
                if posterior is not None:
                    posterior.save(files.run(name).posterior)
                files.add(name, row)


def better_of(column: str) -> str:
    """Whether less or more of a score or a cost is better; an error where there is no best.

    >>> better_of("accuracy"), better_of("seconds")
    ('more', 'less')
    """
    known = {name: entry.better for name, entry in registered_scores().items()} | _BETTER
    if known.get(column) is None:
        raise ValueError(f"column must be one that has a best, such as nll or seconds, got {column!r}")
    return str(known[column])


def compare(
    model: Model,
    data: Any,
    methods: Sequence[AbstractMethod | str] | Mapping[str, AbstractMethod | str],
    *,
    test: Any,
    key: Key,
    seconds: float | None = None,
    x_ood: Any = None,
    ood_score: AbstractOODScore | None = None,
    num_samples: int | None = None,
    directory: PathLike | None = None,
    progress: bool | None = None,
    callback: Callable[[str], None] | None = None,
    launcher: AbstractLauncher | None = None,
) -> Comparison:
    """Fit every method to the same data, from the same seed, in the same time; judge all by the same test data.

    A method that fails is in the table with its error, and the others go on. Ctrl-C ends the comparison with the
    methods that are done.

    Args:
        model: network, likelihood and prior.
        data: as in `mx.fit`.
        methods: from `mx.infer`, or their names, such as "nuts"; or a dict of names and methods.
        test: a pair (x, y) in the units of the data.
        key: int seed or JAX key.
        seconds: for each method, kept by `mx.infer.TimeLimit`; by default every method has its own budget.
        x_ood: inputs from elsewhere, to see whether they are told apart from the test data.
        ood_score: by which; `Entropy()` of classes and `Std()` of numbers by default.
        num_samples: networks to average over, as in `posterior.predict`.
        directory: where to keep it: the same call goes on with what is not done yet, and `load_comparison` reads it.
        progress: show progress bars; by default at a terminal and in a notebook.
        callback: called with the name of each method before it starts.
        launcher: run the chains of each method as tasks elsewhere, as in `mx.fit`; `seconds` is then left out.

    >>> import marginax as mx
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> y = 3 * x[:, 0] + 0.1 * np.random.default_rng(0).normal(size=40)
    >>> model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.1))
    >>> methods = ["map", mx.infer.Laplace()]
    >>> comparison = mx.evaluate.compare(model, (x[::2], y[::2]), methods, test=(x[1::2], y[1::2]), key=0)
    >>> list(comparison), comparison["MAP"].num_stored  # a slope and an intercept
    (['MAP', 'Laplace'], 2)
    """
    named = _named(methods)
    if not isinstance(model, Model):
        raise TypeError(f"model must be an mx.Model, got {type(model).__name__}")
    if seconds is not None and not seconds > 0:
        raise ValueError(f"seconds must be > 0 or None, got {seconds}")
    if ood_score is not None and x_ood is None:
        raise ValueError(f"x_ood must be inputs from elsewhere where ood_score is given, got None with {ood_score!r}")
    if launcher is not None:
        check_launched(launcher, directory, ())
        if launcher.num_processes > 1:
            raise ValueError("launcher must be that of one process, such as mx.launch.Dask: hosts cannot share a table")
        if seconds is not None:
            raise ValueError(f"seconds must be left out with a launcher, whose tasks know no clock, got {seconds:g}")
    key = as_key(key)
    judged = as_arrays(test, name="test")
    data = data if isinstance(data, AbstractSource) else as_arrays(data)
    budget = "each with its own budget" if seconds is None else f"{seconds:g} s for each"
    heading = f"{len(judged.x)} test rows; {budget}"
    files = None if directory is None else _directory(directory)
    with contextlib.nullcontext() if files is None else files.owned():
        rows: dict[str, ComparisonRow] = {}
        posteriors: dict[str, AbstractPosterior] = {}
        if files is not None:
            compared = {"model": model, "data": data, "key": key, "methods": named, "test": judged, "seconds": seconds}
            files.create({"test": judged, "heading": heading}, inputs=compared)
            rows, posteriors = _done(files, model)
        left = {name: method for name, method in named.items() if name not in rows}
        for name, method in left.items():
            if callback is not None:
                callback(name)
            try:
                with Costs() as costs:
                    posterior = _fitted(model, data, method, key, seconds, name, files, progress, launcher)
                if not posterior.record.finished:
                    break
                rows[name] = _judged(posterior, costs, judged, x_ood, ood_score, num_samples)
                posteriors[name] = posterior
            except KeyboardInterrupt:
                break
            except FileError:  # of the directory, and not of the method
                raise
            except (ValueError, TypeError, ArithmeticError, MemoryError, NotImplementedError) as error:
                text = str(error).splitlines()[0] if str(error) else type(error).__name__
                rows[name] = ComparisonRow(describe(method), {}, None, 0.0, 0.0, None, 0, (), text)
            if files is not None:
                files.add(name, rows[name])
    if rows and all(row.failure is not None for row in rows.values()):
        name, row = next(iter(rows.items()))
        raise ValueError(f"methods all failed, {name} with: {row.failure}")
    return Comparison({name: rows[name] for name in named if name in rows}, posteriors, judged, heading)


def load_comparison(path: PathLike, *, model: Model | None = None) -> Comparison:
    """Read what `Comparison.save` or `compare(..., directory=...)` wrote.

    Args:
        path: the directory.
        model: needed only if its network is a class or function of yours that is not registered.
    """
    files = _directory(path)
    with well_formed(path):
        setup = files.read()
        return Comparison(*_done(files, model), setup.get("test", of=Arrays), setup.get("heading", of=str))


def _directory(path: PathLike) -> RunDirectory:
    """Its setup has test data and heading; a row is a line of the table, a fit within it the run of a method."""
    instead = "choose another (it is not empty, or of other data, methods or seed)"
    return RunDirectory(Path(path), "comparison", "mx.evaluate.compare", instead, kind="comparison")


def _done(files: RunDirectory, model: Model | None) -> tuple[dict[str, ComparisonRow], dict[str, AbstractPosterior]]:
    """Lines of the methods that are done, and their posteriors."""
    rows = files.rows(of=ComparisonRow)
    names = [name for name, row in rows.items() if row.failure is None]
    return rows, {name: _loaded(files.run(name), model) for name in names}


def _loaded(run: RunDirectory, model: Model | None) -> AbstractPosterior:
    return load(run.posterior, model=model) if model is None or not run.begun else resume(run.path, model=model)


def _named(methods: Any) -> dict[str, AbstractMethod]:
    if isinstance(methods, Mapping):
        named = {name: as_method(method) for name, method in methods.items()}
    else:
        several = isinstance(methods, Sequence) and not isinstance(methods, str)
        methods = [as_method(method) for method in (methods if several else [methods])]
        classes = [type(method).__name__ for method in methods]
        names = [
            describe(method) if isinstance(method, AbstractMethod) and classes.count(kind) > 1 else kind
            for method, kind in zip(methods, classes, strict=True)
        ]
        if len(set(names)) < len(names):
            raise ValueError(f"methods must differ, got {', '.join(names)}: give them names in a dict")
        named = dict(zip(names, methods, strict=True))
    if not named or not all(isinstance(method, AbstractMethod) for method in named.values()):
        raise TypeError(f"methods must be objects such as mx.infer.MAP(), at least one, got {methods!r}")
    return named


def _fitted(
    model: Model,
    data: Any,
    method: AbstractMethod,
    key: Any,
    seconds: float | None,
    name: str,
    files: RunDirectory | None,
    progress: bool | None,
    launcher: AbstractLauncher | None,
) -> AbstractPosterior:
    hooks = [] if seconds is None else [TimeLimit(float(seconds))]
    run = None if files is None else files.run(name)
    if run is not None and run.begun:
        return resume(run.path, model=model, progress=progress, launcher=launcher)
    directory = None if run is None else run.path
    options = {"hooks": hooks, "directory": directory, "progress": progress, "launcher": launcher}
    return fit(model, data, method, key=key, **options)


def _judged(
    posterior: AbstractPosterior,
    costs: Costs,
    test: Arrays,
    x_ood: Any,
    ood_score: AbstractOODScore | None,
    num_samples: int | None,
) -> ComparisonRow:
    y = np.asarray(test.y)
    with Costs() as predicting:
        prediction = posterior.predict(test.x, num_samples=num_samples)
        table = scores_of(prediction, y)
    found = None
    if x_ood is not None:
        score = ood_score or (Entropy() if prediction.outcome.is_class else Std())
        found = separate(score.scores(posterior, test.x), score.scores(posterior, x_ood)).auroc
    growth = [part.megabytes for part in (costs, predicting) if part.megabytes is not None]
    return ComparisonRow(
        posterior.record.method,
        dict(table),
        found,
        max(costs.seconds, sum(posterior.record.seconds.values())),  # the latter if it was resumed
        predicting.seconds,
        max(growth, default=None),
        num_stored(posterior),
        posterior.record.warnings,
    )


def num_stored(posterior: AbstractPosterior) -> int:
    """Numbers that a posterior consists of, besides those of its model: draws, or means and covariances."""
    fields = [name for name in posterior.__dataclass_fields__ if name not in ("model", "spec", "record", "key")]
    leaves = jax.tree.leaves([getattr(posterior, name) for name in fields])
    return sum(int(np.size(leaf)) for leaf in leaves if hasattr(leaf, "shape"))


def _cell(score: AbstractScore | None) -> str:
    return "" if score is None else score.text

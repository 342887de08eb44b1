"""What an experiment is given to work with, and the record that it leaves.

FOLDER/record.json    the table, settings, seconds: all figures of the documentation come from here
FOLDER/picture.png
FOLDER/run/           fits, values and seconds, so that the same command goes on where it was ended
"""

import io
import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from marginax import __version__
from marginax.evaluate.score import mean_score
from marginax.files import FileError, RunDirectory
from marginax.files.single import write_bytes, write_text
from marginax.infer import fit, resume
from marginax.posterior import AbstractPosterior, load

RECORD, PICTURE, RUN = "record.json", "picture.png", "run"
_SECONDS = "seconds"


@dataclass(frozen=True)
class Row:
    """A figure, here and elsewhere.

    Args:
        what: was measured.
        ours: the figure.
        standard_error: of it, over examples or repetitions.
        published: the figure that it stands beside.
        source: where that was published.
        lower_is_better: or higher.
        seconds: of fitting.
        error_of_runs: standard error over runs with other seeds, where the first is over examples. Published figures of
            the same examples share what these have by chance, so that it alone decides the verdict.
        compared: whether there is a verdict. Small budgets have none, nor has what differs in more than is measured:
            other data, another size, one run.
    """

    what: str
    ours: float
    standard_error: float | None = None
    published: float | None = None
    source: str = ""
    lower_is_better: bool = True
    seconds: float = 0.0
    error_of_runs: float | None = None
    compared: bool = True

    @classmethod
    def of_runs(cls, what: str, values: Any, *beside: Any, **options: Any) -> "Row":
        """The mean of values (run, example), with its error over examples, and over runs where there are several.

        A published figure of the same examples is compared by runs, so one run has no verdict.

        >>> row = Row.of_runs("error", [[0, 1, 1, 2], [1, 2, 2, 3]], 1.6, "a book")
        >>> row.ours, round(row.standard_error, 2), row.error_of_runs, row.verdict
        (1.5, 0.41, 0.5, 'matched')
        """
        values = np.asarray(values, np.float64)
        error = mean_score(values.mean(0), name=what).standard_error
        of_runs = mean_score(values.mean(1), name=what).standard_error if len(values) > 1 else None
        options = {"error_of_runs": of_runs, "compared": of_runs is not None} | options
        return cls(what, float(values.mean()), error, *beside, **options)

    @property
    def verdict(self) -> str:
        """How it compares with what was published, within two standard errors.

        >>> Row("error", 1.2, 0.1, published=1.3).verdict, Row("error", 1.6, 0.1, published=1.3).verdict
        ('matched', 'not reached')
        """
        if self.published is None or not self.compared:
            return ""
        gap = (self.published - self.ours) * (1 if self.lower_is_better else -1)
        error = 2 * ((self.standard_error if self.error_of_runs is None else self.error_of_runs) or 0.0)
        return "better" if gap > error else "matched" if gap >= -error else "not reached"

    @property
    def error(self) -> str:
        """Its standard errors in words.

        >>> Row("error", 1.5, 0.1).error, Row("error", 1.5, 0.1, error_of_runs=0.02).error, Row("error", 1.5).error
        ('0.1', '0.1, of runs 0.02', '')
        """
        text = "" if self.standard_error is None else f"{self.standard_error:.2g}"
        return text if self.error_of_runs is None else f"{text}, of runs {self.error_of_runs:.2g}".removeprefix(", ")


@dataclass(frozen=True)
class Record:
    """What came out.

    Args:
        name: of the experiment.
        budget: small or full.
        rows: the table.
        settings: of the budget.
        remarks: what was tried, on which rows, and what else a reader should know.
        curves: lists of numbers by name, such as a score against time.
        date: of the end.
        machine: that it ran on.
        seconds: that all of it took, in one session or several; 0 where that was not kept.
        version: of this package.
    """

    name: str
    budget: str
    rows: tuple[Row, ...]
    settings: Mapping[str, Any]
    remarks: tuple[str, ...] = ()
    curves: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    version: str = ""

    def __post_init__(self):
        if self.budget == "small":
            object.__setattr__(self, "rows", tuple(replace(row, compared=False) for row in self.rows))

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """As `to_json` wrote it.

        >>> record = Record("it", "small", (Row("error", 1.2, 0.1, published=1.3),), {"hidden": (10, 10)})
        >>> Record.from_json(record.to_json()).rows == record.rows
        True
        """
        tree = json.loads(text)
        rows = tuple(Row(**{name: value for name, value in row.items() if name != "verdict"}) for row in tree["rows"])
        return cls(**tree | {"rows": rows, "remarks": tuple(tree["remarks"])})

    @classmethod
    def read(cls, folder: Path) -> "Record | None":
        """That of a folder, or None where there is none."""
        path = folder / RECORD
        if not path.is_file():
            return None
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FileError(f"{path}: damaged, or no record of an experiment ({error}): remove it") from error

    def row(self, what: str) -> Row:
        """That of a name."""
        return next(row for row in self.rows if row.what == what)

    def to_json(self) -> str:
        """All of it, with a verdict for each row."""
        if bad := [row.what for row in self.rows if not math.isfinite(row.ours)]:
            raise ValueError(f"{bad[0]} is not a finite number: there is nothing to record")
        tree = asdict(self) | {"rows": [asdict(row) | {"verdict": row.verdict} for row in self.rows]}
        return json.dumps(tree, indent=1, allow_nan=False) + "\n"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines, for people; where a figure was published is said by a number, that of its source."""
        header, sources = ["", "ours", "+-", "published", "", "seconds"], self.sources
        return header, [
            [
                row.what,
                f"{row.ours:.4g}",
                row.error,
                "" if row.published is None else f"{row.published:g} ({sources.index(row.source) + 1})",
                row.verdict,
                f"{row.seconds:.0f}",
            ]
            for row in self.rows
        ]

    @property
    def sources(self) -> list[str]:
        """Where the published figures are from."""
        return list(dict.fromkeys(row.source for row in self.rows if row.published is not None))

    @property
    def notes(self) -> list[str]:
        """What stands below the table: numbered sources, and remarks."""
        return [*(f"({i}) {source}" for i, source in enumerate(self.sources, start=1)), *self.remarks]


@dataclass(frozen=True)
class Workbench:
    """What an experiment works with: what it has done already is not done again.

    Args:
        run: where fits and values are kept.
        settings: of the budget.
        progress: as in `mx.fit`.
        callback: takes a sentence for people.
        note: is called when something has been done, so that its seconds are not lost.
        warnings: of fits, with the names of these.
    """

    run: RunDirectory
    settings: Mapping[str, Any]
    progress: bool | None
    callback: Callable[[str], None]
    note: Callable[[], Any] = lambda: None
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def fit(self, name: str, model: Any, data: Any, method: Any, *, key: int, **options: Any) -> AbstractPosterior:
        """`mx.fit`, or the posterior of that name that is there, or the rest of a fit that was ended.

        A finished one is kept without its data: forty fits to all digits would be 8 GB.
        """
        place = self.run.run(name)
        if place.finished:
            posterior = load(place.posterior)
        elif place.begun:
            posterior = resume(place.path, progress=self.progress)
        else:
            self.callback(f"fitting {name}")
            posterior = fit(model, data, method, key=key, directory=place.path, progress=self.progress, **options)
        self._keep(name, (posterior,), (place,))
        return posterior

    def keep_all(self, name: str, posteriors: Sequence[AbstractPosterior]) -> None:
        """The same of fits that something else has made, in folders within that of the name."""
        paths = self.run.run(name).path.iterdir()
        self._keep(name, posteriors, [RunDirectory(path) for path in paths if path.is_dir()])

    def _keep(self, name: str, posteriors: Sequence[AbstractPosterior], places: Sequence[RunDirectory]) -> None:
        """Of fits that have finished results and warnings; one that has not ends the experiment here."""
        if not all(posterior.record.finished for posterior in posteriors):
            raise KeyboardInterrupt
        for place in places:
            place.keep_result()
        for posterior in posteriors:
            for text in posterior.record.warnings:
                self.warnings.setdefault(text, []).append(name)
        self.note()

    def measure(self, name: str, function: Callable[[], Any]) -> Any:
        """The value of a function, or the one of that name that is there: numbers, lists and dicts of them."""
        rows = self.run.rows()
        if name not in rows:
            self.callback(f"measuring {name}")
            self.run.add(name, function())
            self.note()
        return self.run.rows()[name]

    @property
    def remarks(self) -> list[str]:
        """What fits have warned of."""
        return [f"Warning of {_some(names)}: {text}" for text, names in self.warnings.items()]

    def seconds(self, posterior: AbstractPosterior) -> float:
        """That a fit took, compilation included."""
        return float(sum(posterior.record.seconds.values()))


def _some(names: Sequence[str], most: int = 3) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


@dataclass(frozen=True)
class Experiment:
    """One published result.

    Args:
        name: of its command.
        title: in words.
        settings: of each budget.
        run: takes a workbench and gives rows, remarks, curves, and a picture of matplotlib.
        lesson: of a classic: what its picture shows, in a sentence of a course.
    """

    name: str
    title: str
    settings: Mapping[str, Mapping[str, Any]]
    run: Callable[[Workbench], tuple[list[Row], list[str], dict[str, Any], Any]]
    lesson: str = ""


def reproduce(
    experiment: Experiment,
    folder: Path,
    budget: str = "small",
    *,
    progress: bool | None = None,
    callback: Callable[[str], None] = lambda text: None,
) -> Record:
    """Run an experiment, or go on with it, and leave table, picture and record in a folder."""
    if budget not in experiment.settings:
        raise ValueError(f"budget must be one of {', '.join(experiment.settings)}, got {budget!r}")
    settings = experiment.settings[budget]
    remedy = "choose another --out, or remove it"
    run = RunDirectory(folder / RUN, "reproduction", "marginax reproduce", remedy, kind="reproduction")
    began = time.monotonic()
    with run.owned():
        inputs = {"experiment": experiment.name, "budget": budget, "settings": dict(settings), "version": __version__}
        run.create({}, inputs=inputs)
        earlier = (run.value(_SECONDS) or {_SECONDS: 0.0})[_SECONDS]

        def note() -> float:
            seconds = earlier + time.monotonic() - began
            run.replace(_SECONDS, {_SECONDS: seconds})
            return seconds

        bench = Workbench(run, settings, progress, callback, note)
        try:
            rows, remarks, curves, figure = experiment.run(bench)
        finally:
            seconds = note()
    callback(f"done, {seconds - earlier:.0f} s now")
    record = Record(
        experiment.name,
        budget,
        tuple(rows),
        dict(settings),
        (*remarks, *bench.remarks),
        curves,
        date=datetime.now(UTC).date().isoformat(),
        machine={"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()},
        seconds=seconds,
        version=__version__,
    )
    write_text(folder / RECORD, record.to_json())
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, bbox_inches="tight")
    write_bytes(folder / PICTURE, picture.getvalue())
    return record

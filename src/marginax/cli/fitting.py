"""`marginax fit` and `marginax resume`: from a file of data to a run with scores and a report."""

import ast
import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from marginax.cli.output import INTERRUPTED, Clock, Debug, Json, Output, Quiet, table

Data = Annotated[Path, typer.Argument(help="A table: CSV or the like, with a header.", show_default=False)]
Target = Annotated[str, typer.Option("--target", "-t", help="The column to predict.", show_default=False)]
Task = Annotated[str | None, typer.Option(help="regression or classification; else what the target looks like.")]
Likelihood = Annotated[
    str | None, typer.Option("--likelihood", "-l", help="gaussian, student_t, poisson, ...; else that of the task.")
]
Ignore = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
RunPath = Annotated[Path, typer.Argument(help="A directory that `marginax fit` made.", show_default=False)]


def fit(
    data: Data,
    target: Target,
    method: Annotated[str, typer.Option("--method", "-m", help="auto, or a name from `marginax methods`.")] = "auto",
    likelihood: Likelihood = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run, new or empty; else DATA-run.")] = None,
    task: Task = None,
    ignore: Ignore = None,
    test_fraction: Annotated[float, typer.Option(help="Rows to hold out, at random, to judge by.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Of the split and of the fit.")] = 0,
    hidden: Annotated[str, typer.Option(help="Widths of the hidden layers.")] = "16,16,16",
    chains: Annotated[int | None, typer.Option(help="Independent runs; else what the method does by itself.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="NAME=VALUE: a setting of the method; may be repeated.")
    ] = None,
    level: Annotated[float, typer.Option(help="Probability of intervals.")] = 0.9,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit a Bayesian network to a table, judge it on held-out rows and write a report.

    Nothing is lost when it is interrupted: `marginax resume` goes on.
    """
    output = Output(quiet, json, debug)
    clock = Clock()
    with output.speaking():
        from marginax.cli.runs import FIT, HeldOut, fit_of, free_directory, split

        if not 0 < level < 1:
            raise ValueError(f"--level must be strictly between 0 and 1, got {level:g}")
        kind, given, found = read_with_task(data, target, task, likelihood, ignore)
        for note in found.notes:
            output.note(note)
        held_out = split(found.y, task=str(found.task), fraction=test_fraction, seed=seed)
        estimator = kind(
            method=with_options(method, option or []),
            hidden=widths(hidden),
            likelihood=given,
            num_chains=chains,
            random_state=seed,
            progress=output.progress,
        )
        directory = out or free_directory(data)
        rows = f"{held_out.sum():,} of {len(held_out):,} rows, chosen at random with seed {seed}, are held out."
        output.note(f"Predicting {target!r} ({found.task}); {rows}")
        command = shlex.join(["marginax", *sys.argv[1:]])
        kept = HeldOut(found.x[held_out], found.y[held_out], target, command, data.name, level, found.written)
        kept.save(directory)
        clock.note("start")
        try:
            with _interruptible(directory):
                estimator.fit(found.x[~held_out], found.y[~held_out], directory=directory / FIT)
        finally:
            if not fit_of(directory).exists:
                kept.remove(directory)
        output.note(estimator.reason_)
        _finish(estimator, kept, directory, output, clock)


def read_with_task(
    data: Path, target: str, task: str | None, likelihood: str | None, ignore: list[str] | None = None
) -> tuple[Any, Any, Any]:
    """The kind of estimator, the likelihood that was named, if any, and the table; the likelihood may tell the task."""
    from marginax.data import read_table
    from marginax.estimators import BayesianClassifier, BayesianRegressor, likelihood_named

    given = None if likelihood is None else likelihood_named(likelihood)
    if task is None and given is not None:
        task = "classification" if given.outcome(1).is_class else "regression"
    found = read_table(data, target, task=task, ignore=ignore or ())
    return (BayesianRegressor if found.task == "regression" else BayesianClassifier), given, found


def resume(run: RunPath, quiet: Quiet = False, json: Json = False, debug: Debug = False) -> None:
    """Go on with a fit that was interrupted; the result is that of an uninterrupted one."""
    output = Output(quiet, json, debug)
    clock = Clock()
    with output.speaking():
        from marginax import estimators
        from marginax.cli.runs import FIT, HeldOut

        kept = HeldOut.load(run)
        clock.note("start")
        with _interruptible(run):
            estimator = estimators.resume(run / FIT, progress=output.progress)
        _finish(estimator, kept, run, output, clock)


@contextlib.contextmanager
def _interruptible(directory: Path) -> Iterator[None]:
    """Ctrl-C says how to go on, if there is something to go on with."""
    from marginax.cli.runs import fit_of

    try:
        yield
    except KeyboardInterrupt:
        if not fit_of(directory).exists:
            raise
        raise _stopped(directory) from None


def _stopped(directory: Path) -> typer.Exit:
    typer.echo(f"interrupted: `marginax resume {shlex.quote(str(directory))}` goes on", err=True)
    return typer.Exit(INTERRUPTED)


def _finish(estimator: Any, kept: Any, directory: Path, output: Output, clock: Clock) -> None:
    """Scores on the held-out rows and the report, or how to go on."""
    from marginax.cli.judging import judge, write_run_report

    if not estimator.posterior_.record.finished:
        raise _stopped(directory)
    clock.note("fit")
    scores = judge(estimator, kept.x, kept.y, kept.level)
    clock.note("judge")
    report = write_run_report(estimator, kept, directory / "report.html", output)
    for warning in estimator.posterior_.summary().warnings:
        output.note(f"warning: {warning}")
    clock.note("report")
    values = {
        "run": str(directory),
        "report": str(report),
        "method": estimator.posterior_.record.method,
        "seconds": clock.total,
        "seconds_by_part": clock.parts,
        "held_out_rows": len(kept.y),
        "scores": scores.as_json(),
    }
    output.result(values, table(("score", "held out"), scores.rows(), caption=scores.caption))
    if not (output.json or output.quiet):
        typer.echo(f"time    {clock}\nrun     {directory}\nreport  {report}")


def with_options(method: str, options: list[str]) -> Any:
    """A method by its name with some of its settings, or the name alone.

    >>> with_options("map", ["num_epochs=20"]).num_epochs
    20
    """
    if not options:
        return method
    if method == "auto":
        raise ValueError("--option needs a method to set something of: choose one by --method")
    import dataclasses

    from marginax.estimators import method_named

    chosen = method_named(method)
    names = [field.name for field in dataclasses.fields(chosen)]
    given = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            raise ValueError(f"--option must be NAME=VALUE with a name out of {', '.join(names)}, got {text!r}")
        try:
            given[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise ValueError(f"--option {name} must be a number, True, False or None, got {value!r}") from None
    return dataclasses.replace(chosen, **given)


def widths(text: str) -> tuple[int, ...]:
    """Widths of layers.

    >>> widths("50, 50"), widths("")
    ((50, 50), ())
    """
    try:
        widths = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        widths = (0,)
    if any(width < 1 for width in widths):
        raise ValueError(f"--hidden must be widths such as 50,50, got {text!r}")
    return widths

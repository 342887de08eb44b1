"""`marginax compare`: several methods on one table."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from marginax.cli.fitting import Data, Likelihood, Prior, SplitBy, Target, Task, TestFraction, read_with_task
from marginax.cli.output import Debug, Json, Output, Quiet, table

_METHODS = "map,laplace,mc_dropout,ivon,deep_ensemble,mile"


def compare(
    data: Data,
    target: Target,
    methods: Annotated[str, typer.Option("--methods", "-m", help="Names from `marginax methods`.")] = _METHODS,
    likelihood: Likelihood = None,
    prior: Prior = None,
    seconds: Annotated[float | None, typer.Option(help="For each method; else each takes what it needs.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the comparison; else DATA-comparison.")] = None,
    task: Task = None,
    test_fraction: TestFraction = 0.2,
    split_by: SplitBy = None,
    seed: Annotated[int, typer.Option(help="Of the split and of the fits.")] = 0,
    hidden: Annotated[str, typer.Option(help="Widths of the hidden layers.")] = "16,16,16",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit several methods to a table, judge them on the same held-out rows and write a report.

    The same command with the same --out goes on with what is not done yet.
    """
    output = Output(quiet, json, debug)
    with output.speaking():
        from marginax import evaluate
        from marginax.cli.judging import scores_as_json, targets_of
        from marginax.cli.runs import free_directory
        from marginax.cli.settings import prior_named, widths
        from marginax.cli.splitting import split
        from marginax.estimators import method_named
        from marginax.report import write_comparison

        names = [name.strip() for name in methods.split(",") if name.strip()]
        chosen = [method_named(name) for name in names]
        kind, given, found = read_with_task(data, target, task, likelihood)
        for note in found.notes:
            output.note(note)
        split_of = split(found, split_by, fraction=test_fraction, seed=seed)
        held_out = split_of.held_out
        estimator = kind(hidden=widths(hidden), likelihood=given, prior=prior_named(prior), random_state=seed)
        model, arrays = estimator.prepare(found.x[~held_out], found.y[~held_out])
        test = (estimator.encoder_.encode(found.x[held_out]), targets_of(estimator, found.y[held_out]))
        output.note(f"Predicting {target!r} ({found.task}) by {len(chosen)} methods; {split_of}")
        directory = out or free_directory(data, "comparison")
        again = f"the same command with --out {shlex.quote(str(directory))} goes on"
        output.remedies.append(again)
        comparison = evaluate.compare(
            model,
            arrays,
            chosen,
            test=test,
            key=seed,
            seconds=seconds,
            directory=directory,
            progress=output.progress,
            callback=output.note,
        )
        if len(comparison) < len(chosen):
            output.remedies.append(f"{len(comparison)} of {len(chosen)} methods are done, {again}")
            raise KeyboardInterrupt
        command = shlex.join(["marginax", *sys.argv[1:]])
        title = f"{target}, predicted from {data.name} by {len(comparison)} methods"
        report = write_comparison(directory / "report.html", comparison, title=title, command=command)
        values = {
            name: {
                "method": row.method,
                "seconds": row.seconds,
                "failure": row.failure,
                "scores": scores_as_json(row.scores),
            }
            for name, row in comparison.items()
        }
        output.result({"comparison": str(directory), "report": str(report), "methods": values}, _shown(comparison))
        if not (json or quiet):
            typer.echo(f"report  {report}")


def _shown(comparison: Any) -> Any:
    """The main columns; the report has all."""
    from marginax.evaluate import registered_scores

    header, lines = comparison.table()
    shown = {"method", *registered_scores("headline"), "seconds"}  # what 80 columns hold
    places = [i for i, name in enumerate(header) if name in shown]
    rows = [[line[i] for i in places] for line in lines if comparison[line[0]].failure is None]
    failed = [f"{name} failed: {row.failure}" for name, row in comparison.items() if row.failure is not None]
    return table([header[i] for i in places], rows, caption="\n".join([comparison.heading, *failed]))

"""`marginax fit` and `marginax resume`: from a file of data to a run with scores and a report."""

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from marginax.cli.output import Debug, Json, Output, Quiet, table

Data = Annotated[
    Path,
    typer.Argument(
        help="A table: CSV or the like (also .gz), Parquet or Excel; or a folder of images.", show_default=False
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        help="Of images: a table of file names and labels; else images are of the class of their folder.",
        show_default=False,
    ),
]
Label = Annotated[
    str | None, typer.Option(help="The column of --labels to predict, where there are several.", show_default=False)
]
ImageSize = Annotated[
    str | None,
    typer.Option(
        help="Pixels that images are resized to, 32 or 32x48; else their own, at most 64.", show_default=False
    ),
]
Target = Annotated[str, typer.Option("--target", "-t", help="The column to predict.", show_default=False)]
TargetOrNone = Annotated[str | None, typer.Option("--target", "-t", help="The column to predict.", show_default=False)]
Annotators = Annotated[
    str | None,
    typer.Option(
        help="In place of --target, columns of labels of it by several people who err: a,b,c.", show_default=False
    ),
]
NoisyLabels = Annotated[
    bool,
    typer.Option("--noisy-labels", help="Labels may be wrong: learn how often, and say which.", show_default=False),
]
Unlabelled = Annotated[
    float | None,
    typer.Option(
        help="Use rows without a label, which prefer sure predictions with this weight; else they are left out."
    ),
]
Task = Annotated[str | None, typer.Option(help="regression or classification; else what the target looks like.")]
Likelihood = Annotated[
    str | None, typer.Option("--likelihood", "-l", help="gaussian, student_t, poisson, ...; else that of the task.")
]
Prior = Annotated[
    str | None, typer.Option("--prior", "-p", help="normal, laplace, horseshoe, ... with a scale: 'normal(0.5)'.")
]
SplitBy = Annotated[
    str | None,
    typer.Option(help="time:COLUMN holds out the latest rows, group:COLUMN whole groups; else rows at random."),
]
TestFraction = Annotated[float, typer.Option(help="Rows to hold out to judge by.")]
Ignore = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
_HIDDEN = "16,16,16"
RunPath = Annotated[Path, typer.Argument(help="A directory that `marginax fit` made.", show_default=False)]


def fit(
    data: Data,
    target: TargetOrNone = None,
    method: Annotated[str, typer.Option("--method", "-m", help="auto, or a name from `marginax methods`.")] = "auto",
    likelihood: Likelihood = None,
    prior: Prior = None,
    labels: Labels = None,
    label: Label = None,
    image_size: ImageSize = None,
    annotators: Annotators = None,
    noisy_labels: NoisyLabels = False,
    unlabelled: Unlabelled = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run, new or empty; else DATA-run.")] = None,
    task: Task = None,
    ignore: Ignore = None,
    test_fraction: TestFraction = 0.2,
    split_by: SplitBy = None,
    all_rows: Annotated[
        bool, typer.Option("--all-rows", help="After judging, fit all rows, and predict by that fit.")
    ] = False,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for a fit; what is drawn by then is the posterior.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the split and of the fit.")] = 0,
    hidden: Annotated[
        str | None, typer.Option(help="Widths of the hidden layers; else 16,16,16, for images 128.")
    ] = None,
    chains: Annotated[int | None, typer.Option(help="Independent runs; else what the method does by itself.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="NAME=VALUE: a setting of the method; may be repeated.")
    ] = None,
    level: Annotated[float, typer.Option(help="Probability of intervals.")] = 0.9,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit a Bayesian network to a table or to a folder of images, judge it on held-out rows and write a report.

    Nothing is lost when it is interrupted: `marginax resume` goes on.
    """
    given = dict(locals())
    if data.is_dir():
        output = Output(quiet, json, debug)
        with output.speaking():
            from marginax.cli.imaging import fit_images

            fit_images(data, labels, given, output)
        return
    for name in ("labels", "label", "image_size"):
        if given[name] is not None:
            raise typer.BadParameter(f"--{name.replace('_', '-')} is for a folder of images, {data} is none")
    if target is None and annotators is None:
        raise typer.BadParameter(
            "--target names the column to predict, --annotators columns of labels of it, got neither"
        )
    output = Output(quiet, json, debug)
    with output.speaking():
        from marginax.cli.fingerprints import fingerprints
        from marginax.cli.labelling import read_labelled, say_missing
        from marginax.cli.runs import FIT, HeldOut, fit_of, free_directory, run_directory
        from marginax.cli.settings import prior_named, widths, with_options
        from marginax.cli.splitting import split

        if not 0 < level < 1:
            raise ValueError(f"--level must be strictly between 0 and 1, got {level:g}")
        if time_limit is not None and not time_limit > 0:
            raise ValueError(f"--time-limit must be > 0 seconds, got {time_limit:g}")
        chosen_prior = prior_named(prior)
        how = {"annotators": annotators, "noisy": noisy_labels, "unlabelled": unlabelled}
        kind, chosen_likelihood, found = read_labelled(data, target, task, likelihood, ignore, **how)
        for note in found.notes:
            output.note(note)
        say_missing(found, output)
        chosen = split(found, split_by, fraction=test_fraction, seed=seed)
        estimator = kind(
            method=with_options(method, option or []),
            hidden=widths(_HIDDEN if hidden is None else hidden),
            likelihood=chosen_likelihood,
            prior=chosen_prior,
            num_chains=chains,
            time_limit=time_limit,
            random_state=seed,
            progress=output.progress,
        )
        directory = out or free_directory(data)
        target = "label" if target is None else target
        output.note(f"Predicting {target!r} ({found.task}); {chosen}")
        command = shlex.join(["marginax", *sys.argv[1:]])
        held_out = chosen.held_out
        train = found.x[~held_out], found.y[~held_out]
        kept = HeldOut(
            found.x[held_out],
            found.y[held_out],
            target,
            command,
            data.name,
            level,
            found.written,
            seen=fingerprints(*train, found.x),
            train=train if all_rows else None,
            fitted=train if chosen_likelihood is not None and chosen_likelihood.may_be_wrong else None,
            rows=found.rows[held_out],
            fitted_rows=found.rows[~held_out],
        )
        with run_directory(directory).owned():
            kept.save(directory)
            output.clock.note("start")
            try:
                with finishing(directory, output):
                    estimator.fit(*train, directory=directory / FIT)
            finally:
                if not fit_of(directory).exists:
                    output.remedies.append("nothing is kept yet, the same command begins again")
                    kept.remove(directory)
            output.note(estimator.reason_)
            _finish(estimator, kept, directory, output)


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
    with output.speaking():
        from marginax import estimators
        from marginax.cli.image_runs import holds_images
        from marginax.cli.imaging import resume_images
        from marginax.cli.runs import FIT, HeldOut, fit_of, run_directory
        from marginax.files import FileError

        if holds_images(run):
            resume_images(run, output)
            return
        kept = HeldOut.load(run)
        if not fit_of(run).exists:
            raise FileError(f"{run} was ended before there was anything to keep: `{kept.command}` begins again")
        output.clock.note("start")
        with run_directory(run).owned():
            with finishing(run, output):
                estimator = estimators.resume(run_directory(run).at(FIT), progress=output.progress)
            _finish(estimator, kept, run, output)


@contextlib.contextmanager
def finishing(directory: Path, output: Output) -> Iterator[None]:
    """While a run is fitted: an interrupt says how to go on."""
    with _without_warnings(), output.resumable(_how_to_go_on(directory)):
        yield


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Of chains: they are said at the end, in the words of the command line."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _how_to_go_on(directory: Path) -> str:
    return f"`marginax resume {shlex.quote(str(directory))}` goes on"


def _finish(estimator: Any, kept: Any, directory: Path, output: Output) -> None:
    """Scores on the held-out rows, the report and, where asked for, the fit of all rows; or how to go on."""
    from marginax.cli.judging import judge, write_run_report
    from marginax.cli.labelling import shown_labels, write_labels
    from marginax.cli.runs import report_of
    from marginax.evaluate.remedies import COMMAND_LINE
    from marginax.posterior.summary import summarise

    clock = output.clock
    output.remedies.append(_how_to_go_on(directory))
    if not estimator.posterior_.record.finished:
        raise KeyboardInterrupt
    clock.note("fit")
    scores = judge(estimator, kept.x, kept.y, kept.level)
    clock.note("judge")
    labels = write_labels(estimator, kept, directory)
    report = write_run_report(estimator, kept, directory, report_of(directory), output)
    for warning in summarise(estimator.posterior_, COMMAND_LINE).warnings:
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
    } | labels
    rows = ""
    if kept.train is not None:
        num = _fit_all_rows(estimator, kept, directory, output)
        clock.note("fit of all rows")
        values |= {"seconds": clock.total, "fitted_rows": num}
        rows = f"rows    all {num:,} are fitted now; scores and report are of the fit without those held out\n"
    output.result(values, table(("score", "held out"), scores.rows(), caption=scores.caption))
    if labels and not output.json:
        output.show(shown_labels(labels, kept.level))
    if not (output.json or output.quiet):
        rows += f"labels  {labels['labels']}\n" if labels else ""
        typer.echo(f"{rows}time    {clock}\nrun     {directory}\nreport  {report}")


def _fit_all_rows(estimator: Any, kept: Any, directory: Path, output: Output) -> int:
    """The same method fitted to all rows, or what is left of it; how many rows those are."""
    from sklearn.base import clone

    from marginax import estimators
    from marginax._extras import require
    from marginax.cli.runs import ALL_ROWS, fit_of, run_directory

    concat = require("pandas").concat
    x, y = (concat(parts, ignore_index=True) for parts in zip(kept.train, (kept.x, kept.y), strict=True))
    output.note(f"Fitting all {len(y):,} rows.")
    begun = fit_of(directory, ALL_ROWS).exists
    with _without_warnings():
        if begun:
            final = estimators.resume(run_directory(directory).at(ALL_ROWS), progress=output.progress)
        else:
            final: Any = clone(estimator)
            final.set_params(method=estimator.method_).fit(x, y, directory=directory / ALL_ROWS)
    if not final.posterior_.record.finished:
        raise KeyboardInterrupt
    return len(y)

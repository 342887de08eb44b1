"""`marginax predict`, `evaluate` and `report`: what to do with a run."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from marginax._extras import require
from marginax.cli.fitting import Label, Labels, RunPath
from marginax.cli.output import Debug, Json, Output, Quiet, table

_BLOCK = 4096
Level = Annotated[float | None, typer.Option(help="Probability of intervals; else that of the fit.")]


def predict(
    run: RunPath,
    data: Annotated[
        Path, typer.Argument(help="Rows to predict, with the columns of the fit, or a folder.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="File to write; else standard output.")] = None,
    level: Level = None,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict new rows: a CSV with mean, standard deviation and interval, or probabilities, label and entropy.

    Columns that the fit does not use (names, numbers of rows) come first, as they are.
    """
    output = Output(quiet, json, debug)
    with output.speaking():
        from marginax.cli.image_runs import holds_images
        from marginax.cli.imaging import predict_images
        from marginax.cli.runs import HeldOut
        from marginax.data import read_table

        if holds_images(run):
            _give(predict_images(run, data, output), out, output)
            return
        kept = HeldOut.load(run)
        estimator = _load(run, kept)
        found = read_table(data, written=kept.written)
        rows = found.select(estimator.feature_names_in_)
        others = found.x.drop(columns=[*rows.columns, *(set(kept.columns) & set(found.x.columns))])  # who the rows are
        others = others.reset_index(drop=True)  # a sheet with an empty row counts it
        parts = []
        with output.counting("predict", len(rows)) as advance:
            for start in range(0, len(rows), _BLOCK):
                part = rows.iloc[start : start + _BLOCK]
                parts.append(_columns(estimator, part, kept.level if level is None else level))
                advance(len(part))
        predicted = require("pandas").concat(parts, ignore_index=True)
        _give(require("pandas").concat([others, predicted], axis=1), out, output)


def evaluate(
    run: RunPath,
    data: Annotated[
        Path, typer.Argument(help="Rows with their targets, not those of the fit, or a folder.", show_default=False)
    ],
    labels: Labels = None,
    label: Label = None,
    level: Level = None,
    training_rows: Annotated[
        bool, typer.Option("--training-rows", help="Judge rows that the run was trained on, too.")
    ] = False,
    truth: Annotated[
        str | None, typer.Option(help="A column of true labels to judge by, where those of the fit may be wrong.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Judge a run on further rows whose targets are known.

    Rows that were in training are known again and left out.
    """
    output = Output(quiet, json, debug)
    with output.speaking():
        import numpy as np

        from marginax.cli.image_runs import holds_images
        from marginax.cli.imaging import evaluate_images
        from marginax.cli.judging import judge
        from marginax.cli.runs import HeldOut
        from marginax.data import read_table

        if holds_images(run):
            if truth is not None:
                raise ValueError("--truth is for tables: --labels names the labels of images")
            evaluate_images(run, data, labels, label, training_rows, level, output)
            return
        if labels is not None or label is not None:
            raise ValueError("--labels and --label are for runs of images")
        kept = HeldOut.load(run)
        estimator = _load(run, kept)
        found = read_table(data, written=kept.written)
        name = kept.target if truth is None else truth
        x, y = found.select(estimator.feature_names_in_), _targets(found, kept, truth)
        missing = y.isna() if y.ndim == 1 else y.isna().all(axis=1)
        if missing.any():
            output.note(f"note: {missing.sum():,} of {len(y):,} rows have no {name!r} and are left out")
            x, y = x[~missing], y[~missing]
        if not len(y):
            raise ValueError(f"{name!r} is missing in all rows of {data}: there is nothing to judge by")
        given = y if truth is None else _targets(found, kept, None, known=False)
        seen = np.zeros(len(y), bool) if given is None else kept.was_seen(x, given.loc[y.index])
        if seen.all() and not training_rows:
            raise ValueError(f"all {len(y):,} rows of {data} were in training: pass others, or --training-rows")
        if seen.any():
            those = "all of them" if training_rows else f"the other {np.sum(~seen):,} (--training-rows: for all)"
            output.note(f"note: {seen.sum():,} of {len(y):,} rows were in training; scores are for {those}")
            x, y = (x, y) if training_rows else (x[~seen], y[~seen])
        scores = judge(estimator, x, y, kept.level if level is None else level, truth=truth is not None)
        values = {"run": str(run), "rows": len(y), "training_rows": int(seen.sum()), "scores": scores.as_json()}
        output.result(values, table(("score", data.name), scores.rows(), caption=scores.caption))


def report(
    run: RunPath,
    out: Annotated[Path | None, typer.Option(help="File to write; else report.html in the run.")] = None,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the report of a run again: one HTML file that needs no network."""
    output = Output(quiet, json, debug)
    with output.speaking():
        from marginax.cli.image_runs import holds_images
        from marginax.cli.imaging import report_images
        from marginax.cli.judging import write_run_report
        from marginax.cli.runs import HeldOut, report_of

        path = out or report_of(run)
        if holds_images(run):
            report_images(run, path, output)
        else:
            kept = HeldOut.load(run)
            write_run_report(_load(run, kept, judged=True), kept, run, path, output)
        output.result({"report": str(path)}, str(path))


def _give(found: Any, out: Path | None, output: Output) -> None:
    """Predictions as a file, as JSON or as they come."""
    from marginax.files import write_text

    plain = without_formulas(found)
    if out is not None:
        write_text(out, plain.to_csv(index=False))
        output.result({"rows": len(found), "out": str(out)}, f"{len(found):,} predictions in {out}")
    elif output.json:
        output.result({"rows": len(found), "predictions": found.to_dict("records")}, "")
    else:
        plain.to_csv(sys.stdout, index=False)


def _targets(found: Any, kept: Any, truth: str | None, *, known: bool = True) -> Any:
    """The column to judge by, or those of annotators; None if it need not be there, and is not."""
    from marginax.data.answer_columns import labels_in

    if truth is not None:
        return found.select([truth])[truth]
    if not known and not set(kept.columns) <= set(found.x.columns):
        return None
    columns = found.select(kept.columns)
    return labels_in(columns, kept.columns) if kept.y.ndim == 2 else columns[kept.target]


def _load(run: Path, kept: Any, *, judged: bool = False) -> Any:
    """The fitted estimator that predicts, or the one that was judged; or the advice to finish it."""
    from marginax import estimators
    from marginax.cli.runs import ALL_ROWS, FIT, fit_of, run_directory
    from marginax.files import FileError

    name = FIT if judged or kept.train is None else ALL_ROWS
    if not fit_of(run, name).finished:
        raise FileError(f"{run} is not finished: `marginax resume {run}` goes on")
    return estimators.load(run_directory(run).at(name))


def _columns(estimator: Any, rows: Any, level: float) -> Any:
    """What is predicted for some rows, as columns."""
    import numpy as np

    from marginax.estimators import BayesianClassifier

    prediction = estimator.predict_distribution(rows)
    if isinstance(estimator, BayesianClassifier):
        columns: dict[str, Any] = {"label": estimator.classes_[prediction.labels], "probability": prediction.confidence}
        columns |= {"entropy": prediction.entropy, "epistemic": prediction.epistemic, "aleatoric": prediction.aleatoric}
        columns |= {f"p({name})": prediction.probs[:, i] for i, name in enumerate(estimator.classes_)}
    else:
        lower, upper = prediction.interval(level)
        columns = {"mean": prediction.mean, "std": prediction.std, "lower": lower, "upper": upper}
        columns |= {name: np.sqrt(getattr(prediction, name)) for name in ("epistemic", "aleatoric")}
    return require("pandas").DataFrame({name: with_few_digits(values) for name, values in columns.items()})


def with_few_digits(values: Any) -> Any:
    """Floats to the eight digits that they are good for; labels as they are."""
    return [float(f"{value:.8g}") for value in values] if values.dtype.kind == "f" else values


def without_formulas(frame: Any) -> Any:
    """A table whose texts a spreadsheet does not run: before what would be a formula there is an apostrophe.

    >>> import pandas as pd
    >>> without_formulas(pd.DataFrame({"name": ["=1+1", "plain", "-3"]}))["name"].tolist()
    ["'=1+1", 'plain', '-3']
    """
    types = require("pandas.api.types")

    columns = {}
    for name in frame.columns:
        column = frame[name]
        if not types.is_numeric_dtype(column.dtype) and not types.is_datetime64_any_dtype(column.dtype):
            column = column.map(lambda value: f"'{value}" if isinstance(value, str) and _is_formula(value) else value)
        columns[f"'{name}" if _is_formula(str(name)) else name] = column
    return require("pandas").DataFrame(columns)


def _is_formula(text: str) -> bool:
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False

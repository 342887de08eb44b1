"""`marginax cluster`: from a table to clusters, how many there are, and how sure it is which row is in which."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from marginax._extras import require
from marginax.cli.fitting import Data, Ignore
from marginax.cli.output import Debug, Json, Output, Quiet, table

_STRUCTURES = ("full", "diagonal", "tied", "spherical")


def cluster(
    data: Data,
    most: Annotated[int, typer.Option(help="Numbers of clusters from 1 to this are compared.")] = 8,
    num: Annotated[int | None, typer.Option(help="How many clusters, where that is known.")] = None,
    covariance: Annotated[str, typer.Option(help="Shape of clusters: full, diagonal, tied or spherical.")] = "full",
    out: Annotated[Path | None, typer.Option(help="Directory to write, new or empty; else DATA-clusters.")] = None,
    ignore: Ignore = None,
    seed: Annotated[int, typer.Option(help="Of the restarts.")] = 0,
    chains: Annotated[int, typer.Option(help="Restarts of every number of clusters, of which the best counts.")] = 5,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="NAME=VALUE: a setting of coordinate ascent.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Find clusters in the numbers of a table, by a Bayesian mixture of normal distributions.

    How many there are is chosen by the evidence. A CSV has the cluster of every row and the probabilities of all.
    """
    output = Output(quiet, json, debug)
    with output.speaking():
        from marginax.cli.runs import free_directory
        from marginax.cli.settings import with_options
        from marginax.cli.using import without_formulas
        from marginax.data import read_table
        from marginax.files import write_text
        from marginax.latent import GaussianMixture, choose_size
        from marginax.report import Clusters, write_clusters

        if covariance not in _STRUCTURES:
            raise ValueError(f"--covariance must be one of {', '.join(_STRUCTURES)}, got {covariance!r}")
        for name, value in (("--most", most), ("--chains", chains), ("--num", 1 if num is None else num)):
            if value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        found = read_table(data, ignore=ignore or ())
        for note in found.notes:
            output.note(note)
        numbers, kept = _numbers(found.x, output)
        if len(numbers) < 2:
            raise ValueError(f"{data} must have 2 rows or more with all numbers in them, got {len(numbers)}")
        directory = out or free_directory(data, "clusters")
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ValueError(f"--out must be a new or empty directory, got {directory}")
        values = numbers.to_numpy("float64")
        shift, factor = values.mean(axis=0), values.std(axis=0)
        x = (values - shift) / factor
        sizes = [num] if num is not None else list(range(1, min(most, len(x)) + 1))
        output.clock.note("start")
        method = with_options("coordinate_ascent", option or []) if option else None
        with output.counting("clusters", len(sizes)) as advance:
            choice = choose_size(
                lambda size: GaussianMixture(size, covariance),
                sizes,
                x,
                method,
                key=seed,
                num_chains=chains,
                progress=False,
                callback=lambda _: advance(),
            )
        output.clock.note("fit")
        clusters = Clusters.of(choice, x, shift, factor, [str(name) for name in numbers.columns])
        command = shlex.join(["marginax", *sys.argv[1:]])
        report = write_clusters(directory / "report.html", clusters, title=f"Clusters of {data.name}", command=command)
        assigned = directory / "clusters.csv"
        frame = found.x if found.others is None else require("pandas").concat([found.x, found.others], axis=1)
        write_text(assigned, without_formulas(_assigned(frame, clusters, kept)).to_csv(index=False))
        choice.posterior.save(directory / "posterior")
        output.clock.note("report")
        rows = _rows(clusters)
        results = {
            "clusters": clusters.num,
            "rows": len(x),
            "out": str(assigned),
            "report": str(report),
            "seconds": output.clock.total,
            "bounds": [{"size": row.size, "elbo": row.elbo, "complexity": row.complexity} for row in choice.rows],
            "sizes": [int((clusters.labels == label).sum()) for label in range(clusters.num)],
        }
        output.result(results, table(("cluster", "rows", "sure of 95%"), rows))
        if not (json or quiet):
            typer.echo(f"time    {output.clock}\nrows    {assigned}\nreport  {report}")


def _numbers(frame: Any, output: Output) -> tuple[Any, Any]:
    """The columns that hold different numbers, in the rows that have all of them; and which rows those are."""
    types = require("pandas.api.types")
    names = [name for name in frame.columns if types.is_numeric_dtype(frame[name].dtype)]
    names = [name for name in names if not types.is_bool_dtype(frame[name].dtype)]
    numbers = frame[names].astype(float).replace([float("inf"), float("-inf")], float("nan"))
    useful = [name for name in names if numbers[name].nunique() > 1]
    whole = numbers[useful].dropna()
    useful = [name for name in useful if whole[name].nunique() > 1 or whole.empty]
    left = [str(name) for name in frame.columns if name not in useful]
    if not useful:
        raise ValueError("the table has no column of numbers that differ: clusters are of numbers")
    if left:
        output.note(f"Columns without numbers, or with one only, are left out: {', '.join(left[:20])}")
    kept = numbers[useful].notna().all(axis=1)
    if not kept.all():
        num = int((~kept).sum())
        output.note(f"{num:,} row{'s' * (num > 1)} with missing numbers {'are' if num > 1 else 'is'} left out.")
    return numbers.loc[kept, useful], kept


def _rows(clusters: Any) -> list[tuple[str, str, str]]:
    rows = []
    for label in range(clusters.num):
        inside = clusters.labels == label
        rows.append((clusters.name(label), f"{inside.sum():,}", f"{(clusters.confidence[inside] >= 0.95).mean():.0%}"))
    return rows


def _assigned(frame: Any, clusters: Any, kept: Any) -> Any:
    """The table with cluster, probability and entropy; empty where a row was left out."""
    from marginax.cli.using import with_few_digits

    found = frame.copy()
    columns = {"cluster": clusters.labels + 1, "probability": clusters.confidence, "entropy": clusters.entropy}
    columns |= {f"p({clusters.name(label)})": clusters.probs[:, label] for label in range(clusters.num)}
    for name, values in columns.items():
        free = name + "_" * next(i for i in range(len(frame.columns) + 1) if name + "_" * i not in frame.columns)
        found[free] = require("pandas").Series(with_few_digits(values), index=frame.index[kept])
        if name == "cluster":
            found[free] = found[free].astype("Int64")
    return found

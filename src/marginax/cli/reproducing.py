"""`marginax reproduce`: published results, run again."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from marginax.cli.output import Debug, Json, Output, Quiet, table


def reproduce(
    name: Annotated[str, typer.Argument(help="Of an experiment, or `list`.")],
    budget: Annotated[str, typer.Option(help="small: minutes. full: what the paper did.")] = "small",
    out: Annotated[Path | None, typer.Option(help="Directory; else reproductions/NAME-BUDGET.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Show the picture in the browser.")] = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a published experiment again: a table beside the published figures, a picture, a record.

    The same command goes on with what is not done yet.
    """
    output = Output(quiet, json, debug)
    with output.speaking(compiles=name != "list"):
        from marginax import reproduce as experiments

        if name == "list":
            found = {each: experiments.experiment(each).title for each in experiments.names()}
            output.result({"experiments": found}, "\n".join(f"{each:<20} {title}" for each, title in found.items()))
            return
        chosen = experiments.experiment(name)
        folder = out or Path("reproductions") / f"{name}-{budget}"
        again = f"marginax reproduce {name} --budget {budget} --out {shlex.quote(str(folder))} goes on"
        with output.resumable(again):
            record = experiments.reproduce(
                chosen,
                folder,
                budget,
                progress=output.progress,
                callback=output.note,
            )
        header, lines = record.table()
        caption = "\n".join(record.remarks)
        paths = {"record": str(folder / "record.json"), "picture": str(folder / "picture.png")}
        values = {
            row.what: {"ours": row.ours, "published": row.published, "verdict": row.verdict} for row in record.rows
        }
        output.result({"figures": values, **paths}, table(header, lines, title=chosen.title, caption=caption))
        if not (json or quiet):
            typer.echo("\n".join(f"{kind:<8} {path}" for kind, path in paths.items()))
        if show:
            typer.launch(paths["picture"])

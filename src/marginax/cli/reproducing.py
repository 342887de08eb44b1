"""`marginax reproduce`: published results, run again."""

import shlex
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from marginax.cli.output import Debug, Json, Output, Quiet, say, table

_ROOT = Path("reproductions")
_SERIES = ("classics", "all")


def reproduce(
    name: Annotated[str, typer.Argument(help="Of an experiment, or `classics` or `all` of them, or `list`.")],
    budget: Annotated[str, typer.Option(help="small: minutes. full: what the paper did.")] = "small",
    out: Annotated[
        Path | None,
        typer.Option(help="Directory; else reproductions/NAME-BUDGET. Of several or `list`, the one that holds these."),
    ] = None,
    records: Annotated[
        Path, typer.Option(help="Earlier records, in folders NAME-BUDGET: how long several will take is told by these.")
    ] = Path("docs/reproductions"),
    show: Annotated[bool, typer.Option("--open", help="Show table and picture in the browser.")] = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a published experiment again: a table beside the published figures, a picture, a record.

    The same command goes on with what is not done yet. With --open, what is done is only shown.
    """
    output = Output(quiet, json, debug)
    with output.speaking(compiles=name != "list"):
        if name == "list":
            _list(output, out or _ROOT, records)
        elif name in _SERIES:
            _several(output, name, budget, out or _ROOT, records, show=show)
        else:
            _one(output, name, budget, out or _ROOT / f"{name}-{budget}", show=show)


def _list(output: Output, root: Path, records: Path) -> None:
    """All experiments: title, budgets, and whether a record is there."""
    from marginax import reproduce as experiments
    from marginax.reproduce.series import standing

    found, lines = {}, []
    for name in experiments.names():
        chosen, classic = experiments.experiment(name), name in experiments.classics()
        budgets = {each: standing(root, name, each) or standing(records, name, each) for each in chosen.settings}
        found[name] = {"title": chosen.title, "classic": classic, "budgets": budgets}
        words = ", ".join(f"{each}: {state or 'no record'}" for each, state in budgets.items())
        lines.append([name, "classic" if classic else "", chosen.title, words])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    output.result({"experiments": found}, "\n".join(text))


def _one(output: Output, name: str, budget: str, folder: Path, *, show: bool) -> None:
    """Run one, or with `show` take its record if it is there."""
    from marginax import reproduce as experiments
    from marginax.reproduce.experiment import PICTURE, RECORD
    from marginax.reproduce.series import is_finished

    chosen = experiments.experiment(name)
    record = experiments.Record.read(folder) if show else None
    if record is None or not is_finished(record, chosen, budget):
        with output.resumable(f"marginax reproduce {name} --budget {budget} --out {shlex.quote(str(folder))} goes on"):
            record = experiments.reproduce(chosen, folder, budget, progress=output.progress, callback=output.note)
    header, lines = record.table()
    paths = {"record": str(folder / RECORD), "picture": str(folder / PICTURE)}
    if show:
        paths["page"] = _open({folder: record}, folder / "page.html", chosen.title)
    values = {row.what: {"ours": row.ours, "published": row.published, "verdict": row.verdict} for row in record.rows}
    caption = "\n".join(record.notes)
    output.result({"figures": values, **paths}, table(header, lines, title=chosen.title, caption=caption))
    if not (output.json or output.quiet):
        typer.echo("\n".join(f"{kind:<8} {path}" for kind, path in paths.items()))


def _several(output: Output, name: str, budget: str, root: Path, records: Path, *, show: bool) -> None:
    """Run what is not done of several; exit code 1 if one of them failed."""
    from marginax import reproduce as experiments
    from marginax.reproduce.series import folder_of

    chosen = [
        experiments.experiment(each) for each in (experiments.names() if name == "all" else experiments.classics())
    ]
    if not any(budget in each.settings for each in chosen):
        known = dict.fromkeys(each for one in chosen for each in one.settings)
        raise ValueError(f"budget must be one of {', '.join(known)}, got {budget!r}")
    with output.resumable(f"marginax reproduce {name} --budget {budget} --out {shlex.quote(str(root))} goes on"):
        found, failures = experiments.reproduce_series(
            chosen, root, budget, records=records, progress=output.progress, callback=output.note
        )
    values: dict[str, Any] = {each: _counted(record) for each, record in found.items()}
    lines = [[each, *map(str, counts.values())] for each, counts in values.items()]
    header = ["", "seconds", "better", "matched", "not reached"]
    paths = {}
    if show and found:
        shown = {folder_of(root, each, budget): record for each, record in found.items()}
        paths["page"] = _open(shown, root / f"{name}-{budget}.html", "Published results, run again")
    wrong = {each: say(error) for each, error in failures.items()}
    output.result({"done": values, "failed": wrong, **paths}, table(header, lines))
    for each, why in wrong.items():
        typer.echo(f"error: {each}: {why}", err=True)
    if wrong:
        raise typer.Exit(1)


def _counted(record: Any) -> dict[str, int]:
    """Seconds, and verdicts of the figures that stand beside published ones."""
    verdicts = [row.verdict for row in record.rows]
    counts = {word: verdicts.count(word) for word in ("better", "matched", "not reached")}
    return {"seconds": round(record.seconds), **counts}


def _open(records: Mapping[Path, Any], path: Path, title: str) -> str:
    """Write a page and show it in the browser, where there is one."""
    from marginax.report import write_reproductions

    written = write_reproductions(path, records, title=title)
    webbrowser.open(written.resolve().as_uri())
    return str(written)

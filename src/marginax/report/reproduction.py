"""The page of published results that were run again: the table of each, its picture, and what a reader should know."""

import os
from collections.abc import Mapping
from pathlib import Path

from marginax.evaluate.score import digits
from marginax.report.page import Bitmap, Code, Facts, Items, Section, Table, write_page
from marginax.reproduce import Record, Row, experiment
from marginax.reproduce.experiment import PICTURE


def write_reproductions(path: str | os.PathLike[str], records: Mapping[Path, Record], *, title: str) -> Path:
    """Write records and their pictures as one HTML file, which needs no network.

    Args:
        path: of the file; folders are made.
        records: by the folder that each, and its picture, is in.
        title: at the top.

    Returns:
        The path.
    """
    verdicts = [row.verdict for record in records.values() for row in record.rows if row.verdict]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("better", "matched", "not reached"))
    lead = f"Of {len(verdicts)} figures that are compared with published ones: {counts}." if verdicts else ""
    return write_page(path, title, [_section(folder, record) for folder, record in records.items()], lead=lead)


def _section(folder: Path, record: Record) -> Section:
    title = experiment(record.name).title
    picture = (Bitmap((folder / PICTURE).read_bytes(), title),) if (folder / PICTURE).is_file() else ()
    machine = ", ".join(str(each) for each in record.machine.values())
    facts = {name: str(value) for name, value in record.settings.items()}
    facts |= {"date": record.date, "system, architecture, cores": machine, "seconds in all": f"{record.seconds:.0f}"}
    return Section(
        f"{title}, {record.budget} budget",
        (
            *picture,
            Table.of([_cells(row) for row in record.rows]),
            *((Items(record.remarks),) if record.remarks else ()),
            Facts({name: value for name, value in facts.items() if value}),
            Code(f"marginax reproduce {record.name} --budget {record.budget}"),
        ),
    )


def _cells(row: Row) -> dict[str, str]:
    value, error = (f"{row.ours:.4g}", "") if row.standard_error is None else digits(row.ours, row.standard_error)
    of_runs = "" if row.error_of_runs is None else f" (of runs {row.error_of_runs:.2g})"
    return {
        "what": row.what,
        "ours": f"{value} ± {error}{of_runs}" if error else value + of_runs,
        "published": "" if row.published is None else f"{row.published:g} ({row.source})",
        "verdict": row.verdict,
        "seconds": f"{row.seconds:.0f}" if row.seconds else "",
    }

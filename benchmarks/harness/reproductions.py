"""The pages of docs/reproductions from the records beside them: no figure there is written by hand.

marginax reproduce NAME --out docs/reproductions/NAME-small    a record and its picture
python -m benchmarks figures                                   the pages
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reproductions"
PAGE, PICTURES = FOLDER / "index.md", FOLDER / "pictures.md"
REASONS = FOLDER / "reasons.json"  # why a figure is not reached: {"name, budget: what": "in a sentence"}
OUTDATED = "The settings of this budget have changed since: the command runs other ones than this record was made with."
VERDICTS = ("better", "matched", "not reached")
INTRO = """# Published results, run again

Each of these is one command, `marginax reproduce NAME`, which goes on where it was ended and leaves a table, a picture
and a record. This page is made from the records by `python -m benchmarks figures`, and a test compares the two.
*Better* and *matched* are about two standard errors, over runs where what was published is of the same examples; what
is not reached is shown as not reached, and why, as far as is known. A small budget takes minutes and stands beside
published figures for orientation only, without a verdict; so do single runs, and what differs from what was published
in more than is measured. A small record whose settings have changed since says so, and is to be run again.
"""
INTRO_OF_PICTURES = """# The course in pictures

Pictures that the field's courses show, drawn anew: each by one command, `marginax reproduce NAME`, with the sentence
that it stands for. Their figures are among the [published results](index.md); `make reproduce` draws all of them.
"""


def page(folder: Path = FOLDER) -> str:
    """All records, and first of all what stands beside published figures."""
    records = _records(folder)
    return "\n".join([INTRO, standing(records), *(section(name, record) for name, record in records)])


def pictures(folder: Path = FOLDER) -> str:
    """The classics, in the order of a course: of each its lesson and its picture, that of the largest budget."""
    from marginax.reproduce import classics, experiment

    found = {record["name"]: (place, record) for place, record in reversed(_records(folder))}  # full ones win
    parts = []
    for name in classics():
        chosen = experiment(name)
        parts.append(f"## {chosen.title}\n\n{chosen.lesson}\n")
        if name in found:
            place, record = found[name]
            parts.append(f"![{chosen.title}]({place}/picture.png)\n")
            parts.append(f"`marginax reproduce {name} --budget {record['budget']}`\n")
    return "\n".join([INTRO_OF_PICTURES, *parts])


def standing(records: list[tuple[str, dict[str, Any]]], reasons: dict[str, str] | None = None) -> str:
    """Of each record with verdicts, how many are better, matched, not reached; of the last, which and why.

    Small budgets have no verdicts, and are left out.
    """
    why = json.loads(REASONS.read_text(encoding="utf-8")) if reasons is None else reasons
    lines = ["| | budget | better | matched | not reached |", "|---|---|---|---|---|"]
    missed = ["| not reached | ours | published | why |", "|---|---|---|---|"]
    for _, record in records:
        if record["budget"] == "small":
            continue
        rows = {word: [row for row in record["rows"] if row["verdict"] == word] for word in VERDICTS}
        if any(rows.values()):
            counts = [str(len(rows[word]) or "") for word in VERDICTS]
            lines.append(f"| {record['name']} | {record['budget']} | {' | '.join(counts)} |")
        for row in rows["not reached"]:
            what = f"{record['name']}, {record['budget']}: {row['what']}"
            beside = f"{row['published']:g} ({row['source']})"
            missed.append(f"| {what} | {row['ours']:.4g} | {beside} | {why.get(what, 'not known')} |")
    if len(lines) == 2:
        return "No record of a full budget is kept yet, so nothing is claimed to be reached.\n"
    return "\n".join([*lines, "", *([*missed, ""] if len(missed) > 2 else []), "Small budgets are left out.", ""])


def _records(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    return [(path.parent.name, json.loads(path.read_text())) for path in sorted(folder.glob("*/record.json"))]


def section(folder: str, record: dict[str, Any]) -> str:
    """Title, table, remarks and picture of one record."""
    from marginax.reproduce import experiment

    title = experiment(record["name"]).title
    command = f"`marginax reproduce {record['name']} --budget {record['budget']}`, {record['date']}"
    rows = ["| | ours | standard error | published | | seconds |", "|---|---|---|---|---|---|"]
    for row in record["rows"]:
        published = "" if row["published"] is None else f"{row['published']:g} ({row['source']})"
        verdict = "" if record["budget"] == "small" else row["verdict"]  # earlier records have some
        cells = (row["what"], f"{row['ours']:.4g}", _error(row), published, verdict, f"{row['seconds']:.0f}")
        rows.append(f"| {' | '.join(cells)} |")
    remarks = "\n".join(f"- {remark}" for remark in (*record["remarks"], *([OUTDATED] if is_outdated(record) else [])))
    heading = f"## {title}, {record['budget']} budget"
    return "\n".join([heading, "", *rows, "", remarks, "", command, "", f"![{title}]({folder}/picture.png)", ""])


def is_outdated(record: dict[str, Any]) -> bool:
    """Whether the experiment has other settings now."""
    from marginax.reproduce import experiment
    from marginax.reproduce.series import same_settings

    return not same_settings(record["settings"], experiment(record["name"]).settings.get(record["budget"]))


def _error(row: dict[str, Any]) -> str:
    from marginax.reproduce import Row

    return Row("", row["ours"], row["standard_error"], error_of_runs=row.get("error_of_runs")).error

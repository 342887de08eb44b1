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
VERDICTS = ("better", "matched", "not reached")
INTRO = """# Published results, run again

Each of these is one command, `marginax reproduce NAME`, which goes on where it was ended and leaves a table, a picture
and a record. This page is made from the records by `python -m benchmarks figures`, and a test compares the two.
*Better* and *matched* are about two standard errors; what is not reached is shown as not reached. A small budget takes
minutes and stands beside published figures for orientation only, where it stands beside any.
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


def standing(records: list[tuple[str, dict[str, Any]]]) -> str:
    """Of each record with published figures, how many are better, matched, not reached, and which are not.

    Small budgets stand beside what was published for orientation, and are left out.
    """
    lines = ["| | budget | better | matched | not reached |", "|---|---|---|---|---|"]
    for _, record in records:
        if record["budget"] == "small":
            continue
        rows = {word: [row["what"] for row in record["rows"] if row["verdict"] == word] for word in VERDICTS}
        if any(rows.values()):
            counts = [str(len(rows[word]) or "") for word in VERDICTS]
            if rows["not reached"]:
                counts[-1] += ": " + "; ".join(rows["not reached"])
            lines.append(f"| {record['name']} | {record['budget']} | {' | '.join(counts)} |")
    if len(lines) == 2:
        return "No record of a full budget is kept yet, so nothing is claimed to be reached.\n"
    return "\n".join([*lines, "", "Small budgets are left out.", ""])


def _records(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    return [(path.parent.name, json.loads(path.read_text())) for path in sorted(folder.glob("*/record.json"))]


def section(folder: str, record: dict[str, Any]) -> str:
    """Title, table, remarks and picture of one record."""
    from marginax.reproduce import experiment

    title = experiment(record["name"]).title
    command = f"`marginax reproduce {record['name']} --budget {record['budget']}`, {record['date']}"
    rows = ["| | ours | standard error | published | | seconds |", "|---|---|---|---|---|---|"]
    for row in record["rows"]:
        error = "" if row["standard_error"] is None else f"{row['standard_error']:.2g}"
        published = "" if row["published"] is None else f"{row['published']:g} ({row['source']})"
        cells = (row["what"], f"{row['ours']:.4g}", error, published, row["verdict"], f"{row['seconds']:.0f}")
        rows.append(f"| {' | '.join(cells)} |")
    remarks = "\n".join(f"- {remark}" for remark in record["remarks"])
    heading = f"## {title}, {record['budget']} budget"
    return "\n".join([heading, "", *rows, "", remarks, "", command, "", f"![{title}]({folder}/picture.png)", ""])

"""docs/reproductions/index.md from the records beside it: no figure of that page is written by hand.

marginax reproduce NAME --out docs/reproductions/NAME-small    a record and its picture
python -m benchmarks figures                                   the page
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reproductions"
PAGE = FOLDER / "index.md"
INTRO = """# Published results, run again

Each of these is one command, `marginax reproduce NAME`, which goes on where it was ended and leaves a table, a picture
and a record. This page is made from the records by `python -m benchmarks figures`, and a test compares the two.
*Better* and *matched* are about two standard errors; what is not reached is shown as not reached. A small budget takes
minutes and stands beside published figures for orientation only, where it stands beside any.
"""


def page(folder: Path = FOLDER) -> str:
    """The whole page."""
    records = [(path.parent.name, json.loads(path.read_text())) for path in sorted(folder.glob("*/record.json"))]
    return "\n".join([INTRO, *(section(name, record) for name, record in records)])


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

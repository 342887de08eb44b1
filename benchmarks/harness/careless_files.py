"""Careless files through `marginax fit`, `predict` and `evaluate`."""

import functools
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.careless_case import ANSWER, EITHER, REFUSAL, Answer, Case, Refusal

HEADER = ["size", "town", "price"]
NUM_ROWS = 100
Table = list[list[str]]  # the header first


@functools.cache
def _prices(seed: int = 0) -> tuple[tuple[str, ...], ...]:
    rng = np.random.default_rng(seed)
    size, town = rng.uniform(50, 150, NUM_ROWS), rng.choice(["Oslo", "Rome"], NUM_ROWS)
    price = 3 * size + 40 * (town == "Oslo") + rng.normal(scale=5, size=NUM_ROWS)
    return tuple((f"{s:.2f}", str(t), f"{p:.2f}") for s, t, p in zip(size, town, price, strict=True))


def rows(seed: int = 0) -> Table:
    """Prices that are linear in size and differ by town."""
    return [HEADER, *map(list, _prices(seed))]


def written(table: Table, separator: str = ",", end: str = "\n") -> str:
    """A table as text."""
    return end.join(separator.join(row) for row in table) + end


def cells(change: Any, columns: tuple[int, ...] = (0, 1, 2)) -> Table:
    """Fields below the header, changed: (row, text) -> text."""
    head, *rest = rows()
    return [head, *([change(i, t) if c in columns else t for c, t in enumerate(row)] for i, row in enumerate(rest))]


def file(
    name: str,
    content: str | bytes | None,
    *arguments: str,
    command: str = "fit",
    expect: str = ANSWER,
    mentions: tuple[str, ...] = (),
    warns: tuple[str, ...] = (),
    path: str = "data.csv",
) -> Case:
    """A case of the command line.

    Args:
        name: of the case.
        content: of the file; None if there is none.
        *arguments: further ones; of a fit the target, unless it is given.
        command: fit; predict or evaluate with a run on the table as it should be.
        expect: what is expected.
        mentions: what the message must hold.
        warns: what a note must hold, beside which an answer need only be finite.
        path: of the file in its folder.
    """

    def run(fitted: Any) -> Answer:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, path)
            if content is not None:
                data.write_bytes(content if isinstance(content, bytes) else content.encode())
            if command == "fit":
                aim = () if "--target" in arguments else ("--target", "price")
                return _figures(_invoke("fit", data, *aim, *_cheap(folder), *arguments, "--json"))
            return _figures(_invoke(command, fitted, data, *arguments, "--json"))

    return Case("file", name, run, expect, mentions, warns, _good_run if command != "fit" else (lambda: None))


def _cheap(folder: str) -> tuple[Any, ...]:
    return "--method", "map", "--hidden", "", "--out", Path(folder, "run")


@functools.cache
def _good_run() -> Path:
    """A run that predictions start from, in a folder that lasts as long as the process."""
    _good_run.folder = tempfile.TemporaryDirectory()  # type: ignore[attr-defined]
    folder = _good_run.folder.name  # type: ignore[attr-defined]
    data = Path(folder, "good.csv")
    data.write_text(written(rows()))
    _invoke("fit", data, "--target", "price", *_cheap(folder), "--json")
    return Path(folder, "run")


def _invoke(*arguments: Any) -> dict[str, Any]:
    """What a command prints; a refusal if it ends with another code than 0."""
    from typer.testing import CliRunner

    from marginax.cli import app

    found = CliRunner().invoke(app, [str(each) for each in arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    if found.exit_code == 0:
        shown = json.loads(found.stdout)
        for note in shown["notes"]:
            warnings.warn(note, stacklevel=2)
        return shown
    if "Traceback" in found.stderr or "looks like a bug" in found.stderr:
        raise RuntimeError(found.stderr)
    errors = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    if errors and (len(errors) > 1 or found.stderr.splitlines()[-1] != errors[0]):
        raise RuntimeError(f"more than one line: {found.stderr}")
    raise Refusal(errors[0] if errors else " ".join(found.stderr.split()))


def _figures(shown: dict[str, Any]) -> Answer:
    """The scores of a fit or an evaluation, or the figures of predictions."""
    if "predictions" in shown:
        values = [row[name] for row in shown["predictions"] for name in ("mean", "std", "lower", "upper")]
        return Answer(bool(np.isfinite(np.array(values, np.float64)).all()))
    scores = {name: each["value"] for name, each in shown["scores"].items()}
    finite = bool(np.isfinite(list(scores.values())).all())
    if "rmse" not in scores:
        return Answer(finite)
    prices = np.array([float(row[2]) for row in _prices()])
    constant = 0.5 * np.log(2 * np.pi * prices.var()) + 0.5
    return Answer(finite, constant - scores["nll"], coverage=scores["coverage"], at_least=LEAST_GAIN)


LEAST_GAIN = 1.5
"""Nats over a constant; the line gains about 2.7."""

GOOD = written(rows())
FRESH = written(rows(1))
commas = lambda row, text: text.replace(".", ",")  # noqa: E731

DIALECT = [
    file("in order", GOOD),
    file("byte order mark", b"\xef\xbb\xbf" + GOOD.encode()),
    file("semicolons", written(rows(), ";")),
    file("tabs", written(rows(), "\t")),
    file("bars", written(rows(), "|")),
    file("spaces", written(rows(), "  ")),
    file("comma and blank", written(rows(), ", ")),
    file("semicolons, decimal commas", written(cells(commas), ";")),
    file("quotes", written(cells(lambda _, t: f'"{t}"'))),
    file("quoted decimal commas", written(cells(lambda i, t: f'"{commas(i, t)}"', (0, 2)))),
    file("quotes with separators and line ends", written(cells(lambda i, t: f'"{t}, the\n""old"" town"', (1,)))),
    file("carriage returns", written(rows(), end="\r\n")),
    file("old Macintosh", written(rows(), end="\r")),
    file("no last line end", GOOD.rstrip()),
    file("blank lines", written(rows(), end="\n\n")),
    file("blank lines before the header", "\n\n" + GOOD),
    file("blanks around names", GOOD.replace("size,town,price", " size , town , price ")),
    file("latin-1", GOOD.replace("Oslo", "Tromsø").encode("latin-1")),
    file("UTF-16", GOOD.encode("utf-16")),
    file("thousands", written(cells(lambda _, t: f'"1,{float(t):06.2f}"' if float(t) < 1000 else t, (2,)))),
    file("currency", written(cells(lambda _, t: f"${t}", (2,)))),
    file("units", written(cells(lambda _, t: f"{t} m2", (0,)))),
    file("gaps", written(cells(lambda i, t: "NA" if i % 9 == 0 else t, (0, 1)))),
    file("gaps of all kinds", written(cells(lambda i, t: ["", "?", "NaN", "null", t, t, t, t][i % 8], (1,)))),
    file("a comment on top", "# exported today\n" + GOOD, expect=EITHER, mentions=("data.csv",)),
    file("a title on top", "Prices of houses 2024\n" + GOOD, expect=EITHER, mentions=("data.csv", "not a table")),
    file("a total at the end", GOOD + "Total,,35000\n", warns=("'size'", "'Total'")),
]

BROKEN = [
    file("empty", "", expect=REFUSAL, mentions=("data.csv", "empty")),
    file("blanks only", "  \n \n", expect=REFUSAL, mentions=("data.csv", "empty")),
    file("header only", "size,town,price\n", expect=REFUSAL, mentions=("data.csv", "single line")),
    file("one row", written(rows()[:2]), expect=REFUSAL, mentions=("price",)),
    file("two rows", written(rows()[:3]), expect=EITHER, mentions=("rows",)),
    file("no header", written(rows()[1:]), expect=REFUSAL, mentions=("'price'", "no column")),
    file("rows too long", written(cells(lambda i, t: t + ",x,y" if i == 40 else t, (2,))), expect=REFUSAL,
         mentions=("data.csv", "columns", "42")),
    file("rows too short", GOOD + "120.0\n", expect=EITHER, mentions=("data.csv",)),
    file("a quote that does not end", GOOD.replace("Rome", '"Rome', 1), expect=REFUSAL, mentions=("data.csv",)),
    file("names twice", GOOD.replace("size,town", "size,size", 1), expect=REFUSAL,
         mentions=("data.csv", "'size'", "name of its own")),
    file("a name missing", GOOD.replace("size,town", "size,", 1)),
    file("binary", bytes(range(256)) * 20, expect=REFUSAL, mentions=("data.csv", "not a text file")),
    file("random bytes without zeros", np.random.default_rng(0).integers(1, 256, 5000).astype(np.uint8).tobytes(),
         expect=REFUSAL, mentions=("data.csv",)),
    file("a zip archive", b"PK\x03\x04" + b"\0" * 100, expect=REFUSAL, mentions=("data.csv", "save it as CSV")),
    file("a zero byte", GOOD.replace("Rome", "Ro\0me", 1), expect=EITHER, mentions=("data.csv", "zero byte")),
    file("a huge field", GOOD.replace("Rome", "R" * 10**6, 1), expect=EITHER, mentions=("data.csv",)),
    file("JSON", json.dumps([{"size": 1, "price": 2}] * 50), expect=REFUSAL, mentions=("data.csv",)),
    file("HTML", "<html>\n<body>\nnot found\n</body>\n</html>\n", expect=REFUSAL, mentions=("price",)),
    file("a directory", None, expect=REFUSAL, mentions=("directory",), path="."),
    file("no such file", None, expect=REFUSAL, mentions=("nowhere.csv", "no such file"), path="nowhere.csv"),
    file("odd letters in the path", GOOD, path="préis d'été 🌹.csv"),
]  # fmt: skip

FIT = [
    file("unknown target", GOOD, "--target", "Prize", expect=REFUSAL, mentions=("'Prize'", "did you mean 'price'")),
    file("target in texts, regression", GOOD, "--target", "town", "--task", "regression", expect=REFUSAL,
         mentions=("'town'", "texts", "classification")),
    file("target with gaps", written(cells(lambda i, t: "" if i % 9 == 0 else t, (2,)))),
    file("target empty", written(cells(lambda i, t: "", (2,))), expect=REFUSAL, mentions=("'price'", "missing")),
    file("target constant", written(cells(lambda i, t: "7", (2,))), expect=REFUSAL, mentions=("'price'", "every row")),
    file("target with inf", written(cells(lambda i, t: "inf" if i == 7 else t, (2,))), expect=REFUSAL,
         mentions=("price", "infinit")),
    file("inputs with inf", written(cells(lambda i, t: "inf" if i == 7 else t, (0,))), expect=REFUSAL,
         mentions=("'size'", "infinit")),
    file("target of dates", written(cells(lambda i, t: f"2024-01-{i % 28 + 1:02}", (2,))), expect=REFUSAL,
         mentions=("'price'", "dates")),
    file("target different in every row", written(cells(lambda i, t: f"house {i}", (2,))), expect=REFUSAL,
         mentions=("'price'", "classes")),
    file("no other column", written([[row[2]] for row in rows()]), expect=REFUSAL, mentions=("column",)),
    file("ignored column unknown", GOOD, "--ignore", "garden", expect=REFUSAL, mentions=("ignore", "'garden'")),
    file("a level of 90", GOOD, "--level", "90", expect=REFUSAL, mentions=("--level", "90")),
    file("a method unknown", GOOD, "--method", "magic", expect=REFUSAL, mentions=("method", "magic")),
    file("chains 0", GOOD, "--chains", "0", expect=REFUSAL, mentions=("num_chains", "0")),
    file("a likelihood of classes for prices", GOOD, "--likelihood", "poisson", expect=REFUSAL,
         mentions=("y must", "Poisson")),
]  # fmt: skip

PREDICT = [
    file("predict: in order", FRESH, command="predict"),
    file("predict: another dialect", written(rows(1), ";", "\r\n"), command="predict"),
    file("predict: columns in another order", written([row[::-1] for row in rows(1)]), command="predict"),
    file("predict: a further column", written([[*row, "x"] for row in rows(1)]), command="predict"),
    file("predict: a new town", FRESH.replace("Oslo", "Bergen"), command="predict"),
    file("predict: gaps", FRESH.replace("Oslo", "").replace("Rome", "NA"), command="predict"),
    file("predict: one row", written(rows(1)[:2]), command="predict"),
    file("predict: a column missing", written([row[1:] for row in rows(1)]), command="predict", expect=REFUSAL,
         mentions=("no column 'size'",)),
    file("predict: a column in other letters", FRESH.replace("size", "Size"), command="predict", expect=REFUSAL,
         mentions=("'size'", "did you mean 'Size'")),
    file("predict: texts where numbers were", written([["big", *row[1:]] if i else row for i, row in
         enumerate(rows(1))]), command="predict", expect=REFUSAL, mentions=("'size'", "number")),
    file("predict: header only", "size,town\n", command="predict", expect=REFUSAL, mentions=("data.csv",)),
    file("predict: no such file", None, command="predict", expect=REFUSAL, mentions=("data.csv", "no such file")),
    file("evaluate: in order", FRESH, command="evaluate"),
    file("evaluate: gaps in the target", written([[*row[:2], "" if i % 5 == 1 else row[2]] for i, row in
         enumerate(rows(1))]), command="evaluate"),
    file("evaluate: no target", written([row[:2] for row in rows(1)]), command="evaluate", expect=REFUSAL,
         mentions=("no column 'price'",)),
    file("evaluate: target empty", written([[*row[:2], row[2] if not i else ""] for i, row in enumerate(rows(1))]),
         command="evaluate", expect=REFUSAL, mentions=("'price'", "missing")),
    file("evaluate: target in texts", written([[*row[:2], row[2] if not i else "dear"] for i, row in
         enumerate(rows(1))]), command="evaluate", expect=REFUSAL, mentions=("'price'", "number")),
]  # fmt: skip

CASES = [*DIALECT, *BROKEN, *FIT, *PREDICT]

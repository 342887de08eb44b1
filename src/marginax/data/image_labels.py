"""Labels of images: from a table of file names, joined by name, or from the folders that the images are in."""

import csv
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from marginax.data.dialect import SEPARATORS, find_dialect
from marginax.files import FileError

_MAX_BYTES = 2**28
_NAMED = 5


def labels_of_folders(names: Sequence[str]) -> tuple[list[str | None], list[str]]:
    """The folder that each image is in, None at the top; and what is to be said."""
    labels = [PurePosixPath(name).parent.name or None for name in names]
    if all(label is None for label in labels):
        return labels, []
    without = [name for name, label in zip(names, labels, strict=True) if label is None]
    notes = [f"Labels are the names of the {len(set(labels) - {None}):,} folders that images are in."]
    if without:
        notes.append(f"{counted(without, 'image')} in no folder of a class and left out: {few(without)}.")
    return labels, notes


def labels_of_table(path: Path, names: Sequence[str], column: str | None) -> tuple[list[str | None], list[str]]:
    """The label that a table gives each image, None where it has none; and what is to be said.

    One column holds names of files, with or without folders before and endings behind; the other the labels.

    Args:
        path: of a text file with separators.
        names: of the images, below their folder.
        column: the name of the column of labels; None where there is only one besides that of names.
    """
    header, rows = _read(path)
    places = _places(names)
    files = _column_of_files(path, header, rows, places)
    labels = _column_of_labels(path, header, files, column)
    if header is not None and _place(header[files], places) is not None:
        header, rows = None, [(1, header), *rows]
    found: dict[int, str] = {}
    missing, empty, lines = [], [], {}
    for line, row in rows:
        name, label = row[files].strip(), row[labels].strip()
        place = _place(name, places)
        if place is None:
            missing.append(name)
        elif not label:
            empty.append(name)
        elif found.setdefault(place, label) != label:
            raise FileError(
                f"{path}: line {line} says that {name} is {label!r}, line {lines[place]} that it is {found[place]!r}"
            )
        lines.setdefault(place, line)
    without = [name for i, name in enumerate(names) if i not in found]
    if not found:
        raise FileError(f"{path}: names no image that is there; it begins with {few(missing or empty)}")
    notes = [f"{len(found):,} labels by {path.name}, joined by the names of files."]
    if missing:
        notes.append(f"{counted(missing, 'label')} without a file: {few(missing)}.")
    if without:
        notes.append(f"{counted(without, 'image')} without a label and left out: {few(without)}.")
    return [found.get(i) for i in range(len(names))], notes


def counted(items: Sequence[str], word: str) -> str:
    """How many there are, with their verb.

    >>> counted(["a"], "image"), counted(["a", "b"], "image")
    ('1 image is', '2 images are')
    """
    return f"{len(items):,} {word}{'s are' if len(items) != 1 else ' is'}"


def few(items: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    shown = ", ".join(f"{item:.80}" for item in items[:_NAMED])
    return shown if len(items) <= _NAMED else f"{shown} and {len(items) - _NAMED:,} more"


_Places = dict[str, int]  # a name is -1 where it is that of several images


def _places(names: Sequence[str]) -> _Places:
    """Where images are by their path, by the name of the file and by that without its ending, if they are unique."""
    places: dict[str, set[int]] = defaultdict(set)
    whole = {name: i for i, name in enumerate(names)}
    for i, name in enumerate(names):
        path = PurePosixPath(name)
        for each in (path.name, path.stem, path.with_suffix("").as_posix()):
            places[each].add(i)
    return {name: next(iter(each)) if len(each) == 1 else -1 for name, each in places.items()} | whole


def _place(name: str, places: _Places) -> int | None:
    """Of the image that a cell names; a path may be longer than ours, as seen from elsewhere."""
    parts = PurePosixPath(name.strip().replace("\\", "/")).parts
    for start in range(len(parts)):
        place = places.get("/".join(parts[start:]))
        if place == -1:
            raise FileError(f"{name} is the name of several images: write the folder before it")
        if place is not None:
            return place
    return None


def _read(path: Path) -> tuple[list[str] | None, list[tuple[int, list[str]]]]:
    """The header, if it has one, and the rows with their lines."""
    if path.is_file() and path.stat().st_size > _MAX_BYTES:
        raise FileError(f"{path}: has more than {_MAX_BYTES:,} bytes, too many for labels")
    dialect = find_dialect(path, None, None, None)
    if dialect.compressed or dialect.separator not in SEPARATORS or dialect.separator == r"\s+":
        raise FileError(f"{path}: labels must be a text file with commas, semicolons, tabs or bars, not compressed")
    try:
        with path.open(encoding=dialect.encoding, newline="") as file:
            reader = csv.reader(file, delimiter=dialect.separator)
            rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (csv.Error, UnicodeError) as error:
        raise FileError(f"{path}: not a table ({error})") from None
    width = len(rows[0][1])
    if width < 2:
        raise FileError(f"{path}: must have a column of names of files and one of labels, has {width}")
    for line, row in rows:
        if len(row) != width:
            raise FileError(f"{path}: line {line} has {len(row)} cells, the first has {width}")
    return rows[0][1], rows[1:]


def _column_of_files(path: Path, header: list[str] | None, rows: list[tuple[int, list[str]]], places: _Places) -> int:
    """The column that names most of the images."""
    cells = [row for _, row in rows] + ([header] if header is not None else [])
    counts: Counter[int] = Counter()
    for row in cells:
        counts.update(i for i, cell in enumerate(row) if _is_known(cell, places))
    if not counts:
        raise FileError(f"{path}: no column names images that are there; it begins with {', '.join(cells[0])!r:.120}")
    return counts.most_common(1)[0][0]


def _is_known(cell: str, places: _Places) -> bool:
    try:
        return bool(cell.strip()) and _place(cell, places) is not None
    except FileError:  # known too well
        return True


def _column_of_labels(path: Path, header: list[str] | None, files: int, column: str | None) -> int:
    names = [] if header is None else [name.strip() for name in header]
    if column is not None:
        if column not in names:
            raise FileError(f"{path}: has no column {column!r}, only {', '.join(names)}")
        return names.index(column)
    others = [i for i in range(len(names)) if i != files]
    if len(others) > 1:
        raise FileError(f"{path}: several columns may be the labels ({', '.join(names[i] for i in others)}): say which")
    return others[0]

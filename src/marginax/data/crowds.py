"""Labels by crowds: answers of several people about each item, with the truth to judge them by."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from marginax.data.arrays import as_numeric
from marginax.data.dataset_files import FileSource, find_file, read_npz
from marginax.files import FileError

__all__ = ["CrowdData", "as_answers", "load_crowd", "majority_vote"]

_NOT_ASKED = -1


class CrowdData(NamedTuple):
    """A data set of `load_crowd`.

    Attributes:
        answers: (item, annotator), -1 where an annotator was not asked.
        gold: the true label of each item.
        num_classes: labels are 0..num_classes - 1.
        x: inputs of the items; None where there are none.
        test: inputs and true labels of other items; None where there are none.
        valid: the same for validation.
    """

    answers: Int[np.ndarray, "n a"]
    gold: Int[np.ndarray, " n"]
    num_classes: int
    x: Float[np.ndarray, "n d"] | None = None
    test: tuple[np.ndarray, np.ndarray] | None = None
    valid: tuple[np.ndarray, np.ndarray] | None = None


class _Triples(NamedTuple):
    num_answers: int
    num_items: int
    num_annotators: int


class _Tables(NamedTuple):
    rows: dict[str, int]
    num_features: int
    num_annotators: int
    num_classes: int
    kind: str
    songs: bool


_TRIPLES = {"snow_rte": _Triples(8000, 800, 164), "snow_temp": _Triples(4620, 462, 76)}
_TABLES = {
    "labelme": _Tables({"train": 1000, "valid": 500, "test": 1188}, 512, 59, 8, "f", False),
    "music_genre": _Tables({"train": 700, "test": 300}, 124, 44, 10, "f", True),
}
_ORIGINS = {
    "bluebirds": "labels (108, 39), gold, image_id and worker_id of Welinder et al. (2010), github.com/welinder/cubam",
    "snow_rte": "item, worker, label of 8,000 answers about textual entailment, gold, item_id, of Snow et al. (2008)",
    "snow_temp": "item, worker, label of 4,620 answers about temporal order, gold and item_id, of Snow et al. (2008)",
    "labelme": "x, y of train, valid and test, answers (1000, 59) and class_names of Rodrigues & Pereira (2018)",
    "music_genre": "x, y, song of train and test, answers (700, 44) and class_names of Rodrigues et al. (2013)",
}


def load_crowd(name: str) -> CrowdData:
    """Answers of people on a crowdsourcing platform, with the truth.

    Args:
        name: "bluebirds" (108 pictures of two kinds of birds, 39 people who answered all; Welinder et al., 2010),
            "snow_rte" and "snow_temp" (textual entailment, 800 items, and temporal order, 462, ten answers each; Snow
            et al., 2008), "labelme" (1,000 pictures of 8 kinds of scenes as features of a network, 2.5 answers each,
            with rows for validation and test; Rodrigues & Pereira, 2018), "music_genre" (700 clips of 10 genres as
            features, 4.2 answers each, with test rows; Rodrigues et al., 2013).
    """
    if name not in _ORIGINS:
        raise ValueError(f"name must be one of {', '.join(map(repr, _ORIGINS))}, got {name!r}")
    origin = f"an npz file with the arrays {_ORIGINS[name]}"
    path = find_file("crowd", f"{name}.npz", FileSource(origin=origin))
    if name == "bluebirds":
        shapes = {
            "labels": ((108, 39), "i"),
            "gold": ((108,), "i"),
            "image_id": ((108,), "i"),
            "worker_id": ((39,), "i"),
        }
        arrays = read_npz(path, shapes)
        found = CrowdData(arrays["labels"].astype(np.int32), arrays["gold"].astype(np.int32), 2)
    elif name in _TRIPLES:
        size = _TRIPLES[name]
        shapes = dict.fromkeys(("item", "worker", "label"), ((size.num_answers,), "i"))
        arrays = read_npz(path, {**shapes, "gold": ((size.num_items,), "i"), "item_id": ((size.num_items,), "U")})
        try:
            answers = as_answers(
                arrays["item"],
                arrays["worker"],
                arrays["label"],
                num_items=size.num_items,
                num_annotators=size.num_annotators,
            )
        except ValueError as error:
            raise FileError(f"{path}: damaged ({error})") from None
        found = CrowdData(answers, arrays["gold"].astype(np.int32), 2)
    else:
        size = _TABLES[name]
        shapes = {
            "answers": ((size.rows["train"], size.num_annotators), "i"),
            "class_names": ((size.num_classes,), "U"),
        }
        for part, num in size.rows.items():
            shapes |= {f"x_{part}": ((num, size.num_features), size.kind), f"y_{part}": ((num,), "i")}
            shapes |= {f"song_{part}": ((num,), "U")} if size.songs else {}
        arrays = read_npz(path, shapes)
        x = {part: arrays[f"x_{part}"].astype(np.float32) for part in size.rows}
        y = {part: arrays[f"y_{part}"].astype(np.int32) for part in size.rows}
        valid = (x["valid"], y["valid"]) if "valid" in x else None
        answers = arrays["answers"].astype(np.int32)
        found = CrowdData(answers, y["train"], size.num_classes, x["train"], (x["test"], y["test"]), valid)
        if not all(np.isfinite(part).all() for part in x.values()):
            raise FileError(f"{path}: damaged, x is not finite")
    low, high = found.answers.min(), max(found.answers.max(), found.gold.max())
    if low < _NOT_ASKED or high >= found.num_classes or not (found.answers >= 0).any(axis=1).all():
        raise FileError(f"{path}: damaged, answers must be labels below {found.num_classes}, at least one of each item")
    return found


def as_answers(
    items: Any, annotators: Any, labels: Any, *, num_items: int | None = None, num_annotators: int | None = None
) -> Int[np.ndarray, "n a"]:
    """A list of answers as the matrix that `mx.likelihoods.Annotators` takes: (item, annotator), -1 where not asked.

    Args:
        items: of each answer, the number of the item, from 0.
        annotators: of each answer, the number of the annotator, from 0.
        labels: the answers, from 0.
        num_items: by default one more than the largest.
        num_annotators: by default one more than the largest.

    >>> as_answers([0, 0, 1], [0, 2, 1], [1, 1, 0]).tolist()
    [[1, -1, 1], [-1, 0, -1]]
    """
    columns = {"items": items, "annotators": annotators, "labels": labels}
    arrays = {name: as_numeric(values, name=name) for name, values in columns.items()}
    shapes = {name: values.shape for name, values in arrays.items()}
    if len(set(shapes.values())) > 1 or arrays["items"].ndim != 1:
        raise ValueError(f"items, annotators and labels must be lists of one length, got shapes {shapes}")
    sizes = {"items": num_items, "annotators": num_annotators, "labels": None}
    for name, values in arrays.items():
        size = sizes[name]
        bad = (values < 0) | (values != np.round(values)) | (False if size is None else values >= size)
        if bad.any():
            limit = "whole numbers >= 0" if size is None else f"whole numbers from 0 to {size - 1}"
            raise ValueError(f"{name} must be {limit}, got {values[bad][0]} in place {int(np.argmax(bad))}")
    rows, people, given = (values.astype(np.int64) for values in arrays.values())
    shape = tuple(
        int(each.max()) + 1 if num is None else num for each, num in ((rows, num_items), (people, num_annotators))
    )
    flat = rows * shape[1] + people
    if len(np.unique(flat)) < len(flat):
        values, counts = np.unique(flat, return_counts=True)
        item, person = divmod(int(values[np.argmax(counts)]), shape[1])
        raise ValueError(
            f"annotators answer an item once, but annotator {person} answered item {item} {counts.max()} times: "
            "keep one answer, or give the others a number of annotator of their own"
        )
    matrix = np.full(shape, _NOT_ASKED, np.int32)
    matrix[rows, people] = given
    return matrix


def majority_vote(answers: Any, num_classes: int) -> Float[np.ndarray, "n k"]:
    """Shares of the most frequent answers of each item: 1 for one, 1/2 each where two are equally frequent.

    Args:
        answers: (item, annotator), -1 where not asked.
        num_classes: how many labels there are.

    >>> majority_vote([[1, 1, 0], [0, 1, -1]], 2).tolist()
    [[0.0, 1.0], [0.5, 0.5]]
    """
    answers = as_numeric(answers, name="answers")
    if answers.ndim != 2:
        raise ValueError(f"answers must have shape (n, annotators), got {answers.shape}")
    if answers.max() >= num_classes or answers.min() < _NOT_ASKED:
        raise ValueError(f"answers must be from -1 to {num_classes - 1}, got {answers.min()} to {answers.max()}")
    votes = (answers[:, :, None] == np.arange(num_classes)).sum(axis=1)
    most = votes == votes.max(axis=1, keepdims=True)
    return most / most.sum(axis=1, keepdims=True)

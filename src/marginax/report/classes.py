"""Classes one by one: which are taken for which, and how far each can be trusted."""

import numpy as np

from marginax.evaluate import Proportion
from marginax.report.material import Material
from marginax.report.page import AbstractBlock, Table, Text

_MOST_CLASSES = 12
_UNBALANCED = 1.5  # times as many rows of the commonest class as of the rarest


def class_blocks(material: Material) -> tuple[AbstractBlock, ...]:
    """How often each class was taken for each; where some are rare, precision and recall of each."""
    num = material.num_classes
    if num > _MOST_CLASSES:
        return (Text(f"The table of answers is left out: it would have {num} rows and columns."),)
    counts = np.zeros((num, num), int)
    np.add.at(counts, (np.asarray(material.y, int), material.prediction.labels), 1)
    names = [material.name_class(label) for label in range(num)]
    rows = tuple((names[i], *map(str, counts[i])) for i in range(num))
    caption = "How often each class was observed (rows) and predicted (columns)."
    blocks: list[AbstractBlock] = [Table(("observed", *names), rows, caption=caption)]
    observed = counts.sum(axis=1)
    if observed.max() > _UNBALANCED * observed.min():
        blocks.append(_trust(names, counts))
    return tuple(blocks)


def _trust(names: list[str], counts: np.ndarray) -> Table:
    right, observed, predicted = (part.tolist() for part in (np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)))
    rows = [
        (names[i], str(observed[i]), _share(right[i], predicted[i]), _share(right[i], observed[i]))
        for i in range(len(names))
    ]
    return Table(
        ("class", "rows", "precision", "recall"),
        tuple(rows),
        caption="Precision: of the rows that were predicted to be in a class, how many are. Recall: of the rows that "
        "are, how many were predicted to be. Brackets are 95% intervals.",
    )


def _share(hits: int, num: int) -> str:
    """A share of rows, where there are any.

    >>> _share(9, 10), _share(0, 0)
    ('0.90 [0.60, 0.98]', 'none')
    """
    return Proportion(hits, num).text if num else "none"

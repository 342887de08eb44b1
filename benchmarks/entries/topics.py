"""A pass of variational Bayes for latent Dirichlet allocation: 11,258 documents of 1,995 words, 20 topics.

Against scikit-learn's `LatentDirichletAllocation` on 20 newsgroups, all documents in every pass.
"""

import os
from pathlib import Path
from typing import Any

from benchmarks.harness.entry import Contestant, Entry, Group, Run, Target

NUM_TOPICS = 20


def documents() -> Any:
    """Counts of words, from MARGINAX_DATA."""
    import numpy as np

    stored = np.load(Path(os.environ["MARGINAX_DATA"]) / "text" / "20news_1995words.npz", allow_pickle=False)
    counts = np.zeros((int(stored["train_documents"]), len(stored["vocab"])), np.int32)
    np.add.at(counts, (stored["train_doc"], stored["train_word"]), stored["train_count"])
    return counts[counts.sum(1) > 0]


def marginax() -> Run:
    """Through the public interface."""
    import marginax as mx

    counts, model = documents(), mx.latent.LDA(NUM_TOPICS)

    def run(num_passes: int) -> None:
        mx.fit(model, counts, mx.infer.CoordinateAscent(num_passes, tolerance=0.0), key=0, progress=False)

    return run


def scikit_learn() -> Run:
    """Sparse counts, as it likes them."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import LatentDirichletAllocation

    counts = csr_matrix(documents())

    def run(num_passes: int) -> None:
        LatentDirichletAllocation(NUM_TOPICS, max_iter=num_passes, random_state=0).fit(counts)

    return run


ENTRY = Entry(
    title=f"A pass of variational Bayes over 20 newsgroups, {NUM_TOPICS} topics",
    groups=(
        Group(
            contestants=(
                Contestant("scikit-learn", scikit_learn, (1, 4), packages=("scikit-learn", "numpy")),
                Contestant("marginax", marginax, (1, 4)),
            ),
            targets=(Target("marginax", "scikit-learn", at_most=0.5),),
        ),
    ),
    unit="pass",
)

"""How a missing target is written: -1 where targets are classes, NaN where they are numbers."""

import numpy as np

MISSING = -1
"""The label of a row whose class is not known."""


def describe_missing(y: np.ndarray) -> str:
    """What to do about rows without targets, where they cannot be used.

    >>> describe_missing(np.array([0, -1, 1]))
    '1 of 3 rows have no label (-1), from which an mx.Model learns nothing: leave them out, ...'
    """
    if np.issubdtype(y.dtype, np.floating) and np.isnan(y).any():
        num = int(np.isnan(y.reshape(len(y), -1)).any(axis=1).sum())
        return (
            f"{num} of {len(y)} rows have no target (NaN), from which an mx.Model learns nothing: leave them out, "
            "known = ~np.isnan(y); (x[known], y[known])"
        )
    num = int((y == MISSING).sum())
    return (
        f"{num} of {len(y)} rows have no label ({MISSING}), from which an mx.Model learns nothing: leave them out, "
        f"labelled = y >= 0; (x[labelled], y[labelled]), or learn from them with mx.latent.SemiSupervisedVAE or "
        "mx.likelihoods.EntropyRegularised or ConsistencyRegularised"
    )

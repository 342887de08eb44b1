"""Which model do the data prefer: depth, width and prior by evidence, beside what held-out data say."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginax._keys import Key
from marginax.evaluate.score import Score
from marginax.infer import Laplace, fit
from marginax.model import Model
from marginax.posterior import Gaussian


@dataclass(frozen=True, eq=False)
class EvidenceRow:
    """One model.

    Attributes:
        log_evidence: of the training data, by the Laplace approximation.
        held_out: mean log density of held-out targets, or None.
        num_weights: that are random.
        seconds: for training and curvature.
        posterior: what was fitted.
    """

    log_evidence: float
    held_out: Score | None
    num_weights: int
    seconds: float
    posterior: Gaussian


@dataclass(frozen=True, eq=False)
class EvidenceTable:
    """Models by name, the most probable first; print it.

    Attributes:
        rows: by name, in descending order of evidence.
    """

    rows: dict[str, EvidenceRow]

    @property
    def best(self) -> str:
        """The model of largest evidence."""
        return next(iter(self.rows))

    @property
    def best_held_out(self) -> str:
        """The model that predicts held-out data best."""
        scores = {name: float(row.held_out) for name, row in self.rows.items() if row.held_out is not None}
        if not scores:
            raise ValueError("held_out was not given to compare_evidence, so nothing is known about new data")
        return max(scores, key=lambda name: scores[name])

    @property
    def probs(self) -> dict[str, float]:
        """Posterior probability of each model, if all are equally probable before."""
        logs = np.array([row.log_evidence for row in self.rows.values()])
        weights = np.exp(logs - np.logaddexp.reduce(logs))
        return dict(zip(self.rows, weights.tolist(), strict=True))

    def __repr__(self) -> str:
        width = max(len("model"), *(len(name) for name in self.rows))
        lines = [f"{'model':{width}}  log evidence  probability  held-out log density   weights  seconds"]
        for (name, row), prob in zip(self.rows.items(), self.probs.values(), strict=True):
            held_out = "" if row.held_out is None else f"{row.held_out.value:.3f} ± {row.held_out.standard_error:.3f}"
            lines.append(
                f"{name:{width}}  {row.log_evidence:12.1f}  {prob:11.3f}  {held_out:>20}  "
                f"{row.num_weights:8,}  {row.seconds:7.1f}"
            )
        return "\n".join(lines)


def compare_evidence(
    models: Mapping[str, Model], data: Any, *, key: Key, method: Laplace | None = None, held_out: Any = None
) -> EvidenceTable:
    """Fit every model by a Laplace approximation and compare their evidence.

    The evidence needs no held-out data. It is comparable between models of the same data; it is that of one mode, so a
    model with many modes has more of it than is counted.

    Args:
        models: by name.
        data: as in `mx.fit`.
        key: an int seed or a JAX key.
        method: how the curvature is kept and the prior tuned; `mx.infer.Laplace()` by default.
        held_out: a pair (x, y) to compare with, in the units of the data.

    >>> import marginax as mx
    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> y = x[:, 0] + 0.1 * np.random.default_rng(0).normal(size=60)
    >>> net = mx.nets.MLP(1, (), 1, key=0)
    >>> priors = {"right": mx.priors.Normal(1.0), "too narrow": mx.priors.Normal(0.01)}
    >>> models = {name: mx.Model(net, mx.likelihoods.Gaussian(scale=0.1), prior) for name, prior in priors.items()}
    >>> compare_evidence(models, (x, y), key=0).best
    'right'
    """
    if not isinstance(models, Mapping) or not models or not all(isinstance(m, Model) for m in models.values()):
        raise TypeError(f"models must be a dict of names and mx.Model objects, got {models!r}")
    if method is not None and not isinstance(method, Laplace):
        raise TypeError(f"method must be mx.infer.Laplace(...), which knows the evidence, got {method!r}")
    if held_out is not None and not (isinstance(held_out, tuple | list) and len(held_out) == 2):
        raise ValueError(f"held_out must be a pair (x, y), got {type(held_out).__name__}")
    rows = {}
    for name, model in models.items():
        began = time.perf_counter()
        posterior = fit(model, data, Laplace() if method is None else method, key=key)
        assert isinstance(posterior, Gaussian)
        evidence, seconds = float(posterior.log_evidence()), time.perf_counter() - began
        score = None
        if held_out is not None:
            density = posterior.predict(held_out[0]).log_prob(np.asarray(held_out[1]))
            error = float(np.std(density, ddof=1) / np.sqrt(len(density))) if len(density) > 1 else float("nan")
            score = Score(float(np.mean(density)), error, len(density))
        size = sum(int(np.prod(leaf.shape)) for leaf in model.leaves)
        rows[name] = EvidenceRow(evidence, score, size, seconds, posterior)
    order = sorted(rows, key=lambda name: rows[name].log_evidence, reverse=True)
    return EvidenceTable({name: rows[name] for name in order})

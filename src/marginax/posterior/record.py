"""What is worth remembering of a fit: how it was run, how long it took, what went wrong."""

import dataclasses
from typing import Any

import equinox as eqx
import numpy as np

from marginax.files import register


@register("posterior/record")
class FitRecord(eqx.Module):
    """The story of a fit, kept with its posterior.

    Args:
        method: the method's configuration in words, such as "MAP(num_epochs=100, ...)".
        num_chains: chains that were started.
        num_steps: steps that were run, by phase.
        seconds: wall time by phase, compilation included.
        info: the method's numbers by phase, arrays with axes (chain, step).
        warnings: what the user should know.
        dropped_chains: chains that became NaN and were left out.
        probes: some training inputs (as the model sees them), where predictions of chains are compared.
        rows: some training rows, where a model that has no predictions is looked at in the summary.
        finished: False if it was interrupted before its last step.
        phases: in the order in which they ran, which the keys of a dict lose on their way through JAX.
        configuration: the method itself, by which more data can be taken in; None where it is not known.
    """

    method: str = ""
    num_chains: int = 0
    num_steps: dict[str, int] = eqx.field(default_factory=dict)
    seconds: dict[str, float] = eqx.field(default_factory=dict)
    info: dict[str, dict[str, np.ndarray]] = eqx.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    dropped_chains: tuple[int, ...] = ()
    probes: np.ndarray | None = None
    finished: bool = True
    phases: tuple[str, ...] = ()
    rows: dict[str, np.ndarray] | None = None
    configuration: Any = None

    def in_order(self, by_phase: dict[str, Any]) -> list[tuple[str, Any]]:
        """Items of something by phase, as the phases ran; records of earlier versions do not say how."""
        names = [name for name in self.phases if name in by_phase]
        return [(name, by_phase[name]) for name in (*names, *(name for name in by_phase if name not in names))]


def describe(config: Any) -> str:
    """A configuration in one line, leaving out what is at its default.

    >>> from marginax.infer import MAP
    >>> describe(MAP(num_epochs=3))
    'MAP(num_epochs=3)'
    >>> from marginax.model.likelihoods import Categorical, NoisyLabels
    >>> describe(NoisyLabels(Categorical()))
    'NoisyLabels(likelihood=Categorical(), transition=FullTransition())'
    """
    if isinstance(config, tuple):
        return f"({', '.join(map(describe, config))})"
    if not isinstance(config, eqx.Module):
        if hasattr(config, "item") and getattr(config, "size", 2) == 1:
            return f"{config.item():g}"
        return f"{config:g}" if isinstance(config, float) else repr(config)
    cls = type(config)
    try:
        default = cls()
    except (TypeError, ValueError):  # it has arguments that must be given
        default = None
    parts = []
    for name in (field.name for field in dataclasses.fields(config)):
        text = describe(getattr(config, name))
        if default is None or text != describe(getattr(default, name)):
            parts.append(f"{name}={text}")
    return f"{cls.__name__}({', '.join(parts)})"

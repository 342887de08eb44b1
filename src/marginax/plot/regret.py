"""What it cost not to know: regret of agents and of searches."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marginax.plot.chains import COLORS


def plot_regret(ax: Any, runs: Mapping[str, Any], *, log: bool = False) -> Any:
    """Regret against rounds or evaluations: the mean over repeats, and a band of one standard deviation.

    Args:
        ax: matplotlib Axes, which are returned.
        runs: by name: what `mx.decide.play` or `mx.decide.optimise` gave, or a list of repeats of it.
        log: whether regret is shown on a log scale, where repeats are averaged as logs.

    >>> import matplotlib.pyplot as plt
    >>> import marginax as mx
    >>> bandit = mx.decide.ReplayBandit(np.eye(2), [0, 1])
    >>> runs = [mx.decide.play(bandit, mx.decide.Uniform(), 20, key=i) for i in range(2)]
    >>> ax = plot_regret(plt.figure().gca(), {"uniform": runs})
    >>> ax.get_legend().get_texts()[0].get_text(), len(ax.lines[0].get_xdata())
    ('uniform (2 repeats)', 20)
    """
    if not runs:
        raise ValueError("runs must have at least one entry, got none")
    for i, (name, found) in enumerate(runs.items()):
        repeats = list(found) if isinstance(found, Sequence) else [found]
        if not repeats or not all(hasattr(run, "regret") for run in repeats):
            raise TypeError(f"runs must be results of mx.decide.play or mx.decide.optimise, got {found!r} for {name!r}")
        lengths = {len(run.regret) for run in repeats}
        if len(lengths) > 1:
            raise ValueError(f"runs of {name!r} must have one length, got {sorted(lengths)}")
        values = np.stack([np.asarray(run.regret, float) for run in repeats])
        values = np.log(np.maximum(values, 1e-12)) if log else values
        centre, spread = values.mean(axis=0), values.std(axis=0, ddof=1) if len(repeats) > 1 else 0.0
        back = np.exp if log else np.asarray
        rounds, color = np.arange(1, len(centre) + 1), COLORS[i % len(COLORS)]
        if len(repeats) > 1:
            ax.fill_between(rounds, back(centre - spread), back(centre + spread), color=color, alpha=0.18, lw=0)
        label = f"{name} ({len(repeats)} repeats)" if len(repeats) > 1 else name
        ax.plot(rounds, back(centre), color=color, lw=1.6, label=label)
    ax.set(xlabel="rounds", ylabel="regret")
    if log:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize="small")
    return ax

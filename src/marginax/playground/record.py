"""Record runs of labs for the page on which nothing is computed: `python -m marginax.playground.record FILE`."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marginax.playground.playable import Frame, Playable, Stage, as_json
from marginax.playground.worker import without_nan

RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("functions", {"method": "HMC"}),
    ("functions", {"method": "Laplace"}),
    ("functions", {"method": "DeepEnsemble", "data": "gap", "ask": 0.0, "likelihood": "learned"}),
    ("functions", {"prior_only": True}),
    ("boundaries", {"method": "DeepEnsemble"}),
    ("boundaries", {"method": "Laplace"}),
    ("boundaries", {"method": "HMC", "data": "circles", "hidden": "10"}),
    ("samplers", {"sampler": "HMC", "steps": 300}),
    ("samplers", {"sampler": "NUTS", "steps": 300}),
    ("samplers", {"sampler": "NUTS", "target": "funnel", "steps": 300}),
    ("samplers", {"sampler": "MetropolisHastings", "target": "two_modes", "step_size": 0.5, "steps": 300}),
    ("samplers", {"sampler": "ParallelTempering", "target": "two_modes", "steps": 300}),
    ("variational", {"example": "correlated"}),
    ("variational", {"example": "mixture"}),
    ("variational", {"example": "coin"}),
)
_MOST_STATES, _MOST_MAPS = 16, 5  # a state of maps has tens of thousands of numbers
_DIGITS = 4  # enough for a picture


def record(playable: Mapping[str, Playable], runs: Sequence[tuple[str, dict[str, Any]]] = RUNS) -> dict[str, Any]:
    """Runs as the page would have seen them, with fewer states where states can be left out.

    Args:
        playable: labs by name.
        runs: lab and settings of each.
    """
    from marginax import __version__

    names = dict.fromkeys(name for name, _ in runs)
    labs = [playable[name].lab.described() for name in names]
    return {"version": __version__, "labs": labs, "runs": [_recorded(playable[name], given) for name, given in runs]}


def _recorded(playable: Playable, given: dict[str, Any]) -> dict[str, Any]:
    settings = playable.lab.complete(given)
    playable.check(settings)
    frames: list[Frame] = []
    numbers = playable.run(settings, Stage(frames.append, lambda: None))
    whole = playable.lab.name == "samplers"  # draws come once: every state is needed
    most = _MOST_MAPS if playable.lab.name == "boundaries" else _MOST_STATES
    kept = frames if whole else [frames[i] for i in _spread(len(frames), most)]
    end = {"id": 0, "slot": "a"}
    states = [{"type": "state", **end, **_fields(frame)} for frame in kept]
    started = {"type": "started", **end, "settings": settings}
    done = {"type": "done", **end, "seconds": 0.0, "numbers": without_nan(numbers)}
    return {
        "lab": playable.lab.name,
        "settings": settings,
        "messages": [started, *states, done],
        "code": playable.to_python(settings),
    }


def _fields(frame: Frame) -> dict[str, Any]:
    return {"step": frame.step, "of": frame.of, "phase": frame.phase, "data": _shortened(as_json(frame.data))}


def _shortened(value: Any) -> Any:
    """With fewer digits.

    >>> _shortened({"mean": [1.23457, None, 3]})
    {'mean': [1.235, None, 3]}
    """
    if isinstance(value, dict):
        return {name: _shortened(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_shortened(part) for part in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _spread(count: int, most: int) -> list[int]:
    """Places of at most so many, the first and the last among them.

    >>> _spread(3, 16), _spread(101, 3)
    ([0, 1, 2], [0, 50, 100])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def main() -> None:
    """Write the file."""
    from marginax._compilation import use_compilation_cache
    from marginax.playground.labs import PLAYABLE

    parser = argparse.ArgumentParser(description="Record runs of the playground's labs.")
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    use_compilation_cache()
    path.write_text(json.dumps(record(PLAYABLE), separators=(",", ":"), allow_nan=False), encoding="utf-8")


if __name__ == "__main__":
    main()

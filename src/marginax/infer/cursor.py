"""Where a run stands, as its checkpoints say it: what that can be, and whether what is kept agrees with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from marginax.files import FileError, GrowingFile
from marginax.files.hints import check_document
from marginax.infer.method import Phase

_FIELDS = {
    "phase": int,
    "step": int,
    "stopped": bool | None,  # earlier versions did not keep these two
    "num_devices": int | None,
    "num_steps": dict[str, int],
    "seconds": dict[str, float],
    "bad_chains": dict[str, str],
    "notes": list[str],
}


def check_cursor(
    cursor: dict[str, Any], phases: Sequence[Phase], files: Mapping[str, GrowingFile], num_chains: int
) -> None:
    """Raise FileError if there is no such step, or if what is kept is not what that many steps give."""
    check_document(cursor, _FIELDS, "the checkpoint")
    here, step, num_steps = cursor["phase"], cursor["step"], cursor["num_steps"]
    counts = [*(num_steps.get(phase.name, 0) for phase in phases), 0]
    if not 0 <= here <= len(phases) or step != counts[here] or any(counts[here + 1 :]):
        raise FileError(f"not what marginax writes: step {step} of phase {here}, steps {num_steps}")
    for index, phase in enumerate(phases):
        info, draws = files.get(f"info-{index}"), files.get(f"draws-{index}")
        num = 0 if phase.keep is None else phase.num_kept(counts[index])
        if (info is not None and info.count != counts[index]) or num != (0 if draws is None else draws.count):
            raise FileError(f"not what marginax writes: other draws than {counts[index]} steps of {phase.name} give")
    bad = list(cursor["bad_chains"])
    if not set(bad) < {str(chain) for chain in range(num_chains)}:
        raise FileError(f"not what marginax writes: bad chains {bad} of {num_chains}")

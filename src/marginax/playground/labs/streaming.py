"""A hook that shows where a run stands."""

from collections.abc import Callable
from typing import Any

from jaxtyping import PyTree

from marginax.data import AbstractSource
from marginax.infer import AbstractHook, AbstractMethod, Event, Verdict
from marginax.infer.method import Phase

_STATES_PER_PHASE = 40


class Streaming(AbstractHook):
    """Shows states as they come.

    Args:
        look: is told of every event, and raises to end the run.
        periods: by phase, the steps between two looks; other phases are looked at after every chunk.
    """

    look: Callable[[Event], None]
    periods: dict[str, int]

    def every(self, phase: str, source: AbstractSource) -> int | None:
        return self.periods.get(phase)

    def after_chunk(self, memory: PyTree, event: Event) -> Verdict:
        self.look(event)
        return Verdict(memory, event.states)


def periods_of(method: AbstractMethod, num_examples: int, num_states: int = _STATES_PER_PHASE) -> dict[str, int]:
    """Steps between two looks, so that every phase is seen about so many times."""
    batch_size = min(method.batch_size or num_examples, num_examples)
    phases: tuple[Phase, ...] = method.phases(num_examples, batch_size)
    return {phase.name: max(1, -(-phase.num_steps // num_states)) for phase in phases if phase.num_steps > 1}


def hooks_for(
    method: AbstractMethod, num_examples: int, look: Callable[[Event], None], alive: Callable[[], None]
) -> tuple[Any, ...]:
    """One that looks at exact steps, and one that hears after every chunk whether the run is still wanted."""
    return Streaming(lambda event: alive(), {}), Streaming(look, periods_of(method, num_examples))

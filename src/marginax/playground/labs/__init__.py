"""The labs, in the order of the page's tabs."""

from marginax.playground.labs import boundaries, functions, samplers, variational
from marginax.playground.playable import Playable

_MODULES = (functions, boundaries, samplers, variational)

PLAYABLE: dict[str, Playable] = {module.LAB.name: module.PLAYABLE for module in _MODULES}
"""Labs by name."""

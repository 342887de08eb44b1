"""The labs, in the order of the page's tabs."""

from marginax.playground.labs import functions, samplers
from marginax.playground.labs.lab import Playable

PLAYABLE: dict[str, Playable] = {module.LAB.name: module.PLAYABLE for module in (functions, samplers)}
"""Labs by name."""

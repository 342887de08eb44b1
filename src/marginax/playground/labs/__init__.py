"""The labs, in the order of the page's tabs."""

from marginax.playground.labs import active, boundaries, functions, latent, samplers, variational
from marginax.playground.playable import Playable

_MODULES = (functions, boundaries, samplers, variational, active, latent)

PLAYABLE: dict[str, Playable] = {module.LAB.name: module.PLAYABLE for module in _MODULES}
"""Labs by name."""

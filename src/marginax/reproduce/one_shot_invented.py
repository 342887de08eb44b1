"""The experiment `one-shot` on characters that were invented by `mx.testing.invented_characters`: it needs no file.

Invented drawings vary less than people's, and published figures say nothing about them.
"""

from marginax.reproduce.experiment import Experiment
from marginax.reproduce.one_shot import FULL, SMALL, run

SETTINGS = {name: settings | {"characters": "invented"} for name, settings in (("small", SMALL), ("full", FULL))}

EXPERIMENT = Experiment("one-shot-invented", "More drawings of invented characters that were never seen", SETTINGS, run)

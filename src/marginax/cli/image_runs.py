"""A run of images: which of them are held out and which were fitted, and how it came about."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from marginax.cli.runs import FIT, fit_of, run_directory
from marginax.data import ImageFolder
from marginax.files import FileError
from marginax.files.disk import well_formed


@dataclasses.dataclass(frozen=True)
class ImageRun:
    """What `fit` keeps beside the posterior.

    Attributes:
        held_out: images to judge by.
        fitted: the others.
        target: what is predicted.
        command: what was typed.
        source: name of the folder.
        level: probability of intervals.
    """

    held_out: ImageFolder
    fitted: ImageFolder
    target: str
    command: str
    source: str
    level: float

    def save(self, directory: Path) -> None:
        """Write to a new or empty directory."""
        about = {name: getattr(self, name) for name in ("target", "command", "source", "level")}
        run_directory(directory).create({"images": self.held_out, "fitted_images": self.fitted, "about": about})

    @classmethod
    def load(cls, directory: Path) -> "ImageRun":
        """Read what `save` wrote."""
        with well_formed(directory):
            setup = run_directory(directory).read()
            parts = [setup.get(name, of=ImageFolder) for name in ("images", "fitted_images")]
            return cls(*parts, **setup.get("about", of=dict[str, Any]))

    def was_seen(self, images: ImageFolder) -> np.ndarray:
        """Which images were in training, by their bytes."""
        return np.isin(images.stamps, self.fitted.stamps)

    def posterior(self, directory: Path) -> Any:
        """The finished fit, or the advice to finish it."""
        from marginax.posterior import load

        if not fit_of(directory).finished:
            raise FileError(f"{directory} is not finished: `marginax resume {directory}` goes on")
        return load(run_directory(directory).at(FIT, "run"))


def holds_images(directory: Path) -> bool:
    """Whether a run is of images."""
    return "images" in run_directory(directory).read()

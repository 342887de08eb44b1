"""A study of active learning on disk: how it was set up, and where it stands.

    study/setup/            model, pool, plan, test data, key: written once
    study/state/            labels so far, what is being asked, the curve: replaced after every round and every answer
    study/posterior-0, -1   of the last two rounds, in turn

A posterior is written before the state that counts it, into the place that the state on disk does not use, so that a
crash at any time leaves a state and the posterior that belongs to it.
"""

import os
from pathlib import Path

import equinox as eqx
import numpy as np
from jaxtyping import Int, Num

from marginax.decide.acquisition import AbstractAcquisition
from marginax.decide.curve import LearningCurve
from marginax.files import RunDirectory, register
from marginax.infer import AbstractMethod
from marginax.model import Model
from marginax.posterior import AbstractPosterior, load


@register("active/plan")
class Plan(eqx.Module):
    """How a study is run; see `learn_actively`."""

    method: AbstractMethod
    acquisition: AbstractAcquisition
    batch_size: int
    budget: int
    threshold: float | None
    warm_start: bool
    max_pool: int | None
    num_samples: int | None


@register("active/state")
class StudyState(eqx.Module):
    """Where a study stands.

    Attributes:
        rows: that have labels, in order.
        labels: theirs; None if there are none.
        pending: rows that were chosen and have no labels yet.
        round: how many fits are done.
        curve: of these.
        reason: why it has ended; None while it goes on.
    """

    rows: Int[np.ndarray, " m"]
    labels: Num[np.ndarray, "m ..."] | None
    pending: Int[np.ndarray, " p"]
    round: int
    curve: LearningCurve
    reason: str | None


def study_directory(path: str | os.PathLike[str]) -> RunDirectory:
    """The files of a study; its setup has the parts model, study (`Plan`, pool, test data) and key."""
    return RunDirectory(
        Path(path),
        "study",
        "learn_actively(..., directory=...)",
        "choose another, or resume_learning it",
        kind="study",
    )


def save_state(files: RunDirectory, state: StudyState, posterior: AbstractPosterior | None = None) -> None:
    """Replace the state, and keep the posterior of its last round if there is a new one."""
    if posterior is not None:
        posterior.save(_posterior(files, state), overwrite=True)
    files.replace("state", state)


def load_state(files: RunDirectory, model: Model) -> tuple[StudyState | None, AbstractPosterior | None]:
    """The last state, None if there is none yet, and the posterior of its last round."""
    state = files.value("state", of=StudyState)
    return state, load(_posterior(files, state), model=model) if state is not None and state.round else None


def _posterior(files: RunDirectory, state: StudyState) -> Path:
    return files.at(f"posterior-{state.round % 2}")

"""A study of active learning on disk: how it was set up, and where it stands.

    study/setup/            model, pool, plan, test data, key: written once
    study/state/            labels so far, what is being asked, the curve: replaced after every round and every answer
    study/posterior-0, -1   of the last two rounds, in turn

A posterior is written before the state that counts it, into the place that the state on disk does not use, so that a
crash at any time leaves a state and the posterior that belongs to it.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Num, PRNGKeyArray

from marginax.data import Arrays
from marginax.decide.acquisition import AbstractAcquisition
from marginax.decide.curve import LearningCurve
from marginax.decide.pool import Pool
from marginax.files import FileError, decode, encode, load_tree, read_bundle, register, save_tree, write_bundle
from marginax.infer import AbstractMethod
from marginax.model import Model
from marginax.posterior import AbstractPosterior, load
from marginax.posterior.storage import decode_model, encode_model


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


class StudyDirectory:
    """Writes and reads the files of one study."""

    def __init__(self, path: Path):
        self.path = path

    def create(self, model: Model, plan: Plan, pool: Pool, test: Arrays | None, key: PRNGKeyArray) -> None:
        """Begin a study in a new or empty directory."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise FileExistsError(
                f"directory {str(self.path)!r} exists and is not empty: choose another, or resume_learning it"
            )
        stored, arrays = encode_model(model)
        rest, inner = encode({"plan": plan, "pool": pool, "test": test, "key": np.asarray(jax.random.key_data(key))})
        arrays.update({f"study/{name}": array for name, array in inner.items()})
        write_bundle(self.path / "setup", "study", {"model": stored, "study": rest}, arrays)

    def setup(self, model: Model | None) -> tuple[Model, Plan, Pool, Arrays | None, PRNGKeyArray]:
        """How the study was set up."""
        if not (self.path / "setup").exists():
            raise FileError(f"{self.path} holds no study: it was not made by learn_actively(..., directory=...)")
        document: Any
        document, arrays = read_bundle(self.path / "setup", "study")
        inner = {name.removeprefix("study/"): a for name, a in arrays.items() if name.startswith("study/")}
        rest = decode(document["study"], inner)
        key = jax.random.wrap_key_data(jnp.asarray(rest["key"]))
        model = decode_model(document["model"], arrays, model, self.path)
        return model, rest["plan"], rest["pool"], rest["test"], key

    def save(self, state: StudyState, posterior: AbstractPosterior | None = None) -> None:
        """Replace the state, and keep the posterior of its last round if there is a new one."""
        if posterior is not None:
            posterior.save(self._posterior(state.round), overwrite=True)
        save_tree(self.path / "state", "study state", state, overwrite=True)

    def state(self) -> StudyState | None:
        """The last state, None if there is none yet."""
        path = self.path / "state"
        if not path.exists() and not (self.path / ".state.old").exists():
            return None
        return load_tree(path, "study state")

    def posterior(self, state: StudyState, model: Model) -> AbstractPosterior | None:
        """The posterior of the state's last round."""
        return load(self._posterior(state.round), model=model) if state.round else None

    def _posterior(self, round: int) -> Path:
        return self.path / f"posterior-{round % 2}"

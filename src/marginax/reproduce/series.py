"""Several experiments, one after the other: what is done, what is left, and about how long that will take."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from marginax import __version__
from marginax.reproduce.experiment import RUN, Experiment, Record, reproduce


def folder_of(root: Path, name: str, budget: str) -> Path:
    """Where an experiment leaves its record."""
    return root / f"{name}-{budget}"


def is_finished(record: Record | None, experiment: Experiment, budget: str) -> bool:
    """Whether a record is that of this experiment, with these settings, by this version."""
    if record is None or (record.name, record.budget, record.version) != (experiment.name, budget, __version__):
        return False
    return same_settings(record.settings, experiment.settings.get(budget))


def same_settings(found: Mapping[str, Any], asked: Mapping[str, Any] | None) -> bool:
    """Whether settings of a record, read from a file, are those of an experiment, which has some for this budget."""
    return asked is not None and json.dumps(dict(found), sort_keys=True) == json.dumps(dict(asked), sort_keys=True)


def standing(root: Path, name: str, budget: str) -> str:
    """In a word or two: when it was done, or whether it was begun; "" where there is nothing."""
    folder = folder_of(root, name, budget)
    record = Record.read(folder)
    if record is not None:
        return record.date
    return "begun" if (folder / RUN).is_dir() else ""


def foreseen_seconds(root: Path, name: str, budget: str) -> float | None:
    """What an earlier record took; of one that did not say, the sum over its fits; None where there is no record."""
    record = Record.read(folder_of(root, name, budget))
    if record is None:
        return None
    return record.seconds or sum({row.seconds for row in record.rows})


class Forecast:
    """How long what is left will take, by earlier records and by how what is done now compares with them.

    Args:
        records: folder of earlier records.
        budget: of all.

    >>> forecast = Forecast(Path("nowhere"), "small")
    >>> forecast.text([]), forecast.text(["digits", "crowds"])
    ('nothing is left', '2 left, without earlier records to tell how long: digits, crowds')
    """

    def __init__(self, records: Path, budget: str):
        self._records, self._budget = records, budget
        self._spent = self._foreseen = 0.0

    def note(self, name: str, seconds: float) -> None:
        """One is done, after so many seconds."""
        foreseen = foreseen_seconds(self._records, name, self._budget)
        if foreseen:
            self._spent, self._foreseen = self._spent + seconds, self._foreseen + foreseen

    def text(self, names: Sequence[str]) -> str:
        """What is left, and about how long."""
        if not names:
            return "nothing is left"
        known = [foreseen_seconds(self._records, name, self._budget) for name in names]
        listed, unknown = ", ".join(names), known.count(None)
        if unknown == len(names):
            return f"{unknown} left, without earlier records to tell how long: {listed}"
        pace = self._spent / self._foreseen if self._foreseen else 1.0
        minutes = pace * sum(each or 0.0 for each in known) / 60
        more = f" and {unknown} without an earlier record" if unknown else ""
        return f"{len(names)} left, about {max(1, round(minutes))} min{more}: {listed}"


def reproduce_series(
    experiments: Sequence[Experiment],
    root: Path,
    budget: str = "small",
    *,
    records: Path,
    progress: bool | None = None,
    callback: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Record], dict[str, Exception]]:
    """Run what is not finished, and go on with what was begun.

    One that fails, for want of its data say, does not keep the others from running.

    Args:
        experiments: in order; those without this budget are left out.
        root: each in a folder NAME-BUDGET of it.
        budget: of all.
        records: folder of earlier records, by which time is foreseen.
        progress: as in `mx.fit`.
        callback: takes sentences for people, such as what is left and about how long.

    Returns:
        Records, and what went wrong, by name.
    """
    having = [each for each in experiments if budget in each.settings]
    there = {each.name: Record.read(folder_of(root, each.name, budget)) for each in having}
    left = [each for each in having if not is_finished(there[each.name], each, budget)]
    done: dict[str, Any] = {name: record for name, record in there.items() if name not in {each.name for each in left}}
    failures: dict[str, Exception] = {}
    forecast, names = Forecast(records, budget), [each.name for each in left]
    callback(f"{len(done)} of {len(having)} are done; {forecast.text(names)}")
    for each in left:
        callback(f"{each.name}: {each.title}")
        began = time.monotonic()
        try:
            folder = folder_of(root, each.name, budget)
            done[each.name] = reproduce(each, folder, budget, progress=progress, callback=callback)
        except KeyboardInterrupt:
            callback(forecast.text(names))
            raise
        except Exception as error:  # the others can still be run
            failures[each.name] = error
            callback(f"{each.name} failed: {error}")
        else:
            forecast.note(each.name, time.monotonic() - began)
        names.remove(each.name)
        callback(forecast.text(names))
        jax.clear_caches()  # nothing of it is compiled again for the next, and programs take memory
        eqx.clear_caches()
    return {each.name: done[each.name] for each in having if each.name in done}, failures

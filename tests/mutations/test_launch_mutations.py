"""Bugs planted where chains become tasks are caught by the checks of their tests."""

import dataclasses
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.launch import test_tasks as checks
from tests.mutations.bug import Bug, assert_caught

from marginax.infer import driver, joining, launching
from marginax.infer.launching import Serial

OFF = "Arrays are not equal"


def tasks_are_one_run():
    wanted = checks.fit()
    with tempfile.TemporaryDirectory() as folder:
        checks.assert_same(checks.fit(Path(folder) / "run", Serial(2)), wanted)


def keys_of_the_first_chains(self, _original=driver.Run._keys):
    return _original(dataclasses.replace(self, first_chain=0))


def starts_of_the_first_chains(run, task, _original=launching.part_of):
    part = _original(run, task)
    part.start = jax.tree.map(lambda leaf: leaf[: part.num_chains], run.start)
    return part


def last_task_first(run, parts, name, used, count, _original=joining._join):
    _original(run, parts, name, used, count)
    if name.startswith("draws-"):
        arrays = {n: np.array(value[::-1]) for n, value in run.kept[name].arrays().items()}
        run.kept[name].write(0, arrays)


BUGS = [
    Bug("keys of the first chains", driver.Run, "_keys", keys_of_the_first_chains, tasks_are_one_run, OFF),
    Bug("starts of the first chains", launching, "part_of", starts_of_the_first_chains, tasks_are_one_run, OFF),
    Bug("chains in another order", joining, "_join", last_task_first, tasks_are_one_run, OFF),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    assert_caught(bug, bug.check)


@pytest.mark.slow
def test_without_a_bug_the_check_passes():
    tasks_are_one_run()

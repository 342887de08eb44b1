"""Hosts that run the same script: the same draws on each, and an end for all when one is lost."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.launch.test_tasks import Pressing, assert_same, fit

import marginax as mx
from marginax.infer.launching import Serial
from marginax.launch import Hosts
from marginax.launch.trial import run_hosts

PATIENT = 60.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("whole") / "run", Serial())


def on_each(call, num):
    """What a call gives on hosts that are threads; the first one comes last."""
    found = [None] * num

    def run(index):
        found[index] = call(Hosts("a job", index, num, patience=PATIENT))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(1, num)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    run(0)
    for thread in threads:
        thread.join()
    return found


def test_each_host_gets_the_draws_of_one_process(tmp_path, whole):
    for posterior in on_each(lambda hosts: fit(tmp_path / "run", hosts), 2):
        assert_same(posterior, whole)


def test_a_run_goes_on_with_another_number_of_hosts(tmp_path, whole):
    with pytest.warns(RuntimeWarning, match="left out"):
        fit(tmp_path / "run", Pressing("chain-1", 28))
    for posterior in on_each(lambda hosts: mx.resume(tmp_path / "run", launcher=hosts, progress=False), 3):
        assert_same(posterior, whole)
    for posterior in on_each(lambda hosts: mx.resume(tmp_path / "run", launcher=hosts), 2):
        assert_same(posterior, whole)


def test_a_host_does_not_take_an_earlier_job_for_its_own(tmp_path, whole):
    fit(tmp_path / "run", Hosts("yesterday", 0, 1))
    with pytest.raises(TimeoutError, match=r"the first host has not begun .* for 0.3 s: see what it says"):
        fit(tmp_path / "run", Hosts("today", 1, 2, patience=0.3))


def test_a_host_waits_for_the_first_no_longer_than_its_patience(tmp_path):
    with pytest.raises(TimeoutError, match=r"the first host has not begun"):
        fit(tmp_path / "run", Hosts("a job", 1, 2, patience=0.3))
    with pytest.warns(RuntimeWarning, match="left out"):
        fit(tmp_path / "run", Pressing("chain-1", 28))
    (tmp_path / "run" / "stop").unlink(missing_ok=True)
    (tmp_path / "run" / "job").write_text("a job")
    with pytest.raises(TimeoutError, match=r"the first host has not joined what is in .* for 1 s"):
        mx.resume(tmp_path / "run", launcher=Hosts("a job", 1, 2, patience=1.0))


# ---- trials on this machine


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(text)
    return [str(path), str(tmp_path)]


SAY = """
import os, pathlib, sys
names = "MARGINAX_COORDINATOR", "MARGINAX_NUM_PROCESSES", "MARGINAX_PROCESS_ID"
values = [os.environ[name] for name in names]
pathlib.Path(sys.argv[1], "said-" + values[2]).write_text(" ".join(values))
"""


def test_hosts_are_told_who_they_are(tmp_path):
    assert run_hosts(script(tmp_path, SAY), 3) == (0, "")
    said = [(tmp_path / f"said-{index}").read_text().split() for index in range(3)]
    assert {address.rpartition(":")[0] for address, _, _ in said} == {"127.0.0.1"}
    assert len({address for address, _, _ in said}) == 1
    assert [rest for _, *rest in said] == [["3", "0"], ["3", "1"], ["3", "2"]]


STUBBORN = """
import os, pathlib, signal, sys, time
here, index = pathlib.Path(sys.argv[1]), os.environ["MARGINAX_PROCESS_ID"]
if index == "1":
    while len(list(here.glob("pid-*"))) < 2:
        time.sleep(0.01)
    sys.exit(3)
if index == "2":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(here / ("pid-" + index)).write_text(str(os.getpid()))
time.sleep(100)
"""


def test_when_a_host_fails_all_are_ended_even_one_that_does_not_listen(tmp_path):
    began = time.monotonic()
    code, text = run_hosts(script(tmp_path, STUBBORN), 3, grace=0.5)
    assert (code, text) == (3, "host 1 of 3 failed with exit code 3: the others were ended, too")
    assert time.monotonic() - began < 30
    for path in tmp_path.glob("pid-*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)


FITTING = """
import sys
import marginax as mx
hosts = mx.launch.initialize()
from tests.launch.test_tasks import LONG, fit
fit(sys.argv[1] + "/run", hosts, LONG)
import psutil
addresses = {c.laddr.ip for c in psutil.Process().net_connections() if c.status == "LISTEN"}
assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}, addresses
"""


@pytest.fixture
def from_here(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]))


@pytest.mark.slow
@pytest.mark.parametrize("num", [2, 4])
def test_processes_that_jax_counts_give_the_draws_of_one(tmp_path, num, from_here):
    from tests.launch.test_tasks import LONG

    assert run_hosts(script(tmp_path, FITTING), num) == (0, "")
    assert_same(mx.load(tmp_path / "run"), fit(tmp_path / "here", Serial(), LONG))


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_host_that_is_killed_ends_the_job_which_goes_on_elsewhere(tmp_path, victim, from_here):
    from tests.launch.test_tasks import LONG

    command = [sys.executable, "-m", "marginax.cli", "launch", "--hosts", "2", "--", *script(tmp_path, FITTING)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        while not list((tmp_path / "run").rglob("checkpoint-*")):
            assert job.poll() is None
            time.sleep(0.02)
        os.kill(pid_of(job.pid, victim), signal.SIGKILL)
        said = job.communicate(timeout=60)[1]
    assert job.returncode == 128 + signal.SIGKILL
    assert f"host {victim} of 2 was ended by signal 9: the others were ended, too" in said
    assert not (tmp_path / "run" / "posterior").exists()
    assert_same(mx.resume(tmp_path / "run", progress=False), fit(tmp_path / "here", Serial(), LONG))


def pid_of(launcher, index):
    import psutil

    children = psutil.Process(launcher).children()
    return next(child.pid for child in children if child.environ().get("MARGINAX_PROCESS_ID") == str(index))

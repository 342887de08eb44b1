"""Tasks of a Dask cluster: the same draws, whatever happens to workers."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest
from tests.launch.test_tasks import LONG, METHODS, assert_same, fit

import marginax as mx
from marginax.files import FileError
from marginax.infer.launching import Serial
from marginax.launch import Dask, elastic

dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def threads():
    """A cluster whose workers are threads of this process: quick to start."""
    options = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def processes():
    with Dask.local(2) as launcher:
        yield launcher.cluster


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("whole") / "run", Serial())


def test_a_cluster_gives_the_draws_of_one_process(tmp_path, whole, threads):
    assert_same(fit(tmp_path / "run", Dask(threads)), whole)
    with distributed.Client(threads, set_as_default=False) as client:
        assert_same(fit(tmp_path / "again", Dask(client)), whole)
        assert client.status == "running"  # it is the user's


def test_only_data_go_over_the_wire(tmp_path, whole, threads, monkeypatch):
    sent, submit = [], distributed.Client.submit

    def recording(client, function, *args, **options):
        sent.append((function, args))
        return submit(client, function, *args, **options)

    monkeypatch.setattr(distributed.Client, "submit", recording)
    assert_same(fit(tmp_path / "run", Dask(threads)), whole)
    assert len(sent) == 4
    for function, (arguments,) in sent:
        assert function is elastic.run_on_worker
        assert is_data(arguments)


def is_data(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_data(each) for key, each in value.items())
    return all(map(is_data, value)) if isinstance(value, list) else isinstance(value, str | int | float | None)


def test_an_error_of_a_task_names_its_chains(tmp_path, threads, monkeypatch):
    real = elastic.run_task

    def failing(task, *args, **options):
        if task.first == 2:
            raise FileError("the disk is full")
        return real(task, *args, **options)

    monkeypatch.setattr(elastic, "run_task", failing)
    with pytest.raises(FileError, match="the disk is full") as raised:
        fit(tmp_path / "run", Dask(threads))
    assert raised.value.__notes__[0].startswith(f"in chain-2 of {tmp_path / 'run'}, on a worker")


def test_workers_with_other_versions_are_refused(tmp_path, threads, monkeypatch):
    versions = iter([{"marginax": "2.0"}])
    real = elastic._versions
    monkeypatch.setattr(elastic, "_versions", lambda: next(versions, real()))
    with pytest.raises(RuntimeError, match=r"workers must have the versions of the client, {'marginax': '2.0'}, got"):
        fit(tmp_path / "run", Dask(threads))


@pytest.mark.slow
def test_ctrl_c_has_tasks_end_at_a_checkpoint(tmp_path, whole, threads, monkeypatch):
    from marginax.infer import driver

    real, pressed = driver.run_chunk, threading.Lock()

    def press(*args):
        if args[0].phase == 1 and pressed.acquire(blocking=False):  # once: a second one ends the process
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.0)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "run_chunk", press)
        with pytest.warns(RuntimeWarning, match="had drawn nothing yet"):
            found = fit(tmp_path / "run", Dask(threads))
    assert not found.record.finished
    assert 0 < found.num_chains < 4
    assert_same(mx.resume(tmp_path / "run", launcher=Dask(threads), progress=False), whole)


def test_nobody_waits_for_ever(tmp_path, threads, monkeypatch):
    short = dask.config.set({"distributed.comm.timeouts.connect": "200ms"})
    with short, pytest.raises(ConnectionError, match="no scheduler of Dask answers at"):
        fit(tmp_path / "run", Dask("127.0.0.1:9"))
    released = threading.Event()
    monkeypatch.setattr(elastic, "run_task", lambda *args, **options: released.wait(60))
    with pytest.raises(TimeoutError, match=r"no task has made progress for 0.3 s, with 2 workers: start workers"):
        fit(tmp_path / "other", Dask(threads, patience=0.3))
    released.set()


# ---- with processes of their own


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_four_methods_on_processes(tmp_path, processes, name):
    wanted = fit(method=METHODS[name])
    assert_same(fit(tmp_path / "run", Dask(processes, chains_per_task=2), METHODS[name]), wanted)


@pytest.mark.slow
def test_one_worker_gives_the_draws_of_two(tmp_path, whole, processes):
    assert_same(fit(tmp_path / "two", Dask(processes)), whole)
    with Dask.local(1) as launcher:
        assert_same(fit(tmp_path / "one", launcher), whole)


@pytest.mark.slow
def test_workers_that_are_killed_leave_no_trace(tmp_path, processes):
    wanted = fit(method=LONG, directory=tmp_path / "wanted", launcher=Serial(2))
    killed = []

    def kill():
        with distributed.Client(processes, set_as_default=False) as client:
            for chains in ("chains-0-1", "chains-2-3"):
                lock = tmp_path / "run" / "fits" / chains / ".lock"
                while not list(lock.parent.glob("checkpoint-*")):
                    time.sleep(0.05)
                for pid in client.run(os.getpid).values():
                    if f'"process": {pid},' in (lock.read_text() if lock.exists() else ""):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    found = fit(method=LONG, directory=tmp_path / "run", launcher=Dask(processes, chains_per_task=2))
    killer.join()
    assert len(set(killed)) >= 1
    assert_same(found, wanted)


@pytest.mark.slow
def test_nothing_listens_beyond_loopback(processes):
    with distributed.Client(processes, set_as_default=False) as client:
        pids = [os.getpid(), *client.run(os.getpid).values()]
    family = {child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)} | set(pids)
    addresses = {c.laddr.ip for pid in family for c in psutil.Process(pid).net_connections() if c.status == "LISTEN"}
    assert addresses == {"127.0.0.1"}


@pytest.mark.slow
def test_the_users_process_may_be_killed(tmp_path, whole, processes):
    """The tasks that it leaves behind end by themselves, or go on and are waited for."""
    program = (
        "import sys; from tests.launch.test_tasks import fit; from marginax.launch import Dask\n"
        "fit(sys.argv[1], Dask(sys.argv[2]))"
    )
    path = str(tmp_path / "run")
    with subprocess.Popen([sys.executable, "-c", program, path, processes.scheduler_address]) as user:
        while not list((tmp_path / "run").rglob("checkpoint-*")) and user.poll() is None:
            time.sleep(0.05)
        user.kill()
    assert_same(mx.resume(path, launcher=Dask(processes), progress=False), whole)


CLUSTER = """
import sys, time
from marginax.launch import Dask
if __name__ == "__main__":
    with Dask.local(1) as launcher:
        open(sys.argv[1], "w").write(launcher.cluster.scheduler_address)
        time.sleep(300)
"""


@pytest.mark.slow
def test_a_scheduler_that_is_lost_is_an_error_and_the_run_goes_on_without_it(tmp_path):
    said, script = tmp_path / "address", tmp_path / "cluster.py"
    script.write_text(CLUSTER)

    def kill():
        while not list((tmp_path / "run").rglob("checkpoint-*")):
            time.sleep(0.02)
        cluster.kill()

    with subprocess.Popen([sys.executable, str(script), str(said)], stderr=subprocess.DEVNULL) as cluster:
        try:
            while not (said.exists() and said.read_text()):
                assert cluster.poll() is None
                time.sleep(0.05)
            threading.Thread(target=kill).start()
            began = time.monotonic()
            with pytest.raises(ConnectionError, match=r"the scheduler of Dask is lost: go on with mx.resume\('"):
                fit(tmp_path / "run", Dask(said.read_text(), patience=30), LONG)
            assert time.monotonic() - began < 90
        finally:
            cluster.kill()
    assert_same(mx.resume(tmp_path / "run", progress=False), fit(tmp_path / "here", Serial(), LONG))


def test_arrays_are_compared_bit_for_bit(whole):
    """The comparison above can fail."""
    other = [np.array(leaf) for leaf in mx_leaves(whole)]
    other[0].view(np.uint32).flat[0] ^= 1
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(other[0], mx_leaves(whole)[0])


def mx_leaves(posterior):
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(posterior.params)]


@pytest.mark.slow
def test_attacks_at_random_times_leave_no_trace():
    from tests.launch.faults import cases

    found = list(cases(6, seed=2))
    print(*found, sep="\n")
    assert [outcome for _, _, outcome, _ in found] == ["same"] * 6
    assert sum("after the end" not in text for *_, done in found for text in done) >= 3

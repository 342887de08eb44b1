"""Chains as tasks, run here one after another: the same draws as in one run."""

import os
import signal
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.files import FileError, InUseError, RunDirectory
from marginax.infer import MALA, MAP, NUTS, SGHMC, VI, EarlyStopping, joining, launching
from marginax.infer.launching import Serial, Task, run_task

TRAINING = MAP(num_epochs=5, batch_size=16)
METHODS = {
    "nuts": NUTS(num_warmup=20, num_samples=10, max_tree_depth=4),
    "sghmc": SGHMC(num_warmup=20, num_samples=20, thin=1, batch_size=16, training=TRAINING),
    "map": MAP(num_epochs=10, batch_size=16),
    "vi": VI(num_epochs=10, batch_size=16),
}
WALK = MALA(num_warmup=20, num_samples=20, thin=1)
LONG = MALA(num_warmup=20, num_samples=300, thin=1)  # some seconds, for who is to be killed


def small():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    return mx.Model(mx.nets.MLP(2, (4,), 1, key=0), mx.likelihoods.Gaussian(scale=0.3)), (x, x.sum(1))


def fit(directory=None, launcher=None, method=WALK, **options):
    model, data = small()
    options = {"num_chains": 4, "chunk_size": 10, "key": 0, "progress": False} | options
    return mx.fit(model, data, method, directory=directory, launcher=launcher, **options)


def numbers(posterior):
    """All arrays of a posterior and of what was recorded."""
    info = posterior.record.info
    leaves = [leaf for leaf in jax.tree.leaves(posterior) if hasattr(leaf, "dtype")]
    leaves += [info[phase][name] for phase in info for name in sorted(info[phase])]
    is_key = [jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    return [np.asarray(jax.random.key_data(leaf) if key else leaf) for leaf, key in zip(leaves, is_key, strict=True)]


def assert_same(a, b):
    for u, v in zip(numbers(a), numbers(b), strict=True):
        np.testing.assert_array_equal(u, v)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("whole") / "run", Serial())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("sghmc", "vi"))) for name in METHODS]
)
def test_two_tasks_of_two_chains_are_the_four_chains_of_one_run(tmp_path, name):
    wanted = fit(method=METHODS[name])
    found = fit(tmp_path / "run", Serial(2), METHODS[name])
    assert_same(found, wanted)
    assert_same(mx.load(tmp_path / "run"), wanted)
    assert found.record.num_steps == wanted.record.num_steps
    assert found.record.warnings == wanted.record.warnings
    assert found.record.finished
    assert not list((tmp_path / "run").rglob("*draws-*"))  # but the posterior's


def test_chains_of_tasks_of_another_size_start_and_move_alike(tmp_path, whole):
    """One chain alone is another program, whose last digits may differ."""
    wanted = fit(tmp_path / "run", Serial(3))
    for u, v in zip(jax.tree.leaves(whole.params), jax.tree.leaves(wanted.params), strict=True):
        assert u.shape == v.shape
        np.testing.assert_allclose(u[:, 0], v[:, 0], rtol=1e-3, atol=1e-4)


def test_draws_are_joined_in_blocks(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(joining, "_BLOCK", 300)
    assert_same(fit(tmp_path / "run", Serial()), whole)


def test_where_tasks_are_cut_in_time_leaves_no_trace(tmp_path, whole):
    assert_same(fit(tmp_path / "run", Serial(), chunk_size=7), whole)


def test_a_task_that_is_begun_when_all_is_done_finds_it_done(tmp_path, whole):
    """As by a host that is late: the draws of the tasks are in the result, and not there any more."""
    fit(tmp_path / "run", Serial())
    for task in launching.tasks_of(RunDirectory(tmp_path / "run")):
        assert run_task(task) == {"finished": True, "steps": 0, "bad_chains": {}}
    assert_same(mx.load(tmp_path / "run"), whole)


class Lying(Serial):
    """Says that all is done, and has done nothing."""

    def run(self, tasks, told, interrupt):
        return {task: {"finished": True, "steps": 40, "bad_chains": {}} for task in tasks}


def test_a_task_is_believed_by_what_is_on_the_disk(tmp_path, whole):
    with pytest.raises(FileError, match=r"chain-0 is not at its end, though its task was: mx.resume\(.*\) goes on"):
        fit(tmp_path / "run", Lying())
    assert_same(mx.resume(tmp_path / "run", progress=False), whole)


def test_who_was_asked_to_stop_stops_though_the_request_is_taken_back(tmp_path):
    (tmp_path / "stop").touch()
    stop = launching._Stop(tmp_path / "stop", None)
    assert stop.requested
    (tmp_path / "stop").unlink()
    assert stop.requested
    assert not launching._Stop(tmp_path / "stop", None).requested


def test_links_in_a_directory_are_not_written_through(tmp_path):
    begun(tmp_path / "run")
    for name in ("victim", "other"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "run" / "job").symlink_to(tmp_path / "victim")
    with pytest.raises(FileError):
        mx.resume(tmp_path / "run", launcher=mx.launch.Hosts("a job", 0, 1), progress=False)
    (tmp_path / "run" / "stop").symlink_to(tmp_path / "nobody")
    launching.ask_to_stop(tmp_path / "run")
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "nobody").exists()


def test_what_tasks_cannot_have_is_refused_in_resuming(tmp_path, as_users_run):
    begun(tmp_path / "run")
    with pytest.raises(ValueError, match="hooks must be left out"):
        mx.resume(tmp_path / "run", hooks=[EarlyStopping()])
    with pytest.raises(TypeError, match="launcher must be an object"):
        mx.resume(tmp_path / "run", launcher="scheduler:8786")
    model, data = small()
    with pytest.raises(ValueError, match="launcher must be that of one process"):
        mx.evaluate.compare(
            model, data, ["map"], test=data, key=0, directory=tmp_path / "c", launcher=mx.launch.Hosts("a job", 0, 2)
        )


# ---- ends before the end


class Pressing(Serial):
    """Ctrl-C while a task is at a step."""

    def __init__(self, name, step):
        super().__init__()
        object.__setattr__(self, "place", (name, step))

    def run(self, tasks, told, interrupt):
        def tell(task, steps):
            told(task, steps)
            if task.name == self.place[0] and steps >= self.place[1] and not interrupt.requested:
                os.kill(os.getpid(), signal.SIGINT)

        return super().run(tasks, tell, interrupt)


def test_ctrl_c_keeps_what_chains_have_drawn_and_resume_goes_on(tmp_path, whole):
    with pytest.warns(RuntimeWarning, match="chain [23] had drawn nothing yet and was left out"):
        found = fit(tmp_path / "run", Pressing("chain-1", 28))
    assert not found.record.finished
    assert found.record.dropped_chains == (2, 3)
    for u, v in zip(jax.tree.leaves(found.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_array_equal(u, v[:2, :8])
    assert "chains had done 8 to 20 steps of 'sample': the fewest are here" in found.record.warnings
    assert_same(mx.resume(tmp_path / "run", progress=False), whole)
    assert_same(mx.resume(tmp_path / "run"), whole)


def test_ctrl_c_before_the_first_draw_says_that_there_is_nothing_yet(tmp_path, whole):
    with pytest.raises(KeyboardInterrupt), pytest.warns(RuntimeWarning, match="had drawn nothing"):
        fit(tmp_path / "run", Pressing("chain-0", 10))
    assert_same(mx.resume(tmp_path / "run", launcher=Serial(), progress=False), whole)


def test_what_is_left_of_an_owner_that_died_stands_in_nobodys_way(tmp_path, whole):
    with pytest.warns(RuntimeWarning, match="left out"):
        fit(tmp_path / "run", Pressing("chain-1", 28))
    (tmp_path / "run" / "fits" / "chain-1" / ".lock").write_text('{"process": 1, "host": "elsewhere", "since": "1970"}')
    assert_same(mx.resume(tmp_path / "run", progress=False), whole)


# ---- twice


def begun(path):
    """A run whose tasks have not begun."""

    class Nothing(Serial):
        def run(self, tasks, told, interrupt):
            self.tasks.extend(tasks)
            raise ConnectionAbortedError

    launcher = Nothing()
    object.__setattr__(launcher, "tasks", [])
    with pytest.raises(ConnectionAbortedError):
        fit(path, launcher)
    return launcher.tasks


def test_a_task_that_is_done_twice_at_once_and_once_more_is_harmless(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(launching, "_SECONDS_BETWEEN_LOOKS", 0.01)
    tasks, outcomes = begun(tmp_path / "run"), []
    twice = [threading.Thread(target=lambda: outcomes.append(run_task(tasks[1]))) for _ in range(2)]
    for thread in twice:
        thread.start()
    for thread in twice:
        thread.join()
    outcomes.append(run_task(tasks[1]))
    assert outcomes == [{"finished": True, "steps": 40, "bad_chains": {}}] * 3
    assert_same(mx.resume(tmp_path / "run", progress=False), whole)


def test_who_comes_second_waits_no_longer_than_its_patience(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "_SECONDS_BETWEEN_LOOKS", 0.01)
    task = begun(tmp_path / "run")[0]
    with task.files.owned(), pytest.raises(InUseError, match=rf"is in use by process {os.getpid()} on "):
        run_task(task, patience=0.05)
    threading.Timer(0.1, (tmp_path / "run" / "stop").touch).start()
    with task.files.owned():  # or until it is asked to stop
        assert run_task(task) == {"finished": False, "steps": 0, "bad_chains": {}}


# ---- chains that go wrong


def test_a_bad_chain_is_named_and_the_others_are_what_they_were(tmp_path):
    model, data = small()
    starts = mx.posterior.Draws(
        model=model, params=jax.tree.map(lambda a: np.zeros((3, 1, *a.shape)), model.initial(1))
    )
    fine = mx.fit(model, data, WALK, key=0, init=starts, num_chains=3, directory=tmp_path / "fine", launcher=Serial())
    jax.tree.leaves(starts.params)[0][1] = np.nan
    with pytest.warns(RuntimeWarning, match="chain 1 became NaN in phase 'warmup'"):
        found = mx.fit(model, data, WALK, key=0, init=starts, num_chains=3, directory=tmp_path / "1", launcher=Serial())
    assert found.record.dropped_chains == (1,)
    for u, v in zip(jax.tree.leaves(found.params), jax.tree.leaves(fine.params), strict=True):
        np.testing.assert_array_equal(u, v[jnp.array([0, 2])])
    with pytest.warns(RuntimeWarning, match="chain 1 became NaN"):
        pair = mx.fit(model, data, WALK, key=0, init=starts, num_chains=3, directory=tmp_path / "2", launcher=Serial(2))
    assert pair.record.dropped_chains == (1,)


def test_if_all_chains_are_bad_that_is_an_error(tmp_path):
    model, data = small()
    starts = mx.posterior.Draws(
        model=model, params=jax.tree.map(lambda a: np.full((2, 1, *a.shape), np.nan), model.initial(1))
    )
    with (
        pytest.raises(FloatingPointError, match="all 2 chains became NaN: chain 0 became NaN in phase"),
        pytest.warns(),
    ):
        mx.fit(model, data, WALK, key=0, init=starts, num_chains=2, directory=tmp_path, launcher=Serial())


def positive(w):
    """Independent gamma variables, whose density is NaN on the other side of zero."""
    return jnp.sum(jnp.log(w) - w)


mx.register_function("tests/launch/positive", positive)


def test_starts_without_a_density_are_drawn_again_as_in_one_run(tmp_path):
    density, method = mx.Density(positive, jnp.ones(2)), NUTS(num_warmup=20, num_samples=10)
    wanted = mx.fit(density, None, method, key=0, num_chains=6)
    found = mx.fit(density, None, method, key=0, num_chains=6, directory=tmp_path / "run", launcher=Serial(2))
    moved = [text for text in wanted.record.warnings if "began elsewhere" in text]
    assert moved
    assert moved == [text for text in found.record.warnings if "began elsewhere" in text]
    assert_same(found, wanted)


# ---- refused


def test_what_cannot_be_launched_is_refused_before_anything_is_made(tmp_path, as_users_run):
    with pytest.raises(ValueError, match="directory must be given with a launcher: a path on storage that all"):
        fit(launcher=Serial())
    with pytest.raises(ValueError, match="hooks must be left out with a launcher"):
        fit(tmp_path / "run", Serial(), method=TRAINING, hooks=[EarlyStopping()])
    with pytest.raises(TypeError, match=r"launcher must be an object such as mx.launch.Dask\('scheduler:8786'\)"):
        fit(tmp_path / "run", "scheduler:8786")
    with pytest.raises(ValueError, match="chains_per_task must be an int >= 1, got 0"):
        fit(tmp_path / "run", Serial(0))
    assert not (tmp_path / "run").exists()


class Unregistered(eqx.Module):
    weight: jax.Array

    def __call__(self, x, *, key=None):
        return self.weight @ x


def test_a_network_that_tasks_cannot_read_is_refused(tmp_path):
    model = mx.Model(Unregistered(jnp.zeros((1, 2))), mx.likelihoods.Gaussian(scale=0.3))
    with pytest.raises(FileError, match="register"):
        mx.fit(model, small()[1], WALK, key=0, directory=tmp_path / "run", launcher=Serial())


def test_a_run_of_one_process_is_not_resumed_by_tasks(tmp_path):
    RunDirectory(tmp_path / "run").create({"num_chains": 1, "chunk_size": None})
    with pytest.raises(ValueError, match=r"launcher must be left out: .* was begun without one"):
        mx.resume(tmp_path / "run", launcher=Serial())


def test_a_task_says_when_the_storage_is_not_shared(tmp_path):
    task = begun(tmp_path / "run")[0]
    with pytest.raises(FileError, match="is not here: it must be on storage that all workers see under this path"):
        run_task(Task(str(tmp_path / "other"), task.setup, 0, 1))
    fit(tmp_path / "other", Serial(), num_chains=1)
    with pytest.raises(FileError, match="has the setup of another run here"):
        run_task(Task(str(tmp_path / "other"), task.setup, 0, 1))


def test_methods_of_a_comparison_are_launched(tmp_path):
    model, data = small()
    options = {"test": data, "key": 0, "directory": tmp_path / "run", "launcher": Serial(2)}
    found = mx.evaluate.compare(model, data, {"mala": WALK}, **options)
    assert found["mala"].failure is None
    assert (tmp_path / "run" / "fits" / "mala" / "fits" / "chains-2-3").exists()
    assert_same(found.posteriors["mala"], mx.fit(model, data, WALK, key=0, num_chains=4))
    with pytest.raises(ValueError, match="seconds must be left out with a launcher"):
        mx.evaluate.compare(model, data, {"mala": WALK}, seconds=1.0, **options)


def test_a_run_may_be_moved(tmp_path, whole):
    with pytest.warns(RuntimeWarning, match="left out"):
        fit(tmp_path / "run", Pressing("chain-1", 28))
    (tmp_path / "run").rename(tmp_path / "moved")
    assert_same(mx.resume(tmp_path / "moved", progress=False), whole)

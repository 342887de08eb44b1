"""Active learning: it ends when it should, asks once, loses nothing, resumes exactly, and beats chance."""

import dataclasses

import numpy as np
import pytest

import marginax as mx
from marginax.decide import (
    BALD,
    EPIG,
    BatchBALD,
    Entropy,
    KnownLabels,
    LearningCurve,
    OneAtATime,
    OracleError,
    Pool,
    PredictiveVariance,
    Random,
    learn_actively,
    resume_learning,
)
from marginax.decide.refit import training_data

X = np.linspace(-1, 1, 41)[:, None].astype(np.float32)
LABELS = (X[:, 0] > 0.23).astype(int)
METHOD = mx.infer.AnchoredEnsemble(10, num_epochs=100, batch_size=2, optimiser=mx.infer.Adam(0.05))


def model_of_classes():
    net = mx.nets.MLP(in_size=1, hidden=(), out_size=1, key=0)
    return mx.Model(net, likelihood=mx.likelihoods.Bernoulli(), prior=mx.priors.Normal(scale=20.0))


class Counting:
    """An oracle that remembers what it was asked, and may fail."""

    def __init__(self, y, fail_at=None, error=KeyboardInterrupt):
        self.y, self.asked, self.fail_at, self.error = y, [], fail_at, error

    def __call__(self, rows):
        if self.fail_at is not None and len(self.asked) + len(rows) > self.fail_at:
            raise self.error("stop")
        self.asked.extend(rows.tolist())
        return self.y[rows]

    def one(self, row):
        return self(np.array([row]))[0]


def learn(oracle=None, acquisition=BALD(), *, rows=(0, 20, 40), batch_size=2, budget=6, **more):
    pool = Pool(X, list(rows), LABELS[list(rows)]) if rows else Pool(X)
    oracle = KnownLabels(LABELS) if oracle is None else oracle
    more = {"key": 0, "test": (X, LABELS)} | more
    return learn_actively(
        model_of_classes(), pool, oracle, METHOD, acquisition, batch_size=batch_size, budget=budget, **more
    )


def check_same(one, other):
    assert one.reason == other.reason
    assert np.array_equal(one.pool.labelled, other.pool.labelled)
    assert np.array_equal(one.pool.labels, other.pool.labels)
    for name in ("num_labels", "error", "nll", "score"):
        assert np.array_equal(getattr(one.curve, name), getattr(other.curve, name), equal_nan=True), name
    assert np.array_equal(one.posterior.predict(X).probs, other.posterior.predict(X).probs)


@pytest.fixture(scope="module")
def whole():
    return learn()


# ---- the loop


@pytest.mark.slow
def test_it_ends_when_the_budget_is_spent_and_asks_once():
    oracle = Counting(LABELS)
    learned = learn(oracle, budget=5)
    assert learned.reason == "budget is spent"
    assert len(oracle.asked) == len(set(oracle.asked)) == 5
    assert learned.pool.labelled.tolist() == [0, 20, 40, *oracle.asked]
    assert np.array_equal(learned.pool.labels, LABELS[learned.pool.labelled])
    assert learned.curve.num_labels.tolist() == [3, 5, 7, 8]
    assert np.isfinite(learned.curve.error).all()
    assert np.isfinite(learned.curve.nll).all()
    assert (learned.curve.seconds > 0).all()
    assert np.isfinite(learned.curve.score[:-1]).all()


def test_it_ends_when_the_pool_is_empty():
    oracle = Counting(LABELS)
    rows = [row for row in range(41) if row not in (3, 5, 8)]
    learned = learn(oracle, Random(), rows=rows, batch_size=2, budget=100, test=None)
    assert learned.reason == "pool is empty"
    assert sorted(oracle.asked) == [3, 5, 8]
    assert np.isnan(learned.curve.error).all()


def test_it_ends_when_no_score_reaches_the_threshold(whole):
    threshold = float(whole.curve.score[0]) * (1 + 1e-6)
    learned = learn(threshold=threshold)
    assert learned.reason == "threshold is reached"
    assert learned.pool.num_labelled == 3
    below = float(np.nanmin(whole.curve.score)) * (1 - 1e-6)
    check_same(learn(threshold=below), whole)


def test_a_pool_without_labels_begins_at_random():
    oracle = Counting(LABELS)
    learned = learn(oracle, rows=(), batch_size=3, budget=6)
    assert learned.curve.num_labels.tolist() == [3, 6]
    assert len(oracle.asked) == 6


def test_candidates_can_be_a_part_of_the_pool():
    seen = []

    class Watching(Random):
        def query(self, posterior, x, num, **more):
            seen.append(x)
            return Random().query(posterior, x, num, **more)

    learn(acquisition=Watching(), max_pool=7, budget=4)
    assert [len(x) for x in seen] == [7, 7]
    assert not np.array_equal(seen[0], seen[1])
    assert not set(np.concatenate(seen)[:7].ravel().tolist()) & {-1.0, 0.0, 1.0}


@pytest.mark.parametrize("rule", [BatchBALD(), EPIG(X[::8])], ids=["BatchBALD", "EPIG"])
def test_rules_that_need_draws_run(rule):
    assert learn(acquisition=rule, budget=2).pool.num_labelled == 5


def test_fits_start_where_the_last_one_ended_only_if_they_still_train(monkeypatch):
    starts = []

    def fit(model, data, method, *, init, **more):
        starts.append(init)
        return mx.fit(model, data, method, init=init, **more)

    monkeypatch.setattr("marginax.decide.refit.fit", fit)
    learn(budget=2)
    assert starts[0] is None
    assert isinstance(starts[1], mx.posterior.Draws)
    learn(budget=2, warm_start=False)
    assert starts[2:] == [None, None]
    method = mx.infer.Laplace(training=mx.infer.MAP(num_epochs=5))
    pool = Pool(X, [0, 40], LABELS[[0, 40]])
    learn_actively(model_of_classes(), pool, KnownLabels(LABELS), method, Entropy(), batch_size=1, budget=1, key=0)
    assert starts[4:] == [None, None]


def test_batches_grow_with_the_labels_and_the_buffer_stays():
    pool = Pool(np.zeros((500, 1)))
    sizes, rooms = [], []
    for num in (1, 5, 31, 32, 33, 200):
        source = training_data(mx.infer.MAP(batch_size=32), pool.label(np.arange(num), np.zeros(num)).data, 220)
        sizes.append(source.batch_size)
        rooms.append(len(source.data.x))
        assert source.spec.num_examples == num
    assert sizes == [1, 4, 16, 32, 32, 32]
    assert set(rooms) == {256}
    x, y = training_data(mx.infer.NUTS(), pool.label([3], [1.0]).data, 220)
    assert (len(x), len(y)) == (1, 1)


# ---- faults


def test_an_interrupt_keeps_what_was_answered():
    learned = learn(OneAtATime(Counting(LABELS, fail_at=3).one))
    assert learned.reason == "interrupted"
    assert learned.pool.num_labelled == 6
    assert learned.curve.num_labels.tolist() == [3, 5]


def test_an_oracle_that_fails_loses_no_labels(tmp_path):
    with pytest.raises(OracleError, match=r"oracle failed on rows .*: stop") as caught:
        learn(Counting(LABELS, fail_at=4, error=OSError), directory=tmp_path / "study")
    assert caught.value.learned.pool.num_labelled == 7
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    ("oracle", "message"),
    [
        (lambda rows: [1], "a label for each of 2 rows"),
        (lambda rows: ["a", "b"], "must be numeric"),
        (lambda rows: np.full(len(rows), 7), "y must"),
        (lambda rows: np.full(len(rows), 0.5), "whole numbers"),
    ],
    ids=["too few", "text", "no class", "no label"],
)
def test_labels_that_cannot_be_are_refused(oracle, message):
    with pytest.raises(OracleError, match=message) as caught:
        learn(oracle)
    assert caught.value.learned.pool.num_labelled == 3


@pytest.mark.parametrize("fail_at", [0, 2, 3, 5])
def test_a_resumed_study_equals_an_uninterrupted_one(tmp_path, whole, fail_at):
    first = Counting(LABELS, fail_at=fail_at)
    stopped = learn(OneAtATime(first.one), directory=tmp_path / "study")
    assert stopped.reason == "interrupted"
    second = Counting(LABELS)
    check_same(resume_learning(tmp_path / "study", OneAtATime(second.one)), whole)
    assert len(first.asked) == fail_at
    assert not set(first.asked) & set(second.asked)
    assert len(first.asked) + len(second.asked) == 6
    done = resume_learning(tmp_path / "study", Counting(LABELS, fail_at=0))  # it has ended: nothing is asked
    check_same(done, whole)


def test_a_study_that_was_interrupted_while_fitting_resumes(tmp_path, whole, monkeypatch):
    fits = []

    def interrupted(*args, **more):
        fits.append(1)
        if len(fits) == 3:
            raise KeyboardInterrupt
        return mx.fit(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr("marginax.decide.refit.fit", interrupted)
        assert learn(directory=tmp_path / "study").reason == "interrupted"
    check_same(resume_learning(tmp_path / "study", KnownLabels(LABELS)), whole)


def test_an_unfinished_fit_does_not_count(monkeypatch):
    def fit(*args, **more):
        posterior = mx.fit(*args, **more)
        return dataclasses.replace(posterior, record=dataclasses.replace(posterior.record, finished=False))

    monkeypatch.setattr("marginax.decide.refit.fit", fit)
    learned = learn()
    assert learned.reason == "interrupted"
    assert learned.posterior is None
    assert len(learned.curve) == 0


def test_a_directory_is_used_once(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="resume_learning"):
        learn(directory=tmp_path)
    with pytest.raises(mx.files.FileError, match="holds no study"):
        resume_learning(tmp_path, KnownLabels(LABELS))


# ---- where it must beat chance


@pytest.mark.slow
def test_bald_narrows_a_border_down():
    """In an ensemble that stands for the posterior, few labels leave little room for the border; see also the rule."""
    method = mx.infer.AnchoredEnsemble(40, num_epochs=1000, batch_size=2, optimiser=mx.infer.Adam(0.5))

    def gap(rule, key):
        start = Pool(X, [0, 40], LABELS[[0, 40]])
        oracle = KnownLabels(LABELS)
        pool = learn_actively(model_of_classes(), start, oracle, method, rule, batch_size=1, budget=6, key=key).pool
        x, y = X[pool.labelled, 0], pool.labels
        return x[y == 1].min() - x[y == 0].max()

    assert np.mean([gap(BALD(), key) for key in range(3)]) < 0.5 * np.mean([gap(Random(), key) for key in range(3)])


@pytest.mark.slow
def test_variance_asks_at_both_ends():
    x = np.random.default_rng(0).permutation(X)
    net = mx.nets.MLP(in_size=1, hidden=(), out_size=1, key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=0.1), prior=mx.priors.Normal(scale=1.0))
    middle = int(np.argmin(np.abs(x[:, 0])))
    training = mx.infer.MAP(num_epochs=20, batch_size=None, optimiser=mx.infer.LBFGS())
    learned = learn_actively(
        model,
        Pool(x, [middle], [0.0]),
        lambda rows: 2 * x[rows, 0],
        mx.infer.Laplace(training=training),
        PredictiveVariance(),
        batch_size=1,
        budget=2,
        test=(x, 2 * x[:, 0]),
        key=0,
    )
    assert sorted(x[learned.pool.labelled, 0].tolist()) == [-1.0, 0.0, 1.0]
    assert learned.curve.error[-1] < 0.05


# ---- arguments


def test_pools_are_frozen_and_check_labels(as_users_run):
    pool = Pool(X)
    more = pool.label([3], [1]).label(np.array([1, 2]), np.array([0.0, 1.0]))
    assert pool.num_labelled == 0
    assert more.labelled.tolist() == [3, 1, 2]
    assert more.labels.dtype == np.int32
    assert more.unlabelled.tolist() == [0, *range(4, 41)]
    assert np.array_equal(more.data[0], X[[3, 1, 2]])
    for rows, y, message in (
        ([3], [1], "row 3 again"),
        ([5, 5], [1, 0], "row 5 again"),
        ([41], [1], "from 0 to 40, got 41"),
        ([-1], [1], "from 0 to 40, got -1"),
        ([0.5], [1], "row numbers"),
        ([5], [1, 0], "a label for each of the 1 rows"),
        ([5], [[1]], "rows of shape"),
        ([5], [np.nan], "NaN"),
        ([5], [0.5], "integer labels"),
    ):
        with pytest.raises(ValueError, match=message):
            more.label(rows, y)
    with pytest.raises(ValueError, match="no labels yet"):
        _ = pool.data
    with pytest.raises(ValueError, match="together"):
        Pool(X, rows=[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an int >= 1, got 0"),
        ({"budget": 2.5}, "budget must be an int >= 1, got 2.5"),
        ({"max_pool": 1}, "max_pool must be at least batch_size=2, got 1"),
        ({"num_samples": 0}, "num_samples must be an int >= 1 or None, got 0"),
        ({"threshold": np.nan}, "threshold must be finite"),
        ({"threshold": 0.1, "acquisition": Random()}, "threshold must be None for Random"),
        ({"rows": range(41)}, "rows without labels"),
        ({"test": (np.zeros((3, 2)), [0, 1, 1])}, "test must have inputs of shape"),
        ({"acquisition": "BALD"}, "acquisition must be an object such as mx.decide.BALD"),
        ({"oracle": LABELS}, "oracle must be a function"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_arguments_are_refused(change, message, as_users_run):
    with pytest.raises((ValueError, TypeError), match=message):
        learn(**change)


def test_curves_know_when_an_error_is_reached():
    curve = LearningCurve().add(20, error=0.4).add(30, error=0.1).add(40, error=0.2)
    assert (curve.labels_to_reach(0.4), curve.labels_to_reach(0.15), curve.labels_to_reach(0.05)) == (20, 30, None)
    assert np.isnan(curve.nll).all()

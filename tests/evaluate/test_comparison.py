"""Methods side by side: the same table as by hand, kept on disk, resumed, and drawn."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import marginax as mx
from marginax.evaluate import Comparison, ComparisonRow, Score, compare, load_comparison
from marginax.evaluate.costs import Costs
from marginax.files import FileError

MAP, LAPLACE = mx.infer.MAP(num_epochs=50), mx.infer.Laplace(training=mx.infer.MAP(num_epochs=50))


def _numbers(seed=0):
    x = np.linspace(-1, 1, 60)[:, None]
    y = 2 * x[:, 0] + 0.2 * np.random.default_rng(seed).normal(size=60)
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.2))
    return model, (x[::2], y[::2]), (x[1::2], y[1::2])


def _classes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = (x.sum(1) + 0.3 * rng.normal(size=60) > 0).astype(int)
    model = mx.Model(mx.nets.MLP(2, (), 2, key=0), likelihood=mx.likelihoods.Categorical())
    return model, (x[:30], y[:30]), (x[30:], y[30:])


@pytest.fixture(scope="module")
def numbers():
    model, data, test = _numbers()
    return compare(model, data, [MAP, LAPLACE], test=test, key=3, x_ood=np.array([[8.0], [9.0]]))


@pytest.fixture(scope="module")
def classes():
    model, data, test = _classes()
    return compare(model, data, {"a point": MAP, "Laplace": LAPLACE}, test=test, key=0)


def test_a_line_is_what_fit_and_scores_give(numbers):
    model, data, test = _numbers()
    posterior = mx.fit(model, data, LAPLACE, key=3)
    prediction = posterior.predict(test[0])
    row = numbers["Laplace"]
    for name, score in mx.evaluate.scores(prediction, test[1]).items():
        assert float(row.scores[name]) == pytest.approx(float(score), rel=1e-5)  # targets are kept in float32
    expected = mx.evaluate.ood(posterior, test[0], np.array([[8.0], [9.0]]), mx.evaluate.Std()).auroc
    assert row.ood == expected == 1.0
    assert numbers["MAP"].num_stored == 2  # a slope and an intercept
    assert row.seconds > 0
    assert row.predict_seconds > 0
    assert row.failure is None


def test_the_text_has_a_line_for_each_method(numbers):
    heading, header, *lines = repr(numbers).splitlines()
    assert heading == "30 test rows; each with its own budget"
    assert header.split()[:3] == ["method", "rmse", "nll"]
    assert [line.split()[0] for line in lines] == ["MAP", "Laplace"]
    assert len({len(line) for line in [header, *lines]}) == 1


def test_best_is_least_for_losses_and_most_for_the_rest():
    def row(nll, accuracy, num_stored):
        scores = {
            name: Score(value, 0.1, 9) for name, value in (("nll", nll), ("accuracy", accuracy), ("coverage", 0.9))
        }
        return ComparisonRow("", scores, None, 1.0, 1.0, None, num_stored)

    test = mx.data.Arrays(np.zeros((1, 1)), np.zeros(1))
    found = Comparison({"a": row(0.5, 0.7, 9), "b": row(0.4, 0.6, 2)}, {}, test, "")
    assert (found.best(), found.best("accuracy")) == ("b", "a")
    assert found.best("num_stored") == "b"
    with pytest.raises(ValueError, match="column must be one that has a best"):
        found.best("coverage")  # the most is not the best
    with pytest.raises(ValueError, match="column must be a score or a cost"):
        found.values_of("charm")
    with pytest.raises(KeyError, match="the names are a, b"):
        found["c"]


def test_a_method_that_fails_leaves_the_others_alone():
    model, data, test = _numbers()
    tiny = mx.infer.MAP(num_epochs=1)
    never = mx.infer.MAP(num_epochs=5, optimiser=mx.infer.SGD(1e30))
    with pytest.warns(RuntimeWarning, match="became NaN"):
        found = compare(model, data, {"good": tiny, "bad": never}, test=test, key=0)
    assert "became NaN" in found["bad"].failure
    assert "bad" not in found.posteriors
    assert found["good"].failure is None
    assert "failed: all 1 chains" in repr(found)
    with (
        pytest.warns(RuntimeWarning, match="became NaN"),
        pytest.raises(ValueError, match="methods all failed, bad with"),
    ):
        compare(model, data, {"bad": never}, test=test, key=0)


def test_a_comparison_on_disk_goes_on_where_it_was(tmp_path):
    model, data, test = _numbers()
    asked = []

    def stop(name):
        if asked:
            raise KeyboardInterrupt
        asked.append(name)

    both = [MAP, mx.infer.DeepEnsemble(2)]
    with pytest.raises(KeyboardInterrupt):
        compare(model, data, both, test=test, key=0, directory=tmp_path / "c", callback=stop)
    part = load_comparison(tmp_path / "c")
    assert list(part) == ["MAP"]
    named = []
    whole = compare(model, data, both, test=test, key=0, directory=tmp_path / "c", callback=named.append)
    assert named == ["DeepEnsemble"]
    assert list(whole) == ["MAP", "DeepEnsemble"]
    again = load_comparison(tmp_path / "c")
    assert repr(again) == repr(whole)
    for name in whole:
        first, second = (c.posteriors[name].predict(test[0]).mean for c in (whole, again))
        np.testing.assert_array_equal(first, second)
    with pytest.raises(FileExistsError, match="holds another comparison"):
        compare(model, _numbers(seed=1)[1], both, test=test, key=0, directory=tmp_path / "c")
    with pytest.raises(FileExistsError, match="holds another comparison"):
        compare(model, data, both, test=test, key=1, directory=tmp_path / "c")
    wide = mx.Model(model.network, likelihood=model.likelihood, prior=mx.priors.Normal(scale=7.0))
    with pytest.raises(FileExistsError, match=r"holds another comparison \(model\.prior"):
        compare(wide, data, both, test=test, key=0, directory=tmp_path / "c")


def test_what_was_left_behind_by_a_kill_is_neither_a_row_nor_a_failure(tmp_path):
    model, data, test = _numbers()
    both = [MAP, mx.infer.DeepEnsemble(2)]
    compare(model, data, both[:1], test=test, key=0, directory=tmp_path / "one")  # for its names
    (name,) = [path.name for path in (tmp_path / "one" / "fits").iterdir()]
    begin = {"test": test, "key": 0, "directory": tmp_path / "c"}

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(model, data, both, callback=stop, **begin)
    for path in (f"fits/{name}", f"fits/{name}/.setup.new-0123456789abcdef", "rows/left", "rows/.MAP.new-0123"):
        (tmp_path / "c" / path).mkdir(parents=True)
    (tmp_path / "c" / "rows" / "notes.txt").touch()
    found = compare(model, data, both, **begin)
    assert [row.failure for row in found.values()] == [None, None]
    assert list(load_comparison(tmp_path / "c")) == list(found)


@pytest.mark.slow
def test_a_full_disk_is_not_kept_as_a_failure_of_the_method(tmp_path, monkeypatch):
    import shutil

    model, data, test = _numbers()
    mala = mx.infer.MALA(num_warmup=10, num_samples=10)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 0}))
        with pytest.raises(FileError, match="on the disk are free"):
            compare(model, data, {"a": MAP, "b": mala}, test=test, key=0, directory=tmp_path / "c")
    assert compare(model, data, {"a": MAP, "b": mala}, test=test, key=0, directory=tmp_path / "c")["b"].failure is None


def test_saved_and_loaded_it_is_the_same(numbers, tmp_path):
    numbers.save(tmp_path / "c")
    loaded = load_comparison(tmp_path / "c")
    assert repr(loaded) == repr(numbers)
    assert loaded["Laplace"].warnings == numbers["Laplace"].warnings
    with pytest.raises(FileExistsError, match="is not empty"):
        numbers.save(tmp_path / "c")


def test_a_budget_is_kept_and_said(tmp_path):
    model, data, test = _numbers()
    found = compare(model, data, [mx.infer.MAP(num_epochs=100_000)], test=test, key=0, seconds=1e-6)
    assert "1e-06 s for each" in found.heading
    assert "time limit" in found["MAP"].warnings[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": []}, "methods must be objects such as"),
        ({"methods": ["nutz"]}, "must be an object from mx.infer"),
        ({"methods": [MAP, MAP]}, "methods must differ"),
        ({"seconds": 0.0}, "seconds must be > 0"),
        ({"ood_score": mx.evaluate.Std()}, "x_ood must be inputs from elsewhere"),
        ({"test": (np.zeros((3, 1)), np.zeros(2))}, "x and y must have the same number of rows"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(as_users_run, change, message):
    model, data, test = _numbers()
    arguments = {"methods": [MAP], "test": test, "key": 0} | change
    with pytest.raises((TypeError, ValueError), match=message):
        compare(model, data, arguments.pop("methods"), **arguments)


def test_memory_is_that_of_the_work():
    with Costs() as costs:
        block = np.ones(40 * 2**17)  # 40 MB, touched
    if costs.megabytes is None:
        pytest.skip("this system does not say how much memory was used at most")
    assert costs.megabytes >= 0.9 * block.nbytes / 2**20
    with Costs() as nothing:
        pass
    assert nothing.megabytes < 5


# ---- pictures


def test_the_front_has_what_no_cheaper_method_beats():
    def row(nll, seconds):
        return ComparisonRow("", {"nll": Score(nll, 0.1, 9)}, None, seconds, 1.0, None, 1)

    rows = {"slow": row(0.3, 9.0), "fast": row(0.5, 1.0), "beaten": row(0.6, 2.0)}
    ax = mx.plot.plot_pareto(
        plt.figure().gca(), Comparison(rows, {}, mx.data.Arrays(np.zeros((1, 1)), np.zeros(1)), "")
    )
    assert ax.lines[0].get_xdata().tolist() == [1.0, 9.0]
    assert [text.get_text() for text in ax.texts] == ["slow", "fast", "beaten"]


@pytest.mark.slow
def test_the_boundary_is_where_the_classes_are_equally_probable(classes):
    _, data, _ = _classes()
    posterior = classes.posteriors["a point"]
    ax = mx.plot.plot_boundary(plt.figure().gca(), posterior, x=data[0], y=data[1])
    line = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
    np.testing.assert_allclose(posterior.predict(line).probs[:, 1], 0.5, atol=0.02)
    with pytest.raises(ValueError, match=r"x must have shape \(n, 2\)"):
        mx.plot.plot_boundary(plt.figure().gca(), posterior, x=np.zeros((3, 3)))


@pytest.mark.slow
def test_pictures_suit_what_is_predicted(numbers, classes):
    assert list(mx.plot.draw_comparison(numbers)) == ["Score against time", "Coverage of intervals", "Predictions"]
    figures = mx.plot.draw_comparison(classes, _classes()[1])
    assert list(figures) == ["Score against time", "Reliability", "Decision boundaries"]
    assert [ax.get_title() for ax in figures["Reliability"].axes] == ["a point", "Laplace"]

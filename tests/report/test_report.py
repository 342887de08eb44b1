"""The report of a fit: what it says, and that nothing of the user's runs in it. Fits are made by hand, to be cheap."""

import re

import jax
import numpy as np
import pytest
from tests.report.browser import Browser, find_browser

import marginax as mx
from marginax.evaluate import Comparison, ComparisonRow, Proportion, scores
from marginax.model import Params
from marginax.posterior.record import FitRecord
from marginax.report import NUM_PARTS, Picture, Section, Table, Text, page, write_comparison, write_report

PLANTED = "age <script>document.title = 'planted'</script> in $ & \"years\""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine")
    return Browser(program, tmp_path_factory.mktemp("browser"))


def around(model, weight, bias, *, likelihood, size, rng):
    """Draws around a linear network, of two chains that agree."""
    near = [np.asarray(value) + size * rng.normal(size=(2, 200, *np.shape(value))) for value in (weight, bias)]
    start = model.initial(np.shape(bias)[0])
    leaves = [np.asarray(value, np.float32) for value in near]
    network = jax.tree.unflatten(jax.tree.structure(start.network), leaves)
    unknown = {name: np.full((2, 200), value, np.float32) for name, value in likelihood.items()}
    return Params(network, unknown, {})


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    """A report of numbers that depend on two inputs, one of them badly named."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x @ [1.0, -2.0] + 0.3 * rng.normal(size=60)
    model = mx.Model(mx.nets.MLP(2, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.3))
    params = around(model, [[1.0, -2.0]], [0.0], likelihood={}, size=0.1, rng=rng)
    record = FitRecord(
        method="NUTS(num_samples=60)",
        num_chains=2,
        num_steps={"warmup": 50, "sample": 60},
        seconds={"warmup": 2.0, "sample": 1.0},
        info={"warmup": {"log_density": rng.normal(size=(2, 50))}},
        probes=x[:8].astype(np.float32),
    )
    spec = mx.data.DataSpec((2,), (), 200)
    posterior = mx.posterior.Draws(model, params, spec=spec, record=record, key=jax.random.key(0))
    path = tmp_path_factory.mktemp("report") / "new" / "report.html"
    names = [PLANTED, "weight"]
    seen = rng.normal(size=(200, 2))
    train = seen, 5 + seen @ [1.0, -2.0] + 0.3 * rng.normal(size=200)
    command = f"marginax fit {'a-long-name-of-a-file-' * 12}.csv"
    write_report(path, posterior=posterior, x=x, y=y, train=train, names=names, target="height", command=command)
    return path, posterior, x, y


@pytest.fixture(scope="module")
def classification(tmp_path_factory):
    """A report of three classes."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(90, 2))
    weight = np.array([[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]])
    y = np.argmax(x @ weight.T + 0.5 * rng.normal(size=(90, 3)), axis=1)
    model = mx.Model(mx.nets.MLP(2, (), 3, key=0), likelihood=mx.likelihoods.Categorical())
    params = around(model, weight, np.zeros(3), likelihood={}, size=0.3, rng=rng)
    posterior = mx.posterior.Draws(model, params, spec=mx.data.DataSpec((2,), (), 200))
    path = tmp_path_factory.mktemp("report") / "report.html"
    classes = ["ash", "<b>birch</b>", "cedar"]
    return write_report(path, posterior=posterior, x=x, y=y, target="tree", classes=classes), posterior, x, y


def words(path):
    """The text of a page without its markup, and without spaces that hold words together."""
    text = re.sub(r"<(style|svg).*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))  # \s takes those in, too


def cells(path, first):
    """The cells of the row of a table that begins with a word, by the names of their columns."""
    row = re.search(
        rf'<tr><td class="short" data-name="[^"]*">{re.escape(first)}</td>(.*?)</tr>', path.read_text("utf-8")
    )
    return {name: text.replace("\xa0", " ") for name, text in re.findall(r'data-name="([^"]*)">(.*?)</td>', row[1])}


def test_scores_are_those_of_evaluate_with_standard_errors(regression):
    path, posterior, x, y = regression
    table = scores(posterior.predict(x), y)
    text = words(path)
    for name in ("rmse", "nll"):
        assert f"{name.upper()} {table[name].text}" in text


def test_scores_stand_beside_a_constant_and_a_linear_model(regression):
    """The training targets are 5 higher than the held-out ones, so that both baselines are off by 5."""
    path, posterior, x, y = regression
    assert cells(path, "RMSE")["this fit"] == scores(posterior.predict(x), y)["rmse"].text
    assert abs(float(cells(path, "RMSE")["constant"]) - np.sqrt(np.mean((y - 5) ** 2))) < 0.3
    assert abs(float(cells(path, "RMSE")["linear"]) - 5) < 0.2
    assert float(cells(path, "R²")["constant"]) < 0 < float(cells(path, "R²")["this fit"].split()[0])
    text = words(path)
    assert f"the standard deviation {y.std():.4g} in the held-out rows" in text
    assert "Constant 5." in text  # in the card
    assert "with the mean and the standard deviation of the training rows" in text


def test_without_training_rows_the_constant_is_that_of_the_held_out_ones(classification):
    path, _, _, y = classification
    text = words(path)
    majority = f"{np.bincount(y).max() / len(y):.1%}"
    assert f"always the commonest class would be in {majority}" in text
    assert "the report was given no training rows (train=)" in text
    assert "linear" not in cells(path, "accuracy")


def test_rare_classes_have_precision_and_recall(classification, tmp_path):
    path, posterior, x, y = classification
    assert ("precision" in words(path)) == (np.bincount(y).max() > 1.5 * np.bincount(y).min())
    some = np.flatnonzero((y != 2) | (np.cumsum(y == 2) <= 4))
    path = write_report(tmp_path / "rare.html", posterior=posterior, x=x[some], y=y[some], classes=["a", "b", "c"])
    labels = posterior.predict(x[some]).labels
    right = int(np.sum((labels == 2) & (y[some] == 2)))
    found = re.search(
        r'<td class="short" data-name="class">c</td><td class="num" data-name="rows">4</td>(.*?)</tr>',
        path.read_text("utf-8"),
    )
    shown = found[1].replace("\xa0", " ")
    assert Proportion(right, int(np.sum(labels == 2))).text in shown
    assert Proportion(right, 4).text in shown


def test_the_same_number_is_in_table_and_picture(classification):
    path = classification[0]
    error = cells(path, "ECE")["this fit"]
    assert words(path).count(f"ECE {error}") >= 1
    pictures = "".join(re.findall(r"<svg.*?</svg>", path.read_text("utf-8"), flags=re.DOTALL))
    assert f"ECE {error}" in pictures


@pytest.mark.slow
def test_warnings_name_what_the_place_has(regression, tmp_path):
    """Members that differ: the report of a command says --chains, that of a program num_chains=."""
    _, posterior, x, y = regression
    few = jax.tree.map(lambda leaf: 30 * leaf[:, :2].reshape(4, 1, *leaf.shape[2:]), posterior.params)
    members = mx.posterior.Draws(
        posterior.model, few, spec=posterior.spec, record=FitRecord(probes=posterior.record.probes)
    )
    for command, said in ((None, "(num_chains=16)"), ("marginax fit a.csv", "(--chains 16)")):
        path = write_report(tmp_path / "a.html", posterior=members, x=x, y=y, command=command)
        assert said in words(path)


def test_every_part_of_a_fit_is_told(regression):
    text = words(regression[0])
    headings = re.findall(r"<h2>(.*?)</h2>", regression[0].read_text(encoding="utf-8"))
    assert headings == [
        "What was fitted",
        "Scores",
        "Calibration and coverage",
        "Predictions",
        "Which inputs are uncertain, and why",
        "Chains",
        "Cost",
        "How to reproduce",
    ]
    assert "The 2 chains agree in their predictions" in text
    assert "The fit took 3.0 seconds" in text
    assert "marginax fit a-long" in text
    assert "one noise level" in text


def test_inputs_that_go_with_the_epistemic_part_are_named(regression):
    """The draws differ in their slopes, so the epistemic part grows with the distance of both inputs."""
    text = words(regression[0])
    found = re.search(
        r"The epistemic part is larger where there is \(with rank correlation\): (.*?) The aleatoric", text
    )
    assert found
    assert "weight far from its mean (+" in found[1]


def test_most_uncertain_rows_come_first(regression):
    path, posterior, x, _ = regression
    row = re.search(
        r'<th class="short">row</th>.*?<tbody><tr><td class="short" data-name="row">(\d+)</td>',
        path.read_text(),
        re.DOTALL,
    )
    assert int(row[1]) == int(np.argmax(posterior.predict(x).variance))


def test_classes_are_called_by_their_names(classification):
    text = words(classification[0])
    assert "cedar" in text
    assert "&lt;b&gt;birch&lt;/b&gt;" in text
    assert "accuracy 0." in text
    assert "of the predictive entropy is epistemic" in text
    assert "Left out: the record of the fit has no times." in text


def test_nothing_that_the_user_named_becomes_markup(regression, classification):
    for path in (regression[0], classification[0]):
        raw = path.read_text(encoding="utf-8")
        assert "<script" not in raw
        assert "<b>birch" not in raw
    assert "&lt;script&gt;" in regression[0].read_text(encoding="utf-8")


def test_the_page_names_no_other_place(regression, classification):
    for path in (regression[0], classification[0]):
        raw = re.sub(r'xmlns(:xlink)?="[^"]*"', "", path.read_text(encoding="utf-8"))
        assert "http:" not in raw
        assert "https:" not in raw
        targets = re.findall(r"(?:src|href)=\"([^\"]*)\"", raw)
        assert [target for target in targets if not target.startswith("#")] == []


def test_pictures_of_a_page_share_no_names(regression):
    names = re.findall(r'\bid="([^"]*)"', regression[0].read_text(encoding="utf-8"))
    assert len(names) > 50
    assert len(names) == len(set(names))


def test_colours_follow_the_page(regression):
    raw = regression[0].read_text(encoding="utf-8")
    pictures = "".join(re.findall(r"<svg.*?</svg>", raw, flags=re.DOTALL))
    assert "currentColor" in pictures
    assert "#000000" not in pictures


@pytest.mark.slow
def test_inputs_are_shown_in_the_units_that_the_user_knows(regression, tmp_path):
    _, posterior, x, y = regression
    scaling = mx.data.Scaling(np.array([50.0, 0.0]), np.array([10.0, 1.0]))
    path = write_report(tmp_path / "a.html", posterior=posterior, x=x, y=y, scaling=scaling, names=["age", "weight"])
    worst = int(np.argmax(posterior.predict(x).variance))
    assert f"age {50 + 10 * x[worst, 0]:.4g}" in words(path)


@pytest.mark.slow
def test_one_input_is_drawn_over_its_range(tmp_path):
    rng = np.random.default_rng(0)
    model = mx.Model(mx.nets.MLP(1, (), 1, key=0), likelihood=mx.likelihoods.Gaussian(scale=0.3))
    params = around(model, [[2.0]], [0.0], likelihood={}, size=0.1, rng=rng)
    posterior = mx.posterior.Draws(model, params, spec=mx.data.DataSpec((1,), (), 20))
    x = rng.normal(size=(20, 1))
    path = write_report(tmp_path / "a.html", posterior=posterior, x=x, y=2 * x[:, 0], names=[PLANTED])
    raw = path.read_text(encoding="utf-8")
    assert "Predictions with bands over the input" in raw
    assert "age &lt;script&gt;" in raw
    assert "<script" not in raw


def test_every_part_is_announced(regression, tmp_path):
    _, posterior, x, y = regression
    heard = []
    write_report(tmp_path / "a.html", posterior=posterior, x=x, y=y, callback=heard.append)
    assert len(heard) == NUM_PARTS
    assert heard[-1] == "page"


def test_wrong_arguments_are_named(regression, tmp_path):
    _, posterior, x, y = regression
    with pytest.raises(ValueError, match="names must have 2 entries, one per column of x, got 1"):
        write_report(tmp_path / "a.html", posterior=posterior, x=x, y=y, names=["a"])
    with pytest.raises(ValueError, match="same number of rows, got 60 and 59"):
        write_report(tmp_path / "a.html", posterior=posterior, x=x, y=y[1:])
    with pytest.raises(ValueError, match="level must be a number strictly between 0 and 1, got 90"):
        write_report(tmp_path / "a.html", posterior=posterior, x=x, y=y, level=90.0)
    assert not (tmp_path / "a.html").exists()


def test_a_comparison_is_a_page_of_rows_and_figures():
    from matplotlib.figure import Figure

    figure = Figure((3, 2))
    figure.subplots().bar(["a", "b"], [1, 2])
    rows = [{"method": "MAP", "nll": "0.3 ± 0.1"}, {"method": "<NUTS>", "seconds": "7"}]
    text = page("Methods", [Section("All", (Text("Two."), Table.of(rows), Picture(figure, "bars")))])
    assert '<th class="num">seconds</th>' in text
    assert "&lt;NUTS&gt;" in text
    assert 'aria-label="bars"' in text


@pytest.fixture(scope="module")
def comparison(regression, tmp_path_factory):
    """A report of two methods, and of one that failed."""
    _, posterior, x, y = regression
    table = dict(scores(posterior.predict(x), y))
    rows = {
        name: ComparisonRow(f"{name}()", table, None, seconds, 0.1, 12.0, 600, ("be <careful>",))
        for name, seconds in (("NUTS", 9.0), ("SGLD", 3.0))
    }
    rows["<HMC>"] = ComparisonRow("HMC()", {}, None, 0.0, 0.0, None, 0, (), "it <broke>")
    posteriors = {"NUTS": posterior, "SGLD": posterior}
    found = Comparison(rows, posteriors, mx.data.Arrays(x, y), "60 test rows")
    path = tmp_path_factory.mktemp("comparison") / "report.html"
    return write_comparison(path, found, command="marginax compare a.csv"), found


def test_a_comparison_has_all_methods_and_pictures(comparison):
    path, found = comparison
    text = words(path)
    for line in found.table()[1][:2]:
        assert " ".join(line) in text
    assert "&lt;HMC&gt; failed: it &lt;broke&gt;" in text
    assert "NUTS: be &lt;careful&gt;" in text
    assert path.read_text(encoding="utf-8").count("<svg") == 2


# ---- in a browser


@pytest.mark.parametrize("width", [390, 1280])
def test_opens_in_a_browser_without_overflow(browser, regression, classification, comparison, width):
    for path, pictures in ((regression[0], 6), (classification[0], 2), (comparison[0], 2)):
        seen = browser.measure(path, width=width)
        assert seen["width"] == width
        assert seen["scroll_width"] <= width
        assert seen["cut"] == []  # nothing is behind a scrollbar, or beyond the edge of its box
        assert seen["fetched"] == []
        assert seen["scripts"] == 0
        assert seen["pictures"] == pictures


def test_the_console_stays_silent(browser, regression, classification):
    assert browser.console(regression[0]) == []
    assert browser.console(classification[0]) == []


def test_the_console_is_heard(browser, tmp_path, regression):
    """What the test above relies on: a page that fetches or runs something is noticed."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        regression[0].read_text(encoding="utf-8").replace("</main>", '<img src="http://example.invalid/a.png"></main>')
    )
    assert any("Content Security Policy" in line for line in browser.console(bad))
    assert browser.measure(bad, width=390)["fetched"] != []


@pytest.mark.slow
def test_light_and_dark_differ_and_are_legible(browser, regression, tmp_path):
    light = browser.screenshot(regression[0], tmp_path / "light.png", width=390, height=1600)
    dark = browser.screenshot(regression[0], tmp_path / "dark.png", width=390, height=1600, dark=True)
    wide = browser.screenshot(regression[0], tmp_path / "wide.png", width=1280, height=1600)
    assert light.shape == dark.shape == (1600, 390, 3)
    assert wide.shape == (1600, 1280, 3)
    for picture in (light, dark, wide):
        assert picture.std() > 0.05  # neither blank nor of one colour
    assert light.mean() > 0.8
    assert dark.mean() < 0.3
    for is_dark in (False, True):
        seen = browser.measure(regression[0], width=390, dark=is_dark)
        assert contrast(seen["ink"], seen["paper"]) > 7  # WCAG AAA


def contrast(first, second):
    """Ratio of luminances, as WCAG defines it."""

    def luminance(color):
        channels = np.array([float(part) for part in re.findall(r"[\d.]+", color)[:3]]) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


def test_whom_to_ask_is_somebody_who_was_not_asked(tmp_path):
    """With a label of everybody for every row there is nobody left; y without a column for each is named."""
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 2, 30)
    answers = np.where(rng.uniform(size=(30, 3)) < 0.9, truth[:, None], 1 - truth[:, None])
    model = mx.Model(mx.nets.Intercept(2), mx.likelihoods.Annotators(2, 3))
    x, pages = np.zeros((30, 1)), []
    for given in (answers, np.where(rng.uniform(size=(30, 3)) < 0.5, answers, -1)):
        given = np.where((given == -1).all(axis=1, keepdims=True), answers, given)
        posterior = mx.fit(model, (x, given), mx.infer.MAP(num_epochs=50, batch_size=None), key=0, progress=False)
        path = write_report(tmp_path / "report.html", posterior=posterior, x=x, y=answers, train=(x, given))
        pages.append(path.read_text(encoding="utf-8"))
    assert "there is nobody left to ask" in pages[0]
    assert "where one more label is expected to say most" not in pages[0]
    assert "where one more label is expected to say most" in pages[1]
    with pytest.raises(ValueError, match=r"y must have a column of labels for each annotator, .* got shape \(30,\)"):
        write_report(tmp_path / "no.html", posterior=posterior, x=x, y=truth)


def test_annotators_are_those_of_a_model_that_has_any(classification, tmp_path):
    _, posterior, x, y = classification
    with pytest.raises(ValueError, match="annotators must be None"):
        write_report(tmp_path / "no.html", posterior=posterior, x=x, y=y, annotators=["ann"])

"""Conformal prediction: coverage follows its law for any rule, and sets are those that the formulas give."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from marginax.decide import (
    APS,
    CQR,
    LAC,
    RAPS,
    AbsoluteResidual,
    Mondrian,
    Normalised,
    PerClass,
    Randomised,
    conformal,
    conformalise,
)
from marginax.files import load_tree, save_tree
from marginax.model.distributions import Bernoulli, Normal
from marginax.predict import ClassificationPrediction, MultiLabelPrediction, RegressionPrediction
from marginax.predict.mixture import Mixture

NUM_HELD_OUT, NUM_NEW, LEVEL = 20, 300, 0.9
NUMBERS = [AbsoluteResidual(), Normalised(), CQR()]
CLASSES = [LAC(), APS(), RAPS(0.05, 2), Randomised(APS()), Randomised(RAPS(0.05, 2))]


def name_of(rule):
    inner = getattr(rule, "rule", None)
    return type(rule).__name__ + ("" if inner is None else f" {name_of(inner)}")


def numbers(rng, num, groups=None):
    """A bad prediction (mean, std) and targets; groups differ in their noise."""
    mean, std = rng.normal(size=num), rng.gamma(3, size=num)
    noise = rng.standard_t(4, size=num) * (1 if groups is None else 1 + 5 * groups)
    return (mean, std), mean + 0.3 + noise * std**0.5


def classes(rng, num, num_classes=30):
    """Probabilities that are far too sure of themselves, and labels."""
    logits = rng.normal(size=(num, num_classes))
    gumbel = rng.gumbel(size=(num, num_classes))
    probs = np.exp(3 * logits)
    return probs / probs.sum(axis=1, keepdims=True), np.argmax(logits + gumbel, axis=1)


def as_input(rule, prediction):
    """What the rule takes, of a pair (mean, std)."""
    mean, std = prediction
    return {AbsoluteResidual: mean, Normalised: prediction, CQR: (mean - std, mean + 2 * std)}[type(rule)]


def covered_numbers(rule, rng, *, level=LEVEL, num=NUM_HELD_OUT):
    """Whether each of NUM_NEW new targets is in its interval, after calibration on num others."""
    held_out, y = numbers(rng, num)
    new, y_new = numbers(rng, NUM_NEW)
    lower, upper = conformalise(as_input(rule, held_out), y, rule).interval(as_input(rule, new), level)
    return (lower <= y_new) & (y_new <= upper)


def covered_classes(rule, rng, *, level=LEVEL, num=NUM_HELD_OUT):
    keys = {"key": int(rng.integers(2**31))} if isinstance(rule, Randomised) else {}
    probs, y = classes(rng, num)
    probs_new, y_new = classes(rng, NUM_NEW)
    sets = conformalise(probs, y, rule, **keys).sets(probs_new, level, **keys)  # one seed serves for both
    return sets[np.arange(NUM_NEW), y_new]


def check_law_of_coverage(hits, *, num=NUM_HELD_OUT, level=LEVEL):
    """How many of the new ones are covered is Beta-binomial, exactly, over repetitions: (repetition, new)."""
    rank = math.ceil((num + 1) * level)
    law = stats.betabinom(hits.shape[1], rank, num + 1 - rank)
    count = hits.sum(axis=1)
    uniform = law.cdf(count - 1) + np.random.default_rng(1).uniform(size=len(count)) * law.pmf(count)
    assert stats.kstest(uniform, "uniform").pvalue > 1e-6
    per_repetition = hits.mean(axis=1)
    error = per_repetition.std(ddof=1) / np.sqrt(len(hits))
    assert abs(per_repetition.mean() - rank / (num + 1)) < 4.9 * error


def repeat(draw, *, num=1000, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([draw(rng) for _ in range(num)])


def regression_prediction(means, stds, y_shape=(), y_shift=0.0, y_factor=1.0):
    """One draw, Gaussian, from arrays (n, d)."""
    means, stds = (jnp.asarray(value, jnp.float32).reshape(1, len(value), -1) for value in (means, stds))
    mixture = Mixture(Normal(means, stds), (True, True), np.zeros(1), means.shape[1], 10**8)
    return RegressionPrediction(mixture, y_shape, y_shift, y_factor)


def classification_prediction(probs):
    return ClassificationPrediction(np.log(probs), np.zeros(len(probs)), np.zeros(probs.shape), 1, 10**8)


# ---- coverage


@pytest.mark.parametrize("rule", NUMBERS, ids=name_of)
def test_coverage_of_intervals_follows_the_beta_law(rule):
    check_law_of_coverage(repeat(lambda rng: covered_numbers(rule, rng)))


@pytest.mark.parametrize("rule", CLASSES, ids=name_of)
def test_coverage_of_sets_follows_the_beta_law(rule):
    check_law_of_coverage(repeat(lambda rng: covered_classes(rule, rng)))


@pytest.mark.parametrize(("num", "level"), [(9, 0.9), (10, 0.5), (57, 0.731), (99, 0.99)])
def test_the_law_holds_for_any_size_and_level(num, level):
    hits = repeat(lambda rng: covered_numbers(Normalised(), rng, num=num, level=level), num=400)
    check_law_of_coverage(hits, num=num, level=level)


def covered_per_group(rng, wrap=Mondrian):
    """Hits of the two groups, (2, NUM_NEW): the second is six times as noisy, and four times as rare."""
    groups = np.repeat([0, 1], [4 * NUM_HELD_OUT, NUM_HELD_OUT])
    new_groups = np.repeat([0, 1], NUM_NEW)
    held_out, y = numbers(rng, len(groups), groups)
    new, y_new = numbers(rng, len(new_groups), new_groups)
    kinds = ({"groups": groups}, {"groups": new_groups}) if wrap is Mondrian else ({}, {})
    calibrated = conformalise(held_out, y, wrap(Normalised()), **kinds[0])
    lower, upper = calibrated.interval(new, LEVEL, **kinds[1])
    return ((lower <= y_new) & (y_new <= upper)).reshape(2, NUM_NEW)


def test_mondrian_coverage_follows_the_law_in_each_group():
    hits = repeat(covered_per_group)
    check_law_of_coverage(hits[:, 0], num=4 * NUM_HELD_OUT)
    check_law_of_coverage(hits[:, 1], num=NUM_HELD_OUT)
    pooled = repeat(lambda rng: covered_per_group(rng, wrap=lambda rule: rule), num=100)
    assert pooled[:, 1].mean() < 0.8  # what would happen to the second group without


def test_coverage_per_class_follows_the_law_in_each_class():
    def draw(rng):
        probs, y = classes(rng, 3 * NUM_HELD_OUT, 3)
        y[:] = np.repeat(np.arange(3), NUM_HELD_OUT)  # the first class is easy, the last is hard
        new, y_new = classes(rng, 3 * NUM_NEW, 3)
        y_new[:] = np.repeat(np.arange(3), NUM_NEW)
        rows, new_rows = np.arange(len(y)), np.arange(len(y_new))
        probs[rows, y] += 4 - 2 * y
        new[new_rows, y_new] += 4 - 2 * y_new
        probs, new = (each / each.sum(axis=1, keepdims=True) for each in (probs, new))
        return conformalise(probs, y, PerClass(LAC())).sets(new, LEVEL)[new_rows, y_new].reshape(3, NUM_NEW)

    hits = repeat(draw)
    for label in range(3):
        check_law_of_coverage(hits[:, label])


def test_randomised_sets_are_smaller_and_exact_where_scores_tie():
    # One of two classes, always with the same probabilities: without random numbers all scores are ties.
    rng = np.random.default_rng(0)
    probs = np.tile([0.7, 0.3], (50, 1))

    def draw(rule, **keys):
        y, y_new = (rng.uniform(size=50) < 0.3).astype(int), (rng.uniform(size=50) < 0.3).astype(int)
        sets = conformalise(probs, y, rule, **keys).sets(probs, 0.8, **keys)
        return sets[np.arange(50), y_new], sets.sum(axis=1)

    hits, sizes = np.swapaxes([draw(APS()) for _ in range(50)], 0, 1)
    assert hits.mean() > 0.95
    assert sizes.mean() > 1.9
    hits, sizes = np.swapaxes([draw(Randomised(APS()), key=seed) for seed in range(600)], 0, 1)
    check_law_of_coverage(hits, num=50, level=0.8)
    assert sizes.mean() < 1.7


# ---- formulas


@pytest.mark.parametrize("num", [1, 5, 99, 100, 1000])
def test_the_quantile_is_the_right_order_statistic(num):
    scores = np.arange(1.0, num + 1)
    for percent in range(1, 100):
        rank = -(-(num + 1) * percent // 100)  # in whole numbers, without rounding
        expected = rank if rank <= num else np.inf
        assert conformal.conformal_quantile(scores, percent / 100) == expected
        assert (num >= conformal.rows_needed(percent / 100)) == np.isfinite(expected)


def test_intervals_are_those_of_the_formulas():
    (mean, std), y = numbers(np.random.default_rng(0), 50)
    new, wide = np.array([1.0, -2.0]), np.array([0.5, 3.0])

    def quantile(scores):
        return np.sort(scores)[math.ceil(51 * 0.8) - 1]

    lower, upper = conformalise(mean, y, AbsoluteResidual()).interval(new, 0.8)
    q = quantile(np.abs(y - mean))
    np.testing.assert_allclose([lower, upper], [new - q, new + q])
    lower, upper = conformalise((mean, std), y, Normalised()).interval((new, wide), 0.8)
    q = quantile(np.abs(y - mean) / std)
    np.testing.assert_allclose([lower, upper], [new - q * wide, new + q * wide])
    lower, upper = conformalise((mean - std, mean + std), y, CQR()).interval((new - wide, new + wide), 0.8)
    q = quantile(np.maximum(mean - std - y, y - mean - std))
    np.testing.assert_allclose([lower, upper], [new - wide - q, new + wide + q])


def test_scores_of_classes_are_those_of_the_formulas():
    probs = classes(np.random.default_rng(0), 40, 5)[0]
    aps, raps = APS().scores(probs), RAPS(0.1, 2).scores(probs)
    for row, (p, by_aps, by_raps) in enumerate(zip(probs, aps, raps, strict=True)):
        for label in range(5):
            above = p[p >= p[label]]
            np.testing.assert_allclose(by_aps[label], above.sum(), err_msg=f"row {row}")
            np.testing.assert_allclose(by_raps[label], above.sum() + 0.1 * max(len(above) - 2, 0))
    np.testing.assert_allclose(LAC().scores(probs), 1 - probs)
    uniform = Randomised(APS()).scores(probs, key=jax.random.key(3))
    share = (aps - uniform) / probs
    np.testing.assert_allclose(share, share[:, :1] * np.ones(5), rtol=1e-6)
    assert (share > 0).all()
    assert (share < 1).all()


def test_sets_hold_the_classes_up_to_the_quantile_also_at_ties():
    probs = np.array([[0.5, 0.3, 0.2]] * 9)
    y = [0, 0, 0, 0, 0, 1, 1, 1, 2]
    new = np.array([[0.5, 0.3, 0.2], [0.2, 0.1, 0.7]])
    calibrated = conformalise(probs, y, LAC())
    assert calibrated.sets(new, 0.5).tolist() == [[True, False, False], [False, False, True]]
    assert calibrated.sets(new, 0.8).tolist() == [[True, True, False], [False, False, True]]
    assert calibrated.sets(new, 0.9).all(axis=1).tolist() == [True, False]
    calibrated = conformalise(probs, y, APS())
    assert calibrated.sets(new, 0.5).tolist() == [[True, False, False], [False, False, False]]
    assert calibrated.sets(new, 0.8).tolist() == [[True, True, False], [False, False, True]]
    assert calibrated.sets(new, 0.9).all()  # the least probable class of any input has a score of 1


def test_higher_levels_give_larger_intervals_and_sets():
    rng = np.random.default_rng(0)
    held_out, y = numbers(rng, 200)
    probs, labels = classes(rng, 200)
    levels = np.linspace(0.05, 0.95, 19)
    for rule in NUMBERS:
        calibrated = conformalise(as_input(rule, held_out), y, rule)
        ends = np.array([calibrated.interval(as_input(rule, held_out), level) for level in levels])
        assert (np.diff(ends[:, 1] - ends[:, 0], axis=0) >= 0).all()
    for rule in CLASSES:
        keys = {"key": 0} if isinstance(rule, Randomised) else {}
        calibrated = conformalise(probs, labels, rule, **keys)
        sets = np.array([calibrated.sets(probs, level, **keys) for level in levels])
        assert (np.diff(sets.astype(int), axis=0) >= 0).all()


def test_penalties_make_sets_smaller_where_the_tail_is_long():
    rng = np.random.default_rng(0)
    probs, y = classes(rng, 2000, 50)
    sizes = [conformalise(probs, y, rule).sets(probs).sum(axis=1) for rule in (APS(), RAPS(0.1, 3))]
    assert sizes[1].max() < sizes[0].max()


# ---- predictions of ours


def test_predictions_and_arrays_give_the_same():
    rng = np.random.default_rng(0)
    (mean, std), y = numbers(rng, 60)
    z = stats.norm.ppf(0.9)
    prediction = regression_prediction(mean, std)
    ends = mean - z * std, mean + z * std
    for rule, arrays in ((AbsoluteResidual(), mean), (Normalised(), (mean, std)), (CQR(0.8), ends)):
        ours = conformalise(prediction[:50], y[:50], rule).interval(prediction[50:])
        if isinstance(arrays, tuple):
            parts = [tuple(part[rows] for part in arrays) for rows in (slice(50), slice(50, None))]
        else:
            parts = [arrays[:50], arrays[50:]]
        np.testing.assert_allclose(ours, conformalise(parts[0], y[:50], rule).interval(parts[1]), rtol=1e-5, atol=1e-5)
    probs, labels = classes(rng, 60)
    prediction = classification_prediction(probs)
    ours = conformalise(prediction[:50], labels[:50], LAC()).sets(prediction[50:])
    assert np.array_equal(ours, conformalise(probs[:50], labels[:50], LAC()).sets(probs[50:]))


def test_each_output_has_its_own_quantile():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(80, 2)), rng.gamma(3, size=(80, 2))
    y = mean + rng.normal(size=(80, 2)) * [1, 10]
    prediction = regression_prediction(mean, std, y_shape=(2,))
    for rule in NUMBERS:
        lower, upper = conformalise(prediction, y, rule).interval(prediction, 0.8)
        assert lower.shape == (80, 2)
        covered = ((lower <= y) & (y <= upper)).mean(axis=0)
        np.testing.assert_allclose(covered, 65 / 80)  # the 65th of 80 scores
    with pytest.raises(ValueError, match=r"targets of shape \(2,\) as the held-out ones, got \(3,\)"):
        conformalise(mean, y, AbsoluteResidual()).interval(np.zeros((4, 3)))


def test_groups_are_integers_strings_or_a_column_of_a_table():
    (mean, _), y = numbers(np.random.default_rng(0), 60)
    names = np.array(["north", "south"])[np.arange(60) % 2]
    rule = Mondrian(AbsoluteResidual())
    expected = conformalise(mean, y, rule, groups=np.arange(60) % 2).interval(mean, groups=np.arange(60) % 2)
    for groups in (names, names.tolist(), pd.Series(names), names == "south", jnp.arange(60) % 2):
        assert np.array_equal(conformalise(mean, y, rule, groups=groups).interval(mean, groups=groups), expected)


@pytest.mark.parametrize(
    "rule", [*NUMBERS, *CLASSES, Mondrian(CQR(0.5)), Mondrian(Randomised(APS())), PerClass(LAC())], ids=name_of
)
def test_what_was_calibrated_can_be_stored(rule, tmp_path):
    rng = np.random.default_rng(0)
    inner = getattr(rule, "rule", rule)
    of_numbers = type(inner) in (AbsoluteResidual, Normalised, CQR)
    prediction, y = numbers(rng, 60) if of_numbers else classes(rng, 60, 3)
    prediction = as_input(inner, prediction) if of_numbers else prediction
    extra = {"groups": np.array(["a", "b"])[np.arange(60) % 2]} if isinstance(rule, Mondrian) else {}
    extra |= {"key": 3} if "Randomised" in name_of(rule) else {}
    calibrated = conformalise(prediction, y, rule, **extra)
    save_tree(tmp_path / "kept", "conformal", calibrated)
    loaded = load_tree(tmp_path / "kept", "conformal")
    ask = "interval" if of_numbers else "sets"
    np.testing.assert_array_equal(
        getattr(loaded, ask)(prediction, 0.7, **extra), getattr(calibrated, ask)(prediction, 0.7, **extra)
    )


# ---- edges


def test_too_few_rows_give_everything_and_say_how_many_are_needed():
    mean, y = np.zeros(98), np.arange(98.0)
    with pytest.warns(UserWarning, match=r"level=0.99 needs 99 held-out rows or more, got 98: the intervals"):
        ends = conformalise(mean, y, AbsoluteResidual()).interval([0.0], 0.99)
    assert np.array_equal(ends, [[-np.inf], [np.inf]])
    with pytest.warns(UserWarning, match="infinite"):
        ends = conformalise((mean, y), y, Normalised()).interval(([1.0], [0.0]), 0.999)
    assert np.array_equal(ends, [[-np.inf], [np.inf]])
    probs = np.tile([0.9, 0.1], (8, 1))
    with pytest.warns(UserWarning, match="needs 9 held-out rows or more, got 8: the sets hold all classes"):
        assert conformalise(probs, np.zeros(8), LAC()).sets(probs).all()


def test_a_group_or_class_without_rows_is_named():
    rule = Mondrian(AbsoluteResidual())
    calibrated = conformalise(np.zeros(40), np.ones(40), rule, groups=np.repeat(["a", "b"], [37, 3]))
    with pytest.warns(UserWarning, match=r"needs 9 held-out rows or more, got 3 for 'b', 0 for 'c': the intervals"):
        lower, _ = calibrated.interval(np.zeros(3), groups=["c", "b", "a"])
    assert lower.tolist() == [-np.inf, -np.inf, -1]
    probs = np.tile([0.6, 0.3, 0.1], (30, 1))
    with pytest.warns(UserWarning, match=r"got 0 for 2: those classes are in every set"):
        sets = conformalise(probs, np.arange(30) % 2, PerClass(LAC())).sets(probs)
    assert sets.all()


def test_no_warning_where_there_are_enough():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        conformalise(np.zeros(9), np.arange(9.0), AbsoluteResidual()).interval([0.0], 0.9)


def test_a_prediction_without_spread_has_an_interval_without_width():
    mean, std, y = np.zeros(20), np.zeros(20), np.zeros(20)
    std[15:], y[10:] = 1.0, 2.0
    calibrated = conformalise((mean, std), y, Normalised())
    lower, upper = calibrated.interval(([1.0, 1.0], [0.0, 2.0]), 0.4)
    assert (lower.tolist(), upper.tolist()) == ([1.0, 1.0], [1.0, 1.0])  # ten scores are 0, five are 2, five infinite
    lower, upper = calibrated.interval(([1.0, 1.0], [0.0, 2.0]), 0.6)
    assert (lower.tolist(), upper.tolist()) == ([1.0, -3.0], [1.0, 5.0])
    lower, upper = calibrated.interval(([1.0, 1.0], [0.0, 2.0]), 0.9)
    assert np.isinf([lower, upper]).all()


def test_cqr_has_one_sided_and_vanishing_intervals():
    y = np.arange(20.0)
    lower, upper = conformalise((np.full(20, -np.inf), np.zeros(20)), y, CQR()).interval(([-np.inf], [5.0]), 0.5)
    assert (lower.item(), upper.item()) == (-np.inf, 15.0)
    lower, upper = conformalise((np.full(20, -50.0), np.full(20, 50.0)), y, CQR()).interval(([0.0], [10.0]), 0.5)
    assert (lower.item(), upper.item()) == (5.0, 5.0)


def test_the_key_decides_and_calibration_and_sets_do_not_share_numbers():
    probs, y = classes(np.random.default_rng(0), 200)
    calibrated = conformalise(probs, y, Randomised(APS()), key=0)
    first, again, other = (calibrated.sets(probs, key=key) for key in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    own = Randomised(APS()).scores(probs, key=conformal._stream(0, 1))[np.arange(200), y]
    assert not np.isin(own, calibrated.scores[None]).any()


# ---- bad input

PROBS = np.tile([0.6, 0.4], (20, 1))
ZEROS = np.zeros(20)


@pytest.mark.parametrize(
    ("prediction", "y", "rule", "message"),
    [
        (
            ZEROS,
            np.full(20, np.nan),
            AbsoluteResidual(),
            "y has 20 values that are NaN .* first in row 0",
        ),
        (ZEROS, np.zeros(19), AbsoluteResidual(), r"y must have shape \(20,\), one target per input, got \(19,\)"),
        (ZEROS, ["a"] * 20, AbsoluteResidual(), "y must be numeric"),
        ([], [], AbsoluteResidual(), "the mean of prediction is empty"),
        ([[1.0], [2.0, 3.0]], [0, 0], AbsoluteResidual(), "the mean of prediction must be a numeric array"),
        (
            np.where(ZEROS == 0, np.inf, 0),
            ZEROS,
            AbsoluteResidual(),
            "the mean of prediction has 20 values",
        ),
        (np.zeros((2, 2, 2)), ZEROS, AbsoluteResidual(), r"must have shape \(n,\) or \(n, d\), got \(2, 2, 2\)"),
        ((ZEROS, ZEROS - 1), ZEROS, Normalised(), "the std of prediction must be >= 0, got -1.0"),
        ((ZEROS, ZEROS + np.inf), ZEROS, Normalised(), "the std of prediction has 20 values that are NaN or infinite"),
        ((ZEROS, np.zeros(3)), ZEROS, Normalised(), r"one shape, .* got \(20,\) and \(3,\)"),
        ((ZEROS, ZEROS * np.nan), ZEROS, CQR(), "the upper ends of prediction must not be NaN, got nan in row 0"),
        ((ZEROS + np.inf, ZEROS), ZEROS, CQR(), "lower ends below inf"),
        (PROBS, np.full(20, 2), LAC(), "y must hold labels from 0 to 1, got 2"),
        (PROBS, np.zeros(19), LAC(), r"y must have shape \(20,\)"),
        (PROBS - 0.5, np.zeros(20), LAC(), r"probabilities in \[0, 1\], got -0.1: logits need a softmax"),
        (PROBS * 0.9, np.zeros(20), LAC(), "rows that sum to one, got 0.9 in row 0"),
        (PROBS[:, :1], np.zeros(20), LAC(), r"a column per class, got shape \(20, 1\)"),
        (PROBS * np.nan, np.zeros(20), LAC(), "prediction has 40 values that are NaN or infinite, the first in row 0"),
        (PROBS[None], np.zeros(20), LAC(), "average over draws first"),
        (PROBS, np.zeros(20), Mondrian(LAC()), "groups must be given for a Mondrian rule"),
    ],
)
def test_bad_held_out_data_are_refused(prediction, y, rule, message):
    with pytest.raises((ValueError, TypeError), match=message):
        conformalise(prediction, y, rule)


def test_bad_choices_are_refused(as_users_run):
    with pytest.raises(TypeError, match=r"rule must be one such as mx.decide.Normalised\(\)"):
        conformalise(PROBS, ZEROS, "lac")
    with pytest.raises(TypeError, match="an array of means, got a tuple"):
        conformalise((ZEROS, ZEROS), ZEROS, AbsoluteResidual())
    with pytest.raises(ValueError, match=r"a pair \(mean, std\), got shape \(20,\)"):
        conformalise(ZEROS, ZEROS, Normalised())
    with pytest.raises(TypeError, match="Randomised must be APS or RAPS"):
        Randomised(LAC())
    with pytest.raises(TypeError, match="rule of Mondrian must be a rule"):
        Mondrian(Mondrian(LAC()))
    with pytest.raises(TypeError, match="rule of PerClass must be one of classes"):
        PerClass(Normalised())
    with pytest.raises(ValueError, match="penalty must be >= 0 and finite, got -1"):
        RAPS(-1)
    with pytest.raises(ValueError, match="num_free must be >= 0, got -1"):
        RAPS(num_free=-1)
    with pytest.raises(ValueError, match=r"level must be a number strictly between 0 and 1, got 1\.5"):
        CQR(1.5)
    with pytest.raises(TypeError, match="key must be an int seed or a JAX key for a Randomised rule"):
        conformalise(PROBS, ZEROS, Randomised(APS()))
    for prediction, rule in ((PROBS, APS()), (PROBS, RAPS()), (PROBS, LAC()), (ZEROS, AbsoluteResidual())):
        with pytest.raises(ValueError, match="key is of use with Randomised rules only"):
            conformalise(prediction, ZEROS, rule, key=0)
    with pytest.raises(ValueError, match="groups are of use with Mondrian rules only"):
        conformalise(PROBS, ZEROS, LAC(), groups=ZEROS)
    for groups, message in ((ZEROS, "float64"), (np.zeros((20, 1), int), r"shape \(20, 1\)"), ([0, 1], "got 2")):
        with pytest.raises(ValueError, match=f"groups must .*{message}"):
            conformalise(PROBS, ZEROS, Mondrian(LAC()), groups=groups)


def test_bad_new_data_are_refused():
    calibrated = conformalise(PROBS, ZEROS, LAC())
    with pytest.raises(ValueError, match="prediction must have 2 classes as the held-out one, got 3"):
        calibrated.sets([[0.2, 0.3, 0.5]])
    for level in (0, 1, 90, np.nan):
        with pytest.raises(ValueError, match=f"level must be a number strictly between 0 and 1, got {level}"):
            conformalise(ZEROS, ZEROS, AbsoluteResidual()).interval(ZEROS, float(level))
    grouped = conformalise(ZEROS, ZEROS, Mondrian(AbsoluteResidual()), groups=np.zeros(20, int))
    with pytest.raises(ValueError, match="one entry for each of the 2 inputs, got 20"):
        grouped.interval([0.0, 1.0], groups=np.zeros(20, int))


def test_predictions_of_the_wrong_kind_are_refused():
    of_numbers, of_classes = regression_prediction(ZEROS, ZEROS + 1), classification_prediction(PROBS)
    labels = Mixture(Bernoulli(jnp.zeros((1, 20, 2))), (True,), np.zeros(1), 20, 10**6)
    with pytest.raises(TypeError, match=r"one of classes to have .*, got a RegressionPrediction: numbers have"):
        conformalise(of_numbers, ZEROS, LAC())
    with pytest.raises(TypeError, match=r"one class per input to have .*, got a MultiLabelPrediction: take each"):
        conformalise(MultiLabelPrediction(labels), ZEROS, LAC())
    with pytest.raises(ValueError, match="finite means and standard deviations; for heavy tails"):
        conformalise(regression_prediction(ZEROS, ZEROS + np.inf), ZEROS, Normalised())
    for rule in NUMBERS:
        with pytest.raises(
            TypeError,
            match=r"one of numbers to have .*, got a ClassificationPrediction: classes have",
        ):
            conformalise(of_classes, ZEROS, rule)

"""Selective prediction: the curve is what counting gives, and a bounded threshold keeps its promise."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from marginax.decide import ClopperPearson, Hoeffding, RiskCoverage, Threshold, risk_coverage, select
from marginax.files import load_tree, save_tree
from marginax.model.distributions import Normal
from marginax.predict import ClassificationPrediction, RegressionPrediction
from marginax.predict.mixture import Mixture


def of_numbers(mean, std, y_shape=()):
    shape = (1, len(mean), -1)
    parts = Normal(jnp.asarray(mean, jnp.float32).reshape(shape), jnp.asarray(std, jnp.float32).reshape(shape))
    return RegressionPrediction(Mixture(parts, (True, True), np.zeros(1), len(mean), 10**8), y_shape)


def of_classes(probs):
    return ClassificationPrediction(np.log(probs), np.zeros(len(probs)), np.zeros(probs.shape), 1, 10**8)


# ---- the curve


@pytest.mark.parametrize("num_values", [5, 1000], ids=["ties", "no ties"])
def test_the_curve_is_what_counting_gives(num_values):
    rng = np.random.default_rng(0)
    uncertainty, losses = rng.permutation(1000)[:200] % num_values, rng.gamma(2, size=200)
    curve = RiskCoverage(uncertainty, losses)
    assert curve.thresholds.tolist() == sorted(set(uncertainty.tolist()))
    for threshold, coverage, risk in zip(curve.thresholds, curve.coverage, curve.risk, strict=True):
        accepted = uncertainty <= threshold
        assert coverage == accepted.mean()
        np.testing.assert_allclose(risk, losses[accepted].mean())
    assert curve.coverage[-1] == 1


def test_aurc_is_the_mean_of_risks_and_its_closed_form():
    num = 50
    curve = RiskCoverage(np.arange(num), np.arange(1, num + 1) / num)  # the risk of i rows is (i + 1) / (2 num)
    np.testing.assert_allclose(curve.aurc, (num + 3) / (4 * num))
    np.testing.assert_allclose(curve.excess_aurc, 0, atol=1e-15)
    errors = 12
    losses = np.arange(num) >= num - errors  # all errors last: harmonic numbers
    expected = (errors - (num - errors) * sum(1 / i for i in range(num - errors + 1, num + 1))) / num
    np.testing.assert_allclose(RiskCoverage(np.arange(num), losses).aurc, expected)
    np.testing.assert_allclose(RiskCoverage(-np.arange(num), losses).best_aurc, expected)
    many = RiskCoverage(np.arange(10**6), np.arange(10**6) >= 8 * 10**5)
    np.testing.assert_allclose(many.best_aurc, 0.2 + 0.8 * math.log(0.8), atol=1e-5)


def test_aurc_within_ties_is_the_average_over_orders():
    uncertainty, losses = np.array([0, 1, 1, 1, 1, 2]), np.array([0.3, 0.0, 1.0, 2.0, 5.0, 0.7])
    by_order = []
    for order in itertools.permutations(range(1, 5)):
        ordered = losses[[0, *order, 5]]
        by_order.append(np.mean(np.cumsum(ordered) / np.arange(1, 7)))
    np.testing.assert_allclose(RiskCoverage(uncertainty, losses).aurc, np.mean(by_order))
    np.testing.assert_allclose(RiskCoverage(np.zeros(6), losses).aurc, losses.mean())


def test_the_excess_judges_the_order_alone():
    rng = np.random.default_rng(0)
    losses = rng.uniform(size=500) < 0.3
    perfect, good, useless, worst = (
        RiskCoverage(score, losses).excess_aurc
        for score in (losses, losses + rng.normal(size=500), rng.normal(size=500), -losses.astype(float))
    )
    assert perfect < good < useless < worst
    assert perfect < 0.02


def test_predictions_and_arrays_give_the_same_curve():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), size=60)
    y = rng.integers(4, size=60)
    losses = np.argmax(probs, axis=1) != y
    expected = RiskCoverage(-np.sum(probs * np.log(probs), axis=1), losses)
    for prediction in (probs, of_classes(probs)):
        curve = risk_coverage(prediction, y)
        np.testing.assert_allclose(curve.uncertainty, expected.uncertainty)
        assert np.array_equal(curve.losses, expected.losses)
    mean, std, y = rng.normal(size=60).astype("f4"), rng.gamma(2, size=60).astype("f4"), rng.normal(size=60)
    expected = RiskCoverage(std, (y - mean) ** 2)
    column = of_numbers(mean, std, y_shape=(1,)), y[:, None]
    for prediction, targets in (((mean, std), y), (of_numbers(mean, std), y), column):
        curve = risk_coverage(prediction, targets)
        np.testing.assert_allclose([curve.aurc, curve.excess_aurc], [expected.aurc, expected.excess_aurc], rtol=1e-5)
    given = risk_coverage((mean, std), y, uncertainty=np.abs(mean))
    np.testing.assert_allclose(given.aurc, RiskCoverage(np.abs(mean), (y - mean) ** 2).aurc)
    given = risk_coverage((mean, std), losses=np.abs(y - mean))
    np.testing.assert_allclose(given.aurc, RiskCoverage(std, np.abs(y - mean)).aurc)


def test_classes_of_probability_zero_have_an_entropy():
    curve = risk_coverage([[1.0, 0.0], [0.5, 0.5]], [0, 0])
    np.testing.assert_allclose(curve.uncertainty, [0, math.log(2)])


# ---- thresholds


def test_a_threshold_has_the_largest_coverage_within_the_risk():
    rng = np.random.default_rng(0)
    uncertainty = rng.integers(60, size=300)
    losses = (rng.uniform(size=300) < uncertainty / 80).astype(float)
    curve = RiskCoverage(uncertainty, losses)
    for target in (0.05, 0.1, 0.2, 0.3):
        found = curve.threshold(target)
        allowed = [t for t in range(60) if losses[uncertainty <= t].mean() <= target and (uncertainty == t).any()]
        assert found.uncertainty == max(allowed)
        accepted = select(uncertainty, found)
        assert found.coverage == accepted.mean()
        np.testing.assert_allclose(found.risk, losses[accepted].mean())
        assert found.risk_bound is None
    assert curve.threshold(1.0).coverage == 1


def test_a_target_that_cannot_be_kept_to_accepts_nothing():
    curve = RiskCoverage(np.arange(10), np.ones(10))
    with pytest.warns(UserWarning, match=r"target_risk=0\.2 cannot be kept to at any coverage \(at best 1\)"):
        found = curve.threshold(0.2)
    assert (found.uncertainty, found.coverage) == (-math.inf, 0)
    assert math.isnan(found.risk)
    assert not select(np.arange(10), found).any()


@pytest.mark.parametrize(("total", "num", "doubt"), [(0, 30, 0.05), (7, 100, 0.01), (99, 100, 0.2)])
def test_the_binomial_bound_is_where_so_few_errors_become_improbable(total, num, doubt):
    upper = ClopperPearson().upper(total, num, doubt)
    np.testing.assert_allclose(stats.binom.cdf(total, num, upper), doubt)
    exact = stats.binomtest(total, num).proportion_ci(1 - 2 * doubt, method="exact").high
    np.testing.assert_allclose(upper, exact)
    assert ClopperPearson().upper(num, num, doubt) == 1
    assert Hoeffding().upper(total, num, doubt) > upper


def broken_promises(bound, risk_of, losses_of, *, target, num=1000, repeats=1000):
    """How often the true risk of the chosen threshold exceeds the target; uncertainty is uniform on (0, 1)."""
    rng = np.random.default_rng(0)
    broken, coverage = np.zeros(repeats), np.zeros(repeats)
    for i in range(repeats):
        uncertainty = rng.uniform(size=num)
        curve = RiskCoverage(uncertainty, losses_of(rng, uncertainty))
        try:
            found = curve.threshold(target, bound)
        except UserWarning:  # nothing accepted, no promise broken
            continue
        broken[i], coverage[i] = risk_of(found.uncertainty) > target, found.uncertainty
    return broken, coverage


def coin(chance):
    return lambda rng, u: (rng.uniform(size=len(u)) < chance(u)).astype(float)


PROMISES = {
    "rising": (lambda t: 0.2 * t**2, coin(lambda u: 0.6 * u**2), 0.05),
    "no help": (lambda t: 0.1001, coin(lambda u: 0.1001 + 0 * u), 0.1),
    "wrong way": (lambda t: 0.4 - 0.2 * t, coin(lambda u: 0.4 - 0.4 * u), 0.21),
}


def check_promise(bound, problem):
    risk_of, losses_of, target = PROMISES[problem]
    broken, coverage = broken_promises(bound, risk_of, losses_of, target=target)
    doubt = 1 - bound.confidence
    assert broken.mean() <= doubt + 4.9 * np.sqrt(doubt * (1 - doubt) / len(broken))
    return coverage


@pytest.mark.parametrize("problem", PROMISES)
@pytest.mark.parametrize("bound", [ClopperPearson(0.9), Hoeffding(confidence=0.9), ClopperPearson(0.5, 50)], ids=str)
def test_the_risk_stays_below_the_target_with_the_confidence(bound, problem):
    check_promise(bound, problem)


def test_the_promise_holds_for_losses_of_any_kind():
    def losses_of(rng, uncertainty):
        return 3 * rng.beta(1, 1 + 2 * (1 - uncertainty))

    def risk_of(threshold):
        grid = np.linspace(0, threshold, 1001)
        return np.mean(3 / (2 + 2 * (1 - grid)))

    broken, coverage = broken_promises(Hoeffding(3, 0.8), risk_of, losses_of, target=1.05, num=2000, repeats=300)
    assert broken.mean() <= 0.2 + 4.9 * np.sqrt(0.2 * 0.8 / 300)
    assert coverage.mean() > 0.2


def test_the_promise_is_not_bought_with_refusing_everything():
    coverage = check_promise(ClopperPearson(0.9), "rising")
    assert coverage.mean() > 0.2  # 0.5 would be the best
    uncertainty = np.linspace(0, 1, 10**5)
    curve = RiskCoverage(uncertainty, PROMISES["rising"][1](np.random.default_rng(1), uncertainty))
    found = curve.threshold(0.05, ClopperPearson(0.9, 100))
    assert 0.46 < found.coverage <= 0.5
    assert found.risk < found.risk_bound <= 0.05


# ---- selection


def test_selection_follows_the_score_of_the_threshold(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), size=60)
    y = np.argmax(probs, axis=1)
    y[::7] = 0
    found = risk_coverage(probs, y).threshold(0.05)
    entropy = of_classes(probs).entropy
    assert np.array_equal(select(probs, found), entropy <= found.uncertainty)
    assert np.array_equal(select(of_classes(probs), found), entropy <= found.uncertainty)
    assert np.array_equal(select(probs, found.uncertainty), entropy <= found.uncertainty)
    assert np.array_equal(select((y, entropy), 0.5), entropy <= 0.5)
    save_tree(tmp_path / "kept", "threshold", found)
    assert load_tree(tmp_path / "kept", "threshold") == found


def test_a_threshold_of_other_uncertainties_is_refused():
    probs, y = np.tile([0.6, 0.4], (20, 1)), np.zeros(20)
    given = risk_coverage(probs, y, uncertainty=np.arange(20)).threshold(0.5)
    with pytest.raises(ValueError, match="threshold is one of uncertainties that were given, not of entropy"):
        select(probs, given)
    with pytest.raises(ValueError, match="threshold is one of entropy, not of std"):
        select((y, y), risk_coverage(probs, y).threshold(0.5))
    assert select(np.arange(20), given).all()


# ---- bad input


def test_bad_arguments_are_refused():
    probs, y = np.tile([0.6, 0.4], (20, 1)), np.zeros(20)
    curve = RiskCoverage(y, y + 0.5)
    for call, message in (
        (lambda: risk_coverage(probs), "y or losses must be given, and not both"),
        (lambda: risk_coverage(probs, y, losses=y), "y or losses must be given, and not both"),
        (lambda: risk_coverage(probs, y + 5), "y must hold labels from 0 to 1, got 5"),
        (lambda: risk_coverage(probs[None], y), "average over draws first"),
        (lambda: risk_coverage((y, y), y[:3]), r"y must have shape \(20,\), one target per input, got \(3,\)"),
        (lambda: risk_coverage(of_numbers(probs, probs, (2,)), probs), "prediction must have one output, got 2"),
        (lambda: risk_coverage(probs, y, uncertainty=y * np.nan), "uncertainty must not be NaN, got nan in row 0"),
        (lambda: RiskCoverage(y, y[:3]), r"losses must have shape \(20,\) as uncertainty has, got \(3,\)"),
        (lambda: RiskCoverage(y, y + np.inf), "losses has 20 values that are NaN or infinite, the first in row 0"),
        (lambda: RiskCoverage(probs, y), r"uncertainty must have shape \(n,\), got \(20, 2\)"),
        (lambda: curve.threshold(math.nan), "target_risk must be finite, got nan"),
        (lambda: curve.threshold(0.1, ClopperPearson()), r"losses must be 0 or 1 for ClopperPearson, got 0\.5"),
        (lambda: curve.threshold(0.1, Hoeffding(0.25)), r"losses must be from 0 to max_loss=0\.25 for Hoeffding"),
        (lambda: RiskCoverage(y, y - 1).threshold(0.1, Hoeffding()), "from 0 to max_loss=1 for Hoeffding, got -1"),
        (lambda: ClopperPearson(1.5), r"confidence must be a number strictly between 0 and 1, got 1\.5"),
        (lambda: Hoeffding(num_cuts=0), "num_cuts must be an int >= 1, got 0"),
        (lambda: Hoeffding(-1.0), r"max_loss must be > 0 and finite, got -1\.0"),
        (lambda: select(probs, math.nan), "threshold must be a number, got nan"),
        (lambda: select(y * np.nan, 0.1), "prediction must not be NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_one_row_is_a_curve():
    curve = RiskCoverage([0.3], [1.0])
    assert (curve.aurc, curve.excess_aurc) == (1, 0)
    assert curve.threshold(1) == Threshold(0.3, 1.0, 1.0)
    with pytest.warns(UserWarning, match="nothing is accepted"):
        curve.threshold(1, ClopperPearson())

"""Calibrators of classes against scikit-learn, SciPy and known maps; what they do to predictions; files; warnings."""

import numpy as np
import pytest
import scipy.optimize as opt
from scipy.special import log_softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from tests.evaluate.laws import predict_classes, predict_law, softmax, some_classes

import marginax as mx
from marginax.calibrate import (
    BayesianTemperature,
    Beta,
    Calibrated,
    Isotonic,
    Platt,
    Temperature,
    VectorScaling,
    recalibrate,
)
from marginax.calibrate.binary import fit_logistic
from marginax.evaluate import ece, nll
from marginax.files import FileError, decode, encode
from marginax.model import distributions as dist

METHODS = [Temperature(), VectorScaling(), BayesianTemperature(), Beta(), Isotonic()]


def name_of(method):
    return type(method).__name__


def binary(num, *, seed=0, distort=lambda odds: 2 * odds + 0.5):
    """Probabilities with distorted log odds, and labels that follow the right ones."""
    rng = np.random.default_rng(seed)
    odds = 1.5 * rng.normal(size=num)
    y = (rng.uniform(size=num) < 1 / (1 + np.exp(-odds))).astype(int)
    return 1 / (1 + np.exp(-distort(odds))), y


def test_the_temperature_is_the_best_one():
    probs, y = some_classes(400, 4, sharpness=2.5)

    def loss(inverse):
        return -np.mean(np.log(softmax(np.log(probs) * inverse))[np.arange(400), y])

    best = opt.minimize_scalar(loss, bracket=(0.1, 1.0), tol=1e-12)
    calibrator = recalibrate(probs, y, Temperature())
    np.testing.assert_allclose(calibrator.temperature, 1 / best.x, rtol=1e-5)
    np.testing.assert_allclose(float(nll(calibrator(probs), y)), best.fun, rtol=1e-10)


def test_the_temperature_finds_the_one_that_was_used():
    probs, y = some_classes(40_000, 3, sharpness=3.0)
    assert abs(recalibrate(probs, y, Temperature()).temperature - 3) < 0.1


@pytest.mark.parametrize("method", [Temperature(), BayesianTemperature()], ids=name_of)
def test_a_temperature_keeps_the_order_of_classes(method):
    probs, y = some_classes(300, 5, sharpness=2.0)
    new = recalibrate(probs, y, method)(probs)
    assert np.array_equal(np.argsort(new, axis=1), np.argsort(probs, axis=1))


def test_platt_is_logistic_regression_on_log_odds():
    probs, y = binary(300)
    odds = np.log(probs / (1 - probs))[:, None]
    exact = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(odds, y)
    calibrator = recalibrate(probs, y, Platt())
    np.testing.assert_allclose(calibrator.a, exact.coef_[0], rtol=1e-5)
    np.testing.assert_allclose(calibrator.c, exact.intercept_, rtol=1e-5)
    np.testing.assert_allclose(calibrator(probs), exact.predict_proba(odds)[:, 1], rtol=1e-5)


def test_beta_maximises_its_likelihood():
    probs, y = binary(500, distort=lambda odds: np.where(odds > 0, 3 * odds, odds) - 0.3)
    calibrator = recalibrate(probs, y, Beta())
    assert min(calibrator.a, calibrator.b) > 0
    excess = calibrator(probs) - y
    features = np.stack([np.log(probs), -np.log1p(-probs), np.ones(500)])
    np.testing.assert_allclose(features @ excess, 0, atol=1e-6)


def test_beta_finds_the_map_that_was_used():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, size=100_000)
    odds = 0.6 * np.log(p) - 1.4 * np.log1p(-p) + 0.3
    y = rng.uniform(size=len(p)) < 1 / (1 + np.exp(-odds))
    found = recalibrate(p, y.astype(int), Beta())
    np.testing.assert_allclose([found.a[0], found.b[0], found.c[0]], [0.6, 1.4, 0.3], atol=0.06)


def test_beta_has_no_negative_slopes():
    p, y = binary(2000, distort=lambda odds: -odds)
    found = recalibrate(p, y, Beta())
    assert found.a[0] == found.b[0] == 0
    np.testing.assert_allclose(found(p), y.mean(), rtol=1e-10)
    rng = np.random.default_rng(1)
    p = rng.uniform(0.01, 0.99, size=5000)
    y = rng.uniform(size=5000) < 1 / (1 + np.exp(-(1.5 * np.log(p) + 0.7 * np.log1p(-p) + 1)))
    found = recalibrate(p, y.astype(int), Beta())
    assert (found.a[0] > 0, found.b[0]) == (True, 0.0)
    excess = found(p) - y
    np.testing.assert_allclose([excess.sum(), excess @ np.log(p)], 0, atol=1e-6)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_isotonic_is_that_of_scikit_learn(num_classes):
    probs, y = some_classes(300, num_classes, sharpness=2.0)
    new, _ = some_classes(50, num_classes, seed=1)
    columns = []
    for k in range(num_classes):
        one = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(probs[:, k], y == k)
        columns.append(one.predict(new[:, k]))
    exact = np.stack(columns, axis=1)
    if num_classes == 2:
        exact[:, 0] = 1 - exact[:, 1]
    exact /= exact.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(recalibrate(probs, y, Isotonic())(new), exact, atol=1e-10)


def test_vector_scaling_is_at_a_stationary_point_and_finds_the_map():
    rng = np.random.default_rng(0)
    shown = np.log(softmax(rng.normal(size=(30_000, 3))))
    factors, shifts = np.array([0.5, 1.0, 1.5]), np.array([0.4, 0.0, -0.4])
    truth = softmax(factors * shown + shifts)
    y = (rng.uniform(size=(30_000, 1)) > np.cumsum(truth, axis=1)[:, :-1]).sum(axis=1)
    found = recalibrate(np.exp(shown), y, VectorScaling())
    np.testing.assert_allclose(found.factors, factors, atol=0.12)
    np.testing.assert_allclose(found.shifts, shifts, atol=0.12)
    excess = found(np.exp(shown)) - np.eye(3)[y]
    np.testing.assert_allclose(excess.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose((excess * shown).mean(axis=0), 0, atol=1e-6)


def test_a_posterior_of_the_temperature_averages_and_narrows():
    probs, y = some_classes(30, 3, sharpness=2.0)
    few = recalibrate(probs, y, BayesianTemperature(scale=0.7))
    logs = np.linspace(-5, 5, 5001)
    energy = -np.array([log_softmax(np.log(probs) / np.exp(t), axis=1)[np.arange(30), y].sum() for t in logs])
    weights = np.exp(-(energy - energy.min()) - 0.5 * (logs / 0.7) ** 2)
    weights /= weights.sum()
    exact = sum(w * softmax(np.log(probs) / np.exp(t)) for t, w in zip(logs, weights, strict=True) if w > 1e-12)
    np.testing.assert_allclose(few(probs), exact, rtol=1e-5)
    many = recalibrate(*some_classes(20_000, 3, sharpness=2.0), BayesianTemperature())
    assert np.std(np.log(many.temperatures)) < 0.1 * np.std(np.log(few.temperatures))
    assert abs(many.temperatures @ many.weights - 2) < 0.1


@pytest.mark.parametrize("method", METHODS, ids=name_of)
@pytest.mark.parametrize("num_classes", [2, 4])
def test_calibrated_predictions_are_calibrated(method, num_classes):
    """The calibration error falls to what calibrated probabilities of as many rows have by chance."""
    probs, y = some_classes(20_000, num_classes, sharpness=2.5)  # many, so that the map itself has little error
    new, y_new = some_classes(6000, num_classes, sharpness=2.5, seed=1)
    calibrated = recalibrate(probs, y, method)(new)
    np.testing.assert_allclose(calibrated.sum(axis=1), 1, rtol=1e-12)
    by_chance = [float(ece(*some_classes(6000, num_classes, seed=10 + i))) for i in range(20)]
    assert float(ece(new, y_new)) > 0.1
    assert float(ece(calibrated, y_new)) < np.mean(by_chance) + 4.9 * np.std(by_chance)


@pytest.mark.parametrize("method", [*METHODS, Platt()], ids=name_of)
def test_predictions_stay_predictions_and_shares_are_kept(method):
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(5, 40, 1)) + rng.normal(size=(40, 1))
    prediction = predict_law(dist.Bernoulli, logits.astype(np.float32))
    y = (rng.uniform(size=40) < prediction.probs[:, 1]).astype(int)
    new = recalibrate(prediction, y, method)(prediction)
    assert type(new) is type(prediction)
    np.testing.assert_allclose(new.probs, recalibrate(prediction.probs, y, method)(prediction.probs), rtol=1e-6)
    share = prediction.mutual_information / prediction.entropy
    np.testing.assert_allclose(new.mutual_information, share * new.entropy, atol=1e-12)
    np.testing.assert_allclose(
        new.epistemic_variance * (prediction.probs * (1 - prediction.probs)),
        prediction.epistemic_variance * (new.probs * (1 - new.probs)),
        atol=1e-12,
    )
    np.testing.assert_allclose(np.diagonal(new.covariance, axis1=1, axis2=2), new.epistemic_variance, atol=1e-6)
    assert len(new[3:7]) == 4


def test_probabilities_of_two_classes_stay_as_they_came():
    probs, y = binary(200)
    calibrator = recalibrate(probs, y, Temperature())
    both = np.stack([1 - probs, probs], axis=1)
    np.testing.assert_allclose(calibrator(probs), calibrator(both)[:, 1], rtol=1e-12)
    assert calibrator(probs).shape == (200,)


def test_probabilities_of_zero_are_no_obstacle():
    probs, y = some_classes(200, 2, sharpness=2.0)
    probs[:50] = probs[:50].round()
    for method in (Temperature(), BayesianTemperature(), VectorScaling(), Platt(), Beta()):
        assert np.isfinite(np.log(recalibrate(probs, y, method)(probs))).all()


@pytest.mark.parametrize("method", [*METHODS, Platt()], ids=name_of)
def test_calibrators_are_saved(method):
    probs, y = some_classes(200, 2, sharpness=2.0)
    calibrator = recalibrate(probs, y, method)
    again = decode(*encode(calibrator))
    assert np.array_equal(again(probs), calibrator(probs))
    assert repr(decode(*encode(method))) == repr(method)


def classifier(*, standardised=False, num=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2 * num, 2)) + (3.0 if standardised else 0.0)
    y = (x.sum(axis=1) + rng.normal(size=2 * num) > x.sum(axis=1).mean()).astype(int)
    model = mx.Model(mx.nets.MLP(2, (8,), 2, key=0), likelihood=mx.likelihoods.Categorical())
    train = (x[:num], y[:num])
    data = mx.data.standardise(train) if standardised else train
    method = mx.infer.DeepEnsemble(3, mx.infer.MAP(num_epochs=200))
    return mx.fit(model, data, method, key=0), train, (x[num:], y[num:])


@pytest.mark.slow
def test_a_calibrated_posterior_is_saved_with_its_calibrator(tmp_path):
    import subprocess
    import sys

    posterior, _, (x, y) = classifier()
    calibrator = recalibrate(posterior, (x, y), Temperature())
    np.testing.assert_allclose(calibrator.temperature, recalibrate(posterior.predict(x), y, Temperature()).temperature)
    calibrated = Calibrated(posterior, calibrator)
    prediction = calibrated.predict(x)
    assert np.array_equal(prediction.log_probs, calibrator(posterior.predict(x)).log_probs)
    assert "calibrated" in str(calibrated.summary())
    assert calibrated.sample(2, key=0).layers[0].weight.shape == (2, 8, 2)
    calibrated.save(tmp_path / "run")
    again = mx.load(tmp_path / "run")
    assert isinstance(again, Calibrated)
    assert np.array_equal(again.predict(x).log_probs, prediction.log_probs)
    # A program that has not asked for mx.evaluate yet can load it, too.
    code = "import sys, marginax as mx; print('marginax.evaluate' in sys.modules, type(mx.load(sys.argv[1])).__name__)"
    shown = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "Calibrated"]


def test_names_from_elsewhere_are_not_imported():
    with pytest.raises(FileError, match=r"class 'antigravity\.Thing' is not registered"):
        decode({"@": "object", "class": "antigravity.Thing", "fields": {}}, {})
    import sys

    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("standardised", [False, True])
def test_training_data_are_noticed(standardised):
    posterior, train, held_out = classifier(standardised=standardised)
    with pytest.warns(UserWarning, match="x looks like the training data"):
        recalibrate(posterior, train, Temperature())
    recalibrate(posterior, held_out, Temperature())  # no warning: it would be an error


def test_ends_of_the_range_are_warned_about():
    with pytest.warns(UserWarning, match="every prediction is right"):
        recalibrate([0.9, 0.8, 0.1], [1, 1, 0], Temperature())


def test_bad_input_is_refused(as_users_run):
    probs, y = some_classes(50, 3)
    with pytest.raises(TypeError, match=r"must be one such as mx\.calibrate\.Temperature\(\), got 'temperature'"):
        recalibrate(probs, y, "temperature")
    with pytest.raises(ValueError, match=r"prediction must have 2 classes for Platt\(\), got 3: use VectorScaling"):
        recalibrate(probs, y, Platt())
    with pytest.raises(ValueError, match="prediction must have 3 classes as the held-out one, got 2"):
        recalibrate(probs, y, Temperature())([0.5])
    with pytest.raises(ValueError, match="got none of class 2"):
        recalibrate(probs, np.zeros(50, int) + (np.arange(50) > 20), VectorScaling())
    with pytest.raises(ValueError, match="y must not be told apart perfectly"):
        recalibrate([0.1, 0.9, 0.2], [0, 1, 0], Platt())
    with pytest.raises(ValueError, match="y must hold labels from 0 to 2, got 7"):
        recalibrate(probs, np.full(50, 7), Temperature())
    with pytest.raises(TypeError, match="prediction must be one of classes"):
        recalibrate((np.zeros(3), np.ones(3)), np.zeros(3), Temperature())
    labels = predict_law(dist.Bernoulli, np.zeros((1, 3, 2), np.float32), several=True)
    with pytest.raises(TypeError, match="take each label by itself"):
        recalibrate(labels, np.zeros((3, 2), int), Temperature())
    with pytest.raises(ValueError, match="scale must be > 0, got 0"):
        BayesianTemperature(scale=0)
    with pytest.raises(ValueError, match=r"Temperature\(\) must be fitted before it is called: Temperature\(\).fit"):
        Temperature()(probs)
    with pytest.raises(TypeError, match="calibrator must be what"):
        Calibrated(classifier(num=40)[0], Temperature())


def test_logistic_regression_copes_with_columns_that_say_the_same():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 1))
    y = rng.uniform(size=100) < 0.3
    one = fit_logistic(x, y, name="Platt()")
    two = fit_logistic(np.concatenate([x, 2 * x], axis=1), y, name="Platt()")
    np.testing.assert_allclose(np.c_[x, 2 * x, np.ones(100)] @ two, np.c_[x, np.ones(100)] @ one, rtol=1e-6)


def test_predictions_without_draws_can_be_recalibrated():
    probs, y = some_classes(100, 3, sharpness=2.0)
    new = recalibrate(probs, y, Temperature())(predict_classes(probs))
    assert np.array_equal(new.mutual_information, new.entropy)

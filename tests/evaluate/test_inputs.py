"""What cannot be scored is refused, by name, with what would be right."""

import numpy as np
import pytest
from tests.evaluate.laws import predict_classes, predict_law, some_classes

from marginax.evaluate import (
    EqualWidth,
    accuracy,
    brier,
    brier_decomposition,
    classwise_ece,
    coverage,
    crps,
    ece,
    interval_score,
    mae,
    nll,
    pinball,
    pit,
    regression_calibration_error,
    rmse,
    sharpness,
)
from marginax.model import distributions as dist

PROBS, LABELS = some_classes(6, 3)
PAIR = np.zeros(6), np.ones(6)
Y = np.arange(6.0)
OF_CLASSES = [accuracy, brier, brier_decomposition, ece, classwise_ece]
OF_NUMBERS = [rmse, mae, crps, coverage, interval_score, pit, regression_calibration_error]


@pytest.mark.parametrize("score", OF_CLASSES, ids=lambda s: s.__name__)
def test_scores_of_classes_refuse_numbers(score):
    numbers = predict_law(dist.Normal, np.zeros((1, 6, 1), np.float32), np.ones((1, 6, 1), np.float32))
    with pytest.raises(TypeError, match=f"of classes to have {score.__name__}, got a RegressionPrediction: numbers"):
        score(numbers, Y)
    with pytest.raises(TypeError, match=r"got a pair \(mean, std\)"):
        score(PAIR, Y)


@pytest.mark.parametrize("score", OF_NUMBERS, ids=lambda s: s.__name__)
def test_scores_of_numbers_refuse_classes(score):
    with pytest.raises(TypeError, match=f"of numbers to have {score.__name__}, got a Classification.*: classes"):
        score(predict_classes(PROBS), LABELS)
    labels = predict_law(dist.Bernoulli, np.zeros((1, 6, 2), np.float32), several=True)
    with pytest.raises(TypeError, match="got a MultiLabelPrediction"):
        score(labels, LABELS)


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (PROBS * 1.01, r"rows that sum to one, got 1.01 in row 0"),
        (np.where(np.arange(6)[:, None] == 2, np.nan, PROBS), "prediction has 3 values that are NaN .* row 2"),
        (np.log(PROBS), r"probabilities in \[0, 1\], got -.*: logits need a softmax"),
        (np.array([0.2, 1.3] * 3), r"probabilities in \[0, 1\], got 1.3"),
        (PROBS[:, :1], r"a column per class, got shape \(6, 1\)"),
        (PROBS[None], r"of shape \(n, k\), or \(n,\) for two classes, got \(1, 6, 3\)"),
        (np.array([["a", "b"]] * 6), "prediction must be numeric"),
        (np.zeros((0, 3)), "prediction is empty"),
    ],
)
def test_what_are_not_probabilities_is_refused(probs, message):
    for score in (accuracy, nll, ece):
        with pytest.raises((ValueError, TypeError), match=message):
            score(probs, LABELS)


def test_nan_in_a_prediction_is_named():
    probs = PROBS.copy()
    probs[4] = np.nan
    with pytest.raises(ValueError, match="prediction has NaN in 1 of 6 rows, the first of them row 4"):
        accuracy(predict_classes(probs), LABELS)
    loc = np.zeros((2, 6, 1), np.float32)
    loc[1, 3] = np.nan
    numbers = predict_law(dist.Normal, loc, np.ones_like(loc))
    for score in (rmse, crps, nll, pit):
        with pytest.raises(ValueError, match="in 1 of 6 rows, the first of them row 3"):
            score(numbers, Y)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS[1:], r"y must have shape \(6,\), one label per input, got \(5,\)"),
        (LABELS + 1, "y must hold labels from 0 to 2, got 3"),
        (LABELS - 0.5, "y must hold integer labels, got"),
        (np.eye(3)[LABELS], r"y must have shape \(6,\).* got \(6, 3\)"),
        (LABELS.astype(str), "y must hold integer labels, got an array of <U"),
    ],
)
def test_wrong_labels_are_named(labels, message):
    for score in (accuracy, brier, nll, classwise_ece):
        for prediction in (PROBS, predict_classes(PROBS)):
            with pytest.raises(ValueError, match=message):
                score(prediction, labels)


@pytest.mark.parametrize(
    ("prediction", "y", "message"),
    [
        (PAIR, Y[1:], r"y must have shape \(6,\), one target per input, got \(5,\)"),
        (np.zeros((9, 6)), Y[:, None], r"\(samples have shape \(s, n\), here \(9, 6\)\), got \(6, 1\)"),
        (np.zeros(6), Y, r"samples of shape \(s, n\) or a pair.* got shape \(6,\): point .* prediction\[None\]"),
        ((np.zeros(6), np.ones(5)), Y, r"pair \(mean, std\) of one shape.* got \(6,\) and \(5,\)"),
        ((np.zeros(6), np.zeros(6)), Y, "the std of prediction must be > 0, got 0.0"),
        ((np.full(6, np.nan), np.ones(6)), Y, "the mean of prediction has 6 values that are NaN"),
        (PAIR, np.where(Y == 2, np.inf, Y), "y has 1 values that are NaN or infinite, the first in row 2"),
        (PAIR, Y.astype(str), "y must be numeric"),
        (np.zeros((2, 3, 4, 5)), Y, r"samples of shape \(s, n\) or \(s, n, d\), got \(2, 3, 4, 5\)"),
    ],
)
def test_wrong_numbers_are_named(prediction, y, message):
    for score in (rmse, crps, coverage):
        with pytest.raises((ValueError, TypeError), match=message):
            score(prediction, y)


def test_samples_have_no_density():
    with pytest.raises(ValueError, match="probabilities") as caught:
        nll(np.random.default_rng(0).normal(size=(9, 6)), Y)
    assert "samples of numbers have no density" in caught.value.__notes__[0]


@pytest.mark.usefixtures("as_users_run")
def test_wrong_choices_are_named():
    for level in (0.0, 1.0, 90, "0.9", True, None):
        with pytest.raises(ValueError, match="level must be a number strictly between 0 and 1, got"):
            coverage(PAIR, Y, level)
    with pytest.raises(ValueError, match=r"q must be a number strictly between 0 and 1, got 1.5"):
        pinball(PAIR, Y, 1.5)
    with pytest.raises(ValueError, match=r"level must be .* got 2"):
        sharpness(PAIR, level=2)
    with pytest.raises(ValueError, match=r"levels must be a list of numbers strictly between 0 and 1, got \[0.5, 1\]"):
        regression_calibration_error(PAIR, Y, levels=[0.5, 1])
    with pytest.raises(TypeError, match=r"gap must be AbsoluteGap\(\) or SquaredGap\(\), got 2"):
        regression_calibration_error(PAIR, Y, gap=2)
    for score in (ece, classwise_ece, brier_decomposition):
        with pytest.raises(TypeError, match=r"bins must be EqualWidth\(\), EqualMass\(\) or Distinct\(\), got 15"):
            score(PROBS, LABELS, bins=15)
    for num_bins in (0, 2.5, True):
        with pytest.raises(ValueError, match="num_bins must be an int >= 1"):
            EqualWidth(num_bins)
    with pytest.raises(TypeError, match=r"estimator must be Fair\(\) or Empirical\(\), got 'fair'"):
        crps(np.zeros((4, 6)), Y, estimator="fair")

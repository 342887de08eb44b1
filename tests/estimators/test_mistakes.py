"""What people pass by mistake is refused at once, by a sentence that names the argument and the place."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from marginax.estimators import BayesianClassifier, BayesianRegressor, ColumnEncoder
from marginax.model.likelihoods import Annotators, Categorical, EntropyRegularised

X = np.arange(12.0).reshape(6, 2)
NUMBERS = np.arange(6.0)
LABELS = np.array(["a", "b"] * 3)


def _object(*values):
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _frame(column):
    return pd.DataFrame({"a": NUMBERS, "b": column})


MISTAKES = {
    "texts for a regressor": (BayesianRegressor, X, LABELS, "y must hold numbers, got texts such as 'a'"),
    "texts among numbers": (BayesianRegressor, X, _object(1, 2, "red", 4, 5, 6), "got texts such as 'red'"),
    "a gap among numbers": (BayesianRegressor, X, [1, 2, np.nan, 4, 5, 6], "y contains NaN: 1 of 6 .* place 2"),
    "None among numbers": (BayesianRegressor, X, [1, 2, None, 4, 5, 6], "y contains NaN: 1 of 6 .* place 2"),
    "complex numbers": (BayesianRegressor, X, NUMBERS + 1j, "y must hold real numbers"),
    "lists as numbers": (BayesianRegressor, X, _object(1, [2], 3, 4, 5, 6), "y must hold .* got list in row 1"),
    "three axes": (BayesianRegressor, X, np.zeros((6, 2, 2)), r"y must have shape \(n,\) or \(n, outputs\)"),
    "rows of several lengths": (BayesianRegressor, X, [[1], [1, 2], [1], [1], [1], [1]], "y must hold one number"),
    "mixed labels": (
        BayesianClassifier,
        X,
        _object("a", 1, "a", 1, "a", 1),
        "y must hold labels of one kind.* 'a' .* 1",
    ),
    "a gap among labels": (BayesianClassifier, X, _object("a", "b", None, "a", "b", "a"), "y contains NaN: 1 of 6"),
    "a missing label of pandas": (BayesianClassifier, X, pd.Series([*LABELS[:5], pd.NA]), "y contains NaN: 1 of 6"),
    "two columns of labels": (BayesianClassifier, X, np.zeros((6, 2), int), "y should be a 1d array"),
    "dicts as labels": (
        BayesianClassifier,
        X,
        _object("a", {}, "b", "a", "b", "a"),
        "y must hold .* got dict in row 1",
    ),
    "complex labels": (BayesianClassifier, X, NUMBERS + 1j, "y must hold real numbers or labels"),
    "numbers as classes": (BayesianClassifier, X, NUMBERS / 7, "Unknown label type: continuous"),
    "lists in X": (BayesianRegressor, _frame(_object([1], 2, 3, 4, 5, 6)), NUMBERS, "column 'b' of X .* list in row 0"),
    "dicts in X": (BayesianRegressor, _frame(_object(1, {}, 3, 4, 5, 6)), NUMBERS, "column 'b' of X .* dict in row 1"),
    "complex X": (BayesianRegressor, _frame(NUMBERS + 1j), NUMBERS, "column 'b' of X must hold real numbers"),
    "a complex array": (BayesianRegressor, X + 1j, NUMBERS, "Complex data not supported"),
    "infinite X": (BayesianRegressor, _frame([1, 2, np.inf, 4, 5, 6]), NUMBERS, "X contains infinity .* 'b'"),
    "equal names": (BayesianRegressor, pd.DataFrame(X, columns=["a"] * 2), NUMBERS, "several columns named 'a'"),
    "equal numbers as names": (BayesianRegressor, pd.DataFrame(X, columns=[7, 7]), NUMBERS, "columns named '7'"),
    "dates as numbers": (BayesianRegressor, X, pd.date_range("2024", periods=6), "y must hold numbers, got dates"),
    "durations": (BayesianRegressor, X, pd.to_timedelta(NUMBERS, unit="D"), "y must hold numbers, got durations"),
    "a dict of columns": (BayesianRegressor, {"a": NUMBERS}, NUMBERS, r"X must be a table .* pass pandas.DataFrame"),
    "one axis": (BayesianRegressor, NUMBERS, NUMBERS, "X has 6 values. Reshape your data"),
    "one column of pandas": (BayesianRegressor, pd.Series(NUMBERS), NUMBERS, r"in pandas X.to_frame\(\)"),
    "fewer targets": (BayesianRegressor, X, NUMBERS[:4], "inconsistent numbers of samples"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name):
    kind, x, y, message = MISTAKES[name]
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        kind(method="map").fit(x, y)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1, -1, 2, -1, 0], "y must have None or NaN where a label is missing, got -1"),
        ([0.0, 1.0, np.inf, np.nan, 0.0, 1.0], "y contains infinity"),
        ([0.0, 1.0, 0.5, np.nan, 0.0, 1.0], "Unknown label type: continuous"),
    ],
)
def test_gaps_among_labels_are_none_or_nan(y, message):
    likelihood = EntropyRegularised(Categorical())
    with pytest.raises(ValueError, match=message):
        BayesianClassifier(method="map", likelihood=likelihood).prepare(X, y)
    _, data = BayesianClassifier(likelihood=likelihood).prepare(X, [-1, 1, None, 1, -1, 1])  # two classes
    assert np.asarray(data.y).tolist() == [0, 1, -1, 1, 0, 1]


def test_a_class_may_be_minus_one_where_gaps_are_gaps():
    y = np.array([[-1, 0], [0, np.nan], [1, 1], [-1, -1], [0, 0], [1, np.nan]])
    _, data = BayesianClassifier(likelihood=Annotators(3, 2)).prepare(X, y)
    assert np.asarray(data.y).tolist() == [[0, 1], [1, -1], [2, 2], [0, 0], [1, 1], [2, -1]]
    with pytest.raises(ValueError, match=r"as many classes as y, 3, got Annotators\(num_classes=4\)"):
        BayesianClassifier(likelihood=Annotators(4, 2)).prepare(X, y)


@pytest.mark.parametrize("annotator", [None, [0, 1], 0.5, "bob"])
def test_whose_answer_is_asked_for_is_a_column_of_y(annotator):
    y = np.array([[0, 0], [0, 1], [1, 1], [0, 0], [0, 0], [1, 1]])
    fitted = BayesianClassifier(method="map", hidden=(), likelihood=Annotators(2, 2)).fit(X, y)
    with pytest.raises(ValueError, match="annotator must be the place of a column of y, or one for each of 6 rows"):
        fitted.predict_observed(X, annotator=annotator)


def test_nobody_gives_the_answers_of_one_label_column():
    fitted = BayesianClassifier(method="map", hidden=()).fit(X, LABELS)
    with pytest.raises(TypeError, match="annotator must be None"):
        fitted.predict_observed(X, annotator=0)


def test_a_list_in_a_new_row_is_named():
    fitted = BayesianRegressor(method="map", hidden=()).fit(_frame(NUMBERS), NUMBERS)
    with pytest.raises(ValueError, match="column 'b' of X must hold a number in each row"):
        fitted.predict(_frame(_object([1], 2, 3, 4, 5, 6)))


def test_dates_are_not_nanoseconds():
    fitted = BayesianRegressor(method="map", hidden=()).fit(_frame(NUMBERS), NUMBERS)
    with pytest.raises(ValueError, match=r"column 'b' of X must hold a number in each row, .* datetime64"):
        fitted.predict(_frame(pd.date_range("2024", periods=6)))


def test_a_constant_target_is_said():
    with pytest.warns(UserWarning, match="y is constant: there is nothing to learn"):
        BayesianRegressor(method="map").prepare(X, np.ones(6))


def test_a_random_state_that_is_none_is_named():
    with pytest.raises(ValueError, match="random_state must be an int"):
        BayesianRegressor(method="map", random_state="seed").prepare(X, NUMBERS)


def test_a_few_words_among_numbers_are_missing_numbers():
    values = np.arange(60.0) / 7
    column = _object(*values[:58], "NA", "unknown")
    with pytest.warns(UserWarning, match="'b' holds numbers but for 2 of 60 values, such as 'NA'"):
        encoder = ColumnEncoder.fit(pd.DataFrame({"b": column}))
    assert encoder.names_out == ("b", "b is missing")
    np.testing.assert_allclose(encoder.mean, values[:58].mean())


def test_decimals_are_numbers():
    values = _object(*map(Decimal, ("1.5", "2", "2.5", "3", "3.5", "4")))
    assert ColumnEncoder.fit(_frame(values)).kinds == ("number", "number")
    assert BayesianRegressor(method="map", hidden=()).prepare(X, values)[1].y.dtype.kind == "f"


def test_numbers_as_texts_and_objects_are_numbers():
    for y in (NUMBERS.astype(object), NUMBERS.astype(str), pd.Series(NUMBERS, dtype="Float64")):
        assert BayesianRegressor(method="map", hidden=()).prepare(X, y)[1].y.shape == (6,)

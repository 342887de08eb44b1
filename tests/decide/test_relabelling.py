"""Whom to ask about what: planted annotators, real ones, and what cannot be meant."""

import numpy as np
import pytest

import marginax as mx
from marginax.decide import ExpectedInformation, KnownAnswers, RandomQuestions, relabel_actively

TRAINING = mx.infer.MAP(num_epochs=150, batch_size=None)
SKILLS = np.array([0.97, 0.9, 0.7, 0.6, 0.55])


def crowd(seed, num=80):
    """Items of two classes by people of different skill, and the three answers of each that are there to begin with.

    With fewer answers it is not known who is right, and a point estimate may follow the wrong people.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, num)
    answers = np.where(rng.uniform(size=(num, 5)) < SKILLS, truth[:, None], 1 - truth[:, None])
    first = rng.uniform(size=answers.shape).argsort(axis=1) < 3
    return truth, answers, np.where(first, answers, -1)


def study(truth, answers, first, questions=None, **more):
    model = mx.Model(mx.nets.Intercept(2), mx.likelihoods.Annotators(2, answers.shape[1]))
    options = {"batch_size": 10, "budget": 40, "key": 0} | more
    x = np.zeros((len(truth), 1))
    return relabel_actively(model, x, first, KnownAnswers(answers), TRAINING, questions, truth=truth, **options)


@pytest.mark.parametrize("wrong", [[[0.5, 1], [1, 1]], [[-2, 1], [1, 1]], [0, 1]])
def test_answers_that_nobody_gave_are_refused(wrong):
    with pytest.raises(ValueError, match="answers must be whole numbers >= -1"):
        KnownAnswers(wrong)


def test_truth_is_known_of_every_item():
    truth, answers, first = crowd(0, num=6)
    with pytest.raises(ValueError, match="truth must hold labels from 0 to 1 of all items, got -1"):
        study(np.where(np.arange(6) == 1, -1, truth), answers, first)


def test_answers_that_say_most_are_worth_more_than_random_ones():
    gaps, asked = [], np.zeros(5)
    for seed in range(8):
        found = [study(*crowd(seed), rule, key=seed) for rule in (ExpectedInformation(), RandomQuestions())]
        informed, random = (each.curve.error for each in found)
        assert informed[0] == random[0]  # the same answers
        assert [each.curve.num_labels.tolist() for each in found] == [[240, 250, 260, 270, 280]] * 2
        gaps.append((random[1:] - informed[1:]).mean())
        first = crowd(seed)[2]
        asked += ((found[0].answers >= 0) & (first < 0)).sum(axis=0)
    assert np.mean(gaps) > 2 * np.std(gaps, ddof=1) / np.sqrt(8)
    assert asked[:2].sum() > 2 * asked[2:].sum()  # who knows is asked, and not who guesses


def test_answers_are_those_of_who_was_asked():
    truth, answers, first = crowd(0)
    kept = []
    found = study(truth, answers, first, callback=kept.append)
    new = (found.answers >= 0) & (first < 0)
    assert new.sum() == 40
    np.testing.assert_array_equal(found.answers[new], answers[new])
    np.testing.assert_array_equal(found.answers[first >= 0], first[first >= 0])
    assert [int((each >= 0).sum()) for each in kept] == [250, 260, 270, 280]
    for before, after in zip([first, *kept], kept, strict=False):
        assert ((after >= 0) & (before < 0)).sum(axis=1).max() == 1  # one about an item in a round


def test_a_study_goes_on_from_its_answers():
    whole = study(*crowd(1))
    truth, answers, first = crowd(1)
    half = study(truth, answers, first, budget=20)
    rest = study(truth, answers, half.answers, budget=20)
    np.testing.assert_array_equal(rest.answers, whole.answers)
    np.testing.assert_array_equal(rest.curve.error, whole.curve.error[2:])


def test_it_ends_when_there_is_nothing_to_ask():
    truth, answers, first = crowd(2, num=8)
    known = np.where(np.arange(5) < 3, answers, -1)  # of the others there is no answer to be had
    first = np.where(np.arange(5) < 1, answers, -1)
    found = study(truth, known, first, budget=100)
    assert found.reason == "everybody was asked"
    np.testing.assert_array_equal(found.answers, known)
    ended = study(truth, known, first, threshold=10.0)  # nats, more than there are
    assert (ended.reason, int((ended.answers >= 0).sum())) == ("threshold is reached", 8)


def test_items_nobody_was_asked_about_wait():
    truth, answers, first = crowd(3)
    first[7] = -1
    found = study(truth, answers, first, budget=30, batch_size=30)
    assert (found.answers[7] >= 0).sum() == 1  # of which little is known


def test_an_interrupt_keeps_what_was_answered():
    _, answers, first = crowd(4)
    calls = []

    def oracle(items, annotators):
        calls.append(len(items))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answers[items, annotators]

    model = mx.Model(mx.nets.Intercept(2), mx.likelihoods.Annotators(2, 5))
    found = relabel_actively(model, np.zeros((80, 1)), first, oracle, TRAINING, batch_size=5, budget=20, key=0)
    assert (found.reason, int((found.answers >= 0).sum())) == ("interrupted", 245)


BAD = {
    "oracle": ({"oracle": lambda items, who: np.full(len(items), 2)}, "y must hold labels from 0 to 1"),
    "no answer": (
        {"oracle": lambda items, who: np.full(len(items), -1)},
        "oracle must give labels, got -1 of annotator",
    ),
    "too few": ({"oracle": lambda items, who: [0]}, "an answer to each of 10 questions"),
    "budget": ({"budget": 0}, "budget must be an int >= 1, got 0"),
    "truth": ({"truth": [0, 1]}, "a label for each of 80 items"),
    "available": ({"available": np.ones((80, 4), bool)}, r"available must be boolean of shape \(80, 5\)"),
    "threshold": ({"threshold": 1.0, "questions": RandomQuestions()}, "threshold must be None for RandomQuestions"),
    "empty": ({"answers": np.full((80, 5), -1)}, "answers must have one at least"),
    "out of range": ({"answers": np.full((80, 5), 2)}, "labels from 0 to 1, or -1"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_cannot_be_meant_is_refused(bad):
    change, message = BAD[bad]
    _, answers, first = crowd(5)
    options = {
        "model": mx.Model(mx.nets.Intercept(2), mx.likelihoods.Annotators(2, 5)),
        "x": np.zeros((80, 1)),
        "answers": first,
        "oracle": KnownAnswers(answers),
        "method": TRAINING,
        "batch_size": 10,
        "budget": 20,
        "key": 0,
    }
    with pytest.raises(ValueError, match=message):
        relabel_actively(**(options | change))


def test_a_model_without_annotators_is_refused():
    model = mx.Model(mx.nets.Intercept(2), mx.likelihoods.Categorical())
    with pytest.raises(TypeError, match=r"model must be an mx\.Model with mx\.likelihoods\.Annotators"):
        relabel_actively(model, np.zeros((2, 1)), [[0], [1]], print, TRAINING, batch_size=1, budget=1, key=0)

"""The programme of careless inputs: its judge can say no, and its quickest cases end well."""

import warnings
from collections import Counter

import pytest
from benchmarks.entries.careless import all_cases, counts, run
from benchmarks.harness.careless_case import (
    ANSWERED,
    EITHER,
    REFUSAL,
    REFUSED,
    WRONG,
    Answer,
    Case,
    Compilations,
    judge,
)

CASES = all_cases()
QUICK = [each for each in CASES if each.expect == REFUSAL and each.kind in ("type", "shape", "classes")]


def verdict(run, **options):
    return judge(Case("test", "a case", run, **options), Compilations())


def raising(error):
    def run(_):
        raise error

    return run


def test_there_are_many_cases_with_names_of_their_own():
    assert len(CASES) >= 150
    assert [name for name, num in Counter((each.kind, each.name) for each in CASES).items() if num > 1] == []


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (Answer(False), "not finite"),
        (Answer(True, -0.2), "gain over a constant -0.2"),
        (Answer(True, float("nan")), "gain over a constant nan"),
        (Answer(True, 1.0, linear_gain=1.2), "that of a linear model 1.2"),
        (Answer(True, 1.0, coverage=0.6), "cover 60%"),
        (Answer(True, 1.0, width=30.0), "30 standard deviations wide"),
        (Answer(True, 0.2, at_least=0.5), "at least 0.5 asked for"),
    ],
)
def test_a_bad_answer_is_wrong(answer, complaint):
    found = verdict(lambda _: answer)
    assert found.word == WRONG
    assert complaint in found.story


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        (KeyError("a"), "raised KeyError"),
        (ValueError("no"), "does not hold 'y'"),
        (ValueError("y" * 501), "501 characters"),
    ],
)
def test_a_bad_refusal_is_wrong(error, complaint):
    found = verdict(raising(error), expect=REFUSAL, mentions=("y",))
    assert found.word == WRONG
    assert complaint in found.story


def test_what_was_not_expected_is_wrong():
    assert "not refused" in verdict(lambda _: Answer(True), expect=REFUSAL).story
    assert "refused: ValueError" in verdict(raising(ValueError("y"))).story
    assert verdict(lambda _: Answer(True), given=lambda: raising(ValueError("y"))(0)).word == WRONG
    assert "without a warning" in verdict(lambda _: Answer(True), warns=("y",)).story


def test_a_refusal_after_compiling_and_noise_of_numpy_are_wrong():
    import jax

    def compile_first(_):
        jax.jit(lambda x: x + 3.25)(1.5)
        raise ValueError("y")

    def noisy(_):
        warnings.warn("divide by zero", RuntimeWarning, stacklevel=1)
        return Answer(True)

    assert "compiled 1 programs" in verdict(compile_first, expect=REFUSAL, mentions=("y",)).story
    assert "divide by zero" in verdict(noisy).story


def test_good_ends_are_told_apart():
    assert verdict(lambda _: Answer(True, 1.0, 1.1, 0.9, 3.0), expect=EITHER).word == ANSWERED
    assert verdict(raising(TypeError("y must be 1")), expect=EITHER, mentions=("y",)).word == REFUSED


def test_careless_tables_are_refused_by_name():
    assert len(QUICK) > 25
    wrong = [f"{each.case.name}: {each.story}" for each in run(QUICK) if each.word != REFUSED]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_run")
def test_no_careless_case_ends_badly():
    found = run([each for each in CASES if not each.dear])
    assert [f"{each.case.kind}: {each.case.name}: {each.story}" for each in found if each.word == WRONG] == []
    assert sum(each.total() for each in counts(found).values()) >= 150

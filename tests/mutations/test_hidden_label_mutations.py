"""Bugs that likelihoods of wrong labels can have, each planted alone and caught by a check of the suite."""

import jax
import jax.numpy as jnp
import pytest
from tests.decide import test_relabelling as asking
from tests.model import test_noisy_labels as exact
from tests.model import test_outliers as gross
from tests.mutations.bug import Bug, assert_caught
from tests.reproduce import test_noisy_mnist as digits

from marginax.decide import ExpectedInformation
from marginax.model.likelihoods.annotators import Annotators, Answers
from marginax.model.likelihoods.noisy_labels import NoisyClasses, NoisyLabels
from marginax.model.likelihoods.outliers import Outliers
from marginax.model.transitions import FullTransition

ERRORS = digits.with_errors
INFORMATION, ANSWER = ExpectedInformation.scores, Answers.answer_logits
ROOT, PRIOR, GIVEN = NoisyLabels.fisher_root, FullTransition.log_prior, Annotators.fisher_root_given


def transposed(self, value):
    labels = jnp.asarray(value).astype(int).reshape(self.logits.shape[:-1])
    return jax.nn.log_softmax(self.logits, axis=-1) + jnp.take(self.log_transition, labels, axis=0)


def of_the_true_label(self, output, unknowns):
    """As if labels were right."""
    return self.likelihood.fisher_root(output, unknowns)


def without_jacobian(self, unknowns):
    return PRIOR(self, unknowns) - jnp.sum(self.log_matrix(unknowns, unknowns["transition"].shape[-2]))


def last_annotator(self, value):
    """-1 taken for the last label."""
    answers = jax.nn.one_hot(jnp.asarray(value) % self.logits.shape[-1], self.logits.shape[-1])
    return jax.nn.log_softmax(self.logits, axis=-1) + jnp.einsum("...aj,akj->...k", answers, self.log_confusion)


def everybody(self, output, y, unknowns, key):
    return GIVEN(self, output, jnp.zeros_like(y), unknowns, key)


def clean_information(self, output, unknowns):
    return self.likelihood.fisher(output, unknowns)


def asked_again(self, posterior, x, answers, *, num_samples, key):
    """What is asked is what says least."""
    return -INFORMATION(self, posterior, x, answers, num_samples=num_samples, key=key)


def somebody_else(self, annotator):
    return ANSWER(self, (jnp.asarray(annotator) + 1) % self.log_confusion.shape[0])


def check_answers():
    logits, matrices = (
        jnp.array([[0.3, -0.2], [1.0, 0.0]]),
        jnp.array([[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.5, 0.5]]]),
    )
    found = jnp.exp(Answers(logits, jnp.log(matrices)).answer_logits(jnp.array([0, 1])))
    expected = jnp.einsum("nk,nkj->nj", jax.nn.softmax(logits), matrices)
    assert jnp.allclose(found, expected, atol=1e-6)


def to_the_digit_before(y, matrix, rng):
    return ERRORS(y, matrix.T, rng)


BUGS = [
    Bug(
        "noise in the other direction",
        digits,
        "with_errors",
        to_the_digit_before,
        lambda: digits.test_labels_are_as_wrong_as_is_said("pair 45%"),
    ),
    Bug("answers of somebody else", Answers, "answer_logits", somebody_else, check_answers),
    Bug(
        "the least informative question",
        ExpectedInformation,
        "scores",
        asked_again,
        asking.test_answers_that_say_most_are_worth_more_than_random_ones,
    ),
    Bug(
        "matrix transposed",
        NoisyClasses,
        "hidden_logits",
        transposed,
        lambda: exact.test_the_hidden_label_is_summed_out_as_by_hand("categorical"),
    ),
    Bug(
        "information of the true label",
        NoisyLabels,
        "fisher_root",
        of_the_true_label,
        lambda: exact.test_information_is_the_mean_of_squared_scores("categorical"),
    ),
    Bug(
        "no Jacobian",
        FullTransition,
        "log_prior",
        without_jacobian,
        exact.test_priors_are_those_of_dirichlet_and_beta_in_unconstrained_coordinates,
    ),
    Bug(
        "not asked is an answer",
        Answers,
        "hidden_logits",
        last_annotator,
        exact.test_answers_of_a_crowd_are_summed_out_as_by_hand,
    ),
    Bug(
        "everybody was asked",
        Annotators,
        "fisher_root_given",
        everybody,
        exact.test_information_of_answers_depends_on_who_was_asked,
    ),
    Bug(
        "no outliers in the information",
        Outliers,
        "fisher",
        clean_information,
        lambda: gross.test_information_is_the_integral_of_squared_scores("from network"),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bugs_are_caught(bug):
    assert_caught(bug, bug.check)

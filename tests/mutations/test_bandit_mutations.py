"""Bugs that bandits can have, each planted alone and caught by a check of the suite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.decide import test_bandits as bandits
from tests.mutations.bug import Bug, assert_caught

from marginax.decide import LinearThompson, Played, Thompson
from marginax.decide.bandits import linear, playing
from marginax.decide.bandits.linear import Regressions

CHECKS = {
    "closed form": bandits.check_sequential_equals_batch,
    "linear choices": bandits.check_linear_choices,
    "network choices": bandits.check_network_choices,
    "regret": bandits.check_regret_is_expected,
}


def realised_regret(self):
    return np.cumsum(self.best - self.rewards)


def same_keys(self, stream, start, end):
    return jnp.broadcast_to(self._stream(stream), (end - start,))


def one_draw_for_all(self, posterior, x, num_arms, keys):
    return CHOOSE(self, posterior, x, num_arms, jnp.broadcast_to(keys[0], keys.shape))


def prior_forgotten(self, x, arm, reward):
    belief = CONDITION(self, x, arm, reward)
    first = self.shape[arm] == bandits.PRIOR["shape"]
    bare = belief.precision[arm] - bandits.PRIOR["precision"] * (1 - 1e-3) * jnp.eye(len(x)) * first
    root = jnp.linalg.cholesky(bare)
    mean = jax.scipy.linalg.cho_solve((root, True), belief.moment[arm])
    return Regressions(
        belief.precision.at[arm].set(bare),
        belief.root.at[arm].set(root),
        belief.moment,
        belief.mean.at[arm].set(mean),
        belief.shape,
        belief.rate,
    )


def plain_residual(self, x, arm, reward):
    belief = CONDITION(self, x, arm, reward)
    rate = self.rate.at[arm].add(0.5 * jnp.square(reward - self.mean[arm] @ x))
    return Regressions(belief.precision, belief.root, belief.moment, belief.mean, belief.shape, rate)


def normal_for_student(key, freedom):
    return jax.random.normal(key, freedom.shape, freedom.dtype)


def greedy(self, state, x, *, key):
    return jnp.argmax(state.predict(linear.with_constant(x))[0])


CHOOSE, CONDITION = Thompson.choose, Regressions.condition

BUGS = [
    Bug("regret of luck", Played, "regret", property(realised_regret), "regret"),
    Bug("one draw for all steps", playing._Game, "_keys", same_keys, "linear choices"),
    Bug("one network for all steps", Thompson, "choose", one_draw_for_all, "network choices"),
    Bug("the prior is forgotten", Regressions, "condition", prior_forgotten, "closed form"),
    Bug("residuals count in full", Regressions, "condition", plain_residual, "closed form"),
    Bug("noise is taken as known", linear, "student", normal_for_student, "linear choices"),
    Bug("no draw at all", LinearThompson, "choose", greedy, "linear choices"),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    assert_caught(bug, CHECKS[bug.check])

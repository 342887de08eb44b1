"""Bugs planted in programs are caught by the checks of their tests."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.infer import test_amortised as amortised
from tests.model import test_program as checks
from tests.model import test_program_predictive as predictive
from tests.model import test_program_scan as scans
from tests.mutations.bug import planted

from marginax.model.program import chains, density, enumeration, guides, sampling, sites
from marginax.posterior import sites as posterior_sites


class NoJacobian:
    """The bijection of a support that forgets what it does to a density."""

    def __init__(self, inner):
        self.inner = inner

    def __call__(self, free):
        return self.inner(free)

    def inverse_shape(self, shape):
        return self.inner.inverse_shape(shape)

    def log_abs_det_jacobian(self, free, value):
        return jnp.zeros(jnp.shape(self.inner.log_abs_det_jacobian(free, value)))


def without_jacobian(biject_to):
    return lambda support: NoJacobian(biject_to(support))


class ScaledTwice(sites.Conditioned):
    """The plate's own N/B stays, on top of that of the batch."""

    def _process_sample(self, msg):
        self.thinning = 1.0
        super()._process_sample(msg)


def without_the_last(run_all):
    """A scan whose last step is forgotten."""
    return lambda self, carry, xs, length: run_all(self, carry, xs, length - 1)


def transposed(sum_paths):
    """Moves from a state to another taken for moves from the other to it."""

    def other_way(self, first, later):
        turned = [enumeration.Factor(self.exchanged(f.values), f.plates) if both(self, f) else f for f in later]
        return sum_paths(self, first, turned)

    def both(self, factor):
        return all(factor.values.shape[axis] > 1 for axis in self.carried[0].axes)

    return other_way


CHAIN_BUGS = {
    "the last step is forgotten": (chains._Steps, "run_all", without_the_last(chains._Steps.run_all), 0),
    "transitions are transposed": (chains._Steps, "sum_paths", transposed(chains._Steps.sum_paths), 0),
    "masked states count once for each value": (sites, "_without_mask", lambda fn: fn, 4),
}


@pytest.mark.parametrize("name", CHAIN_BUGS)
def test_bugs_in_sums_over_paths_are_caught(name):
    owner, attribute, replacement, case = CHAIN_BUGS[name]
    with (
        planted(owner, attribute, replacement),
        pytest.raises(AssertionError, match="Not equal to tolerance"),
    ):
        scans.check_all_paths(scans.CASES[case])


def best_value(factors, axis, variables):
    """The likeliest value of a discrete site in place of all."""
    joint = sum(factor.values for factor in factors)
    return [enumeration.Factor(jnp.max(joint, axis=axis, keepdims=True), factors[0].plates)]


def test_a_missing_jacobian_is_caught():
    with (
        planted(density, "biject_to", without_jacobian(density.biject_to)),
        pytest.raises(AssertionError, match="Not equal to tolerance"),
    ):
        checks.test_log_density_is_that_of_numpyro(checks.coin, {"flips": np.array([1, 0, 1, 1])})


@pytest.mark.parametrize("model", [checks.by_subsample, checks.of_fixed_size], ids=lambda model: model.__name__)
def test_plate_scaling_applied_twice_is_caught(model):
    with (
        planted(density, "Conditioned", ScaledTwice),
        pytest.raises(AssertionError, match="Not equal to tolerance"),
    ):
        checks.test_minibatches_are_unbiased(model)


def test_a_maximum_in_place_of_a_sum_is_caught():
    with planted(enumeration, "eliminate", best_value), pytest.raises(AssertionError, match="Not equal to tolerance"):
        checks.test_mixture_labels_are_summed_out()


def test_a_shared_switch_drawn_from_its_prior_is_caught():
    with planted(sampling, "draw_shared", lambda *_: {}), pytest.raises(AssertionError, match="Not equal to tolerance"):
        predictive.test_discrete_sites_that_all_examples_share_are_drawn_given_the_data()


def test_unknowns_that_ignore_the_key_are_caught():
    def by_its_own_key(posterior, num, key=None):
        return stacked(posterior, num)

    stacked = posterior_sites.stacked_params
    with planted(posterior_sites, "stacked_params", by_its_own_key), pytest.raises(AssertionError):
        predictive.test_the_key_decides_unknowns_and_observations()


def counted_once(draw):
    """The guide's density of what each row has for itself, as if all rows shared it: not N/B times."""

    def with_bug(*args):
        drawn = draw(*args)
        return drawn._replace(log_prob=drawn.log_prob + drawn.by_row.sum(), by_row=0.0 * drawn.by_row)

    return with_bug


def test_terms_of_rows_that_are_not_scaled_are_caught():
    with (
        planted(guides, "draw", counted_once(guides.draw)),
        pytest.raises(AssertionError, match="Not equal to tolerance"),
    ):
        amortised.check_minibatches()

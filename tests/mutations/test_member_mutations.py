"""Bugs that members which share weights can have, each planted alone and caught by a check of the suite."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from tests.infer import test_batch_ensemble as batch_ensemble
from tests.infer import test_mimo as one_network
from tests.infer import test_packed as packed
from tests.infer import test_rank1_vi as rank_one
from tests.mutations.bug import Bug, assert_caught
from tests.nets import test_rank_one as factors

from marginax.infer.members import batch_ensemble as batch_ensembles
from marginax.infer.members import mimo, rank1_vi
from marginax.nets import RankOneFactors, mlp
from marginax.nets import rank_one as rules


def dealing() -> None:
    factors.test_rows_dealt_to_members_give_what_each_member_gives(factors.NETWORKS["perceptron"])


def images() -> None:
    factors.test_rows_dealt_to_members_give_what_each_member_gives(factors.NETWORKS["convolution of equinox"])


def always_the_first(self, batch, dtype):
    """Rows are dealt from the same member in every step."""
    return DEALT(replace(self, first=None), batch, dtype)


def one_for_all(self, batch, dtype):
    found = DEALT(self, batch, dtype)
    return jnp.zeros_like(found).at[0].set(1.0)


def bias_within(self, layer, x, noise):
    """The factor of the output on the bias as well."""
    inputs, outputs, bias = noise
    y = rules._without_bias(layer)(rules.per_channel(inputs, x) * x) + rules.per_channel(bias.ravel(), x)
    return rules.per_channel(outputs, y) * y


def outputs_forgotten(self, layer):
    return APPLIED(replace(self, outputs=jnp.ones_like(self.outputs)), layer)


def one_noise(self, layer, shapes, batch, dtype, *, key):
    """Factors of inputs and outputs from the same numbers, the same for all rows."""
    drawn = DRAW(self, layer, shapes, batch, dtype, key=jax.random.key(0))
    return tuple(value if value is None else jnp.broadcast_to(value[..., :1], value.shape) for value in drawn)


def prior_of_shared(self, model, params, own, first):
    return model.log_prior(params)


def counted_for_each(self, model, params, own, batch, first, *, key):
    return self.num_members * LIKELIHOOD(self, model, params, own, batch, first, key=key)


def variances(own, prior_scale):
    """Rho taken as it is."""
    return DIVERGENCE(own, prior_scale**2)


def half_of_the_price(own, prior_scale):
    return 0.5 * DIVERGENCE(own, prior_scale)


def rho_for_scale(own):
    return own


def targets_left(network, own, x, orders):
    """Outputs where the rows stood before they were moved."""
    outputs = JOINT(network, own, x, orders)
    return jnp.stack([outputs[:, 0], *(outputs[order, m + 1] for m, order in enumerate(orders))], axis=1)


def mean_of_inputs(self, model, params, own):
    return MEMBERS(self, model, params, replace(own, inputs=own.inputs / self.num_members))


def full_prior(self, model, params, own, first):
    """That of the first layers as they are, though it is their sum that counts."""
    return PRIOR(self, model, params, replace(own, inputs=own.inputs / jnp.sqrt(self.num_members)), first)


def never_moved(size, num, repetition, *, key):
    return ORDERS(size, num, 1.0, key=key)


def plain_cut(layer, num_outputs, num_inputs, initialiser):
    """The rest of the units, backwards."""
    found = CUT(layer, num_outputs, num_inputs, initialiser)
    return jax.tree.map(lambda leaf: 2 * leaf, found)


DEALT, APPLIED, DRAW = RankOneFactors._members, RankOneFactors.applied_to, RankOneFactors.draw
LIKELIHOOD = batch_ensembles.BatchEnsemble.log_likelihood
DIVERGENCE, JOINT, ORDERS = rank1_vi.divergence, mimo.joint_outputs, mimo.independent_orders
MEMBERS, PRIOR, CUT = mimo.MIMO.members, mimo.MIMO.log_prior, mlp.cut_layer


def maximised() -> None:
    batch_ensemble.test_what_is_maximised_is_the_mean_of_the_members_log_densities()


def bound() -> None:
    rank_one.test_the_bound_counts_data_once_and_the_prior_once()


def widths() -> None:
    packed.test_as_many_times_as_wide_as_members_is_the_ensemble_itself()


BUGS = [
    Bug("rows dealt from the same member on", RankOneFactors, "_members", always_the_first, dealing),
    Bug("one member for all rows", RankOneFactors, "_members", one_for_all, dealing),
    Bug("the bias multiplied, too", RankOneFactors, "call", bias_within, images),
    Bug("members without the factors of outputs", RankOneFactors, "applied_to", outputs_forgotten, dealing),
    Bug(
        "the same factors for all rows",
        RankOneFactors,
        "draw",
        one_noise,
        factors.test_inputs_share_factors_within_a_draw_and_do_not_within_a_batch,
    ),
    Bug("prior of shared weights", batch_ensembles.BatchEnsemble, "log_prior", prior_of_shared, maximised),
    Bug("data counted for each member", batch_ensembles.BatchEnsemble, "log_likelihood", counted_for_each, maximised),
    Bug("prior scale squared", rank1_vi, "divergence", variances, bound),
    Bug("half of the divergence", rank1_vi, "divergence", half_of_the_price, bound),
    Bug("rho taken for scales", rank1_vi, "normal_factors", rho_for_scale, rank_one.check_predictive_law),
    Bug("targets of other rows", mimo, "joint_outputs", targets_left, one_network.check_objective),
    Bug(
        "the mean of the first layers",
        mimo.MIMO,
        "members",
        mean_of_inputs,
        one_network.test_members_as_networks_are_those_of_equal_inputs,
    ),
    Bug(
        "prior of first layers as they are",
        mimo.MIMO,
        "log_prior",
        full_prior,
        one_network.test_the_prior_is_that_of_networks_with_scaled_first_layers,
    ),
    Bug(
        "all inputs the same in training",
        mimo,
        "independent_orders",
        never_moved,
        one_network.test_orders_are_those_of_the_method,
    ),
    Bug("cut weights grow", mlp, "cut_layer", plain_cut, widths),
]


def name_of(bug: Bug) -> str:
    return bug.name


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=name_of)
def test_bug_is_caught(bug):
    assert_caught(bug, bug.check, (AssertionError, RuntimeWarning))  # of a chain that became NaN

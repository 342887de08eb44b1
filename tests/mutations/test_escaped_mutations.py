"""Bugs that once passed every test, each planted alone and caught by a test of the default suite."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.curvature import test_structures as structures
from tests.evaluate import test_calibration as bins
from tests.infer import test_calibration as calibration
from tests.infer import test_driver as driver_tests
from tests.infer import test_dropout as dropout
from tests.infer import test_dynamics as dynamics
from tests.infer import test_stochastic as stochastic
from tests.infer import test_temperature as temperatures
from tests.model import test_model as models
from tests.mutations.bug import Bug, assert_caught, planted
from tests.posterior import test_posterior as posteriors
from tests.posterior import test_tuning as tuned
from tests.predict import test_functions as functions

import marginax as mx
from marginax._kernels.random import derive, normal
from marginax.curvature import LowRankCovariance
from marginax.evaluate import EqualMass, EqualWidth
from marginax.infer import ConcreteDropout, CyclicalSGMCMC, DiagonalMetric, chunk
from marginax.infer.laplace import tuning
from marginax.infer.mcmc import adaptation, hmc, nuts
from marginax.infer.sgmcmc import diffusion, sgld, sgnht
from marginax.infer.vi import ivon
from marginax.model import Model, Params, likelihoods
from marginax.model.priors import Rescaled
from marginax.predict import linearised

# ---- temperature


def thermostat_at_one(self, params, memory, gradient, step_size, temperature, key, _original=sgnht.SGNHT.update):
    params, new, info = _original(self, params, memory, gradient, step_size, temperature, key)
    friction = new.friction + self.coupling * (temperature - 1.0)
    return params, eqx.tree_at(lambda m: m.friction, new, friction), info


def proposals_at_one(start, end, gradient, step_size, temperature, _original=sgld.log_proposal):
    del temperature
    return _original(start, end, gradient, step_size, 1.0)


def step_at_one(self, model, state, batch, *, key, _original=ivon.IVON.step):
    return _original(eqx.tree_at(lambda m: m.temperature, self, 1.0), model, state, batch, key=key)


def noise_while_exploring(self, model, state, batch, *, key):
    progress = (state.count % self.cycle_length) / self.cycle_length
    factor = 0.5 * (1.0 + jnp.cos(jnp.pi * progress)) * (self.boost if self.sampler.step_size is None else 1.0)
    step_size = factor * self.sampler.step_size_at(state, batch)
    return self.sampler.move(model, state, batch, step_size, self.sampler.temperature, key=key)


# ---- priors and their tuning


def keep_rate_to_the_first_power(self, model, params, noise, _original=ConcreteDropout.log_prior):
    layers = [
        layer
        if logit is None
        else eqx.tree_at(lambda at: at.weight, layer, layer.weight / jax.nn.sigmoid(-logit) ** 0.5)
        for layer, logit in zip(params.network.layers, noise, strict=True)
    ]
    return _original(self, model, eqx.tree_at(lambda p: p.network.layers, params, tuple(layers)), noise)


def first_tuning_forgotten(model, log_factors):
    prior = model.prior.prior if isinstance(model.prior, Rescaled) else model.prior
    logs = {leaf.path: log for leaf, log in zip(model.leaves, log_factors, strict=True)}
    return eqx.tree_at(lambda m: m.prior, model, Rescaled(prior, logs))


def one_key_for_all_leaves(self, params, *, key):
    leaves, treedef = jax.tree.flatten(params.network)
    outer, inner = jax.random.split(key)
    hyper = {leaf.path: self.prior.at(leaf.path).sample_hyper(leaf, key=outer) for leaf in self.leaves}
    drawn = [
        self.prior.at(leaf.path).sample(leaf, hyper[leaf.path], key=inner).astype(value.dtype)
        for leaf, value in zip(self.leaves, leaves, strict=True)
    ]
    return Params(jax.tree.unflatten(treedef, drawn), params.likelihood, {p: h for p, h in hyper.items() if h})


# ---- predictions and curvature


def equal_weights(self, x, *, _original=linearised.LinearisedMixture.averaging, **options):
    return _original(eqx.tree_at(lambda f: f.part_weights, self, np.ones(len(self.members))), x, **options)


def fisher_of_a_normal(self, output, unknowns):
    return self.fisher_of(output, unknowns, (self.df + 1) / (self.df + 3), 2.0)


def own_noise_is_the_shared(self, key, num):
    noise = normal(key, (num, self.factor.shape[1]))
    return self.scale * normal(key, (num, self.size)) + noise @ self.factor.T


# ---- keys


def phases_share_keys(key, index, *, stream=0):
    del stream
    return derive(key, index)


# ---- warm-up and trajectories


def windows_add_up(state, position, acceptance, target, num_warmup, _original=adaptation.adapt):
    new = _original(state, position, acceptance, target, num_warmup)
    slow = jnp.asarray(adaptation.adaptation_windows(num_warmup)[0])[state.count]
    moments = adaptation.choose(slow, adaptation.add_to_moments(state.moments, position), state.moments)
    return eqx.tree_at(lambda a: a.moments, new, moments)


def diverging_branch_counts(tree, branch, forward, draw, _original=nuts._joined):
    joined = _original(tree, eqx.tree_at(lambda b: b.diverging, branch, jnp.zeros((), bool)), forward, draw)
    return eqx.tree_at(lambda j: j.diverging, joined, branch.diverging)


def never_begins_again(state, jump, adaptation, num_warmup, max_steps):
    return hmc._climb(state, jump, adaptation.metric_sqrt, adaptation.trial_step_size, max_steps)


def rows_of_the_next_epoch_count(self, model, state, batch, *, key):
    seen = state.anchor.count

    def part(params):
        prior = jnp.where(seen == 0, model.log_prior(params), 0.0)
        return prior + jnp.sum(model.log_likelihood(params, batch))

    value, gradient = jax.value_and_grad(part)(state.params)
    total = jax.tree.map(jnp.add, state.anchor.gradient, gradient)
    anchor = diffusion.Anchor(state.params, total, seen + batch.size)
    return eqx.tree_at(lambda s: s.anchor, state, anchor), diffusion.StochasticInfo(value, jnp.zeros(()))


# ---- bins


def edges_belong_above(self, probs):
    return np.searchsorted(np.arange(1, self.num_bins) / self.num_bins, probs, side="right")


def quantiles_belong_above(self, probs):
    edges = np.quantile(probs, np.arange(1, self.num_bins) / self.num_bins)
    return np.searchsorted(edges, probs, side="right")


def diffusion_law(name):
    return lambda: temperatures.test_diffusions_have_their_discretised_law_at_the_temperature(name)


def student_information():
    with jax.enable_x64(True):
        structures.test_monte_carlo_fisher_is_gauss_newton_on_average("Student, scale from the network")


BUGS = [
    Bug("SGNHT's thermostat is set to 1", sgnht.SGNHT, "update", thermostat_at_one, diffusion_law("SGNHT")),
    Bug("proposals are judged at T = 1", sgld, "log_proposal", proposals_at_one, diffusion_law("SGLD, corrected")),
    Bug(
        "IVON steps at T = 1",
        ivon.IVON,
        "step",
        step_at_one,
        lambda: temperatures.test_variational_optima_are_those_of_the_tempered_posterior("IVON"),
    ),
    Bug(
        "cycles explore with noise",
        CyclicalSGMCMC,
        "step",
        noise_while_exploring,
        lambda: stochastic.test_cycles_have_the_variance_of_their_steps_and_no_noise_while_they_explore(None, 1.0),
    ),
    Bug(
        "concrete dropout has the keep rate to a wrong power",
        ConcreteDropout,
        "log_prior",
        keep_rate_to_the_first_power,
        lambda: dropout.test_the_price_of_concrete_dropout_is_that_of_the_paper(0.1),
    ),
    Bug(
        "the second tuning forgets the first",
        tuning,
        "with_factors",
        first_tuning_forgotten,
        lambda: tuned.test_tuning_twice_ends_where_tuning_once_does(tuned.fitted_wave(), 2),
    ),
    Bug(
        "linearised mixtures have equal weights",
        linearised.LinearisedMixture,
        "averaging",
        equal_weights,
        lambda: functions.test_linearised_mixtures_with_unequal_weights_are_the_average_by_hand("numbers"),
    ),
    Bug(
        "Student's log scale has the information of a normal's",
        likelihoods.StudentT,
        "fisher",
        fisher_of_a_normal,
        student_information,
    ),
    Bug(
        "one key for all leaves of the prior",
        Model,
        "sample_prior",
        one_key_for_all_leaves,
        lambda: models.test_a_draw_of_the_prior_is_independent_over_leaves(mx.priors.FanIn()),
    ),
    Bug(
        "one key for all scales of the prior",
        Model,
        "sample_prior",
        one_key_for_all_leaves,
        lambda: models.test_a_draw_of_the_prior_is_independent_over_leaves(mx.priors.LogNormal(0.0, 0.5)),
    ),
    Bug(
        "one key for all leaves of the prior, on two rows",
        Model,
        "sample_prior",
        one_key_for_all_leaves,
        calibration.test_two_rows_are_calibrated,
    ),
    Bug(
        "the metric remembers earlier windows",
        dynamics,
        "adapt",
        windows_add_up,
        lambda: dynamics.test_the_metric_is_that_of_the_last_window(DiagonalMetric()),
    ),
    Bug(
        "a branch that diverges is drawn from",
        dynamics,
        "_joined",
        diverging_branch_counts,
        dynamics.test_a_branch_that_diverges_never_gives_the_next_state,
    ),
    Bug(
        "a branch that diverges is drawn from, by the law",
        nuts,
        "_joined",
        diverging_branch_counts,
        dynamics.test_no_u_turn_moves_keep_a_law_with_a_wall_where_trajectories_diverge,
    ),
    Bug(
        "low-rank draws have one noise for both parts",
        LowRankCovariance,
        "sample",
        own_noise_is_the_shared,
        lambda: posteriors.test_draws_are_independent_of_each_other_and_their_parts_too("low rank"),
    ),
    Bug(
        "an edge belongs to the bin above",
        EqualWidth,
        "assign",
        edges_belong_above,
        lambda: bins.test_a_forecast_on_an_edge_is_in_the_bin_below(4),
    ),
    Bug(
        "a quantile belongs to the bin above",
        EqualMass,
        "assign",
        quantiles_belong_above,
        bins.test_quantiles_are_edges_of_bins_of_equal_mass_and_belong_to_the_bin_below,
    ),
    Bug(
        "rows of the next epoch are in the anchor",
        diffusion.AbstractStochasticSampler,
        "anchor_step",
        rows_of_the_next_epoch_count,
        lambda: stochastic.test_the_anchor_has_the_gradient_of_all_rows_when_the_last_batch_is_partial(6),
    ),
    Bug(
        "HMC accepts by the number that chose the length",
        hmc,
        "_LENGTH",
        hmc._ACCEPT,
        dynamics.test_hamiltonian_moves_of_random_length_keep_the_law,
    ),
    Bug(
        "the path length is kept when the metric changes",
        dynamics,
        "tune_path_length",
        never_begins_again,
        dynamics.test_the_path_length_begins_again_with_a_new_metric_but_not_with_the_last,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    structures._case.cache_clear()
    assert_caught(bug, bug.check)
    structures._case.cache_clear()


@pytest.mark.slow
def test_keys_that_phases_share_are_caught(tmp_path):
    with planted(chunk, "derive", phases_share_keys), pytest.raises(AssertionError):
        driver_tests.test_no_two_steps_have_the_same_key(tmp_path)


@pytest.mark.slow
def test_an_order_that_phases_share_is_caught():
    with planted(chunk, "data_key", lambda key, phase: derive(key, 0, stream=7)), pytest.raises(AssertionError):
        driver_tests.test_batches_are_in_another_order_in_every_phase_and_chain()

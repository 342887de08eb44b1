"""Bugs that autoencoders can have, each planted alone and caught by a check of the suite."""

import jax
import jax.numpy as jnp
import pytest
from tests.latent import test_vae_exact as exact
from tests.latent import test_vae_parts as parts
from tests.mutations.bug import Bug, assert_caught

from marginax.latent.vae import bounds, gradients, inference
from marginax.latent.vae.gradients import DoublyReparameterised, Resampled
from marginax.latent.vae.inference import Inference
from marginax.latent.vae.latent_posteriors import CouplingFlow, DiagonalNormal
from marginax.latent.vae.latent_priors import MixtureOfNormals
from marginax.latent.vae.semi_supervised import SemiSupervisedVAE

KL, MIXTURE, OBSERVED, DRAW, COUPLING, SYSTEMATIC, RESAMPLED = (
    DiagonalNormal.kl,
    MixtureOfNormals.log_prob,
    inference.observed_log_prob,
    Inference.draw,
    CouplingFlow.draw,
    gradients.systematic,
    Resampled.log_ratio,
)


def kl_of_the_wrong_sign(self, output, prior):
    return -KL(self, output, prior)


def kl_per_entry(self, output, prior):
    """Over the number of latents, as if it were a mean."""
    return KL(self, output, prior) / output.shape[-1]


def sum_of_weights(log_weights):
    """Without log K."""
    return jax.nn.logsumexp(log_weights, axis=0)


def mask_ignored(likelihood, output, x, extras, unknowns):
    return OBSERVED(likelihood, output, x, {}, unknowns)


def not_squared(self, inference, num):
    """Weights of the way back through z are left out."""
    z, _ = inference.draw(num)
    return inference.log_likelihood(z), inference.log_prior(z) - inference.held_log_posterior(z)


def posterior_not_held(self, inference, num):
    """As the doubly reparameterised gradient, but the encoder's weights move in log q."""
    z, _ = inference.draw(num)
    held = jax.lax.stop_gradient(z)
    log_weights = inference.log_likelihood(held) + inference.log_prior(held) - inference.held_log_posterior(held)
    share = jax.lax.stop_gradient(jax.nn.softmax(log_weights, axis=0))[..., None]
    z = held + share * (z - held)
    family = inference.networks.latent_posterior
    return inference.log_likelihood(z), inference.log_prior(z) - family.log_prob(inference.output, z)


def chosen_without_weights(shares, num, keys):
    """Any draw stands for all."""
    return SYSTEMATIC(jnp.full_like(shares, 1 / shares.shape[0]), num, keys)


def summed_over_the_chosen(self, inference, num):
    """The gradient grows with the number of draws that are kept."""
    log_likelihood, log_ratio = RESAMPLED(self, inference, num)
    still = jax.lax.stop_gradient(log_ratio)
    return log_likelihood, still + self.num_kept * (log_ratio - still)


def weights_of_the_mixture_not_normalised(self, z, networks):
    return MIXTURE(self, z, networks) + jax.nn.logsumexp(self.logits)


def without_the_density_of_draws(self, num):
    """Importance weights without q."""
    z, log_prob = DRAW(self, num)
    return z, jnp.zeros_like(log_prob)


def scale_of_the_flow_forgotten(self, output, noise):
    z, _ = COUPLING(self, output, noise)
    return z, DiagonalNormal().draw(output[:, : 2 * noise.shape[-1]], noise)[1]


def elbo_by_formula() -> None:
    exact.test_beta_weighs_the_divergence_from_the_prior_and_free_bits_are_paid_in_any_case()


def exact_encoder() -> None:
    exact.test_with_the_exact_posterior_as_encoder_every_bound_is_the_evidence(exact.IWAE(3))


def double_reparameterisation() -> None:
    exact.test_doubly_reparameterised_gradients_agree_in_expectation_and_have_less_variance()


def resampling() -> None:
    exact.test_a_few_draws_chosen_by_weight_have_the_gradient_of_all_in_expectation(3)


def labels() -> None:
    parts.test_labels_that_are_missing_are_summed_out_and_those_that_are_given_are_scored()


BUGS = [
    Bug("the divergence is added", DiagonalNormal, "kl", kl_of_the_wrong_sign, elbo_by_formula),
    Bug("the divergence is a mean over latents", DiagonalNormal, "kl", kl_per_entry, elbo_by_formula),
    Bug("weights are summed, not averaged", bounds, "log_mean_exp", sum_of_weights, exact_encoder),
    Bug(
        "what is not observed counts",
        inference,
        "observed_log_prob",
        mask_ignored,
        exact.test_entries_that_are_not_observed_drop_out_of_the_likelihood,
    ),
    Bug("no weights on the way back", DoublyReparameterised, "log_ratio", not_squared, double_reparameterisation),
    Bug(
        "log q moves in the gradient", DoublyReparameterised, "log_ratio", posterior_not_held, double_reparameterisation
    ),
    Bug("draws are chosen without their weights", gradients, "systematic", chosen_without_weights, resampling),
    Bug("gradients of chosen draws are summed", Resampled, "log_ratio", summed_over_the_chosen, resampling),
    Bug(
        "weights of the mixture do not sum to one",
        MixtureOfNormals,
        "log_prob",
        weights_of_the_mixture_not_normalised,
        parts.test_a_mixture_prior_is_a_density,
    ),
    Bug("importance weights without q", Inference, "draw", without_the_density_of_draws, exact_encoder),
    Bug("labels have no prior", SemiSupervisedVAE, "_log_label", 0.0, labels),
    Bug(
        "the flow forgets its scales",
        CouplingFlow,
        "draw",
        scale_of_the_flow_forgotten,
        parts.test_a_flow_is_a_density_and_knows_the_density_of_its_draws,
    ),
]
DEAR = {
    "no weights on the way back",
    "log q moves in the gradient",
    "draws are chosen without their weights",
    "gradients of chosen draws are summed",
}


@pytest.mark.parametrize(
    "bug", [pytest.param(b, marks=[pytest.mark.slow] if b.name in DEAR else [], id=b.name) for b in BUGS]
)
def test_bugs_of_autoencoders_are_caught(bug):
    assert_caught(bug, bug.check)

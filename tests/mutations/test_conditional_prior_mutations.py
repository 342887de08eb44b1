"""Bugs that priors with a context and probabilistic U-Nets can have, each planted alone and caught by a check."""

import jax.numpy as jnp
import pytest
from tests.latent import test_conditional_prior as conditional
from tests.latent import test_probabilistic_unet as unet
from tests.mutations.bug import Bug, assert_caught

from marginax.latent.vae import latent_posteriors
from marginax.latent.vae.conditional_prior import ConditionalPrior, GivenContext
from marginax.latent.vae.inference import Inference
from marginax.latent.vae.latent_priors import NormalParts, StandardNormal
from marginax.latent.vae.networks import Autoencoder
from marginax.latent.vae.probabilistic_unet import ProbabilisticUNet

WHITEN, DECODE, DIVERGENCE = NormalParts.whiten, Autoencoder.decode, latent_posteriors.divergence_of_normals


def the_same_for_all_contexts(self, output):
    return GivenContext(self.family, jnp.broadcast_to(output.mean(0), output.shape))


def from_a_standard_normal(self):
    return self.networks.latent_posterior.kl(self.output, StandardNormal())


def what_the_encoder_says(self, z):
    """A prior that has seen the mask."""
    return self.networks.latent_posterior.log_prob(self.output, z)


def without_the_context(self, num, latent_size, networks, *, key):
    """New latents from a standard normal law."""
    return StandardNormal().draw(num, latent_size, networks, key=key)


def each_from_a_standard_normal(self, noise):
    return noise


def other_way_round(belief, prior):
    if prior.mean.ndim == 0:
        return DIVERGENCE(belief, prior)
    return DIVERGENCE(prior, belief)


def factor_not_solved(self, apart):
    """Divided by the diagonal of the factor alone."""
    return WHITEN(NormalParts(self.mean, self.log_scale), apart)


def images_in_turn(self, rows):
    """Masks of an image side by side, but images one after the other."""
    if not self.has_graders(rows):
        return rows
    num = rows["x"].shape[1]
    return {
        name: value.reshape(-1, *value.shape[2:]) if name in ("x", "mask") else jnp.concatenate([value] * num)
        for name, value in rows.items()
    }


def the_features_of_the_first_image(self, z, extras=None, *, key=None):
    extras = self.condition(extras or {})
    if "features" in extras:
        extras = extras | {"features": jnp.broadcast_to(extras["features"][:1], extras["features"].shape)}
    return DECODE(self, z, extras, key=key)


def exact_encoder():
    conditional.test_with_the_exact_posterior_as_encoder_a_bound_is_the_evidence_given_the_context(
        "full", conditional.IWAE(3)
    )


def by_formula():
    conditional.test_with_the_formula_of_the_divergence_the_bound_is_the_evidence_in_expectation("full")


def divergences():
    conditional.test_divergences_of_normals_are_by_their_formula("full", "full")


def enumerated(check):
    def run():
        model = unet.small()
        check((model, unet.posterior_of(model), unet.counted(model)))

    return run


BUGS = [
    Bug("the prior ignores the context", ConditionalPrior, "given", the_same_for_all_contexts, exact_encoder),
    Bug("the divergence is from a standard normal", Inference, "kl", from_a_standard_normal, by_formula),
    Bug(
        "the prior has seen the mask",
        Inference,
        "log_prior",
        what_the_encoder_says,
        enumerated(unet.check_probabilities),
    ),
    Bug(
        "new latents know no context",
        GivenContext,
        "draw",
        without_the_context,
        conditional.test_examples_are_generated_by_the_law_of_their_contexts,
    ),
    Bug("masks of no image", GivenContext, "draw_each", each_from_a_standard_normal, enumerated(unet.check_samples)),
    Bug(
        "the divergence is the other way round", latent_posteriors, "divergence_of_normals", other_way_round, by_formula
    ),
    Bug("correlations of the prior are forgotten", NormalParts, "whiten", factor_not_solved, divergences),
    Bug("graders see another image", ProbabilisticUNet, "by_grader", images_in_turn, unet.check_graders),
    Bug(
        "all masks are of the first image",
        Autoencoder,
        "decode",
        the_features_of_the_first_image,
        enumerated(unet.check_samples),
    ),
    Bug(
        "answers forget the prior",
        Inference,
        "log_prior",
        lambda self, z: jnp.zeros(z.shape[:-1]),
        enumerated(unet.check_completions),
    ),
]
QUICK = {"the prior ignores the context", "the divergence is from a standard normal", "the prior has seen the mask"}


@pytest.mark.parametrize(
    "bug", [pytest.param(b, marks=[] if b.name in QUICK else [pytest.mark.slow], id=b.name) for b in BUGS]
)
def test_bugs_of_conditional_priors_are_caught(bug):
    assert_caught(bug, bug.check)

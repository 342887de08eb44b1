"""Bugs that variational inference and dropout can have, each planted alone and caught by a check of the suite."""

import jax
import jax.numpy as jnp
import pytest
from tests.infer import test_dropout as dropout
from tests.infer import test_variational as variational
from tests.mutations.bug import Bug, assert_caught
from tests.nets import test_noise as noise

from marginax import testing
from marginax.data import Batch
from marginax.infer import LocalReparameterisation, MCDropout, svgd
from marginax.infer.vi import divergences, ivon
from marginax.model import priors
from marginax.nets import noise as rules
from marginax.posterior import stochastic


def mean_field() -> None:
    problem = testing.linear_layer(5, condition_number=20.0)
    variational.test_mean_field_finds_the_closed_form_optimum(problem, LocalReparameterisation())


def minibatches() -> None:
    variational.test_minibatches_and_their_divergence_leave_the_optimum_where_it_is()


def full_rank() -> None:
    variational.test_a_family_that_holds_the_posterior_reaches_the_evidence(variational.FullRank(), 0.01)


def ivon_optimum() -> None:
    variational.test_ivon_ends_at_the_mean_field_optimum()


def dropout_variance() -> None:
    dropout.test_predictive_variance_of_a_linear_network_is_the_closed_form(MCDropout(0.2, num_epochs=200), 0.25, 5.0)


def one_function() -> None:
    noise.test_a_network_with_a_key_is_one_function(noise.RULES["dropout"])


def own_noise() -> None:
    noise.test_each_example_has_noise_of_its_own_in_training()


def local_law() -> None:
    noise.test_outputs_have_the_mean_of_the_layer_and_the_variance_of_the_rule(noise.VARIANCES["local"])


def dropout_law() -> None:
    noise.test_outputs_have_the_mean_of_the_layer_and_the_variance_of_the_rule(noise.VARIANCES["dropout"])


def per_batch(self, model, approximation, draw, log_prob):
    """The divergence of all data, counted once for every batch of 20 of 103 rows."""
    entropy, log_prior = CLOSED(self, model, approximation, draw, log_prob)
    return entropy * 103 / 20, log_prior * 103 / 20


def per_batch_size(self, model, approximation, draw, log_prob):
    entropy, log_prior = CLOSED(self, model, approximation, draw, log_prob)
    return entropy / 20, log_prior / 20


def no_spread(self, mean, scale, leaf, hyper):
    """The prior at the mean, as if the weights had no spread."""
    return NORMAL(self, mean, jnp.zeros_like(scale), leaf, hyper)


def half_entropy(self, model, approximation, draw, log_prob):
    entropy, log_prior = CLOSED(self, model, approximation, draw, log_prob)
    return 0.5 * entropy, log_prior


def held_draw(self, model, approximation, draw, log_prob):
    """Sticking the landing with the gradient stopped in the wrong place."""
    del log_prob
    return -approximation.log_prob(jax.tree.map(jax.lax.stop_gradient, draw)), model.log_prior(draw)


def scales_as_variances(self, layer, x, noise):
    variance = self.scale.weight @ x**2 + self.scale.bias
    return layer(x) + jnp.sqrt(variance) * noise


def squared_mean(self, layer, x, noise):
    """The spread from the inputs, not from their squares."""
    variance = self.scale.weight**2 @ jnp.abs(x) + self.scale.bias**2
    return layer(x) + jnp.sqrt(variance) * noise


def never_grown(self, layer, x, noise):
    return layer(jnp.where(noise, x, 0.0))


def off_at_prediction(model, params, noise, key):
    """Dropout that is switched off."""
    del noise, key
    return model.network_of(params)


def same_noise_for_all(self, xs, *, key=None):
    return rules.call_batched(self._fixed(xs.shape[1:], xs.dtype, self.key if key is None else key), xs)


def new_noise_for_each(self, xs, *, key=None):
    key = self.key if key is None else key
    found = self._draw(xs.shape[1:], xs.dtype, xs.shape[:1], key)
    parts = (self.network, self.rules)
    return rules.map_examples(lambda p, x, n: rules._disturb(*p, n)(x), parts, xs, found)


def variance_for_scale(self, inverse, weight):
    del self
    return jax.tree.map(lambda i: i / weight, inverse)


def prior_for_each(model, params, num_examples):
    del num_examples
    return PRIOR_CURVATURE(model, params, 1)


def wrong_sign(self, weight, h, delta, gradient, noise, scale):
    return CURVATURE(self, weight, h, delta, -gradient, noise, scale)


def unbounded(self, rate, unbias, m, a, r, inverse, s):
    return m - rate * (a * unbias + r) * inverse


def attraction(particles, gradients):
    direction, distance = DIRECTION(particles, gradients)
    plain, _ = DIRECTION(particles, jnp.zeros_like(gradients))
    return direction - 2 * plain, distance


CLOSED = divergences.ClosedForm.terms
NORMAL = priors.Normal.expected_log_prob
CURVATURE = ivon.IVON._curvature
PRIOR_CURVATURE = ivon.prior_curvature
DIRECTION = svgd.stein_direction

BUGS = [
    Bug("divergence counted per batch", divergences.ClosedForm, "terms", per_batch, minibatches),
    Bug("divergence over the batch size", divergences.ClosedForm, "terms", per_batch_size, minibatches),
    Bug("likelihood of a batch for that of all", Batch, "weight", 1.0, minibatches),
    Bug("prior without the spread", priors.Normal, "expected_log_prob", no_spread, mean_field),
    Bug("half of the entropy", divergences.ClosedForm, "terms", half_entropy, mean_field),
    Bug("wrong gradient stopped", divergences.StickingTheLanding, "terms", held_draw, full_rank),
    Bug("scales taken for variances", rules.LocalNormal, "call", scales_as_variances, local_law),
    Bug("inputs not squared", rules.LocalNormal, "call", squared_mean, local_law),
    Bug("what is kept does not grow", rules.Dropout, "call", never_grown, dropout_law),
    Bug("dropout off at prediction", stochastic, "noisy_network", off_at_prediction, dropout_variance),
    Bug("one mask for a batch in training", rules.Perturbed, "call_batch", same_noise_for_all, own_noise),
    Bug("a mask for each input of a draw", rules.Perturbed, "call_batch", new_noise_for_each, one_function),
    Bug("IVON with a variance for a scale", ivon.IVON, "_scale", variance_for_scale, ivon_optimum),
    Bug("IVON with the prior counted for every example", ivon, "prior_curvature", prior_for_each, ivon_optimum),
    Bug("IVON with the sign of curvature turned", ivon.IVON, "_curvature", wrong_sign, ivon_optimum),
    Bug(
        "IVON steps as far as a gradient says",
        ivon.IVON,
        "_moved",
        unbounded,
        lambda: variational.test_no_gradient_throws_ivon_out_of_reach_of_its_draws(1e12),
    ),
    Bug("particles attract", svgd, "stein_direction", attraction, variational.test_particles_find_a_normal_posterior),
]


def name_of(bug: Bug) -> str:
    return bug.name


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=name_of)
def test_bug_is_caught(bug):
    assert_caught(bug, bug.check, (AssertionError, FloatingPointError, RuntimeWarning))  # of a chain that became NaN

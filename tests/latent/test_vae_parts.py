"""Pieces of autoencoders against sums and integrals by hand: priors, flows, discrete latents, labels, layers."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.latent.vae_linear import LATENTS, NOISE, SIZE, Truth, linear, params_of, posterior_of, z_score

import marginax as mx
from marginax.latent import (
    ELBO,
    ContinuousBernoulli,
    CouplingFlow,
    FullNormal,
    LadderVAE,
    MixtureOfNormals,
    SemiSupervisedVAE,
    StraightThrough,
    UniformClasses,
    VampPrior,
)
from marginax.latent.vae.ladder import combine
from marginax.model.likelihoods import Categorical

GRID = np.stack(np.meshgrid(*[np.linspace(-12, 12, 121)] * 2, indexing="ij"), -1).reshape(1, -1, 2)
CELL = (24 / 120) ** 2


def mass(log_prob):
    return float(np.exp(np.asarray(log_prob, np.float64)).sum() * CELL)


def shaken(tree, key=0):
    """Weights away from where they start."""
    leaves, treedef = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(key), len(leaves))
    moved = [
        leaf + 0.5 * jax.random.normal(k, leaf.shape) if eqx.is_inexact_array(leaf) else leaf
        for leaf, k in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(treedef, moved)


def test_a_mixture_prior_is_a_density():
    prior = shaken(MixtureOfNormals(3).bound_to(2))
    found = prior.log_prob(jnp.asarray(GRID, float), None)
    assert abs(mass(found) - 1) < 1e-3


def test_a_prior_of_pseudo_inputs_is_the_mean_of_what_the_encoder_says_about_them():
    truth = Truth()
    model = truth.model(latent_prior=VampPrior(3))
    networks = model.networks
    z = np.random.default_rng(0).normal(size=(1, 4, LATENTS))
    gain, covariance = truth.posterior()
    chosen = np.linspace(0, len(truth.x) - 1, 3).astype(int)
    laws = [stats.multivariate_normal(gain @ (x - truth.b), covariance) for x in truth.x[chosen]]
    expected = np.log(np.mean([law.pdf(z[0]) for law in laws], axis=0))
    np.testing.assert_allclose(networks.latent_prior.log_prob(jnp.asarray(z, float), networks)[0], expected, atol=1e-3)
    drawn = np.asarray(networks.latent_prior.draw(20_000, LATENTS, networks, key=jax.random.key(0)), np.float64)
    assert np.abs(z_score(drawn, np.mean([law.mean for law in laws], axis=0))).max() < 4.9
    assert any("latent_prior" in leaf.path for leaf in model.core.leaves)  # pseudo-inputs are trained


def test_a_flow_is_a_density_and_knows_the_density_of_its_draws():
    with jax.enable_x64(True):
        flow = shaken(CouplingFlow(3, 8, context_size=1).bound_to(2), key=2)
        output = jnp.asarray(np.random.default_rng(0).normal(size=(1, 5)) * 0.3)
        everywhere = eqx.filter_jit(lambda f, o, z: f.log_prob(o, z))(
            flow, jnp.repeat(output, GRID.shape[1], 0), jnp.asarray(GRID)
        )
        assert abs(mass(everywhere) - 1) < 1e-2
        noise = jnp.asarray(np.random.default_rng(1).normal(size=(7, 1, 2)))
        z, log_prob = flow.draw(output, noise)
        np.testing.assert_allclose(flow.log_prob(output, z), log_prob, atol=1e-9)
        assert not np.allclose(z, CouplingFlow(3, 8, context_size=1).bound_to(2).draw(output, noise)[0], atol=0.1)


def test_discrete_latents_have_the_bound_and_the_density_that_sums_over_them_give():
    rng = np.random.default_rng(0)
    classes, x = 3, (rng.random((4, 3)) < 0.5).astype(float)
    w, b, to_logits = rng.normal(size=(3, 6)), rng.normal(size=3), rng.normal(size=(6, 3))
    more = {"latent_posterior": StraightThrough(classes), "latent_prior": UniformClasses(classes)}
    model = mx.latent.VAE(linear(to_logits, np.zeros(6)), linear(w, b), 6, bound=ELBO(), **more)
    model = model.adapted_to_rows({"x": x})
    every = np.stack([np.eye(3)[list(pair)].ravel() for pair in itertools.product(range(3), repeat=2)])
    logits = every @ w.T + b
    log_likelihood = (x[:, None] * logits - np.logaddexp(0, logits)).sum(-1)
    evidence = np.log(np.exp(log_likelihood).mean(1))
    log_q = (every[None] * np.log(_softmax((x @ to_logits.T).reshape(4, 2, 3))).reshape(4, 1, 6)).sum(-1)
    elbo = np.sum(np.exp(log_q) * (log_likelihood - np.log(9) - log_q), axis=1)
    posterior = posterior_of_size(model, 3)
    found = posterior.log_likelihood(x, 20_000)
    assert np.abs((found.values - evidence) / found.standard_error).max() < 4.9
    rows = {"x": jnp.tile(jnp.asarray(x, float), (4000, 1))}
    draws = _bounds(posterior.model, model.core.initial(3), rows).reshape(4000, 4)
    assert np.abs(z_score(draws, elbo)).max() < 4.9


def _softmax(values):
    parts = np.exp(values)
    return parts / parts.sum(-1, keepdims=True)


@eqx.filter_jit
def _bounds(model, params, rows, key=None):
    return model.estimate(params, rows, jax.random.key(0) if key is None else key)


def posterior_of_size(model, output_size):
    params = model.core.initial(output_size)
    return mx.posterior.Draws(model, jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], params))


# ---- labels


def labelled(label_weight=1.0):
    """Two linear models, one for each label, that differ in their offsets; every encoder is exact."""
    truth = Truth()
    offsets = np.stack([truth.b, truth.b + 1.0])
    gain, covariance = truth.posterior()
    factor = np.linalg.cholesky(covariance)
    rest = np.concatenate([np.log(np.diag(factor)), factor[np.tril_indices(LATENTS, -1)]])
    encoder = linear(
        np.concatenate([np.hstack([gain, -gain @ offsets.T]), np.zeros((3, SIZE + 2))]), np.concatenate([[0, 0], rest])
    )
    decoder = linear(np.hstack([truth.w, offsets.T]), np.zeros(SIZE))
    classifier = linear(np.random.default_rng(3).normal(size=(2, SIZE)), np.zeros(2))
    likelihood = mx.likelihoods.Gaussian(scale=NOISE)
    vae = mx.latent.VAE(
        encoder, decoder, LATENTS, likelihood=likelihood, latent_posterior=FullNormal(), bound=ELBO(analytic_kl=False)
    )
    model = SemiSupervisedVAE(vae, classifier, 2, label_weight).adapted_to_rows({"x": truth.x})
    joint = np.stack([stats.multivariate_normal(b, truth.covariance).logpdf(truth.x) for b in offsets], 1) - np.log(2)
    weight = np.asarray(classifier.layers[0].weight, np.float64)
    return truth, model, joint, np.log(_softmax(truth.x @ weight.T))


def test_labels_that_are_missing_are_summed_out_and_those_that_are_given_are_scored():
    with jax.enable_x64(True):
        truth, model, joint, log_q = labelled(label_weight=0.7)
        label = np.array([-1, 0, 1, -1, 1, -1])
        rows = {"x": jnp.asarray(truth.x), "label": jnp.asarray(label, jnp.int32)}
        found = _bounds(model, model.core.initial(SIZE), rows)
        summed = np.sum(np.exp(log_q) * (joint - log_q), axis=1)
        at = np.arange(6), np.maximum(label, 0)
        np.testing.assert_allclose(found, np.where(label < 0, summed, joint[at] + 0.7 * log_q[at]), atol=1e-8)
        posterior = posterior_of_size(model, SIZE)
        evidence = np.where(label < 0, np.logaddexp(*joint.T), joint[at])
        np.testing.assert_allclose(
            posterior.log_likelihood({"x": truth.x, "label": label}, 3).values, evidence, atol=1e-6
        )
        np.testing.assert_allclose(posterior.classify(truth.x), np.exp(log_q), atol=1e-6)


def test_a_context_is_seen_by_encoder_and_decoder():
    """The same two models as a conditional one, whose context is the label."""
    with jax.enable_x64(True):
        truth, model, joint, _ = labelled()
        context = np.eye(2)[[0, 1, 0, 1, 0, 1]]
        posterior = posterior_of_size(model.vae, SIZE)
        found = posterior.log_likelihood({"x": truth.x, "context": context}, 3)
        np.testing.assert_allclose(found.values, joint[np.arange(6), [0, 1, 0, 1, 0, 1]] + np.log(2), atol=1e-6)
        assert posterior.generate(6, key=0, context=context).shape == (6, SIZE)


# ---- layers


def test_a_ladder_of_linear_layers_has_the_evidence_of_their_product():
    """z2 ~ N(0, 1), z1 = A z2 + noise, x = W z1 + noise: the density of x is normal again."""
    rng = np.random.default_rng(0)
    w, b, a = rng.normal(size=(SIZE, 2)), rng.normal(size=SIZE), rng.normal(size=(2, 1))
    scale = 0.5
    down = linear(w, b), linear(np.concatenate([a, np.zeros((2, 1))]), np.array([0, 0, np.log(scale), np.log(scale)]))
    up = (
        linear(_guess(rng, 6, SIZE), np.zeros(6)),
        linear(_guess(rng, 2, 6), np.zeros(2)),
    )
    likelihood = mx.likelihoods.Gaussian(scale=NOISE)
    x = rng.normal(size=(4, 1)) @ a.T @ w.T + b + rng.normal(size=(4, SIZE))
    model = LadderVAE(up, down, (2, 1), likelihood=likelihood).adapted_to_rows({"x": x})
    covariance = w @ (a @ a.T + scale**2 * np.eye(2)) @ w.T + NOISE**2 * np.eye(SIZE)
    law = stats.multivariate_normal(b, covariance)
    posterior = posterior_of(model)
    found = posterior.log_likelihood(np.tile(x, (50, 1)), 400)
    apart = np.exp(found.values.reshape(50, 4) - law.logpdf(x))
    assert np.abs(z_score(apart, 1.0)).max() < 4.9
    drawn = posterior.generate(20_000, key=0, noise=True).astype(np.float64) - b
    assert np.abs(z_score(drawn[:, :, None] * drawn[:, None, :], covariance)).max() < 4.9
    inference = model.inference(params_of(model), {"x": jnp.asarray(x, float)}, jax.random.key(0))
    z, log_prob = inference.draw(3)
    np.testing.assert_allclose(inference.held_log_posterior(z), log_prob, rtol=1e-4, atol=1e-4)


def _guess(rng, outputs, inputs):
    return 0.1 * rng.normal(size=(outputs, inputs))


def test_two_normal_guesses_are_multiplied():
    found = np.asarray(combine(jnp.array([[1.0, np.log(0.5)]]), jnp.array([[[3.0, np.log(2.0)]]])))[0, 0]
    precision = 1 / 0.25 + 1 / 4
    np.testing.assert_allclose(found, [(1 / 0.25 + 3 / 4) / precision, -0.5 * np.log(precision)], rtol=1e-5)


# ---- entries


def test_a_continuous_bernoulli_is_a_density_with_its_mean_and_draws():
    for logit in (-8.0, -1e-3, 0.0, 0.5, 30.0):
        law = ContinuousBernoulli().distribution(jnp.full(20_001, logit), {})
        grid = jnp.linspace(0, 1, 20_001)
        density = np.exp(np.asarray(law.log_prob(grid), np.float64))
        assert abs(np.trapezoid(density, grid) - 1) < 1e-3
        assert abs(np.trapezoid(density * np.asarray(grid), grid) - float(law.mean[0])) < 1e-3
        assert np.abs(z_score(np.asarray(law.sample(jax.random.key(1))), float(law.mean[0]))) < 4.9


def test_entries_that_are_classes_read_their_own_logits():
    rng = np.random.default_rng(0)
    logits, x = rng.normal(size=(4, 2 * 3)), rng.integers(0, 3, size=(4, 2))
    from marginax.latent.vae.entries import log_prob_of_entries

    found = log_prob_of_entries(Categorical(), jnp.asarray(logits, float), jnp.asarray(x, float), {})
    probs = _softmax(logits.reshape(4, 2, 3))
    np.testing.assert_allclose(found, np.log(np.take_along_axis(probs, x[..., None], -1)[..., 0]), rtol=1e-4)


def test_latents_are_decoded_to_the_means_of_entries():
    truth = Truth()
    posterior = posterior_of(truth.model())
    z = np.random.default_rng(1).normal(size=(3, 2))
    np.testing.assert_allclose(posterior.decode(z), z @ truth.w.T + truth.b, rtol=1e-4, atol=1e-5)
    again = posterior.decode(posterior.encode(truth.x).mean)
    np.testing.assert_allclose(again, posterior.reconstruct(truth.x), rtol=1e-4)


def test_latents_of_tokens_are_decoded_to_the_most_probable_ones():
    """Two entries of three classes: the decoder's outputs are their logits, those of an entry side by side."""
    weight, x = np.random.default_rng(0).normal(size=(6, 2)), np.array([[0, 2], [1, 1]])
    encoder = linear(np.zeros((4, 2)), np.zeros(4))
    model = mx.latent.VAE(encoder, linear(weight, np.zeros(6)), 2, likelihood=Categorical())
    z = np.random.default_rng(1).normal(size=(5, 2))
    found = posterior_of(model.adapted_to_rows({"x": x})).decode(z)
    np.testing.assert_array_equal(found, (z @ weight.T).reshape(5, 2, 3).argmax(-1))


def test_a_context_is_decoded_beside_the_latents():
    weight = np.random.default_rng(0).normal(size=(SIZE, 3))
    encoder = linear(np.zeros((4, SIZE + 1)), np.zeros(4))
    model = mx.latent.VAE(encoder, linear(weight, np.zeros(SIZE)), 2, likelihood=mx.likelihoods.Gaussian(1.0))
    posterior = posterior_of(model.adapted_to_rows({"x": np.zeros((4, SIZE))}))
    both = np.random.default_rng(1).normal(size=(5, 3))
    found = posterior.decode(both[:, :2], context=both[:, 2:])
    np.testing.assert_allclose(found, both @ weight.T, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="decoder cannot be called on 2 latents without a context"):
        posterior.decode(both[:, :2])


def test_signs_of_collapse_are_those_of_a_linear_encoder():
    """One latent follows the first entry, the other nothing: its divergence is 0, and it is not active."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, SIZE))
    scale = 0.5
    weight = np.zeros((4, SIZE))
    weight[0, 0] = np.sqrt(1 - scale**2)
    encoder = linear(weight, np.array([0.0, 0.0, np.log(scale), 0.0]))
    model = mx.latent.VAE(
        encoder, linear(np.ones((SIZE, 2)), np.zeros(SIZE)), 2, likelihood=mx.likelihoods.Gaussian(1.0)
    )
    found = posterior_of(model.adapted_to_rows({"x": x})).collapse(x)
    mean = (1 - scale**2) * np.mean(x[:, 0] ** 2)
    np.testing.assert_allclose(found.kl_per_latent, [0.5 * (mean + scale**2 - 1) - np.log(scale), 0.0], atol=1e-4)
    assert found.active.tolist() == [True, False]
    assert abs(found.mutual_information + np.log(scale)) < 0.15  # of a normal: log of total over remaining scale

"""A linear Gaussian autoencoder has a density in closed form: bounds, gradients and estimates are held against it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.latent.vae_linear import (
    LATENTS,
    NOISE,
    NUM,
    SIZE,
    Truth,
    bounds_of,
    linear,
    params_of,
    posterior_of,
    z_score,
)

import marginax as mx
from marginax.latent import (
    ELBO,
    IWAE,
    MIWAE,
    DiagonalNormal,
    DoublyReparameterised,
    Renyi,
    Resampled,
    StickingTheLanding,
)
from marginax.latent.vae.gradients import systematic

REPEATS = 4000


def estimates(truth, bound, key=0, encoder=None, repeats=REPEATS, **more):
    """Bounds of every example, (repeat, example)."""
    model = truth.model(encoder, bound=bound, **more)
    rows = {"x": jnp.tile(jnp.asarray(truth.x, float), (repeats, 1))}
    found = bounds_of(model, params_of(model), rows, jax.random.key(key))
    return np.asarray(found, np.float64).reshape(repeats, NUM)


def gap(truth, shift, widen):
    """Divergence of the moved encoder from the true posterior: one number, the same for all examples."""
    _, covariance = truth.posterior()
    factor = np.linalg.cholesky(covariance)
    moved = np.tril(factor, -1) + np.diag(np.exp(widen) * np.diag(factor))
    ratio = np.linalg.solve(factor, moved)
    mean = np.linalg.solve(factor, np.full(LATENTS, shift))
    return 0.5 * (np.sum(ratio**2) - LATENTS + mean @ mean) - LATENTS * widen


@pytest.mark.parametrize("bound", [ELBO(analytic_kl=False), IWAE(3)], ids=["elbo", "iwae"])
def test_with_the_exact_posterior_as_encoder_every_bound_is_the_evidence(bound):
    with jax.enable_x64(True):
        truth = Truth()
        found = estimates(truth, bound, repeats=2)
        np.testing.assert_allclose(found, np.broadcast_to(truth.evidence(), (2, NUM)), atol=1e-8)


@pytest.mark.parametrize("analytic", [True, False])
def test_the_elbo_is_below_the_evidence_by_the_divergence_of_the_encoder(analytic):
    truth = Truth()
    found = estimates(truth, ELBO(2, analytic_kl=analytic), encoder=truth.encoder(shift=0.2, widen=0.3))
    scores = z_score(found, truth.evidence() - gap(truth, 0.2, 0.3))
    assert np.abs(scores).max() < 4.9


def test_beta_weighs_the_divergence_from_the_prior_and_free_bits_are_paid_in_any_case():
    truth = Truth()
    rows = {"x": jnp.asarray(truth.x, float)}
    models = [
        truth.model(truth.encoder(correlated=False), bound=bound, latent_posterior=DiagonalNormal())
        for bound in (ELBO(), ELBO(beta=3.0), ELBO(free_bits=50.0), ELBO(free_bits=1e-6))
    ]
    plain, weighed, paid, free = (
        np.asarray(bounds_of(m, params_of(m), rows, jax.random.key(0)), np.float64) for m in models
    )
    gain, covariance = truth.posterior()
    mean, scale = (truth.x - truth.b) @ gain.T, np.diag(np.linalg.cholesky(covariance))
    kl = 0.5 * (mean**2 + scale**2 - 1) - np.log(scale)
    np.testing.assert_allclose(plain - weighed, 2 * kl.sum(1), rtol=1e-4)
    np.testing.assert_allclose(plain + kl.sum(1) - paid, LATENTS * 50.0, rtol=1e-5)
    np.testing.assert_allclose(free, plain, rtol=1e-6)


def test_importance_weighted_bounds_rise_with_the_draws_to_the_evidence():
    truth = Truth()
    encoder = truth.encoder(shift=0.3, widen=0.3)
    found = [estimates(truth, IWAE(num), encoder=encoder, key=i) for i, num in enumerate((1, 5, 50))]
    means = [values.mean() for values in found]
    errors = [values.std() / np.sqrt(values.size) for values in found]
    below = truth.evidence().mean()
    for i in range(2):
        assert means[i + 1] - means[i] > 4.9 * np.hypot(errors[i], errors[i + 1])
    # half the variance of the mean weight is what is left, to first order
    variance = np.exp(found[2] - truth.evidence()).var()
    assert abs(means[2] + 0.5 * variance - below) < 4.9 * errors[2] + 0.2 * variance
    first = z_score(found[0], truth.evidence() - gap(truth, 0.3, 0.3))  # one draw is the ELBO
    assert np.abs(first).max() < 4.9


class FixedWeights:
    """Draws with these log weights."""

    def __init__(self, log_weights):
        self.log_weights = log_weights

    def draw(self, num):
        assert num == len(self.log_weights)
        return self.log_weights, jnp.zeros(())

    def log_likelihood(self, z):
        return z

    def log_prior(self, z):
        return jnp.zeros_like(z)

    def kl(self):
        return None


def test_bounds_of_one_set_of_draws_are_in_order_and_by_their_formulas():
    weights = np.random.default_rng(0).normal(size=(6, 4))
    fixed = FixedWeights(jnp.asarray(weights))
    bounds = [IWAE(6), Renyi(0.0, 6), Renyi(0.5, 6), Renyi(0.9, 6), MIWAE(3, 2), MIWAE(1, 6), ELBO(6)]
    iwae, zero, half, high, several, one, elbo = (np.asarray(bound(fixed)) for bound in bounds)
    np.testing.assert_allclose(iwae, np.log(np.exp(weights).mean(0)), rtol=1e-5)
    np.testing.assert_allclose(elbo, weights.mean(0), rtol=1e-5)
    np.testing.assert_allclose(half, 2 * np.log(np.exp(0.5 * weights).mean(0)), rtol=1e-5)
    np.testing.assert_allclose(several, np.log(np.exp(weights).reshape(3, 2, 4).mean(1)).mean(0), rtol=1e-5)
    np.testing.assert_allclose(iwae, zero, rtol=1e-5)
    np.testing.assert_allclose(iwae, one, rtol=1e-5)
    for above, below in ((zero, half), (half, high), (high, elbo), (iwae, several), (several, elbo)):
        assert np.all(above > below)


# ---- gradients


def gradients(truth, bound, encoder, repeats, seed=0):
    """Gradients of the bound of one example by draws: of the encoder's outputs, and of the decoder's offsets."""
    model = truth.model(encoder, bound=bound)
    params = params_of(model)
    rows = {"x": jnp.asarray(truth.x[:1], float)}

    def slope(key):
        gradient = jax.grad(lambda p: bounds_of(model, p, rows, key)[0])(params).network
        return gradient.encoder.layers[0].bias, gradient.decoder.layers[0].bias

    keys = jax.random.split(jax.random.key(seed), repeats)
    found = eqx.filter_jit(lambda keys: jax.lax.map(slope, keys, batch_size=500))(keys)
    return [np.asarray(part, np.float64) for part in found]


def same_expectation(first, second):
    apart = first.mean(0) - second.mean(0)
    error = np.sqrt(first.var(0, ddof=1) / len(first) + second.var(0, ddof=1) / len(second))
    return np.abs(apart / np.maximum(error, 1e-12)).max()


def test_sticking_the_landing_agrees_in_expectation_and_has_no_variance_at_the_exact_posterior():
    truth = Truth()
    near, plain = truth.encoder(shift=0.1, widen=0.05), ELBO(analytic_kl=False)
    landing = ELBO(gradient=StickingTheLanding())
    first, second = gradients(truth, plain, near, 20_000), gradients(truth, landing, near, 20_000, seed=1)
    assert same_expectation(first[0], second[0]) < 4.9
    assert second[0].var(0).sum() < 0.2 * first[0].var(0).sum()
    with jax.enable_x64(True):
        (exact, _), (noisy, _) = (gradients(truth, bound, truth.encoder(), 500) for bound in (landing, plain))
        assert np.abs(exact).max() < 1e-10
        assert noisy.std(0).min() > 0.1


def test_doubly_reparameterised_gradients_agree_in_expectation_and_have_less_variance():
    truth = Truth()
    encoder, num = truth.encoder(shift=0.2, widen=0.1), 16
    first = gradients(truth, IWAE(num), encoder, 20_000)
    second = gradients(truth, IWAE(num, DoublyReparameterised()), encoder, 20_000)
    assert same_expectation(first[0], second[0]) < 4.9
    assert np.all(second[0].var(0) < 0.5 * first[0].var(0))
    assert np.abs(first[0].mean(0) / (first[0].std(0) / np.sqrt(20_000))).max() > 10  # there is a gradient to agree on
    np.testing.assert_allclose(first[1], second[1], rtol=1e-3, atol=1e-3)  # the decoder's is the same, draw by draw


@pytest.mark.slow
@pytest.mark.parametrize("num_kept", [1, 3])
def test_a_few_draws_chosen_by_weight_have_the_gradient_of_all_in_expectation(num_kept):
    truth = Truth()
    encoder, num = truth.encoder(shift=0.4, widen=0.3), 8
    first = gradients(truth, IWAE(num), encoder, 20_000)
    second = gradients(truth, IWAE(num, Resampled(num_kept)), encoder, 20_000)
    for all_draws, few in zip(first, second, strict=True):
        assert same_expectation(all_draws, few) < 4.9
        assert np.abs(few.mean(0) / (few.std(0) / np.sqrt(20_000))).max() > 10
    same = [estimates(truth, bound, encoder=encoder, repeats=3) for bound in (IWAE(num), IWAE(num, Resampled()))]
    np.testing.assert_allclose(*same, rtol=1e-5)


def test_draws_that_are_chosen_under_dropout_are_not_those_that_are_differentiated():
    nets = mx.nets.MLP(4, (6,), 4, key=0), mx.nets.MLP(2, (6,), 4, dropout=0.5, key=1)
    model = mx.latent.VAE(*nets, latent_size=2, bound=IWAE(3, Resampled()))
    with pytest.raises(ValueError, match=r"gradient Resampled\(\) needs networks without dropout"):
        mx.fit(model, np.eye(4), mx.infer.MAP(num_epochs=1), key=0)


def test_draws_are_chosen_by_their_shares_in_expectation_and_never_far_from_it():
    shares = jnp.array([[0.1, 0.5], [0.55, 0.0], [0.35, 0.5]])
    keys = jax.random.split(jax.random.key(0), 4000)
    chosen = np.asarray(jax.vmap(lambda key: systematic(shares, 4, key))(keys))
    of_each = systematic(jnp.tile(shares[:, :1], (1, 4000)), 4, keys).T
    for found, wanted in ((chosen[..., 0], shares[:, 0]), (chosen[..., 1], shares[:, 1]), (of_each, shares[:, 0])):
        counts = np.stack([(np.asarray(found) == k).sum(1) for k in range(3)], 1)
        assert np.abs(counts - 4 * np.asarray(wanted)).max() < 1
        error = counts.std(0) / np.sqrt(4000)
        assert np.abs(counts.mean(0) - 4 * np.asarray(wanted)).max() < 4.9 * max(error.max(), 1e-3)


@pytest.mark.slow
def test_the_signal_of_the_encoder_drowns_without_double_reparameterisation():
    """Rainforth et al. (2018): the ratio of mean and spread falls with the draws; Tucker et al. (2019): it need not."""
    truth = Truth()
    encoder = truth.encoder(shift=0.3, widen=0.2)

    def ratio(bound):
        found, _ = gradients(truth, bound, encoder, 20_000)
        return np.mean(np.abs(found.mean(0)) / found.std(0))

    assert ratio(IWAE(64)) < 0.6 * ratio(IWAE(4))
    assert ratio(IWAE(64, DoublyReparameterised())) > 1.2 * ratio(IWAE(4, DoublyReparameterised()))


# ---- estimates of the likelihood


def test_importance_sampled_densities_are_unbiased_with_honest_errors_and_effective_sizes():
    truth = Truth()
    posterior = posterior_of(truth.model(truth.encoder(shift=0.3, widen=0.3)))
    rows = np.tile(truth.x, (500, 1))
    found = posterior.log_likelihood(rows, 20, key=3)
    apart = (found.values - np.tile(truth.evidence(), 500)).reshape(500, NUM)
    assert np.abs(z_score(np.exp(apart), 1.0)).max() < 4.9
    error = found.standard_error.reshape(500, NUM)
    np.testing.assert_allclose(apart.std(0), np.sqrt(np.mean(error**2, 0)), rtol=0.15)
    weight_variance = 20 * np.exp(apart).var(0)  # relative, of one weight
    np.testing.assert_allclose(found.effective_size.reshape(500, NUM).mean(0), 20 / (1 + weight_variance), rtol=0.15)


def test_estimates_depend_on_the_key_and_neither_on_memory_nor_on_the_rows_beside():
    truth = Truth()
    posterior = posterior_of(truth.model(truth.encoder(shift=0.3)))
    found = posterior.log_likelihood(truth.x, 60, key=1)
    np.testing.assert_allclose(
        posterior.log_likelihood(truth.x, 60, key=1, max_bytes=1).values, found.values, rtol=1e-5
    )
    np.testing.assert_allclose(posterior.log_likelihood(truth.x[:2], 60, key=1).values, found.values[:2], rtol=1e-5)
    assert np.all(posterior.log_likelihood(truth.x, 60, key=2).values != found.values)


def test_several_networks_are_averaged_as_densities():
    first, second = Truth(0), Truth(1)
    with jax.enable_x64(True):
        models = [truth.model() for truth in (first, second)]
        stacked = jax.tree.map(lambda a, b: np.stack([a, b])[:, None], *(params_of(model) for model in models))
        posterior = mx.posterior.Draws(models[0], stacked)
        found = posterior.log_likelihood(first.x, 10)
        each = np.stack([first.evidence(), second.evidence(first.x)])
        np.testing.assert_allclose(found.values, np.logaddexp(*each) - np.log(2), atol=1e-6)
        scores = posterior.ood_scores(first.x, 10)
        np.testing.assert_allclose(scores["likelihood"], -found.values, atol=1e-6)
        np.testing.assert_allclose(scores["spread"], each.std(0), atol=1e-6)


def test_a_linear_model_generates_and_reconstructs_what_it_should():
    truth = Truth()
    posterior = posterior_of(truth.model())
    drawn = posterior.generate(40_000, key=0, noise=True).astype(np.float64)
    assert np.abs(z_score(drawn, truth.b)).max() < 4.9
    centred = drawn - truth.b
    products = centred[:, :, None] * centred[:, None, :]
    assert np.abs(z_score(products, truth.covariance)).max() < 4.9
    gain, covariance = truth.posterior()
    mean = (truth.x - truth.b) @ gain.T
    code = posterior.encode(truth.x)
    np.testing.assert_allclose(code.mean, mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(code.scale, np.broadcast_to(np.sqrt(np.diag(covariance)), (NUM, LATENTS)), rtol=1e-4)
    np.testing.assert_allclose(posterior.reconstruct(truth.x), mean @ truth.w.T + truth.b, rtol=1e-4, atol=1e-4)
    between = posterior.interpolate(truth.x[:2], truth.x[2:4], 3)
    middle = (0.5 * (mean[:2] + mean[2:4])) @ truth.w.T + truth.b
    np.testing.assert_allclose(between[1], middle, rtol=1e-4, atol=1e-4)
    moved = posterior.traverse(truth.x[:1], 1, [-2.0, 5.0])
    np.testing.assert_allclose(moved[1] - moved[0], 7.0 * truth.w[None, :, 1], rtol=1e-4, atol=1e-4)


# ---- parts of examples


def seen_part(truth, mask):
    """Evidence of what is observed, by row."""
    found = []
    for row, seen in zip(truth.x, mask, strict=True):
        law = stats.multivariate_normal(truth.b[seen], truth.covariance[np.ix_(seen, seen)])
        found.append(law.logpdf(row[seen]))
    return np.array(found)


def test_entries_that_are_not_observed_drop_out_of_the_likelihood():
    truth = Truth()
    mask = np.random.default_rng(0).random((NUM, SIZE)) < 0.6
    mask[:, 0] = True
    x = np.where(mask, truth.x, np.nan)
    posterior = posterior_of(truth.model(truth.encoder(widen=0.7)))
    found = posterior.log_likelihood({"x": x, "mask": mask}, 20_000)
    assert np.abs((found.values - seen_part(truth, mask)) / found.standard_error).max() < 4.9
    assert found.standard_error.max() < 0.15


def test_answers_to_the_rest_of_an_example_have_the_law_of_the_normal_conditional():
    truth = Truth(num=2)
    seen = np.array([True, True, False, False, True])
    posterior = posterior_of(truth.model(truth.encoder(widen=0.5)))
    answers = posterior.complete(truth.x, np.tile(seen, (2, 1)), 4000, key=0, noise=True, num_steps=60)
    cross = truth.covariance[np.ix_(~seen, seen)] @ np.linalg.inv(truth.covariance[np.ix_(seen, seen)])
    mean = truth.b[~seen] + (truth.x[:, seen] - truth.b[seen]) @ cross.T
    covariance = truth.covariance[np.ix_(~seen, ~seen)] - cross @ truth.covariance[np.ix_(seen, ~seen)]
    drawn = answers.values[:, :, ~seen].astype(np.float64)
    assert np.abs(z_score(drawn, mean)).max() < 4.9
    centred = drawn - mean
    assert np.abs(z_score(centred[..., :, None] * centred[..., None, :], covariance)).max() < 4.9
    np.testing.assert_allclose(answers.values[:, :, seen], np.broadcast_to(truth.x[:, seen], (4000, 2, 3)), rtol=1e-6)
    assert answers.acceptance.min() > 0.6


# ---- training


@pytest.mark.slow
def test_a_linear_autoencoder_reaches_the_evidence_of_probabilistic_principal_components():
    """Lucas et al. (2019); the best likelihood has a formula in the eigenvalues (Tipping & Bishop, 1999)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)) @ rng.normal(size=(2, SIZE)) + NOISE * rng.normal(size=(400, SIZE))
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    logs = np.log(values[:2]).sum() + (SIZE - 2) * np.log(values[2:].mean())
    best = -0.5 * (SIZE * np.log(2 * np.pi) + logs + SIZE)
    likelihood = mx.latent.SharedScale(mx.likelihoods.Gaussian(mx.priors.LogNormal(0.0, 1e3)))
    model = mx.latent.VAE(
        mx.nets.MLP(SIZE, (), 5, key=0),
        mx.nets.MLP(2, (), SIZE, key=1),
        2,
        likelihood=likelihood,
        bound=ELBO(gradient=StickingTheLanding()),
        latent_posterior=mx.latent.FullNormal(),
    )
    method = mx.infer.MLE(num_epochs=20_000, batch_size=None, optimiser=mx.infer.Adam(learning_rate=1e-2))
    posterior = mx.fit(model, x, method, key=0, progress=False)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[0, 0], posterior.params)
    layer, scale = params.network.decoder.layers[0], np.exp(params.likelihood["log_scale"][0])
    covariance = layer.weight @ layer.weight.T + scale**2 * np.eye(SIZE)
    reached = stats.multivariate_normal(layer.bias, covariance).logpdf(x).mean()
    assert best - 1e-3 < reached <= best + 1e-6
    bound = estimates_of_rows(posterior.model, jax.tree.map(jnp.asarray, params), x)
    assert best - 2e-3 < bound <= best + 1e-3


def estimates_of_rows(model, params, x):
    """The mean bound."""
    return float(bounds_of(model, params, {"x": jnp.asarray(x, float)}, jax.random.key(5)).mean())


def test_a_step_of_training_raises_the_bound_and_no_key_means_the_same_draws():
    truth = Truth(num=200)
    model = truth.model(truth.encoder(shift=1.0, widen=0.5))
    method = mx.infer.MAP(num_epochs=60, batch_size=50, optimiser=mx.infer.Adam(learning_rate=3e-2))
    posterior = mx.fit(model, truth.x, method, key=0, progress=False)
    before, after = posterior_of(model).log_likelihood(truth.x, 50), posterior.log_likelihood(truth.x, 50)
    assert after.effective_size.mean() > 1.3 * before.effective_size.mean()  # the encoder has found the posterior
    params, rows = params_of(model), {"x": jnp.asarray(truth.x, float)}
    whole, again = bounds_of(model, params, rows, None), bounds_of(model, params, rows, None)
    np.testing.assert_array_equal(whole, again)
    part = bounds_of(model, params, {"x": rows["x"][:7]}, None)
    np.testing.assert_allclose(part, whole[:7], rtol=1e-5)
    assert not np.allclose(whole, bounds_of(model, params, rows, jax.random.key(0)))


def test_an_encoder_of_the_wrong_law_is_told_from_the_right_one():
    """The check of the exact encoder can fail."""
    truth = Truth()
    wrong = linear(np.zeros((5, SIZE)), np.zeros(5))
    assert np.all(
        estimates(truth, ELBO(analytic_kl=False), encoder=wrong, repeats=500).mean(0) < truth.evidence() - 0.1
    )

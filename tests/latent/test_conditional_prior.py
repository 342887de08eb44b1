"""Latents whose prior depends on a context: a linear Gaussian model, of which everything is known.

z | c ~ N(A c + a, S), x | z, c ~ N(W z + V c + b, s^2), so x | c ~ N(W (A c + a) + V c + b, W S W' + s^2 I).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.latent.vae_linear import LATENTS, NOISE, SIZE, bounds_of, linear, params_of, posterior_of, z_score

import marginax as mx
from marginax.latent import (
    ELBO,
    IWAE,
    MIWAE,
    VAE,
    ConditionalPrior,
    CouplingFlow,
    DiagonalNormal,
    DoublyReparameterised,
    FullNormal,
    Renyi,
    StickingTheLanding,
    StraightThrough,
)
from marginax.latent.vae.latent_posteriors import divergence_of_normals
from marginax.latent.vae.latent_priors import NormalParts

NUM, CONTEXT = 5, 3
FAMILIES = {"diagonal": DiagonalNormal(), "full": FullNormal()}


class Conditional:
    """Loadings, contexts, examples, and what follows from them."""

    def __init__(self, family="full", num=NUM):
        rng = np.random.default_rng(0)
        self.w, self.v, self.b = (
            rng.normal(size=(SIZE, LATENTS)),
            rng.normal(size=(SIZE, CONTEXT)),
            rng.normal(size=SIZE),
        )
        self.a, self.offset = rng.normal(size=(LATENTS, CONTEXT)), rng.normal(size=LATENTS)
        self.factor = np.array([[0.7, 0.0], [0.0 if family == "diagonal" else -0.8, 1.3]])
        self.family = FAMILIES[family]
        self.c = rng.normal(size=(num, CONTEXT))
        z = self.before() + rng.normal(size=(num, LATENTS)) @ self.factor.T
        self.x = z @ self.w.T + self.c @ self.v.T + self.b + NOISE * rng.normal(size=(num, SIZE))

    def before(self, c=None):
        """Means of latents given contexts."""
        return (self.c if c is None else c) @ self.a.T + self.offset

    @property
    def spread(self):
        return self.factor @ self.factor.T

    @property
    def covariance(self):
        """Of examples, given a context."""
        return self.w @ self.spread @ self.w.T + NOISE**2 * np.eye(SIZE)

    def mean(self, c=None):
        c = self.c if c is None else c
        return self.before(c) @ self.w.T + c @ self.v.T + self.b

    def evidence(self):
        return stats.multivariate_normal(np.zeros(SIZE), self.covariance).logpdf(self.x - self.mean())

    def prior(self):
        rest = [np.log(np.diag(self.factor))]
        if isinstance(self.family, FullNormal):
            rest.append(self.factor[np.tril_indices(LATENTS, -1)])
        weight = np.concatenate([self.a, np.zeros((sum(map(len, rest)), CONTEXT))])
        return ConditionalPrior(linear(weight, np.concatenate([self.offset, *rest])), self.family)

    def encoder(self, *, shift=0.0, widen=0.0):
        """Exact unless it is moved; it sees x and, behind it, the context."""
        covariance = np.linalg.inv(np.linalg.inv(self.spread) + self.w.T @ self.w / NOISE**2)
        gain, keep = covariance @ self.w.T / NOISE**2, covariance @ np.linalg.inv(self.spread)
        factor = np.linalg.cholesky(covariance)
        rest = np.concatenate([np.log(np.diag(factor)) + widen, factor[np.tril_indices(LATENTS, -1)]])
        weight = np.concatenate(
            [np.hstack([gain, keep @ self.a - gain @ self.v]), np.zeros((len(rest), SIZE + CONTEXT))]
        )
        return linear(weight, np.concatenate([keep @ self.offset - gain @ self.b + shift, rest]))

    def model(self, encoder=None, **more):
        kind = {"latent_posterior": FullNormal(), "latent_prior": self.prior()} | more
        likelihood = mx.likelihoods.Gaussian(scale=NOISE)
        decoder = linear(np.hstack([self.w, self.v]), self.b)
        model = VAE(self.encoder() if encoder is None else encoder, decoder, LATENTS, likelihood=likelihood, **kind)
        return model.adapted_to_rows({"x": self.x})

    def rows(self, num=1):
        return {"x": np.repeat(self.x, num, axis=0), "context": np.repeat(self.c, num, axis=0)}


def estimates(truth, bound, encoder=None, repeats=4000):
    """The bound of every example, again and again."""
    model = truth.model(encoder, bound=bound)
    rows = {name: jnp.asarray(value, float) for name, value in truth.rows(repeats).items()}
    return np.asarray(bounds_of(model, params_of(model), rows, jax.random.key(0)), np.float64).reshape(-1, repeats).T


@pytest.mark.parametrize("bound", [ELBO(2, analytic_kl=False), IWAE(3)], ids=["elbo", "iwae"])
@pytest.mark.parametrize("family", FAMILIES)
def test_with_the_exact_posterior_as_encoder_a_bound_is_the_evidence_given_the_context(family, bound):
    with jax.enable_x64(True):
        truth = Conditional(family)
        found = estimates(truth, bound, repeats=2)
        np.testing.assert_allclose(found, np.broadcast_to(truth.evidence(), (2, NUM)), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bound",
    [MIWAE(2, 2), Renyi(0.5, 3), ELBO(gradient=StickingTheLanding()), IWAE(3, DoublyReparameterised())],
    ids=["miwae", "renyi", "landing", "double"],
)
def test_so_is_every_other_bound(bound):
    with jax.enable_x64(True):
        truth = Conditional()
        found = estimates(truth, bound, repeats=2)
        np.testing.assert_allclose(found, np.broadcast_to(truth.evidence(), (2, NUM)), atol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_with_the_formula_of_the_divergence_the_bound_is_the_evidence_in_expectation(family):
    truth = Conditional(family)
    assert np.abs(z_score(estimates(truth, ELBO()), truth.evidence())).max() < 4.9


def exact_divergence(mean, factor, prior_mean, prior_factor):
    inverse = np.linalg.inv(prior_factor @ prior_factor.T)
    apart, covariance = prior_mean - mean, factor @ factor.T
    logs = np.log(np.diag(prior_factor)).sum() - np.log(np.diag(factor)).sum()
    return 0.5 * (np.trace(inverse @ covariance) + apart @ inverse @ apart - len(mean)) + logs


@pytest.mark.parametrize("posterior", FAMILIES)
@pytest.mark.parametrize("prior", FAMILIES)
def test_divergences_of_normals_are_by_their_formula(prior, posterior):
    rng, size, num = np.random.default_rng(1), 3, 4

    def parts(kind):
        factor = np.tril(rng.normal(size=(num, size, size)))
        diagonal = np.exp(0.5 * rng.normal(size=(num, size)))
        factor[:, np.arange(size), np.arange(size)] = diagonal
        factor = factor if kind == "full" else np.stack([np.diag(each) for each in diagonal])
        mean = rng.normal(size=(num, size))
        return (
            mean,
            factor,
            NormalParts(jnp.asarray(mean), jnp.log(diagonal), jnp.asarray(factor) if kind == "full" else None),
        )

    with jax.enable_x64(True):
        mean, factor, belief = parts(posterior)
        prior_mean, prior_factor, before = parts(prior)
        found = np.asarray(divergence_of_normals(belief, before))
        expected = [exact_divergence(*each) for each in zip(mean, factor, prior_mean, prior_factor, strict=True)]
        np.testing.assert_allclose(found.sum(1), expected, rtol=1e-10)
        assert found.min() > 0  # each is a mean of divergences
        # of the first latent alone, before which there is none
        first = [
            exact_divergence(m[:1], f[:1, :1], n[:1], g[:1, :1])
            for m, f, n, g in zip(mean, factor, prior_mean, prior_factor, strict=True)
        ]
        np.testing.assert_allclose(found[:, 0], first, rtol=1e-10)


def test_importance_sampled_densities_are_unbiased():
    truth = Conditional()
    posterior = posterior_of(truth.model(truth.encoder(shift=0.3, widen=0.3)))
    found = posterior.log_likelihood(truth.rows(500), 20, key=3)
    apart = (found.values.reshape(NUM, 500) - truth.evidence()[:, None]).T
    assert np.abs(z_score(np.exp(apart), 1.0)).max() < 4.9
    np.testing.assert_allclose(
        apart.std(0), np.sqrt(np.mean(found.standard_error.reshape(NUM, 500) ** 2, 1)), rtol=0.15
    )


def test_examples_are_generated_by_the_law_of_their_contexts():
    truth, each = Conditional(), 20_000
    posterior = posterior_of(truth.model())
    context = np.repeat(truth.c[:2], each, axis=0)
    drawn = posterior.generate(2 * each, key=0, noise=True, context=context).astype(np.float64).reshape(2, each, SIZE)
    centred = drawn - truth.mean(truth.c[:2])[:, None]
    for values in centred:
        assert np.abs(z_score(values, 0.0)).max() < 4.9
        assert np.abs(z_score(values[:, :, None] * values[:, None, :], truth.covariance)).max() < 4.9


def test_answers_to_the_rest_of_an_example_have_the_law_of_the_normal_conditional_given_the_context():
    truth = Conditional(num=2)
    seen = np.array([True, True, False, False, True])
    posterior = posterior_of(truth.model(truth.encoder(widen=0.5)))
    answers = posterior.complete(truth.x, np.tile(seen, (2, 1)), 3000, key=0, noise=True, num_steps=60, context=truth.c)
    cross = truth.covariance[np.ix_(~seen, seen)] @ np.linalg.inv(truth.covariance[np.ix_(seen, seen)])
    mean = truth.mean()[:, ~seen] + (truth.x - truth.mean())[:, seen] @ cross.T
    covariance = truth.covariance[np.ix_(~seen, ~seen)] - cross @ truth.covariance[np.ix_(seen, ~seen)]
    drawn = answers.values[:, :, ~seen].astype(np.float64)
    assert np.abs(z_score(drawn, mean)).max() < 4.9
    centred = drawn - mean
    assert np.abs(z_score(centred[..., :, None] * centred[..., None, :], covariance)).max() < 4.9
    np.testing.assert_allclose(answers.values[:, :, seen], np.broadcast_to(truth.x[:, seen], (3000, 2, 3)), rtol=1e-6)


def test_latents_that_follow_the_prior_of_their_context_are_not_in_use():
    """Their means vary with the context all the same."""
    truth = Conditional(num=200)
    prior = truth.prior().network.layers[0]
    weight = np.hstack([np.zeros((5, SIZE)), np.asarray(prior.weight)])
    asleep = posterior_of(truth.model(linear(weight, np.asarray(prior.bias)))).collapse(truth.rows())
    assert asleep.num_active == 0
    assert asleep.kl < 1e-5
    awake = posterior_of(truth.model()).collapse(truth.rows())
    assert awake.num_active == LATENTS
    covariance = np.linalg.inv(np.linalg.inv(truth.spread) + truth.w.T @ truth.w / NOISE**2)
    gain = covariance @ truth.w.T / NOISE**2
    means = truth.before() + (truth.x - truth.mean()) @ gain.T
    factor = np.linalg.cholesky(covariance)
    kl = [exact_divergence(m, factor, p, truth.factor) for m, p in zip(means, truth.before(), strict=True)]
    np.testing.assert_allclose(awake.kl, np.mean(kl), rtol=1e-3)


class MeansOfContext(eqx.Module):
    """Means that are linear in the context, and one scale for all: the model is then regression with a low rank."""

    means: mx.nets.MLP
    log_scale: jax.Array

    def __call__(self, c):
        return jnp.concatenate([self.means(c), self.log_scale])


@pytest.mark.slow
def test_training_reaches_the_best_likelihood_of_a_linear_model_with_contexts():
    """Regression on the context by least squares, and the principal components of what it leaves."""
    rng, num = np.random.default_rng(0), 400
    c = rng.normal(size=(num, CONTEXT))
    x = rng.normal(size=(num, 2)) @ rng.normal(size=(2, SIZE)) + c @ rng.normal(size=(CONTEXT, SIZE))
    x += NOISE * rng.normal(size=(num, SIZE))
    design = np.hstack([c, np.ones((num, 1))])
    residual = x - design @ np.linalg.lstsq(design, x, rcond=None)[0]
    values = np.linalg.eigvalsh(residual.T @ residual / num)[::-1]
    logs = np.log(values[:2]).sum() + (SIZE - 2) * np.log(values[2:].mean())
    best = -0.5 * (SIZE * np.log(2 * np.pi) + logs + SIZE)
    model = VAE(
        mx.nets.MLP(SIZE + CONTEXT, (), 5, key=0),
        mx.nets.MLP(2 + CONTEXT, (), SIZE, key=1),
        2,
        likelihood=mx.latent.SharedScale(mx.likelihoods.Gaussian(mx.priors.LogNormal(0.0, 1e3))),
        bound=ELBO(gradient=StickingTheLanding()),
        latent_posterior=FullNormal(),
        latent_prior=ConditionalPrior(MeansOfContext(mx.nets.MLP(CONTEXT, (), 2, key=2), jnp.zeros(2))),
    )
    method = mx.infer.MLE(num_epochs=15_000, batch_size=None, optimiser=mx.infer.Adam(learning_rate=1e-2))
    posterior = mx.fit(model, {"x": x, "context": c}, method, key=0, progress=False)
    found = posterior.log_likelihood({"x": x, "context": c}, 200)
    assert best - 2e-3 < found.mean < best + 4.9 * found.mean_standard_error + 1e-6


def test_what_cannot_be_meant_is_refused():
    truth = Conditional()
    with pytest.raises(ValueError, match="needs contexts: give data"):
        mx.fit(truth.model(), truth.x, mx.infer.MAP(), key=0)
    small = ConditionalPrior(mx.nets.MLP(CONTEXT, (), 3, key=0))
    with pytest.raises(ValueError, match=r"latent_prior gives 3 outputs, .* needs 4: change its out_size to 4"):
        mx.fit(truth.model(latent_prior=small), truth.rows(), mx.infer.MAP(), key=0)
    with pytest.raises(ValueError, match=r"needs contexts: .* or context="):
        posterior_of(truth.model()).generate(3, key=0)
    with pytest.raises(TypeError, match="family must be a law of numbers"):
        ConditionalPrior(mx.nets.MLP(CONTEXT, (), 4, key=0), StraightThrough(2))
    flow = ConditionalPrior(mx.nets.MLP(CONTEXT, (), 4, key=0), CouplingFlow())
    with pytest.raises(ValueError, match="free_bits needs a formula"):
        truth.model(latent_prior=flow, bound=ELBO(free_bits=0.1))
    truth.model(bound=ELBO(free_bits=0.1))  # normal laws have one

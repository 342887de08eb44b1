"""Neural statisticians: a linear one, of which all is known; what must not matter; and as models of the house."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.latent.vae_linear import batch_of, linear, z_score

import marginax as mx
from marginax.latent import ELBO, IWAE, DoublyReparameterised, NeuralStatistician, StickingTheLanding

SIZE, SCALE, NOISE = 3, 0.7, 0.5  # entries of an example; of latents given the context; of entries given latents


class ExactStatistic(eqx.Module):
    """Mean and log scale of the context from the mean example and the log of the number of examples."""

    direction: jax.Array
    offset: jax.Array
    gain: jax.Array
    shift: jax.Array

    def __call__(self, pooled):
        precision = 1 + jnp.exp(pooled[-1]) * self.gain
        mean = jnp.exp(pooled[-1]) * jnp.dot(self.direction, pooled[:-1] - self.offset) / precision + self.shift
        return jnp.stack([mean, -0.5 * jnp.log(precision)])


class Truth:
    """z = a c + e + SCALE noise, x = W z + V c + b + NOISE noise, with one c of a set and one z of an example."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.a, self.e = 0.8, -0.3
        self.w, self.v, self.b = rng.normal(size=(3, SIZE))
        self.m = self.a * self.w + self.v
        self.mean = self.e * self.w + self.b
        self.covariance = SCALE**2 * np.outer(self.w, self.w) + NOISE**2 * np.eye(SIZE)  # given the context
        c = rng.normal(size=(4, 1, 1))
        self.x = rng.multivariate_normal(np.zeros(SIZE), self.covariance, (4, 5)) + self.mean + c * self.m
        self.mask = np.arange(5) < np.array([[5], [3], [1], [4]])
        self.sets = [x[mask] for x, mask in zip(self.x, self.mask, strict=True)]

    def evidence(self, x):
        """Log density of the examples of one set."""
        n = len(x)
        covariance = np.kron(np.eye(n), self.covariance) + np.kron(np.ones((n, n)), np.outer(self.m, self.m))
        return stats.multivariate_normal(np.tile(self.mean, n), covariance).logpdf(np.ravel(x))

    def evidences(self):
        return np.array([self.evidence(x) for x in self.sets])

    @property
    def gain(self):
        """What an example adds to the precision of the context."""
        return self.m @ np.linalg.solve(self.covariance, self.m)

    @property
    def latent_precision(self):
        return 1 / SCALE**2 + self.w @ self.w / NOISE**2

    def belief(self, x):
        """Mean and precision of the context given a set."""
        precision = 1 + len(x) * self.gain
        return self.m @ np.linalg.solve(self.covariance, (x - self.mean).sum(0)) / precision, precision

    def predictive(self, x):
        """Of a further example given a set."""
        mean, precision = self.belief(x)
        covariance = self.covariance + np.outer(self.m, self.m) / precision
        return stats.multivariate_normal(self.mean + mean * self.m, covariance)

    def model(self, *, shift=0.0, latent_shift=0.0, **more):
        """Exact unless means are shifted."""
        direction = np.linalg.solve(self.covariance, self.m)
        statistic = ExactStatistic(*map(jnp.asarray, (direction, self.mean, self.gain, float(shift))))
        precision = self.latent_precision
        weights = [*self.w / NOISE**2, self.a / SCALE**2 - self.w @ self.v / NOISE**2]
        offset = (self.e / SCALE**2 - self.w @ self.b / NOISE**2) / precision + latent_shift
        latent_encoder = linear(np.array([weights, np.zeros(4)]) / precision, [offset, -0.5 * np.log(precision)])
        latent_prior = linear(np.array([[self.a], [0.0]]), [self.e, np.log(SCALE)])
        model = NeuralStatistician(
            linear(np.eye(SIZE), np.zeros(SIZE)),
            statistic,
            latent_encoder,
            latent_prior,
            linear(np.stack([self.w, self.v], 1), self.b),
            context_size=1,
            latent_size=1,
            likelihood=mx.likelihoods.Gaussian(scale=NOISE),
            **more,
        )
        return model.adapted_to_rows({"x": self.x})

    def posterior(self, **more):
        model = self.model(**more)
        params = model.core.initial(SIZE)
        return mx.posterior.Draws(model, jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], params))


def estimates(truth, bound, repeats=4000, seed=0, **more):
    """Of every set, (repeat, set)."""
    model = truth.model(bound=bound, **more)
    params = model.core.initial(SIZE)
    rows = model.as_rows({"x": truth.x, "mask": truth.mask})
    keys = jax.random.split(jax.random.key(seed), repeats)
    call = eqx.filter_jit(
        lambda keys: jax.lax.map(lambda k: model.log_likelihood(params, batch_of(rows), key=k), keys, batch_size=500)
    )
    return np.asarray(call(keys), np.float64)


# ---- what is known of a linear one


@pytest.mark.parametrize("bound", [ELBO(analytic_kl=False), IWAE(3), ELBO(gradient=StickingTheLanding())], ids=repr)
def test_every_draw_gives_the_evidence_of_sets_of_all_sizes_where_the_beliefs_are_exact(bound):
    truth = Truth()
    with jax.enable_x64(True):
        found = estimates(truth, bound, repeats=3)
    np.testing.assert_allclose(found, np.broadcast_to(truth.evidences(), found.shape), rtol=1e-9)


def test_the_bound_is_below_the_evidence_by_the_divergences_of_context_and_of_every_latent():
    truth = Truth()
    sizes = truth.mask.sum(1)
    assert np.abs(z_score(estimates(truth, ELBO()), truth.evidences())).max() < 4.9
    for bound in (ELBO(), ELBO(analytic_kl=False)):
        context = estimates(truth, bound, shift=0.4, seed=1)
        gap = 0.5 * 0.4**2 * (1 + sizes * truth.gain)
        assert np.abs(z_score(context, truth.evidences() - gap)).max() < 4.9
        latents = estimates(truth, bound, latent_shift=0.3, seed=2)
        gap = 0.5 * 0.3**2 * sizes * truth.latent_precision
        assert np.abs(z_score(latents, truth.evidences() - gap)).max() < 4.9


def test_importance_sampled_densities_of_sets_are_unbiased_and_their_errors_honest():
    truth = Truth()
    posterior = truth.posterior(shift=0.3, latent_shift=0.1)
    sets = {"x": np.tile(truth.x, (400, 1, 1)), "mask": np.tile(truth.mask, (400, 1))}
    found = posterior.log_likelihood(sets, 50, key=1)
    apart = (found.values - np.tile(truth.evidences(), 400)).reshape(400, 4)
    assert np.abs(z_score(np.exp(apart), 1.0)).max() < 4.9
    error = found.standard_error.reshape(400, 4)
    np.testing.assert_allclose(apart.std(0), np.sqrt(np.mean(error**2, 0)), rtol=0.2)


def test_predictive_densities_are_those_of_the_normal_conditional():
    truth = Truth()
    new = truth.x[::-1, 4] + 0.5
    expected = np.array([truth.predictive(given).logpdf(x) for x, given in zip(new, truth.sets, strict=True)])
    ratio = [truth.evidence(np.vstack([g, x])) - truth.evidence(g) for x, g in zip(new, truth.sets, strict=True)]
    np.testing.assert_allclose(ratio, expected, rtol=1e-9)
    with jax.enable_x64(True):
        np.testing.assert_allclose(truth.posterior().log_predictive(new, truth.sets, 2).values, expected, rtol=1e-9)
    posterior = truth.posterior(latent_shift=0.3)
    found = posterior.log_predictive(np.tile(new, (500, 1)), truth.sets * 500, 50, key=2)
    apart = (found.values - np.tile(expected, 500)).reshape(500, 4)
    assert np.abs(z_score(np.exp(apart), 1.0)).max() < 4.9
    # the log is low by about half the relative variance
    variance = np.exp(apart).var(0)
    assert np.abs(apart.mean(0) + 0.5 * variance).max() < 0.3 * variance.max() + 4.9 * apart.std() / np.sqrt(500)


def test_examples_are_classified_by_their_predictive_densities_and_contexts_compared_by_divergences():
    truth = Truth()
    new = truth.x[:, 4]
    logs = np.array([[truth.predictive(given).logpdf(x) for given in truth.sets] for x in new])
    expected = np.exp(logs) / np.exp(logs).sum(1, keepdims=True)
    posterior = truth.posterior()
    np.testing.assert_allclose(posterior.classify(new, truth.sets, 5), expected, rtol=1e-3, atol=1e-6)
    found = posterior.context_divergences(new, truth.sets)
    for i, x in enumerate(new):
        there, precision = truth.belief(x[None])
        for j, given in enumerate(truth.sets):
            mean, other = truth.belief(given)
            by_hand = 0.5 * (precision / other + precision * (mean - there) ** 2 - 1 - np.log(precision / other))
            np.testing.assert_allclose(found[i, j], by_hand, rtol=1e-3, atol=1e-4)


def test_more_examples_of_a_set_have_the_law_of_the_normal_conditional():
    truth = Truth()
    posterior = truth.posterior()
    drawn = posterior.generate_like(truth.sets, 20_000, key=0, noise=True).astype(np.float64)
    for values, given in zip(drawn, truth.sets, strict=True):
        law = truth.predictive(given)
        assert np.abs(z_score(values, law.mean)).max() < 4.9
        centred = values - law.mean
        assert np.abs(z_score(centred[:, :, None] * centred[:, None, :], law.cov)).max() < 4.9
    pairs = posterior.generate(20_000, 2, key=1, noise=True).astype(np.float64) - truth.mean
    products = pairs[:, 0, :, None] * pairs[:, 1, None, :]
    assert np.abs(z_score(products, np.outer(truth.m, truth.m))).max() < 4.9  # two of a set share their context


# ---- what must not matter


def networks(context=2, latent=1, entries=4, **more):
    sizes = [(entries, 6), (7, 2 * context), (6 + context, 2 * latent), (context, 2 * latent)]
    sizes.append((latent + context, entries))
    return [mx.nets.MLP(i, (16,), o, key=n, **more) for n, (i, o) in enumerate(sizes)]


RNG = np.random.default_rng(0)
KINDS = RNG.random((60, 1, 4)) < 0.5  # each set has some entries that are mostly 1 and others that are mostly 0
SETS = (RNG.random((60, 5, 4)) < np.where(KINDS, 0.95, 0.05)).astype(float)


def statistician(**more):
    return NeuralStatistician(*networks(), context_size=2, latent_size=1, **more)


def short(num_epochs=3):
    return mx.infer.MAP(num_epochs=num_epochs, batch_size=20)


@pytest.fixture(scope="module")
def fitted():
    return mx.fit(statistician(), SETS, short(), key=0, progress=False)


def test_neither_the_order_of_a_set_nor_what_is_masked_matters(fitted):
    order = np.array([3, 1, 4, 0, 2])
    one, other = fitted.encode(SETS), fitted.encode(SETS[:, order])
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-5)
    np.testing.assert_allclose(one.scale, other.scale, rtol=1e-5)
    for ask in (
        lambda sets: fitted.generate_like(sets, 7, key=1),
        lambda sets: fitted.log_predictive(SETS[:, 0], sets, 20).values,
        lambda sets: fitted.classify(SETS[:3, 0], sets[:4], 20),
    ):
        np.testing.assert_allclose(ask(SETS), ask(SETS[:, order]), atol=2e-4)
    mask = np.arange(5) < RNG.integers(1, 6, (60, 1))
    rubbish = np.where(mask[..., None], SETS, np.nan)
    padded, plain = {"x": rubbish, "mask": mask}, [x[m] for x, m in zip(SETS, mask, strict=True)]
    np.testing.assert_array_equal(fitted.encode(padded).mean, fitted.encode(plain).mean)
    single = fitted.encode(plain[0][None]).mean
    np.testing.assert_allclose(fitted.encode(padded).mean[:1], single, atol=1e-5)
    assert not np.allclose(fitted.encode(padded).mean, one.mean, atol=1e-3)


# ---- as a model of the house


def test_training_finds_what_sets_have_in_common():
    method = mx.infer.MLE(num_epochs=300, batch_size=20, optimiser=mx.infer.Adam(1e-2))
    model = NeuralStatistician(*networks(context=4, activation=jax.nn.tanh), context_size=4, latent_size=1)
    posterior = mx.fit(model, SETS, method, key=0, progress=False)
    more = posterior.generate_like(SETS, 50, key=1).mean(1)
    assert np.mean((more > 0.5) == KINDS[:, 0]) > 0.9  # it is about a half where contexts are ignored


def test_it_is_saved_and_loaded_and_goes_on(tmp_path, fitted):
    fitted.save(tmp_path / "run")
    again = mx.load(tmp_path / "run")
    np.testing.assert_array_equal(again.generate_like(SETS[0], 3, key=0), fitted.generate_like(SETS[0], 3, key=0))
    model = statistician(bound=IWAE(4, DoublyReparameterised()))
    further = mx.fit(model, SETS, short(1), init=fitted, key=1, progress=False)
    assert np.isfinite(further.log_likelihood(SETS[:5], 20).values).all()


def test_ensembles_answer_together():
    ensemble = mx.fit(statistician(), SETS, mx.infer.DeepEnsemble(2, short(1)), key=0, progress=False)
    assert ensemble.generate_like(SETS[0], 5, key=0).shape == (5, 4)
    assert ensemble.generate_like(SETS[:3], 5, key=0, noise=True).shape == (3, 5, 4)
    assert ensemble.generate(3, 2, key=0).shape == (3, 2, 4)
    assert not np.allclose(ensemble.encode(SETS).mean, ensemble.encode(SETS, network=1).mean, atol=1e-3)
    parts = [ensemble.log_predictive(SETS[:2, 0], SETS[:2], 10).values]
    assert np.isfinite(parts).all()


def test_what_cannot_be_meant_is_refused_with_a_remedy(fitted):
    broken = networks()
    broken[1] = mx.nets.MLP(7, (8,), 3, key=0)
    with pytest.raises(ValueError, match=r"statistic gives 3 outputs.*needs 4: change its out_size to 4"):
        mx.fit(NeuralStatistician(*broken, context_size=2, latent_size=1), SETS, short(), key=0)
    with pytest.raises(ValueError, match=r"bound must be without free_bits"):
        statistician(bound=ELBO(free_bits=0.1))
    with pytest.raises(ValueError, match=r"x must have shape \(sets, examples, entries"):
        mx.fit(statistician(), SETS[0], short(), key=0)
    with pytest.raises(ValueError, match=r"x must be in \[0, 1\]"):
        mx.fit(statistician(), 3 * SETS, short(), key=0)
    with pytest.raises(ValueError, match="set 2 has none"):
        mx.fit(statistician(), {"x": SETS, "mask": np.arange(60)[:, None] * np.ones((1, 5)) != 2}, short(), key=0)
    with pytest.raises(ValueError, match=r"drawings must be a set \(examples, 4\)"):
        fitted.generate_like(SETS[0, 0], 3, key=0)
    with pytest.raises(ValueError, match="given must have one set, or one for each of 2"):
        fitted.log_predictive(SETS[:2, 0], SETS[:3])
    with pytest.raises(ValueError, match=r"x must have shape \(n, 4\)"):
        fitted.classify(SETS[0, 0], SETS[:3])

"""Masks with pixels that belong together: against quadrature over the logits, and under every family of methods."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

import marginax as mx
from marginax.model.likelihoods.stochastic_segmentation import LowRankLogits, marginal_logit

L, I = mx.likelihoods, mx.infer
MEAN, SCALE = np.array([0.4, -1.0, 0.7]), np.array([0.5, 1.2, 0.3])
FACTORS = np.array([[1.5, 1.0, -2.0], [0.3, -1.4, 0.8]])
MASKS = np.array(list(itertools.product((0, 1), repeat=3)))


def output(rank):
    """What a network says about three pixels."""
    return jnp.asarray(np.concatenate([MEAN, 2 * np.log(SCALE), FACTORS[:rank].ravel()])[None], jnp.float32)


def exact(rank):
    """Probabilities of all masks: given the shared part pixels are independent, so it is integrated on a grid."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    total = np.zeros(len(MASKS))
    for at in itertools.product(range(len(nodes)), repeat=rank):
        centre = MEAN + nodes[list(at)] @ FACTORS[:rank]
        p = (weights[:, None] * expit(centre + SCALE * nodes[:, None])).sum(0)
        total += np.prod(weights[list(at)]) * np.prod(np.where(MASKS, p, 1 - p), axis=1)
    return total


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_probabilities_of_masks_are_those_of_quadrature(rank):
    """The mean of exp(log likelihood) over keys is the probability, whatever the number of draws."""
    truth, keys = exact(rank), jax.random.split(jax.random.key(rank), 4000)
    np.testing.assert_allclose(truth.sum(), 1, rtol=1e-6)
    for num_mc in (3, 25):
        likelihood = L.StochasticSegmentation(rank, num_mc)
        for mask, p in zip(MASKS, truth, strict=True):
            y = jnp.tile(jnp.asarray(mask), (len(keys), 1))
            logs = likelihood.estimate_log_prob(jnp.tile(output(rank), (len(keys), 1)), y, {}, keys)
            found = np.exp(np.asarray(logs, np.float64))
            assert abs(found.mean() - p) < 4.9 * found.std(ddof=1) / np.sqrt(len(keys))
            assert np.asarray(logs).mean() < np.log(p) + 1e-6  # a bound in expectation


def test_the_bound_rises_with_the_number_of_draws_to_the_log_probability():
    keys, truth = jax.random.split(jax.random.key(0), 2000), np.log(exact(2)[5])
    y = jnp.tile(jnp.asarray(MASKS[5]), (len(keys), 1))
    rows = jnp.tile(output(2), (len(keys), 1))
    bounds = [float(L.StochasticSegmentation(2, num).estimate_log_prob(rows, y, {}, keys).mean()) for num in (1, 8, 64)]
    assert bounds[0] < bounds[1] - 0.1 < bounds[1] < bounds[2] < truth + 0.01
    assert truth - bounds[2] < 0.05


@pytest.mark.parametrize("rank", [0, 2])
def test_without_spread_pixels_are_independent_coins(rank):
    logits = jnp.array([[0.3, -2.0, 4.0, 0.0]])
    parts = [logits, jnp.full((1, 4), -jnp.inf), jnp.zeros((1, 4 * rank))]
    likelihood, y = L.StochasticSegmentation(rank, num_mc=7), jnp.array([[1, 0, 1, 1]])
    expected = L.Bernoulli().log_prob(logits, y, {})
    for found in (
        likelihood.log_prob(jnp.concatenate(parts, axis=1), y, {}),
        likelihood.estimate_log_prob(jnp.concatenate(parts, axis=1), y, {}, jax.random.split(jax.random.key(3), 1)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(
        likelihood.distribution(jnp.concatenate(parts, axis=1), {}).logits, logits, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_sampled_masks_have_the_joint_frequencies_of_quadrature(rank):
    num = 200_000
    drawn = L.StochasticSegmentation(rank).distribution(output(rank)[0], {}).sample(jax.random.key(5), (num,))
    counts = np.bincount(np.asarray(drawn) @ [4, 2, 1], minlength=8) / num
    truth = exact(rank)
    assert (np.abs(counts - truth) < 4.9 * np.sqrt(truth * (1 - truth) / num)).all()


def test_logits_have_the_covariance_of_factors_and_diagonal():
    drawn = L.StochasticSegmentation(2).distribution(output(2)[0], {}).draw_logits(jax.random.key(0), 100_000)
    drawn = np.asarray(drawn, np.float64)
    truth = FACTORS.T @ FACTORS + np.diag(SCALE**2)
    products = (drawn - MEAN)[:, :, None] * (drawn - MEAN)[:, None, :]
    assert (np.abs(products.mean(0) - truth) < 4.9 * products.std(0) / np.sqrt(len(drawn))).all()
    assert (np.abs(drawn.mean(0) - MEAN) < 4.9 * drawn.std(0) / np.sqrt(len(drawn))).all()


@pytest.mark.parametrize("mean", [-30.0, -3.0, 0.5, 12.0])
@pytest.mark.parametrize("scale", [0.0, 0.4, 1.99, 2.01, 5.0, 30.0])
def test_marginal_probabilities_are_those_of_quadrature(mean, scale):
    points = [-mean / scale] if scale and abs(mean) < 12 * scale else None
    truth, _ = quad(lambda z: expit(mean + scale * z) * norm.pdf(z), -12, 12, points=points, epsabs=0, limit=500)
    with jax.enable_x64(True):
        found = expit(float(marginal_logit(jnp.asarray(mean), jnp.asarray(scale))))
    np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-17)


def test_predictions_are_of_whole_masks():
    """A network that says the same of all images: joint and marginal probabilities, entropies."""
    truth = exact(2)
    network = mx.nets.Function(output(2)[0], lambda w, x: w)
    model = mx.Model(network, L.StochasticSegmentation(2, num_mc=4000), mx.priors.Normal(1.0))
    params = model.initial(12)
    stacked = jax.tree.map(lambda leaf: leaf[None], params)
    spec = mx.data.DataSpec((1,), (3,), 5)
    prediction = mx.predict.predict(model, stacked, np.zeros((2, 1)), spec=spec)
    assert prediction.outcome is mx.model.Outcome.LABELS
    np.testing.assert_allclose(prediction.probs, np.tile(truth @ MASKS, (2, 1)), atol=1e-5)
    p = truth @ MASKS
    np.testing.assert_allclose(prediction.entropy[0], -p * np.log(p) - (1 - p) * np.log(1 - p), atol=1e-5)
    for mask, chance in zip(MASKS, truth, strict=True):
        assert abs(np.exp(prediction.log_prob(np.tile(mask, (2, 1))))[0] - chance) < 0.02
    drawn = prediction.sample(40_000, key=1)
    assert drawn.shape == (40_000, 2, 3)
    for image in (0, 1):
        found = np.bincount(drawn[:, image] @ [4, 2, 1], minlength=8) / 40_000
        assert (np.abs(found - truth) < 4.9 * np.sqrt(truth * (1 - truth) / 40_000)).all()
    apart = np.mean((drawn[:, 0] == drawn[:, 1]).all(-1))  # images have draws of their own
    assert abs(apart - np.sum(truth**2)) < 4.9 * 0.5 / np.sqrt(40_000)
    logits = FACTORS.T @ np.random.default_rng(0).normal(size=(2, 400_000)) + MEAN[:, None]
    logits += SCALE[:, None] * np.random.default_rng(1).normal(size=logits.shape)
    signs = np.bincount([4, 2, 1] @ (logits > 0), minlength=8) / logits.shape[1]
    found = np.bincount(prediction.sample_masks(40_000, key=2)[:, 1] @ [4, 2, 1], minlength=8) / 40_000
    assert (np.abs(found - signs) < 4.9 * np.sqrt(signs * (1 - signs) * (1 / 40_000 + 1 / 400_000))).all()


# ---- several graders


def test_graders_are_averaged():
    rows = jnp.tile(output(2), (4, 1)) + jnp.arange(4.0)[:, None] / 10
    answers = jnp.asarray(np.random.default_rng(0).integers(0, 2, (4, 5, 3)))
    keys = jax.random.split(jax.random.key(0), 4)
    for inner, raw in ((L.Bernoulli(), rows[:, :3]), (L.StochasticSegmentation(2, 9), rows)):
        each = [inner.estimate_log_prob(raw, answers[:, g], {}, keys) for g in range(5)]
        found = L.Graders(inner).estimate_log_prob(raw, answers.reshape(4, -1), {}, keys)
        np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-5)
        each = [inner.log_prob(raw, answers[:, g], {}) for g in range(5)]
        np.testing.assert_allclose(
            L.Graders(inner).log_prob(raw, answers.reshape(4, -1), {}), np.mean(each, 0), rtol=1e-5
        )
    one = L.Graders(L.Gaussian(scale=0.5)).log_prob(jnp.array([[1.0]]), jnp.array([[1.0, 2.0]]), {})
    np.testing.assert_allclose(one, norm(1, 0.5).logpdf([1.0, 2.0]).mean(), rtol=1e-6)


def test_temperature_divides_what_is_estimated():
    likelihood, keys = L.Graders(L.StochasticSegmentation(2, 9)), jax.random.split(jax.random.key(0), 1)
    y = jnp.array([[1, 0, 1, 0, 0, 0]])
    found = L.Tempered(likelihood, 0.25).estimate_log_prob(output(2), y, {}, keys)
    np.testing.assert_allclose(found, 4 * likelihood.estimate_log_prob(output(2), y, {}, keys), rtol=1e-6)


# ---- as a model


def problem(num=12, graders=2, size=4):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num, 1, size, size))
    masks = (x[:, 0, None] + rng.normal(size=(num, graders, 1, 1)) > 0).astype(int)
    return x, masks


def unet(rank, **options):
    return mx.nets.UNet((1, 4, 4), (4, 8), out_channels=2 + rank, groups=4, key=0, **options)


def test_draws_are_fresh_with_a_key_and_the_same_for_a_row_without():
    x, masks = problem()
    model = mx.Model(unet(3), L.Graders(L.StochasticSegmentation(3, 5)))
    source = mx.data.FullBatch(model.read((x, masks)))
    params, batch = model.init(source), source.batch(0, key=jax.random.key(0))
    first, second = (model.log_likelihood(params, batch, key=jax.random.key(i)) for i in (0, 1))
    assert (np.asarray(first) != np.asarray(second)).all()
    fixed = np.asarray(model.log_likelihood(params, batch))
    rows = np.array([7, 2])
    some = mx.data.Batch(jax.tree.map(lambda a: a[rows], batch.data), jnp.asarray(rows), 12)
    np.testing.assert_allclose(model.log_likelihood(params, some), fixed[rows], rtol=1e-5)
    twice = mx.data.Batch(jax.tree.map(lambda a: a[jnp.array([3, 3])], batch.data), jnp.array([0, 1]), 12)
    apart = np.asarray(model.log_likelihood(params, twice, key=jax.random.key(0)))
    assert apart[0] != apart[1]  # rows have draws of their own


METHODS = [
    I.MAP(num_epochs=2, batch_size=4),
    pytest.param(I.DeepEnsemble(2, I.MAP(num_epochs=2, batch_size=4)), marks=pytest.mark.slow),
    pytest.param(I.MCDropout(0.2, num_epochs=2, batch_size=4), marks=pytest.mark.slow),
    pytest.param(I.DropConnect(0.2, num_epochs=2, batch_size=4), marks=pytest.mark.slow),
    pytest.param(I.VI(num_epochs=2, batch_size=4), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("correlated", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_family_fits_samples_and_is_stored(method, correlated, tmp_path):
    x, masks = problem()
    inner, network = (L.StochasticSegmentation(1, 4), unet(1)) if correlated else (L.Bernoulli(), unet(-1))
    posterior = mx.fit(mx.Model(network, L.Graders(inner)), (x, masks), method, key=0, progress=False)
    prediction = posterior.predict(x[:5], num_samples=3)
    drawn = prediction.sample(6, key=0)
    assert drawn.shape == (6, 5, 16)
    assert set(np.unique(prediction.sample_masks(6, key=0))) <= {0, 1}
    assert np.isfinite(prediction.log_prob(masks[:5, 0].reshape(5, 16))).all()
    assert 0 <= float(mx.evaluate.energy_distance(prediction, masks[:5], key=0)) <= 2
    posterior.save(tmp_path / "posterior")
    loaded = mx.load(tmp_path / "posterior").predict(x[:5], num_samples=3)
    np.testing.assert_array_equal(loaded.sample(6, key=0), drawn)


@pytest.mark.slow
def test_training_finds_that_pixels_belong_together():
    """Masks are all or nothing with probability 0.3, whatever the image: factors have to learn it, coins cannot."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 1, 4, 4))
    masks = np.broadcast_to(rng.random((300, 1, 1)) < 0.3, (300, 4, 4)).astype(int)
    network = mx.nets.UNet((1, 4, 4), (4, 8), out_channels=3, groups=4, key=0)
    method = I.MAP(num_epochs=1600, batch_size=50, optimiser=I.Adam(1e-2))
    posterior = mx.fit(mx.Model(network, L.StochasticSegmentation(1, 20)), (x, masks), method, key=0, progress=False)
    drawn = posterior.predict(x[:50]).sample(200, key=0).mean(-1)
    assert np.mean((drawn < 0.05) | (drawn > 0.95)) > 0.9
    assert 0.2 < drawn.mean() < 0.4


# ---- what cannot be meant


def test_arguments_and_data_that_do_not_fit_are_named(as_users_run):
    with pytest.raises(ValueError, match="rank must be an int >= 0, got -1"):
        L.StochasticSegmentation(-1)
    with pytest.raises(ValueError, match="num_mc must be an int >= 1, got 0"):
        L.StochasticSegmentation(num_mc=0)
    with pytest.raises(TypeError, match=r"likelihood must be one of mx\.likelihoods"):
        L.Graders(L.CensoredGaussian())
    x, masks = problem()
    fit = eqx.Partial(mx.fit, method=I.MAP(num_epochs=1), key=0)
    with pytest.raises(ValueError, match=r"2 \+ rank = 5 numbers for every pixel.*use out_channels=5"):
        fit(mx.Model(unet(2), L.StochasticSegmentation(3)), (x, masks[:, 0]))
    with pytest.raises(ValueError, match="network gives 48 outputs, which describe 16 targets, but y has 32"):
        fit(mx.Model(unet(1), L.StochasticSegmentation(1)), (x, masks))
    with pytest.raises(ValueError, match="y must have 16 targets for every grader"):
        fit(mx.Model(unet(1), L.Graders(L.StochasticSegmentation(1))), (x, masks[:, :, :3]))
    with pytest.raises(ValueError, match="y must be between 0 and 1"):
        fit(mx.Model(unet(1), L.Graders(L.StochasticSegmentation(1))), (x, 2 * masks))
    with pytest.raises(ValueError, match="network must give a vector of outputs per example"):
        fit(mx.Model(unet(-1), L.Bernoulli()), (x, masks[:, 0].reshape(12, -1)))


def test_joint_probabilities_take_several_rows():
    several = LowRankLogits(
        *(
            jnp.broadcast_to(part, (2, *part.shape))
            for part in (jnp.asarray(MEAN), jnp.asarray(2 * np.log(SCALE)), jnp.asarray(FACTORS))
        ),
        2000,
    )
    found = np.exp(several.log_prob(jnp.array([[1, 0, 1], [0, 1, 1]])))
    assert found.shape == (2, 1)
    np.testing.assert_allclose(found[:, 0], exact(2)[[5, 3]], atol=0.02)

"""The probabilistic U-Net: masks of four pixels, of which all sixteen can be counted, and as a model of the house."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.latent.vae_linear import z_score

import marginax as mx
from marginax.latent import ELBO, IWAE, LatentUNet, ProbabilisticUNet

EVERY = (np.arange(16)[:, None] >> np.arange(4) & 1).reshape(16, 2, 2)
IMAGES = np.random.default_rng(0).normal(size=(2, 1, 2, 2))
GRID = 100  # quantiles of each of two latents


def small(**more):
    model = ProbabilisticUNet((1, 2, 2), (4,), 2, groups=None, key=0, **more)
    leaves, treedef = jax.tree.flatten(model)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [
        leaf + 0.5 * jax.random.normal(k, leaf.shape) if eqx.is_inexact_array(leaf) else leaf
        for leaf, k in zip(leaves, keys, strict=True)
    ]
    model = jax.tree.unflatten(treedef, moved)
    prior, encoder = model.vae.latent_prior.network.output, model.vae.encoder.output
    wide = jnp.array([0.0, 0.0, 0.6, 0.6])  # an encoder from which importance weights are bounded
    return eqx.tree_at(
        lambda m: (m.vae.latent_prior.network.output.weight, m.vae.encoder.output.weight, m.vae.encoder.output.bias),
        model,
        (0.2 * prior.weight, 0.1 * encoder.weight, wide),
    )


def posterior_of(model):
    params = model.core.initial(4)
    return mx.posterior.Draws(model, jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], params))


@eqx.filter_jit
def _logits(decoder, z, image):
    return jax.vmap(lambda z: decoder(z, image))(z)


def counted(model):
    """Of each image: probability of every mask, and of it as the more probable one at latents; latents and weights."""
    normal = stats.norm.ppf((np.arange(GRID) + 0.5) / GRID)
    grid = np.stack(np.meshgrid(normal, normal, indexing="ij"), -1).reshape(-1, 2)
    probs, hard, likelihoods, latents = [], [], [], []
    for image in jnp.asarray(IMAGES, float):
        mean, log_scale = np.split(np.asarray(model.vae.latent_prior.network(image), np.float64), 2)
        z = mean + np.exp(log_scale) * grid
        logits = np.asarray(_logits(model.vae.decoder, jnp.asarray(z, float), image), np.float64).reshape(-1, 1, 4)
        flat = EVERY.reshape(1, 16, 4)
        likelihood = np.exp((flat * logits - np.logaddexp(0, logits)).sum(-1))
        chosen = ((logits > 0) * 2 ** np.arange(4)).sum(-1).ravel()
        probs.append(likelihood.mean(0))
        hard.append(np.bincount(chosen, minlength=16) / len(chosen))
        likelihoods.append(likelihood)
        latents.append(z)
    return np.array(probs), np.array(hard), likelihoods, latents


@pytest.fixture(scope="module")
def problem():
    model = small()
    return model, posterior_of(model), counted(model)


def number_of(masks):
    return (masks.reshape(*masks.shape[:2], 4) * 2 ** np.arange(4)).sum(-1).astype(int)


def assert_frequencies(found, probs):
    """Counts of masks, (sample,), against their probabilities."""
    counts = np.bincount(found, minlength=16)
    kept = probs > 1e-9
    assert counts[~kept].sum() == 0
    error = np.sqrt(len(found) * probs[kept] * (1 - probs[kept])).clip(1.0)
    assert np.abs((counts[kept] - len(found) * probs[kept]) / error).max() < 4.9


def check_probabilities(problem):
    _, posterior, (probs, *_) = problem
    masks, images = np.tile(EVERY, (2, 1, 1)), np.repeat(IMAGES, 16, axis=0)
    found = posterior.log_likelihood((images, masks), 5000, key=1)
    apart = (np.exp(found.values - np.log(probs.ravel())) - 1) / found.standard_error
    assert np.abs(apart).max() < 4.9
    total = np.exp(found.values).reshape(2, 16).sum(1)
    error = np.sqrt(((np.exp(found.values) * found.standard_error) ** 2).reshape(2, 16).sum(1))
    assert np.abs((total - 1) / error).max() < 4.9  # a prior that knew the mask would give more
    assert error.max() < 0.02


def test_importance_sampled_probabilities_of_all_masks_are_those_of_the_grid_and_sum_to_one(problem):
    check_probabilities(problem)


def check_samples(problem):
    _, posterior, (probs, hard, *_) = problem
    assert np.abs(probs[0] - probs[1]).max() > 0.02  # the image says something
    for noise, expected in ((True, probs), (False, hard)):
        found = number_of(posterior.sample_masks(IMAGES, 20_000, key=2, noise=noise))
        for i in range(2):
            assert_frequencies(found[:, i], expected[i])


def test_sampled_masks_have_their_probabilities_with_and_without_the_noise_of_pixels(problem):
    check_samples(problem)
    _, posterior, _ = problem
    few = posterior.sample_masks(IMAGES[:1], 40, key=2)
    np.testing.assert_array_equal(few, posterior.sample_masks(IMAGES, 40, key=2)[:, :1])  # whatever is beside


def check_completions(problem):
    _, posterior, (probs, _, likelihoods, latents) = problem
    seen = np.array([[True, False], [False, True]])
    given = np.array([[[1, 0], [0, 0]], [[0, 0], [0, 1]]])
    rest = np.where(seen, given, 7)  # what is not seen does not matter
    found = posterior.complete(rest, np.tile(seen, (2, 1, 1)), 4000, key=3, noise=True, num_steps=60, context=IMAGES)
    np.testing.assert_array_equal(found.values[:, :, seen], np.broadcast_to(given[:, seen], (4000, 2, 2)))
    for i in range(2):
        fits = (EVERY[:, seen] == given[i][seen]).all(-1)
        law = np.where(fits, probs[i], 0.0)
        assert_frequencies(number_of(found.values)[:, i], law / law.sum())
        weight = likelihoods[i][:, fits].sum(1)
        mean = (weight[:, None] * latents[i]).sum(0) / weight.sum()
        assert np.abs(z_score(found.latents[:, i], mean)).max() < 4.9


def test_completions_agree_with_what_is_given_and_follow_the_law_of_the_rest(problem):
    check_completions(problem)


# ---- graders


@eqx.filter_jit
def estimate(model, rows, keys):
    return model.estimate(model.core.initial(4), rows, keys)


def check_graders(num_graders=None, times=2000):
    model, rng = small(num_graders=num_graders, bound=ELBO()), np.random.default_rng(4)
    masks = rng.integers(0, 2, size=(2, 3, 2, 2))
    rows = {"x": np.tile(masks, (times, 1, 1, 1)), "context": np.tile(IMAGES, (times, 1, 1, 1))}
    rows = {name: jnp.asarray(value, float) for name, value in rows.items()}
    found = np.asarray(estimate(model, rows, jax.random.key(0))).reshape(times, 2)
    single = {"x": rows["x"].reshape(-1, 2, 2), "context": jnp.repeat(rows["context"], 3, axis=0)}
    each = np.asarray(estimate(model, single, jax.random.key(1))).reshape(times, 2, 3).mean(-1)
    assert np.ptp(each.mean(0)) > 0.1
    error = np.sqrt((found.var(0) + each.var(0)) / times)
    assert np.abs((found.mean(0) - each.mean(0)) / error).max() < 4.9
    return found


def test_an_image_counts_once_by_the_mean_over_its_graders_or_by_some_that_are_drawn():
    whole, drawn = check_graders(), check_graders(num_graders=1)
    assert np.all(drawn.var(0) > 1.2 * whole.var(0))
    model = small(num_graders=1)
    x = np.stack([EVERY[:3], EVERY[4:7]])
    rows = {"x": jnp.asarray(x, float), "context": jnp.asarray(IMAGES, float)}
    keys = jax.random.split(jax.random.key(0), 2)
    first, again = estimate(model, rows, keys), estimate(model, rows, keys)
    np.testing.assert_array_equal(first, again)  # without a key of the step, of all graders
    turned = estimate(model, {"x": rows["x"][::-1], "context": rows["context"][::-1]}, keys[::-1])
    np.testing.assert_allclose(turned, first[::-1], rtol=1e-5)


# ---- as a model of the house

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 1, 4, 4))
Y = ((X + RNG.normal(size=(24, 3, 1, 1))) > 0).astype(int)


def tiny(**more):
    return ProbabilisticUNet((1, 4, 4), (2, 4), 2, groups=None, key=0, **more)


def test_an_ensemble_is_saved_loaded_and_asked(tmp_path):
    method = mx.infer.DeepEnsemble(2, mx.infer.MAP(num_epochs=2, batch_size=12))
    posterior = mx.fit(tiny(first_logit=-1.0), (X, Y), method, key=0, progress=False)
    masks = posterior.sample_masks(X[:, 0], 5, key=1)  # of one channel, with or without its axis
    assert masks.shape == (5, 24, 4, 4)
    assert set(np.unique(masks)) <= {0, 1}
    posterior.save(tmp_path / "run")
    again = mx.load(tmp_path / "run")
    np.testing.assert_array_equal(again.sample_masks(X, 5, key=1), masks)
    assert "active" in str(again.summary())
    assert posterior.reconstruct((X, Y)).shape == (72, 4, 4)  # masks of three graders
    apart = jax.tree.leaves(posterior.params.network.latent_prior)
    assert all(not np.allclose(leaf[0], leaf[1]) for leaf in apart if leaf.ndim > 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [mx.infer.MAP(num_epochs=3), mx.infer.VI(num_epochs=3), mx.infer.SGHMC(num_samples=4)],
    ids=lambda m: type(m).__name__,
)
def test_methods_that_need_no_layers_give_masks(method):
    posterior = mx.fit(tiny(bound=IWAE(3), num_graders=1), {"x": Y, "context": X}, method, key=0, progress=False)
    assert posterior.sample_masks(X, 4, key=0).shape == (4, 24, 4, 4)
    assert np.isfinite(posterior.log_likelihood((X[:3], Y[:3]), 20).values).all()
    answers = posterior.complete(Y[:2, 0], Y[:2, 1] > 0, 3, key=0, num_steps=10, context=X[:2])
    np.testing.assert_array_equal(answers.values[:, Y[:2, 1] > 0], np.tile(Y[:2, 0][Y[:2, 1] > 0], (3, 1)))


def test_latents_join_features_as_maps_of_a_concatenation_do():
    net = LatentUNet((1, 4, 4), (3, 5), 2, groups=None, num_convolutions=2, key=0)
    image, z = jnp.asarray(X[0], float), jnp.array([0.3, -2.0])
    headless = eqx.tree_at(
        lambda u: (u.output.weight, u.output.bias), net.unet, (jnp.eye(3)[..., None, None], jnp.zeros(3))
    )
    maps = jnp.broadcast_to(z[:, None, None], (2, 4, 4))
    joined = np.concatenate([headless(image), maps])
    first = np.hstack([net.unet.output.weight[..., 0, 0], net.latents.weight])
    h = np.einsum("oc,chw->ohw", first, joined) + np.asarray(net.unet.output.bias)[:, None, None]
    last = net.convolutions[0]
    expected = np.einsum("oc,chw->ohw", last.weight[..., 0, 0], np.maximum(h, 0)) + np.asarray(last.bias)[:, None, None]
    np.testing.assert_allclose(net(z, image), expected, rtol=1e-4, atol=1e-5)


MISTAKES = [
    ((X, Y[..., :3]), r"x must have shape \(n, 4, 4\)"),
    ((X[:, :, :3], Y), r"images must have shape \(n, 1, 4, 4\)"),
    ((X, 2 * Y), r"x must be in \[0, 1\]"),
    ((X[:5], Y), "as many rows each"),
    ({"x": Y}, "data must have images: a pair"),
    (Y, "data must be a pair"),
]


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case[1][:30])
def test_data_that_cannot_be_meant_are_refused(case):
    with pytest.raises(ValueError, match=case[1]):
        mx.fit(tiny(), case[0], mx.infer.MAP(), key=0, progress=False)


def test_arguments_that_cannot_be_meant_are_refused():
    with pytest.raises(ValueError, match="num_convolutions must be >= 2"):
        tiny(num_convolutions=1)
    with pytest.raises(ValueError, match="num_graders must be"):
        tiny(num_graders=0)
    with pytest.raises(ValueError, match="groups must divide"):
        ProbabilisticUNet((1, 4, 4), (2, 4), 2, key=0)

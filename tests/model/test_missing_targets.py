"""Rows without targets: who learns from them, who refuses them, and what term they have."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import marginax as mx
from marginax.infer.hooks import _held_out

L, I = mx.likelihoods, mx.infer
RNG = np.random.default_rng(0)
NET = mx.nets.MLP(2, (), 3, key=0)


@pytest.mark.parametrize(
    ("inner", "size", "classes"), [(L.Categorical(), 3, 3), (L.Bernoulli(), 1, 2), (L.Ordinal(), 1, 3)]
)
def test_terms_are_the_label_and_the_entropy(inner, size, classes):
    likelihood = L.EntropyRegularised(inner, weight=0.7)
    output = jnp.asarray(RNG.normal(size=(4, size)))
    y = jnp.array([0, -1, classes - 1, -1])
    unknowns = likelihood.init(size)
    found = likelihood.log_prob(output, y, unknowns)
    probs = np.exp([inner.log_prob(output, jnp.full(4, k), unknowns) for k in range(classes)])
    np.testing.assert_allclose(found[0], np.log(probs[0, 0]), rtol=1e-5)
    np.testing.assert_allclose(found[2], np.log(probs[classes - 1, 2]), rtol=1e-5)
    np.testing.assert_allclose(found[jnp.array([1, 3])], -0.7 * stats.entropy(probs)[[1, 3]], rtol=1e-5)
    roots = [likelihood.fisher_root_given(output[i], y[i], unknowns, jax.random.key(0)) for i in (0, 1)]
    np.testing.assert_allclose(roots[0], inner.fisher_root(output[0], unknowns))
    np.testing.assert_array_equal(roots[1], 0)


METHODS = {
    "map": I.MAP(num_epochs=200, batch_size=None),
    "vi": I.VI(num_epochs=1000, batch_size=None),
    "sghmc": I.SGHMC(num_warmup=1000, num_samples=50, batch_size=16),
    "laplace": I.Laplace(training=I.MAP(num_epochs=200, batch_size=None)),
    "ensemble": I.DeepEnsemble(2, I.MAP(num_epochs=200, batch_size=None)),
}


@pytest.mark.parametrize("name", [pytest.param(m, marks=() if m == "map" else pytest.mark.slow) for m in METHODS])
def test_rows_without_labels_are_made_surer(name):
    x = np.concatenate([RNG.normal([2, 0], size=(60, 2)), RNG.normal([-2, 0], size=(60, 2))])
    y = np.repeat([0, 1], 60)
    y[np.arange(120) % 20 > 0] = mx.data.MISSING
    entropy = []
    for weight in (0.0, 1.0):
        model = mx.Model(mx.nets.MLP(2, (), 2, key=0), L.EntropyRegularised(L.Categorical(), weight))
        posterior = mx.fit(model, (x, y), METHODS[name], key=0, progress=False)
        entropy.append(posterior.predict(x[y < 0]).expected_entropy.mean())  # of each draw; these may disagree
    assert 0 < entropy[1] < entropy[0] * (0.7 if name == "map" else 1.0)
    assert any("no likelihood of data" in text for text in posterior.summary().warnings)
    with pytest.raises(TypeError, match="no likelihood of data"):
        mx.evaluate.loo(posterior, (x, y))


# ---- consistency


def check_terms_are_the_label_and_the_divergence_of_views(inner=L.Categorical(), size=3, classes=3):
    """Of every row, labelled or not: by hand, with both members of the orbit of a flip."""
    likelihood = L.ConsistencyRegularised(inner, mx.data.Flip(), weight=0.7, num_views=None)
    model = mx.Model(mx.nets.MLP(2, (), size, key=1), likelihood)
    x, y = 2 * np.random.default_rng(5).normal(size=(5, 2)), np.array([0, -1, classes - 1, -1, -1])
    x[4, 1] = x[4, 0]  # its own mirror image
    params, batch = model.initial(size), mx.data.FullBatch((x, y)).batch(0, key=jax.random.key(0))

    def probs(x):
        output = model.output(params, jnp.asarray(x, jnp.float32))
        of_class = [inner.log_prob(output, jnp.full(5, k), params.likelihood) for k in range(classes)]
        return np.exp(np.stack(of_class, 1).astype(np.float64))

    one, other = probs(x), probs(x[:, ::-1])
    between = (
        stats.entropy((one + other) / 2, axis=1) - stats.entropy(one, axis=1) / 2 - stats.entropy(other, axis=1) / 2
    )
    label = np.where(y >= 0, np.log(one[np.arange(5), y]), 0.0)
    assert between[:4].min() > 1e-3
    assert abs(between[4]) < 1e-6
    for key in (None, jax.random.key(3)):
        found = model.log_likelihood(params, batch, key=key)
        np.testing.assert_allclose(found, label - 0.7 * between, rtol=1e-4, atol=1e-6)
    cold = mx.Model(model.network, L.Tempered(likelihood, 0.5)).log_likelihood(params, batch)
    np.testing.assert_allclose(cold, 2 * (label - 0.7 * between), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("inner", "size", "classes"), [(L.Categorical(), 3, 3), (L.Bernoulli(), 1, 2), (L.Ordinal(), 1, 3)]
)
def test_terms_are_the_label_and_the_divergence_of_views(inner, size, classes):
    check_terms_are_the_label_and_the_divergence_of_views(inner, size, classes)


def test_views_are_new_in_every_step_and_others_for_every_row():
    likelihood = L.ConsistencyRegularised(L.Categorical(), mx.data.Jitter(1.0))
    x, keys = jnp.zeros((3, 2)), [jax.random.split(jax.random.key(i), 3) for i in (0, 0, 1)]
    views = [likelihood.views(x, each, fresh=True) for each in keys]
    np.testing.assert_array_equal(views[0], views[1])
    assert len({float(value) for value in jnp.concatenate([views[0].ravel(), views[2].ravel()])}) == 24


def check_noise_without_a_key_is_each_rows_own():
    """A network that looks where the noises of one row agree is found out by the others."""
    likelihood = L.ConsistencyRegularised(L.Categorical(), mx.data.Jitter(1.0), weight=2.0)
    net = mx.nets.MLP(3, (), 2, key=0)
    net = eqx.tree_at(lambda n: n.layers[0].weight, net, jnp.array([[2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    model, num = mx.Model(net, likelihood), 2000
    x, y = np.zeros((num, 3)), np.full(num, mx.data.MISSING)
    params = model.initial(2)
    batch = mx.data.FullBatch((x, y)).batch(0, key=jax.random.key(0))
    fixed, again = (np.asarray(model.log_likelihood(params, batch), np.float64) for _ in range(2))
    drawn = np.asarray(model.log_likelihood(params, batch, key=jax.random.key(5)), np.float64)
    np.testing.assert_array_equal(fixed, again)
    z = (fixed.mean() - drawn.mean()) / np.sqrt((fixed.var() + drawn.var()) / num)
    assert abs(z) < 4.9
    assert fixed.std() > 0.5 * drawn.std() > 0
    some = mx.data.Batch(
        (jnp.zeros((2, 3)), jnp.asarray(y[7:9])), batch.index[7:9], num
    )  # the noise of a row is its own in every batch
    np.testing.assert_allclose(model.log_likelihood(params, some), fixed[7:9], rtol=1e-5)


def test_noise_without_a_key_is_each_rows_own():
    check_noise_without_a_key_is_each_rows_own()


def test_only_rows_with_a_label_are_judged():
    """How sure a network is of rows without one says nothing of how good it is."""
    x, y = np.random.default_rng(3).normal(size=(40, 2)), np.arange(40) % 8 // 4
    y = np.where(np.arange(40) % 4, mx.data.MISSING, y)
    model = mx.Model(mx.nets.MLP(2, (), 2, key=0), L.EntropyRegularised(L.Categorical(), 3.0))
    batch = mx.data.FullBatch((x, y)).batch(0, key=jax.random.key(0))
    params = model.initial(2)
    each = np.asarray(model.log_likelihood(params, batch))
    np.testing.assert_array_equal(model.is_judged(batch), y >= 0)
    assert float(_held_out(model, params, mx.data.Arrays(x, y))) == pytest.approx(each[y >= 0].mean(), rel=1e-5)
    cold = mx.Model(model.network, L.Tempered(model.likelihood, 0.5))
    np.testing.assert_array_equal(cold.is_judged(batch), y >= 0)
    members = [I.MILE(2).init(model, params, batch, key=jax.random.key(i)).training.held_out for i in range(20)]
    assert all(0 < np.sum(held_out) < 10 for held_out in members)
    assert not np.any(np.array(members)[:, y < 0])


@pytest.mark.parametrize("name", [pytest.param(m, marks=() if m == "map" else pytest.mark.slow) for m in METHODS])
def test_views_of_rows_without_labels_agree(name):
    """The second feature says nothing of the class, and is flipped: only the term tells that to a network."""
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 60)
    x = np.stack([4.0 * y - 2 + rng.normal(size=120), 3 * rng.normal(size=120)], axis=1)
    y[np.arange(120) % 20 > 1] = mx.data.MISSING
    apart = []
    for weight in (0.0, 30.0):
        turned = L.ConsistencyRegularised(L.Categorical(), mx.data.Jitter([0.0, 3.0]), weight, num_views=2)
        model = mx.Model(mx.nets.MLP(2, (), 2, key=0), turned, mx.priors.Normal(2.0))
        posterior = mx.fit(model, (x, y), METHODS[name], key=0, progress=False)
        one, other = (posterior.predict(x * [1, sign]).probs[:, 0] for sign in (1, -1))
        apart.append(abs(one - other).mean())
    assert apart[1] < 0.5 * apart[0]
    assert any("no likelihood of data" in text for text in posterior.summary().warnings)
    with pytest.raises(TypeError, match="no likelihood of data"):
        mx.evaluate.loo(posterior, (x, y))


@pytest.mark.slow
@pytest.mark.parametrize("method", [I.MCDropout(0.1, num_epochs=5), I.DropConnect(num_epochs=5), I.VI(num_epochs=5)])
def test_noise_in_layers_goes_through_views_too(method):
    x, y = RNG.normal(size=(30, 2)), np.append(np.full(20, -1), np.arange(10) % 2)
    values = []
    for weight in (0.0, 1.0):
        flipped = L.ConsistencyRegularised(L.Categorical(), mx.data.Flip(), weight, num_views=None)
        model = mx.Model(mx.nets.MLP(2, (4,), 2, key=0), flipped)
        posterior = mx.fit(model, (x, y), method, key=0, progress=False)
        values.append(posterior.predict(x).probs)
    assert np.isfinite(values).all()
    assert not np.allclose(*values)


def test_a_network_refuses_rows_without_targets_and_says_what_to_do():
    x = RNG.normal(size=(4, 2))
    with pytest.raises(ValueError, match=r"got -1: 2 of 4 rows have no label.*leave them out.*SemiSupervisedVAE"):
        mx.fit(mx.Model(NET, L.Categorical()), (x, np.array([0, -1, 2, -1])), I.MAP(), key=0)
    with pytest.raises(ValueError, match=r"first in row 1: 1 of 4 rows have no target.*~np.isnan\(y\)"):
        mx.fit(mx.Model(NET, L.Gaussian()), (x, np.array([0, np.nan, 2, 1.0])), I.MAP(), key=0)
    with pytest.raises(ValueError, match="a label in some row, got none"):
        mx.fit(mx.Model(NET, L.EntropyRegularised(L.Categorical())), (x, np.full(4, -1)), I.MAP(), key=0)


def test_an_autoencoder_takes_a_pair_with_missing_labels():
    vae = mx.latent.VAE(mx.nets.MLP(6, (8,), 4, key=0), mx.nets.MLP(4, (8,), 4, key=1), latent_size=2)
    model = mx.latent.SemiSupervisedVAE(vae, mx.nets.MLP(4, (8,), 2, key=2), num_labels=2)
    x, label = RNG.integers(2, size=(6, 4)), np.array([0, -1, 1, -1, -1, 0])
    expected = model.read({"x": x, "label": label})
    for given in (label, np.where(label < 0, np.nan, label)):
        found = model.read((x, given))
        np.testing.assert_array_equal(found.tree["x"], expected.tree["x"])
        np.testing.assert_array_equal(found.tree["label"], expected.tree["label"])
    posterior = mx.fit(model, (x, label), I.MAP(num_epochs=1), key=0, progress=False)
    assert posterior.classify(x).shape == (6, 2)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: L.EntropyRegularised(L.Categorical(), -1.0), ValueError, "weight must be >= 0"),
        (lambda: L.EntropyRegularised(L.NoisyLabels(L.Categorical())), TypeError, "one of classes"),
        (lambda: L.EntropyRegularised(L.EntropyRegularised(L.Categorical())), TypeError, "one of data"),
        (lambda: L.NoisyLabels(L.EntropyRegularised(L.Categorical())), TypeError, "one of data"),
        (lambda: L.ConsistencyRegularised(L.Categorical(), mx.data.Flip(), -1.0), ValueError, "weight must be >= 0"),
        (lambda: L.ConsistencyRegularised(L.Categorical(), "flip"), TypeError, "transforms must be objects"),
        (lambda: L.ConsistencyRegularised(L.Categorical(), mx.data.Flip(), 1.0, 1), ValueError, "num_views must be"),
        (lambda: L.ConsistencyRegularised(L.Categorical(), mx.data.Jitter(1.0), 1.0, None), ValueError, "not finite"),
        (
            lambda: mx.fit(
                mx.Model(NET, L.ConsistencyRegularised(L.Categorical(), mx.data.Rotate(9.0))),
                (np.zeros((4, 2)), np.array([0, 1, 2, -1])),
                I.MAP(),
                key=0,
            ),
            ValueError,
            "must hold images",
        ),
        (lambda: L.EntropyRegularised(L.Gaussian()).check(1, np.zeros(2)), ValueError, "one of classes"),
        (lambda: L.EntropyRegularised(L.Categorical()).check(2, np.zeros((2, 2))), ValueError, r"shape \(n,\)"),
        (lambda: L.EntropyRegularised(L.Categorical()).check(2, np.array([-2, 0])), ValueError, "got -2"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()

"""Averages over views inside of the likelihood: finite orbits by hand, bounds by Jensen, every method."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.nets import Augmented, Logits, Probabilities, layer_shapes, layers_in_loops

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 1, 4, 4)).astype(np.float32)
LABELS = RNG.integers(0, 3, size=20)
ORBIT = [mx.data.Flip(), mx.data.Rotations((0.0, 180.0))]  # a group of four


def _network(out_size=3, hidden=(5,)):
    return eqx.nn.Sequential([eqx.nn.Lambda(jnp.ravel), mx.nets.MLP(16, hidden, out_size, key=3)])


def _model(likelihood=None, **options):
    likelihood = mx.likelihoods.Categorical() if likelihood is None else likelihood
    return mx.Model(_network(**options), likelihood, mx.priors.Normal(1.0))


def _members(x):
    """All four flips and half turns, by NumPy."""
    return [np.rot90(y, turns, axes=(-2, -1)) for y in (x, x[..., ::-1]) for turns in (0, 2)]


def _batch(x=X, y=LABELS):
    return mx.data.FullBatch((x, y)).batch(0, key=KEY)


def _by_hand(network, x, average):
    logits = np.stack([jax.vmap(network)(jnp.asarray(member)) for member in _members(x)])
    if average == "logits":
        return np.asarray(jax.nn.log_softmax(logits.mean(0)))
    return np.log(np.asarray(jax.nn.softmax(logits)).mean(0))


# ---- finite orbits


@pytest.mark.parametrize(("average", "name"), [(Logits(), "logits"), (Probabilities(), "probabilities")])
def test_a_finite_orbit_is_that_by_hand_with_and_without_a_key(average, name):
    model = mx.augment(_model(), ORBIT, num_views=None, average=average)
    params, batch = model.initial(3), _batch()
    truth = _by_hand(_network(), X, name)
    for key in (None, KEY):
        found = eqx.filter_jit(model.log_likelihood)(params, batch, key=key)
        np.testing.assert_allclose(found, truth[np.arange(20), LABELS], atol=2e-5)
    turned = model.predictive(params, jnp.asarray(X[..., ::-1, :])).logits
    np.testing.assert_allclose(jax.nn.log_softmax(turned), truth, atol=2e-5)
    one = model.network_of(params)(jnp.asarray(X[0]))
    np.testing.assert_allclose(jax.nn.log_softmax(one), truth[0], atol=2e-5)


def test_yes_or_no_is_averaged_like_two_classes():
    model = mx.augment(_model(mx.likelihoods.Bernoulli(), out_size=1), ORBIT, num_views=None, average=Probabilities())
    logits = np.stack([jax.vmap(_network(1))(jnp.asarray(member)) for member in _members(X)])[..., 0]
    truth = np.log(np.asarray(jax.nn.sigmoid(np.where(LABELS > 0, logits, -logits))).mean(0))
    found = model.log_likelihood(model.initial(1), _batch(y=(LABELS > 0).astype(int)))
    np.testing.assert_allclose(found, truth, atol=2e-5)


def test_the_likelihood_of_all_data_counts_each_example_once():
    """Not once for each view; and a batch stands for N examples, whatever the number of views."""
    model = mx.augment(_model(), ORBIT, num_views=None)
    params = model.initial(3)
    source = mx.data.Minibatches((X, LABELS), batch_size=5)
    scaled = eqx.filter_jit(model.scaled_log_likelihood)
    parts = [float(scaled(params, source.batch(step, key=KEY))) for step in range(4)]
    truth = _by_hand(_network(), X, "logits")[np.arange(20), LABELS].sum()
    np.testing.assert_allclose(np.mean(parts), truth, rtol=1e-4)
    assert source.batch(0, key=KEY).num_examples == 20


# ---- random views


@pytest.mark.parametrize(
    "average", [Logits(), pytest.param(Probabilities(), marks=pytest.mark.slow)], ids=["logits", "probabilities"]
)
def test_random_views_bound_the_log_likelihood_and_the_bound_rises(average):
    exact = mx.augment(_model(), ORBIT, num_views=None, average=average)
    params = exact.initial(3)
    truth = float(exact.log_likelihood(params, _batch()).sum())
    bounds, errors = [], []
    for num in (1, 3):
        model = mx.augment(_model(), ORBIT, num_views=num, average=average)
        draw = jax.jit(lambda k, model=model: model.log_likelihood(params_of(model), _batch(), key=k).sum())
        values = np.asarray(jax.lax.map(draw, jax.random.split(KEY, 2000), batch_size=100))
        bounds, errors = [*bounds, values.mean()], [*errors, values.std() / np.sqrt(len(values))]
    assert bounds[0] + 4.9 * errors[0] < bounds[1] - 4.9 * errors[1]
    assert bounds[1] + 4.9 * errors[1] < truth
    if isinstance(average, Logits):  # one view: the mean over the orbit of log probabilities, which is no likelihood
        logits = np.stack([jax.vmap(_network())(jnp.asarray(member)) for member in _members(X)])
        mean = np.asarray(jax.nn.log_softmax(logits))[:, np.arange(20), LABELS].mean(0).sum()
        assert abs(bounds[0] - mean) < 4.9 * errors[0]


def params_of(model):
    return model.initial(3)


def test_examples_have_views_of_their_own_with_a_key_and_the_same_without():
    net = Augmented(_network(), mx.data.Rotate(90.0), num_views=3)
    same = jnp.asarray(np.repeat(X[:1], 5, axis=0))
    random = np.asarray(eqx.filter_jit(net.call_batch)(same, key=KEY))
    gaps = np.abs(random[:, None] - random[None]).max(-1)
    assert gaps[~np.eye(5, dtype=bool)].min() > 1e-4
    fixed = np.asarray(eqx.filter_jit(net.call_batch)(same))
    np.testing.assert_allclose(fixed, np.repeat(fixed[:1], 5, axis=0), atol=1e-6)
    np.testing.assert_allclose(fixed[0], eqx.filter_jit(net)(same[0]), atol=1e-5)
    angles = np.array([-60.0, 0.0, 60.0])
    truth = np.mean(jax.jit(jax.vmap(lambda a: _network()(mx.data.transforms.rotate(same[0], a))))(angles), axis=0)
    np.testing.assert_allclose(fixed[0], truth, atol=1e-5)


# ---- one code path for every method


METHODS = {
    "MAP": mx.infer.MAP(num_epochs=2),
    "SGHMC": mx.infer.SGHMC(num_warmup=4, num_samples=4),
    "VI": mx.infer.VI(num_epochs=2),
    "MCDropout": mx.infer.MCDropout(num_epochs=2),
    "Laplace": mx.infer.Laplace(training=mx.infer.MAP(num_epochs=2)),
    "last layer": mx.infer.Laplace(
        subset=mx.LastLayer(), structure=mx.curvature.Dense(), training=mx.infer.MAP(num_epochs=2)
    ),
}


@pytest.mark.parametrize(
    "name", [name if name == "MAP" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_predictions_of_every_method_are_invariant(name):
    model = mx.augment(_model(), ORBIT, num_views=None)
    posterior = mx.fit(model, (X, LABELS), METHODS[name], key=0)
    probs = posterior.predict(X).probs
    np.testing.assert_allclose(posterior.predict(X[..., ::-1, :].copy()).probs, probs, atol=2e-4)
    assert np.ptp(probs, axis=0).max() > 1e-3
    if name == "MAP":  # by hand: views are not forgotten in predictions
        nets = posterior.sample(1, key=0).network
        network = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, nets)
        np.testing.assert_allclose(np.log(probs), _by_hand(network, X, "logits"), atol=2e-4)


def test_layers_share_their_noise_over_views_and_get_flipout():
    net = Augmented(_network(), ORBIT, num_views=None)
    assert layer_shapes(net, (1, 4, 4), float) == [((16,), (5,)), ((5,), (3,))]
    assert layers_in_loops(net, (1, 4, 4), float) == [True, True]
    noisy = mx.nets.Perturbed(net, (mx.nets.Dropout(0.5), mx.nets.Dropout(0.5)))
    call = eqx.filter_jit(lambda x, key: noisy(x, key=key))
    for key in jax.random.split(KEY, 3):  # all of one network: a turned input has the same outputs
        one, other = (call(jnp.asarray(x), key) for x in (X[0], X[0, :, ::-1].copy()))
        np.testing.assert_allclose(one, other, atol=1e-5)


# ---- a posterior that was fitted without


@pytest.fixture(scope="module")
def plain():
    fits = {
        "draws": mx.infer.DeepEnsemble(2, mx.infer.MAP(num_epochs=3)),
        "laplace": mx.infer.Laplace(tuning=mx.infer.Evidence(), training=mx.infer.MAP(num_epochs=3)),
    }
    return {name: mx.fit(_model(), (X, LABELS), method, key=0) for name, method in fits.items()}


@pytest.mark.parametrize("name", ["draws", "laplace"])
def test_time_augmentation_of_a_posterior(name, plain, tmp_path):
    average = Probabilities() if name == "draws" else Logits()
    posterior = mx.augment(plain[name], ORBIT, num_views=None, average=average)
    probs = posterior.predict(X).probs
    np.testing.assert_allclose(posterior.predict(X[..., ::-1].copy()).probs, probs, atol=2e-4)
    if name == "draws":  # averages of probabilities over draws and views commute
        truth = np.mean([plain[name].predict(member.copy()).probs for member in _members(X)], axis=0)
        np.testing.assert_allclose(probs, truth, atol=2e-5)
    posterior.save(tmp_path / "posterior")
    loaded = mx.load(tmp_path / "posterior", model=posterior.model)
    np.testing.assert_allclose(loaded.predict(X).probs, probs, atol=1e-6)
    with pytest.raises(ValueError, match="augmented already"):
        mx.augment(posterior, ORBIT)


def test_what_cannot_be_meant_is_refused():
    real = mx.augment(_model(mx.likelihoods.Gaussian(), out_size=1), ORBIT, average=Probabilities())
    with pytest.raises(ValueError, match=r"Logits\(\) for Gaussian with 1 outputs"):
        mx.fit(real, (X, RNG.normal(size=20)), mx.infer.MAP(), key=0)
    several = mx.augment(_model(mx.likelihoods.Bernoulli()), ORBIT, average=Probabilities())
    with pytest.raises(ValueError, match=r"Logits\(\) for Bernoulli with 3 outputs"):
        mx.fit(several, (X, np.eye(3, dtype=int)[LABELS]), mx.infer.MAP(), key=0)
    with pytest.raises(ValueError, match="Rotate has no end"):
        mx.augment(_model(), mx.data.Rotate(30.0), num_views=None)
    with pytest.raises(ValueError, match="num_views must be an int >= 1"):
        mx.augment(_model(), mx.data.Rotate(30.0), num_views=0)
    with pytest.raises(TypeError, match=r"target must be an mx\.Model"):
        mx.augment(_network(), mx.data.Rotate(30.0))
    with pytest.raises(TypeError, match="transforms must be objects"):
        mx.augment(_model(), mx.data.Mixup(0.1))

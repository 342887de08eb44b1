"""Models whose targets come from the inputs: their terms by hand, every method, and their posterior as a prior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.special import log_softmax

import marginax as mx
from marginax.infer.laplace.tuning import with_factors
from marginax.self_supervised import Contrastive, MaskedReconstruction, SelfSupervised, VICReg

I = mx.infer
KEYS = jax.random.split(jax.random.key(7), 6)
RNG = np.random.default_rng(0)
OUTPUTS = RNG.normal(size=(6, 2, 4))
JITTER = mx.data.Jitter(0.1)


def network(in_size=8, size=4, out=3, key=0):
    return mx.nets.WithHead(mx.nets.MLP(in_size, (16,), size, key=key), mx.nets.MLP(size, (), out, key=key + 1))


def by_jax(objective, outputs=OUTPUTS, x=OUTPUTS):
    return np.asarray(objective.terms(jnp.asarray(outputs, jnp.float32), jnp.asarray(x, jnp.float32), KEYS))


# ---- terms by hand


def check_contrastive_terms_are_those_by_hand():
    """Each view names its partner among all other views, its own place left out."""
    right = []
    views = [(i, v) for i in range(6) for v in range(2)]

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    for i in range(6):
        each = []
        for v in range(2):
            others = [view for view in views if view != (i, v)]
            logits = np.array([cosine(OUTPUTS[i, v], OUTPUTS[other]) / 0.3 for other in others])
            each.append(log_softmax(logits)[others.index((i, 1 - v))])
        right.append(np.mean(each))
    np.testing.assert_allclose(by_jax(Contrastive(JITTER, temperature=0.3)), right, rtol=1e-4)


def test_contrastive_terms_are_those_by_hand():
    check_contrastive_terms_are_those_by_hand()


def check_a_row_that_is_in_a_batch_twice_is_no_negative_of_itself():
    """Its copy has the same key and so the same views: whether they are its own nobody can tell, and is not asked."""
    twice = np.array([0, 1, 2, 3, 4, 5, 2])
    outputs = jnp.asarray(OUTPUTS[twice], jnp.float32)
    found = np.asarray(Contrastive(JITTER, temperature=0.3).terms(outputs, outputs, KEYS[twice]))
    np.testing.assert_allclose(found[2], found[6], rtol=1e-5)
    np.testing.assert_allclose(found[2], by_jax(Contrastive(JITTER, temperature=0.3))[2], rtol=1e-4)
    alike = jnp.ones((7, 2, 4))
    found = np.asarray(Contrastive(JITTER).terms(alike, alike, KEYS[twice]))
    np.testing.assert_allclose(found[[0, 2, 6]], -np.log([13, 11, 11]), rtol=1e-5)


def test_a_row_that_is_in_a_batch_twice_is_no_negative_of_itself():
    check_a_row_that_is_in_a_batch_twice_is_no_negative_of_itself()


def test_what_nobody_can_tell_apart_is_worth_the_log_of_the_number_of_others():
    alike = np.ones((6, 2, 4))
    np.testing.assert_allclose(by_jax(Contrastive(JITTER), alike), -np.log(11), rtol=1e-5)


def check_vicreg_terms_are_those_by_hand():
    right = -3.0 * np.array([np.sum((one - other) ** 2) for one, other in OUTPUTS])
    for view in range(2):
        covariance = np.cov(OUTPUTS[:, view].T)
        short = [max(0.0, 1 - np.sqrt(covariance[j, j] + 1e-4)) for j in range(4)]
        both = sum(covariance[i, j] ** 2 for i in range(4) for j in range(4) if i != j)
        right -= 5.0 * np.mean(short) + 2.0 * both / 4
    np.testing.assert_allclose(by_jax(VICReg(JITTER, 3.0, 5.0, 2.0)), right, rtol=1e-4)


def test_vicreg_terms_are_those_by_hand():
    check_vicreg_terms_are_those_by_hand()


@pytest.mark.parametrize(("fraction", "patch", "num"), [(0.5, None, 32), (0.3, None, 19), (0.75, 4, 48)])
def test_masks_hide_as_many_entries_as_they_say(fraction, patch, num):
    hidden = np.asarray(MaskedReconstruction(fraction, patch).hidden((1, 8, 8), KEYS))
    assert (hidden.reshape(6, -1).sum(1) == num).all()
    assert len({row.tobytes() for row in hidden}) > 1
    if patch:
        blocks = hidden.reshape(6, 2, 4, 2, 4).sum((2, 4))
        assert set(np.unique(blocks)) == {0, 16}


def check_reconstruction_is_scored_behind_the_mask_alone():
    objective = MaskedReconstruction(0.5, scale=0.3)
    x, outputs = RNG.normal(size=(6, 8)), RNG.normal(size=(6, 1, 8))
    hidden = np.asarray(objective.hidden((8,), KEYS))
    right = np.where(hidden, stats.norm(outputs[:, 0], 0.3).logpdf(x), 0.0).sum(1)
    np.testing.assert_allclose(by_jax(objective, outputs, x), right, rtol=1e-4)
    seen = np.asarray(objective.inputs(jnp.asarray(x, jnp.float32), KEYS))[:, 0]
    np.testing.assert_allclose(seen, np.where(hidden, 0.0, x), rtol=1e-6)


def test_reconstruction_is_scored_behind_the_mask_alone():
    check_reconstruction_is_scored_behind_the_mask_alone()


# ---- the model


OTHERS = ("vi", "sghmc", "ensemble")
X = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 8))  # three causes of eight numbers
OBJECTIVES = {
    "contrastive": (Contrastive(JITTER), 3),
    "vicreg": (VICReg(JITTER), 3),
    "masked": (MaskedReconstruction(0.3, scale=0.5), 8),
}
METHODS = {
    "map": I.MAP(num_epochs=60, batch_size=20),
    "ensemble": I.DeepEnsemble(2, I.MAP(num_epochs=20, batch_size=20)),
    "vi": I.VI(num_epochs=20, batch_size=20),
    "sghmc": I.SGHMC(num_warmup=40, num_samples=10, thin=2, batch_size=20, training=I.MAP(num_epochs=10)),
    "swag": I.SWAG(training=I.MAP(num_epochs=10, batch_size=20)),
    "hmc": I.HMC(num_warmup=5, num_samples=5),
}


def model_of(name):
    objective, out = OBJECTIVES[name]
    return SelfSupervised(network(out=out), objective, mx.priors.Normal(1.0))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_batch_stands_for_all_rows(name):
    """N / B times the terms of the batch; and the prior once."""
    model = model_of(name)
    source = mx.data.Minibatches(mx.data.Rows(X.astype(np.float32)), 20)
    batch, params = source.batch(0, key=jax.random.key(0)), model.init(source)
    terms = eqx.filter_jit(model.log_likelihood)(params, batch, key=KEYS[0])
    total = eqx.filter_jit(model.log_density)(params, batch, key=KEYS[0])
    np.testing.assert_allclose(total, model.core.log_prior(params) + 3.0 * jnp.sum(terms), rtol=1e-4)


def test_rows_of_a_large_batch_are_all_compared():
    """Without a key, too, where sums over rows of other models are cut into blocks."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=(8200, 1)), jnp.float32)
    net = mx.nets.MLP(1, (), 2, key=0)
    model = SelfSupervised(net, VICReg(JITTER, 0.0, 1.0, 0.0))
    batch = mx.data.FullBatch(mx.data.Rows(np.asarray(x))).batch(0, key=KEYS[0])
    params = model.init(mx.data.FullBatch(mx.data.Rows(np.asarray(x))))
    terms = model.log_likelihood(params, batch)
    assert float(jnp.ptp(terms)) == 0.0  # of the batch, and not of the row
    np.testing.assert_allclose(model.scaled_log_likelihood(params, batch), 8200 * terms[0], rtol=1e-5)


def test_views_are_drawn_by_key_or_by_the_rows_of_the_batch():
    model = model_of("contrastive")
    source = mx.data.Minibatches(mx.data.Rows(X.astype(np.float32)), 20)
    params = model.init(source)
    value = eqx.filter_jit(lambda batch, key: jnp.sum(model.log_likelihood(params, batch, key=key)))
    first, second = (source.batch(step, key=jax.random.key(0)) for step in (0, 3))
    assert float(value(first, KEYS[0])) == float(value(first, KEYS[0])) != float(value(first, KEYS[1]))
    assert float(value(first, None)) == float(value(first, None))
    views = [model.objective.inputs(jnp.zeros((20, 8)), keys) for keys in _row_keys(first, second)]
    assert not np.intersect1d(*views).size


def _row_keys(*batches):
    from marginax._kernels.random import derive
    from marginax.self_supervised.model import _key_of

    for batch in batches:
        yield jax.vmap(lambda row, index=batch.index: derive(_key_of(index), row))(batch.index)


SLOW = {(m, o) for m in METHODS for o in OBJECTIVES} - {("map", "contrastive"), ("map", "masked"), ("vi", "vicreg")}


@pytest.mark.parametrize(
    ("method", "name"),
    [pytest.param(m, o, marks=pytest.mark.slow if (m, o) in SLOW else ()) for m in METHODS for o in OBJECTIVES],
)
def test_every_method_learns_from_inputs_alone(method, name, tmp_path):
    model = model_of(name)
    posterior = mx.fit(model, X, METHODS[method], key=0, progress=False, num_chains=1 if method != "ensemble" else None)
    trained = posterior.network()
    assert trained.body(jnp.zeros(8)).shape == (4,)
    batch = mx.data.FullBatch(mx.data.Rows(X.astype(np.float32))).batch(0, key=KEYS[0])
    value = eqx.filter_jit(lambda params: jnp.mean(model.log_likelihood(params, batch, key=KEYS[1])))
    initial = model.core.initial(3)
    start = value(initial)
    found = value(model.with_weights(initial, eqx.filter(trained, model.core.is_random())))
    assert float(found) > float(start)
    assert any("no likelihood of data" in text for text in posterior.summary().warnings)
    with pytest.raises(TypeError, match="nothing about new data"):
        posterior.predict(X)
    posterior.save(tmp_path / "run")
    again = mx.load(tmp_path / "run").network()
    np.testing.assert_array_equal(again(jnp.ones(8)), trained(jnp.ones(8)))


@pytest.mark.slow
def test_an_ensemble_starts_its_networks_apart():
    posterior = mx.fit(model_of("contrastive"), X, METHODS["ensemble"], key=0, progress=False)
    one, other = np.asarray(posterior.params.network.body.layers[0].weight)[:, 0]
    assert np.abs(one - other).mean() > 0.05


# ---- the posterior as prior


def test_the_body_has_the_posterior_as_prior_and_the_head_its_own():
    """Log densities of a classifier's weights by hand; what the old head had does not matter."""
    posterior = mx.fit(model_of("contrastive"), X, I.VI(num_epochs=2, batch_size=20), key=0, progress=False)
    old = mx.priors.FromPosterior(posterior, scale=3.0)
    prior = mx.priors.ByPath({"head/*": mx.priors.Normal(2.0)}, default=old)
    assert prior.has_centre
    assert prior.varies_within("body/layers/0/weight")  # so that Kronecker factors, which would average it, refuse
    assert not prior.varies_within("head/layers/0/weight")
    net = mx.nets.WithHead(posterior.network().body, mx.nets.MLP(4, (), 5, key=9))
    model = mx.Model(net, mx.likelihoods.Categorical(), prior)
    params = model.initial(5)
    moved = eqx.tree_at(lambda p: p.network, params, jax.tree.map(lambda leaf: leaf + 0.1, params.network))
    deviations = ravel_pytree(posterior.mean)[1](jnp.sqrt(posterior.covariance.variances()))
    mean, scales = posterior.mean.network.body, deviations.network.body
    right = sum(
        stats.norm(m, 3.0 * s).logpdf(np.asarray(m) + 0.1).sum()
        for m, s in zip(jax.tree.leaves(mean), jax.tree.leaves(scales), strict=True)
    )
    right += sum(
        stats.norm(0, 2.0).logpdf(np.asarray(leaf) + 0.1).sum() for leaf in jax.tree.leaves(params.network.head)
    )
    np.testing.assert_allclose(model.log_prior(moved), right, rtol=1e-4)
    data = (RNG.normal(size=(30, 8)), np.arange(30) % 5)
    kronecker = I.Laplace(structure=mx.curvature.Kronecker(), subset=mx.LastLayer())
    last = mx.fit(model, data, kronecker, key=0, progress=False)  # what varies is not in the last layer
    assert np.isfinite(last.predict(data[0]).probs).all()
    with pytest.raises(ValueError, match="ByPath differ within body"):
        mx.fit(model, data, I.Laplace(structure=mx.curvature.Kronecker()), key=0, progress=False)


def test_a_prior_with_a_centre_in_a_part_is_not_rescaled_about_zero():
    """Tuning the precision of a part that lies around given weights would pull them to zero."""
    net = network()
    prior = mx.priors.ByPath({"head/*": mx.priors.Normal(1.0)}, default=mx.priors.FromPosterior(net, scale=0.1))
    assert prior.has_centre
    assert not prior.varies_within("body/layers/0/weight")
    assert not mx.priors.ByPath({"*": mx.priors.Normal(1.0)}).has_centre
    with pytest.raises(ValueError, match="has a width of its own: give FromPosterior scale="):
        with_factors(mx.Model(net, mx.likelihoods.Categorical(), prior), jnp.zeros(6))


def test_few_labels_are_enough_for_a_head_on_features_without_labels():
    """The class is which of two clusters a row is from; views keep the cluster, and most entries are noise."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 400)
    x = np.concatenate(
        [1.5 * (2 * y[:, None] - 1) + 0.3 * rng.normal(size=(400, 1)), rng.normal(size=(400, 7))], axis=1
    )
    noise = mx.data.Jitter([0.1, *[2.0] * 7])
    pretraining = SelfSupervised(network(), Contrastive(noise))
    trained = mx.fit(pretraining, x, I.MAP(num_epochs=100, batch_size=100), key=0, progress=False).network()
    net = mx.nets.WithHead(trained.body, mx.nets.MLP(4, (), 2, key=5))
    prior = mx.priors.ByPath({"head/*": mx.priors.Normal(1.0)}, default=mx.priors.FromPosterior(net, scale=0.02))
    few, scores = np.concatenate([np.flatnonzero(y == k)[:4] for k in (0, 1)]), []
    for each in (prior, mx.priors.Normal(mx.priors.FanIn(1.0))):
        model = mx.Model(net if each is prior else network(out=2, key=8), mx.likelihoods.Categorical(), each)
        posterior = mx.fit(model, (x[few], y[few]), I.MAP(num_epochs=1000), key=0, progress=False)
        scores.append(float(posterior.predict(x).log_prob(y).mean()))
    assert scores[0] > -0.2 > -0.5 > scores[1]  # eight labels do not say which entry matters


def test_last_layers_and_regression_in_closed_form_take_the_features():
    trained = mx.fit(model_of("vicreg"), X, METHODS["map"], key=0, progress=False).network()
    net = mx.nets.WithHead(trained.body, mx.nets.MLP(4, (), 1, key=2))
    y = X[:, 0] + 0.1 * RNG.normal(size=60)
    model = mx.Model(net, mx.likelihoods.Gaussian(0.1), mx.priors.Normal(1.0), subset=mx.Paths("head/*"))
    posterior = mx.fit(model, (X, y), I.Laplace(mx.curvature.Dense(), training=I.MAP(num_epochs=400)), key=0)
    features = np.append(np.asarray(trained.body.call_batch(jnp.asarray(X, jnp.float32))), np.ones((60, 1)), axis=1)
    covariance = np.linalg.inv(features.T @ features / 0.01 + np.eye(5))
    right = np.einsum("ni,ij,nj->n", features, covariance, features)
    np.testing.assert_allclose(posterior.predict(X).epistemic, right, rtol=2e-2)


# ---- what cannot be meant


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Contrastive(JITTER, temperature=0.0), ValueError, "temperature must be > 0"),
        (lambda: Contrastive("flip"), TypeError, "transforms must be objects"),
        (lambda: VICReg(JITTER, variance=-1.0), ValueError, "variance must be >= 0"),
        (lambda: MaskedReconstruction(1.0), ValueError, r"fraction must be in \(0, 1\)"),
        (lambda: MaskedReconstruction(patch=0), ValueError, "patch must be an int >= 1"),
        (lambda: MaskedReconstruction(scale=0.0), ValueError, "scale must be > 0"),
        (lambda: SelfSupervised(network(), "contrastive"), TypeError, "objective must be such as"),
        (lambda: mx.nets.WithHead(network(), 3), TypeError, "network must be"),
        (lambda: mx.fit(model_of("vicreg"), (X, X[:, 0]), "map", key=0), TypeError, r"pass x and not \(x, y\)"),
        (lambda: mx.fit(model_of("vicreg"), X[:, 0], "map", key=0), ValueError, r"shape \(n, features\)"),
        (lambda: mx.fit(model_of("vicreg"), X, I.MAP(batch_size=1), key=0), ValueError, "batch_size must be >= 2"),
        (lambda: mx.fit(model_of("vicreg"), X[:, :7], "map", key=0), ValueError, "network cannot be called"),
        (
            lambda: mx.fit(SelfSupervised(network(), MaskedReconstruction()), X, "map", key=0),
            ValueError,
            "an output for each of the 8 entries",
        ),
        (
            lambda: mx.fit(SelfSupervised(network(out=8), MaskedReconstruction(patch=2)), X, "map", key=0),
            ValueError,
            "multiples of patch=2",
        ),
        (
            lambda: mx.fit(SelfSupervised(network(), Contrastive(mx.data.Rotate(9.0))), X, "map", key=0),
            ValueError,
            "must hold images",
        ),
        (lambda: mx.fit(model_of("vicreg"), X, "laplace", key=0), TypeError, "needs the layers of a network"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()

"""Pruning: the weights with the lowest signal-to-noise ratio go, exactly those, and the table says what that costs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import marginax as mx
from marginax.curvature import (
    BlockCovariance,
    DenseCovariance,
    DiagonalCovariance,
    FixedCovariance,
    KroneckerCovariance,
    LowRankCovariance,
)
from marginax.data import DataSpec
from marginax.decide import compact, prune, signal_to_noise
from marginax.posterior import Draws, Gaussian, Mixture, Stochastic

SIZE = 17  # weights of the network below; the noise level is one more unknown
SPEC = DataSpec(x_shape=(2,), y_shape=(), num_examples=30)
MODEL = mx.Model(mx.nets.MLP(2, (4,), 1, key=0), mx.likelihoods.Gaussian())


def _covariance(kind):
    rng = np.random.default_rng(1)
    scale = jnp.asarray(rng.uniform(0.2, 0.4, SIZE + 1), jnp.float32)
    if kind == "diagonal":
        return DiagonalCovariance(scale)
    if kind == "low rank":
        return LowRankCovariance(scale, jnp.asarray(0.3 * rng.normal(size=(SIZE + 1, 2)), jnp.float32))
    if kind == "dense":
        root = 0.1 * np.tril(rng.normal(size=(SIZE + 1, SIZE + 1))) + 0.2 * np.eye(SIZE + 1)
        return DenseCovariance(jnp.asarray(root, jnp.float32))
    return BlockCovariance(
        (_kronecker(rng, 4, 2), _kronecker(rng, 4, 1), DiagonalCovariance(scale[:5]), FixedCovariance(1))
    )


def _kronecker(rng, rows, columns):
    left, right = (
        jnp.asarray(stats.ortho_group(n).rvs(random_state=rng) if n > 1 else [[1.0]]) for n in (rows, columns)
    )
    return KroneckerCovariance(left, right, jnp.asarray(rng.uniform(0.1, 0.4, (rows, columns)), jnp.float32))


def _mean(seed=0):
    flat = np.random.default_rng(seed).normal(size=SIZE + 1)
    return ravel_pytree(MODEL.initial(1))[1](jnp.asarray(flat, jnp.float32))


def _posterior(kind):
    if kind == "draws":
        rng = np.random.default_rng(0)
        params = jax.tree.map(lambda leaf: leaf + 0.5 * rng.normal(size=(2, 5, *leaf.shape)).astype("f4"), _mean())
        return Draws(MODEL, jax.tree.map(np.asarray, params), SPEC)
    if kind == "mixture":
        parts = [Gaussian(MODEL, _mean(seed), _covariance("dense"), SPEC) for seed in (0, 1)]
        return Mixture([*parts, _posterior("draws")], weights=np.array([0.2, 0.5, 0.3]))
    if kind == "linearised":
        return Gaussian(MODEL, _mean(), _covariance("blocks"), SPEC, predictive=mx.predict.Linearised())
    return Gaussian(MODEL, _mean(), _covariance(kind), SPEC)


COVARIANCES = ["diagonal", "low rank", "dense", "blocks"]
KINDS = [*COVARIANCES, "draws", "mixture", "linearised"]


def _weights(network):
    """Rows of weights from stacked networks; of linearised ones, where their steps lead."""
    if isinstance(network, mx.predict.LinearisedNetwork):
        network = jax.tree.map(jnp.add, eqx.filter(network.network, eqx.is_array), network.step)
    leaves = jax.tree.leaves(eqx.filter(network, eqx.is_array))
    return np.concatenate([np.reshape(leaf, (leaf.shape[0], -1)) for leaf in leaves], axis=1)


def _flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def _lowest(posterior, num):
    """By hand, from moments written out."""
    if isinstance(posterior, Draws):
        draws = _weights(posterior.flat().network)
        ratio = np.abs(draws.mean(axis=0)) / draws.std(axis=0)
    else:
        ratio = np.abs(_flat(posterior.mean.network)) / np.sqrt(np.diag(posterior.covariance.dense())[:SIZE])
    return np.argsort(ratio)[:num]


# ---- which weights


def test_signal_to_noise_is_mean_over_scale_in_the_shape_of_the_network():
    posterior = _posterior("diagonal")
    ratio = signal_to_noise(posterior)
    expected = np.abs(_flat(posterior.mean.network)) / np.asarray(posterior.covariance.scale)[:SIZE]
    assert ratio.layers[0].weight.shape == (4, 2)
    np.testing.assert_allclose(_flat(ratio), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mixture"])
def test_the_lowest_ratios_are_removed_in_every_draw_and_no_others(kind):
    posterior = _posterior(kind)
    drawn = _weights(prune(posterior, 0.5).posterior.sample(50, key=0))
    removed = np.zeros(SIZE, bool)
    removed[_lowest(posterior, 8)] = True  # half of 17, rounded
    assert (drawn[:, removed] == 0).all()
    assert (drawn[:, ~removed] != 0).all()


def test_each_component_of_a_mixture_loses_its_own_lowest():
    posterior = _posterior("mixture")
    pruned = prune(posterior, 0.75).posterior
    assert np.array_equal(pruned.weights, posterior.weights)
    assert ((_weights(pruned.sample(60, key=0)) == 0).sum(axis=1) == 13).all()
    for before, after in zip(posterior.components, pruned.components, strict=True):
        drawn = _weights(after.sample(5, key=0))
        assert set(np.flatnonzero((drawn == 0).all(axis=0))) == set(_lowest(before, 13))


@pytest.mark.parametrize("fraction", [0, 0.1, 0.29, 0.5, 0.98])
def test_the_count_is_exact_and_ties_go_in_order(fraction):
    mean = jax.tree.map(jnp.ones_like, _mean())
    pruned = prune(Gaussian(MODEL, mean, DiagonalCovariance(jnp.ones(SIZE + 1))), fraction).posterior
    num = round(fraction * SIZE)
    assert _flat(pruned.mean.network).tolist() == [0.0] * num + [1.0] * (SIZE - num)
    assert float(pruned.covariance.scale[-1]) == 1.0  # the noise level is no weight


@pytest.mark.parametrize("kind", KINDS)
def test_pruning_twice_is_pruning_once(kind):
    posterior = _posterior(kind)
    once, twice = prune(posterior, 0.75).posterior, prune(prune(posterior, 0.4).posterior, 0.75).posterior
    assert np.array_equal(_weights(once.sample(20, key=0)), _weights(twice.sample(20, key=0)))


def test_a_weight_without_spread_goes_last_and_a_removed_one_first():
    mean = ravel_pytree(MODEL.initial(1))[1](jnp.linspace(0.0, 1.0, SIZE + 1))
    scale = jnp.ones(SIZE + 1).at[:2].set(0.0)
    ratio = _flat(signal_to_noise(Gaussian(MODEL, mean, DiagonalCovariance(scale))))
    assert ratio[0] == 0
    assert ratio[1] == np.inf
    assert np.isfinite(ratio[2:]).all()


def test_only_random_weights_count():
    model = mx.Model(mx.nets.MLP(2, (4,), 1, key=0), mx.likelihoods.Gaussian(0.1), subset=mx.LastLayer())
    posterior = Gaussian(model, model.initial(1), DiagonalCovariance(jnp.ones(5)), SPEC)
    pruning = prune(posterior, 0.8, (np.ones((3, 2)), np.ones(3)), fractions=())
    assert [row.num_weights for row in pruning.table] == [1]
    nets = pruning.posterior.sample(3, key=0)
    assert (np.asarray(nets.layers[0].weight) == np.asarray(model.network.layers[0].weight)).all()


# ---- what becomes of the others


@pytest.mark.parametrize("kind", COVARIANCES)
def test_the_others_keep_their_distribution(kind):
    posterior = _posterior(kind)
    pruned = prune(posterior, 0.5).posterior
    kept = np.append(_flat(pruned.mean.network) != 0, True)
    before, after = np.asarray(posterior.covariance.dense()), np.asarray(pruned.covariance.dense())
    np.testing.assert_allclose(after, before * np.outer(kept, kept), rtol=1e-6)
    drawn, same = (_weights(p.sample_params(30, key=jax.random.key(3)).network) for p in (posterior, pruned))
    np.testing.assert_allclose(same, drawn * kept[:-1], rtol=1e-6)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_variances_are_the_diagonal_of_the_matrix(kind):
    covariance = _covariance(kind)
    np.testing.assert_allclose(covariance.variances(), np.diag(covariance.dense()), rtol=1e-5)
    kept = covariance.keep(jnp.arange(SIZE + 1) % 3 > 0)
    np.testing.assert_allclose(kept.variances(), np.diag(kept.dense()), rtol=1e-5)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_the_density_is_the_marginal_one(kind):
    covariance = _covariance(kind)
    kept = np.arange(SIZE + 1) % 3 > 0
    at = np.linspace(-0.3, 0.3, SIZE + 1)
    inside = kept & (np.diag(covariance.dense()) > 0)
    matrix = np.asarray(covariance.dense(), np.float64)[np.ix_(inside, inside)]
    expected = stats.multivariate_normal(np.zeros(inside.sum()), matrix).logpdf(at[inside])
    found = covariance.keep(jnp.asarray(kept)).log_prob(jnp.asarray(at, jnp.float32))
    np.testing.assert_allclose(float(found), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["diagonal", "low rank", "Kronecker"])
def test_half_a_million_weights_need_no_matrix(kind):
    model = mx.Model((jnp.ones((700, 715)), lambda w, x: w @ x), mx.likelihoods.Gaussian(0.1))
    scale = jnp.linspace(1.0, 2.0, 700 * 715)
    covariance = {
        "diagonal": lambda: DiagonalCovariance(scale),
        "low rank": lambda: LowRankCovariance(scale, 0.1 * jnp.ones((scale.size, 2))),
        "Kronecker": lambda: BlockCovariance(
            (KroneckerCovariance(jnp.eye(700), jnp.eye(715), scale.reshape(700, 715)),)
        ),
    }[kind]()
    pruned = prune(Gaussian(model, model.initial(700), covariance), 0.75).posterior
    drawn = _weights(pruned.sample_params(1, key=jax.random.key(0)).network)[0]
    assert (drawn[:125_125] != 0).all()
    assert (drawn[125_125:] == 0).all()


# ---- what it costs


def _data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    return x, x[:, 0] + 0.1 * rng.normal(size=30)


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_says_what_the_pruned_posteriors_predict(kind):
    x, y = _data()
    posterior = _posterior(kind)
    pruning = prune(posterior, 0.5, (x, y), fractions=(0.25, 0.0))
    assert [(row.fraction, row.num_weights) for row in pruning.table] == [(0.0, 17), (0.25, 13), (0.5, 9)]
    for row, by_hand in ((pruning.table[0], posterior), (pruning.table[2], pruning.posterior)):
        prediction = by_hand.predict(x)
        np.testing.assert_allclose(row.nll, -prediction.log_prob(y).mean(), rtol=1e-5)
        np.testing.assert_allclose(row.error, np.sqrt(np.mean((prediction.mean - y) ** 2)), rtol=1e-5)
    assert len(str(pruning).splitlines()) == 4


def test_the_error_of_classes_is_the_rate_of_wrong_ones():
    model = mx.Model(mx.nets.MLP(2, (), 2, key=0), mx.likelihoods.Categorical())
    mean = ravel_pytree(model.initial(2))[1](jnp.array([-3.0, 0.1, 3.0, 0.1, 0.0, 0.0]))  # label 1 where x0 > 0
    posterior = Gaussian(model, mean, DiagonalCovariance(jnp.full(6, 0.01)), SPEC)
    x = np.array([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]])
    pruning = prune(posterior, 0.66, (x, np.array([1, 0, 0, 0])), fractions=())
    assert [(row.num_weights, row.error) for row in pruning.table] == [(2, 0.25)]


def test_there_is_no_table_without_data():
    assert prune(_posterior("diagonal"), 0.5).table == ()


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_the_same_after_saving(kind, tmp_path):
    x, _ = _data()
    pruned = prune(_posterior(kind), 0.6).posterior
    pruned.save(tmp_path / "pruned")
    loaded = mx.load(tmp_path / "pruned")
    assert np.array_equal(loaded.predict(x).mean, pruned.predict(x).mean)
    again = [prune(each, 0.8).posterior for each in (pruned, loaded)]
    assert np.array_equal(again[0].predict(x).std, again[1].predict(x).std)


# ---- fits


@pytest.fixture(scope="module")
def variational():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6))
    data = x, 2 * x[:, 0] - x[:, 1] + 0.1 * rng.normal(size=200)
    model = mx.Model(mx.nets.MLP(6, (), 1, key=0), mx.likelihoods.Gaussian(scale=0.1))
    return mx.fit(model, data, mx.infer.VI(num_epochs=300, optimiser=mx.infer.Adam(0.05)), key=0), data


def test_inputs_that_say_nothing_are_removed_at_little_cost(variational):
    posterior, data = variational
    pruning = prune(posterior, 5 / 7, data, fractions=(0, 6 / 7))  # five of seven: four inputs and the bias
    weight = np.asarray(pruning.posterior.mean.network.layers[0].weight)[0]
    assert (weight[:2] != 0).all()
    assert (weight[2:] == 0).all()
    whole, right, too_many = (row.error for row in pruning.table)
    assert right < 1.1 * whole < 0.3 * too_many


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [mx.infer.IVON(num_epochs=2), mx.infer.Laplace(), mx.infer.DeepEnsemble(3)], ids=repr
)
def test_posteriors_of_other_methods_can_be_pruned(method, variational):
    x, y = variational[1]
    model = mx.Model(mx.nets.MLP(6, (), 1, key=0), mx.likelihoods.Gaussian())
    posterior = mx.fit(model, (x, y), method, init=variational[0].model.network, key=0)
    pruning = prune(posterior, 4 / 7, (x, y), fractions=(0,))
    assert ((_weights(pruning.posterior.sample(10, key=0)) == 0).sum(axis=1) == 4).all()
    assert np.isfinite([row.nll for row in pruning.table]).all()


# ---- smaller networks


def _three_layers(kind):
    """Unit 1 of the first hidden layer leads only to unit 0 of the second, from which nothing leads on."""
    model = mx.Model(mx.nets.MLP(2, (3, 2), 1, activation=jnp.tanh, key=0), mx.likelihoods.Gaussian(0.1))
    params = jax.tree.map(lambda leaf: leaf + 0.3, model.initial(1))
    weights = [layer.weight for layer in params.network.layers]
    kept = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), params)
    masks = (jnp.ones_like(weights[1], bool).at[1, 1].set(False), jnp.array([[False, True]]))
    kept = eqx.tree_at(lambda p: tuple(layer.weight for layer in p.network.layers[1:]), kept, masks)
    params = jax.tree.map(lambda leaf, mask: jnp.where(mask, leaf, 0.0), params, kept)
    flat = ravel_pytree(kept)[0]
    if kind == "draws":
        noise = DiagonalCovariance(0.2 * flat).sample(jax.random.key(0), 8)
        draws = jax.vmap(lambda n: jax.tree.map(jnp.add, params, ravel_pytree(params)[1](n)))(noise)
        return Draws(model, jax.tree.map(lambda leaf: leaf.reshape(2, 4, *leaf.shape[1:]), draws), SPEC)
    return Gaussian(model, params, DiagonalCovariance(0.2 * flat), SPEC)


@pytest.mark.parametrize("kind", ["draws", "diagonal"])
@pytest.mark.slow
def test_compacting_leaves_out_units_that_lead_nowhere_and_changes_no_prediction(kind, tmp_path):
    posterior = _three_layers(kind)
    small = compact(posterior)
    assert [layer.weight.shape for layer in small.model.network.layers] == [(2, 2), (1, 2), (1, 1)]
    x, _ = _data()
    num = None if kind == "draws" else 4000
    before, after = posterior.predict(x, num_samples=num), small.predict(x, num_samples=num)
    tolerance = 1e-5 if kind == "draws" else 0.08 * float(before.std.max())  # other draws of the same distribution
    np.testing.assert_allclose(after.mean, before.mean, atol=tolerance)
    np.testing.assert_allclose(after.std, before.std, atol=tolerance)
    small.save(tmp_path / "small")
    assert np.array_equal(mx.load(tmp_path / "small").predict(x).mean, small.predict(x).mean)


@pytest.mark.slow
def test_compacting_leaves_the_outputs_of_the_mean_as_they_are():
    posterior = _three_layers("diagonal")
    small = compact(posterior)
    x = jnp.asarray(_data()[0], jnp.float32)
    outputs = (each.model.output(each.mean, x) for each in (posterior, small))
    np.testing.assert_allclose(*outputs, rtol=1e-5)
    assert small.covariance.size == 2 * 2 + 2 + 2 + 1 + 1 + 1


def test_compacting_what_is_not_pruned_changes_nothing():
    posterior = _posterior("diagonal")
    assert eqx.tree_equal(compact(posterior), posterior)


def test_a_layer_keeps_a_unit_when_all_weights_are_removed():
    small = compact(prune(_posterior("diagonal"), 0.99).posterior)
    assert [layer.weight.shape for layer in small.model.network.layers] == [(1, 2), (1, 1)]


# ---- errors


def _point():
    return Draws(MODEL, jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], _mean()), SPEC)


@pytest.mark.parametrize(
    ("posterior", "match"),
    [
        (_point, "got a single network"),
        (lambda: Stochastic(MODEL, jax.tree.map(lambda leaf: leaf[None], _mean()), ()), "posterior must say how sure"),
        (lambda: Mixture([_posterior("draws"), _point()]), "got a single network"),
    ],
    ids=["point", "stochastic", "mixture"],
)
def test_a_posterior_that_does_not_know_its_spread_is_refused(posterior, match):
    with pytest.raises(TypeError, match=match):
        prune(posterior(), 0.5)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"fraction": 1.0}, r"fraction must be in \[0, 1\), got 1.0"),
        ({"fraction": -0.1}, "fraction must be in"),
        ({"fractions": (0.5, 2)}, "fractions must be in"),
        ({"data": (np.ones((3, 2)), np.ones(3), 1)}, "data must be a pair"),
        ({"data": (np.ones((3, 2)), np.ones((3, 1)))}, "y must have shape"),
    ],
)
def test_bad_arguments_are_refused(changes, match, as_users_run):
    with pytest.raises(ValueError, match=match):
        prune(_posterior("diagonal"), **{"fraction": 0.5, **changes})


def test_what_cannot_be_compacted_exactly_is_refused():
    with pytest.raises(TypeError, match="diagonal covariance"):
        compact(_posterior("dense"))
    with pytest.raises(TypeError, match="diagonal covariance"):
        compact(_posterior("mixture"))
    normed = mx.Model(mx.nets.MLP(2, (4,), 1, norm=eqx.nn.LayerNorm, key=0), mx.likelihoods.Gaussian(0.1))
    with pytest.raises(TypeError, match=r"mx\.nets\.MLP without norm"):
        compact(Gaussian(normed, normed.initial(1), DiagonalCovariance(jnp.ones(25))))
    local = mx.Model(MODEL.network, mx.likelihoods.Gaussian(0.1), mx.priors.Horseshoe())
    start = local.initial(1)
    with pytest.raises(ValueError, match="prior without unknowns for single weights"):
        compact(Gaussian(local, start, DiagonalCovariance(jnp.ones(ravel_pytree(start)[0].size))))

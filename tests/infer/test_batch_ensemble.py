"""BatchEnsemble: what is maximised, the exact case, members as networks, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax import testing
from marginax.data import Batch
from marginax.infer import MAP, Adam, BatchEnsemble
from marginax.posterior import Draws

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)).astype(np.float32)
Y = np.sin(2 * X[:, 0]).astype(np.float32)


def curve_model(scale: float = 0.2) -> mx.Model:
    return mx.Model(mx.nets.MLP(2, (8, 7), 1, key=0), mx.likelihoods.Gaussian(scale))


def started(method, model=None, rows: int = 12, num_examples: int = 60):
    """A state before the first step, and a batch."""
    model = curve_model() if model is None else model
    batch = Batch((jnp.asarray(X[:rows]), jnp.asarray(Y[:rows])), jnp.arange(rows), num_examples)
    return model, method.init(model, model.initial(1), batch, key=KEY), batch


def test_views_of_a_row_are_not_compared_between_members():
    likelihood = mx.likelihoods.ConsistencyRegularised(mx.likelihoods.Categorical(), mx.data.Jitter(1.0))
    model = mx.Model(mx.nets.MLP(2, (4,), 2, key=0), likelihood)
    for method in (BatchEnsemble(), mx.infer.Rank1VI(), mx.infer.MIMO()):
        with pytest.raises(ValueError, match=rf"must not compare views for {type(method).__name__}.*DeepEnsemble"):
            mx.fit(model, (X, (Y > 0).astype(int)), method, key=0)


def check_ridge(num_epochs: int = 6000):
    """Rows are there three times in a row, so that every member sees each of them in every step."""
    problem = testing.linear_layer(3, num_examples=20, condition_number=5.0)
    x, y = np.repeat(problem.x, 3, axis=0), np.repeat(problem.y, 3)
    design = np.concatenate([x, np.ones((60, 1))], axis=1) / problem.noise_scale
    precision = design.T @ design + np.eye(4)
    ridge = np.linalg.solve(precision, design.T @ y / problem.noise_scale)
    method = BatchEnsemble(num_members=3, num_epochs=num_epochs, batch_size=None, optimiser=Adam(0.01))
    posterior = mx.fit(problem.model, (x, y), method, key=0)
    layer = posterior.params.network.layers[0]
    found = np.concatenate([layer.weight[0, :, 0], layer.bias[0]], axis=1)
    spread = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert (np.abs(found - ridge) < 0.01 * spread).all(), np.abs(found - ridge) / spread
    return posterior, problem


def test_on_a_linear_network_every_member_is_ridge_regression():
    """The prior is that of the weights that members have in the end, and data count once."""
    posterior, problem = check_ridge()
    truth = problem.predictive(problem.x_new)
    assert (posterior.predict(problem.x_new).epistemic < 1e-3 * truth.epistemic).all()


def test_what_is_maximised_is_the_mean_of_the_members_log_densities():
    method = BatchEnsemble(num_members=4)
    model, state, batch = started(method)  # a fifth of the rows
    members = method.members(model, state.params, state.own)
    each = [jax.tree.map(lambda leaf, m=m: leaf[m], members) for m in range(4)]
    likelihoods, priors = (
        np.mean([float(f(one)) for one in each])
        for f in (lambda one: model.scaled_log_likelihood(one, batch), model.log_prior)
    )
    trained = (model, state.params, state.own)
    firsts = [jnp.asarray(m) for m in range(4)]
    dealt = np.mean([float(method.log_likelihood(*trained, batch, first, key=KEY)) for first in firsts])
    assert dealt == pytest.approx(likelihoods, rel=1e-5)
    assert np.mean([float(method.log_prior(*trained, first)) for first in firsts]) == pytest.approx(priors, rel=1e-5)
    assert np.ptp([float(method.log_prior(*trained, first)) for first in firsts]) > 1e-3 * abs(priors)


def test_every_member_is_the_first_equally_often():
    """Over the steps, so that all of them see all rows though these are the same in every step."""
    model, state, batch = started(BatchEnsemble(num_members=3))
    firsts = []

    class Spy(BatchEnsemble):
        def log_prior(self, model, params, own, first):
            firsts.append(first)
            return BatchEnsemble.log_prior(self, model, params, own, first)

    step = eqx.filter_jit(lambda key: (Spy(num_members=3).step(model, state, batch, key=key), firsts[-1])[1])
    counts = np.bincount([int(step(jax.random.key(i))) for i in range(300)], minlength=3)
    assert (np.abs(counts - 100) < 4.9 * np.sqrt(300 * 2 / 9)).all()


def test_members_share_their_weights_up_to_factors():
    posterior = mx.fit(curve_model(), (X, Y), BatchEnsemble(num_members=3, num_epochs=20), key=0, num_chains=2)
    assert isinstance(posterior, Draws)
    assert (posterior.num_chains, posterior.num_draws) == (2, 3)
    for layer in posterior.params.network.layers:
        ratios = layer.weight[:, 1:] / layer.weight[:, :1]
        values = np.linalg.svd(ratios, compute_uv=False)
        if values.shape[-1] > 1:
            assert (values[..., 1] < 1e-3 * values[..., 0]).all()
        assert (np.ptp(layer.bias, axis=1) > 1e-4).any()
    chains = posterior.params.network.layers[0].weight[:, 0]
    ratio = np.linalg.svd(chains[0] / chains[1], compute_uv=False)
    assert ratio[1] > 1e-2 * ratio[0]  # chains share nothing


def test_draws_are_networks_and_predictions_average_them(tmp_path):
    posterior = mx.fit(curve_model(), (X, Y), BatchEnsemble(num_members=3, num_epochs=2000), key=0)
    networks = posterior.sample(3, key=1)
    outputs = np.stack([jax.vmap(jax.tree.map(lambda a, i=i: a[i], networks))(X)[:, 0] for i in range(3)])
    prediction = posterior.predict(X)
    np.testing.assert_allclose(prediction.mean, outputs.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(prediction.epistemic, outputs.var(0), rtol=1e-3, atol=1e-6)
    assert np.sqrt(np.mean((prediction.mean - Y) ** 2)) < 0.3
    posterior.save(tmp_path / "members")
    assert np.array_equal(mx.load(tmp_path / "members").predict(X).mean, prediction.mean)


@pytest.mark.slow
def test_members_that_start_at_a_network_start_near_it():
    model = curve_model()
    trained = mx.fit(model, (X, Y), MAP(num_epochs=300), key=0)
    never = Adam(1e-12)
    method = BatchEnsemble(num_epochs=1, optimiser=never)
    near, apart = (mx.fit(model, (X, Y), method, key=0, init=init) for init in (trained, None))
    error = [np.abs(p.predict(X).mean - trained.predict(X).mean).mean() for p in (near, apart)]
    assert error[0] < 0.5 * error[1]
    exact = BatchEnsemble(num_epochs=1, optimiser=never, initial_scale=0.0)
    same = mx.fit(model, (X, Y), exact, key=0, init=trained).predict(X)
    np.testing.assert_allclose(same.mean, trained.predict(X).mean, atol=1e-5)
    assert same.epistemic.max() < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (mx.nets.LeNet((1, 18, 18), (2, 3), 4, 1, key=0), (18, 18)),
        (mx.nets.GRU(3, 4, out_size=1, every_step=False, key=0), (6, 3)),
        (mx.nets.Transformer(3, 1, size=4, num_heads=2, depth=1, every_step=False, key=0), (6, 3)),
        (eqx.nn.MLP(3, 1, width_size=4, depth=2, key=KEY), (3,)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_networks_of_known_layers_have_members(network, shape):
    x = RNG.normal(size=(20, *shape)).astype(np.float32)
    model = mx.Model(network, mx.likelihoods.Gaussian(0.3))
    posterior = mx.fit(model, (x, x.reshape(20, -1)[:, 0]), BatchEnsemble(num_members=2, num_epochs=5), key=0)
    assert posterior.predict(x).epistemic.min() > 0


def test_what_cannot_have_members_is_refused():
    function = mx.Model((jnp.ones(2), lambda w, x: x @ w), mx.likelihoods.Gaussian(0.1))
    with pytest.raises(ValueError, match="choose DeepEnsemble"):
        mx.fit(function, (X, Y), BatchEnsemble(), key=0)
    dropout = mx.Model(mx.nets.MLP(2, (4,), 1, dropout=0.1, key=0), mx.likelihoods.Gaussian(0.1))
    with pytest.raises(ValueError, match="no dropout of its own for BatchEnsemble"):
        mx.fit(dropout, (X, Y), BatchEnsemble(), key=0)
    with pytest.raises(TypeError, match="needs a network with layers"):
        mx.fit(mx.Density(lambda z: -jnp.sum(z**2), jnp.ones(2)), None, BatchEnsemble(), key=0)
    for wrong, words in (({"num_members": 0}, "num_members"), ({"initial_scale": -1.0}, "initial_scale must be >= 0")):
        with pytest.raises(ValueError, match=words):
            BatchEnsemble(**wrong)

"""What must hold for any data: units, order of rows, columns and classes, chunks, types and files leave no trace."""

import tempfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marginax as mx
from marginax.infer import MAP, DeepEnsemble
from marginax.posterior import Draws

RNG = np.random.default_rng(0)
X, X_NEW = RNG.normal(size=(40, 3)), RNG.normal(size=(7, 3))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * RNG.normal(size=40)
LABELS = np.digitize(Y, [-0.5, 0.5])
TRAINING = MAP(num_epochs=60, batch_size=None)

few = settings(max_examples=8, deadline=None, derandomize=True, database=None)
exponents = st.integers(-12, 12)
orders = st.integers(0, 2**31).map(np.random.default_rng)


def network(outputs: int = 1) -> mx.nets.MLP:
    return mx.nets.MLP(3, (6,), outputs, activation=jnp.tanh, key=0)


def numbers(data, **options):
    model = mx.Model(network(), mx.likelihoods.Gaussian())
    return mx.fit(model, data, DeepEnsemble(2, TRAINING), key=0, progress=False, **options)


def classes(y, net=None):
    net = network(3) if net is None else net
    return mx.fit(mx.Model(net, mx.likelihoods.Categorical()), (X, y), TRAINING, key=0, init=net, progress=False)


@pytest.fixture(scope="module")
def plain():
    return numbers(mx.data.standardise((X, Y))).predict(X_NEW)


# ---- units


@few
@given(
    x_powers=st.tuples(exponents, exponents, exponents), y_power=exponents, shift=st.sampled_from([0.0, -3.0, 100.0])
)
def test_predictions_follow_the_units(plain, x_powers, y_power, shift):
    """Every column of x and the target in units of its own, the target from another zero."""
    units, unit = 10.0 ** np.array(x_powers), 10.0**y_power
    found = numbers(mx.data.standardise((X * units, unit * (Y + shift)))).predict(X_NEW * units)
    np.testing.assert_allclose(found.mean / unit - shift, plain.mean, atol=2e-3)
    np.testing.assert_allclose(found.std / unit, plain.std, rtol=2e-3)
    np.testing.assert_allclose(found.epistemic / unit**2, plain.epistemic, rtol=2e-2, atol=1e-5)
    np.testing.assert_allclose(found.quantile(0.1) / unit - shift, plain.quantile(0.1), atol=3e-3)
    density = found.log_prob(unit * (Y[:7] + shift)) + np.log(unit)
    np.testing.assert_allclose(density, plain.log_prob(Y[:7]), rtol=1e-2, atol=1e-2)


# ---- order


@few
@given(rng=orders)
def test_the_order_of_rows_leaves_no_trace(plain, rng):
    order, new = rng.permutation(40), rng.permutation(7)
    found = numbers(mx.data.standardise((X[order], Y[order]))).predict(X_NEW[new])
    np.testing.assert_allclose(found.mean, plain.mean[new], atol=1e-3)
    np.testing.assert_allclose(found.std, plain.std[new], rtol=1e-3)


@few
@given(rng=orders)
def test_columns_that_change_places_with_their_weights_change_nothing(rng):
    order, net = rng.permutation(3), network()
    moved = eqx.tree_at(lambda n: n.layers[0].weight, net, net.layers[0].weight[:, order])
    found = [
        mx.fit(mx.Model(net, mx.likelihoods.Gaussian()), (x, Y), TRAINING, key=0, init=start, progress=False).predict(
            new
        )
        for x, new, start in ((X, X_NEW, net), (X[:, order], X_NEW[:, order], moved))
    ]
    np.testing.assert_allclose(found[1].mean, found[0].mean, atol=1e-3)


@few
@given(rng=orders)
def test_classes_that_change_names_change_names_only(rng):
    order, net = rng.permutation(3), network(3)
    last = net.layers[1]
    moved = eqx.tree_at(lambda n: (n.layers[1].weight, n.layers[1].bias), net, (last.weight[order], last.bias[order]))
    before, after = classes(LABELS, net).predict(X_NEW), classes(np.argsort(order)[LABELS], moved).predict(X_NEW)
    np.testing.assert_allclose(after.probs, before.probs[:, order], atol=1e-4)
    np.testing.assert_allclose(after.entropy, before.entropy, atol=1e-3)


# ---- a posterior of any shape, without training


KINDS = {
    "normal": (mx.likelihoods.Gaussian(), 1),
    "scale from the network": (mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()), 2),
    "Student": (mx.likelihoods.StudentT(df=4.0), 1),
    "counts": (mx.likelihoods.Poisson(), 1),
    "classes": (mx.likelihoods.Categorical(), 3),
}


def posterior_of(kind: str, num_chains: int, num_draws: int, seed: int) -> Draws:
    likelihood, outputs = KINDS[kind]
    model = mx.Model(mx.nets.MLP(3, (4,), outputs, key=0), likelihood)
    rng = np.random.default_rng(seed)
    params = jax.tree.map(
        lambda leaf: rng.normal(size=(num_chains, num_draws, *leaf.shape)).astype(np.float32), model.initial(outputs)
    )
    y = LABELS if kind in ("classes", "counts") else Y
    spec = mx.data.Arrays(X, y).spec
    return Draws(model=model, params=params, spec=spec, key=jax.random.key(seed))


def answers(prediction) -> dict[str, np.ndarray]:
    names = ("probs", "entropy", "mutual_information") if hasattr(prediction, "probs") else ("mean", "std", "epistemic")
    return {name: np.asarray(getattr(prediction, name)) for name in names}


def assert_same(found, right, **tolerance):
    for name, values in answers(right).items():
        np.testing.assert_allclose(answers(found)[name], values, err_msg=name, **tolerance)


shapes = st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 5]))
kinds = st.sampled_from(sorted(KINDS))


@settings(few, max_examples=4)
@given(kind=kinds, shape=shapes, num=st.sampled_from([1, 7]), seed=st.integers(0, 99))
def test_shapes_are_those_of_draws_and_inputs(kind, shape, num, seed):
    posterior = posterior_of(kind, *shape, seed)
    prediction = posterior.predict(X_NEW[:num])
    for name, values in answers(prediction).items():
        assert values.shape == ((num, 3) if name == "probs" else (num,))
        assert np.isfinite(values).all()
    drawn = np.asarray(prediction.sample(4, key=1))
    assert drawn.shape == (4, num)
    if kind == "classes":
        np.testing.assert_allclose(prediction.probs.sum(axis=1), 1, rtol=1e-5)
        assert ((drawn >= 0) & (drawn < 3)).all()
    else:
        assert np.shape(prediction.log_prob(np.zeros(num))) == (num,)


@few
@given(kind=kinds, max_bytes=st.sampled_from([1, 3000, 10**5]), cut=st.sampled_from([1, 4]), seed=st.integers(0, 99))
def test_chunks_and_batches_leave_no_trace(kind, max_bytes, cut, seed):
    posterior = posterior_of(kind, 2, 5, seed)
    whole = posterior.predict(X_NEW)
    assert_same(posterior.predict(X_NEW, max_bytes=max_bytes), whole, rtol=1e-4, atol=1e-5)
    parts = [answers(posterior.predict(part)) for part in (X_NEW[:cut], X_NEW[cut:])]
    for name, values in answers(whole).items():
        joined = np.concatenate([part[name] for part in parts])
        np.testing.assert_allclose(joined, values, rtol=1e-4, atol=1e-5, err_msg=name)


AS = {
    "double": lambda x: x.astype(np.float64),
    "column by column": np.asfortranarray,
    "on the device": jnp.asarray,
    "lists": lambda x: x.tolist(),
    "every other of more": lambda x: np.repeat(x, 2, axis=0)[::2],
}


@few
@given(kind=kinds, form=st.sampled_from(sorted(AS)), seed=st.integers(0, 99))
def test_the_form_of_inputs_leaves_no_trace(kind, form, seed):
    posterior, x = posterior_of(kind, 1, 5, seed), X_NEW.astype(np.float32)
    assert_same(posterior.predict(AS[form](x)), posterior.predict(x), rtol=1e-6, atol=1e-7)


@few
@given(kind=kinds, shape=shapes, seed=st.integers(0, 99))
def test_files_leave_no_trace(kind, shape, seed):
    posterior = posterior_of(kind, *shape, seed)
    with tempfile.TemporaryDirectory() as folder:
        posterior.save(Path(folder) / "kept")
        assert_same(mx.load(Path(folder) / "kept").predict(X_NEW), posterior.predict(X_NEW), rtol=0, atol=0)


@few
@given(kind=kinds, rng=orders)
def test_the_order_of_draws_leaves_no_trace(kind, rng):
    posterior, order = posterior_of(kind, 1, 5, 0), rng.permutation(5)
    turned = eqx.tree_at(lambda p: p.params, posterior, jax.tree.map(lambda leaf: leaf[:, order], posterior.params))
    assert_same(turned.predict(X_NEW), posterior.predict(X_NEW), rtol=1e-4, atol=1e-6)

"""Any Optax transformation is an optimiser; by its factory it can be stored, too."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import marginax as mx
from marginax.files import FileError, decode, encode
from marginax.infer import LBFGS, MAP, SGD, VI, Adam, Constant, Cosine, MCDropout, Optax
from marginax.testing.conformance import InterruptAt

X = np.random.default_rng(0).normal(size=(24, 1))
DATA = (X, np.sin(2 * X[:, 0]))
BUDGET = {"num_epochs": 10, "batch_size": 8}


def model():
    return mx.Model(mx.nets.MLP(1, (5,), 1, activation=jnp.tanh, key=0), mx.likelihoods.Gaussian())


def means(optimiser, **options):
    return mx.fit(model(), DATA, MAP(optimiser=optimiser, **BUDGET), key=0, **options).predict(X).mean


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [pytest.param(Constant(), marks=pytest.mark.slow), Cosine(warmup=0.1)])
def test_an_optimiser_by_its_factory_is_the_one_with_a_name(schedule):
    ours = means(Adam(0.01, schedule=schedule))
    # given, so that they are arrays here too: 1 - b2 of a constant has more digits
    theirs = means(Optax(optax.adam, learning_rate=0.01, b1=0.9, b2=0.999, schedule=schedule))
    np.testing.assert_allclose(theirs, ours, rtol=1e-6, atol=1e-6)
    ours = means(SGD(0.01, momentum=0.5, schedule=schedule))
    np.testing.assert_allclose(
        means(Optax(optax.sgd, 0.01, schedule=schedule, momentum=0.5)), ours, rtol=1e-5, atol=1e-6
    )


def test_a_bare_transformation_works_and_options_are_used():
    bare = means(optax.adamw(0.01, weight_decay=0.5))
    np.testing.assert_allclose(bare, means(Optax(optax.adamw, 0.01, weight_decay=0.5)), rtol=1e-6, atol=1e-6)
    assert np.abs(bare - means(Optax(optax.adamw, 0.01, weight_decay=0.0))).max() > 1e-4


def test_gradients_that_are_added_up_over_small_batches_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 3))
    model = mx.Model(mx.nets.MLP(3, (4,), 1, key=0), mx.likelihoods.Gaussian(0.5))
    every_four = optax.MultiSteps(optax.sgd(0.1), 4).gradient_transformation()

    def weights(optimiser, batch_size):
        method = MAP(num_epochs=2, batch_size=batch_size, optimiser=optimiser)
        posterior = mx.fit(model, (x, np.sin(x[:, 0])), method, key=0)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(posterior.params)])

    whole, parts = weights(optax.sgd(0.1), None), weights(every_four, 8)
    np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-6)
    assert np.abs(weights(optax.sgd(0.1), 8) - whole).max() > 1e-3  # eight steps in place of two


@pytest.mark.parametrize("method", [VI, MCDropout])
@pytest.mark.slow
def test_other_methods_take_it(method):
    posterior = mx.fit(model(), DATA, method(optimiser=optax.lion(1e-3), **BUDGET), key=0)
    assert np.isfinite(posterior.predict(X).mean).all()


def test_a_factory_is_stored_by_name_and_a_bare_transformation_says_how():
    method = MAP(optimiser=Optax(optax.adamw, learning_rate=1e-3, weight_decay=1e-4, schedule=Cosine()))
    document, arrays = encode(method)
    assert document["fields"]["optimiser"]["fields"]["factory"] == {"@": "function", "name": "optax.adamw"}
    assert decode(document, arrays) == method
    with pytest.raises(FileError, match=r"give mx.infer.Optax\(optax.adamw, learning_rate=...\)"):
        encode(MAP(optimiser=optax.adamw(1e-3)))


@pytest.mark.slow
def test_an_interrupted_run_with_a_factory_resumes(tmp_path):
    optimiser = Optax(optax.adamw, learning_rate=0.01, weight_decay=0.1, schedule=Cosine())
    whole = means(optimiser)
    means(optimiser, directory=tmp_path / "run", hooks=(InterruptAt((("train", 10),)),), chunk_size=5)
    np.testing.assert_array_equal(mx.resume(tmp_path / "run").predict(X).mean, whole)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Optax(optax.adam, learning_rate=-1.0), "learning_rate must be > 0"),
        (lambda: Optax(optax.adam(0.1)), "factory must be a function of optax"),
        (lambda: Optax(optax.adam, learning_rate=0.1, speed=3), "speed"),
        (lambda: MAP(optimiser=Optax(optax.lbfgs)), "needs batch_size=None"),
        (lambda: VI(optimiser=Optax(optax.lbfgs)), "a line search on noise"),
        (lambda: MAP(optimiser=LBFGS()), "needs batch_size=None"),
    ],
)
def test_bad_settings_are_refused(make, match):
    with pytest.raises((TypeError, ValueError), match=match):
        make()

"""Autoencoders as models of the house: every method, files, resuming, chains, and data that cannot be meant."""

import time

import jax
import numpy as np
import pytest

import marginax as mx
from marginax.infer.hooks import AbstractHook, Verdict
from marginax.latent import (
    ELBO,
    IWAE,
    VAE,
    CouplingFlow,
    DoublyReparameterised,
    MixtureOfNormals,
    Renyi,
    Resampled,
    SemiSupervisedVAE,
    StickingTheLanding,
    StraightThrough,
)

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(120, 1))
X = (RNG.random((120, 4)) < 1 / (1 + np.exp(-3 * Z * [[1, -1, 1, 2]]))).astype(float)


def nets(inputs=4, outputs=4, latents=2, entries=4):
    return mx.nets.MLP(inputs, (6,), outputs, key=0), mx.nets.MLP(latents, (6,), entries, key=1)


def vae(**more):
    return VAE(*nets(), latent_size=2, **more)


def short(**more):
    return mx.infer.MAP(num_epochs=3, batch_size=40, **more)


def test_an_ensemble_is_saved_loaded_and_asked(tmp_path):
    posterior = mx.fit(vae(), X, mx.infer.DeepEnsemble(2, short()), key=0, progress=False)
    leaf = jax.tree.leaves(posterior.params)[0]
    assert leaf.shape[:2] == (2, 1)  # chains, draws
    assert not np.allclose(leaf[0], leaf[1])
    assert "active" in str(posterior.summary())
    posterior.save(tmp_path / "run")
    again = mx.load(tmp_path / "run")
    np.testing.assert_array_equal(again.generate(5, key=1), posterior.generate(5, key=1))
    np.testing.assert_array_equal(again.log_likelihood(X[:9], 20).values, posterior.log_likelihood(X[:9], 20).values)
    assert str(again.summary()) == str(posterior.summary())
    one, two = (posterior.encode(X[:3], network=i).mean for i in (0, 1))
    assert not np.allclose(one, two)


class Kill(AbstractHook):
    """The process is gone after some steps."""

    def after_chunk(self, memory, event):
        if event.step >= 4:
            raise ConnectionAbortedError
        return Verdict(memory, event.states)


def test_a_run_that_was_killed_is_resumed_bit_for_bit(tmp_path):
    whole = mx.fit(vae(), X, short(), key=0, progress=False)
    run = {"directory": tmp_path / "run", "chunk_size": 2, "hooks": [Kill()]}
    with pytest.raises(ConnectionAbortedError):
        mx.fit(vae(), X, short(), key=0, progress=False, **run)
    resumed = mx.resume(tmp_path / "run", hooks=[])
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, whole.params, resumed.params)))
    assert np.array_equal(resumed.generate(3, key=0), whole.generate(3, key=0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [mx.infer.VI(num_epochs=3), mx.infer.SGHMC(num_samples=20), mx.infer.SWAG(), mx.infer.HMC(20, 20)],
    ids=lambda m: type(m).__name__,
)
def test_methods_that_need_no_layers_give_a_distribution_of_decoders(method):
    model = vae(subset=mx.Paths("decoder/*"))
    posterior = mx.fit(model, X, method, key=0, progress=False)
    assert np.isfinite(posterior.log_likelihood(X[:5], 20).values).all()
    assert posterior.ood_scores(X[:5], 20)["spread"].max() > 0
    assert posterior.generate(4, key=0).shape == (4, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"bound": IWAE(5, DoublyReparameterised())},
        {"bound": IWAE(5, Resampled(2))},
        {"latent_prior": MixtureOfNormals(3)},
        {"latent_prior": mx.latent.VampPrior(5)},
        {"likelihood": mx.latent.ContinuousBernoulli()},
        {"likelihood": mx.likelihoods.Gaussian()},
    ],
    ids=["iwae", "resampled", "mixture", "vamp", "continuous", "gaussian"],
)
def test_training_explains_the_data_better(more):
    model = vae(**more)
    before, after = (
        mx.fit(model, X, mx.infer.MAP(num_epochs=num), key=0, progress=False).log_likelihood(X, 200) for num in (1, 400)
    )
    assert after.mean > before.mean + 0.1


def test_layers_are_asked_for_in_one_sentence():
    with pytest.raises(TypeError, match="needs a network with layers"):
        mx.fit(vae(), X, mx.infer.MCDropout(), key=0)


# ---- what cannot be meant

MISTAKES = [
    (lambda: VAE(*nets(outputs=5), latent_size=2), X, "encoder gives 5 outputs, .* needs 4: change its out_size to 4"),
    (lambda: VAE(*nets(entries=3), latent_size=2), X, "decoder gives 3 outputs, .* x has 4: change its out_size to 4"),
    (lambda: VAE(*nets(latents=3), latent_size=2), X, "decoder cannot be called on 2 latents"),
    (lambda: VAE(*nets(inputs=5), latent_size=2), X, "encoder cannot be called"),
    (vae, np.where(X > 0, X, np.nan), "x has .* values that are NaN or infinite, the first in row"),
    (vae, 3 * X, r"x must be in \[0, 1\] for likelihood Bernoulli\(\), got values from 0 to 3"),
    (vae, {"x": X, "mask": X[:, :2]}, "mask must have the shape of x"),
    (vae, {"x": X, "label": X[:, 0]}, 'data must have "x" and of'),
    (vae, X[:, 0], "x must have shape"),
    (vae, np.zeros((0, 4)), "empty"),
    (lambda: vae(likelihood=mx.likelihoods.Categorical()), X, "needs the same number of logits"),
    (lambda: vae(likelihood=mx.likelihoods.Poisson()), X + 0.5, "counts, whole numbers >= 0"),
]


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case[2][:40])
def test_data_that_cannot_be_meant_are_refused_in_under_a_second(case):
    make, data, words = case
    model = make()
    start = time.process_time()
    with pytest.raises((ValueError, TypeError), match=words):
        mx.fit(model, data, short(), key=0, progress=False)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: VAE(*nets(), latent_size=0), "latent_size must be an int >= 1, got 0"),
        (lambda: ELBO(0), "num_particles must be an int >= 1, got 0"),
        (lambda: ELBO(beta=-1.0), "beta must be >= 0 and finite, got -1.0"),
        (lambda: ELBO(free_bits=0.1, analytic_kl=False), "free_bits needs"),
        (lambda: vae(bound=ELBO(free_bits=0.1), latent_prior=MixtureOfNormals(2)), "free_bits needs a formula"),
        (lambda: ELBO(gradient=Resampled()), r"Resampled\(\) is for IWAE"),
        (lambda: Resampled(0), "num_kept must be"),
        (lambda: IWAE(5, StickingTheLanding()), "biased with several weights: use DoublyReparameterised"),
        (lambda: Renyi(1.0), "alpha must be >= 0 and not 1"),
        (lambda: vae(latent_posterior=StraightThrough(2)), "goes with UniformClasses"),
        (lambda: vae(bound=mx.infer.ELBO()), "bound"),
        (lambda: vae(likelihood=mx.likelihoods.Tempered(mx.likelihoods.Bernoulli(), 0.5)), "must not be tempered"),
        (lambda: CouplingFlow().bound_to(1), "latent_size must be >= 2 for CouplingFlow"),
        (lambda: SemiSupervisedVAE(vae(), nets()[0], 2, -1.0), "label_weight must be >= 0"),
    ],
)
def test_parts_that_cannot_be_meant_are_refused(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_labels_out_of_range_are_refused():
    model = SemiSupervisedVAE(VAE(*nets(inputs=6, latents=4), latent_size=2), mx.nets.MLP(4, (), 2, key=0), 2)
    with pytest.raises(ValueError, match="label must be from 0 to 1, or -1 if it is missing, got values from -1 to 2"):
        model.check_rows({"x": X[:3], "label": np.array([-1, 0, 2])})


def test_questions_that_cannot_be_meant_are_refused():
    model = vae().adapted_to_rows({"x": X})
    params = jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], model.core.initial(4))
    posterior = mx.posterior.Draws(model, params)
    for question, words in (
        (lambda: posterior.generate(0, key=0), "num must be an int >= 1, got 0"),
        (lambda: posterior.log_likelihood(X, 0), "num_importance must be an int >= 1, got 0"),
        (lambda: posterior.encode(X[:, :2]), r"x must have shape \(n, 4\) as in the training data, got \(120, 2\)"),
        (lambda: posterior.encode(X, network=1), "network must be from 0 to 0, got 1"),
        (lambda: posterior.traverse(X, 2, [0.0]), "axis must be one of the 2 latents, got 2"),
        (lambda: posterior.decode(X), r"z must have shape \(n, 2\), the latents of each example, got \(120, 4\)"),
        (lambda: posterior.generate(3, key=0, context=X[:2]), "context must have one row for each of the 3"),
    ):
        with pytest.raises(ValueError, match=words):
            question()

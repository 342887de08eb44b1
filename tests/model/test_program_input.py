"""Programs and data that cannot be meant are refused at once, by the name of the site or the argument."""

import time

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from tests.model.test_program import X, Y, coin, regression

import marginax as mx


def counts(x):
    rate = numpyro.sample("rate", dist.Gamma(2.0))
    with numpyro.plate("rows", len(x)):
        latent = numpyro.sample("latent", dist.Poisson(rate))
        numpyro.sample("x", dist.Normal(latent, 1.0), obs=x)


def impossible(x):
    rate = numpyro.sample("rate", dist.Gamma(2.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.Normal(jnp.sqrt(-rate), 1.0), obs=x)


def subsampled_schools(errors, effects):
    with numpyro.plate("school", len(errors), subsample_size=2) as rows:
        effect = numpyro.sample("effect", dist.Normal(0, 1))
        numpyro.sample("seen", dist.Normal(effect, errors[rows]), obs=effects[rows])


REFUSED = {
    "a site that is neither observed nor sampled": (counts, {"x": np.ones(3)}, "'latent' is neither observed nor"),
    "a start that is not finite": (impossible, {"x": np.ones(3)}, "finite at one of 21 starts: it is not at site 'x'"),
    "NaN": (regression, {"x": X, "y": np.where(Y > 0, Y, np.nan)}, "y has .* NaN or infinite, the first in row"),
    "a missing argument": (regression, {"x": X}, "argument 'y' of the program is missing in data"),
    "an unknown argument": (regression, {"x": X, "y": Y, "z": Y}, "got 'z': it takes x, y"),
    "a number among data": (regression, {"x": X, "y": 1.0}, r"settings go into the program, mx.Program\(model, y="),
    "impossible values": (coin, {"flips": np.array([0, 1, 2])}, "'heads' observes values .* the first in row 2"),
    "nothing to infer": (lambda x: None, {"x": X}, "no continuous unknowns"),
    "a subsampled plate of unknowns": (
        subsampled_schools,
        {"errors": np.ones(4), "effects": np.ones(4)},
        "plate 'school' subsamples, which it must not: site 'effect' is an unknown inside",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_at_once(name):
    model, data, text = REFUSED[name]
    begun = time.perf_counter()
    with pytest.raises(ValueError, match=text):
        mx.fit(mx.Program(model), data, mx.infer.NUTS(), key=0)
    assert time.perf_counter() - begun < 5  # a second on a machine that does nothing else


def test_settings_are_checked():
    with pytest.raises(TypeError, match="got 'width': it takes x, y"):
        mx.Program(regression, width=3)
    with pytest.raises(TypeError, match="model"):
        mx.Program("coin")
    with pytest.raises(TypeError, match=r"MCDropout needs a network .* which Program has not"):
        mx.fit(mx.Program(coin), {"flips": np.array([1, 0])}, mx.infer.MCDropout(), key=0)
    program = mx.Program(coin).bind({"flips": np.array([1, 0])})
    with pytest.raises(TypeError, match=r"use posterior.sample_predictive\(arguments\)"):
        mx.posterior.Draws(program, {"heads_prob": np.zeros((1, 1))}).predict([[1.0]])
    with pytest.raises(TypeError, match=r"that of an mx.Program to have sites, got Density"):
        _ = mx.fit(mx.Density(lambda w: -(w**2), 0.0), None, mx.infer.MAP(num_epochs=1), key=0).sites

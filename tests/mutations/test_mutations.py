"""A check must be able to fail: each planted bug is caught by a check of the suite.

The checks pass without any bug, then each bug is planted alone. Compiled code is forgotten in between, for a
cached function would not know that its source was changed.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.infer.test_exact import check_standardised, tempered
from tests.mutations.bug import Bug, assert_caught

from marginax import testing
from marginax._kernels.permutation import shuffled_rows
from marginax.data import Arrays, Batch, Minibatches
from marginax.data.arrays import DataSpec
from marginax.files import parts
from marginax.infer import MAP, Adam, AnchoredEnsemble, driver, optimisers, training
from marginax.model import Model, distributions, likelihoods, priors
from marginax.model.likelihoods import real

QUICK = MAP(num_epochs=1500, batch_size=None, optimiser=Adam(0.1))
RANDOMISED = AnchoredEnsemble(400, num_epochs=400, batch_size=None, optimiser=Adam(0.1))

CHECKS: dict[str, Callable[[], Any]] = {
    "log density, known noise": lambda: testing.check_log_density(testing.linear_layer(3)),
    "log density, learned noise": lambda: testing.check_log_density(testing.linear_regression_unknown_noise()),
    "log density, labels": lambda: testing.check_log_density(testing.logistic_regression()),
    "batches": lambda: testing.check_batches(testing.linear_regression(3), batch_size=8),
    "mode": lambda: testing.check_mode(QUICK, testing.linear_regression(3), num_chains=2, tolerance=1e-3),
    "mode, tempered": lambda: testing.check_mode(QUICK, tempered(testing.linear_regression(3)), tolerance=1e-3),
    "moments": lambda: testing.check_moments(RANDOMISED, testing.linear_regression(3)),
    "standardised": check_standardised,
    "conformance": lambda: testing.check_method(MAP(num_epochs=5, batch_size=None)),
    "conformance, minibatches": lambda: testing.check_method(MAP(num_epochs=2, batch_size=8)),
}


# ---- the model


def prior_per_batch(self, params, batch, *, key=None):
    return batch.weight * self.log_prior(params) + self.scaled_log_likelihood(params, batch, key=key)


def prior_shared_among_examples(self, params, batch, *, key=None):
    return self.log_prior(params) / batch.num_examples + self.scaled_log_likelihood(params, batch, key=key)


def without_jacobian(prior, log_scale):
    return jnp.sum(prior.log_prob(jnp.exp(log_scale)))


def scale_as_variance(self, output, unknowns):
    loc, scale = self.location_and_scale(output, unknowns)
    return distributions.Normal(loc, jnp.sqrt(scale))


def untempered(self, output, y, unknowns):
    return self.likelihood.log_prob(output, y, unknowns)


def precision_for_scale(self, scale):
    return distributions.Normal(0.0, 1.0 / scale)


def labels_swapped(self, output, unknowns):
    del unknowns
    return distributions.Bernoulli(-output)


# ---- the data


def remainder_never_seen(self, step, *, key):
    num, size = self.data.num_examples, self.batch_size
    whole = num // size
    step = jnp.asarray(step, jnp.uint32)
    return shuffled_rows(step // whole, step % whole * size, size, num, key=key)


def unshuffled_start(self, step, *, key):
    del step, key
    return jnp.arange(self.batch_size)


def forget_scaling(self):
    return DataSpec(self.x.shape[1:], self.y.shape[1:], self.num_examples, None)


# ---- the driver


def same_key_for_all(self, _original=driver.Run._placed):
    model, source, keys, mesh = _original(self)
    return model, source, jnp.broadcast_to(keys[:1], keys.shape), mesh


def steps_counted_from_the_chunk(fixed, states, start, stop, batches, _original=driver.run_chunk):
    return _original(fixed, states, jnp.zeros_like(start), stop - start, batches)


def frozen_chain(fixed, states, start, stop, batches, _original=driver.run_chunk):
    before = jax.tree.map(jnp.copy, states)
    states, infos, draws = _original(fixed, states, start, stop, batches)
    if len(fixed.keys) > 1:
        states = jax.tree.map(lambda new, old: new.at[1].set(old[1]), states, before)
    return states, infos, draws


def compiled_twice(fixed, states, start, stop, batches, _original=driver.run_chunk):
    capacity = fixed.capacity + (int(start) > 0)
    other = dataclasses.replace(fixed, capacity=capacity)
    return _original(other, states, start, stop, batches)


def guard_asleep(self, states, phase, chunk):
    del self, states, phase, chunk


def one_step_too_early(self, cursor, _original=driver.Run._set_cursor):
    _original(self, cursor)
    self.step -= 1


# ---- the methods


def uphill(rate, schedule, num_steps):
    return optax.scale_by_schedule(lambda count: rate * schedule.factor(count / num_steps))


def no_target_noise(self, params, batch, noise):
    del self, params, batch, noise
    return jnp.zeros(())


def anchored_at_zero(self, params, *, key):
    del self, key
    return jax.tree.map(jnp.zeros_like, params)


def fresh_noise_every_step(self, model, params, batch, extra, *, key, _original=AnchoredEnsemble.objective):
    return _original(self, model, params, batch, eqx.tree_at(lambda e: e.key, extra, key), key=key)


def stands_still(self, model, state, batch, *, key, _original=training.AbstractTraining.step):
    _, info = _original(self, model, state, batch, key=key)
    return state, info


# ---- the files


def half_precision(document, arrays, _original=parts.decode):
    rounded = {
        name: np.asarray(array, np.float16).astype(array.dtype) if array.dtype == np.float32 else array
        for name, array in arrays.items()
    }
    return _original(document, rounded)


OFF = "more than 4.9 standard errors off"

BUGS = [
    Bug("N/B is missing", Batch, "weight", 1.0, "batches", "off by"),
    Bug("prior counts once per batch", Model, "log_density", prior_per_batch, "batches", "off by"),
    Bug("prior counts per example", Model, "log_density", prior_shared_among_examples, "mode", "away from the mode"),
    Bug("prior scale is inverted", priors.Normal, "shape_at", precision_for_scale, "log density, learned noise", "is"),
    Bug("Jacobian is missing", real, "log_prior_of_log", without_jacobian, "log density, learned noise", "is"),
    Bug(
        "scale is taken for a variance",
        likelihoods.Gaussian,
        "distribution",
        scale_as_variance,
        "log density, known noise",
        "is",
    ),
    Bug("labels are swapped", likelihoods.Bernoulli, "distribution", labels_swapped, "log density, labels", "is"),
    Bug("temperature is ignored", likelihoods.Tempered, "log_prob", untempered, "mode, tempered", "away from the mode"),
    Bug("remainder of the data is dropped", Minibatches, "rows", remainder_never_seen, "batches", "off by"),
    Bug("the same rows in every batch", Minibatches, "rows", unshuffled_start, "batches", "off by"),
    Bug("scaling is not undone", Arrays, "spec", property(forget_scaling), "standardised", "user's units"),
    Bug("key is reused by all chains", driver.Run, "_placed", same_key_for_all, "moments", OFF),
    Bug(
        "steps are counted from the chunk",
        driver,
        "run_chunk",
        steps_counted_from_the_chunk,
        "conformance, minibatches",
        "changed by chunks of 3 steps",
    ),
    Bug("one chain is frozen", driver, "run_chunk", frozen_chain, "mode", "chain 1 ended"),
    Bug("the second chunk compiles", driver, "run_chunk", compiled_twice, "conformance", "traced again"),
    Bug("NaN guard sleeps", driver.Run, "_guard", guard_asleep, "conformance", "no RuntimeWarning"),
    Bug("resume repeats a step", driver.Run, "_set_cursor", one_step_too_early, "conformance", "interrupted"),
    Bug("gradient has the wrong sign", optimisers, "_scale_by", uphill, "mode", "away from the mode"),
    Bug("training stands still", training.AbstractTraining, "step", stands_still, "mode", "away from the mode"),
    Bug("targets get no noise", Model, "scaled_perturbation", no_target_noise, "moments", OFF),
    Bug("anchors are not drawn", Model, "sample_prior", anchored_at_zero, "moments", OFF),
    Bug("target noise is renewed", AnchoredEnsemble, "objective", fresh_noise_every_step, "moments", OFF),
    Bug("files keep half precision", parts, "decode", half_precision, "conformance", "saving and loading"),
]


# conformance without a bug is what tests/infer/test_conformance.py is about
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CHECKS if not name.startswith("conformance")])
def test_check_passes_without_a_bug(name):
    CHECKS[name]()


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_is_caught(bug):
    assert_caught(bug, CHECKS[bug.check])

"""EM and coordinate ascent keep the promises that all methods make."""

import jax
import numpy as np
import pytest

import marginax as mx
from marginax.latent import GaussianMixture
from marginax.testing.conformance import InterruptAt

METHODS = [
    mx.infer.CoordinateAscent(20, tolerance=0.0),
    pytest.param(mx.infer.EM(20, batch_size=16), marks=pytest.mark.slow),
]


def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 2)) + 4.0 * (np.arange(60) % 3)[:, None]


def arrays(posterior):
    kept = posterior.belief if hasattr(posterior, "belief") else posterior.params
    return [*jax.tree.leaves(kept), *posterior.record.info["iterate"].values()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_neither_chunks_nor_interruptions_leave_a_trace(method, tmp_path):
    options = {"key": 0, "num_chains": 2, "progress": False}
    model, x = GaussianMixture(3), data()
    reference = mx.fit(model, x, method, **options)
    chunked = mx.fit(model, x, method, chunk_size=3, **options)
    hook = InterruptAt((("iterate", 7),))
    part = mx.fit(model, x, method, chunk_size=3, hooks=(hook,), directory=tmp_path / "run", **options)
    assert not part.record.finished
    resumed = mx.resume(tmp_path / "run", progress=False)
    for other in (chunked, resumed):
        for found, wanted in zip(arrays(other), arrays(reference), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_a_chain_at_nan_is_dropped_and_named():
    model, x = GaussianMixture(3), data()
    start = mx.fit(model, x, mx.infer.EM(3), key=0, num_chains=1, progress=False).params
    poisoned = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf, leaf]), start)
    poisoned["emissions"]["means"][1] = np.nan
    bad = mx.posterior.Draws(model=model, params=poisoned)
    with pytest.warns(RuntimeWarning, match="chain 1 became NaN"):
        posterior = mx.fit(model, x, mx.infer.CoordinateAscent(5), init=bad, key=0, num_chains=3, progress=False)
    assert posterior.record.dropped_chains == (1,)
    assert np.isfinite(posterior.elbo)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_steps": 0}, "num_steps must be an int >= 1"),
        ({"tolerance": -1.0}, "tolerance must be >= 0, got -1.0"),
        ({"forgetting_rate": 0.5}, r"forgetting_rate must be in \(0.5, 1\], got 0.5"),
        ({"batch_size": 0}, "batch_size must be an int >= 1 or None"),
    ],
)
def test_mistakes_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        mx.infer.EM(**options)


def test_methods_for_networks_and_those_in_closed_form_are_listed_apart():
    from marginax.infer.catalogue import catalogue, method_named

    assert [entry.name for entry in catalogue("mx.latent")] == ["EM", "CoordinateAscent"]
    assert not {"EM", "CoordinateAscent"} & {entry.name for entry in catalogue()}
    assert isinstance(method_named("coordinate_ascent"), mx.infer.CoordinateAscent)

"""Diagnostics of chains: equal to ArviZ's, and quick to name what is wrong with draws that were made to be wrong."""

import arviz
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.data import DataSpec, Scaling
from marginax.evaluate import chain_predictions, diagnose_chains, measure_convergence
from marginax.evaluate.chains import find_modes
from marginax.evaluate.convergence import fraction_of_energy
from marginax.posterior import Draws, FitRecord

X = np.linspace(-1, 1, 8)[:, None]


def _autoregressive(rng, shape, rho, start=None):
    """Stationary normal series along axis 1, with sd 1."""
    noise = rng.normal(size=shape)
    values = np.empty(shape)
    values[:, 0] = noise[:, 0] if start is None else start
    for t in range(1, shape[1]):
        values[:, t] = rho * values[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return values


# ---- the numbers


RANDOM_CASES = {
    "independent": lambda rng: rng.normal(size=(4, 500, 6)),
    "one chain": lambda rng: rng.normal(size=(1, 200, 4)),
    "odd length": lambda rng: rng.normal(size=(3, 133, 5)),
    "few draws": lambda rng: rng.normal(size=(4, 10, 8)),
    "fewest draws": lambda rng: rng.normal(size=(4, 4, 8)),
    "slow": lambda rng: _autoregressive(rng, (4, 300, 6), 0.97),
    "antithetic": lambda rng: _autoregressive(rng, (2, 300, 6), -0.8),
    "random walk": lambda rng: np.cumsum(rng.normal(size=(4, 200, 6)), axis=1),
    "heavy tails": lambda rng: rng.standard_cauchy(size=(4, 250, 6)),
    "separate": lambda rng: rng.normal(size=(4, 100, 3)) + 5 * np.arange(4)[:, None, None],
    "ties": lambda rng: rng.integers(0, 5, size=(4, 150, 6)).astype(float),
    "often rejected": lambda rng: np.repeat(rng.normal(size=(4, 50, 6)), 7, axis=1),
    "single precision": lambda rng: rng.normal(1e3, 1.0, size=(4, 100, 4)).astype(np.float32),
}


@pytest.mark.parametrize("name", RANDOM_CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_r_hat_and_effective_sizes_equal_those_of_arviz(name, seed):
    values = RANDOM_CASES[name](np.random.default_rng(seed))
    found = measure_convergence(values)
    data = arviz.convert_to_dataset(np.asarray(values, np.float64))
    for ours, theirs in (
        (found.bulk_ess, arviz.ess(data, method="bulk")),
        (found.tail_ess, arviz.ess(data, method="tail")),
        (found.r_hat, arviz.rhat(data) if len(values) > 1 else None),  # ArviZ has none for one chain
    ):
        if theirs is not None:
            np.testing.assert_allclose(ours, np.asarray(theirs["x"]), rtol=1e-6)


def test_blocks_of_quantities_do_not_change_the_numbers(monkeypatch):
    values = np.random.default_rng(0).normal(size=(3, 40, 25))
    whole = measure_convergence(values)
    monkeypatch.setattr("marginax.evaluate.convergence._BLOCK_BYTES", 16 * 3 * 40 * 4)
    parts = measure_convergence(values)
    assert np.array_equal(whole.r_hat, parts.r_hat)
    assert np.array_equal(whole.tail_ess, parts.tail_ess)


def test_a_drifting_single_chain_has_a_high_r_hat():
    rng = np.random.default_rng(0)
    still = rng.normal(size=(1, 400, 1))
    drifting = still + np.linspace(0, 4, 400)[None, :, None]
    assert measure_convergence(still).worst_r_hat < 1.02
    assert measure_convergence(drifting).worst_r_hat > 1.5


def test_constant_quantities_are_left_out_and_values_that_are_not_finite_never_pass():
    values = np.random.default_rng(0).normal(size=(4, 100, 3))
    fine = measure_convergence(values[:, :, 1:]).worst_r_hat
    values[:, :, 0] = 7.0
    assert measure_convergence(values).worst_r_hat == fine
    assert np.isnan(measure_convergence(values[:, :, :1]).worst_r_hat)
    values[2, 5, 0] = np.nan
    found = measure_convergence(values)
    assert found.worst_r_hat == np.inf
    assert found.smallest_bulk_ess == found.smallest_tail_ess == 0


def test_chains_that_are_frozen_in_different_places_have_infinite_r_hat():
    values = np.broadcast_to(np.arange(4.0)[:, None, None], (4, 50, 1))
    assert measure_convergence(values).worst_r_hat > 1e6


def test_fraction_of_energy_equals_that_of_arviz():
    energy = _autoregressive(np.random.default_rng(0), (4, 300), 0.9)
    np.testing.assert_allclose(fraction_of_energy(energy), arviz.bfmi(energy), rtol=1e-10)
    assert np.isfinite(fraction_of_energy(np.where(energy > 2, np.inf, energy))).all()


# ---- the words


def _model():
    return mx.Model(mx.nets.MLP(1, (2,), 1, activation=jax.nn.tanh, key=0), likelihood=mx.likelihoods.Gaussian())


def _posterior(values=None, *, info=None, log_scale=None, num_draws=400, num_chains=4, probes=X, method="NUTS()"):
    """Draws of a 1-2-1 network whose seven weights are given as (chain, draw, 7)."""
    rng = np.random.default_rng(0)
    model = _model()
    if values is None:
        values = rng.normal(size=(num_chains, num_draws, 7))
    if log_scale is None:
        log_scale = 0.1 * rng.normal(size=values.shape[:2])
    start = model.initial(1)
    leaves, treedef = jax.tree.flatten(start.network)
    places = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = np.split(np.asarray(values, np.float32), places, axis=2)
    network = jax.tree.unflatten(
        treedef, [part.reshape(*values.shape[:2], *leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    )
    likelihood = jax.tree.map(
        lambda leaf: (
            np.broadcast_to(log_scale[:, :, None], (*values.shape[:2], leaf.size))
            .reshape(*values.shape[:2], *leaf.shape)
            .astype(np.float32)
        ),
        start.likelihood,
    )
    record = FitRecord(
        method=method, num_chains=len(values), info={} if info is None else {"sample": info}, probes=probes
    )
    params = eqx.tree_at(lambda p: (p.network, p.likelihood), start, (network, likelihood))
    return Draws(model, params, DataSpec(x_shape=(1,), y_shape=(), num_examples=8), record)


def _info(rng, num_steps=400, num_chains=4, **changes):
    shape = (num_chains, num_steps)
    log_density = rng.normal(-20, 1.9, size=shape)
    info = {
        "log_density": log_density,
        "acceptance": rng.beta(8, 2, size=shape),
        "energy": -log_density + rng.chisquare(7, size=shape) / 2,
        "diverging": np.zeros(shape, bool),
        "num_leapfrog": rng.integers(3, 16, size=shape),
        "step_size": np.full(shape, 0.3),
    }
    return {name: value for name, value in {**info, **changes}.items() if value is not None}


def _warnings(posterior):
    return "\n".join(posterior.summary().warnings)


def test_good_chains_get_numbers_and_no_warnings():
    posterior = _posterior(info=_info(np.random.default_rng(1)))
    summary = posterior.summary()
    assert summary.warnings == ()
    text = str(summary)
    for part in ("acceptance 0.80", "0 of 1600 diverged", "smallest E-BFMI", "leapfrog steps", "(tail)"):
        assert part in text
    found = diagnose_chains(posterior)
    assert found.modes == ((0, 1, 2, 3),)
    assert found.notes == found.frozen == ()
    assert found.weights.r_hat.shape == (7,)
    assert found.scales is not None
    assert found.scales.r_hat.shape == (1,)
    assert found.predictions is not None
    assert found.predictions.smallest_bulk_ess > 1000
    for value in (found.log_density, found.energy, found.e_bfmi, found.acceptance, found.num_leapfrog):
        assert value is not None
        assert value.shape == (4,)


def test_samplers_that_accept_everything_are_told_nothing_about_acceptance():
    rng = np.random.default_rng(1)
    info = {"temperature": np.ones((4, 400)), "step_size": np.full((4, 400), 1e-3)}
    for recorded in (info, {}, {**info, "energy_error": rng.normal(size=(4, 400))}):
        found = diagnose_chains(_posterior(info=recorded, method="SGLD()"))
        assert found.warnings == ()
        assert "acceptance" not in str(found)
    assert "energy error 1 per step" in str(found)


def test_divergences_are_counted_with_what_to_try():
    diverging = np.zeros((4, 400), bool)
    diverging[1, 7:12] = True
    text = _warnings(_posterior(info=_info(np.random.default_rng(1), diverging=diverging)))
    assert "5 of 1600 trajectories diverged" in text
    assert "target_acceptance" in text
    assert "reparameterise" in text


def test_a_funnel_sampled_badly_is_flagged():
    """Chains that creep along the neck: the scale and with it the energy move slowly, and some steps diverge."""
    rng = np.random.default_rng(0)
    neck = 3 * _autoregressive(rng, (4, 400), 0.995)
    values = rng.normal(size=(4, 400, 7)) * np.exp(neck / 2)[..., None]
    energy = 7 * neck / 2 + rng.chisquare(7, size=(4, 400)) / 2
    diverging = (neck < -3) & (rng.uniform(size=neck.shape) < 0.2)
    assert diverging.any()
    info = _info(rng, energy=energy, log_density=-energy, diverging=diverging)
    text = _warnings(_posterior(values, info=info, log_scale=neck))
    assert "low E-BFMI" in text
    assert "funnel" in text
    assert "trajectories diverged" in text
    assert "noise or prior scales" in text


def test_separate_modes_are_flagged_with_their_chains():
    rng = np.random.default_rng(0)
    values = 0.1 * rng.normal(size=(4, 400, 7))
    values[[0, 3], :, 6] += 1  # the last bias: predictions of chains 0 and 3 are higher
    posterior = _posterior(values, info=_info(rng))
    text = _warnings(posterior)
    assert "chains disagree in their predictions" in text
    assert "2 separate modes (chains 0, 3 | 1, 2)" in text
    assert "ParallelTempering" in text
    assert "few effective draws" not in text  # the same thing said twice


def test_separate_levels_of_log_density_are_flagged_even_where_predictions_agree():
    rng = np.random.default_rng(0)
    levels = rng.normal(-20, 2, size=(4, 400)) - 40 * (np.arange(4) == 2)[:, None]
    text = _warnings(_posterior(info=_info(rng, log_density=levels)))
    assert "stay at separate log densities" in text
    assert "(chains 0, 1, 3 | 2)" in text


def test_symmetries_of_weights_are_a_note_and_no_warning():
    rng = np.random.default_rng(0)
    values = np.array([1.0, -2.0, 0.5, 0.5, 1.5, 1.5, 0.0]) + 0.05 * rng.normal(size=(4, 400, 7))
    swap = {"w1": [1, 0], "b1": [3, 2], "w2": [5, 4]}
    values[2] = values[2][:, [*swap["w1"], *swap["b1"], *swap["w2"], 6]]  # hidden units of chain 2 trade places
    posterior = _posterior(values, info=_info(rng))
    found = diagnose_chains(posterior)
    assert found.weights.worst_r_hat > 1.5
    assert found.warnings == ()
    assert "symmetries" in found.notes[0]
    assert any(line.startswith("note") and "predictions agree" in line for line in posterior.summary().lines)


def test_without_inputs_a_disagreement_of_weights_is_a_warning():
    values = np.cumsum(np.random.default_rng(0).normal(size=(4, 400, 7)), axis=1)
    assert "disagree in their weights" in _warnings(_posterior(values, probes=None))


def test_chains_that_drift_are_told_to_run_longer_and_not_that_there_are_modes():
    values = 0.05 * np.cumsum(np.random.default_rng(0).normal(size=(4, 400, 7)), axis=1)
    text = _warnings(_posterior(values, info=_info(np.random.default_rng(1))))
    assert "run longer (num_samples=800, and num_warmup likewise)" in text
    assert "separate modes" not in text


@pytest.mark.parametrize("kind", ["still", "nearly still", "nothing accepted"])
def test_a_frozen_chain_is_named(kind):
    rng = np.random.default_rng(0)
    values, info = rng.normal(size=(4, 400, 7)), _info(rng)
    if kind == "nothing accepted":
        info["acceptance"][2] = 1e-4
    else:
        values[2] = values[2, :1] + (1e-5 * rng.normal(size=(400, 7)) if kind == "nearly still" else 0)
    assert "chain 2 did not move" in _warnings(_posterior(values, info=info))


def test_all_chains_frozen_are_named():
    values = np.repeat(np.random.default_rng(0).normal(size=(4, 1, 7)), 50, axis=1)
    assert "chains 0, 1, 2 and 3 did not move" in _warnings(_posterior(values))


def test_few_effective_draws_come_with_a_hint_about_acceptance():
    rng = np.random.default_rng(0)
    values = _autoregressive(rng, (4, 400, 7), 0.96)
    plain = _warnings(_posterior(values, info=_info(rng)))
    assert "few effective draws of predictions" in plain
    assert "acceptance is high" not in plain
    eager = _info(rng, acceptance=np.full((4, 400), 0.99))
    assert "acceptance is high (0.99)" in _warnings(_posterior(values, info=eager))


@pytest.mark.parametrize(("leapfrog", "acceptance", "warned"), [(8, 0.3, True), (1, 0.3, False), (1, 0.05, True)])
def test_low_acceptance_depends_on_the_kind_of_sampler(leapfrog, acceptance, warned):
    info = _info(
        np.random.default_rng(0),
        acceptance=np.full((4, 400), acceptance),
        num_leapfrog=np.full((4, 400), leapfrog),
    )
    assert ("low acceptance" in _warnings(_posterior(info=info))) == warned


def test_one_chain_is_told_what_it_cannot_show():
    found = diagnose_chains(_posterior(num_chains=1, info=_info(np.random.default_rng(0), num_chains=1)))
    assert found.warnings == ()
    assert "a single chain cannot show" in found.notes[0]


def test_frozen_and_drifting_chains_do_not_join_modes():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 200, 1)) + np.array([0.0, 10.0, 5.0, 0.0])[:, None, None]
    values[3] += np.linspace(0, 10, 200)[:, None]
    assert find_modes([values], np.array([True, True, False, True])) == ((0,), (1,))
    assert find_modes([values[:1]], np.array([True])) == ((0,),)


# ---- predictions


def test_predictions_of_chains_are_those_of_each_network_whatever_the_chunk(monkeypatch):
    posterior = _posterior(num_draws=11, num_chains=3)
    x = np.random.default_rng(1).normal(size=(5, 1)).astype(np.float32)
    outputs = chain_predictions(posterior, x)
    assert outputs.shape == (3, 11, 5, 1)
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf[2, 7]), posterior.params)
    np.testing.assert_allclose(outputs[2, 7], posterior.model.output(one, jnp.asarray(x)), rtol=1e-5)
    monkeypatch.setattr("marginax.predict.workload.CACHE_BYTES", 4 * 3 * 5 * 8 * 7)  # several chunks of draws
    np.testing.assert_allclose(chain_predictions(posterior, x), outputs, rtol=1e-5)


def test_inputs_are_given_in_the_units_of_the_data():
    posterior = _posterior(num_draws=12)
    scaling = Scaling(np.array([100.0], np.float32), np.array([10.0], np.float32))
    scaled = eqx.tree_at(lambda p: p.spec.scaling, posterior, scaling, is_leaf=lambda leaf: leaf is None)
    np.testing.assert_allclose(
        chain_predictions(scaled, 100 + 10 * X), chain_predictions(posterior, X), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_a_disagreement_far_from_the_data_shows_at_inputs_given_there():
    """Chains that agree near zero, where the training inputs are, and not elsewhere."""
    rng = np.random.default_rng(0)
    values = 0.05 * rng.normal(size=(4, 400, 7))
    values[..., 2:4] -= 8.0  # hidden units that switch on far to the right
    values[..., 0:2] += 4.0
    values[:2, :, 4:6] += 1.0
    values[2:, :, 4:6] -= 1.0
    values[:2, :, 6] += 2.0
    values[2:, :, 6] -= 2.0
    posterior = _posterior(values, probes=-np.ones((4, 1), np.float32))
    assert len(diagnose_chains(posterior).modes) == 1
    assert len(diagnose_chains(posterior, np.array([[4.0]])).modes) == 2


def test_shifts_of_all_logits_are_no_disagreement():
    model = mx.Model(mx.nets.MLP(1, (), 3, key=0), likelihood=mx.likelihoods.Categorical())
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: (0.1 * rng.normal(size=(4, 200, *leaf.shape))).astype(np.float32), model.initial(3)
    )
    shift = np.arange(4, dtype=np.float32)[:, None, None]
    params = eqx.tree_at(lambda p: p.network.layers[-1].bias, params, replace_fn=lambda bias: bias + shift)
    found = diagnose_chains(Draws(model, params, record=FitRecord(probes=X.astype(np.float32))))
    assert found.weights.worst_r_hat > 1.5
    assert found.warnings == ()


def test_posteriors_without_chains_are_refused():
    with pytest.raises(ValueError, match="at least 10 draws per chain, got 5"):
        diagnose_chains(_posterior(num_draws=5))
    posterior = _posterior(probes=None)
    with pytest.raises(ValueError, match="x must be given"):
        chain_predictions(posterior)
    with pytest.raises(ValueError, match="x must have shape \\(n, 1\\)"):
        diagnose_chains(posterior, np.ones((3, 2)))


# ---- ArviZ and time


@pytest.mark.parametrize("thin", [1, 5])
def test_arviz_gets_the_statistics_of_the_kept_steps_under_its_own_names(thin):
    rng = np.random.default_rng(0)
    info = _info(rng, num_steps=100 * thin)
    exported = _posterior(info=info, num_draws=100).to_arviz()
    stats = exported.sample_stats
    assert set(stats.data_vars) == {"lp", "acceptance_rate", "energy", "diverging", "n_steps", "step_size"}
    assert np.array_equal(stats["lp"].values, info["log_density"][:, thin - 1 :: thin])
    assert stats["diverging"].dtype == bool
    assert arviz.bfmi(exported).shape == (4,)
    if thin == 1:
        np.testing.assert_allclose(arviz.bfmi(exported), fraction_of_energy(info["energy"]))


@pytest.mark.parametrize("kind", ["no multiple", "cycles"])
def test_arviz_gets_no_statistics_where_draws_are_not_evenly_spaced(kind):
    rng = np.random.default_rng(0)
    cosine = 0.5 + 0.5 * np.cos(np.pi * np.linspace(0, 1, 100, endpoint=False))
    info = {
        "no multiple": _info(rng, num_steps=250),
        "cycles": _info(rng, num_steps=200, step_size=np.tile(cosine, (4, 2))),
    }
    assert "sample_stats" not in _posterior(info=info[kind], num_draws=100).to_arviz()

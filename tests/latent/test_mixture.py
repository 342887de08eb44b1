"""Mixtures: EM and coordinate ascent against scikit-learn, closed forms, and the laws of their densities."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from scipy.special import betaln, gammaln
from scipy.stats import multivariate_t
from sklearn.mixture import BayesianGaussianMixture
from sklearn.mixture import GaussianMixture as SklearnMixture

import marginax as mx
from marginax.data import Batch, FullBatch, Rows
from marginax.latent import (
    Categoricals,
    Dirichlet,
    GaussianMixture,
    Mixture,
    Normals,
    NormalWishart,
    Poissons,
    StickBreaking,
)

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("tied", "diagonal", "spherical")]


def clusters(num=90, size=2, seed=0, apart=3.0):
    rng = np.random.default_rng(seed)
    centres = apart * rng.normal(size=(3, size))
    return centres[np.arange(num) % 3] + rng.normal(size=(num, size)) @ rng.normal(size=(size, size))


def whole(x) -> Batch:
    return Batch(jnp.asarray(x), jnp.arange(len(x)), len(x))


def adapted(model, x):
    return model.adapted_to(FullBatch(Rows(x)))


# ---- scikit-learn


@pytest.mark.parametrize("structure", ["full", *SLOW])
def test_em_equals_scikit_learn(structure):
    with jax.enable_x64(True):
        x = clusters()
        model = adapted(GaussianMixture(3, structure), x)
        start = model.init(FullBatch(Rows(x)))
        parts = model.emissions.describe(start["emissions"])
        precisions = np.linalg.inv(np.asarray(parts["covariances"]))
        kind = {"diagonal": "diag"}.get(structure, structure)
        first = {
            "full": precisions,
            "tied": precisions[0],
            "diagonal": np.array([np.diag(p) for p in precisions]),
            "spherical": precisions[:, 0, 0],
        }[structure]
        theirs = SklearnMixture(
            3,
            covariance_type=kind,
            weights_init=np.asarray(jnp.exp(model.weights_prior.natural(start["weights"]))),
            means_init=np.asarray(parts["means"]),
            precisions_init=first,
            max_iter=2000,
            tol=1e-12,
        ).fit(x)
        ours = mx.fit(model, x, mx.infer.EM(2000, tolerance=1e-12), init=start, key=0, progress=False)
        np.testing.assert_allclose(ours.log_likelihood(x), theirs.score_samples(x), atol=1e-4)
        np.testing.assert_allclose(ours.responsibilities(x), theirs.predict_proba(x), atol=1e-4)
        np.testing.assert_allclose(ours.weights(), theirs.weights_, atol=1e-4)


class FromResponsibilities(BayesianGaussianMixture):
    """Theirs, started where ours starts."""

    def _initialize_parameters(self, X, random_state, **options):
        self._initialize(X, self.start)


def test_coordinate_ascent_equals_scikit_learn():
    with jax.enable_x64(True):
        x, num = clusters(), 4
        prior = NormalWishart(np.array([0.3, -0.2]), np.array([[2.0, 0.3], [0.3, 1.0]]), 0.5, 3.5)
        model = GaussianMixture(num, weights=Dirichlet(0.7), prior=prior)
        start = model.init(FullBatch(Rows(x)))
        theirs = FromResponsibilities(
            n_components=num,
            weight_concentration_prior_type="dirichlet_distribution",
            weight_concentration_prior=0.7,
            mean_prior=np.asarray(prior.mean),
            mean_precision_prior=0.5,
            degrees_of_freedom_prior=3.5,
            covariance_prior=np.asarray(prior.scatter),
            reg_covar=0.0,
            max_iter=5000,
            tol=1e-12,
        )
        theirs.start = np.asarray(model.assign(model.natural(start), jnp.asarray(x)))
        theirs.fit(x)
        method = mx.infer.CoordinateAscent(5000, tolerance=1e-13)
        ours = mx.fit(model, x, method, init=start, key=0, progress=False)
        np.testing.assert_allclose(ours.responsibilities(x), theirs.predict_proba(x), atol=1e-4)
        # their bound is without its constants: the normalisers of the priors, and of the normal density
        wishart = gammaln(3.5 / 2) + gammaln(2.5 / 2)  # and without the power of pi, in prior and posterior alike
        constant = num * (0.5 * 3.5 * np.linalg.slogdet(prior.scatter)[1] - 3.5 * np.log(2) - wishart)
        constant += gammaln(num * 0.7) - num * gammaln(0.7) + num * np.log(0.5) - len(x) * np.log(2 * np.pi)
        assert ours.elbo == pytest.approx(theirs.lower_bound_ + constant, abs=1e-4)


# ---- closed forms


@pytest.mark.parametrize("structure", ["full", *SLOW])
def test_the_bound_of_one_component_is_the_evidence(structure):
    """Found by predicting each point from those before it, with a Student t distribution."""
    with jax.enable_x64(True):
        x = clusters(12)
        model = adapted(GaussianMixture(1, structure), x)
        posterior = mx.fit(model, x, mx.infer.CoordinateAscent(3), key=0, progress=False)
        evidence = 0.0
        for i in range(len(x)):
            seen = model.emissions.statistics(jnp.asarray(x[:i]), jnp.ones((1, i)))
            belief = jax.tree.map(lambda leaf: np.asarray(leaf)[0] if leaf.ndim else float(leaf), _one(model, seen))
            grow = (belief["mean_precision"] + 1) / belief["mean_precision"]
            if structure in ("full", "tied"):
                dof = belief["dof"] - 1
                law = multivariate_t(belief["means"], belief["scatter"] * grow / dof, dof)
                evidence += law.logpdf(x[i])
            elif structure == "spherical":
                law = multivariate_t(
                    belief["means"], np.eye(2) * belief["scatter"] * grow / belief["dof"], belief["dof"]
                )
                evidence += law.logpdf(x[i])
            else:
                for d in range(2):
                    law = multivariate_t(
                        [belief["means"][d]], [[belief["scatter"][d] * grow / belief["dof"]]], belief["dof"]
                    )
                    evidence += law.logpdf(x[i, d])
        assert posterior.elbo == pytest.approx(evidence, abs=1e-8)


def _one(model, statistics):
    belief = model.emissions.conjugate(statistics)
    tied = belief["scatter"].ndim == 2 and belief["dof"].ndim == 0
    return belief | ({"scatter": belief["scatter"][None], "dof": belief["dof"][None]} if tied else {})


@eqx.filter_jit
def objectives(model, batch, method, key, num_steps=8):
    """One after another, from a first guess, and how many points the smallest component has."""
    state = method.init(model, None, batch, key=key)

    def step(state, _):
        state, _ = method.step(model, state, batch, key=key)
        return state, (state.objective, jnp.min(state.statistics["weights"]))

    return jax.lax.scan(step, state, None, length=num_steps)[1]


# EM adds the floor to the variances that are most likely, as scikit-learn does, and so lowers the likelihood by as much
# as the floor is of a variance. Without one it never falls, but ends where a component holds one point and has none:
# the claim is that of a floor that is nothing but a guard against this.
RISING = {
    "full": GaussianMixture(3, floor=1e-10),
    "tied": GaussianMixture(3, "tied", StickBreaking(0.8), floor=1e-10),
    "diagonal": GaussianMixture(3, "diagonal", floor=1e-10),
    "spherical": GaussianMixture(3, "spherical", StickBreaking(0.8), floor=1e-10),
    "poisson": Mixture(3, "poisson"),
    "categorical": Mixture(3, Categoricals(5)),
}


@pytest.mark.parametrize("name", ["full", *(pytest.param(n, marks=pytest.mark.slow) for n in list(RISING)[1:])])
@given(seed=st.integers(0, 10_000), apart=st.floats(0.0, 10.0), scale=st.floats(0.1, 100.0))
@settings(max_examples=25, deadline=None)
def test_no_update_lowers_the_bound_or_the_likelihood(name, seed, apart, scale):
    with jax.enable_x64(True):
        x = scale * clusters(60, 2, seed, apart)
        if name == "poisson":
            x = np.round(np.abs(x)).astype(int)
        elif name == "categorical":
            x = np.round(np.abs(x[:, 0])).astype(int) % 5
        model = adapted(RISING[name], x)
        for method in (mx.infer.CoordinateAscent(), mx.infer.EM()):
            values, fewest = map(np.asarray, objectives(model, whole(x), method, jax.random.key(seed)))
            # two points in a plane have no covariance but the floor: rounding errors decide what it is
            firm = np.minimum(fewest[1:], fewest[:-1]) > 3.0 if isinstance(method, mx.infer.EM) else True
            assert np.where(firm, np.diff(values), 0.0).min() > -1e-8 * np.abs(values).max() - 1e-8


FAMILIES = {
    "full": (GaussianMixture(2), "normal"),
    "tied": (GaussianMixture(2, "tied", StickBreaking()), "normal"),
    "diagonal": (GaussianMixture(2, "diagonal"), "normal"),
    "spherical": (GaussianMixture(2, "spherical"), "normal"),
    "poisson": (Mixture(2, "poisson"), "poisson"),
    "categorical": (Mixture(2, "categorical", Dirichlet(1.5)), "categorical"),
}


def data_of(kind, num=30):
    rng = np.random.default_rng(3)
    if kind == "normal":
        return clusters(num)
    return rng.poisson(4.0, size=(num, 2)) if kind == "poisson" else rng.integers(0, 3, size=num)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_divergence_is_that_of_draws_under_the_density(name):
    """KL(q || p) = E_q[log q - log p], with log q the prior plus the log density of the complete data."""
    with jax.enable_x64(True):
        model, kind = FAMILIES[name]
        x = data_of(kind)
        model = adapted(model, x)
        labels = jax.nn.one_hot(np.arange(len(x)) % 2, 2, axis=0, dtype=float)
        statistics = model._statistics(jnp.asarray(x), labels)
        belief = model.conjugate(statistics)
        draws = jax.vmap(lambda k: model.draw(belief, key=k))(jax.random.split(jax.random.key(0), 4000))

        def complete(params):
            return jnp.sum(labels * sum(model._logs(model.natural(params), jnp.asarray(x))))

        expected = jnp.sum(labels * sum(model._logs(model.expected_natural(belief), jnp.asarray(x))))
        values = np.asarray(jax.vmap(complete)(draws))
        assert abs(values.mean() - expected) < 4.9 * values.std() / np.sqrt(len(values))
        # exact posterior of complete data: its log density is log prior + log likelihood - log evidence
        evidence = expected - model.divergence(belief)
        for draw in (jax.tree.map(lambda leaf: leaf[0], draws), model.centre(belief)):
            posterior = model.log_prior(draw) + complete(draw) - evidence
            assert float(posterior) == pytest.approx(float(log_density_of_belief(model, belief, draw)), abs=1e-6)


def log_density_of_belief(model, belief, params):
    """By giving the belief's parameters to the prior."""
    parts = belief["emissions"]
    if isinstance(model.emissions, Normals):
        means = parts["means"]
        total = 0.0
        for k in range(len(means)):
            shared = parts["dof"].ndim == 0
            prior = NormalWishart(
                means[k],
                parts["scatter"] if shared else parts["scatter"][k],
                float(parts["mean_precision"][k]),
                float(parts["dof"] if shared else parts["dof"][k]),
            )
            family = Normals(model.emissions.covariance, prior)
            own = {"means": params["emissions"]["means"][k : k + 1], "precisions": params["emissions"]["precisions"]}
            if not shared:
                own["precisions"] = own["precisions"][k : k + 1]
            total += family.log_prior(own)
            if shared and k:
                size = means.shape[1]
                total -= family.covariance.log_law(own["precisions"], jnp.asarray(prior.dof), prior.scatter, size)
    elif isinstance(model.emissions, Poissons):
        a, b = parts["concentration"], parts["rate"]
        total = sum(
            Poissons(float(a[k, d]), b[k, d]).log_prior(params["emissions"][k : k + 1, d : d + 1])
            for k in range(2)
            for d in range(a.shape[1])
        )
    else:
        logs = model.emissions.natural(params["emissions"])
        total = jnp.sum(parts * logs) + np.sum(gammaln(parts.sum(1))) - np.sum(gammaln(parts))
    weights = belief["weights"]
    logs = model.weights_prior.natural(params["weights"])
    if isinstance(weights, dict):
        total -= betaln(weights["broken"][0], weights["left"][0])
        return total + weights["broken"][0] * logs[0] + weights["left"][0] * jnp.log1p(-jnp.exp(logs[0]))
    return total + jnp.sum(weights * logs) + gammaln(weights.sum()) - np.sum(gammaln(weights))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_draws_have_finite_gradients(name):
    model, kind = FAMILIES[name]
    x = data_of(kind)
    model = adapted(model, x)
    params = model.init(FullBatch(Rows(x)))
    gradient = jax.grad(lambda p: model.log_density(p, whole(x)))(params)
    assert np.isfinite(ravel_pytree(gradient)[0]).all()


# ---- other methods, restarts, minibatches


@pytest.mark.slow
def test_nuts_agrees_with_the_bound_where_labels_are_certain():
    x = np.concatenate([np.random.default_rng(0).normal(size=(40, 1)) + m for m in (-20.0, 20.0)])
    model = GaussianMixture(2, "spherical")
    exact = mx.fit(model, x, mx.infer.CoordinateAscent(), key=0, progress=False)
    draws = mx.fit(model, x, mx.infer.NUTS(200, 400), init=exact, num_chains=2, key=0, progress=False).params[
        "emissions"
    ]["means"]
    there = np.sort(np.asarray(draws).reshape(-1, 2), axis=1)
    belief = exact.belief["emissions"]
    wanted = np.sort(belief["means"][:, 0])
    scale = np.sqrt(belief["scatter"] / belief["dof"] / belief["mean_precision"]).max()
    np.testing.assert_allclose(there.mean(0), wanted, atol=0.3 * scale)
    np.testing.assert_allclose(there.std(0), scale, rtol=0.25)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [mx.infer.MAP(num_epochs=1000, batch_size=None), mx.infer.VI(num_epochs=1000, batch_size=None)],
    ids=lambda method: type(method).__name__,
)
def test_methods_for_any_density_end_near_the_planted_components(method):
    x = np.concatenate([np.random.default_rng(0).normal(size=(40, 2)) + m for m in (-4.0, 4.0)])
    for model, data in ((GaussianMixture(2), x), (mx.latent.HMM(2), x.reshape(8, 10, 2))):
        posterior = mx.fit(model, data, method, key=0, progress=False)
        means = np.sort(posterior.components()["means"], axis=0)
        np.testing.assert_allclose(means, [[-4.0, -4.0], [4.0, 4.0]], atol=0.7)
        assert np.isfinite(posterior.log_likelihood(data)).all()


@pytest.mark.slow
def test_restarts_are_chains_and_the_best_is_taken():
    x = clusters(60, seed=4)
    posterior = mx.fit(GaussianMixture(6), x, mx.infer.CoordinateAscent(50), num_chains=4, key=0, progress=False)
    info = posterior.record.info["iterate"]
    assert info["elbo"].shape == (4, 50)
    np.testing.assert_allclose(posterior.elbos, info["elbo"][:, -1], rtol=1e-6)
    assert posterior.elbo == posterior.elbos.max()
    np.testing.assert_allclose(info["elbo"], info["reconstruction"] - info["complexity"], rtol=1e-5)
    assert (info["complexity"] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", [mx.infer.EM, mx.infer.CoordinateAscent], ids=lambda m: m.__name__)
def test_minibatches_end_where_all_rows_do(method):
    x = np.concatenate([clusters(3000, seed=1, apart=6.0)])
    model = GaussianMixture(3)
    exact = mx.fit(model, x, method(200), key=0, progress=False)
    stochastic = mx.fit(model, x, method(600, batch_size=100), init=exact, key=0, progress=False)
    assert exact.log_likelihood(x).mean() - stochastic.log_likelihood(x).mean() < 0.01
    agree = (exact.labels(x) == stochastic.labels(x)).mean()
    assert agree > 0.98


@pytest.mark.slow
def test_the_size_with_the_best_bound_is_the_planted_one():
    x = clusters(300, seed=2, apart=6.0)
    method = mx.infer.CoordinateAscent(100)
    bounds = [
        mx.fit(GaussianMixture(num, "full", Dirichlet(1.0)), x, method, num_chains=3, key=0, progress=False).elbo
        for num in (1, 3, 5)
    ]
    assert np.argmax(bounds) == 1


@pytest.mark.slow
def test_posteriors_are_saved_and_runs_resumed(tmp_path):
    x = clusters(30)
    posterior = mx.fit(
        GaussianMixture(2),
        x,
        mx.infer.CoordinateAscent(20),
        key=0,
        num_chains=2,
        directory=tmp_path / "run",
        progress=False,
    )
    again = mx.load(tmp_path / "run")
    np.testing.assert_array_equal(again.responsibilities(x), posterior.responsibilities(x))
    assert again.elbo == posterior.elbo


# ---- mistakes


@pytest.mark.parametrize(
    ("build", "x", "text"),
    [
        (lambda: GaussianMixture(3), np.array([[1.0], [np.nan], [2.0]]), "NaN or infinite, the first in row 1"),
        (lambda: GaussianMixture(5), np.zeros((3, 2)), "num_components must be at most the 3 rows of the data, got 5"),
        (lambda: GaussianMixture(2), np.zeros(5), r"must have shape \(n, axes\)"),
        (lambda: GaussianMixture(0), np.zeros((5, 1)), "num_components must be an int >= 1, got 0"),
        (lambda: GaussianMixture(2, "round"), np.zeros((5, 1)), "covariance must be one of 'full'"),
        (lambda: Mixture(2, "poisson"), np.array([[1], [-2], [3]]), "must hold whole numbers >= 0"),
        (lambda: Mixture(2, Categoricals(2)), np.array([0, 1, 2]), "must hold classes from 0 to 1"),
    ],
)
def test_mistakes_are_named(build, x, text):
    with pytest.raises((ValueError, TypeError), match=text):
        mx.fit(build(), x, mx.infer.CoordinateAscent(), key=0)


def test_methods_in_closed_form_refuse_other_models():
    with pytest.raises(TypeError, match=r"EM needs a model with closed-form updates, such as mx\.latent"):
        mx.fit(mx.Density(lambda w: -(w**2), 0.0), None, mx.infer.EM(), key=0)

"""NumPyro programs as models: their density against NumPyro's own and against sums by hand."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import potential_energy

import marginax as mx
from marginax.data import Batch, FullBatch, MappedFiles, Minibatches, Rows
from marginax.model.program.enumeration import Factor, sum_out
from marginax.testing.conformance import InterruptAt

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2)).astype(np.float32)
Y = (X @ [1.0, -1.0] + 0.3 * RNG.normal(size=6)).astype(np.float32)


def coin(flips):
    prob = numpyro.sample("heads_prob", dist.Beta(2.0, 2.0))
    numpyro.deterministic("odds", prob / (1 - prob))
    with numpyro.plate("flip", len(flips)):
        numpyro.sample("heads", dist.Bernoulli(prob), obs=flips)


def regression(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", x.shape[0]):
        mean = numpyro.deterministic("mean", x @ weights)
        numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def schools(errors, effects=None):
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    scale = numpyro.sample("scale", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(errors)):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
        numpyro.sample("seen", dist.Normal(effect, errors), obs=effects)


def everything():
    """Supports of many kinds, and one that depends on another site."""
    low = numpyro.sample("low", dist.Normal(0, 1))
    numpyro.sample("above", dist.Uniform(low, low + 2.0))
    numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("ordered", dist.ImproperUniform(dist.constraints.ordered_vector, (), (3,)))
    numpyro.sample("correlation", dist.LKJCholesky(3, 2.0))
    with numpyro.plate("group", 4), numpyro.handlers.scale(scale=2.0):
        numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.factor("penalty", -(low**2))


def around_the_data(x):
    """A prior that looks at the data, so that all of them are needed for it."""
    centre = numpyro.sample("centre", dist.Normal(jnp.mean(x), 1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.Normal(centre, 1.0), obs=x)


def surer_with_more(x):
    """A prior that knows how many data there are, which no batch of them tells."""
    centre = numpyro.sample("centre", dist.Normal(0, 1 / len(x)))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.Normal(centre, 1.0), obs=x)


def sure_with_many(x):
    """The same, where two and three are as good as one, and inside a compiled function."""
    scale = jax.jit(lambda ones: ones * np.full(1, 1 / (len(x) // 2), np.float32))(jnp.ones(1))
    centre = numpyro.sample("centre", dist.Normal(0, scale[0]))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.Normal(centre, 1.0), obs=x)


def printing(x):
    """One that shows the data does not depend on them."""
    jax.debug.print("{}", x.mean())
    centre = numpyro.sample("centre", dist.Normal(0, 1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.Normal(centre, 1.0), obs=x)


def table(y):
    """Rows and columns, and something that was seen besides."""
    centre = numpyro.sample("centre", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("besides", dist.Normal(centre, 1.0).expand([4]), obs=jnp.arange(4.0))
    with numpyro.plate("rows", y.shape[0], dim=-2), numpyro.plate("columns", y.shape[1], dim=-1):
        numpyro.sample("y", dist.Normal(centre, scale), obs=y)


def hidden_walk(x):
    def step(before, now):
        state = numpyro.sample("state", dist.LogNormal(jnp.log(before), 1.0))
        numpyro.sample("x", dist.Normal(state, 1.0), obs=now)
        return state, None

    scan(step, numpyro.sample("start", dist.HalfNormal(1.0)), x)


def whole_batch(model, data):
    """A program that has seen its data, and those as a single batch."""
    program = mx.Program(model).bind(data)
    source = FullBatch(program.read(data))
    start = {name: jnp.zeros(shape) for name, shape in program.layout.unknowns}
    return program, source.batch(0, key=jax.random.key(0)), moved(program, start, 0)


def moved(program, params, seed):
    return program.reinitialise(params, key=jax.random.key(seed))


# ---- the density


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (coin, {"flips": np.array([1, 0, 1, 1])}),
        (regression, {"x": X, "y": Y}),
        (schools, {"errors": np.array([15.0, 10, 16]), "effects": np.array([28.0, 8, -3])}),
        (everything, None),
        (around_the_data, {"x": Y}),
        (surer_with_more, {"x": Y}),
        (sure_with_many, {"x": Y}),
        (hidden_walk, {"x": Y}),
        (table, {"y": X}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_log_density_is_that_of_numpyro(model, data):
    program, batch, params = whole_batch(model, data)

    @jax.jit
    def both(params):
        theirs = potential_energy(numpyro.handlers.seed(model, 0), (), data or {}, params)
        return program.log_density(params, batch), -theirs

    for seed in range(3):
        np.testing.assert_allclose(*both(moved(program, params, seed)), rtol=1e-4)


def test_prior_and_likelihood_are_told_apart():
    program, batch, params = whole_batch(regression, {"x": X, "y": Y})
    values = eqx.filter_jit(program.sites)(params)
    expected = dist.Normal(X @ values["weights"], values["scale"]).log_prob(Y)
    np.testing.assert_allclose(eqx.filter_jit(program.log_likelihood)(params, batch), expected, rtol=1e-5)
    assert set(values) == {"weights", "scale"}  # the mean depends on data


@pytest.mark.parametrize("model", [around_the_data, surer_with_more, sure_with_many])
def test_a_prior_that_depends_on_data_is_never_seen_in_batches(model):
    with pytest.raises(ValueError, match="its prior depends on the data, or on their number"):
        mx.Program(model).bind(Minibatches(Rows({"x": Y}), 2))


def test_a_program_that_prints_its_data_is_seen_in_batches():
    assert mx.Program(printing).bind(Minibatches(Rows({"x": Y}), 2)).layout.splits


def test_the_density_of_a_batch_in_one_run_is_prior_and_scaled_likelihood():
    program, batch, params = whole_batch(regression, {"x": X, "y": Y})
    some = Batch(jax.tree.map(lambda leaf: leaf[:2], batch.data), batch.index[:2], 6)
    expected = program.log_prior(params) + 3 * program.log_likelihood(params, some).sum()
    np.testing.assert_allclose(program.log_density(params, some), expected, rtol=1e-5)


def test_many_rows_are_taken_in_blocks():
    flips = np.arange(10_000) % 4 == 0
    program, batch, params = whole_batch(coin, {"flips": flips})
    prob = 1 / (1 + np.exp(-np.float64(params["heads_prob"])))
    expected = 2500 * np.log(prob) + 7500 * np.log(1 - prob)
    np.testing.assert_allclose(eqx.filter_jit(program.scaled_log_likelihood)(params, batch), expected, rtol=1e-5)


# ---- minibatches


def by_subsample(x, y, num_rows=6):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", num_rows, subsample_size=3):
        x, y = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y)


def by_index(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(x), subsample_size=3) as rows:
        numpyro.sample("y", dist.Normal(x[rows] @ weights, scale), obs=y[rows])


def of_fixed_size(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", 6):
        numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y)


def check_minibatches(program, params, x, y, size=2):
    """The mean over all minibatches of the gradient is the gradient on all rows."""
    rows = np.array(list(itertools.combinations(range(len(x)), size)))
    slope = jax.jit(jax.grad(program.log_density))
    parts = [slope(params, Batch({"x": x[r], "y": y[r]}, jnp.asarray(r), len(x))) for r in rows]
    whole = slope(params, Batch({"x": x, "y": y}, jnp.arange(len(x)), len(x)))
    mean = jax.tree.map(lambda *leaves: jnp.mean(jnp.stack(leaves), axis=0), *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), mean, whole)


@pytest.mark.parametrize("model", [regression, by_subsample, by_index, of_fixed_size], ids=lambda model: model.__name__)
def test_minibatches_are_unbiased(model):
    program = mx.Program(model).bind({"x": X, "y": Y})
    assert program.layout.plate == "rows"
    plain, batch, params = whole_batch(regression, {"x": X, "y": Y})
    check_minibatches(program, params, X, Y)
    density = jax.jit(lambda p: (program.log_density(p, batch), plain.log_density(p, batch)))
    np.testing.assert_allclose(*density(params), rtol=1e-5)


@pytest.mark.slow
def test_files_larger_than_memory(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 2))
    y = x @ [1.0, -1.0] + 0.3 * rng.normal(size=400)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    source = MappedFiles(tmp_path / "x.npy", tmp_path / "y.npy", batch_size=40)
    posterior = mx.fit(mx.Program(regression), source, mx.infer.MAP(num_epochs=60), key=0, progress=False)
    np.testing.assert_allclose(posterior.sites["weights"][0, 0], [1.0, -1.0], atol=0.05)


def test_unknowns_of_each_example_need_all_data_at_once():
    data = {"errors": np.ones(8), "effects": np.arange(8.0)}
    program = mx.Program(schools).bind(data)
    assert not program.layout.splits
    assert program.read(data).num_examples == 1
    with pytest.raises(ValueError, match="'effect' is an unknown inside the plate 'school', one for each example"):
        mx.fit(mx.Program(schools), Minibatches(Rows(data), 4), mx.infer.MAP(), key=0)


# ---- discrete sites


def mixture(x):
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    centres = numpyro.sample("centres", dist.Normal(0, 3).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x)):
        label = numpyro.sample("label", dist.Bernoulli(share))
        numpyro.sample("x", dist.Normal(centres[label], 1.0), obs=x)


def chain(x, num_states=3):
    start = jnp.array([0.5, 0.3, 0.2])
    with numpyro.plate("from", num_states):
        moves = numpyro.sample("moves", dist.Dirichlet(jnp.ones(num_states)))
    centres = numpyro.sample("centres", dist.Normal(0, 3).expand([num_states]).to_event(1))
    state = None
    for t in range(x.shape[0]):
        state = numpyro.sample(f"state_{t}", dist.Categorical(start if state is None else moves[state]))
        numpyro.sample(f"x_{t}", dist.Normal(centres[state], 1.0), obs=x[t])


def shared_switch(x):
    centre = numpyro.sample("centre", dist.Normal(0, 3))
    sign = numpyro.sample("sign", dist.Bernoulli(0.3))
    with numpyro.plate("rows", len(x)):
        label = numpyro.sample("label", dist.Bernoulli(0.2 + 0.5 * sign))
        numpyro.sample("x", dist.Normal(centre * label, 1.0), obs=x)


def test_mixture_labels_are_summed_out():
    x = np.array([-1.0, 0.2, 2.0, 3.0], np.float32)
    program, batch, params = whole_batch(mixture, {"x": x})
    values = eqx.filter_jit(program.sites)(params)
    share, centres = values["share"], values["centres"]
    both = jnp.stack([dist.Normal(c, 1.0).log_prob(x) for c in centres])
    expected = jax.nn.logsumexp(both + jnp.log(jnp.array([1 - share, share]))[:, None], axis=0)
    np.testing.assert_allclose(eqx.filter_jit(program.log_likelihood)(params, batch), expected, rtol=1e-5)
    assert program.layout.splits  # so minibatches are fine


def test_hidden_states_are_summed_out():
    x = np.array([-1.0, 0.5, 2.0, -0.3], np.float32)
    program, batch, params = whole_batch(chain, {"x": x})
    values = jax.tree.map(np.asarray, eqx.filter_jit(program.sites)(params))
    total = 0.0
    for states in itertools.product(range(3), repeat=4):
        term = [0.5, 0.3, 0.2][states[0]]
        for before, now in itertools.pairwise(states):
            term *= values["moves"][before, now]
        total += term * np.exp(np.sum(dist.Normal(values["centres"][list(states)], 1.0).log_prob(x)))
    np.testing.assert_allclose(eqx.filter_jit(program.log_likelihood)(params, batch).sum(), np.log(total), rtol=1e-5)


def test_labels_within_a_shared_switch_are_summed_out_in_the_right_order():
    x = np.array([-1.0, 0.2, 2.0], np.float32)
    program, batch, params = whole_batch(shared_switch, {"x": x})
    centre, total = eqx.filter_jit(program.sites)(params)["centre"], 0.0
    for sign in (0, 1):
        p = 0.2 + 0.5 * sign
        rows = (1 - p) * jnp.exp(dist.Normal(0, 1.0).log_prob(x)) + p * jnp.exp(dist.Normal(centre, 1.0).log_prob(x))
        total += (0.3 if sign else 0.7) * jnp.prod(rows)
    np.testing.assert_allclose(eqx.filter_jit(program.log_likelihood)(params, batch).sum(), jnp.log(total), rtol=1e-5)
    with pytest.raises(ValueError, match="'sign' is summed out and shared by all examples"):
        mx.fit(mx.Program(shared_switch), Minibatches(Rows({"x": x}), 2), mx.infer.MAP(), key=0)


def test_sums_over_crossed_plates_are_refused():
    both = frozenset({(-1, 2), (-2, 3)})
    factors = [Factor(jnp.zeros((2, 2, 3, 2)), both)]
    with pytest.raises(ValueError, match="two plates"):
        sum_out(factors, {-3: frozenset({(-1, 2)}), -4: frozenset({(-2, 3)})})


# ---- loops


def walk(x):
    """Observed steps inside a scan."""
    pull = numpyro.sample("pull", dist.Uniform(-1.0, 1.0))

    def step(before, now):
        numpyro.sample("x", dist.Normal(pull * before, 1.0), obs=now)
        return now, None

    scan(step, 0.0, x)


def hidden_labels(x):
    centre = numpyro.sample("centre", dist.Normal(0, 1))

    def step(before, now):
        label = numpyro.sample("label", dist.Bernoulli(0.3))
        numpyro.sample("x", dist.Normal(centre * label, 1.0), obs=now)
        return before, None

    scan(step, 0.0, x)


def test_scans_observe():
    x = np.array([0.3, -0.2, 0.5], np.float32)
    program, batch, params = whole_batch(walk, {"x": x})
    pull = eqx.filter_jit(program.sites)(params)["pull"]
    expected = dist.Normal(pull * np.append(0.0, x[:-1]), 1.0).log_prob(x).sum()
    np.testing.assert_allclose(eqx.filter_jit(program.log_likelihood)(params, batch).sum(), expected, rtol=1e-5)


# ---- from and to the user


def test_a_program_is_saved_and_loaded_without_its_data(tmp_path):
    program = mx.Program(coin).bind({"flips": np.array([1, 1, 0, 1])})
    posterior = mx.posterior.Draws(program, {"heads_prob": RNG.normal(size=(2, 10))})
    posterior.save(tmp_path / "run")
    with pytest.raises(mx.files.FileError, match="register_function"):
        mx.load(tmp_path / "run")
    loaded = mx.load(tmp_path / "run", model=mx.Program(coin))
    np.testing.assert_array_equal(loaded.sites["odds"], posterior.sites["odds"])
    draws = [p.sample_predictive({"flips": np.zeros(3)})["heads"] for p in (loaded, posterior)]
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("name", ["coin", pytest.param("schools", marks=pytest.mark.slow)])
def test_a_run_is_resumed(tmp_path, name):
    """With the program given again, also where all data are one example."""
    data = {"flips": np.array([1, 1, 0, 1])}
    if name == "schools":
        data = {"errors": np.ones(4), "effects": np.arange(4.0)}
    program = mx.Program({"coin": coin, "schools": schools}[name])
    method = mx.infer.MAP(num_epochs=20)
    through = mx.fit(program, data, method, key=0, progress=False)
    hooks = (InterruptAt((("train", 10),)),)
    mx.fit(program, data, method, key=0, directory=tmp_path / "run", chunk_size=7, hooks=hooks, progress=False)
    resumed = mx.resume(tmp_path / "run", model=program, progress=False)
    jax.tree.map(np.testing.assert_array_equal, resumed.params, through.params)


def test_predictive_draws_follow_their_law_and_do_not_depend_on_chunks():
    program = mx.Program(coin).bind({"flips": np.array([1, 1, 0, 1])})
    probs = RNG.beta(8, 4, size=(2, 3000))
    posterior = mx.posterior.Draws(program, {"heads_prob": np.log(probs / (1 - probs))})
    assert ((posterior.sample(5, key=0)["heads_prob"] > 0) & (posterior.sample(5, key=0)["heads_prob"] < 1)).all()
    few = posterior.sample_predictive({"flips": np.zeros(30)}, max_bytes=10_000)
    draws = posterior.sample_predictive({"flips": np.zeros(30)})
    np.testing.assert_array_equal(few["heads"], draws["heads"])
    heads = draws["heads"].sum(axis=1)
    law = dist.BetaBinomial(8.0, 4.0, total_count=30)
    assert abs(heads.mean() - law.mean) < 4.9 * np.sqrt(law.variance / 6000)
    assert abs(heads.var() / law.variance - 1) < 4.9 * np.sqrt(2 / 6000)


def test_unknowns_of_each_example_are_known_for_those_of_the_training_data():
    data = {"errors": np.ones(3), "effects": np.arange(3.0)}
    program = mx.Program(schools).bind(data)
    params = {name: RNG.normal(size=(1, 7, *shape)) for name, shape in program.layout.unknowns}
    posterior = mx.posterior.Draws(program, params)
    assert posterior.sample_predictive({"errors": np.ones(3)})["seen"].shape == (7, 3)
    with pytest.raises(ValueError, match=r"'effect' has shape \(3,\) in the posterior and \(5,\) for these arguments"):
        posterior.sample_predictive({"errors": np.ones(5)})


def test_prior_predictive():
    drawn = mx.Program(regression).prior_predictive(4000, {"x": X}, key=0)
    assert {name: value.shape[1:] for name, value in drawn.items()} == {
        "weights": (2,),
        "scale": (),
        "mean": (6,),
        "y": (6,),
    }
    variance = (X**2).sum(axis=1) + 1.0  # of the weights, and E[scale^2] = 1
    np.testing.assert_allclose(drawn["y"].var(axis=0), variance, rtol=0.2)


def test_arviz_has_log_likelihoods():
    program = mx.Program(regression).bind({"x": X, "y": Y})
    posterior = mx.posterior.Draws(program, {"weights": RNG.normal(size=(4, 30, 2)), "scale": RNG.normal(size=(4, 30))})
    exported = posterior.to_arviz({"x": X, "y": Y})
    assert exported.posterior["weights"].shape == (4, 30, 2)
    sites = posterior.sites
    mean = np.einsum("cdk,nk->cdn", sites["weights"], X)
    expected = dist.Normal(mean, sites["scale"][..., None]).log_prob(Y)
    np.testing.assert_allclose(exported.log_likelihood["y"], expected, rtol=1e-4, atol=1e-4)


def test_init_takes_values_of_sites():
    data = {"flips": np.array([1, 1, 0, 1])}
    program = mx.Program(coin).bind(data)
    start = program.start_at({"heads_prob": 0.25}, {"heads_prob": jnp.zeros(())}, 3)
    np.testing.assert_allclose(jax.nn.sigmoid(start["heads_prob"]), 0.25, rtol=1e-5)
    with pytest.raises(ValueError, match="inside the support of every site, but 'heads_prob' is not"):
        mx.fit(mx.Program(coin), data, mx.infer.MAP(), init={"heads_prob": 1.5}, key=0)


# ---- networks


def network_program(kind):
    from numpyro.contrib import module

    def flax(x):
        from flax import linen

        class Net(linen.Module):
            @linen.compact
            def __call__(self, x):
                return linen.Dense(1)(linen.tanh(linen.Dense(3)(x)))[..., 0]

        return module.random_flax_module("net", Net(), dist.Normal(0, 1), input_shape=(2,))(x)

    def nnx(x):
        from flax import nnx as flax_nnx

        net = flax_nnx.Linear(2, 1, rngs=flax_nnx.Rngs(0))
        return module.random_nnx_module("net", net, dist.Normal(0, 1))(x)[..., 0]

    def equinox(x):
        net = eqx.nn.Linear(2, 1, key=jax.random.key(0))
        return jax.vmap(module.random_eqx_module("net", net, dist.Normal(0, 1)))(x)[..., 0]

    forward = {"flax": flax, "nnx": nnx, "equinox": equinox}[kind]

    def program(x, y=None):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        mean = forward(x)
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(mean, scale), obs=y)

    return program


@pytest.mark.parametrize("kind", ["equinox", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("flax", "nnx"))])
def test_networks_inside_programs_have_random_weights(kind):
    program = mx.Program(network_program(kind)).bind({"x": X, "y": Y})
    assert program.layout.splits
    params = {name: RNG.normal(size=(1, 5, *shape)) for name, shape in program.layout.unknowns}
    assert sum(value[0, 0].size for value in params.values()) == (14 if kind == "flax" else 4)
    posterior = mx.posterior.Draws(program, params)
    assert posterior.sites["scale"].shape == (1, 5)
    assert posterior.sample_predictive({"x": X[:2]})["y"].shape == (5, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flax", "nnx", "equinox"])
def test_networks_inside_programs_are_fitted_in_minibatches(kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    data = {"x": x, "y": x @ [1.0, -1.0] + 0.3 * rng.normal(size=200)}
    program = mx.Program(network_program(kind))
    posterior = mx.fit(program, data, mx.infer.VI(num_epochs=400, batch_size=50), key=0, progress=False)
    mean = posterior.sample_predictive({"x": np.eye(2)}, num_samples=400)["y"].mean(axis=0)
    np.testing.assert_allclose(mean, [1.0, -1.0], atol=0.2)

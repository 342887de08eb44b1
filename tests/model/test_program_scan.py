"""Discrete sites inside a scan, against NumPyro's own density summed over every path."""

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask
from numpyro.infer.util import log_density
from tests.model.test_program import chain, hidden_labels, whole_batch

import marginax as mx
from marginax.data import Batch
from marginax.latent.chain import Chain, log_total

RNG = np.random.default_rng(0)
START = jnp.array([0.7, 0.3])
X = RNG.normal(size=4).astype(np.float32)
TABLE = RNG.normal(size=(2, 3)).astype(np.float32)  # two sequences of three steps


def unknowns(num_states=2):
    with numpyro.plate("from", num_states):
        moves = numpyro.sample("moves", dist.Dirichlet(jnp.ones(num_states)))
    return moves, numpyro.sample("centres", dist.Normal(0, 3).expand([num_states]).to_event(1))


def hidden_chain(x, moves, centres):
    def step(state, now):
        state = numpyro.sample("state", dist.Categorical(moves[state]))
        numpyro.sample("x", dist.Normal(centres[state], 1.0), obs=now)
        return state, None

    scan(step, 0, x)


def known_start(x):
    hidden_chain(x, *unknowns())


def drawn_start(x):
    moves, centres = unknowns()
    first = numpyro.sample("first", dist.Categorical(START))
    numpyro.sample("x_first", dist.Normal(centres[first], 1.0), obs=x[0])

    def step(state, now):
        state = numpyro.sample("state", dist.Categorical(moves[state]))
        numpyro.sample("x", dist.Normal(centres[state], 1.0), obs=now)
        return state, None

    scan(step, first, x[1:])


def counted(x):
    """Without inputs, by a counter; what is carried is an array made of the state."""
    moves, centres = unknowns()

    def step(carry, _):
        probs, t = carry
        state = numpyro.sample("state", dist.Categorical(probs))
        numpyro.sample("x", dist.Normal(centres[state], 1.0), obs=x[t])
        return (moves[state], t + 1), None

    scan(step, (START, 0), None, length=len(x))


def ragged(x, length):
    """Sequences in a plate, states and observations masked past the end; the plate inside."""
    moves, centres = unknowns()

    def step(carry, now):
        state, t = carry
        with numpyro.plate("rows", len(length)), mask(mask=t < length):
            state = numpyro.sample("state", dist.Categorical(moves[state]))
            numpyro.sample("x", dist.Normal(centres[state], 1.0), obs=now)
        return (state, t + 1), None

    scan(step, (jnp.zeros(len(length), int), 0), x.T)


def labelled(x):
    """A state that is carried, a label that is not, and sensors that see both."""
    moves, centres = unknowns()

    def step(state, now):
        state = numpyro.sample("state", dist.Categorical(moves[state]))
        label = numpyro.sample("label", dist.Bernoulli(0.2 + 0.3 * state))
        with numpyro.plate("sensor", 2):
            numpyro.sample("x", dist.Normal(centres[state] + label, 1.0), obs=now)
        return state, None

    scan(step, 0, x.T)


def factorial(x):
    moves, centres = unknowns()

    def step(carry, now):
        one = numpyro.sample("one", dist.Categorical(moves[carry["one"]]))
        two = numpyro.sample("two", dist.Categorical(moves.T[carry["two"]] / moves.sum(0)[carry["two"]][..., None]))
        numpyro.sample("x", dist.Normal(centres[one] + 2 * centres[two], 1.0), obs=now)
        return {"one": one, "two": two}, None

    scan(step, {"one": 0, "two": 1}, x)


def switching(x):
    """Levels that are inferred move as the state says, and a switch outside acts on all steps."""
    moves, centres = unknowns()
    switch = numpyro.sample("switch", dist.Bernoulli(0.4))

    def step(carry, now):
        state, before = carry
        state = numpyro.sample("state", dist.Categorical(moves[state]))
        level = numpyro.sample("level", dist.Normal(before + 0.5 * centres[state], 1.0 + switch))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        numpyro.sample("x", dist.Normal(level, rate), obs=now)
        return (state, level), rate

    scan(step, (0, 0.0), x)


def backwards(x):
    moves, centres = unknowns()

    def step(state, now):
        state = numpyro.sample("state", dist.Categorical(moves[state]))
        numpyro.sample("x", dist.Normal(centres[state], 1.0), obs=now)
        return state, now

    scan(step, 1, x, reverse=True)


@dataclass(frozen=True)
class Case:
    """A program, its data, the shapes of its discrete sites, and how many of them are masked."""

    model: Any
    data: dict[str, Any]
    sites: dict[str, tuple[int, ...]]
    num_masked: int = 0


CASES = [
    Case(known_start, {"x": X}, {"state": (4,)}),
    Case(known_start, {"x": X[:1]}, {"state": (1,)}),
    Case(drawn_start, {"x": X}, {"first": (), "state": (3,)}),
    Case(counted, {"x": X}, {"state": (4,)}),
    Case(ragged, {"x": TABLE, "length": np.array([3, 1])}, {"state": (3, 2)}, num_masked=2),
    Case(labelled, {"x": TABLE}, {"state": (3,), "label": (3,)}),
    Case(factorial, {"x": X[:3]}, {"one": (3,), "two": (3,)}),
    Case(switching, {"x": X[:3]}, {"switch": (), "state": (3,)}),
    Case(backwards, {"x": X[:3]}, {"state": (3,)}),
    Case(hidden_labels, {"x": X[:3]}, {"label": (3,)}),
]


def check_all_paths(case):
    """Log density and its gradient are those of the sum over all paths of NumPyro's density."""
    program, batch, params = whole_batch(case.model, case.data)
    data = jax.tree.map(jnp.asarray, case.data)
    sizes = [int(np.prod(shape)) for shape in case.sites.values()]
    paths = np.array(list(itertools.product((0, 1), repeat=sum(sizes))))
    paths = dict(zip(case.sites, np.split(paths, np.cumsum(sizes)[:-1], axis=1), strict=True))
    paths = {name: jnp.asarray(value.reshape(-1, *case.sites[name])) for name, value in paths.items()}

    def ours(params):
        return program.log_density(params, batch)

    def by_hand(params):
        log_det = sum(jnp.sum(value) for value in program.density(params, data).log_dets.values())
        values = program.sites(params)
        joint = jax.vmap(lambda path: log_density(case.model, (), data, values | path)[0])(paths)
        return jax.nn.logsumexp(joint) + log_det - case.num_masked * jnp.log(2.0)

    found, expected = jax.jit(lambda p: (jax.value_and_grad(ours)(p), jax.value_and_grad(by_hand)(p)))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model.__name__}-{len(case.data['x'])}")
def test_the_density_is_the_sum_over_all_paths(case):
    check_all_paths(case)


def three_states(x):
    moves, centres = unknowns(3)

    def step(carry, now):
        state, t = carry
        probs = jnp.where(t == 0, jnp.array([0.5, 0.3, 0.2]), moves[state])
        state = numpyro.sample("state", dist.Categorical(probs))
        numpyro.sample("x", dist.Normal(centres[state], 1.0), obs=now)
        return (state, t + 1), None

    scan(step, (0, 0), x)


def test_the_density_is_that_of_a_loop_and_of_the_hidden_markov_model():
    x = RNG.normal(size=6).astype(np.float32)
    (scanned, batch, params), (looped, other, _) = (whole_batch(model, {"x": x}) for model in (three_states, chain))

    def direct(params):
        values = scanned.sites(params)
        observed = dist.Normal(values["centres"], 1.0).log_prob(x[:, None])
        start = jnp.log(jnp.array([0.5, 0.3, 0.2]))
        return log_total(Chain(start, jnp.log(values["moves"]), observed, jnp.asarray(6)))

    @jax.jit
    def three(params):
        ours = jax.value_and_grad(scanned.scaled_log_likelihood)(params, batch)
        return ours, jax.value_and_grad(looped.scaled_log_likelihood)(params, other), direct(params)

    ours, loop, closed = three(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, loop)
    np.testing.assert_allclose(ours[0], closed, rtol=1e-5)


def test_sequences_are_examples_and_come_in_batches():
    data = {"x": TABLE, "length": np.array([3, 2])}
    program, batch, params = whole_batch(ragged, data)
    assert program.layout.plate == "rows"
    second = Batch({name: value[1:] for name, value in data.items()}, jnp.array([1]), 2)
    both, one = jax.jit(lambda p: (program.log_likelihood(p, batch), program.log_likelihood(p, second)))(params)
    assert both.shape == (2,)
    np.testing.assert_allclose(both[1:], one, rtol=1e-5)


def test_steps_are_not_unrolled():
    def num_operations(length):
        program, batch, params = whole_batch(known_start, {"x": np.zeros(length, np.float32)})
        return len(jax.make_jaxpr(program.log_density)(params, batch).jaxpr.eqns)

    assert num_operations(11) == num_operations(1001)


def test_impossible_moves_leave_gradients_finite():
    def left_to_right(x):
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        moves = jnp.array([[0.0, 0.0], [-jnp.inf, 0.0]])

        def step(state, now):
            state = numpyro.sample("state", dist.Categorical(logits=moves[state]))
            numpyro.sample("x", dist.Uniform(jnp.array([-1.0, 1.0])[state], 2.0).mask(True), obs=now)
            numpyro.factor("pull", centre * state)
            return state, None

        scan(step, 0, x)

    program, batch, params = whole_batch(left_to_right, {"x": np.array([0.5, 0.5, 1.5], np.float32)})
    value, slope = jax.jit(jax.value_and_grad(program.log_density))(params, batch)
    assert np.isfinite(value)
    assert np.isfinite(slope["centre"])


def test_unknowns_of_a_scan_that_runs_backwards():
    """As those of one that runs forwards over the same data the other way round."""

    def walk(x, backwards):
        def step(before, now):
            state = numpyro.sample("state", dist.Normal(0.5 * before, 1.0))
            numpyro.sample("x", dist.Normal(state, 1.0), obs=now)
            return state, None

        scan(step, 1.0, x, reverse=backwards)

    values = []
    for backwards_too, x in ((True, X), (False, X[::-1])):
        program = mx.Program(walk, backwards=backwards_too).bind({"x": x})
        params = {"state": jnp.arange(4.0) if backwards_too else jnp.arange(4.0)[::-1]}
        values.append(program.log_density(params, Batch({"x": x[None]}, jnp.arange(1), 1)))
    np.testing.assert_allclose(*values, rtol=1e-5)


def test_paths_and_observations_are_drawn():
    def switch(x=None):
        stay = numpyro.sample("stay", dist.Beta(8.0, 2.0))

        def step(state, now):
            state = numpyro.sample("state", dist.Bernoulli(jnp.where(state == 1, stay, 1 - stay)))
            numpyro.sample("x", dist.Normal(3.0 * state, 1.0), obs=now)
            return state, None

        scan(step, 1, x, length=2)

    num = 4000
    program = mx.Program(switch).bind({"x": X[:2]})
    posterior = mx.posterior.Draws(program, {"stay": np.full((1, num), np.log(4.0))})  # a probability of 0.8
    drawn = posterior.sample_predictive({}, key=0)
    for step, prob in enumerate((0.8, 0.8**2 + 0.2**2)):
        error = np.sqrt(prob * (1 - prob) / num)
        assert abs(drawn["state"][:, step].mean() - prob) < 4.9 * error
        assert abs(drawn["x"][:, step].mean() - 3 * prob) < 4.9 * np.sqrt(9 * error**2 + 1 / num)


@pytest.mark.slow
def test_nuts_through_a_scan_is_that_through_a_loop():
    rng = np.random.default_rng(2)
    states = (np.arange(12) // 3) % 2
    x = (np.array([-2.0, 2.0])[states] + rng.normal(size=12)).astype(np.float32)

    def ordered():
        """The higher centre has its name: else there are two posteriors, between which chains do not go."""
        with numpyro.plate("from", 2):
            moves = numpyro.sample("moves", dist.Dirichlet(jnp.ones(2)))
        low, gap = numpyro.sample("low", dist.Normal(0, 3)), numpyro.sample("gap", dist.Gamma(4.0, 1.0))
        return moves, jnp.stack([low, low + gap])

    def scanned(x):
        hidden_chain(x, *ordered())

    def looped(x):
        moves, centres = ordered()
        state = 0
        for t in range(x.shape[0]):
            state = numpyro.sample(f"state_{t}", dist.Categorical(moves[state]))
            numpyro.sample(f"x_{t}", dist.Normal(centres[state], 1.0), obs=x[t])

    moments = []
    for seed, model in enumerate((scanned, looped)):
        method = mx.infer.NUTS(500, 1500)
        sites = mx.fit(mx.Program(model), {"x": x}, method, key=seed, num_chains=4, progress=False).sites
        flat = [sites["low"][..., None], sites["gap"][..., None], sites["moves"][..., 0]]
        draws = np.concatenate(flat, axis=-1).astype(np.float64)
        draws = np.concatenate([draws, draws**2], axis=-1)
        ess = np.array([numpyro.diagnostics.effective_sample_size(draws[..., i]) for i in range(draws.shape[-1])])
        assert ess.min() > 300
        moments.append((draws.mean((0, 1)), draws.var((0, 1)) / ess))
    (mean, error), (other, other_error) = moments
    assert np.all(np.abs(mean - other) < 4.9 * np.sqrt(error + other_error))


# ---- what is refused


def second_order(x):
    centre = numpyro.sample("centre", dist.Normal(0, 1))

    def step(carry, now):
        before, last = carry
        state = numpyro.sample("state", dist.Bernoulli(0.2 + 0.3 * before + 0.3 * last))
        numpyro.sample("x", dist.Normal(centre * state, 1.0), obs=now)
        return (last, state), None

    scan(step, (0, 0), x)


def summed(x):
    """A count of all states so far."""
    centre = numpyro.sample("centre", dist.Normal(0, 1))

    def step(count, now):
        count = count + numpyro.sample("state", dist.Bernoulli(0.3))
        numpyro.sample("x", dist.Normal(centre * count, 1.0), obs=now)
        return count, None

    scan(step, 0, x)


def given_out(x):
    centre = numpyro.sample("centre", dist.Normal(0, 1))

    def step(state, now):
        state = numpyro.sample("state", dist.Bernoulli(0.2 + 0.3 * state))
        return state, centre * state

    _, means = scan(step, 0, x)
    numpyro.sample("x", dist.Normal(means, 1.0), obs=x)


def last_state(x):
    centre = numpyro.sample("centre", dist.Normal(0, 1))

    def step(state, now):
        state = numpyro.sample("state", dist.Bernoulli(0.2 + 0.3 * state))
        numpyro.sample("x", dist.Normal(centre * state, 1.0), obs=now)
        return state, None

    last, _ = scan(step, 0, x)
    numpyro.sample("after", dist.Normal(centre * last, 1.0), obs=1.0)


def masked_around(x):
    with mask(mask=True):
        hidden_labels(x)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (second_order, "'state' carries must depend on no states but those of its last step"),
        (summed, "'state' carries must depend on no states but those of its last step"),
        (given_out, "'state' gives out depends on it, but it is summed out"),
        (last_state, "'after' depends on the last state of a scan"),
        (masked_around, "'label' is inside a 'mask' of NumPyro: put that inside the function"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_scans_that_are_no_chain_are_refused(model, text):
    with pytest.raises(ValueError, match=text):
        mx.Program(model).bind({"x": X})


def test_paths_that_examples_share_are_not_drawn_given_data():
    program = mx.Program(labelled).bind({"x": TABLE})
    params = {name: np.zeros((1, 2, *shape)) for name, shape in program.layout.unknowns}
    with pytest.raises(ValueError, match="'state' is inside a scan and shared by all examples"):
        mx.posterior.Draws(program, params).sample_predictive({"x": TABLE}, data={"x": TABLE})

"""MIMO: with one member it is MAP; members are networks; rows keep their targets in every order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax.data import Batch
from marginax.infer import MAP, MIMO
from marginax.infer.members.mimo import Ends, independent_orders, joint_outputs
from marginax.posterior import Draws

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)).astype(np.float32)
Y = np.sin(2 * X[:, 0]).astype(np.float32)


def curve_model() -> mx.Model:
    return mx.Model(mx.nets.MLP(2, (8, 7), 1, key=0), mx.likelihoods.Gaussian())


def started(method, rows: int = 12):
    """A state before the first step, and a batch of some of 60 rows."""
    model = curve_model()
    batch = Batch((jnp.asarray(X[:rows]), jnp.asarray(Y[:rows])), jnp.arange(rows), 60)
    return model, method.init(model, model.initial(1), batch, key=KEY), batch


def check_one_member():
    options = {"num_epochs": 30, "batch_size": 16}
    one = mx.fit(curve_model(), (X, Y), MIMO(num_members=1, **options), key=0, num_chains=2)
    point = mx.fit(curve_model(), (X, Y), MAP(**options), key=0, num_chains=2)
    for ours, theirs in zip(*map(jax.tree.leaves, (one.params, point.params)), strict=True):
        assert np.array_equal(ours, theirs)


def test_one_member_is_map_bit_for_bit():
    check_one_member()


def by_hand(ends: Ends, params, xs: list[np.ndarray]) -> np.ndarray:
    """Outputs of all members for one input each, in NumPy: (member, row)."""
    layers = jax.tree.map(np.asarray, params.network.layers)
    h = sum(x @ np.asarray(w).T for x, w in zip(xs, ends.inputs, strict=True)) + layers[0].bias
    h = np.maximum(h, 0) @ layers[1].weight.T + layers[1].bias
    h = np.maximum(h, 0)
    return np.stack([h @ w[0] + b[0] for w, b in zip(ends.outputs, ends.bias, strict=True)])


def test_the_network_adds_up_its_inputs_and_has_an_output_for_each():
    model, state, batch = started(MIMO(num_members=3))
    orders = independent_orders(12, 2, 0.0, key=KEY)
    found = joint_outputs(model.network_of(state.params), state.own, batch.x, orders)
    wanted = by_hand(state.own, state.params, [X[:12], *(X[:12][np.asarray(order)] for order in orders)])
    np.testing.assert_allclose(found[..., 0].T, wanted, rtol=1e-4, atol=1e-5)


def test_outputs_do_not_depend_on_where_a_row_stands():
    model, state, batch = started(MIMO(num_members=3))
    network, orders = model.network_of(state.params), independent_orders(12, 2, 0.0, key=KEY)
    before = joint_outputs(network, state.own, batch.x, orders)
    moved = RNG.permutation(12)
    back = np.argsort(moved)  # the same rows meet each other
    moved_orders = [jnp.asarray(back[np.asarray(order)[moved]]) for order in orders]
    after = joint_outputs(network, state.own, batch.x[moved], moved_orders)
    np.testing.assert_allclose(after, before[moved], rtol=1e-5, atol=1e-6)


def test_members_as_networks_are_those_of_equal_inputs():
    model, state, batch = started(MIMO(num_members=3))
    same = [jnp.arange(12)] * 2
    together = joint_outputs(model.network_of(state.params), state.own, batch.x, same)
    members = MIMO(num_members=3).members(model, state.params, state.own)
    for m in range(3):
        alone = model.output(jax.tree.map(lambda leaf, m=m: leaf[m], members), batch.x)
        np.testing.assert_allclose(together[:, m], alone, rtol=1e-4, atol=1e-5)


def check_objective():
    """Every member is judged at each row of the batch by that row's target, whatever the others have for input."""
    method = MIMO(num_members=3, repetition=0.25)
    model, state, batch = started(method)
    found = method.log_likelihood(model, state.params, state.own, batch, jnp.asarray(0), key=KEY)
    seen = []

    def orders(size, num, repetition, *, key):
        seen.extend(independent_orders(size, num, repetition, key=key))
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("marginax.infer.members.mimo.independent_orders", orders)
        again = method.log_likelihood(model, state.params, state.own, batch, jnp.asarray(0), key=KEY)
    assert float(found) == float(again)
    places = [np.arange(12), *map(np.asarray, seen)]
    outputs = by_hand(state.own, state.params, [X[:12][order] for order in places])
    scale = float(jnp.exp(state.params.likelihood["log_scale"]).ravel()[0])
    errors = np.stack([(outputs[m] - Y[:12][order]) / scale for m, order in enumerate(places)])
    wanted = 60 / 12 * np.sum(np.mean(-0.5 * errors**2 - np.log(scale) - 0.5 * np.log(2 * np.pi), axis=0))
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_the_likelihood_is_that_of_each_rows_own_target_and_counts_data_once():
    check_objective()


def test_orders_are_those_of_the_method():
    """With all rows repeated the likelihood is that of the members; with none, it is another one."""
    found = {}
    for repetition in (0.0, 1.0):
        method = MIMO(num_members=3, repetition=repetition)
        model, state, batch = started(method)
        found[repetition] = float(method.log_likelihood(model, state.params, state.own, batch, jnp.asarray(0), key=KEY))
        members = method.members(model, state.params, state.own)
        each = [float(model.scaled_log_likelihood(jax.tree.map(lambda a, m=m: a[m], members), batch)) for m in range(3)]
        found["members"] = np.mean(each)
    assert found[1.0] == pytest.approx(found["members"], rel=1e-5)
    assert abs(found[0.0] / found[1.0] - 1) > 1e-3


def test_the_prior_is_that_of_networks_with_scaled_first_layers():
    method = MIMO(num_members=3)
    model, state, _ = started(method)
    found = [float(method.log_prior(model, state.params, state.own, jnp.asarray(m))) for m in range(3)]
    for m in range(3):
        layers = list(state.params.network.layers)
        values = [(np.sqrt(3) * state.own.inputs[m], layers[0].bias), (layers[1].weight, layers[1].bias)]
        values.append((state.own.outputs[m], state.own.bias[m]))
        network = jax.tree.unflatten(
            jax.tree.structure(state.params.network), [jnp.asarray(leaf) for pair in values for leaf in pair]
        )
        wanted = float(model.log_prior(model.with_weights(state.params, network)))
        assert found[m] == pytest.approx(wanted, rel=1e-5)


def test_a_draw_of_the_members_has_the_size_of_a_draw_of_one_network():
    """The first layers add up: each starts smaller by the root of their number."""
    model = mx.Model(mx.nets.MLP(200, (300,), 1, key=0), mx.likelihoods.Gaussian(0.1))
    batch = Batch((jnp.ones((2, 200)), jnp.ones(2)), jnp.arange(2), 2)
    method = MIMO(num_members=4)
    state = method.init(model, model.initial(1), batch, key=KEY)
    together = method.members(model, state.params, state.own).network.layers[0].weight[0]
    ratio = float(together.std() / state.params.network.layers[0].weight.std())
    assert abs(ratio - 1) < 4.9 / np.sqrt(together.size)  # of a ratio of two standard deviations


@pytest.mark.parametrize("repetition", [0.0, 0.6, 1.0])
def test_orders_move_the_rows_that_are_not_repeated(repetition):
    num_moved = round((1 - repetition) * 50)
    stayed = np.zeros(50)
    for seed in range(200):
        orders = np.stack(independent_orders(50, 2, repetition, key=jax.random.key(seed)))
        assert (np.sort(orders) == np.arange(50)).all()
        at_home = orders == np.arange(50)
        assert (~at_home).sum(axis=1).max() <= num_moved
        stayed += at_home.all(axis=0)
    expected = 200 * (1 - num_moved / 50)  # and the few that come home by chance
    chance = 200 * num_moved / 50 / max(num_moved, 1) ** 2
    assert np.abs(stayed - expected - chance).max() <= 4.9 * np.sqrt(max(expected * num_moved / 50, 1.0) + chance)


def test_members_are_draws_and_learn():
    posterior = mx.fit(curve_model(), (X, Y), MIMO(num_members=2, num_epochs=2000), key=0)
    assert isinstance(posterior, Draws)
    assert (posterior.num_chains, posterior.num_draws) == (1, 2)
    prediction = posterior.predict(X)
    assert np.sqrt(np.mean((prediction.mean - Y) ** 2)) < 0.3
    assert prediction.epistemic.min() > 0
    assert jax.tree.map(lambda a: a[0], posterior.sample(1, key=0))(jnp.asarray(X[0])).shape == (1,)


def test_what_members_share_is_computed_once_in_predictions():
    """They have the same input, so that they differ in the last layer alone: one pass for all of them."""
    posterior = mx.fit(curve_model(), (X, Y), MIMO(num_members=3, num_epochs=1), key=0)
    functions = posterior.functions(key=KEY)
    assert functions.num_draws == 3
    program = jax.make_jaxpr(jax.vmap(lambda draw: functions.distribution(draw, jnp.asarray(X)).mean))(functions.draws)
    shapes = [eqn.outvars[0].aval.shape for eqn in program.jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert [3 in shape for shape in shapes] == [False, False, True]
    outputs = [
        posterior.model.output(jax.tree.map(lambda a, m=m: jnp.asarray(a[0, m]), posterior.params), jnp.asarray(X))
        for m in range(3)
    ]
    np.testing.assert_allclose(posterior.predict(X).mean, np.mean(outputs, axis=0)[:, 0], rtol=1e-4, atol=1e-5)


def test_images_have_members():
    x = RNG.normal(size=(12, 18, 18)).astype(np.float32)
    model = mx.Model(mx.nets.LeNet((1, 18, 18), (2, 3), 4, 2, key=0), mx.likelihoods.Categorical())
    posterior = mx.fit(model, (x, RNG.integers(0, 2, 12)), MIMO(num_members=2, num_epochs=3), key=0)
    assert posterior.params.network.convolutions[0].weight.shape[:2] == (1, 2)
    assert posterior.predict(x).probs.shape == (12, 2)


REFUSED = {
    "one layer": (mx.Model(mx.nets.MLP(2, (), 1, key=0), mx.likelihoods.Gaussian()), "two layers or more"),
    "a way around": (mx.Model(mx.nets.MLP(2, (3,), 1, linear=True, key=0), mx.likelihoods.Gaussian()), "nothing else"),
    "a fixed end": (
        mx.Model(mx.nets.MLP(2, (3,), 1, key=0), mx.likelihoods.Gaussian(), subset=mx.LastLayer()),
        "random weights in layers/0 for MIMO",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_networks_without_ends_of_their_own_are_refused(case):
    with pytest.raises(ValueError, match=case[1]):
        mx.fit(case[0], (X, Y), MIMO(), key=0)


def test_repetition_is_a_fraction():
    with pytest.raises(ValueError, match=r"repetition must be in \[0, 1\], got 2.0"):
        MIMO(repetition=2.0)

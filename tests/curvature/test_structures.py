"""Every structure keeps what it says of the curvature: compared with explicit Jacobians in float64."""

import functools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import marginax as mx
from marginax.curvature import (
    EKFAC,
    GGN,
    BlockDiagonal,
    Dense,
    Diagonal,
    EmpiricalFisher,
    Extent,
    FixedCovariance,
    FunctionSpace,
    Hessian,
    Kronecker,
    LowRank,
    MonteCarloFisher,
    Point,
    output_jacobian,
    plan_for,
)
from marginax.curvature.jacobians import Outer, Plain, Zero, dense_rows
from marginax.curvature.low_rank import ReducedCurvature
from marginax.data import Batch
from marginax.nets.layers import layer_paths, layers_of, replace_layers

NUM, BATCH = 11, 4


class Shared(eqx.Module):
    """A layer that is used twice, a scale that is in no layer, and a normalisation."""

    inner: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    outer: eqx.nn.Linear
    scale: jax.Array

    def __call__(self, x):
        x = self.norm(jnp.tanh(self.inner(jnp.tanh(self.inner(x)))))
        return self.scale * self.outer(x)


class Convolutional(eqx.Module):
    """One convolution of ours with stride and padding, one of Equinox with dilation."""

    first: mx.nets.Conv2d
    second: eqx.nn.Conv2d
    last: eqx.nn.Linear

    def __call__(self, x):
        x = jnp.tanh(self.first(x))
        x = jnp.tanh(self.second(x))
        return self.last(x.ravel())


class Recurrent(eqx.Module):
    """A layer inside a scan, where no hook can be."""

    cell: eqx.nn.Linear
    last: eqx.nn.Linear

    def __call__(self, x):
        state, _ = jax.lax.scan(lambda h, t: (jnp.tanh(self.cell(h) + t), None), jnp.zeros(2), x[:, None])
        return self.last(state)


def _networks(name, outputs):
    keys = jax.random.split(jax.random.key(3), 3)
    if name == "mlp":
        return mx.nets.MLP(3, (4, 5), outputs, activation=jnp.tanh, key=0), (3,)
    if name == "shared":
        inner, outer = eqx.nn.Linear(3, 3, key=keys[0]), eqx.nn.Linear(3, outputs, key=keys[1])
        return Shared(inner, eqx.nn.LayerNorm(3), outer, jnp.full(outputs, 1.3)), (3,)
    if name == "convolutional":
        first = mx.nets.Conv2d(2, 3, 3, stride=2, padding=1, key=0)
        second = eqx.nn.Conv2d(3, 2, 2, dilation=2, use_bias=False, key=keys[1])
        return Convolutional(first, second, eqx.nn.Linear(2, outputs, key=keys[2])), (2, 5, 5)
    if name == "residual":  # strides, padding, filters of 1x1, normalisation with scales and thresholds
        net = mx.nets.ResNet((1, 5, 5), outputs, depth=8, channels=1, normalisation=mx.nets.FilterResponse(), key=0)
        return jax.tree.map(lambda leaf: leaf + 0.02, net), (1, 5, 5)
    if name == "temporal":
        net = mx.nets.TemporalConvolution(2, outputs, channels=(2, 3), kernel_size=2, every_step=False, key=0)
        return jax.tree.map(lambda leaf: leaf + 0.02, net), (5, 2)
    return Recurrent(eqx.nn.Linear(2, 2, key=keys[0]), eqx.nn.Linear(2, outputs, key=keys[1])), (3,)


LIKELIHOODS = {
    "categorical": (mx.likelihoods.Categorical(), 3, lambda rng: rng.integers(0, 3, NUM)),
    "scale from the network": (
        mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()),
        2,
        lambda rng: rng.normal(size=NUM),
    ),
    "Student, scale from the network": (
        mx.likelihoods.StudentT(df=3.0, scale=mx.likelihoods.FromNetwork()),
        2,
        lambda rng: rng.normal(size=NUM),
    ),
    "Laplace, scale from the network": (
        mx.likelihoods.Laplace(scale=mx.likelihoods.FromNetwork()),
        2,
        lambda rng: rng.normal(size=NUM),
    ),
}


@functools.cache
def _case(network="mlp", likelihood="categorical"):
    noise, outputs, targets = LIKELIHOODS[likelihood]
    rng = np.random.default_rng(0)
    net, shape = _networks(network, outputs)
    net = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, net)
    model = mx.Model(net, likelihood=noise)
    params, x, y = model.initial(outputs), jnp.asarray(rng.normal(size=(NUM, *shape))), jnp.asarray(targets(rng))
    flat, unravel = ravel_pytree(params.network)

    def outputs_at(weights):
        return model.output(eqx.tree_at(lambda p: p.network, params, unravel(weights)), x)

    def loss(weights):
        return -jnp.sum(model.likelihood.log_prob(outputs_at(weights), y, {}))

    @jax.jit
    def explicit(flat):
        jacobian = jax.jacobian(outputs_at)(flat)
        fisher = model.likelihood.fisher(outputs_at(flat), {})
        return jacobian, jnp.einsum("nkp,nkl,nlq->pq", jacobian, fisher, jacobian)

    jacobian, matrix = jax.tree.map(np.asarray, explicit(flat))
    return SimpleNamespace(
        model=model,
        params=params,
        x=x,
        y=y,
        flat=flat,
        loss=loss,
        outputs_at=outputs_at,
        jacobian=jacobian,
        matrix=matrix,
    )


def _curvature(case, structure, kind=None, moves=None, key=0):
    """In batches, of which the last is not full."""
    kind = GGN() if kind is None else kind
    plan = plan_for(case.model, case.params, case.x.shape[1:], case.x.dtype, moves)
    extent = Extent(NUM, BATCH, kind.num_columns(case.jacobian.shape[1]))
    sums = structure.empty(plan, extent, key=jax.random.key(1))

    @eqx.filter_jit
    def add(sums, rows, weights, number, key):
        batch = Batch((case.x[rows], case.y[rows]), rows, NUM)
        curvature = kind.of_batch(Point(case.model, case.params, plan, batch, weights, key))
        return structure.add(sums, curvature, number)

    for number in range(structure.num_passes):
        for start in range(0, NUM, BATCH):
            rows = jnp.arange(start, start + BATCH) % NUM
            weights = (jnp.arange(start, start + BATCH) < NUM).astype(case.x.dtype)
            sums = add(sums, rows, weights, number, jax.random.fold_in(jax.random.key(key), start))
        if number + 1 < structure.num_passes:
            sums = eqx.filter_jit(structure.next_pass)(sums, lambda: jnp.ones(plan.size))
    return eqx.filter_jit(lambda sums: structure.finalise(sums, plan))(sums)


def _matrix(curvature):
    """The matrix, from what the covariance becomes with a prior of precision 1."""
    dense = eqx.filter_jit(lambda c: c.covariance(jnp.ones(c.size)).dense())
    return np.linalg.inv(np.asarray(dense(curvature))) - np.eye(curvature.size)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


NETWORKS = ["mlp", "shared", "convolutional", "recurrent", "temporal"]


WHOLE = [
    *((network, Dense()) for network in NETWORKS),
    pytest.param("residual", Dense(), marks=pytest.mark.slow),
    ("convolutional", FunctionSpace()),
    ("shared", LowRank(200, num_passes=2)),
]


@pytest.mark.parametrize(("network", "structure"), WHOLE, ids=lambda v: v if isinstance(v, str) else type(v).__name__)
def test_dense_and_its_factored_forms_are_the_whole_matrix(network, structure):
    case = _case(network)
    np.testing.assert_allclose(_matrix(_curvature(case, structure)), case.matrix, rtol=1e-7, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["shared", "convolutional", "residual", "temporal"])
def test_diagonal_and_blocks_are_parts_of_the_whole_matrix(network):
    case = _case(network, "scale from the network")
    found = np.diag(_matrix(_curvature(case, Diagonal())))  # (1 + v) - 1: to the digits of 1
    np.testing.assert_allclose(found, np.diag(case.matrix), rtol=1e-8, atol=1e-15)
    blocks = np.zeros_like(case.matrix)
    layers = [leaf.path.rpartition("/")[0] for leaf in case.model.leaves]
    owner = np.repeat(layers, [int(np.prod(leaf.shape)) for leaf in case.model.leaves])
    same = owner[:, None] == owner
    blocks[same] = case.matrix[same]
    np.testing.assert_allclose(_matrix(_curvature(case, BlockDiagonal())), blocks, rtol=1e-7, atol=1e-9)


class Moved(eqx.Module):
    """A layer whose output is moved."""

    layer: eqx.Module
    change: jax.Array

    def __call__(self, x, *, key=None):
        return self.layer(x) + self.change


class Listener(eqx.Module):
    """A layer that notes what comes in."""

    layer: eqx.Module
    heard: list = eqx.field(static=True)

    def __call__(self, x, *, key=None):
        self.heard.append(x)
        return self.layer(x)


def _places(layer, x):
    """What the weight of a layer is multiplied with at every place, by XLA's own patches."""
    if isinstance(layer, eqx.nn.Linear):
        return x[:, None]
    if isinstance(layer, mx.nets.Pointwise):
        return x
    if isinstance(layer, mx.nets.CausalConvolution):
        size = layer.weight.shape[2]
        return _patches(x, (size,), (1,), [((size - 1) * layer.dilation, 0)], (layer.dilation,))
    return _patches(x, layer.weight.shape[2:], layer.stride, layer.padding, getattr(layer, "dilation", (1, 1)))


def _patches(x, kernel, stride, padding, dilation):
    patches = jax.lax.conv_general_dilated_patches(x[None], kernel, stride, list(padding), rhs_dilation=dilation)
    return patches[0].reshape(patches.shape[1], -1)


def _explicit_factors(case, site):
    """Inputs and pulled-back columns of a layer at every place, by explicit moves of its output."""
    network = case.model.network
    layers = layers_of(network)

    def one(x):
        heard = []
        replace_layers(network, [Listener(v, heard) if i == site else v for i, v in enumerate(layers)])(x)
        (inside,) = heard
        shape = layers[site](inside).shape

        def outputs(change):
            moved = [Moved(layer, change) if i == site else layer for i, layer in enumerate(layers)]
            return replace_layers(network, moved)(x)

        root = case.model.likelihood.fisher_root(network(x), {})
        pulled = jnp.einsum("k...,km->m...", jax.jacobian(outputs)(jnp.zeros(shape)), root)
        return _places(layers[site], inside), pulled.reshape(pulled.shape[0], shape[0], -1)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(case.x))


@pytest.mark.slow
@pytest.mark.parametrize(("network", "num_plain"), [("convolutional", 0), ("residual", 25), ("temporal", 0)])
def test_kronecker_factors_of_convolutions_are_second_moments_over_all_places(network, num_plain):
    case = _case(network)
    found = _curvature(case, Kronecker())
    corrected = _curvature(case, EKFAC())
    start, paths, plain = 0, layer_paths(case.model.network), 0
    for block, better, leaf in zip(found.blocks, corrected.blocks, case.model.leaves, strict=True):
        parent = leaf.path.rpartition("/")[0]
        if parent not in paths:  # scales and thresholds of a normalisation keep their diagonal, which is exact
            part = np.diag(case.matrix)[start : start + block.size]
            for diagonal in (block, better):
                np.testing.assert_allclose(np.diag(_matrix(diagonal)), part, rtol=1e-7, atol=1e-9)
            start, plain = start + block.size, plain + 1
            continue
        inputs, columns = _explicit_factors(case, paths.index(parent))
        outer = np.einsum("nmot,nmpt->op", columns, columns)
        inner = np.einsum("nit,njt->ij", inputs, inputs) / (inputs.shape[0] * inputs.shape[2])
        inner = np.ones((1, 1)) if leaf.path.endswith("bias") else inner
        exact = np.kron(outer, inner)
        basis = np.kron(np.asarray(block.left), np.asarray(block.right))
        np.testing.assert_allclose((basis * np.asarray(block.values).ravel()) @ basis.T, exact, rtol=1e-7, atol=1e-9)
        part = case.matrix[start : start + exact.shape[0], start : start + exact.shape[0]]
        basis = np.kron(np.asarray(better.left), np.asarray(better.right))
        np.testing.assert_allclose(
            np.asarray(better.values).ravel(), np.diag(basis.T @ part @ basis), rtol=1e-7, atol=1e-9
        )
        start += exact.shape[0]
    assert plain == num_plain


@pytest.mark.slow
def test_corrected_eigenvalues_are_nearer_to_the_block_than_products():
    case = _case("mlp")
    plain, corrected = (_matrix(_curvature(case, s)) for s in (Kronecker(), EKFAC()))
    for start, leaf in zip(
        np.cumsum([0, *(int(np.prod(v.shape)) for v in case.model.leaves)]), case.model.leaves, strict=False
    ):
        part = slice(start, start + int(np.prod(leaf.shape)))
        distance = [np.linalg.norm(m[part, part] - case.matrix[part, part]) for m in (plain, corrected)]
        assert distance[1] <= distance[0] + 1e-12 * np.linalg.norm(case.matrix[part, part])  # exact for the last bias


def test_hessian_is_the_second_derivative():
    case = _case("mlp", "scale from the network")
    exact = np.asarray(jax.jit(jax.hessian(case.loss))(case.flat))
    plan = plan_for(case.model, case.params, (3,), case.x.dtype)
    batch = Batch((case.x, case.y), jnp.arange(NUM), NUM)
    found = Hessian().of_batch(Point(case.model, case.params, plan, batch, jnp.ones(NUM), jax.random.key(0)))
    np.testing.assert_allclose(eqx.filter_jit(lambda: found.matrix())(), exact, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(eqx.filter_jit(lambda: found.diagonal())(), np.diag(exact), rtol=1e-8, atol=1e-9)


def test_gauss_newton_is_the_hessian_of_a_linear_model():
    rng = np.random.default_rng(1)
    net = jax.tree.map(lambda a: a.astype(jnp.float64), mx.nets.MLP(3, (), 3, key=0))
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical())
    batch = Batch((jnp.asarray(rng.normal(size=(NUM, 3))), jnp.asarray(rng.integers(0, 3, NUM))), jnp.arange(NUM), NUM)
    params = model.initial(3)
    plan = plan_for(model, params, (3,), batch.x.dtype)
    point = Point(model, params, plan, batch, jnp.ones(NUM), jax.random.key(0))
    found = [np.asarray(eqx.filter_jit(lambda kind: kind.of_batch(point).matrix())(k)) for k in (GGN(), Hessian())]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


def test_empirical_fisher_is_the_sum_of_squared_gradients():
    case = _case("mlp")
    slopes = jax.jit(jax.jacobian(lambda w: case.model.likelihood.log_prob(case.outputs_at(w), case.y, {})))(case.flat)
    exact = np.asarray(slopes.T @ slopes)
    np.testing.assert_allclose(_matrix(_curvature(case, Dense(), EmpiricalFisher())), exact, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_monte_carlo_fisher_is_gauss_newton_on_average(likelihood):
    case = _case("mlp", likelihood)
    plan = plan_for(case.model, case.params, (3,), case.x.dtype)
    batch = Batch((case.x, case.y), jnp.arange(NUM), NUM)

    def diagonal(key):
        kind = MonteCarloFisher(50)
        return kind.of_batch(Point(case.model, case.params, plan, batch, jnp.ones(NUM), key)).diagonal()

    draws = np.asarray(jax.jit(jax.vmap(diagonal))(jax.random.split(jax.random.key(0), 200)))
    error = draws.std(0, ddof=1) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(0) - np.diag(case.matrix)) < 5.5 * error + 1e-12).all()


@pytest.mark.slow
def test_low_rank_keeps_the_largest_eigenvalues():
    case = _case("mlp")
    values, vectors = np.linalg.eigh(case.matrix)
    exact = (vectors[:, -6:] * values[-6:]) @ vectors[:, -6:].T
    np.testing.assert_allclose(
        _matrix(_curvature(case, LowRank(6, num_passes=6))), exact, rtol=1e-4, atol=1e-6 * values[-1]
    )


def test_under_a_flat_prior_what_low_rank_left_out_is_as_weak_as_the_weakest_it_kept():
    """Kept whole, it is the inverse of the curvature; cut, the rest has the precision of the weakest direction kept."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    values = np.array([9.0, 5.0, 2.0, 1.5, 1.2, 0.7])
    with jax.enable_x64(True):
        for rank in (6, 3):
            kept = ReducedCurvature(jnp.asarray(basis[:, :rank] * np.sqrt(values[:rank])))
            precision = np.where(np.arange(6) < rank, values, values[rank - 1])
            wanted = basis / precision @ basis.T
            np.testing.assert_allclose(kept.covariance(jnp.zeros(6)).dense(), wanted, rtol=1e-9, atol=1e-12)
            proper = basis[:, :rank] * values[:rank] @ basis[:, :rank].T + 0.4 * np.eye(6)
            found = kept.covariance(jnp.full(6, 0.4)).dense()
            np.testing.assert_allclose(found, np.linalg.inv(proper), rtol=1e-9, atol=1e-12)


def test_a_subset_is_the_block_of_its_leaves():
    case = _case("mlp")
    moves = tuple(leaf.path in ("layers/0/weight", "layers/2/bias") for leaf in case.model.leaves)
    sizes = [int(np.prod(leaf.shape)) for leaf in case.model.leaves]
    chosen = np.flatnonzero(np.repeat(moves, sizes))
    found = _matrix(_curvature(case, Dense(), moves=moves))
    np.testing.assert_allclose(found, case.matrix[np.ix_(chosen, chosen)], rtol=1e-7, atol=1e-9)


def test_hooks_are_given_up_where_they_are_impossible():
    case = _case("recurrent")
    plan = plan_for(case.model, case.params, (3,), case.x.dtype)
    assert {leaf.path: leaf.site for leaf in plan.leaves} == {
        "cell/weight": None,
        "cell/bias": None,
        "last/weight": 1,
        "last/bias": 1,
    }


def test_weights_of_a_plain_function_are_differentiated_directly():
    rng = np.random.default_rng(2)
    params = {"w": jnp.asarray(rng.normal(size=(3, 2))), "b": jnp.asarray(rng.normal(size=2))}
    model = mx.Model((params, lambda p, x: x @ p["w"] + p["b"]), likelihood=mx.likelihoods.Categorical())
    x = jnp.asarray(rng.normal(size=(NUM, 3)))
    start = model.initial(2)
    plan = plan_for(model, start, (3,), x.dtype)
    batch = Batch((x, jnp.zeros(NUM, int)), jnp.arange(NUM), NUM)
    found = GGN().of_batch(Point(model, start, plan, batch, jnp.ones(NUM), jax.random.key(0))).matrix()
    flat, unravel = ravel_pytree(start.network)
    jacobian = jax.jacobian(lambda w: model.output(eqx.tree_at(lambda p: p.network, start, unravel(w)), x))(flat)
    fisher = model.likelihood.fisher(model.output(start, x), {})
    np.testing.assert_allclose(found, jnp.einsum("nkp,nkl,nlq->pq", jacobian, fisher, jacobian), rtol=1e-9, atol=1e-12)


def test_a_step_of_a_structure_traces_the_network_once():
    case, calls = _case("mlp"), []

    class Counted(eqx.Module):
        network: eqx.Module

        def __call__(self, x):
            calls.append(x)
            return self.network(x)

    model = mx.Model(Counted(case.model.network), likelihood=case.model.likelihood)
    params, plan = model.initial(3), plan_for(model, model.initial(3), (3,), case.x.dtype)
    for structure in (Kronecker(), Diagonal(), Dense(), BlockDiagonal(), FunctionSpace()):
        sums, batch = structure.empty(plan, Extent(NUM, NUM, 3), key=jax.random.key(0)), (case.x, case.y)

        def step(sums, batch, structure=structure):
            rows = jnp.arange(NUM)
            point = Point(model, params, plan, Batch(batch, rows, NUM), jnp.ones(NUM), jax.random.key(0))
            curvature = GGN().of_batch(point)
            return structure.add(sums, curvature), curvature.log_likelihood()

        calls.clear()
        eqx.filter_eval_shape(step, sums, batch)
        assert len(calls) == 1


@pytest.mark.parametrize("moves", [None, (True, False, False, False, True, True)])
def test_the_jacobian_of_outputs_is_that_of_the_raveled_parameters(moves):
    case = _case("mlp", "scale from the network")
    outputs, jacobian = output_jacobian(case.model, case.params, case.x, moves)
    np.testing.assert_allclose(outputs, case.outputs_at(case.flat), rtol=1e-10)
    sizes = [int(np.prod(leaf.shape)) for leaf in case.model.leaves]
    asked = np.repeat((True,) * 6 if moves is None else moves, sizes)
    np.testing.assert_allclose(dense_rows(jacobian), np.where(asked, case.jacobian, 0.0), rtol=1e-8, atol=1e-10)


LEAVES = {
    "weight": lambda rng: Outer(jnp.asarray(rng.normal(size=(4, 3, 2, 5))), jnp.asarray(rng.normal(size=(4, 2, 1))), 0),
    "bias": lambda rng: Outer(jnp.asarray(rng.normal(size=(4, 3, 2, 5))), None, 0),
    "written out": lambda rng: Plain(jnp.asarray(rng.normal(size=(4, 3, 5)))),
    "zero": lambda rng: Zero(5, (4, 3)),
}


@pytest.mark.parametrize("name", LEAVES)
def test_weights_that_stay_at_their_mean_add_nothing_at_any_example(name):
    """Four examples with three columns, of the derivatives with respect to five weights."""
    leaf, variances = LEAVES[name](np.random.default_rng(0)), jnp.arange(5.0)
    exact = jnp.einsum("nmp,p,nlp->nml", leaf.dense(), variances, leaf.dense())
    np.testing.assert_allclose(leaf.spread(variances), exact, atol=1e-12)
    found = FixedCovariance(5).spread((leaf,))
    np.testing.assert_array_equal(found, np.zeros((4, 3, 3)), strict=True)


@pytest.mark.parametrize("kind", [Kronecker(), EKFAC(), FunctionSpace()], ids=lambda s: type(s).__name__)
def test_structures_that_need_outer_products_refuse_the_hessian(kind):
    with pytest.raises(ValueError, match="no sum of outer products"):
        _curvature(_case("mlp"), kind, Hessian())

"""The training phase of ten MLPs 5-16-16-16-16-2 on data of the size of airfoil, against sklearn-contrib-bde.

bde trains its ensemble, before it samples, with one full-batch AdamW step per epoch; so do we, with Adam and the
gradient of a prior in the place of weight decay. No validation set on either side. A second comparison counts
everything that a user waits for, compilation included, in a run of 1,000 epochs.
"""

from functools import partial

from benchmarks.harness.entry import BDE, Contestant, Entry, Group, Run, Target

NUM_NETWORKS = 10
NUM_ROWS = 1_202  # 80% of airfoil's 1,503
SIZES = (5, 16, 16, 16, 16, 2)
LEARNING_RATE = 1e-3


def _data():
    import numpy as np

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, SIZES[0])).astype(np.float32)
    y = np.sin(x[:, 0]) + 0.1 * generator.normal(size=NUM_ROWS)
    return x, y.astype(np.float32)


def marginax(all_cores: bool, cold: bool = False) -> Run:
    """A deep ensemble through the public interface."""
    import jax

    import marginax as mx

    if all_cores:
        mx.use_cores()
    data = _data()
    net = mx.nets.MLP(in_size=SIZES[0], hidden=SIZES[1:-1], out_size=SIZES[-1], key=0)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian(scale=mx.likelihoods.FromNetwork()))

    def run(num_epochs: int) -> None:
        if cold:
            jax.clear_caches()
        optimiser = mx.infer.Adam(learning_rate=LEARNING_RATE)
        member = mx.infer.MAP(num_epochs=num_epochs, batch_size=None, optimiser=optimiser)
        mx.fit(model, data, mx.infer.DeepEnsemble(NUM_NETWORKS, member=member), key=0, progress=False)

    return run


def bde(num_devices: int, cold: bool = False) -> Run:
    """The builder that bde's estimators use for their training phase."""
    import jax

    jax.config.update("jax_num_cpu_devices", num_devices)
    import jax.numpy as jnp
    from bde.bde_builder import BdeBuilder
    from bde.task import TaskType

    x, y = _data()
    x, y = jnp.asarray(x), jnp.asarray(y)[:, None]

    def run(num_epochs: int) -> None:
        if cold:
            jax.clear_caches()
        builder = BdeBuilder(
            hidden_sizes=list(SIZES[1:-1]),
            n_members=NUM_NETWORKS,
            task=TaskType.REGRESSION,
            seed=0,
            act_fn="relu",
            patience=None,
            val_split=0.15,
            lr=LEARNING_RATE,
            weight_decay=1e-4,
        )
        builder.fit_members(x, y, epochs=num_epochs)
        jax.block_until_ready(builder.params_e)

    return run


_PEER = {"environment": BDE, "packages": ("sklearn-contrib-bde", "jax", "optax")}
_TITLES = {1: "bde, one device", 2: "bde, two devices"}

ENTRY = Entry(
    title="Training phase of ten MLPs 5-16-16-16-16-2 on 1,202 rows, full batch",
    unit="epoch",
    groups=(
        Group(
            title="an epoch, compilation excluded",
            contestants=(
                *(Contestant(title, partial(bde, n), (100, 600), **_PEER) for n, title in _TITLES.items()),
                Contestant("marginax", partial(marginax, False), (500, 2_000)),
                Contestant("marginax, use_cores()", partial(marginax, True), (500, 2_000)),
            ),
            targets=tuple(Target("marginax", title, at_most=1.0) for title in _TITLES.values()),
        ),
        Group(
            title="1,000 epochs with compilation, per epoch",
            contestants=(
                *(Contestant(title, partial(bde, n, True), (0, 1_000), **_PEER) for n, title in _TITLES.items()),
                Contestant("marginax", partial(marginax, False, True), (0, 1_000)),
            ),
            targets=tuple(Target("marginax", title, at_most=1.0) for title in _TITLES.values()),
        ),
    ),
)

"""A step of EM for a hidden Markov model with 5 normal states, 100 sequences of 200 steps in 3 dimensions.

Against hmmlearn's `GaussianHMM.fit` and dynamax's `fit_em`; every contestant does the same number of steps from a start
of its own.
"""

from typing import Any

from benchmarks.harness.entry import Contestant, Entry, Environment, Group, Run, Target

NUM_SEQUENCES, NUM_STEPS, SIZE, NUM_STATES = 100, 200, 3, 5
HMMLEARN = Environment("hmmlearn", ("hmmlearn==0.3.3",))
DYNAMAX = Environment("dynamax", ("dynamax==1.0.3",))


def sequences() -> Any:
    """States that stay for ten steps, and overlap."""
    import numpy as np

    rng = np.random.default_rng(0)
    centres = 1.5 * rng.normal(size=(NUM_STATES, SIZE))
    x = np.empty((NUM_SEQUENCES, NUM_STEPS, SIZE))
    for sequence in x:
        state = 0
        for step in range(NUM_STEPS):
            state = rng.integers(NUM_STATES) if rng.random() < 0.1 else state
            sequence[step] = centres[state] + rng.normal(size=SIZE)
    return x


def marginax() -> Run:
    """Through the public interface."""
    import numpy as np

    import marginax as mx

    x = sequences().astype(np.float32)
    model = mx.latent.HMM(NUM_STATES)

    def run(num_steps: int) -> None:
        mx.fit(model, x, mx.infer.EM(num_steps, tolerance=0.0), key=0, progress=False)

    return run


def hmmlearn() -> Run:
    """Full covariances, all steps."""
    from hmmlearn.hmm import GaussianHMM

    x = sequences().reshape(-1, SIZE)

    def run(num_steps: int) -> None:
        model = GaussianHMM(NUM_STATES, "full", n_iter=num_steps, tol=-1e30, random_state=0)
        model.fit(x, [NUM_STEPS] * NUM_SEQUENCES)

    return run


def dynamax() -> Run:
    """`fit_em` on a batch of sequences."""
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import GaussianHMM

    x = jnp.asarray(sequences(), jnp.float32)
    model = GaussianHMM(NUM_STATES, SIZE)
    params, properties = model.initialize(jax.random.PRNGKey(0), method="kmeans", emissions=x)

    def run(num_steps: int) -> None:
        _, values = model.fit_em(params, properties, x, num_iters=num_steps, verbose=False)
        jax.block_until_ready(values)

    return run


ENTRY = Entry(
    title=f"A step of EM, {NUM_SEQUENCES} sequences of {NUM_STEPS} steps, {NUM_STATES} normal states",
    groups=(
        Group(
            contestants=(
                Contestant("hmmlearn", hmmlearn, (2, 12), environment=HMMLEARN, packages=("hmmlearn", "numpy")),
                Contestant("dynamax", dynamax, (2, 102), environment=DYNAMAX, packages=("dynamax", "jax")),
                Contestant("marginax", marginax, (2, 202)),
            ),
            targets=(Target("marginax", "hmmlearn", at_most=1 / 3), Target("marginax", "dynamax", at_most=1 / 3)),
        ),
    ),
)

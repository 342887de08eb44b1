r"""Examples of which only a part is observed: $z \sim p(z \mid x_{\text{seen}})$, then $x_{\text{rest}} \mid z$.

Every answer is the end of a Hamiltonian chain of its own over latents. It starts at a draw of the encoder, which sees
zeros in the place of what is missing, with the encoder's standard deviations as its metric; the step size is tuned in
the first half. The target is exact, so answers are those of the model once chains have forgotten their start.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from marginax._kernels.random import derive, normal, uniform
from marginax.infer.mcmc.adaptation import first_step_size, update_step_size
from marginax.infer.mcmc.integrators import HMCState, IntegratorState, accept, integrate, state_at

_ACCEPTANCE = 0.8
_LEAPFROG = 8
_ACCEPT, _JITTER = 1, 2  # streams of random numbers within a move


@dataclass(frozen=True)
class Completion:
    """Several answers to what the rest of examples may be.

    Args:
        values: answers, (answer, example, ...), with what is observed as it was given.
        latents: of each answer, (answer, example, latent).
        acceptance: mean acceptance of the chains of each example; far below 0.8, do not trust its answers.
    """

    values: Float[np.ndarray, "num n ..."]
    latents: Float[np.ndarray, "num n d"]
    acceptance: Float[np.ndarray, " n"]

    @property
    def mean(self) -> Float[np.ndarray, "n ..."]:
        """Over answers."""
        return self.values.mean(0)

    @property
    def std(self) -> Float[np.ndarray, "n ..."]:
        """Over answers."""
        return self.values.std(0)


def complete(
    model: Any, draws: PyTree, rows: dict[str, Array], num: int, num_steps: int, noise: bool, key: PRNGKeyArray
) -> Completion:
    """Answers, spread evenly over networks."""
    count = jax.tree.leaves(draws)[0].shape[0]
    networks = min(count, num)
    chosen = np.linspace(0, count - 1, networks).astype(int)
    each = -(-num // networks)
    some = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], draws)
    values, latents, acceptance = _completed(model, some, rows, each, num_steps, noise, key)
    merged = [np.asarray(part).reshape(networks * each, *part.shape[2:])[:num] for part in (values, latents)]
    return Completion(merged[0], merged[1], np.asarray(acceptance).mean((0, 1)))


@eqx.filter_jit
def _completed(
    model: Any, draws: PyTree, rows: dict[str, Array], num: int, num_steps: int, noise: bool, key: PRNGKeyArray
) -> tuple[Array, Array, Array]:
    size = rows["x"].shape[0]

    def of_network(pair: tuple[PyTree, Array]) -> tuple[Array, Array, Array]:
        params, i = pair
        keys = jax.vmap(lambda j: derive(key, j, stream=i))(jnp.arange(num * size + 1))
        inference = model.inference(params, rows, keys[:size])
        start, (_, scale) = inference.draw(num)[0], inference.moments()

        def chain(row: PyTree, start: Array, scale: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
            one = model.inference(params, jax.tree.map(lambda leaf: leaf[None], row), key[None])

            def log_density(z: Array) -> Array:
                z = z[None, None]
                return (one.log_likelihood(z) + one.log_prior(z))[0, 0]

            return _walk(jax.value_and_grad(log_density), start, scale, num_steps, key)

        over_rows = jax.vmap(chain)
        ends, acceptance = jax.vmap(over_rows, in_axes=(None, 0, None, 0))(
            rows, start, scale, keys[:-1].reshape(num, size)
        )
        tiled = {name: jnp.broadcast_to(v, (num, *v.shape)).reshape(-1, *v.shape[1:]) for name, v in rows.items()}
        output = model.decode(params, ends.reshape(num * size, -1), model.conditions(params, tiled))
        found = model.noisy(params, output, key=keys[-1]) if noise else model.mean_of(params, output)
        values = jnp.where(tiled["mask"] > 0, tiled["x"], found)
        return values.reshape(num, *rows["x"].shape), ends, acceptance

    return jax.lax.map(of_network, (draws, jnp.arange(jax.tree.leaves(draws)[0].shape[0])))


def _walk(density: Any, start: Array, scale: Array, num_steps: int, key: PRNGKeyArray) -> tuple[Array, Array]:
    """The end of a chain, and the mean acceptance of its second half."""

    def move(carry: tuple[HMCState, Any], i: Array) -> tuple[tuple[HMCState, Any], Array]:
        state, step = carry
        each = derive(key, i)
        tuned = jnp.where(i < num_steps // 2, step.log_step, step.log_average)
        # of random length, since a trajectory of a whole period ends where it began
        size = jnp.exp(tuned) * (0.5 + 0.5 * uniform(each, 0, stream=_JITTER))
        begin = IntegratorState(state, normal(each, state.position.shape, state.position.dtype))
        end = integrate(density, begin, size, scale, _LEAPFROG)
        state, went = accept(begin, end, uniform(each, 0, stream=_ACCEPT))
        learned = update_step_size(step, went.acceptance, _ACCEPTANCE)
        step = jax.tree.map(lambda new, old: jnp.where(i < num_steps // 2, new, old), learned, step)
        return (state, step), went.acceptance

    first = state_at(density, start), first_step_size(0.3)
    (state, _), acceptance = jax.lax.scan(move, first, jnp.arange(num_steps))
    return state.position, jnp.mean(acceptance[num_steps // 2 :])

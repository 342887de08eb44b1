r"""Bayesian linear regression of the rewards of each arm, in closed form after every round.

$r \sim N(x^\top w_a, \sigma_a^2), \quad w_a \mid \sigma_a^2 \sim N(0, \sigma_a^2 \lambda^{-1} I), \quad
\sigma_a^2 \sim IG(\alpha, \beta)$

with a constant added to the contexts. After a reward r at x, with $\Lambda$ the precision and m the mean so far:

$\beta \leftarrow \beta + \tfrac12 \frac{(r - x^\top m)^2}{1 + x^\top \Lambda^{-1} x}, \quad
\Lambda \leftarrow \Lambda + x x^\top, \quad m \leftarrow \Lambda^{-1} \sum x r, \quad
\alpha \leftarrow \alpha + \tfrac12$:

sums of positive terms, so that nothing cancels in float32.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marginax.decide.bandits.agent import AbstractSequential
from marginax.files import register


@register("bandit/regressions")
class Regressions(eqx.Module):
    r"""What is believed of the rewards of each arm: normal-inverse-gamma distributions.

    Attributes:
        precision: $\Lambda$, times the noise variance the precision of the weights.
        root: its lower Cholesky factor.
        moment: $\sum x r$.
        mean: of the weights.
        shape: $\alpha$.
        rate: $\beta$.
    """

    precision: Float[Array, "arms p p"]
    root: Float[Array, "arms p p"]
    moment: Float[Array, "arms p"]
    mean: Float[Array, "arms p"]
    shape: Float[Array, " arms"]
    rate: Float[Array, " arms"]

    def predict(self, x: Float[Array, " p"]) -> tuple[Float[Array, " arms"], Float[Array, " arms"]]:
        """Means of the arms at a context, and the spread of each as a multiple of the noise's."""
        white = jax.vmap(lambda root: solve_triangular(root, x, lower=True))(self.root)
        return self.mean @ x, jnp.linalg.norm(white, axis=-1)

    def condition(self, x: Float[Array, " p"], arm: Int[Array, ""], reward: Float[Array, ""]) -> "Regressions":
        """After a reward of an arm."""
        white = solve_triangular(self.root[arm], x, lower=True)
        surprise = jnp.square(reward - self.mean[arm] @ x) / (1.0 + white @ white)
        precision = self.precision[arm] + jnp.outer(x, x)
        root, moment = jnp.linalg.cholesky(precision), self.moment[arm] + reward * x
        return Regressions(
            self.precision.at[arm].set(precision),
            self.root.at[arm].set(root),
            self.moment.at[arm].set(moment),
            self.mean.at[arm].set(cho_solve((root, True), moment)),
            self.shape.at[arm].add(0.5),
            self.rate.at[arm].add(0.5 * surprise),
        )


def regressions(
    x: Float[Array, "n p"],
    arms: Int[Array, " n"],
    rewards: Float[Array, " n"],
    num_arms: int,
    *,
    precision: float = 0.25,
    shape: float = 6.0,
    rate: float = 6.0,
) -> Regressions:
    """The same belief from all rounds at once: contexts (with their constant), arms and rewards."""
    real = jax.dtypes.canonicalize_dtype(float)
    x, rewards = jnp.asarray(x, real), jnp.asarray(rewards, real)

    def one(arm: Int[Array, ""]) -> tuple[Array, ...]:
        seen = jnp.where(arms == arm, 1.0, 0.0).astype(real)
        total = (x * seen[:, None]).T @ x + precision * jnp.eye(x.shape[1], dtype=real)
        root, moment = jnp.linalg.cholesky(total), x.T @ (seen * rewards)
        mean = cho_solve((root, True), moment)
        misfit = jnp.sum(seen * jnp.square(rewards - x @ mean)) + precision * mean @ mean
        return total, root, moment, mean, shape + 0.5 * jnp.sum(seen), rate + 0.5 * misfit

    return Regressions(*jax.vmap(one)(jnp.arange(num_arms)))


def student(key: PRNGKeyArray, freedom: Float[Array, " n"]) -> Float[Array, " n"]:
    """Student variables by the polar method (Bailey, 1994): exact, and unlike gamma variables without rejections."""
    radius, angle = jax.random.uniform(key, (2, *freedom.shape), freedom.dtype, jnp.finfo(freedom.dtype).tiny)
    return jnp.sqrt(freedom * jnp.expm1(-2.0 * jnp.log(radius) / freedom)) * jnp.cos(2.0 * jnp.pi * angle)


def with_constant(x: Float[Array, "*n d"]) -> Float[Array, "*n p"]:
    """Contexts, and a 1."""
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)


class AbstractLinear(AbstractSequential):
    r"""An agent with a Bayesian linear regression for each arm.

    Args:
        precision: $\lambda$ of the weights, in units of the noise variance.
        shape: $\alpha$ of the noise variance.
        rate: $\beta$ of it.
    """

    precision: float = eqx.field(default=0.25, kw_only=True)
    shape: float = eqx.field(default=6.0, kw_only=True)
    rate: float = eqx.field(default=6.0, kw_only=True)

    def __check_init__(self):
        for name in ("precision", "shape", "rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")

    def init(self, in_size: int, num_arms: int) -> Regressions:
        return self.learned(np.zeros((1, in_size)), np.full(1, -1), np.zeros(1), num_arms)

    def update(
        self, state: Regressions, x: Float[Array, " d"], arm: Int[Array, ""], reward: Float[Array, ""]
    ) -> Regressions:
        return state.condition(with_constant(x), arm, reward)

    def learned(self, x: np.ndarray, arms: np.ndarray, rewards: np.ndarray, num_arms: int) -> Regressions:
        """What is believed after these rounds, all at once."""
        inputs = with_constant(jnp.asarray(x, jax.dtypes.canonicalize_dtype(float)))
        prior = {"precision": self.precision, "shape": self.shape, "rate": self.rate}
        return regressions(inputs, jnp.asarray(arms), jnp.asarray(rewards), num_arms, **prior)


@register("agent/linear_thompson")
class LinearThompson(AbstractLinear):
    """Thompson sampling with a linear regression for each arm: a draw of its belief, and the arm that is best in it.

    Takes what every `AbstractLinear` takes; the defaults are those of Riquelme, Tucker & Snoek (2018).

    >>> import marginax as mx
    >>> bandit = mx.decide.ReplayBandit(np.eye(4), [0, 1, 1, 0])
    >>> played = mx.decide.play(bandit, LinearThompson(), 400, key=0)
    >>> bool(played.regret[-1] < 100)
    True
    """

    def choose(self, state: Regressions, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Int[Array, ""]:
        # only the reward at x matters, and arms are independent: a draw of it is one Student variable for each arm
        mean, spread = state.predict(with_constant(x))
        return jnp.argmax(mean + jnp.sqrt(state.rate / state.shape) * spread * student(key, 2.0 * state.shape))


@register("agent/linear_ucb")
class LinearUCB(AbstractLinear):
    """The arm with the highest upper bound: mean plus `beta` standard deviations (Li et al., 2010).

    Takes what every `AbstractLinear` takes, and:

    Args:
        beta: standard deviations; 0 is greedy.
    """

    beta: float = 1.0

    def choose(self, state: Regressions, x: Float[Array, " d"], *, key: PRNGKeyArray) -> Int[Array, ""]:
        mean, spread = state.predict(with_constant(x))
        return jnp.argmax(mean + self.beta * jnp.sqrt(state.rate / state.shape) * spread)

"""Markov chains: a warm-up from which nothing is kept, then draws."""

from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import PyTree

from marginax.infer.method import AbstractMethod, Infos, Phase, State, check_count, params_of
from marginax.model import AbstractModel
from marginax.posterior import AbstractPosterior, Draws


class AbstractChain(AbstractMethod):
    """A method whose draws are states of a chain.

    Args:
        num_warmup: steps before the first draw.
        num_samples: kept draws per chain.
        thin: steps per kept draw.
    """

    num_warmup: eqx.AbstractVar[int]
    num_samples: eqx.AbstractVar[int]
    thin: eqx.AbstractVar[int]

    def __check_init__(self):
        for name in ("num_samples", "thin"):
            check_count(name, getattr(self, name))

    num_chains: ClassVar[int] = 4  # four, so that they can be compared

    def sampling(self, step: Any) -> Phase:
        """The phase that keeps the draws."""
        return Phase("sample", self.num_samples * self.thin, step, params_of, self.thin)

    def posterior(self, model: AbstractModel, state: State, draws: PyTree, infos: Infos) -> AbstractPosterior:
        if draws is None or jax.tree.leaves(draws)[0].shape[1] == 0:
            raise KeyboardInterrupt("interrupted before the first draw was kept: there is no posterior yet")
        return Draws(model=model, params=draws)

"""What a likelihood is."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Num, PRNGKeyArray
from jaxtyping import Key as KeyOf

from marginax.model.outcome import Outcome

Unknowns = dict[str, Any]


class NormalNoise(eqx.Module):
    """Additive normal noise whose levels are unknowns.

    Args:
        log_scale: log standard deviation of each target.
        power: to which the likelihood is raised: 1, or 1 / temperature.
    """

    log_scale: Float[Array, " targets"]
    power: float | Array = 1.0


class AbstractLikelihood(eqx.Module):
    """p(y | output of the network, unknowns)."""

    bounds: ClassVar[bool] = False  # whether targets are pairs (lower, upper) between which one number lies
    flattens: ClassVar[bool] = False  # whether outputs and targets with several axes (maps, masks) are read as vectors
    is_estimated: ClassVar[bool] = False  # whether the log probability is estimated by draws: `estimate_log_prob`
    is_density: ClassVar[bool] = True  # False where rows have terms that are no log probability of data
    caveat: ClassVar[str | None] = None  # what a summary must say of it
    may_be_wrong: ClassVar[bool] = False  # whether targets may be wrong, so that `observed` is not `distribution`
    takes_missing: ClassVar[bool] = False  # whether a row without a label (-1) says something
    by_annotators: ClassVar[bool] = False  # whether a target is an answer of each annotator, and `observed` of all
    compares_views: ClassVar[bool] = False  # whether outputs for transformed inputs have a term: `views`, `agreement`

    @abc.abstractmethod
    def num_targets(self, output_size: int) -> int:
        """How many targets an output of this size describes; ValueError if it fits none."""

    def outcome(self, output_size: int) -> Outcome:
        """What kind of target it is about, with outputs of this size."""
        return Outcome.REAL

    @abc.abstractmethod
    def check(self, output_size: int, y: np.ndarray) -> None:
        """Raise a ValueError that names `y` or `network` if the two cannot belong together."""

    def check_training(self, y: np.ndarray) -> None:
        """Raise a ValueError if the targets are what they should be, but rows of them teach nothing."""
        return

    def is_judged(self, y: Num[Array, "n *d"]) -> Bool[Array, " n"]:
        """Which targets say how well they are predicted."""
        return jnp.ones(len(y), bool)

    @abc.abstractmethod
    def distribution(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        """The distribution of the target given the output."""

    def observed(self, output: Float[Array, "*n k"], unknowns: Unknowns) -> Any:
        """The distribution of targets as data have them, where they may be wrong: else the same."""
        return self.distribution(output, unknowns)

    def confusion(self, unknowns: Unknowns, output_size: int) -> Float[Array, "*annotators k k"]:
        """Probabilities of the labels that are seen, a row for each true one."""
        raise TypeError(f"{type(self).__name__} takes labels as they are: for wrong ones, mx.likelihoods.NoisyLabels")

    def check_inputs(self, shape: tuple[int, ...]) -> None:
        """Raise a ValueError if examples of this shape cannot be compared with views of them."""
        return

    def init(self, output_size: int) -> Unknowns:
        """Starting values of the unconstrained unknowns."""
        return {}

    def log_prior(self, unknowns: Unknowns) -> Float[Array, ""]:
        """Log prior density of the unknowns, in their unconstrained coordinates."""
        return jnp.zeros(())

    def log_prob(self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns) -> Float[Array, " n"]:
        """Log probability of each target, summed over its outputs."""
        y = y[:, None] if y.ndim == 1 else y
        return jnp.sum(self.distribution(output, unknowns).log_prob(y), axis=-1)

    def estimate_log_prob(
        self, output: Float[Array, "n k"], y: Num[Array, "n *d"], unknowns: Unknowns, keys: KeyOf[Array, " n"]
    ) -> Float[Array, " n"]:
        """The same by draws with a key for each row, where it is estimated: a bound in expectation."""
        return self.log_prob(output, y, unknowns)

    def views(self, x: Float[Array, "n ..."], keys: KeyOf[Array, " n"], *, fresh: bool) -> Float[Array, "n views ..."]:
        """Transformed inputs, where they are compared, by the keys of their rows: all at random, or spread evenly."""
        raise TypeError(f"{type(self).__name__} compares no views of inputs")

    def agreement(self, outputs: Float[Array, "n views k"], unknowns: Unknowns) -> Float[Array, " n"]:
        """What the outputs for views of each input add to its log probability."""
        raise TypeError(f"{type(self).__name__} compares no views of inputs")

    def fisher(self, output: Float[Array, "n k"], unknowns: Unknowns) -> Float[Array, "n k k"]:
        """Fisher information of the outputs: the expected curvature of the negative log likelihood."""
        raise NotImplementedError(
            f"{type(self).__name__} has no Fisher information: use kind=mx.curvature.EmpiricalFisher() or Hessian()"
        )

    def fisher_root(self, output: Float[Array, " k"], unknowns: Unknowns) -> Float[Array, "k m"]:
        """A matrix R with R R' the Fisher information of one example's outputs."""
        values, vectors = jnp.linalg.eigh(self.fisher(output[None], unknowns)[0])
        return vectors * jnp.sqrt(jnp.maximum(values, 0))

    def fisher_root_given(
        self, output: Float[Array, " k"], y: Num[Array, "*d"], unknowns: Unknowns, key: PRNGKeyArray
    ) -> Float[Array, "k m"]:
        """The same where it depends on the target, or is estimated by draws: on which questions were asked."""
        return self.fisher_root(output, unknowns)

    def noise(self, unknowns: Unknowns) -> NormalNoise | None:
        """The normal noise whose level is learned, which the evidence can choose; None if there is no such noise."""

    def with_noise(self, unknowns: Unknowns, log_scale: Float[Array, " targets"]) -> Unknowns:
        """The unknowns with other levels of that noise."""
        return unknowns

    def marginal(self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"], unknowns: Unknowns) -> Any:
        """The distribution of the target given normal outputs with these moments; None if there is no formula."""

    def expected_log_prob(
        self,
        mean: Float[Array, "n k"],
        covariance: Float[Array, "n k k"],
        y: Num[Array, "n *d"],
        unknowns: Unknowns,
    ) -> Float[Array, " n"] | None:
        """Expected log probability of each target under normal outputs with these moments, or a lower bound of it.

        None if there is no formula: it can then be estimated by draws of the outputs.
        """

    @property
    def has_logits(self) -> bool:
        """Whether outputs are logits of classes, one each or one of two, which links from normal logits need."""
        return False

    def perturbation(
        self, output: Float[Array, "n k"], unknowns: Unknowns, noise: Float[Array, "n k"]
    ) -> Float[Array, " n"]:
        r"""What noisy targets add to the log likelihood: $(y' - y)\,\eta$ with $y' - y$ of the targets' own spread.

        For randomise-then-optimise sampling; `noise` is standard normal, $\eta$ the natural parameter that the network
        gives. The spread is held fixed, so that a learned scale does not have to explain the noise that was added.
        Zero where it is undefined.
        """
        return jnp.zeros(output.shape[0])


def check_width(output_size: int, num_targets: int, y: np.ndarray) -> None:
    """Raise unless y has as many columns as the outputs describe."""
    width = 1 if y.ndim == 1 else y.shape[1]
    if width != num_targets:
        raise ValueError(
            f"network gives {output_size} outputs, which describe {num_targets} targets, but y has {width}: "
            f"change the network's out_size or y (shape {y.shape})"
        )

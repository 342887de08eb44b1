"""Which method: by name, or by the size of data and network; and what stands beside it.

Measured on split 0 of UCI sets, network 16-16-16 with a standard normal prior and noise from the network, two busy
cores, compilation included; RMSE, negative log-likelihood, seconds. Network, prior and likelihood were chosen by these
same test rows of concrete, yacht, energy and wine, so the figures flatter them. Chains of MILE were shorter then, and
less exact; on a fifth of the training rows of yacht, boston, energy and concrete (up to 750 rows, 10 members) the
longer ones have an NLL of -3.19, -0.12, -2.08 and -0.10 (in units of the target's deviation) where those had -2.77,
-0.03, -1.96 and -0.11:

| set (rows) | MILE, 10 members | MILE, 4 members | DeepEnsemble, 10 members |
|---|---|---|---|
| concrete (927) | 4.53, 2.56, 17 s | | 5.35, 2.79, 5 s (16-16-16-16) |
| energy (691) | 0.39, 0.12, 29 s | | 0.36, 0.09, 5 s (16-16-16-16) |
| yacht (277) | 0.50, -0.44, 11 s | | 0.88, 1.23, 6 s (16-16-16-16) |
| kin8nm (7,373) | 0.066, -1.36, 161 s | 0.067, -1.33, 61 s | 0.077, -1.22, 5 s |
| power (8,611) | 3.96, 2.73, 103 s | 3.98, 2.76, 41 s | 4.19, 2.84, 19 s |
"""

import inspect
import re
import time
from typing import Any

import equinox as eqx

from marginax.data import Arrays
from marginax.estimators.stack import (
    Candidate,
    Stack,
    linear_candidate,
    process_candidate,
    stack,
)
from marginax.infer import MAP, MCLMC, MILE, AbstractHook, AbstractMethod, DeepEnsemble, TimeLimit, fit
from marginax.infer.catalogue import method_named as method_named
from marginax.model import Model, likelihoods
from marginax.model.likelihoods import AbstractLikelihood
from marginax.posterior import AbstractPosterior

TEN_CHAINS, FOUR_CHAINS = 2_000_000, 6_000_000  # rows times weights that take about two minutes
SHORT_CHAINS = MCLMC(num_warmup=1500, num_samples=100, thin=25, energy_variance=5e-3)  # where a gradient takes long
MANY_ROWS = 100_000
STACK_ROWS, PROCESS_ROWS = 10_000, 1_000  # more say enough for a network; a process of more rows takes minutes
_MEMBERS_JUDGED = 4
_LEAST_SECONDS = 30  # to compare and then fit


class Budget:
    """Seconds for all that a fit does.

    Args:
        seconds: None if there is no limit.
    """

    def __init__(self, seconds: Any):
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
            raise ValueError(f"time_limit must be a number of seconds > 0, or None, got {seconds!r}")
        self.seconds, self.began = seconds, time.monotonic()

    def hooks(self, share: float = 1.0) -> tuple[AbstractHook, ...]:
        """What ends a fit when its share of the time that is left has gone."""
        if self.seconds is None:
            return ()
        return (TimeLimit(max(1.0, share * (self.seconds - (time.monotonic() - self.began)))),)

    @property
    def allows_comparison(self) -> bool:
        """Whether there is time to compare candidates before the fit."""
        return self.seconds is None or self.seconds >= _LEAST_SECONDS


def likelihood_named(name: str) -> AbstractLikelihood:
    """A likelihood with its defaults; case and underscores do not matter.

    >>> type(likelihood_named("student_t")).__name__
    'StudentT'
    """
    known = {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower(): each
        for key, each in vars(likelihoods).items()
        if isinstance(each, type) and issubclass(each, AbstractLikelihood) and _needs_no_arguments(each)
    }
    wanted = re.sub(r"[\s_-]", "", name).lower()
    found = [each for key, each in known.items() if key.replace("_", "") == wanted]
    if not found:
        raise ValueError(f"likelihood must be one of {', '.join(sorted(known))}, got {name!r}")
    return found[0]()


def _needs_no_arguments(cls: type) -> bool:
    parameters = inspect.signature(cls).parameters.values()
    return not inspect.isabstract(cls) and all(each.default is not each.empty for each in parameters)


def choose_method(num_rows: int, num_weights: int) -> tuple[AbstractMethod, str]:
    """What `method="auto"` takes, and why, in a sentence.

    >>> method, reason = choose_method(1_000, 1_000)
    >>> print(reason)
    MILE with 10 chains: 1,000 rows times 1,000 weights are few enough for chains that see all rows.
    """
    size = f"{num_rows:,} rows times {num_weights:,} weights"
    if num_rows * num_weights <= FOUR_CHAINS:
        method = MILE(10) if num_rows * num_weights <= TEN_CHAINS else MILE(4, sampler=SHORT_CHAINS)
        return method, f"MILE with {method.num_chains} chains: {size} are few enough for chains that see all rows."
    if num_rows <= MANY_ROWS:
        method = DeepEnsemble(10)
    else:
        method = DeepEnsemble(5, member=MAP(batch_size=512))
    return method, (
        f"DeepEnsemble of {method.num_members}: {size} are too many for chains that see all rows, so the networks are "
        "trained on batches."
    )


def choose_stack(
    model: Model, data: Arrays, method: AbstractMethod, budget: Budget, seed: int
) -> tuple[Stack | None, str]:
    """Candidates beside the network, weighed on held-out rows, and the story in a sentence.

    Args:
        model: the network, with the default likelihood of its outcome.
        data: all rows.
        method: that the network will be fitted by.
        budget: of time.
        seed: of folds and fits.
    """
    if data.num_examples > STACK_ROWS:
        return None, "With so many rows it was not compared with simpler models."
    if data.weight is not None:
        return None, "Rows have weights, so it was not compared with simpler models."
    if not budget.allows_comparison:
        return None, f"There was no time to compare it with simpler models (time_limit below {_LEAST_SECONDS} s)."
    assert isinstance(method, MILE | DeepEnsemble)
    small = eqx.tree_at(lambda m: m.num_members, method, _MEMBERS_JUDGED)
    is_number = model.likelihood.outcome(1).is_number

    def fit_network(data: Arrays, seed: int) -> AbstractPosterior:
        return fit(model, data, small, key=seed, hooks=budget.hooks(0.15), progress=False)

    others = [
        linear_candidate(None if is_number else model.likelihood, model.output_size(data.x.shape[1:], data.x.dtype))
    ]
    if is_number and data.num_examples <= PROCESS_ROWS:
        others.append(process_candidate())
    found = stack(Candidate("network", fit_network), others, data, seed)
    if found is None:
        return None, "On held-out rows it was better alone than mixed with simpler models."
    return found, f"Mixed by their densities of held-out rows: {found.describe()}."

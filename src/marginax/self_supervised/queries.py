"""What posteriors of self-supervised models can be asked."""

from dataclasses import dataclass
from typing import Any

from marginax.infer.updating import network_at
from marginax.posterior import AbstractPosterior


@dataclass(frozen=True)
class SelfSupervisedQueries:
    """Questions to a posterior.

    Args:
        posterior: of any method.
    """

    posterior: AbstractPosterior

    def network(self) -> Any:
        """The network at the centre of the posterior (of draws, the first one), to be called or built upon.

        `mx.nets.WithHead(posterior.network().body, head)` is one with another head. Others are among
        `posterior.sample(num, key=...)`.
        """
        return network_at(self.posterior)

    def summary_lines(self) -> tuple[list[str], list[str]]:
        """What a summary says besides, and what to be wary of."""
        objective: Any = self.posterior.model.objective  # pyright: ignore[reportAttributeAccessIssue]
        name = type(objective).__name__
        how = "compares the rows of a batch" if objective.compares_rows else "is about parts of rows given the rest"
        return [f"objective  {name}"], [
            f"{name} {how} and is no likelihood of data: this is no posterior in the strict sense, and evidence says "
            "nothing. Use it as a prior"
        ]

"""What kind of thing is predicted: likelihoods, distributions and predictions say it, and nobody asks their class."""

import enum


class Outcome(enum.Enum):
    """The kind of a target."""

    REAL = "real"
    COUNT = "count"
    CLASS = "class"
    LABELS = "labels"  # several yes-or-no answers

    @property
    def is_number(self) -> bool:
        """Real values and counts: they have a mean, quantiles and a distribution function."""
        return self in (Outcome.REAL, Outcome.COUNT)

    @property
    def is_class(self) -> bool:
        """Classes and labels: they have probabilities and entropies."""
        return not self.is_number

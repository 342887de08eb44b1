"""What a posterior says about itself, in words."""

from typing import TYPE_CHECKING, Any

import equinox as eqx

if TYPE_CHECKING:
    from marginax.posterior.posterior import AbstractPosterior


class Summary(eqx.Module):
    """Lines to read, and the warnings among them.

    >>> print(Summary(("MAP()",), ("a point estimate",)))
    MAP()
    warning: a point estimate
    """

    lines: tuple[str, ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.lines, *(f"warning: {text}" for text in self.warnings)])

    def __repr__(self) -> str:
        return str(self)


def summarise(posterior: "AbstractPosterior", words: Any = None) -> Summary:
    """Method, cost, kind of posterior, training curve, chains, and what to be wary of.

    Args:
        posterior: any.
        words: `Remedies` of the place where it is read; by default as in Python.
    """
    from marginax.evaluate.chains import chain_lines

    record = posterior.record
    lines = [f"method     {record.method or 'none'}", f"posterior  {posterior.describe()}"]
    if record.seconds:
        times = record.in_order(record.seconds)
        parts = [f"{name} {record.num_steps.get(name, 0)} steps in {s:.1f} s" for name, s in times]
        lines.append(f"cost       {', '.join(parts)}")
    for phase, info in record.in_order(record.info):
        if "log_density" in info and info["log_density"].shape[1]:
            last = info["log_density"][:, -1]
            lines.append(
                f"{phase:<10} final log density {last.mean():.1f} (chains {last.min():.1f} to {last.max():.1f})"
            )
    warnings = list(record.warnings)
    chains, chain_warnings = chain_lines(posterior, words)
    lines += chains
    warnings += chain_warnings
    likelihood = getattr(posterior.model, "likelihood", None)
    if likelihood is not None and not likelihood.is_density:
        warnings.append(
            "rows have a term that is no likelihood of data: this is no posterior in the strict sense, and evidence "
            "says nothing"
        )
    if likelihood is not None and likelihood.caveat is not None:
        warnings.append(likelihood.caveat)
    if hasattr(posterior.model.queries, "summary_lines"):
        of_model, model_warnings = posterior.summary_lines()
        lines += of_model
        warnings += model_warnings
    return Summary(tuple(lines), tuple(warnings))

"""Which inputs are uncertain, and why: for want of data (epistemic) or by nature (aleatoric)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from marginax.report.material import Material
from marginax.report.page import AbstractBlock, Section, Table, Text

_NUM_CASES = 10
_MOST_COLUMNS = 10  # of inputs in the table; more of them are named only where they stand out
_FAR = 3.0  # standard deviations


@dataclass(frozen=True, eq=False)
class Parts:
    """The two parts of the uncertainty, a number per row.

    Attributes:
        epistemic: standard deviation, or for classes nats.
        aleatoric: the same.
        total: the whole: the variance, or for classes the entropy.
        share: of the epistemic part in the whole.
    """

    epistemic: np.ndarray
    aleatoric: np.ndarray
    total: np.ndarray
    share: np.ndarray


def uncertainty_section(material: Material) -> Section:
    """How much of each kind there is, the most uncertain cases, and the inputs that go with the epistemic part."""
    heading = "Which inputs are uncertain, and why"
    if not material.has_parts:
        kind = type(material.prediction).__name__
        return Section(heading, (Text(f"Left out: {kind} no longer tells the draws apart, so it has no parts."),))
    parts = split(material)
    if not np.isfinite(parts.total).all():
        return Section(heading, (Text("Left out: the predicted variance is not finite (very heavy tails)."),))
    blocks: list[AbstractBlock] = [Text(_overall(material, parts))]
    if material.posterior.is_point:
        blocks.append(Text("The posterior is a single network, so nothing epistemic can be seen."))
    blocks.append(_cases(material, parts))
    if material.names:
        blocks += _columns(material, parts)
    else:
        blocks.append(Text("Inputs are not the columns of a table, so none are named here."))
    return Section(heading, tuple(blocks))


def split(material: Material) -> Parts:
    """Parts as a number per row: of the first output where there are several numbers, summed over labels."""
    epistemic, aleatoric = np.asarray(material.prediction.epistemic), np.asarray(material.prediction.aleatoric)
    if epistemic.ndim == 2:
        pick = (lambda part: part.sum(axis=1)) if material.of_classes else (lambda part: part[:, 0])
        epistemic, aleatoric = pick(epistemic), pick(aleatoric)
    total = epistemic + aleatoric
    share = np.divide(epistemic, total, out=np.zeros_like(total), where=total > 0)
    if material.of_classes:
        return Parts(epistemic, aleatoric, total, share)
    return Parts(np.sqrt(epistemic), np.sqrt(aleatoric), total, share)


def _overall(material: Material, parts: Parts) -> str:
    share = np.sum(parts.share * parts.total) / max(np.sum(parts.total), 1e-300)
    what = "predictive entropy" if material.of_classes else "predictive variance"
    first = f" (of the first of {material.num_outputs} outputs)" if material.num_outputs > 1 else ""
    return (
        f"Over all held-out rows, {share:.0%} of the {what}{first} is epistemic: networks that explain the training "
        f"data equally well disagree, and more data would settle it. The other {1 - share:.0%} is aleatoric: noise in "
        "the target, which more rows of the same kind cannot remove."
    )


def _cases(material: Material, parts: Parts) -> Table:
    order = np.argsort(-parts.total, kind="stable")[:_NUM_CASES]
    far = material.distances if material.names else None
    rows = []
    for i in order.tolist():
        row = {"row": material.name_row(i), **_said(material, i)}
        row |= {"epistemic": _number(parts.epistemic[i]), "aleatoric": _number(parts.aleatoric[i])}
        row["mostly"] = "epistemic" if parts.share[i] > 0.5 else "aleatoric"
        if far is not None:
            row["inputs"] = _inputs(material, far[i], i)
        rows.append(row)
    unit = "in nats" if material.of_classes else "as standard deviations"
    caption = f"The {len(order)} most uncertain held-out rows; parts {unit}."
    if far is not None:
        which = "Inputs" if len(material.names) <= _MOST_COLUMNS else "Of the inputs, only those"
        caption += f" {which} that stand out are shown with their distance from the mean, in standard deviations."
    return Table.of(rows, caption=caption)


def _said(material: Material, i: int) -> dict[str, str]:
    if material.of_classes and material.num_outputs == 1:
        label = int(material.prediction.labels[i])
        said = f"{material.name_class(label)} ({material.prediction.confidence[i]:.0%})"
        return {"predicted": said, "observed": material.name_class(int(material.y[i]))}
    if material.of_classes:
        return {}
    mean, std, y = (np.reshape(v[i], -1)[0] for v in (material.prediction.mean, material.prediction.std, material.y))
    return {"predicted": f"{_number(mean)} ± {_number(std)}", "observed": _number(y)}


def _inputs(material: Material, far: np.ndarray, i: int) -> str:
    """The inputs of a row in one cell; of many, those that are furthest from the training data."""
    order = [int(j) for j in np.argsort(-np.abs(far)) if abs(far[j]) >= 2][:2]
    few = len(material.names) <= _MOST_COLUMNS
    texts = []
    for j in range(len(material.names)) if few else order:
        name, value = material.names[j], float(material.shown[i, j])
        if "=" in name and value in (0.0, 1.0):  # a category, as columns of texts are encoded
            texts += [name] if value else []
        else:
            texts.append(f"{name} {_number(value)}" + (f" ({far[j]:+.1f} sd)" if j in order else ""))
    return ", ".join(texts) if texts else "nothing stands out"


def _columns(material: Material, parts: Parts) -> list[AbstractBlock]:
    """Inputs that go with the epistemic part, by rank correlation, and with the noise where it varies."""
    far = material.distances
    blocks: list[AbstractBlock] = [Text(_together(material, far, parts.epistemic, "epistemic part"))]
    if np.ptp(parts.aleatoric) > 1e-3 * parts.aleatoric.mean():
        blocks.append(Text(_together(material, far, parts.aleatoric, "aleatoric part")))
    else:
        blocks.append(Text("The aleatoric part is the same at all inputs: the model has one noise level."))
    outside = np.asarray((np.abs(far) > _FAR).any(axis=1))
    if outside.any():
        ratio = (
            parts.epistemic[outside].mean() / max(parts.epistemic[~outside].mean(), 1e-300) if not outside.all() else 1
        )
        what = "training data" if material.is_standardised else "held-out rows"
        blocks.append(
            Text(
                f"{int(outside.sum())} of {len(outside)} held-out rows have an input more than {_FAR:g} standard "
                f"deviations from the mean of the {what}; their epistemic part is {ratio:.1f} times that of the others."
            )
        )
    return blocks


def _together(material: Material, far: np.ndarray, part: np.ndarray, what: str) -> str:
    """Which columns go with a part, in words; those that chance would not show among so many columns."""
    num, width = far.shape
    varies = np.ptp(far, axis=0) > 0
    if num < 8 or not np.ptp(part) > 0 or not varies.any():
        return f"Whether inputs go with the {what} cannot be told from these rows."
    least = stats.norm.ppf(1 - 0.025 / (2 * width)) / np.sqrt(num - 1)
    found = []
    for j in np.flatnonzero(varies):
        by_value = _rank_correlation(far[:, j], part)
        by_size = _rank_correlation(np.abs(far[:, j]), part)
        name = material.names[j]
        if abs(by_value) >= by_size and abs(by_value) > least:
            found.append((abs(by_value), f"{'high' if by_value > 0 else 'low'} {name} ({by_value:+.2f})"))
        elif by_size > least:
            found.append((by_size, f"{name} far from its mean ({by_size:+.2f})"))
    if not found:
        return f"No single input goes with the {what} by more than chance would show."
    best = [text for _, text in sorted(found, reverse=True)[:5]]
    return f"The {what} is larger where there is (with rank correlation): {'; '.join(best)}."


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's; 0 where one of them is the same in all rows."""
    if not (np.ptp(first) > 0 and np.ptp(second) > 0):
        return 0.0
    return float(np.corrcoef(stats.rankdata(first), stats.rankdata(second))[0, 1])


def _number(value: Any) -> str:
    return f"{float(value):.4g}"

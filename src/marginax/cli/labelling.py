"""Labels that may be wrong, missing, or several people's: how they are asked for, and what is said of them."""

from pathlib import Path
from typing import Any

import numpy as np

from marginax._extras import require
from marginax.cli.fitting import read_with_task
from marginax.cli.output import Output, table
from marginax.cli.runs import HeldOut, labels_of

_MOST_LINES = 12  # of annotators on the screen; the file has all


def read_labelled(
    data: Path,
    target: str | None,
    task: str | None,
    likelihood: str | None,
    ignore: list[str] | None,
    *,
    annotators: str | None = None,
    noisy: bool = False,
    unlabelled: float | None = None,
) -> tuple[Any, Any, Any]:
    """As `read_with_task`, and the likelihood that the labels ask for."""
    asked = {"--annotators": annotators is not None, "--noisy-labels": noisy, "--unlabelled": unlabelled is not None}
    if sum(asked.values()) > 1:
        raise ValueError(f"{' and '.join(name for name, given in asked.items() if given)} exclude each other")
    if target is not None and annotators is not None:
        text = "--target names the column to predict, --annotators columns of labels of it"
        raise ValueError(f"{text}, not both: --ignore leaves a column out")
    if not any(asked.values()):
        assert target is not None
        return read_with_task(data, target, task, likelihood, ignore)
    from marginax.data import read_table
    from marginax.estimators import BayesianClassifier, likelihood_named
    from marginax.model.likelihoods import Categorical
    from marginax.model.likelihoods.annotators import Annotators
    from marginax.model.likelihoods.entropy_regularised import EntropyRegularised
    from marginax.model.likelihoods.noisy_labels import NoisyLabels

    wrong = "--task regression" if task == "regression" else ""
    if likelihood is not None and not likelihood_named(likelihood).outcome(1).is_class:
        wrong = f"--likelihood {likelihood}"
    if wrong:
        option = next(name for name, given in asked.items() if given)
        raise ValueError(f"{option} is about classes, got {wrong}: for numbers, --likelihood outliers")
    if annotators is not None:
        if likelihood is not None:
            raise ValueError("--likelihood must be left out with --annotators, which is a likelihood")
        names = [name.strip() for name in annotators.split(",") if name.strip()]
        if len(names) < 2:
            given = f"only {names[0]!r}" if names else "none"
            raise ValueError(
                f"--annotators must be two columns or more, such as a,b,c, got {given}: --target NAME --noisy-labels"
            )
        found = read_table(data, names, ignore=ignore or ())
        num_classes = len(set(found.y.to_numpy(object)[found.y.notna().to_numpy()]))
        return BayesianClassifier, Annotators(num_classes, len(names)), found
    inner = Categorical() if likelihood is None else likelihood_named(likelihood)
    if noisy:
        return (
            BayesianClassifier,
            NoisyLabels(inner),
            read_table(data, target, task="classification", ignore=ignore or ()),
        )
    assert unlabelled is not None
    if not 0 <= unlabelled < float("inf"):
        raise ValueError(f"--unlabelled must be a weight >= 0, got {unlabelled:g}")
    found = read_table(data, target, task="classification", keep_missing=True, ignore=ignore or ())
    return BayesianClassifier, EntropyRegularised(inner, unlabelled), found


def say_missing(found: Any, output: Output) -> None:
    """How many rows have no target, where those are used."""
    missing = found.y.isna() if found.y.ndim == 1 else found.y.isna().all(axis=1)
    if missing.any():
        output.note(
            f"{missing.sum():,} of {len(missing):,} rows have no {found.y.name!r}: they prefer sure predictions, and "
            "none is held out."
        )


def write_labels(estimator: Any, kept: HeldOut, run: Path) -> dict[str, Any]:
    """A file with what is known of every label, and numbers for the screen; nothing where labels are taken as right.

    Rows of the fit are known to the posterior; those that were held out are asked about as new ones.
    """
    likelihood = estimator.model_.likelihood
    if not likelihood.may_be_wrong or kept.fitted is None:
        return {}
    from marginax.cli.judging import targets_of
    from marginax.cli.using import with_few_digits, without_formulas
    from marginax.files import write_text

    pd = require("pandas")
    parts, posterior = [], estimator.posterior_
    for (x, y), rows, new in ((kept.fitted, kept.fitted_rows, False), ((kept.x, kept.y), kept.rows, True)):
        inputs, given = estimator.encoder_.encode(x), targets_of(estimator, y)
        wrong = posterior.label_errors(inputs, given, new=new)
        columns = {"row": np.asarray(rows) + 1, "part": ["held out" if new else "fit"] * len(inputs)}
        if wrong.ndim == 1:
            columns |= {"given": y.to_numpy(), "wrong": with_few_digits(wrong)}
        if hasattr(estimator, "classes_"):
            consensus = posterior.consensus(inputs, given, new=new)
            columns |= {"label": estimator.classes_[consensus.labels]}
            columns |= {"probability": with_few_digits(consensus.confidence)}
        if wrong.ndim == 2:
            columns |= {f"wrong({name})": with_few_digits(wrong[:, i]) for i, name in enumerate(kept.columns)}
        parts.append(pd.DataFrame(columns))
    whole = pd.concat(parts, ignore_index=True).sort_values("row")
    path = labels_of(run)
    write_text(path, without_formulas(whole).to_csv(index=False))
    found: dict[str, Any] = {"labels": str(path)}
    if likelihood.by_annotators:
        quality = posterior.confusion(level=kept.level)
        low, high = quality.accuracy_interval
        found["annotators"] = {
            name: {"labels": int(num), "accuracy": float(mean), "interval": [float(a), float(b)]}
            for name, num, mean, a, b in zip(
                kept.columns, kept.fitted[1].notna().sum(), quality.accuracy, low, high, strict=True
            )
        }
    else:
        found["expected_wrong"] = float(whole["wrong"].sum())
        found["more_probably_wrong"] = int((whole["wrong"] > 0.5).sum())
    return found


def shown_labels(found: dict[str, Any], level: float) -> Any:
    """What `write_labels` found, for people."""
    if "annotators" in found:
        ordered = sorted(found["annotators"].items(), key=lambda pair: -pair[1]["accuracy"])
        rows = [
            (
                name,
                f"{each['labels']:,}",
                f"{each['accuracy']:.2f} [{each['interval'][0]:.2f}, {each['interval'][1]:.2f}]",
            )
            for name, each in ordered[:_MOST_LINES]
        ]
        more = len(ordered) - len(rows)
        caption = f"{more} more are in the report" if more else None
        return table(("annotator", "labels", f"accuracy, {level:.0%} interval"), rows, caption=caption)
    return (
        f"{found['expected_wrong']:.1f} labels are expected to be wrong, {found['more_probably_wrong']:,} are more "
        "probably wrong than right"
    )

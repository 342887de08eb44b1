"""`marginax fit images/ --labels labels.csv`: from a folder of images to a run, and what to do with it."""

import math
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import typer

from marginax._extras import require
from marginax.cli.image_runs import ImageRun
from marginax.cli.judging import Judged
from marginax.cli.output import Output, table
from marginax.data import ImageFolder, load_images

LARGEST, SMALLEST = 64, 16  # pixels of a side
_MOST_HELD_OUT = 10_000  # that are judged at once
_CHANNELS, _HIDDEN, _KERNEL = (16, 32), 128, 5
_BATCH, _LEAST_STEPS, _EPOCHS = 64, 500, 20
_MOST_IN_MEMORY = 2**30  # bytes of pixels; more are read batch by batch
_NOT_FOR_IMAGES = ("target", "likelihood", "annotators", "noisy_labels", "unlabelled", "task", "ignore", "split_by")


def fit_images(folder: Path, labels: Path | None, given: dict[str, Any], output: Output) -> None:
    """Fit an ensemble of convolutional networks to the images of a folder, judge it and write a report.

    Args:
        folder: of images.
        labels: a table of file names and labels; None if folders are classes.
        given: the other options of `marginax fit`, by name.
        output: how to speak.
    """
    from marginax.cli.fitting import finishing
    from marginax.cli.runs import FIT, HeldOut, fit_of, free_directory, run_directory
    from marginax.cli.splitting import at_random
    from marginax.infer import TimeLimit, fit

    check_options(given)
    if not 0 < given["level"] < 1:
        raise ValueError(f"--level must be strictly between 0 and 1, got {given['level']:g}")
    images = load_images(folder, labels, label=given["label"], size=size_of(given["image_size"]))
    images = _of_usual_size(images, folder, labels, given, output)
    if len(images.classes) < 2:
        raise ValueError(f"images must be of 2 classes or more, got {', '.join(images.classes)}")
    fraction = given["test_fraction"]
    if not 0 < fraction < 1:
        raise ValueError(f"--test-fraction must be strictly between 0 and 1, got {fraction:g}")
    names = require("pandas").Series([images.classes[label] for label in images.labels])
    fraction = min(fraction, _MOST_HELD_OUT / len(images))
    held_out = at_random(names, task="classification", fraction=fraction, seed=given["seed"])
    if not held_out.any():
        raise ValueError(f"--test-fraction {fraction:g} of {len(images)} images leaves none to judge by")
    fitted = images.take(np.flatnonzero(~held_out))
    model, method = _model(images, given), _method(len(fitted), given)
    directory = given["out"] or free_directory(folder.absolute())
    kept = ImageRun(
        images.take(np.flatnonzero(held_out)),
        fitted,
        given["label"] or "class",
        shlex.join(["marginax", *sys.argv[1:]]),
        folder.absolute().name,
        given["level"],
    )
    output.note(
        f"Predicting one of {len(images.classes)} classes of {images.shape[1]} x {images.shape[2]} images; "
        f"{held_out.sum():,} of {len(images):,}, chosen at random with seed {given['seed']}, are held out."
    )
    limit = given["time_limit"]
    with run_directory(directory).owned():
        kept.save(directory)
        output.clock.note("start")
        try:
            with finishing(directory, output):
                posterior = fit(
                    model,
                    _source(fitted, method.batch_size or _BATCH, output),
                    method,
                    key=given["seed"],
                    num_chains=given["chains"],
                    hooks=() if limit is None else (TimeLimit(limit),),
                    directory=directory / FIT / "run",
                    progress=output.progress,
                )
        finally:
            if not fit_of(directory).exists:
                HeldOut.remove(directory)
        _finish(posterior, kept, directory, output)


def resume_images(directory: Path, output: Output) -> None:
    """Go on with a fit of images."""
    from marginax.cli.fitting import finishing
    from marginax.cli.runs import FIT, fit_of, run_directory
    from marginax.files import FileError
    from marginax.infer import resume

    kept = ImageRun.load(directory)
    if not fit_of(directory).exists:
        raise FileError(f"{directory} was ended before there was anything to keep: `{kept.command}` begins again")
    output.clock.note("start")
    with run_directory(directory).owned():
        with finishing(directory, output):
            posterior = resume(run_directory(directory).at(FIT, "run"), progress=output.progress)
        _finish(posterior, kept, directory, output)


def predict_images(directory: Path, folder: Path, output: Output) -> Any:
    """Probabilities and labels of all images of a folder, as a table."""
    from marginax.cli.using import with_few_digits

    kept = ImageRun.load(directory)
    posterior = kept.posterior(directory)
    images = like(kept, folder, None, labelled=False)
    pd, parts = require("pandas"), []
    with output.counting("predict", len(images)) as advance:
        for rows, pixels in images.blocks():
            found = posterior.predict(pixels)
            columns: dict[str, Any] = {"label": np.array(kept.fitted.classes, object)[found.labels]}
            columns |= {"probability": found.confidence, "entropy": found.entropy}
            columns |= {"epistemic": found.epistemic, "aleatoric": found.aleatoric}
            columns |= {f"p({name})": found.probs[:, i] for i, name in enumerate(kept.fitted.classes)}
            parts.append(pd.DataFrame({name: with_few_digits(values) for name, values in columns.items()}))
            advance(len(rows))
    found = pd.concat(parts, ignore_index=True)
    found.insert(0, "file", images.names)
    return found


def evaluate_images(
    directory: Path,
    folder: Path,
    labels: Path | None,
    label: str | None,
    training_rows: bool,
    level: float | None,
    output: Output,
) -> None:
    """Scores on further images whose labels are known; those that were in training are known again."""
    kept = ImageRun.load(directory)
    posterior = kept.posterior(directory)
    images = like(kept, folder, labels, label=label)
    for note in images.notes:
        output.note(note)
    seen = kept.was_seen(images)
    if seen.all() and not training_rows:
        raise ValueError(f"all {len(images):,} images of {folder} were in training: pass others, or --training-rows")
    if seen.any():
        those = "all of them" if training_rows else f"the other {np.sum(~seen):,} (--training-rows: for all)"
        output.note(f"note: {seen.sum():,} of {len(images):,} images were in training; scores are for {those}")
        images = images if training_rows else images.take(np.flatnonzero(~seen))
    scores = _judge(posterior, images, kept, kept.level if level is None else level)
    values = {"run": str(directory), "rows": len(images), "training_rows": int(seen.sum()), "scores": scores.as_json()}
    output.result(values, table(("score", folder.name), scores.rows(), caption=scores.caption))


def report_images(directory: Path, path: Path, output: Output, posterior: Any = None) -> Path:
    """The report on the held-out images, which are shown in it."""
    from marginax.report import NUM_PARTS, write_report

    kept = ImageRun.load(directory)
    with output.counting("report", NUM_PARTS) as advance:
        return write_report(
            path,
            posterior=kept.posterior(directory) if posterior is None else posterior,
            x=kept.held_out.pixels(),
            y=kept.held_out.labels,
            target=kept.target,
            classes=kept.fitted.classes,
            row_names=kept.held_out.names,
            title=f"{kept.target}, predicted from the images of {kept.source}",
            command=kept.command,
            level=kept.level,
            callback=lambda _: advance(),
        )


def like(
    kept: ImageRun, folder: Path, labels: Path | None, *, label: str | None = None, labelled: bool = True
) -> ImageFolder:
    """Images of a folder as the run takes them; labels as positions in its classes."""
    channels, *size = kept.fitted.shape
    images = load_images(folder, labels, label=label, size=(size[0], size[1]), colour=channels == 3, labelled=labelled)
    classes = kept.fitted.classes
    unknown = sorted(set(images.classes) - set(classes))
    if unknown and labelled:
        raise ValueError(f"{folder} has classes that were not in training: {', '.join(unknown[:5])}")
    places = np.array([classes.index(name) if name in classes else -1 for name in images.classes] or [-1], np.int32)
    return ImageFolder(
        images.folder,
        images.files,
        images.stamps,
        np.where(images.labels < 0, -1, places[images.labels]).astype(np.int32),
        classes,
        images.shape,
        images.notes,
    )


def size_of(text: str | None) -> int | tuple[int, int] | None:
    """Pixels as they are typed.

    >>> size_of("32"), size_of("32x48")
    (32, (32, 48))
    """
    if text is None:
        return None
    try:
        parts = [int(part) for part in text.lower().split("x")]
    except ValueError:
        parts = []
    if len(parts) not in (1, 2) or min(parts) < 1:
        raise ValueError(f"--image-size must be pixels such as 32 or 32x48, got {text!r}")
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def check_options(given: dict[str, Any]) -> None:
    """Refuse what is for tables."""
    for name in (*_NOT_FOR_IMAGES, "all_rows"):
        if given.get(name):
            raise ValueError(f"--{name.replace('_', '-')} is for tables; images are predicted to be in classes")


def _of_usual_size(
    images: ImageFolder, folder: Path, labels: Path | None, given: dict[str, Any], output: Output
) -> ImageFolder:
    """Large images smaller, unless a size was asked for; too small ones are refused."""
    longest, shortest = max(images.shape[1:]), min(images.shape[1:])
    if given["image_size"] is None and longest > LARGEST:
        size = [max(SMALLEST, round(each * LARGEST / longest)) for each in images.shape[1:]]
        images = load_images(folder, labels, label=given["label"], size=(size[0], size[1]))
        for note in images.notes:
            output.note(note)
        output.note("--image-size keeps more of them, and takes longer.")
        return images
    for note in images.notes:
        output.note(note)
    if shortest < SMALLEST:
        raise ValueError(
            f"images must have {SMALLEST} x {SMALLEST} pixels or more, got {shortest}: pass --image-size 28"
        )
    return images


def _model(images: ImageFolder, given: dict[str, Any]) -> Any:
    from marginax.cli.settings import prior_named, widths
    from marginax.model import Model
    from marginax.model.likelihoods import Categorical
    from marginax.nets import LeNet

    hidden = (_HIDDEN,) if given["hidden"] is None else widths(given["hidden"])
    if len(hidden) != 1:
        raise ValueError(f"--hidden must be one width for images, that of the layer before the last, got {hidden}")
    net = LeNet(images.shape, _CHANNELS, hidden[0], len(images.classes), key=given["seed"])
    prior = prior_named(given["prior"])
    return Model(net, Categorical()) if prior is None else Model(net, Categorical(), prior)


def _method(num: int, given: dict[str, Any]) -> Any:
    """Five networks, unless another method was named.

    On 1,500 images of Fashion-MNIST and 1,500 others to judge by, all of them from its training images: NLL 0.442 for
    five networks of 20 epochs, 0.495 for one, 0.501 for SWAG and 0.512 for a last-layer Laplace approximation with
    their own budgets; processor time 1, 0.2, 1.4 and 2.1.
    """
    from marginax.cli.settings import with_options
    from marginax.infer import MAP, AbstractMethod, DeepEnsemble
    from marginax.infer.catalogue import method_named

    if given["method"] != "auto" or given["option"]:
        chosen = with_options(given["method"], given["option"] or [])
        return chosen if isinstance(chosen, AbstractMethod) else method_named(chosen)
    num_epochs = max(_EPOCHS, math.ceil(_LEAST_STEPS * _BATCH / num))
    return DeepEnsemble(5, member=MAP(num_epochs=num_epochs, batch_size=_BATCH))


def _source(images: ImageFolder, batch_size: int, output: Output) -> Any:
    """In memory, if they fit well; else read batch by batch."""
    from marginax._machine import available_memory
    from marginax.data import ImageFiles

    if images.num_bytes <= min(_MOST_IN_MEMORY, available_memory() / 8):
        return images.arrays()
    output.note(
        "The images are read from their files batch by batch: they stay where they are until the fit has ended."
    )
    return ImageFiles(images, batch_size=batch_size)


def _judge(posterior: Any, images: ImageFolder, kept: ImageRun, level: float) -> Judged:
    from marginax.evaluate import scores

    return Judged(scores(posterior.predict(images.pixels()), images.labels, level=level))


def _finish(posterior: Any, kept: ImageRun, directory: Path, output: Output) -> None:
    from marginax.cli.runs import report_of
    from marginax.evaluate.remedies import COMMAND_LINE
    from marginax.posterior.summary import summarise

    clock = output.clock
    output.remedies.append(f"`marginax resume {shlex.quote(str(directory))}` goes on")
    if not posterior.record.finished:
        raise KeyboardInterrupt
    clock.note("fit")
    scores = _judge(posterior, kept.held_out, kept, kept.level)
    clock.note("judge")
    report = report_images(directory, report_of(directory), output, posterior)
    for warning in summarise(posterior, COMMAND_LINE).warnings:
        output.note(f"warning: {warning}")
    clock.note("report")
    values = {
        "run": str(directory),
        "report": str(report),
        "method": posterior.record.method,
        "seconds": clock.total,
        "seconds_by_part": clock.parts,
        "held_out_rows": len(kept.held_out),
        "scores": scores.as_json(),
    }
    output.result(values, table(("score", "held out"), scores.rows(), caption=scores.caption))
    if not (output.json or output.quiet):
        typer.echo(f"time    {clock}\nrun     {directory}\nreport  {report}")

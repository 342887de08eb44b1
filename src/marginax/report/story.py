"""What was fitted, how the chains fared, what it cost, and how to do it again."""

import hashlib
import platform
from importlib import metadata
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from marginax.evaluate.chain_diagnostics import LEAST_ESS, MOST_R_HAT, ChainDiagnostics
from marginax.evaluate.chains import chain_predictions, diagnose_chains, ensemble_stability
from marginax.evaluate.remedies import COMMAND_LINE, PYTHON
from marginax.evaluate.stability import MOST_NATS
from marginax.plot import plot_rank, plot_trace
from marginax.plot.chains import distinct_colors
from marginax.posterior.draws import Draws
from marginax.posterior.posterior import AbstractPosterior
from marginax.posterior.record import describe
from marginax.posterior.summary import summarise
from marginax.report.material import FIGURE, HALF, Material
from marginax.report.page import AbstractBlock, Code, Facts, Items, Pair, Picture, Section, Table, Text

_LEAST_DRAWS = 10
_MOST_POINTS = 400
_PACKAGES = ("marginax", "jax", "jaxlib", "equinox", "optax", "blackjax", "numpy", "scipy")


def fitted_section(material: Material) -> Section:
    """Data, model, method, posterior."""
    posterior, spec = material.posterior, material.posterior.spec
    assert spec is not None, "the material is checked"
    model: Any = posterior.model
    num_weights = sum(int(np.prod(leaf.shape)) for leaf in model.leaves)
    scaled = "standardised; predictions are in the units of the data" if material.is_standardised else "as they came"
    if material.names:
        shown = ", ".join(material.names[:20]) + (f" and {len(material.names) - 20} more" * (len(material.names) > 20))
        inputs = f"{len(material.names)}: {shown}"
    else:
        inputs = f"arrays of shape {spec.x_shape}"
    target = material.target
    if material.of_classes and material.num_outputs == 1:
        num = material.prediction.probs.shape[1]
        names = ", ".join(material.name_class(label) for label in range(min(num, 12)))
        target += f", one of {num} classes: {names}{' and more' * (num > 12)}"
    elif material.num_outputs > 1:
        target += f", {material.num_outputs} {'labels' if material.of_classes else 'numbers'} per row"
    return Section(
        "What was fitted",
        (
            Facts(
                {
                    "target": target,
                    "inputs": inputs,
                    "rows": f"{spec.num_examples:,} to fit, {_held_out(material)} held out for this report; {scaled}",
                    "network": f"{type(model.network).__name__}, {num_weights:,} unknown weights",
                    "likelihood": describe(model.likelihood),
                    "prior": describe(model.prior),
                    "method": posterior.record.method or "unknown",
                    "posterior": posterior.describe(),
                }
            ),
        ),
    )


def _held_out(material: Material) -> str:
    return f"{len(material.y):,}" + (" labels of others" if material.annotators else "")


def chain_section(material: Material) -> Section:
    """Do the chains agree, in words."""
    heading = "Chains"
    posterior = _inner(material.posterior)
    if not isinstance(posterior, Draws):
        words = (
            f"Left out: the posterior is {posterior.describe()}, not chains of draws, so there is nothing to compare."
        )
        return Section(heading, (Text(words), *_training(posterior)))
    if posterior.num_draws < _LEAST_DRAWS:
        words = (
            f"{posterior.num_chains} chains of {posterior.num_draws} draws each are too few for R-hat. The members of "
            "an ensemble are separate networks, and meant to differ."
        )
        nats = ensemble_stability(posterior)
        words += "" if nats is None else f" {say_stability(nats)}"
        return Section(heading, (Text(words), *_training(posterior)))
    found = diagnose_chains(posterior)
    blocks: list[AbstractBlock] = [Text(say_chains(found))]
    if found.notes:
        blocks.append(Items(tuple(f"{note[0].upper()}{note[1:]}." for note in found.notes)))
    return Section(heading, (*blocks, *_chain_pictures(posterior, found), *_training(posterior)))


def say_stability(nats: float) -> str:
    """What another seed would change, in sentences.

    >>> print(say_stability(0.049))
    What matters is their mixture: the same fit with another seed would change the log predictive density of a row by
    0.049 nats, which is less than would change an answer (0.1 nats: a probability of 50% becomes 45% or 55%).
    """
    verdict = "less than would change an answer" if nats <= MOST_NATS else "enough to change answers"
    return (
        "What matters is their mixture: the same fit with another seed would change the log predictive density of a "
        f"row by {nats:.2g} nats, which is {verdict} ({MOST_NATS:g} nats: a probability of 50% becomes 45% or 55%)."
    )


def say_chains(found: ChainDiagnostics) -> str:
    """The numbers in sentences; of an ensemble whose members became chains, those of their mixture."""
    if found.trained_apart and found.stability is not None:
        return (
            f"{found.num_chains} members were trained apart, and each became a chain that explores what it found, so "
            f"chains are meant to differ. {say_stability(found.stability)}"
        )
    seen, what = (found.weights, "weights") if found.predictions is None else (found.predictions, "predictions")
    r_hat, bulk, tail = seen.worst_r_hat, seen.smallest_bulk_ess, seen.smallest_tail_ess
    agree = "agree" if r_hat <= MOST_R_HAT else "do not agree"
    who = "The halves of the one chain" if found.num_chains == 1 else f"The {found.num_chains} chains"
    enough = "enough" if min(bulk, tail) >= LEAST_ESS else "few"
    text = (
        f"{who} {agree} in their {what}: the worst R-hat is {r_hat:.3f} (1 is perfect, above {MOST_R_HAT:g} is bad). "
        f"{found.num_chains} x {found.num_draws} draws are worth at least {bulk:.0f} independent ones for means and "
        f"{tail:.0f} for 90% intervals, which is {enough}."
    )
    if found.stability is not None:
        text += f" {say_stability(found.stability)}"
    if found.acceptance is not None:
        text += f" On average {found.acceptance.mean():.0%} of the proposals were accepted."
    if found.num_diverging is not None:
        num = int(found.num_diverging.sum())
        text += f" {num or 'None'} of {found.num_steps * found.num_chains} trajectories diverged."
    if found.e_bfmi is not None:
        text += f" The smallest E-BFMI is {np.min(found.e_bfmi):.2f} (above 0.3 is good)."
    return text


def cost_section(material: Material) -> Section:
    """Steps and seconds."""
    record = material.posterior.record
    if not record.seconds:
        return Section("Cost", (Text("Left out: the record of the fit has no times."),))
    rows = [
        (
            name,
            f"{record.num_steps.get(name, 0):,}",
            f"{s:.1f} s",
            f"{record.num_steps.get(name, 0) / max(s, 1e-9):,.0f}",
        )
        for name, s in record.in_order(record.seconds)
    ]
    total = sum(record.seconds.values())
    chains = f"{record.num_chains} chains" if record.num_chains > 1 else "one chain"
    return Section(
        "Cost",
        (
            Text(f"The fit took {total:.1f} seconds, compilation included, with {chains}, on {_machine()}."),
            Table(("phase", "steps", "time", "steps per second"), tuple(rows)),
        ),
    )


def reproduce_section(material: Material) -> Section:
    """Command, configuration, versions and a fingerprint of the held-out rows."""
    blocks: list[AbstractBlock] = []
    if material.command:
        blocks += [Text("Run this again:"), Code(material.command)]
    digest = hashlib.sha256()
    for array in (material.x, material.y):
        digest.update(np.ascontiguousarray(array, np.float64).tobytes())
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    key = material.posterior.key
    facts = {"method": material.posterior.record.method or "unknown"}
    if key is not None:
        facts["key of predictions"] = " ".join(map(str, np.asarray(jax.random.key_data(key)).ravel()))
    facts["versions"] = f"Python {platform.python_version()}, {versions}"
    facts["precision"] = "float64" if jax.config.jax_enable_x64 else "float32"  # type: ignore[attr-defined]
    facts["machine"] = _machine()
    facts["held-out rows"] = f"SHA-256 {digest.hexdigest()[:16]}"
    blocks.append(Facts(facts))
    blocks.append(Text("With the same versions, machine and number of threads, the numbers come out the same."))
    return Section("How to reproduce", tuple(blocks))


def warnings_of(material: Material) -> tuple[str, ...]:
    """What to be wary of, in sentences; a fit from the command line is mended by its options."""
    texts = summarise(_inner(material.posterior), COMMAND_LINE if material.command else PYTHON).warnings
    if not material.posterior.record.finished:
        texts = ("the fit was interrupted before its last step", *texts)
    return tuple(f"{text[0].upper()}{text[1:]}." for text in texts)


def _inner(posterior: AbstractPosterior) -> AbstractPosterior:
    """The chains, where predictions are calibrated or mixed with others."""
    return getattr(posterior, "posterior", posterior)


def _machine() -> str:
    devices = jax.devices()
    kind = f"{len(devices)} {devices[0].platform.upper()} device{'s' * (len(devices) > 1)}"
    return f"{platform.system()} {platform.machine()}, {kind}"


def _chain_pictures(posterior: Draws, found: ChainDiagnostics) -> tuple[AbstractBlock, ...]:
    if posterior.record.probes is None:
        return ()
    values = chain_predictions(posterior, None)[:, :, 0, 0]
    thin = -(-values.shape[1] // _MOST_POINTS)
    trace, rank = Figure(HALF, layout="constrained"), Figure(HALF, layout="constrained")
    plot_trace(trace.subplots(), values[:, ::thin], name="network output")
    plot_rank(rank.subplots(), values, name="the output")
    label = "the network's output at one training input"
    every = f" Every {thin}th draw is shown." if thin > 1 else ""
    good, flat = ("One fuzzy band is good.", "Flat is good.")
    if found.trained_apart:
        good, flat = ("Each colour is a member, and may have a level of its own.", "Members that differ are not flat.")
    return (
        Pair(
            (
                Picture(trace, f"Trace of {label}", f"{label.capitalize()}, draw by draw.{every} {good}"),
                Picture(rank, f"Ranks of {label}", f"Ranks of the same among all draws, by chain. {flat}"),
            )
        ),
    )


def _training(posterior: AbstractPosterior) -> tuple[AbstractBlock, ...]:
    """The course of training, where it was recorded."""
    info_of = posterior.record.info
    for phase, info in sorted(info_of.items(), key=lambda item: item[0] != "train"):
        density = np.asarray(info.get("log_density", np.zeros((0, 0))), np.float64)
        if phase == "sample" or density.ndim != 2 or density.shape[1] < 2:
            continue
        places = np.unique(np.linspace(0, density.shape[1] - 1, _MOST_POINTS).astype(int))
        figure = Figure(FIGURE, layout="constrained")
        ax = figure.subplots()
        for row, color in zip(density, distinct_colors(len(density)), strict=True):
            ax.plot(places, row[places], lw=1.0, alpha=0.8, color=color)
        ax.set(xlabel="step", ylabel="log density", xlim=(0, density.shape[1] - 1))
        low, high = np.nanquantile(density, [0.02, 1.0])  # the first steps would hide the rest
        if np.isfinite([low, high]).all() and high > low:
            ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        caption = f"Log density in phase {phase}, a line per chain. It should be level at the end."
        return (Picture(figure, "Log density during training", caption),)
    return ()

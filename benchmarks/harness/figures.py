"""`python -m benchmarks figures`: write docs/figures.md, and the costs in docs/choosing.md, from benchmarks/results."""

import json
from pathlib import Path
from typing import Any

from benchmarks.entries.uci import PUBLISHED
from benchmarks.harness import reproductions

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "figures.md"
CHOOSING = ROOT / "docs" / "choosing.md"
BEGIN, END = "<!-- costs: python -m benchmarks figures -->", "<!-- end of costs -->"

AREAS = {
    "Training": ("mlp_step", "lenet_step", "ensemble_step", "ensemble_bde", "layout"),
    "Samplers": ("sampler_step", "nuts", "mile", "programs"),
    "Variational inference and dropout": ("vi_step", "dropout_predict", "convnet_mnist"),
    "Laplace and evidence": ("laplace", "laplace_memory", "evidence"),
    "Predictions on the UCI sets": ("uci_concrete", "uci_concrete_VI", "uci_energy_VI"),
    "Judging and deciding": ("temperature", "ood", "fidelity_boston", "active", "active_full", "distance"),
    "The rest": ("import_time", "scaling", "checkpoints"),
}
COMMANDS = {
    "convnet_mnist": "convnet",
    "fidelity_boston": "fidelity",
    "active_full": '"active VariationRatios --full"',
    "uci_concrete": '"uci concrete"',
    "uci_concrete_VI": '"uci concrete --method VI"',
    "uci_energy_VI": '"uci energy --method VI"',
}
HEADER = "| what | measured | target | |\n|---|---|---|---|"
INTRO = """# Figures against peers

Every number here is a record of a benchmark, measured in one run against a named peer on the same machine, taking
turns. `python -m benchmarks figures` writes this page from the records in `benchmarks/results`, and a test compares the
two, so it cannot say anything else than they do. Targets that are missed are shown as missed. How things are measured
is in `benchmarks/README.md`.

A ratio below 1 is ours over theirs: less time. Machine: {machine}.
"""


def page(results: Path = RESULTS) -> str:
    """The whole page."""
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    machines = sorted({f"{r['machine']['cpu']}, {r['machine']['cores']} cores" for r in records.values()})
    parts = [INTRO.format(machine="; ".join(machines))]
    named = {name for names in AREAS.values() for name in names}
    others = [name for name in records if name not in named]
    areas = AREAS | {"Others": tuple(name for name in others if rows_of(records[name]))}
    for area, names in areas.items():
        sections = [section(records[name]) for name in names if name in records]
        if sections:
            parts.append(f"## {area}\n\n" + "\n".join(sections))
    left = ", ".join(f"`{name}.json`" for name in others if not rows_of(records[name]))
    if left:
        parts.append(f"Records without a target, in `benchmarks/results`: {left}.\n")
    return "\n".join(parts)


def section(record: dict[str, Any]) -> str:
    """A table with its heading and the command that measures it again."""
    name = record["name"]
    title = record.get("title", "Priors tuned by evidence, on the UCI sets")
    if name.startswith("uci_"):
        title = f"{name.split('_')[1]}: {title}"
    rows = [f"| {' | '.join(row)} |" for row in rows_of(record)]
    command = f"`make bench NAME={COMMANDS.get(name, name)}`, {record['date']}"
    return "\n".join([f"### {title}", "", HEADER, *rows, "", command, ""])


def rows_of(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What, measured, target, and whether it is met: whichever way the benchmark keeps them."""
    name = record["name"]
    if "targets" in record:
        return [_of_ratio(target) for target in record["targets"]]
    if "claims" in record:
        return [_of_claim(claim) for claim in record["claims"]]
    known = {"laplace_memory": _memory, "evidence": _evidence, "convnet_mnist": _convnet, "scaling": _scaling}
    if name.startswith("uci_"):
        return _uci(record)
    return known[name](record) if name in known else []


def costs(results: Path = RESULTS) -> str:
    """The table of `methods`, for docs/choosing.md."""
    record = json.loads((results / "methods.json").read_text(encoding="utf-8"))
    lines = ["| method | RMSE | NLL | 90% intervals cover | seconds | processor seconds | numbers stored |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, row in record["rows"].items():
        scores = row["scores"]
        cells = [f"{scores[s]['value']:.2f} ± {scores[s]['error']:.2f}" for s in ("rmse", "nll", "coverage")]
        cells += [f"{row['seconds']:.1f}", f"{row['processor_seconds']:.1f}", f"{row['num_stored']:,}"]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    lines += ["", f"Load average {record['load_average']:g} on {record['machine']['cores']} cores, {record['date']}."]
    return "\n".join(lines) + "\n"


def with_costs(text: str) -> str:
    """The text with the table between its two marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{costs()}\n{END}{rest.split(END)[1]}"


def _of_ratio(target: dict[str, Any]) -> tuple[str, str, str, str]:
    where = f"{target['group']}: " if target["group"] else ""
    what = f"{where}{target['ours']} / {target['peer']}"
    return what, f"{target['ratio']:.4g}", f"at most {target['at_most']:.3g}", _word(target["met"])


def _of_claim(claim: dict[str, Any]) -> tuple[str, str, str, str]:
    side = "at most" if claim["at_most"] else "at least"
    return claim["claim"], f"{claim['measured']:.4g}", f"{side} {claim['limit']:g}", _word(claim["met"])


def _memory(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    peaks = {name: found["scores"][0]["MB both"] for name, found in record["results"].items()}
    return [(f"{name}: peak memory", f"{peak:,.0f} MB", "", "") for name, peak in peaks.items()]


def _evidence(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Negative log-likelihoods have axes (split, subset, way): all weights or last layer; default, after, online."""
    sets = [value["nll"] for value in record.values() if isinstance(value, dict) and "nll" in value]
    rows = []
    for i, subset in enumerate(("Kronecker", "last layer")):
        for j, way in ((1, "tuned afterwards"), (2, "tuned online")):
            wins = sum(sum(split[i][j] - split[i][0] for split in splits) < 0 for splits in sets)
            what = f"{subset}, {way} ({len(sets[0])} splits): sets with lower NLL than the default prior"
            rows.append((what, f"{wins} of {len(sets)}", "at least 5", _word(wins >= 5)))
    return rows


def _convnet(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    average, scaled = record["rows"]["average of 50 draws"]["nll"], record["rows"]["weight scaling"]["nll"]
    what = "NLL of the average of 50 draws"
    return [(what, f"{average:.4f}", f"below weight scaling, {scaled:.4f}", _word(average < scaled))]


def _scaling(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    rows = []
    for name, found in record.items():
        if isinstance(found, dict) and "sizes" in found:
            size, cost = (found[key][-1] / found[key][0] for key in ("sizes", "seconds"))
            rows.append((f"{name}: cost, for {size:.3g} times the size", f"{cost:.3g} times", "linear", ""))
    return rows


def _uci(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    _, dataset, *method = record["name"].split("_")
    peer = "PBP" if method else "deep ensembles"
    limits = zip(("rmse", "nll"), PUBLISHED[dataset][peer], strict=True)
    return [
        (
            f"{score.upper()}, 20 splits",
            f"{record[score]['mean']:.3f} ± {record[score]['standard_error']:.3f}",
            f"at most {limit:g} (published, {peer})",
            _word(record[score]["mean"] <= limit),
        )
        for score, limit in limits
    ]


def _word(met: bool) -> str:
    return "met" if met else "**missed**"


def main() -> None:
    """Write the pages."""
    PAGE.write_text(page(), encoding="utf-8")
    CHOOSING.write_text(with_costs(CHOOSING.read_text(encoding="utf-8")), encoding="utf-8")
    reproductions.PAGE.write_text(reproductions.page(), encoding="utf-8")
    reproductions.PICTURES.write_text(reproductions.pictures(), encoding="utf-8")

"""`marginax demo`, `methods`, `doctor` and `version`: what there is, and whether it works here."""

from pathlib import Path
from typing import Annotated, Any

import typer

from marginax._extras import require
from marginax.cli.output import Debug, Json, Output, Quiet, table

_PACKAGES = (
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "numpy",
    "scipy",
    "numpyro",
    "arviz",
    "matplotlib",
    "scikit-learn",
    "pandas",
)


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the report and the picture.")] = Path("marginax-demo"),
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Ten measurements, a gap, and the question what y is at x = 7: every method answers, side by side."""
    output = Output(quiet, json, debug)
    with output.speaking():
        experiment = require("marginax.demo")
        with output.counting("fitting", experiment.num_methods()) as advance:
            answers = experiment.run(out, done=advance)
        rows = [answer.row() for answer in answers]
        shown = table(
            experiment.HEADER,
            rows,
            title="y = 3x, measured ten times; what is y at x = 7, and how sure are we?",
            caption="epistemic and aleatoric are standard deviations; seconds with compilation, two methods at a time",
        )
        values = [dict(zip(experiment.HEADER, row, strict=True)) for row in rows]
        paths = {"report": str(out / "report.html"), "picture": str(out / "demo.png")}
        output.result({"answers": values, **paths}, shown)
        if not json:
            typer.echo("\n".join(f"{name:<8} {path}" for name, path in paths.items()))


def methods(quiet: Quiet = False, json: Json = False, debug: Debug = False) -> None:
    """What exists, when to use it, and what it costs."""
    output = Output(quiet, json, debug)
    with output.speaking(compiles=False):
        from marginax.infer.catalogue import catalogue

        shown = require("rich.table").Table("method", "use it when", "cost")
        for entry in catalogue():
            shown.add_row(entry.name, entry.use_when, entry.cost)
        values = [{"name": e.name, "use_when": e.use_when, "cost": e.cost} for e in catalogue()]
        output.result({"methods": values}, shown)


def doctor(quiet: Quiet = False, json: Json = False, debug: Debug = False) -> None:
    """Versions, devices, cores, and a check of a few seconds that fits come out right here."""
    output = Output(quiet, json, debug)
    with output.speaking():
        import os
        import platform
        import shutil

        import jax

        from marginax import __version__
        from marginax.cli.self_check import check

        with output.counting("checking", 3) as advance:
            checks = check(advance)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        devices = [str(device) for device in jax.devices()]
        free = shutil.disk_usage(".").free / 2**30
        facts = {
            "marginax": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in _PACKAGES},
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "devices": ", ".join(devices),
            "cores": f"{cores} of {os.cpu_count()}",
            "disk": f"{free:.1f} GiB free here",
        }
        good = all(found.good for found in checks)
        rows = [
            *facts.items(),
            *((found.name, ("good: " if found.good else "WRONG: ") + found.words) for found in checks),
        ]
        values: dict[str, Any] = {"facts": facts, "good": good}
        values["checks"] = [{"name": f.name, "good": f.good, "words": f.words, "seconds": f.seconds} for f in checks]
        output.result(values, "\n".join(f"{name:<14} {text}" for name, text in rows))
        if not good:
            raise typer.Exit(1)


def _version(name: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def version() -> None:
    """Versions of marginax and of what it stands on."""
    import equinox
    import jax

    import marginax

    typer.echo(f"marginax {marginax.__version__}, jax {jax.__version__}, equinox {equinox.__version__}")

"""The command line. Imports of what computes wait inside the commands, so that help comes at once."""

from marginax._extras import require

require("typer")

from typing import Annotated

import typer

from marginax.cli.about import demo, doctor, methods, version
from marginax.cli.clustering import cluster
from marginax.cli.comparing import compare
from marginax.cli.fitting import fit, resume
from marginax.cli.launching import launch
from marginax.cli.playing import playground
from marginax.cli.reproducing import reproduce
from marginax.cli.using import evaluate, predict, report

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Bayesian deep learning: networks that know when they guess.",
    pretty_exceptions_enable=False,
)
COMMANDS = (
    fit,
    predict,
    evaluate,
    compare,
    cluster,
    report,
    resume,
    demo,
    playground,
    launch,
    reproduce,
    methods,
    doctor,
    version,
)
for command in COMMANDS:
    app.command()(command)


def _print_version(asked: bool) -> bool:
    if asked:
        version()
        raise typer.Exit
    return asked


@app.callback()
def _options(
    show: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print versions and end.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command."""
    app()

"""The command line. Imports of what computes wait inside the commands, so that help comes at once."""

from marginax._extras import require

require("typer")

import typer

from marginax.cli.about import demo, doctor, methods, version
from marginax.cli.comparing import compare
from marginax.cli.fitting import fit, resume
from marginax.cli.using import evaluate, predict, report

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Bayesian deep learning: networks that know when they guess.",
    pretty_exceptions_enable=False,
)
for command in (fit, predict, evaluate, compare, report, resume, demo, methods, doctor, version):
    app.command()(command)


def main() -> None:
    """Run the command."""
    app()

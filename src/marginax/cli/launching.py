"""`marginax launch`: a script on several hosts, tried on this machine."""

from typing import Annotated

import typer

from marginax.cli.output import Debug, Output


def launch(
    script: Annotated[list[str], typer.Argument(help="The script and what it is given, after --.")],
    hosts: Annotated[int, typer.Option(help="How many processes.", min=1)] = 2,
    grace: Annotated[float, typer.Option(help="Seconds to end in before it is done by force.", min=0)] = 10.0,
    debug: Debug = False,
) -> None:
    """Run a script that calls mx.launch.initialize() as several hosts, on loopback; when one fails, all are ended."""
    output = Output(False, False, debug)
    with output.speaking(compiles=False):
        from marginax.launch.trial import run_hosts

        code, text = run_hosts(script, hosts, grace=grace)
        if code:
            output.note(text)
            raise typer.Exit(code if code > 0 else 128 - code)

"""`marginax playground`: a local page on which posteriors are seen to come about."""

from typing import Annotated

import typer

from marginax.cli.output import Debug, Output


def playground(
    host: Annotated[str, typer.Option(help="A loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="To listen on; 0 is any that is free.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    debug: Debug = False,
) -> None:
    """A page where you place points, choose methods, and see posteriors come about; every number is computed here."""
    output = Output(False, False, debug)
    with output.speaking(compiles=False):
        from marginax.playground.serving import listening_socket, serve

        def say(address: str) -> None:
            typer.echo(address)
            output.note("the page is open to this machine alone; Ctrl-C ends it")

        listening = listening_socket(host, port)
        output.note("starting: the address follows when the page can compute")
        serve(listening, browser=browser, say=say)

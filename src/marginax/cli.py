"""The command line."""

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Bayesian deep learning: networks that know when they guess.",
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the report and the picture.")] = Path("marginax-demo"),
) -> None:
    """Ten measurements, a gap, and the question what y is at x = 7: every method answers, side by side."""
    from rich.console import Console
    from rich.table import Table

    from marginax import demo as experiment

    console = Console()
    with console.status("fitting") as status:
        answers = experiment.run(out, say=status.update)
    table = Table(
        title="y = 3x, measured ten times; what is y at x = 7, and how sure are we?",
        caption="epistemic and aleatoric are standard deviations; seconds with compilation, two methods at a time",
        box=None,  # so that it fits in 80 columns
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    for i, name in enumerate(experiment.HEADER):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
    for answer in answers:
        table.add_row(*answer.row())
    console.print(table)
    console.print(f"report   {out / 'report.html'}\npicture  {out / 'demo.png'}", highlight=False, soft_wrap=True)


@app.command()
def methods() -> None:
    """What exists, when to use it, and what it costs."""
    from rich.console import Console
    from rich.table import Table

    from marginax.infer.catalogue import catalogue

    table = Table("method", "use it when", "cost")
    for entry in catalogue():
        table.add_row(entry.name, entry.use_when, entry.cost)
    Console().print(table)


@app.command()
def version() -> None:
    """Versions of marginax and of what it stands on."""
    import equinox
    import jax

    import marginax

    typer.echo(f"marginax {marginax.__version__}, jax {jax.__version__}, equinox {equinox.__version__}")


def main() -> None:
    """Run the command; errors are one line."""
    try:
        app()
    except (ValueError, TypeError, FileExistsError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

"""``python -m examples.demo``: train, adapt, score and report on simulated data."""

from pathlib import Path
from typing import Annotated

import typer

from metaprior.cli.application import run_guarded

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report, the pictures and the prior.")] = Path("demo"),
) -> None:
    """Simulate irradiance maps, learn a prior, adapt it to unseen places, score it, and write a report.

    It needs no data, and less than five minutes on two cores.

    Example: python -m examples.demo --out demo
    """
    from examples.demo import run

    run(out, say=typer.echo)


if __name__ == "__main__":
    run_guarded(app)

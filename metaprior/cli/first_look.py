"""``metaprior demo``: the whole thing once, on data that come with it."""

from pathlib import Path
from typing import Annotated

import typer

from metaprior.cli.application import app


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report, the pictures and the prior.")] = Path("demo"),
) -> None:
    """Simulate irradiance maps, learn a prior, adapt it to unseen places, score, and write a report to look at.

    Needs no data and less than five minutes on two cores.

    Example: metaprior demo --out demo
    """
    from metaprior.demo import run

    run(out, say=typer.echo)

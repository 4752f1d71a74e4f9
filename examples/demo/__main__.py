"""``python -m examples.demo``: a new plant and maps, forecast, adapted to and scored on simulated data."""

from pathlib import Path
from typing import Annotated

import typer

from metaprior.cli.application import run_guarded

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, the priors and the forecasts.")] = Path("demo"),
) -> None:
    """Forecast new solar plants from their first days, and maps of irradiance; show what adapting is worth.

    It needs no data, and about three minutes on two cores. Two runs print the same table and sentences.

    Example: python -m examples.demo --out demo
    """
    from examples.demo import run

    run(out, say=typer.echo)


if __name__ == "__main__":
    run_guarded(app)

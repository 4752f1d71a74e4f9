"""Registration of forecast maps as an application of ``metaprior.runs``: tasks, the network of nowcasts, commands."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from metaprior.errors import CheckpointError
from metaprior.likelihoods import LIKELIHOODS
from metaprior.models import MODELS
from metaprior.runs.sources import TASKS, WEIGHTS
from metaprior.solar.maps.nowcast.likelihood import NowcastLikelihood
from metaprior.solar.maps.nowcast.network import NowcastNetwork
from metaprior.solar.maps.nowcast.task_settings import NowcastTasks, WorldsTasks
from metaprior.solar.maps.task_settings import KINDS

if TYPE_CHECKING:
    import typer

    from metaprior.cli.inspection import Inspector


def prior_of_nowcasts() -> Mapping[str, Tensor]:
    """Return the weights of the first network of the package's prior."""
    from metaprior.solar.maps.nowcast.forecaster import PRIOR, Nowcaster

    try:
        return Nowcaster.pretrained(PRIOR).networks[0].state_dict()
    except CheckpointError as error:
        raise CheckpointError(
            f"warm_start.weights is 'nowcast', but the prior of nowcasts cannot be read: {error}. Try make prior-maps, "
            "which trains it, or --set warm_start.weights= for a fresh network"
        ) from None


for kind, settings in {**KINDS, "nowcast": NowcastTasks, "worlds": WorldsTasks}.items():
    TASKS.add(kind, settings)
MODELS.add("nowcast", NowcastNetwork)
LIKELIHOODS.add("nowcast", NowcastLikelihood)
WEIGHTS["nowcast"] = prior_of_nowcasts


def add_commands(app: "typer.Typer") -> None:
    """Add ``simulate``, ``nowcast``, ``predict`` and ``report``."""
    from metaprior.solar.commands import report, simulate
    from metaprior.solar.maps.commands import nowcast, predict

    for command in (simulate, nowcast, predict, report):
        app.command()(command)


def inspectors() -> "tuple[Inspector, ...]":
    """Return how ``metaprior inspect`` recognises archives of frames and forecast maps."""
    from metaprior.solar.maps.inspection import INSPECTORS

    return INSPECTORS

"""How much a measure depends on which tasks were drawn: the bootstrap over whole tasks (Efron and Tibshirani 1993).

Tasks are resampled and not pixels, because pixels of a task are anything but independent.
"""

import torch
from torch import Tensor

from metaprior.noise import Noise

RESAMPLES = 1000
LIMITS = (0.025, 0.975)


def draws_of_tasks(tasks: int, seed: int) -> Tensor:
    """How often each resample (rows) has drawn each task, with replacement: (RESAMPLES, tasks)."""
    generator = Noise(seed).fork("bootstrap over tasks").generator()
    drawn = torch.randint(tasks, (RESAMPLES, tasks), generator=generator)
    return torch.zeros(RESAMPLES, tasks, dtype=torch.float64).scatter_add_(
        1, drawn, torch.ones(1).double().expand_as(drawn)
    )


def percentiles(resampled: Tensor) -> Tensor:
    """LIMITS of each column over resamples, (2, ...); resamples in which it is not known do not count."""
    finite = resampled.where(resampled.isfinite(), torch.nan)
    return finite.nanquantile(torch.tensor(LIMITS, dtype=finite.dtype), 0)

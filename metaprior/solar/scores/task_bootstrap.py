"""The bootstrap over whole tasks (Efron and Tibshirani 1993): how much a measure depends on which tasks were drawn.

Tasks are resampled, not pixels, because the pixels of a task are not independent.
"""

import torch
from torch import Tensor

from metaprior.noise import Noise

RESAMPLES = 1000
LIMITS = (0.025, 0.975)


def draws_of_tasks(tasks: int, seed: int) -> Tensor:
    """Return how often each resample (row) drew each task, with replacement: (RESAMPLES, tasks)."""
    generator = Noise(seed).fork("bootstrap over tasks").generator()
    drawn = torch.randint(tasks, (RESAMPLES, tasks), generator=generator)
    return torch.zeros(RESAMPLES, tasks, dtype=torch.float64).scatter_add_(
        1, drawn, torch.ones(1).double().expand_as(drawn)
    )


def percentiles(resampled: Tensor) -> Tensor:
    """Return the LIMITS of each column over the resamples in which it is finite, (2, ...)."""
    finite = resampled.where(resampled.isfinite(), torch.nan)
    return finite.nanquantile(torch.tensor(LIMITS, dtype=finite.dtype), 0)

"""The number of threads that an estimator computes with."""

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral

import joblib  # type: ignore[import-untyped]
import torch


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Use ``n_jobs`` threads inside the block, as joblib reads it: None is one, -1 all cores, -2 all but one."""
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise ValueError(f"n_jobs must be None or an integer other than 0, got {n_jobs!r}")
    before = torch.get_num_threads()
    torch.set_num_threads(int(joblib.effective_n_jobs(n_jobs)))
    try:
        yield
    finally:
        torch.set_num_threads(before)

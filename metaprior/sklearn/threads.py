"""The number of threads that an estimator computes with."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Use ``n_jobs`` threads inside the block; None is one, and -1 as many as there are cores."""
    if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs == 0 or n_jobs < -1):
        raise ValueError(f"n_jobs must be None, -1 or a positive integer, got {n_jobs!r}")
    before = torch.get_num_threads()
    torch.set_num_threads((os.cpu_count() or 1) if n_jobs == -1 else n_jobs or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

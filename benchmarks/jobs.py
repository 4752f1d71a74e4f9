"""Many small fits on all cores: one process a core, one thread a process."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

import torch
from tqdm import tqdm

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_all(function: Callable[[Job], Result], jobs: Sequence[Job], *, workers: int | None, label: str) -> list[Result]:
    """Results in the order of the jobs, with a progress bar. The first error stops everything and is raised."""
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    # Small tensors: OpenMP threads of two processes would only wait for each other.
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    )
    with pool:
        futures = [pool.submit(function, job) for job in jobs]
        try:
            for future in tqdm(as_completed(futures), desc=label, total=len(futures), unit="fit"):
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]

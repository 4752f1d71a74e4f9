"""What is in use and what is free: on the CPU of the process, on a GPU of its tensors."""

import pytest
import torch

from metaprior.metagrad import memory

GPU = torch.device("cuda", 1)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU with 5 GB free, on which this process has 2 GB of tensors, and 1 GB of freed blocks."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", {GPU: (5_000, 24_000)}.__getitem__)
    monkeypatch.setattr(torch.cuda, "memory_allocated", {GPU: 2_000}.__getitem__)
    monkeypatch.setattr(torch.cuda, "memory_reserved", {GPU: 3_000}.__getitem__)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", {GPU: 9_000}.__getitem__)


@pytest.mark.usefixtures("gpu")
def test_the_memory_of_a_gpu_is_that_of_its_tensors() -> None:
    assert memory.memory_of(GPU) == (2_000, 6_000)
    assert memory.peak_memory(GPU) == 9_000
    assert memory.bytes_of(0.5, device=GPU) == 5_000
    assert memory.bytes_of(0.5, device=GPU, processes=4) == 5_000, "each process has a GPU of its own"
    assert memory.bytes_of("7KB", device=GPU) == 7_000


def test_the_memory_of_the_cpu_is_that_of_the_process() -> None:
    found = memory.memory_of(torch.device("cpu"))
    assert found.in_use > 0
    assert found.available > 0


def test_the_memory_of_other_devices_is_not_known() -> None:
    other = torch.device("meta")
    with pytest.raises(ValueError, match="device must be a CPU or a CUDA device for its memory to be known, got meta"):
        memory.memory_of(other)
    assert memory.bytes_of(0.5, device=other) == float("inf"), "a fraction of what nobody knows bounds nothing"

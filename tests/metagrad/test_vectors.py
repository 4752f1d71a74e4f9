"""Vectors in parts: the same numbers as whole."""

import pytest
import torch

from metaprior.metagrad import vectors
from metaprior.metagrad.vectors import PartwiseNoise, parts
from metaprior.noise import Noise

SIZES = [1, 15, 16, 17, 63, 64, 65, 79, 80, 81, 95, 96, 130, 1000]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "PART", 64)


@pytest.mark.parametrize("size", SIZES)
def test_parts_cover_a_vector_and_the_last_one_is_not_too_short(size: int) -> None:
    found = list(parts(torch.zeros(3, size)))
    assert [0, *(part.stop for part in found)] == [*(part.start for part in found), size]
    assert all(part.stop - part.start >= min(size, vectors.SHORTEST) for part in found)
    assert all(part.start % 16 == 0 for part in found)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_in_parts_is_the_noise_of_one_draw(size: int, dtype: torch.dtype) -> None:
    noise, like = Noise(3, 1, 4, 1), torch.zeros(size, dtype=dtype)
    drawn = PartwiseNoise([noise], like, stacked=False)
    for _ in range(2):  # reading the first part starts again
        found = torch.cat([drawn[..., part] for part in parts(like)])
        assert torch.equal(found, noise.normal(like))


def test_noise_of_a_stack_is_that_of_each_task() -> None:
    rows, like = [Noise(task=task) for task in range(3)], torch.zeros(200)
    drawn = PartwiseNoise(rows, like, stacked=True)
    assert drawn.shape == (3, 200)
    found = torch.cat([drawn[..., part] for part in parts(like)], -1)
    assert torch.equal(found, torch.stack([row.normal(like) for row in rows]))


def test_a_part_can_be_read_again_and_none_can_be_skipped() -> None:
    like = torch.zeros(300)
    drawn = PartwiseNoise([Noise()], like, stacked=False)
    first, second, third, *_ = parts(like)
    assert drawn[..., first] is drawn[..., first]
    with pytest.raises(AssertionError, match="in order"):
        drawn[..., third]
    assert torch.equal(drawn[..., second], Noise().normal(like)[second])

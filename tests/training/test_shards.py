"""How tensors are divided. Unsharded trainings with it are in tests/team/test_equality.py, on real processes."""

import pytest
import torch
from torch import Tensor

from metaprior.team import Team
from metaprior.training.optimizer import ALIGNED, SMALLEST, Shards
from tests.team.fake import together

SHAPES = [(SMALLEST,), (SMALLEST + 1,), (70, 80), (3, SMALLEST), (3,), (2, 5), ()]


def numbers(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_whole_is_everything_in_the_same_memory() -> None:
    tensor = torch.zeros(3)
    Shards().part(tensor).add_(1.0)
    Shards().join(tensor)
    assert tensor.tolist() == [1.0, 1.0, 1.0]
    assert Shards().whole(tensor, tensor) is tensor


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_parts_that_were_moved_are_joined_and_put_together(shape: tuple[int, ...], size: int) -> None:
    def work(team: Team) -> tuple[Tensor, Tensor, int]:
        shards, tensor = Shards(team), numbers(shape).requires_grad_()
        part = shards.part(tensor)
        assert not part.requires_grad
        moment = part * 3.0
        part.add_(1.0)
        shards.join(tensor)
        return tensor.detach(), shards.whole(moment, tensor), part.numel()

    expected, held = numbers(shape), 0
    for joined, moments, own in together(size, work):
        assert torch.equal(joined, expected + 1.0)
        assert torch.equal(moments, expected * 3.0)
        assert moments.shape == shape
        held += own
    assert held == expected.numel() * (1 if expected.numel() >= SMALLEST else size), "small ones are not divided"


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("count", [SMALLEST, SMALLEST + 1, 10**5 + 7])
def test_parts_are_of_about_equal_size_and_begin_where_a_processor_likes_it(count: int, size: int) -> None:
    """In turn they are the tensor, and nothing twice."""
    tensor = torch.arange(float(count))
    parts = together(size, lambda team: Shards(team).part(tensor))
    assert torch.equal(torch.cat(parts), tensor)
    assert max(map(len, parts)) < count / size + ALIGNED
    assert all(int(part[0]) % ALIGNED == 0 for part in parts if len(part))


def test_adam_moves_parts_as_it_moves_the_whole_to_the_last_bit() -> None:
    """With parts that begin anywhere it does not: what is left over from its vectors is rounded another way."""
    count, generator = SMALLEST + 3, torch.Generator().manual_seed(1)
    grads = torch.randn(20, count, dtype=torch.float64, generator=generator)

    def moved(team: Team) -> tuple[Tensor, Tensor]:
        shards, tensor = Shards(team if team.size > 1 else None), numbers((count,))
        held = shards.part(tensor)
        adam = torch.optim.AdamW([held], fused=True)
        for grad in grads:
            held.grad = shards.part(grad.clone())
            adam.step()
        shards.join(tensor)
        return tensor, shards.whole(adam.state[held]["exp_avg_sq"], tensor)

    (alone,) = together(1, moved)
    for size in (2, 3):
        for found in together(size, moved):
            assert torch.equal(found[0], alone[0])
            assert torch.equal(found[1], alone[1])

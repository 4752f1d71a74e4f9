import torch
from hypothesis import given
from hypothesis import strategies as st

from metaprior.noise import Noise

indices = st.integers(0, 10_000)


@given(seed=indices, task=indices, step=indices, sample=indices)
def test_noise_is_replayed_by_its_index(seed: int, task: int, step: int, sample: int) -> None:
    like = torch.zeros(5, dtype=torch.float64)
    first = Noise(seed, task, step, sample).normal(like)
    torch.randn(3)  # other generators do not matter
    assert torch.equal(Noise(seed).at(sample=sample, step=step, task=task).normal(like), first)


def test_every_index_matters_and_none_is_mistaken_for_another() -> None:
    like = torch.zeros(4)
    draws = [
        Noise(*index).normal(like) for index in [(0,), (1,), (0, 1), (0, 0, 1), (0, 0, 0, 1), (1, 1), (11,), (0, 11)]
    ]
    draws += [Noise(0).fork("shuffle").normal(like), Noise(0).fork("predict").normal(like)]
    assert len({tuple(draw.tolist()) for draw in draws}) == len(draws)


def test_no_global_generator_is_touched() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    Noise(5).normal(torch.zeros(10))
    assert torch.equal(torch.rand(3), expected)


def test_noise_is_standard_normal_and_independent_between_samples() -> None:
    draws = Noise(3).normals(torch.zeros(20_000, dtype=torch.float64), range(2))
    assert draws.mean().abs() < 0.03
    assert (draws.std() - 1).abs() < 0.02
    assert torch.corrcoef(draws)[0, 1].abs() < 0.03


def test_stacked_samples_are_the_single_ones() -> None:
    like = torch.zeros(7)
    assert torch.equal(Noise(1).normals(like, range(2, 5))[1], Noise(1).at(sample=3).normal(like))

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from metaprior.models.unet import UNet
from metaprior.network import Chain, first_stage_with, stages_of


class Residual(nn.Sequential):
    """A sequential whose forward is not its children one after the other."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class OwnStages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.late, self.early = nn.Linear(2, 2), nn.Linear(2, 2)  # not in the order in which they run

    def stages(self) -> Sequence[nn.Module]:
        return [self.early, self.late]

    def forward(self, x: Tensor) -> Tensor:
        return self.late(self.early(x))


def three_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))


def test_who_splits_and_who_does_not() -> None:
    net = three_layers()
    assert list(stages_of(net)) == list(net)
    own = OwnStages()
    assert list(stages_of(own)) == [own.early, own.late]
    for whole in (nn.Linear(2, 2), Residual(nn.Linear(2, 2), nn.Tanh())):
        assert list(stages_of(whole)) == [whole]


@pytest.mark.parametrize(("names", "first"), [(["2.bias"], 2), (["2.weight", "0.bias"], 0), ([], 0), (["0.weight"], 0)])
def test_first_stage_that_holds_a_parameter(names: list[str], first: int) -> None:
    assert first_stage_with(three_layers(), names) == first


def test_order_is_that_of_the_stages_and_not_of_the_names() -> None:
    assert first_stage_with(OwnStages(), ["late.weight"]) == 1
    assert first_stage_with(OwnStages(), ["late.weight", "early.bias"]) == 0


def test_a_shared_parameter_counts_where_it_is_used_first() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    net[2].weight = net[1].weight
    assert first_stage_with(net, ["1.weight"]) == 1
    assert first_stage_with(net, ["2.weight"]) == 1
    assert first_stage_with(net, ["2.bias"]) == 2


@pytest.mark.parametrize("split", range(10))
def test_two_halves_are_the_whole(split: int) -> None:
    net, frames = UNet(2, 2, width=2, levels=2), torch.randn(2, 2, 8, 8)
    assert len(stages_of(net)) == 8
    torch.testing.assert_close(Chain(net, split)(Chain(net, 0, split)(frames)), net(frames), rtol=0, atol=0)


def test_parameters_of_a_part_can_be_replaced_by_name() -> None:
    net, x = three_layers(), torch.randn(3, 2)
    zeros = {"module.2.weight": torch.zeros(2, 2), "module.2.bias": torch.ones(2)}
    assert torch.equal(functional_call(Chain(net, 1), zeros, (x,)), torch.ones(3, 2))
    assert torch.equal(Chain(net, 0, 2)(x), net[1](net[0](x)))


def test_a_whole_module_runs_its_own_forward() -> None:
    net, x = Residual(nn.Linear(2, 2)), torch.randn(3, 2)
    assert torch.equal(Chain(net)(x), net(x))

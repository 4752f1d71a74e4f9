import pytest
import torch
from torch import nn

from metaprior.models.unet import UNet


def test_width_64_has_17_million_weights() -> None:
    with torch.device("meta"):
        net = UNet(4, 4, width=64, levels=4)
    count = sum(p.numel() for p in net.parameters())
    assert round(count / 1e6, 2) == 17.26
    assert net(torch.empty(2, 4, 128, 128, device="meta")).shape == (2, 4, 128, 128)


@pytest.mark.parametrize("size", [(8, 8), (9, 13), (17, 8), (15, 31)])
def test_frames_of_any_size(size: tuple[int, int]) -> None:
    net = UNet(3, 5, width=2, levels=3)
    assert net(torch.randn(2, 3, *size)).shape == (2, 5, *size)


def test_a_change_of_nothing_is_persistence() -> None:
    net = UNet(3, 2, width=4, levels=2)
    frames = torch.randn(2, 3, 9, 8)
    assert not torch.equal(net(frames), frames[:, -1:].expand(-1, 2, -1, -1))
    nn.init.zeros_(net.output.change.weight)
    nn.init.zeros_(net.output.change.bias)
    assert torch.equal(net(frames), frames[:, -1:].expand(-1, 2, -1, -1))


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 12, 20, 31])
def test_groups_divide_the_channels_and_hold_about_eight(width: int) -> None:
    net = UNet(1, 1, width=width, levels=3)
    norms = [part for part in net.modules() if isinstance(part, nn.GroupNorm)]
    assert len(norms) == 2 * (1 + 3 + 3)
    for norm in norms:
        assert norm.num_channels % norm.num_groups == 0
        assert norm.num_groups <= norm.num_channels // 8 + 1
        if norm.num_channels % 8 == 0:
            assert norm.num_groups >= norm.num_channels // 8


def test_an_observation_does_not_depend_on_its_neighbours() -> None:
    net = UNet(2, 2, width=4, levels=2).double()
    frames = torch.randn(3, 2, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(net(frames)[1:2], net(frames[1:2]), rtol=1e-12, atol=1e-13)


def test_every_weight_is_used_and_skips_arrive() -> None:
    net = UNet(2, 2, width=2, levels=3).double()
    net(torch.randn(2, 2, 8, 8, dtype=torch.float64)).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert float(parameter.grad.norm()) > 0, name


def test_stages_and_their_channels() -> None:
    net = UNet(4, 4, width=2, levels=4)
    names = [name for name, _ in net.named_children()]
    decoding = [name for i in range(1, 5) for name in (f"merge{i}", f"decoder{i}")]
    assert names == ["stem", *(f"encoder{i}" for i in range(1, 5)), *decoding, "output"]
    features, widths = torch.randn(1, 4, 16, 16), []
    for stage in list(net)[:5]:
        features = stage(features)
        widths.append(features[0].shape[1])
    assert widths == [2, 4, 8, 16, 16], "doubling, up to eight times the width"
    assert [skip.shape[-1] for skip in features] == [1, 2, 4, 8, 16, 16], "the next skip comes first"


@pytest.mark.parametrize("name", ["input_len", "target_len", "width", "levels"])
def test_sizes_below_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} has to be at least 1, got 0"):
        UNet(**{name: 0})


def test_config_makes_the_same_network_again() -> None:
    net = UNet(3, 2, width=5, levels=2)
    again = UNet(**net.config)
    assert {name: p.shape for name, p in again.named_parameters()} == {n: p.shape for n, p in net.named_parameters()}

import re
from typing import Any

import pytest
import torch
from torch import nn

import metaprior as mp
from metaprior.models.unet import FIRST_RAW_SCALE, BayesianUNet, UNet


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


# --- what is known, and how sure --------------------------------------------------------------------------------------


def silent(net: UNet) -> UNet:
    """It says nothing: its last layer is zero."""
    nn.init.zeros_(net.output.change.weight)
    nn.init.zeros_(net.output.change.bias)
    return net


@pytest.mark.parametrize("known", [0, 1, 4])
def test_known_channels_come_behind_the_frames_and_the_last_frame_stays_the_last(known: int) -> None:
    net = silent(UNet(3, 2, width=2, levels=2, known=known))
    frames = torch.randn(2, 3 + known, 8, 9)
    assert torch.equal(net(frames), frames[:, 2:3].expand(-1, 2, -1, -1))


def test_what_is_known_is_used() -> None:
    net = UNet(2, 1, width=2, levels=2, known=1)
    frames = torch.randn(1, 3, 8, 8)
    changed = frames.clone()
    changed[:, 2] += 1.0
    assert not torch.allclose(net(frames), net(changed))


def test_scales_are_as_many_outputs_again_and_start_nearly_the_same_everywhere() -> None:
    torch.manual_seed(0)
    net = UNet(2, 3, width=4, levels=2, scales=True)
    outputs = net(torch.randn(4, 2, 8, 8)).detach()
    assert outputs.shape == (4, 6, 8, 8)
    assert float((outputs[:, 3:] - FIRST_RAW_SCALE).abs().max()) < 0.5
    frames = torch.randn(2, 2, 8, 8)
    quiet = silent(net)(frames)
    assert torch.equal(quiet[:, :3], frames[:, 1:2].expand(-1, 3, -1, -1))
    assert not quiet[:, 3:].any(), "no last frame is added to scales"


# --- which parameters are random --------------------------------------------------------------------------------------


def random_names(random: str, levels: int = 3) -> tuple[set[str], BayesianUNet]:
    net = BayesianUNet(2, 2, width=2, levels=levels, random=random)
    return {name for name, _ in net.named_parameters() if re.fullmatch(net.stochastic, name)}, net


def names_under(net: nn.Module, *parts: str) -> set[str]:
    return {name for name, _ in net.named_parameters() if name.split(".")[0] in parts}


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_presets_name_what_they_say(levels: int) -> None:
    found, net = random_names("all", levels)
    assert found == dict(net.named_parameters()).keys()
    decoders = [f"decoder{number}" for number in range(1, levels + 1)]
    assert random_names("decoder", levels)[0] == names_under(net, *decoders, "output")
    assert random_names("head", levels)[0] == names_under(net, decoders[-1], "output")
    assert random_names("output", levels)[0] == {"output.change.weight", "output.change.bias"}
    norms = [name for name, part in net.named_modules() if isinstance(part, nn.GroupNorm)]
    assert random_names("norms", levels)[0] == {f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")}


def test_the_last_of_ten_decoders_is_not_the_first() -> None:
    pattern = BayesianUNet(width=1, levels=10, random="head").stochastic
    assert re.fullmatch(pattern, "decoder10.block.0.weight")
    assert not re.fullmatch(pattern, "decoder1.block.0.weight")


def test_any_pattern_will_do() -> None:
    found, net = random_names(r"(stem|output)\..*")
    assert found == names_under(net, "stem", "output")
    with pytest.raises(ValueError, match="stochastic='heads' matches none of the module's learnable parameters"):
        mp.BayesianNetwork(BayesianUNet(width=1, levels=1, random="heads"))


def test_methods_take_what_is_random_from_the_module_unless_told_otherwise() -> None:
    net = BayesianUNet(2, 2, width=1, levels=1, random="norms")

    def of_learner(**changes: Any) -> tuple[str, ...]:
        return mp.MetaLearner(net, mp.HeteroscedasticGaussian(), **changes, standardize=False).network.layout.names

    expected = {name for name, _ in net.named_parameters() if re.fullmatch(net.stochastic, name)}
    assert set(of_learner()) == expected
    assert of_learner(stochastic=r"output\..*") == ("output.change.weight", "output.change.bias")
    assert mp.BayesByBackprop(net, mp.HeteroscedasticGaussian()).network.stochastic == net.stochastic
    assert mp.BayesianNetwork(UNet(2, 2, width=1, levels=1)).stochastic == ".*"

import pytest
import torch

from metaprior.scaling import TargetScale


@pytest.mark.parametrize("shape", [(50,), (50, 2), (50, 2, 3, 3)])
def test_standardised_targets_have_mean_zero_and_std_one_per_channel(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    channels = torch.tensor([1.0, 100.0]).reshape(2, *[1] * (len(shape) - 2)) if len(shape) > 1 else torch.tensor(9.0)
    targets = channels * (5 + torch.randn(shape))
    scale = TargetScale.standardising(targets)
    internal = scale.to_internal(targets)
    axes = [0, *range(2, len(shape))]
    torch.testing.assert_close(internal.mean(axes), torch.zeros(shape[1:2]), atol=1e-5, rtol=0)
    torch.testing.assert_close(internal.std(axes, correction=0), torch.ones(shape[1:2]), atol=1e-5, rtol=0)
    torch.testing.assert_close(scale.loc + scale.scale * internal, targets)


def test_a_constant_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="constant"):
        TargetScale.standardising(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))

import builtins
import math
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.solar.optical_flow import optical_flow


def drifting(velocity: tuple[float, float], *, size: int = 32, frames: int = 8) -> Tensor:
    """A smooth field that moves by velocity (down, right) pixels a frame: (1, frames, size, size)."""
    down, right = velocity
    y, x = torch.meshgrid(torch.arange(size).double(), torch.arange(size).double(), indexing="ij")
    return torch.stack(
        [
            torch.sin(2 * math.pi * (x - right * t) / 16 + 0.3) + torch.cos(2 * math.pi * (y - down * t) / 14)
            for t in range(frames)
        ]
    )[None]


@pytest.mark.parametrize("velocity", [(1.0, 0.0), (0.0, -1.0), (-0.5, 1.5)])
def test_optical_flow_carries_on_a_translation(velocity: tuple[float, float]) -> None:
    """Exact but for interpolation, away from the borders (the motion there, and what comes in, have not been seen)."""
    frames = drifting(velocity)
    forecast, without_motion = optical_flow(frames[:, :4], 4)
    inner = slice(8, -8)
    error = (forecast - frames[:, 4:])[..., inner, inner].abs()
    still = (frames[:, 3:4] - frames[:, 4:])[..., inner, inner].abs()
    assert without_motion == 0
    assert float(error.max()) < 0.15  # of values between -2 and 2
    assert float(error.mean()) < 0.06 * float(still.mean())


def test_optical_flow_holds_the_last_value_where_something_unseen_comes_in() -> None:
    frames = drifting((0.0, 2.0))  # to the right: after 3 steps the first 4 columns have certainly not been seen
    forecast = optical_flow(frames[:, :4], 4).frames
    torch.testing.assert_close(forecast[0, 3, :, :4], frames[0, 3, :, :4])


def test_windows_without_structure_are_held_and_counted() -> None:
    frames = torch.cat([drifting((0.0, 1.0))[:, :4], torch.full((2, 4, 32, 32), 0.3)]).float()
    forecast, without_motion = optical_flow(frames, 2)
    assert without_motion == 2
    assert forecast.dtype == torch.float32
    torch.testing.assert_close(forecast[1:], torch.full((2, 2, 32, 32), 0.3))


def test_optical_flow_does_not_depend_on_the_other_windows() -> None:
    frames = torch.cat([drifting((0.0, 1.0)), drifting((1.0, 0.0))])[:, :4]
    both = optical_flow(frames, 2).frames
    torch.testing.assert_close(optical_flow(frames[1:], 2).frames, both[1:], rtol=0, atol=0)


def test_optical_flow_prints_nothing(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pysteps"]:
        monkeypatch.delitem(sys.modules, name)  # it prints when it is imported
    optical_flow(drifting((0.0, 1.0))[:, :2], 1)
    assert capfd.readouterr() == ("", "")


def test_without_pysteps_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("pysteps"):
            raise ModuleNotFoundError("No module named 'pysteps'", name="pysteps")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'metaprior\[flow\]'"):
        optical_flow(torch.zeros(1, 2, 8, 8), 1)


@pytest.mark.parametrize("shape", [(1, 1, 32, 32), (1, 4, 7, 32)])
def test_windows_without_room_for_motion_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 2 frames of at least 8 pixels a side"):
        optical_flow(torch.zeros(shape), 1)

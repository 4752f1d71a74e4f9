"""The lane finds what is planted: operands on two devices, copies that nobody asked for, other numbers than the CPU."""

import pytest
import torch

from tests.devices.lane import Outcome, checked, outcomes

PLANTED = (
    "planted mix",
    "planted mix in a backward pass",
    "planted copies",
    "planted .numpy()",
    "planted other numbers",
    "a number of the CPU among operands",
    "planted failure",
)


def planted(name: str) -> Outcome:
    return outcomes(PLANTED)[name]


def test_operands_on_two_devices_are_found_with_their_place() -> None:
    (found,) = planted("planted mix").of("mix")
    assert "aten.add.Tensor" in found
    assert "planted_mix: return torch.ones(3, device=device) + torch.ones(3)" in found


def test_operands_on_two_devices_are_found_in_a_backward_pass() -> None:
    (found,) = planted("planted mix in a backward pass").of("mix")
    assert "backward: return grad * torch.full((3,), 2.0)" in found


def test_copies_and_what_makes_the_cpu_wait_are_found() -> None:
    outcome = planted("planted copies")
    found = [(event["kind"], event["operation"]) for event in outcome.events]
    assert found == [
        ("to the CPU", "aten._local_scalar_dense.default"),
        ("to the CPU", "aten._to_copy.default"),
        ("to the device", "aten._to_copy.default"),
        ("wait", "aten.index.Tensor"),
        ("to the device", "aten.index.Tensor"),
    ]
    assert not outcome.of("mix")


def test_numpy_of_a_tensor_of_the_device_fails() -> None:
    assert ".numpy() is not supported" in planted("planted .numpy()").error


def test_other_numbers_than_those_of_the_cpu_are_found() -> None:
    assert planted("planted other numbers").differences == {"": 1.0}


def test_a_number_of_the_cpu_among_operands_is_no_mix() -> None:
    assert not planted("a number of the CPU among operands").events


def test_a_scenario_that_fails_is_told_from_those_after_it() -> None:
    assert "ZeroDivisionError" in planted("planted failure").error
    assert not planted("planted mix").error


def test_nothing_of_the_device_is_left_in_this_process() -> None:
    planted("planted mix")
    assert not hasattr(torch, "mirror")


def test_a_scenario_that_does_not_run_is_no_success() -> None:
    with pytest.raises(AssertionError, match="KeyError"):
        checked(("no such scenario",), "no such scenario", 1.0)

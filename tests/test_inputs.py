from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from metaprior import checks, inputs
from metaprior.errors import NotFinite

A, B = torch.arange(6.0).reshape(3, 2), torch.arange(3)
ALL: list[Any] = [A, (A, B), {"a": A, "b": B}]


def same(one: Any, other: Any) -> bool:
    pairs = zip(inputs.parts_of(one), inputs.parts_of(other), strict=True)
    return type(one) is type(other) and all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("x", ALL)
def test_parts_and_back(x: Any) -> None:
    assert same(inputs.rebuilt(x, inputs.parts_of(x)), x)
    assert same(inputs.rebuilt(inputs.axes_of(x), inputs.parts_of(x)), x)
    assert same(inputs.map_parts(lambda part: part, x), x)
    assert inputs.size_of(x) == 3


@pytest.mark.parametrize("x", ALL)
def test_rows_and_back(x: Any) -> None:
    assert same(inputs.concatenate(inputs.split(x, 2)), x)
    assert same(inputs.concatenate(inputs.split(x, [0, 2, 1])), x)
    assert same(inputs.rows_of(inputs.stack([x, x]), 1), x)
    assert same(inputs.rows_of(x, slice(1)), inputs.split(x, 1)[0])
    assert same(inputs.concatenate([inputs.rows_of(x, torch.tensor([number])) for number in range(3)]), x)


def test_dictionaries_are_joined_by_name() -> None:
    found = inputs.concatenate([{"a": A, "b": B}, {"b": B, "a": A}])
    assert torch.equal(found["a"], torch.cat([A, A]))


def test_names_of_parts() -> None:
    assert list(inputs.named_parts(A)) == ["x"]
    assert list(inputs.named_parts((A, B), "support x")) == ["support x[0]", "support x[1]"]
    assert list(inputs.named_parts({"sky": A})) == ['x["sky"]']


def test_a_module_gets_a_tuple_as_arguments_and_a_dictionary_by_name() -> None:
    class Difference(nn.Module):
        def forward(self, sky: Tensor, wind: Tensor) -> Tensor:
            return sky - wind

    assert torch.equal(inputs.call(Difference(), (A, 2 * A)), -A)
    assert torch.equal(inputs.call(Difference(), {"wind": 2 * A, "sky": A}), -A)
    assert torch.equal(inputs.call(nn.Identity(), A), A)


def test_a_copy_shares_nothing() -> None:
    copied = inputs.copied((A, B))
    copied[0].zero_()
    assert A.any()


# --- the gate ---------------------------------------------------------------------------------------------------------


def checked(x: Any) -> Any:
    return checks.inputs(x, dtype=torch.float64, device=torch.device("cpu"))


def test_parts_of_any_kind_become_tensors_of_the_networks_type() -> None:
    found = checked({"a": A.numpy(), "b": B, "frame": pd.DataFrame({"u": [1.0, 2.0, 3.0]})})
    assert {name: part.dtype for name, part in found.items()} == {
        "a": torch.float64,
        "b": torch.int64,  # for an embedding
        "frame": torch.float64,
    }
    assert isinstance(checked((A, np.zeros(3))), tuple)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ((), ValueError, "x must have at least one part, got an empty tuple"),
        ({}, ValueError, "x must have at least one part, got an empty dict"),
        ([A, B], TypeError, r"got a list of 2. Try tuple\(...\) for the 2 arguments"),
        ({0: A}, TypeError, r"names of forward's arguments as keys, got \[0\]"),
        (((A, B), A), TypeError, r"x\[0\] must be a torch tensor, a NumPy array or a data frame, got tuple"),
        ({"sky": A, "wind": B[:2]}, ValueError, r'x\["wind"\] has 2 observations and x\["sky"\] has 3'),
        ((A, B[:2]), ValueError, r"x\[1\] has 2 observations and x\[0\] has 3"),
        ({"sky": A, "wind": A / 0}, NotFinite, r'x\["wind"\] has 6 NaN or infinite values'),
        ((A, A.log()), NotFinite, r"x\[1\] has 1 NaN or infinite values"),
        (
            (A, np.array(["a"] * 3)),
            TypeError,
            r"x\[1\] must hold numbers, got text such as 'a'. Try pandas.get_dummies",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_part(x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        checked(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (A, r"a dictionary as in fit \(x\[\"a\"\] with 2 axes, x\[\"b\"\] with 1 axes\), got one tensor"),
        ((A, B), "got a tuple"),
        ({"a": A}, r"got a dictionary \(x\[\"a\"\] with 2 axes\)"),
        ({"a": A, "c": B}, r"got a dictionary .*x\[\"c\"\]"),
        ({"a": A, "b": A}, r"x\[\"b\"\] with 2 axes\)$"),
    ],
)
def test_other_inputs_than_in_fit_are_refused(x: Any, message: str) -> None:
    expected = inputs.axes_of({"a": A, "b": B})
    checks.refuse_other_axes({"b": B, "a": A}, expected)  # in any order
    with pytest.raises(ValueError, match=message):
        checks.refuse_other_axes(x, expected)


def test_the_part_with_a_large_scale_is_named() -> None:
    with pytest.warns(UserWarning, match=r'inputs x\["b"\] have a root mean square of 1e\+03'):
        checks.warn_of_scale({"a": A, "b": torch.full((3, 1), 1e3)})

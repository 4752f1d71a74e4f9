"""Fitting, adapting, forecasts, scores and files of every method on another device give what they give on the CPU."""

import pytest

from tests.devices.lane import checked

ADAPTATIONS = (
    "Descent",
    "Descent, fixed noise",
    "Descent, network gives the noise",
    "Descent, classes",
    "ClosedForm",
    "ClosedForm, fixed noise",
    "ClosedForm, classes",
    "Context",
    "Context, classes",
    "Context and ClosedForm",
    "Context and Descent",
)
NAMES = (
    *(f"MetaLearner with {name}" for name in ADAPTATIONS),
    "adaptations of images",
    "BayesByBackprop",
    "HierarchicalVI",
    "HierarchicalVI in closed form, hmc",
    "HierarchicalVI in closed form, variational",
)


@pytest.mark.parametrize("name", NAMES)
def test_methods(name: str) -> None:
    checked(NAMES, name, 1e-10)

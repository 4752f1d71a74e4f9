"""Fitting, adapting, forecasts, scores and files of every method on another device give what they give on the CPU."""

import pytest

from tests.devices.lane import checked

NAMES = (
    "MetaLearner with Descent, fixed noise",
    "MetaLearner with ClosedForm",
    "MetaLearner with Context",
    "BayesByBackprop",
    "several inputs",
    "HierarchicalVI",
    "HierarchicalVI in closed form, hmc",
)
SLOW = (
    "MetaLearner with Descent",
    "MetaLearner with Descent, network gives the noise",
    "MetaLearner with Descent, classes",
    "MetaLearner with ClosedForm, fixed noise",
    "MetaLearner with ClosedForm, classes",
    "MetaLearner with Context, classes",
    "MetaLearner with Context and ClosedForm",
    "MetaLearner with Context and Descent",
    "adaptations of images",
    "HierarchicalVI in closed form, variational",
)


@pytest.mark.parametrize("name", NAMES)
def test_methods(name: str) -> None:
    checked(NAMES, name, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_of_the_methods(name: str) -> None:
    checked(SLOW, name, 1e-10)

import math

import torch

from benchmarks import gradients
from metaprior.weights import WeightDistribution


def test_the_difference_is_the_largest_over_the_parts() -> None:
    ones, plain = torch.ones(4), {"b": torch.ones(2)}
    reference = WeightDistribution(ones, 100 * ones, plain)
    moved = WeightDistribution(ones, 100 * ones, {"b": torch.tensor([1.0, 1.1])})
    assert math.isclose(gradients.relative_difference(moved, reference), 0.1 / 2**0.5, rel_tol=1e-5)


def test_the_problems_cover_what_they_promise() -> None:
    inner, objectives = [case.inner for case in gradients.CASES], [case.objective for case in gradients.CASES]
    assert {loop.learn_lr for loop in inner} == {"no", "one", "per_tensor"}
    assert {loop.samples for loop in inner} == {1, 3} == {objective.samples for objective in objectives}
    assert any(loop.momentum for loop in inner)
    assert {type(objective).__name__ for objective in objectives} == {"QueryLoss", "AmortizedELBO"}
    trunks = [case.build(torch.float64)[0].trunk_stages for case in gradients.CASES]
    assert any(trunks)

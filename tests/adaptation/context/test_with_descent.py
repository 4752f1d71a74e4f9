"""Context and descent: the exact gradient of everything, by any engine, stacked or one by one."""

from typing import Any

import pytest
import torch

import metaprior as mp
from metaprior.adaptation.context.with_descent import ContextDescentModel
from metaprior.adaptation.descent import DescentModel
from metaprior.metagrad import keeping, mixed, unrolled
from metaprior.metagrad.problem import Engine
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from tests.adaptation.context.small import check_gradient, double_model, moved, some_tasks

SIZE = 4
DESCENT = mp.Descent(steps=3, lr=0.05, learn_lr="per_tensor", samples=2, momentum=0.3)


def descent_model(stochastic: str = ".*", **binding: Any) -> Any:
    return double_model(mp.Context(SIZE) + DESCENT, stochastic=stochastic, **binding)


def support_sizes(*sizes: int) -> list[Task]:
    return some_tasks([(size, 3) for size in sizes])


def with_engine(model: ContextDescentModel, engine: Engine, *, stacked: bool = False) -> ContextDescentModel:
    return ContextDescentModel(model._conditioning, DescentModel(model.problem, engine, stacked))


@pytest.mark.parametrize(
    ("stochastic", "binding"),
    [(".*", {}), (r"layers\.4\..*", {}), (".*", {"objective": "abml", "num_tasks": 3})],
)
def test_the_gradient_is_that_of_finite_differences(stochastic: str, binding: dict[str, Any]) -> None:
    model = descent_model(stochastic, **binding)
    check_gradient(model, moved(model, 0.1), support_sizes(1, 2, 4), rel=1e-5)


def test_engines_agree_stacked_or_not() -> None:
    model = descent_model()
    theta, tasks = moved(model, 0.1), support_sizes(3, 3, 3)
    ways = [
        with_engine(model, unrolled),
        with_engine(model, mixed),
        with_engine(model, keeping(2)),
        with_engine(model, keeping(10), stacked=True),
    ]
    expected, *others = (way.sums(theta, tasks, Noise(2)) for way in ways)
    assert expected.grads is not None
    for other in others:
        assert other.grads is not None
        assert other.terms is not None
        assert expected.terms is not None
        torch.testing.assert_close(other.terms.total, expected.terms.total)
        for name, grad in expected.grads.named().items():
            torch.testing.assert_close(other.grads.named()[name], grad, msg=name)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_damaged_task_is_left_out_and_named(stacked: bool) -> None:
    model = with_engine(descent_model(), keeping(10), stacked=stacked)
    theta, tasks = moved(model, 0.1), support_sizes(3, 3, 3)
    bad = tasks[2]._replace(support=Examples(tasks[2].support.x + torch.inf, tasks[2].support.y))
    sums, rest = (model.sums(theta, own, Noise()) for own in ([*tasks[:2], bad], tasks[:2]))
    assert [failure.task for failure in sums.failures] == ["task 2"]
    assert sums.grads is not None
    assert rest.grads is not None
    for one, two in zip(sums.grads.tensors(), rest.grads.tensors(), strict=True):
        torch.testing.assert_close(one, two)


def test_no_examples_are_the_prior_and_train() -> None:
    model = descent_model()
    theta, tasks = moved(model, 0.1), support_sizes(0, 2)
    sums = model.sums(theta, tasks, Noise())
    assert sums.weight == 2
    assert not sums.failures
    x = tasks[1].query.x
    empty, prior = model.adapt(theta, tasks[0].support, Noise()), model.prior(theta)
    assert torch.equal(empty.predict(x).mean, prior.predict(x).mean)  # type: ignore[union-attr]


def test_neither_the_context_nor_its_layers_move_in_the_inner_loop() -> None:
    model = descent_model(r"layers\.4\..*")
    assert not [name for name in model.problem.adapted_names if name.startswith("context")]
    assert "layers.0.weight" in model.problem.adapted_names
    assert not [name for name in model.network.layout.names if name.startswith("context")]


def test_sums_join_in_any_order() -> None:
    assert mp.Context(3) + DESCENT == DESCENT + mp.Context(3) == mp.Combination(mp.Context(3), DESCENT)
    with pytest.raises(TypeError, match="another way of adapting"):
        mp.Context() + mp.Context()

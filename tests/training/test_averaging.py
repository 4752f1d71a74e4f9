"""The average of the warm start's iterates, beside the sums that define it."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from metaprior.tasks.task import Task
from metaprior.training.optimizer import Average
from metaprior.training.settings import MetaTraining
from metaprior.weights import WeightDistribution
from tests.training.lines import copied, damaged, line, lines, make_problem, make_trainer


def iterates(count: int) -> list[WeightDistribution]:
    generator = torch.Generator().manual_seed(0)

    def normal(size: int) -> Tensor:
        return torch.randn(size, dtype=torch.float64, generator=generator)

    rho = torch.full((3,), -torch.inf, dtype=torch.float64)
    return [WeightDistribution(normal(3), rho, {"bias": normal(2)}) for _ in range(count)]


def averaged(thetas: list[WeightDistribution], share: float) -> WeightDistribution:
    average = Average(thetas[0], share)
    for count, theta in enumerate(thetas, start=1):
        average.add(theta, count)
    return average.theta


def test_a_share_of_one_is_the_mean_of_all() -> None:
    thetas = iterates(9)
    found = averaged(thetas, 1.0)
    torch.testing.assert_close(found.mu, torch.stack([theta.mu for theta in thetas]).mean(0))
    torch.testing.assert_close(found.plain["bias"], torch.stack([theta.plain["bias"] for theta in thetas]).mean(0))


@pytest.mark.parametrize("share", [0.5, 0.25, 0.1])
def test_weights_grow_as_a_power_of_the_step(share: float) -> None:
    """Of Shamir & Zhang: with 1 / share = n + 1, iterate i has the weight (i)(i + 1)...(i + n - 1), normalised."""
    thetas, n = iterates(30), round(1 / share) - 1
    rising = torch.tensor([float(torch.arange(i, i + n).prod()) for i in range(1, 31)], dtype=torch.float64)
    weights = rising / rising.sum()
    expected = (weights[:, None] * torch.stack([theta.mu for theta in thetas])).sum(0)
    torch.testing.assert_close(averaged(thetas, share).mu, expected)


def test_what_is_averaged_stays_as_it_was() -> None:
    thetas = iterates(4)
    before = [theta.detached() for theta in thetas]
    assert averaged(thetas, 0.3).rho.isinf().all(), "scales of a point prior"
    for one, other in zip(thetas, before, strict=True):
        assert torch.equal(one.mu, other.mu)


def test_the_warm_start_ends_with_the_average_of_its_own_iterates() -> None:
    settings = {"epochs": 1, "tasks_per_epoch": 8, "warm_start": 5, "warm_start_average": 0.5}
    trainer = make_trainer(lines(7), **settings)
    average = Average(trainer.theta, 0.5)
    for count in range(1, 5):
        trainer.step()
        average.add(trainer.theta, count)
    twin = make_trainer(lines(7), **settings)
    twin.settings = replace(twin.settings, warm_start=6)  # so that the fifth iterate can be seen
    for _ in range(5):
        twin.step()
    average.add(twin.theta, 5)
    trainer.step()
    for name, value in trainer.theta.named().items():
        torch.testing.assert_close(value.detach(), average.theta.named()[name], rtol=1e-14, atol=0)
    assert not torch.equal(trainer.theta.mu, twin.theta.mu)
    assert "average/mu" not in trainer.tensors()


def test_it_lies_nearer_to_the_minimum_than_the_last_iterate() -> None:
    """Straight lines, a learning rate far too long: iterates wander, their average does not."""
    fitted = {}
    for share in (0.0, 0.2):
        trainer = make_trainer(
            lines(64, spread=0.0, noise=0.5),
            make_problem(),
            epochs=0,
            meta_batch=1,
            warm_start=400,
            warm_start_lr=0.05,
            warm_start_average=share or 1e-9,  # 1e-9: the last iterate, with the same learning rates
        )
        while not trainer.done:
            trainer.step()
        x = torch.linspace(-1, 1, 21, dtype=torch.float64)[:, None]
        theta = trainer.theta.detached()
        outputs = trainer.model.network(theta.mu, theta.plain, x)
        fitted[share] = float((outputs - x).square().mean())
    assert fitted[0.2] < 0.5 * fitted[0.0]


class BadFrom:
    """Lines whose numbers are not finite from an index on."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __getitem__(self, index: int) -> Task:
        return damaged(line(index)) if index >= self.first else line(index)


def test_a_step_without_a_finite_task_is_no_iterate_and_yet_ends_the_warm_start() -> None:
    trainer = make_trainer(BadFrom(8), epochs=0, meta_batch=4, warm_start=3, warm_start_average=1.0)
    trainer.step()
    first = copied(trainer)
    trainer.step()
    second = copied(trainer)
    assert trainer.step().tasks == 0
    assert trainer.done
    torch.testing.assert_close(copied(trainer)["mu"], (first["mu"] + second["mu"]) / 2)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_is_between_nothing_and_all(share: float) -> None:
    with pytest.raises(ValueError, match="warm_start_average must lie between 0 and 1"):
        MetaTraining(warm_start_average=share)

import math

import pytest

from metaprior.adaptation.descent import DescentModel
from metaprior.metagrad import AmortizedELBO, Descent, QueryLoss
from metaprior.training.settings import MetaTraining, kl_share, learning_rate_factor, phase_at
from tests.training.lines import make_problem

SETTINGS = MetaTraining(epochs=4, tasks_per_epoch=25, meta_batch=1, warm_start=20, scales_first=0.1)


@pytest.mark.parametrize(
    ("step", "name", "start", "stop"),
    [
        (0, "warm start", 0, 20),
        (19, "warm start", 0, 20),
        (20, "scales", 20, 30),
        (29, "scales", 20, 30),
        (30, "everything", 30, 120),
        (119, "everything", 30, 120),
    ],
)
def test_phases_follow_each_other(step: int, name: str, start: int, stop: int) -> None:
    phase = phase_at(SETTINGS, step)
    assert (phase.name, phase.start, phase.stop) == (name, start, stop)
    assert phase.pooled == (name == "warm start")
    assert phase.moves_means == (name != "scales")


def test_phases_of_no_length_are_left_out() -> None:
    settings = MetaTraining(epochs=1, tasks_per_epoch=10, meta_batch=1, warm_start=0, scales_first=0.0)
    assert phase_at(settings, 0).name == "everything"


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        (0, 0.1),  # the warm start has a cosine of its own, of 20 steps
        (10, 0.5),
        (19, 0.5 * (1 + math.cos(0.95 * math.pi))),
        (20, 0.1),  # then the meta-steps rise again,
        (21, 0.2 * 0.5 * (1 + math.cos(0.01 * math.pi))),
        (29, 1.0 * 0.5 * (1 + math.cos(0.09 * math.pi))),
        (70, 0.5),  # half way through 100 meta-steps
        (119, 0.5 * (1 + math.cos(0.99 * math.pi))),
    ],
)
def test_learning_rates_rise_and_fall_along_a_cosine(step: int, factor: float) -> None:
    since = 0 if step < SETTINGS.warm_start else SETTINGS.warm_start
    assert learning_rate_factor(SETTINGS, step, since) == pytest.approx(factor, rel=1e-12)
    assert learning_rate_factor(SETTINGS, step, step) == pytest.approx(factor / min(1, (step - since + 1) / 10) / 10)


@pytest.mark.parametrize("schedule", ["constant", "plateau"])
def test_other_schedules_only_rise(schedule: str) -> None:
    settings = MetaTraining(epochs=4, tasks_per_epoch=25, meta_batch=1, warm_start=20, schedule=schedule)
    factors = [learning_rate_factor(settings, step, 0 if step < 20 else 20) for step in (10, 20, 24, 29, 70, 119)]
    assert factors == pytest.approx([0.5, 0.1, 0.5, 1.0, 1.0, 1.0])


def test_the_learning_rate_of_an_averaged_warm_start_only_rises() -> None:
    settings = MetaTraining(epochs=4, tasks_per_epoch=25, meta_batch=1, warm_start=20, warm_start_average=0.1)
    factors = [learning_rate_factor(settings, step, 0 if step < 20 else 20) for step in (0, 9, 10, 19, 70, 119)]
    falling = [learning_rate_factor(SETTINGS, step, 20) for step in (70, 119)]
    assert factors == pytest.approx([0.1, 1.0, 1.0, 1.0, *falling])


@pytest.mark.parametrize(("step", "share"), [(20, 1 / 26), (30, 11 / 26), (44, 25 / 26), (45, 1.0), (119, 1.0)])
def test_the_kl_rises_inside_and_outside(step: int, share: float) -> None:
    settings = MetaTraining(epochs=4, tasks_per_epoch=25, meta_batch=1, warm_start=20, kl_warmup=0.25)
    problem = make_problem(Descent(kl_weight=0.8), AmortizedELBO(7, kl_weight=0.5))
    now = DescentModel(problem).annealed(kl_share(settings, step)).problem
    assert now.inner.kl_weight == pytest.approx(0.8 * share, rel=1e-12)
    assert isinstance(now.objective, AmortizedELBO)
    assert now.objective.kl_weight == pytest.approx(0.5 * share, rel=1e-12)
    assert (now.objective.num_tasks, now.inner.steps) == (7, problem.inner.steps)


def test_objectives_without_a_kl_keep_to_the_inner_one() -> None:
    settings = MetaTraining(epochs=1, tasks_per_epoch=9, meta_batch=1, kl_warmup=1.0)
    model = DescentModel(make_problem(Descent(kl_weight=0.8), QueryLoss()))
    now = model.annealed(kl_share(settings, 4)).problem
    assert now.inner.kl_weight == pytest.approx(0.4)
    assert now.objective == QueryLoss()


def test_without_annealing_the_kl_keeps_its_weight() -> None:
    assert kl_share(SETTINGS, 20) == 1

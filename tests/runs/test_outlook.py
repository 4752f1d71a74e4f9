from pathlib import Path
from typing import Any

import pytest

from metaprior.runs.outlook import StepTimes, intention, next_commands, time_left
from metaprior.runs.program import epoch_text
from metaprior.runs.reading import read_config
from metaprior.training.settings import MetaTraining

SETTINGS = MetaTraining(epochs=3, tasks_per_epoch=400, meta_batch=4, warm_start=1000)


def test_what_a_training_will_do_is_one_line() -> None:
    text = intention(read_config("frames"), Path("runs/frames"), 0)
    assert text == (
        "training bayesian_unet on frames: a warm start of 1,000 steps, then 4 epochs of 10 steps on 4 tasks, then "
        "scores on 20 unseen tasks; results go to runs/frames"
    )
    short = ["meta.epochs=1", "meta.tasks_per_epoch=1", "meta.meta_batch=1", "evaluate.tasks=1"]
    text = intention(read_config("sinusoid", short), Path("r"), 0)
    assert text.endswith("1 epoch of 1 step on 1 task, then scores on 1 unseen task; results go to r")
    assert intention(read_config("sinusoid"), Path("r"), 7).endswith("(7 of 1,000 steps are done)")


def told(times: StepTimes, steps: range, seconds: float) -> dict[int, str]:
    found = {step: times.after_step(step, seconds) for step in steps}
    return {step: text for step, text in found.items() if text}


def test_the_time_of_each_phase_is_told_once_when_a_few_steps_are_timed() -> None:
    times = StepTimes(SETTINGS)
    assert times.after_step(1, 100.0) is None  # also searches for a step size
    assert told(times, range(2, 1001), 0.5) == {5: "about 8 minutes left for the warm start"}
    later = told(times, range(1001, 1301), 1.0)
    assert later == {1004: "about 5 minutes left for the epochs, without validation and final scores"}


def test_fast_steps_are_timed_for_longer_and_short_trainings_are_not_announced() -> None:
    assert list(told(StepTimes(SETTINGS), range(1, 1001), 0.01)) == []
    assert list(told(StepTimes(SETTINGS), range(1, 1001), 0.04)) == [51]


def line(epoch: int, seconds: float) -> dict[str, Any]:
    return {"epoch": epoch, "seconds": seconds}


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([line(0, 500.0)], None),  # the warm start says nothing about epochs
        ([line(0, 500.0), line(1, 50.0), line(2, 70.0)], "about 8 minutes left"),
        ([line(1, 0.5)], None),
        ([line(9, 50.0), line(10, 50.0)], None),
    ],
)
def test_epochs_tell_how_long_the_others_take(lines: list[dict[str, Any]], text: str | None) -> None:
    assert time_left(lines, 10) == text


def test_next_commands_are_those_of_the_application_then_evaluate() -> None:
    run = Path("my runs/one")
    evaluate = "metaprior evaluate 'my runs/one'"
    assert next_commands(read_config("sinusoid"), run) == [evaluate]
    assert next_commands(read_config("frames"), run) == ["metaprior report 'my runs/one'", evaluate]
    forecast = "metaprior sites forecast power.csv --prior 'my runs/one' --out one_forecast.csv"
    assert next_commands(read_config("sites"), run) == [forecast, "metaprior report 'my runs/one'", evaluate]


@pytest.mark.parametrize(
    ("measures", "told"),
    [
        (({"nll": 2.0}, {"nll": 1.0}), "validation nll 2 -> 1  skill"),
        (
            ({"nll": -640.2, "nll_per_value": -0.1563}, {"nll": -641.3, "nll_per_value": -0.1566}),
            "validation nll -0.1563 -> -0.1566 per value  skill",
        ),
        ((None, None), "validation nll unknown -> unknown  skill"),
    ],
)
def test_the_nll_of_images_is_told_per_value(measures: tuple[Any, Any], told: str) -> None:
    validation = {"before": measures[0], "after": measures[1], "skill": 0.1, "best": True}
    line: Any = {"epoch": 1, "step": 5, "loss": 3.0, "validation": validation, "bad_tasks": 0, "seconds": 1.0}
    assert told in epoch_text(line, 4, 2.0**30)

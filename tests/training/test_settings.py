from typing import Any

import pytest

from metaprior.training.settings import FIELDS, MetaTraining


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": -1}, "epochs must be an integer of at least 0, got -1"),
        ({"tasks_per_epoch": 0}, "tasks_per_epoch must be an integer of at least 1, got 0"),
        ({"meta_batch": 1.5}, "meta_batch must be an integer of at least 1, got 1.5"),
        ({"most_bad_tasks": 0}, "most_bad_tasks must be an integer"),
        ({"lr": 0.0}, "lr must be a positive number, got 0.0"),
        ({"scale_lr": float("nan")}, "scale_lr must be a positive number, got nan"),
        ({"grad_clip_norm": float("inf")}, "grad_clip_norm must be a positive number, got inf"),
        ({"warm_start_lr": -1.0}, "warm_start_lr must be a positive number"),
        ({"scales_first": 1.1}, "scales_first must lie between 0 and 1, got 1.1"),
        ({"kl_warmup": -0.1}, "kl_warmup must lie between 0 and 1"),
        ({"weight_decay": -1.0}, "weight_decay must be a number of at least 0, got -1.0"),
        ({"schedule": "linear"}, "schedule must be one of cosine, plateau, constant, got 'linear'"),
        (
            {"balance_step_sizes": True, "search_step_size": False},
            "balance_step_sizes needs search_step_size=True",
        ),
    ],
)
def test_impossible_settings_say_what_is_possible(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MetaTraining(**changes)


def test_an_unfinished_meta_batch_is_a_step() -> None:
    settings = MetaTraining(epochs=3, tasks_per_epoch=10, meta_batch=4, warm_start=5)
    assert (settings.steps_per_epoch, settings.meta_steps, settings.steps) == (3, 9, 14)


def test_every_field_can_be_given_by_name() -> None:
    assert set(FIELDS) == set(MetaTraining.__dataclass_fields__)


@pytest.mark.parametrize(
    ("changes", "warm"), [({}, False), ({"warm_start": 1}, True), ({"pretrained": True}, True), ({"epochs": 3}, False)]
)
def test_means_know_something_after_a_warm_start_or_when_they_came_trained(changes: dict[str, Any], warm: bool) -> None:
    assert MetaTraining(**changes).starts_warm is warm

"""What people bring from other libraries: other containers, other layers, other shapes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import metaprior as mp

SHORT = {"epochs": 1, "tasks_per_epoch": 8, "meta_batch": 4, "progress": False}


def tasks(*, scalar: bool = False, of: Callable[[Tensor], Any] = lambda t: t, factor: float = 1.0) -> list[mp.Task]:
    generator = torch.Generator().manual_seed(0)

    def examples() -> mp.Examples:
        x = factor * torch.randn(5, 1, generator=generator)
        y = x.sin() + 0.1 * torch.randn(5, 1, generator=generator)
        return mp.Examples(of(x), of(y[:, 0] if scalar else y))

    return [mp.Task(examples(), examples(), f"task {number}, 50 % cloud") for number in range(8)]


def learner(module: nn.Module | None = None) -> mp.MetaLearner:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)) if module is None else module
    return mp.MetaLearner(
        network, mp.Gaussian(), adaptation=mp.Descent(steps=2, kl_weight=0.01, learn_lr=True), standardize=False
    )


def test_a_fit_warns_of_tasks_that_were_left_out() -> None:
    own = tasks()
    own[3] = own[3]._replace(support=mp.Examples(own[3].support.x, torch.full((5, 1), torch.inf)))
    with pytest.warns(
        UserWarning, match=r"1 of 8 tasks had no finite gradient and were left out .*the first: .*task 3"
    ):
        learner().fit(own, **SHORT)


def test_a_fit_warns_of_inputs_that_are_not_scaled() -> None:
    with pytest.warns(UserWarning, match="root mean square"):
        learner().fit(tasks(factor=1000.0), **SHORT)


class Recurrent(nn.Module):
    """torch.vmap has no rule for it."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.recurrent, self.head = kind(1, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.recurrent(x[:, :, None])[0][:, -1])
        return out


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_are_trained_task_by_task(kind: type[nn.RNNBase]) -> None:
    fitted = learner(Recurrent(kind)).fit(tasks(), **SHORT)
    assert fitted.history_[-1].tasks == 8
    assert fitted.theta_.mu.isfinite().all()


class Attentive(nn.Module):
    """torch's fused attention has no second derivative on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.head = nn.Linear(1, 24), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inputs(x[:, None, None].expand(-1, 1, 3, 1)).chunk(3, -1)
        out: Tensor = self.head(nn.functional.scaled_dot_product_attention(q, k, v)[:, 0, -1])
        return out


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("meta_batch", [1, 4])
def test_fused_attention_is_refused_with_what_helps(meta_batch: int) -> None:
    short = SHORT | {"meta_batch": meta_batch}
    with pytest.raises(RuntimeError, match=r"(?s)lacks a derivative.*SDPBackend.MATH") as caught:
        learner(Attentive()).fit(tasks(), **short)
    assert caught.value.__cause__ is not None
    with sdpa_kernel(SDPBackend.MATH):
        fitted = learner(Attentive()).fit(tasks(), **short)
    assert fitted.history_[-1].tasks == 8


def test_what_is_no_task_is_named() -> None:
    (support, query, _), one = tasks()[0], tasks()[0]
    wrong: list[tuple[Any, str]] = [
        ([(support, query)] * 4, r"metaprior.Task.*got tuple of 2. Try Task\(\*task\)"),
        (one, r"tasks must be a list of tasks .*got a Task. Try \[task\]"),
        ({"one": support}, r"got Examples of 2. Try GroupedTasks.from_examples\("),
        ([mp.Task((support.x, support.y, support.y), query, "mine")] * 4, r"support of mine .*pair \(x, y\).*of 3"),  # type: ignore[arg-type]
    ]
    for given, message in wrong:
        with pytest.raises(TypeError, match=message):
            learner().fit(given, **SHORT)
    fitted = learner().fit(tasks(), **SHORT)
    for given, message in wrong[:3]:
        with pytest.raises(TypeError, match=message):
            fitted.evaluate(given, progress=False)


def test_tasks_by_name_are_a_list_of_tasks_with_these_names() -> None:
    named = {f"station {number}": task for number, task in enumerate(tasks())}
    listed = [task._replace(name=name) for name, task in named.items()]
    by_name, by_index = (learner().fit(own, **SHORT) for own in (named, listed))
    assert torch.equal(by_name.theta_.mu, by_index.theta_.mu)
    scores = by_name.evaluate(named, progress=False)
    assert scores.rows == by_index.evaluate(listed, progress=False).rows
    assert scores.per_task[0]["task"] == "station 0"
    started = learner().start(named)
    optimizer = torch.optim.Adam(started.parameters(), lr=1e-3)
    assert mp.meta_train_one_epoch(started, named, optimizer, progress=False).tasks == 8


def test_what_is_no_support_set_is_named() -> None:
    fitted, support = learner().fit(tasks(), **SHORT), tasks()[0].support
    pair = r"support must be a pair \(x, y\) of inputs and targets, got "
    for given, error, message in (
        (tasks()[0], TypeError, pair),
        (support.x, TypeError, pair),
        (np.zeros((5, 1)), TypeError, pair),
        (([[1.0]], [[1.0]]), TypeError, "support: x must be a torch tensor, a NumPy array or a data frame, got list"),
        ((support.x, support.y + torch.inf), ValueError, "support: y has 5 infinite values"),
    ):
        with pytest.raises(error, match=message):
            fitted.adapt(given)


def test_batch_statistics_without_running_ones_are_not_to_be_frozen() -> None:
    module = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1)).eval()
    with pytest.raises(ValueError, match=r"always \(track_running_stats=False\).*GroupNorm") as caught:
        learner(module).fit(tasks(), **SHORT)
    assert ".eval()" not in str(caught.value)


def test_data_frames_go_in_and_arrays_come_out() -> None:
    torch.manual_seed(0)
    frame = pd.DataFrame(torch.randn(20, 2).numpy(), columns=["wind", "sun"])
    power = pd.Series(frame["wind"] + 1.0, dtype="Float64")
    power[3] = pd.NA
    settings: dict[str, Any] = {"epochs": 2, "progress": False}
    with pytest.warns(UserWarning, match="missing"):
        bnn = mp.BayesByBackprop(mp.MLP(2, 4, 1), mp.Gaussian()).fit(frame, power, **settings)
    with pytest.warns(UserWarning, match="missing"):
        same = mp.BayesByBackprop(bnn.module, mp.Gaussian()).fit(
            frame.to_numpy(), power.to_numpy(float, na_value=np.nan), **settings
        )
    forecast = bnn.predict(frame)
    assert isinstance(forecast.mean, np.ndarray)
    assert forecast.mean.shape == (20,)
    np.testing.assert_array_equal(forecast.mean, same.predict(frame.to_numpy()).mean)
    assert bnn.evaluate(frame[4:], power[4:]).row()["tasks"] == 1


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (
            pd.DataFrame({"kind": ["roof", "park"]}),
            np.ones(2),
            r"x must hold numbers, got text such as 'roof'. Try pandas",
        ),
        (np.ones((2, 1)), np.array(["cat", "dog"]), r"y must hold numbers, got text such as 'cat'. Try numpy.unique"),
    ],
)
def test_text_names_what_makes_numbers_of_it(x: Any, y: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        mp.BayesByBackprop(mp.MLP(1, [4], 1), mp.Gaussian()).fit(x, y)


def test_habits_of_other_packages_are_answered(tmp_path: Path) -> None:
    tasks = mp.GroupedTasks.from_examples({"a": (np.ones((9, 1)), np.arange(9.0))}, k_shot=3, k_query=3)
    learner = mp.MetaLearner(mp.MLP(1, [4], 1), mp.Gaussian(), adaptation=mp.ClosedForm())
    with pytest.raises(TypeError, match=r"validation must be tasks, got the number 0.2. Try training, validation"):
        learner.fit(tasks, validation=0.2)
    learner.fit(tasks, epochs=1, tasks_per_epoch=2, meta_batch=1, progress=False)
    with pytest.raises(TypeError, match=r"steps must be an integer or None, got ndarray. Try adapt\(\(x, y\)\)"):
        learner.adapt(np.ones((2, 1)), np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Try tasks whose k_shot is the one number 5"):
        learner.fit(tasks, shots=(0, 5), progress=False)
    with pytest.raises(ValueError, match=r"network must have random weights.* relative_sigma=0"):
        mp.Problem(mp.BayesianNetwork(mp.MLP(1, [4], 1), "(?!)"), mp.Gaussian())
    learner.save(tmp_path)
    with pytest.warns(UserWarning, match="replaces the prior that was loaded"):
        mp.load(tmp_path).fit(tasks, epochs=1, tasks_per_epoch=2, meta_batch=1, progress=False)

"""Every method gives for two inputs what it gives for their concatenation as one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import metaprior as mp
from metaprior.hierarchy.theta_inference import Variational
from metaprior.inputs import map_parts
from metaprior.methods.own_loop import meta_evaluate, meta_train_one_epoch
from metaprior.tasks.task import Examples, Task
from tests.several_inputs import FORMS, examples, module_for, task

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
forms = pytest.mark.parametrize("form", FORMS)


def assert_same_forecast(found: Any, expected: Any) -> None:
    for name in ("mean", "std", "epistemic"):
        torch.testing.assert_close(torch.as_tensor(getattr(found, name)), getattr(expected, name), **CLOSE)


# --- Bayes by Backprop ------------------------------------------------------------------------------------------------


def bnn(form: str | None, x: Any = None, y: Any = None, **settings: Any) -> mp.BayesByBackprop:
    data = examples(20, 1, form)
    method = mp.BayesByBackprop(module_for(form), mp.Gaussian())
    settings = {"epochs": 4, "batch_size": 8, **settings}
    return method.fit(data.x if x is None else x, data.y if y is None else y, **settings, progress=False)


@forms
@pytest.mark.parametrize("validation", [None, 0.25, "pair"])
def test_bayes_by_backprop(form: str, validation: Any, tmp_path: Path) -> None:
    def held_out(form: str | None) -> Any:
        return tuple(examples(6, 2, form)) if validation == "pair" else validation

    found, expected = bnn(form, validation=held_out(form)), bnn(None, validation=held_out(None))
    new, single = examples(7, 3, form), examples(7, 3)
    assert_same_forecast(found.predict(new.x), expected.predict(single.x))
    nll, other = (own.evaluate(*data).rows[0]["nll"] for own, data in ((found, new), (expected, single)))
    assert nll == pytest.approx(other, rel=1e-9)
    found.save(tmp_path / "fit")
    again = mp.load(tmp_path / "fit", module_for(form))
    assert torch.equal(again.predict(new.x).mean, found.predict(new.x).mean)
    with pytest.raises(ValueError, match="as in fit"):
        again.predict(single.x)


@forms
def test_rows_without_targets_are_dropped_from_every_part(form: str) -> None:
    def fitted(form: str | None) -> mp.BayesByBackprop:
        data = examples(20, 1, form)
        data.y[[0, 7]] = torch.nan
        with pytest.warns(UserWarning, match="2 of 20 targets are missing"):
            return bnn(form, y=data.y)

    assert_same_forecast(fitted(form).predict(examples(5, 3, form).x), fitted(None).predict(examples(5, 3).x))


def streamed(form: str | None, batch_size: int = 8) -> DataLoader[Any]:
    """Batches of the usual data as torch makes them: those of a dictionary are one, those of a tuple a list."""
    x, y = examples(20, 1, form)
    rows = [(map_parts(lambda part, i=i: part[i], x), y[i]) for i in range(20)]
    return DataLoader(rows, batch_size)  # type: ignore[arg-type]


WEIGHTS = torch.arange(20.0, dtype=torch.float64) % 3

WAYS: dict[str, dict[str, Any]] = {
    "members": {"members": 3},
    "members of which each leaves a part out": {"members": 3, "cross_fit": True},
    "weights": {"sample_weight": WEIGHTS},
    "weights, members, held-out data": {
        "sample_weight": WEIGHTS,
        "members": 2,
        "cross_fit": True,
        "validation": 0.25,
    },
}


@forms
@pytest.mark.parametrize("way", WAYS)
def test_other_ways_to_fit(form: str, way: str) -> None:
    def fitted(form: str | None) -> mp.BayesByBackprop:
        settings = dict(WAYS[way])
        data, members = examples(20, 1, form), settings.pop("members", 1)
        method = mp.BayesByBackprop(module_for(form), mp.Gaussian(), members=members)
        return method.fit(*data, epochs=4, batch_size=8, **settings, progress=False)

    found, expected = fitted(form), fitted(None)
    assert_same_forecast(found.predict(examples(7, 3, form).x), expected.predict(examples(7, 3).x))
    assert found.history_[-1].loss == pytest.approx(expected.history_[-1].loss, rel=1e-9)


@forms
@pytest.mark.parametrize("members", [1, 2])
def test_a_loader_of_several_inputs(form: str, members: int) -> None:
    def fitted(form: str | None) -> mp.BayesByBackprop:
        method = mp.BayesByBackprop(module_for(form), mp.Gaussian(), members=members)
        return method.fit(streamed(form), validation=streamed(form, 5), epochs=4, progress=False)

    assert_same_forecast(fitted(form).predict(examples(7, 3, form).x), fitted(None).predict(examples(7, 3).x))


@forms
def test_few_weight_samples_of_several_inputs(form: str) -> None:
    def compressed(form: str | None) -> Any:
        return bnn(form).posterior_.compress(5, *examples(7, 3, form), candidates=40)

    found, expected = compressed(form), compressed(None)
    torch.testing.assert_close(found.phis, expected.phis, **CLOSE)
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)


@forms
def test_an_exported_forecast_of_several_inputs(form: str) -> None:
    posterior = bnn(form).posterior_
    program = posterior.export(None, examples(3, 3, form).x, samples=6).module()
    new = examples(7, 4, form).x
    expected = posterior.predict(new, samples=6)
    for found, own in zip(program(new), (expected.mean, expected.std), strict=True):
        torch.testing.assert_close(found, own, **CLOSE)


def test_arrays_frames_and_tensors_together() -> None:
    x, y = examples(20, 1, "dict")
    expected = bnn("dict").predict(x)
    frame = pd.DataFrame(x["wind"].numpy(), columns=["u", "v"])
    arrays = {"wind": frame, "sky": x["sky"].numpy()}
    found = bnn("dict", arrays, y[:, 0].numpy()).predict(arrays)
    assert isinstance(found.mean, np.ndarray)
    torch.testing.assert_close(torch.from_numpy(found.mean), expected.mean[:, 0], **CLOSE)
    assert isinstance(bnn("dict").predict({"sky": x["sky"], "wind": frame}).mean, Tensor)  # one of them is a tensor


def test_one_batch_at_a_time_gives_the_same_forecast() -> None:
    posterior, x = bnn("dict").posterior_, examples(9, 3, "dict").x
    assert_same_forecast(posterior.predict(x, batch_size=2), posterior.predict(x))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.zeros(4, 5), ValueError, "must be a dictionary as in fit"),
        ({"sky": torch.zeros(4, 3)}, ValueError, "must be a dictionary as in fit"),
        ({"sky": torch.zeros(4, 3), "rain": torch.zeros(4, 2)}, ValueError, "must be a dictionary as in fit"),
        ((torch.zeros(4, 3), torch.zeros(4, 2)), ValueError, "got a tuple"),
        ([torch.zeros(4, 3), torch.zeros(4, 2)], TypeError, "Try tuple"),
        ((), ValueError, "empty tuple"),
        ({"sky": torch.zeros(4, 3), "wind": torch.zeros(3, 2)}, ValueError, r'x\["wind"\] has 3 observations'),
        ({"sky": torch.zeros(4, 3), "wind": torch.zeros(4, 2) / 0}, ValueError, r'x\["wind"\] has 8 NaN'),
        (
            {"sky": torch.zeros(4, 3), "wind": torch.zeros(4, 6)},
            ValueError,
            "cannot take an observation with",
        ),
    ],
)
def test_inputs_that_cannot_be_predicted_for(x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bnn("dict").predict(x)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.zeros(4, 3), TypeError, "missing 1 required positional argument: 'wind'.*positional arguments"),
        ((torch.zeros(4, 3),) * 3, TypeError, "takes 3 positional arguments but 4 were given"),
        ({"sky": torch.zeros(4, 3), "rain": torch.zeros(4, 2)}, TypeError, "unexpected keyword argument 'rain'"),
        ((torch.zeros(4, 3), torch.zeros(4, 7)), ValueError, r"with the parts x\[0\] \(3,\), x\[1\] \(7,\)"),
        ((torch.zeros(3, 3), torch.zeros(3, 2)), ValueError, "x has 3 observations and y has 4"),
    ],
)
def test_inputs_that_cannot_be_fitted(x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bnn("dict", x, torch.arange(4.0))


# --- many tasks -------------------------------------------------------------------------------------------------------

ADAPTATIONS: dict[str, Any] = {
    "Descent": mp.Descent(steps=2, lr=0.05),
    "ClosedForm": mp.ClosedForm(),
    "Context": mp.Context(size=4),
    "Context and ClosedForm": mp.Context(size=4) + mp.ClosedForm(),
    "Context and Descent": mp.Context(size=4) + mp.Descent(steps=2, lr=0.05),
}


def learner(form: str | None, name: str, **settings: Any) -> mp.MetaLearner:
    tasks = [task(number, form) for number in range(6)]
    made = mp.MetaLearner(module_for(form), mp.Gaussian(), adaptation=ADAPTATIONS[name], **settings)
    quick: dict[str, Any] = {"epochs": 2, "tasks_per_epoch": 6, "meta_batch": 3, "search_step_size": False}
    return made.fit(tasks, validation=tasks[:2], shots=(0, 2, 4), warm_start=2, **quick, progress=False)


def scores(own: mp.MetaLearner, new: Task) -> list[float]:
    return [row["nll"] for row in own.evaluate([new], shots=(0, 2, None), progress=False).rows]


@forms
@pytest.mark.parametrize("name", ADAPTATIONS)
def test_meta_learner(form: str, name: str, tmp_path: Path) -> None:
    found, expected = learner(form, name), learner(None, name)
    new, single = task(50, form), task(50)
    forecast = found.adapt(new.support).predict(new.query.x)
    assert_same_forecast(forecast, expected.adapt(single.support).predict(single.query.x))
    assert_same_forecast(found.predict(new.query.x), expected.predict(single.query.x))
    assert scores(found, new) == pytest.approx(scores(expected, single), rel=1e-8)
    found.save(tmp_path / "prior")
    again = mp.load(tmp_path / "prior", module_for(form)).adapt(new.support).predict(new.query.x)
    assert torch.equal(again.mean, forecast.mean)


@pytest.mark.parametrize("name", ADAPTATIONS)
def test_a_learner_refuses_other_inputs_than_the_network_takes(name: str) -> None:
    new, made = task(50, "dict"), learner("dict", name)
    posterior, sky = made.adapt(new.support), new.query.x["sky"]
    for x, message in (
        ({"sky": sky}, "missing 1 required positional argument: 'wind'"),
        ({"sky": sky, "rain": sky}, "unexpected keyword argument 'rain'"),
        ((sky, sky, sky), "positional arguments"),
        (sky, "missing 1 required positional argument: 'wind'"),
    ):
        with pytest.raises(TypeError, match=message):
            posterior.predict(x)
    with pytest.raises(ValueError, match=r'x\["wind"\] has 2 observations and x\["sky"\] has 4'):
        made.adapt(Examples({**new.support.x, "wind": new.support.x["wind"][:2]}, new.support.y))


@forms
def test_own_loop(form: str) -> None:
    def scores(form: str | None) -> tuple[float, Tensor]:
        own = mp.MetaLearner(module_for(form), mp.Gaussian(), adaptation=ADAPTATIONS["Descent"])
        tasks = [task(number, form) for number in range(4)]
        own.start(tasks)
        optimizer = torch.optim.Adam(own.parameters(), lr=1e-2)
        record = meta_train_one_epoch(own, tasks, optimizer, meta_batch=2, progress=False)
        return record.loss, meta_evaluate(own, task(50, form)).mean

    (loss, mean), (expected_loss, expected) = scores(form), scores(None)
    assert loss == pytest.approx(expected_loss, rel=1e-10)
    torch.testing.assert_close(mean, expected, **CLOSE)


LOCAL: dict[str, Any] = {
    "explicit": {},
    "closed_form": {"local": "closed_form", "theta": Variational(steps=3, draws=2)},
}


@forms
@pytest.mark.parametrize("local", LOCAL)
def test_hierarchical_vi(form: str, local: str, tmp_path: Path) -> None:
    def fitted(form: str | None) -> mp.HierarchicalVI:
        tasks: Any = [task(number, form) for number in range(4)]
        tasks[1] = tuple(examples(5, 1, form))  # without a division into support and query set
        hierarchy = mp.HierarchicalVI(module_for(form), mp.Gaussian(), **LOCAL[local])
        return hierarchy.fit(tasks, **({"epochs": 2, "local_steps": 2} if local == "explicit" else {}), progress=False)

    found, expected, new, single = fitted(form), fitted(None), task(50, form), task(50)
    forecast = found.adapt(new.support).predict(new.query.x)
    assert_same_forecast(forecast, expected.adapt(single.support).predict(single.query.x))
    learned, other = found.posterior("task 2"), expected.posterior("task 2")
    assert_same_forecast(learned.predict(new.query.x), other.predict(single.query.x))
    found.save(tmp_path / "fit")
    again = mp.load(tmp_path / "fit", module_for(form))
    assert torch.equal(again.adapt(new.support).predict(new.query.x).mean, forecast.mean)


def test_tasks_that_change_are_noticed_in_every_part() -> None:
    class Changing:
        def __init__(self) -> None:
            self.asked = 0

        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Task:
            self.asked += 1
            support, query, name = task(index, "dict")
            wind = support.x["wind"] + (self.asked > 2)
            return Task(Examples({**support.x, "wind": wind}, support.y), query, name)

    with pytest.raises(ValueError, match="changed during the training"):
        mp.HierarchicalVI(module_for("dict"), mp.Gaussian()).fit(Changing(), epochs=1, local_steps=1, progress=False)


# --- other networks ---------------------------------------------------------------------------------------------------


class ImageAndWind(nn.Module):
    """An image and a vector; they meet behind a convolution."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image, self.wind, self.head = nn.Conv2d(1, 3, 3), nn.Linear(2, 3), nn.Linear(3, 1)

    def forward(self, image: Tensor, wind: Tensor) -> Tensor:
        return self.head(torch.tanh(self.image(image).mean((2, 3)) + self.wind(wind)))


def weather(number: int) -> Task:
    generator = torch.Generator().manual_seed(number)
    image, wind = torch.randn(7, 1, 4, 4, generator=generator), torch.randn(7, 2, generator=generator)
    return Task.split({"image": image, "wind": wind}, image.mean((1, 2, 3)) + wind[:, 0], 4, f"day {number}")


def fit_weather(adaptation: Any) -> mp.MetaLearner:
    made = mp.MetaLearner(ImageAndWind(), mp.Gaussian(), adaptation=adaptation)
    tasks = [weather(number) for number in range(4)]
    return made.fit(tasks, epochs=1, tasks_per_epoch=4, meta_batch=2, progress=False)


class OwnEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Mapping[str, Tensor], y: Tensor) -> Tensor:
        return self.layer(torch.cat([x["image"].mean((2, 3)), x["wind"], y], 1))


CONTEXT = mp.Context(size=4, encoder=OwnEncoder())


@pytest.mark.parametrize("adaptation", [mp.ClosedForm(), CONTEXT, CONTEXT + mp.ClosedForm()])
def test_an_image_and_a_vector(adaptation: Any) -> None:
    own = weather(50)
    assert fit_weather(adaptation).adapt(own.support).predict(own.query.x).mean.shape == (3,)


def test_the_encoder_of_a_context_says_that_it_cannot_read_an_image_beside_a_vector() -> None:
    with pytest.raises(ValueError, match=r'got x\["image"\] .*Try Context\(encoder=...\)'):
        fit_weather(mp.Context(size=4))


class Reading(nn.Module):
    """A network that takes a context as an argument beside its inputs."""

    class Encoder(mp.SupportEncoder):
        size = 1

        def forward(self, x: Any, y: Tensor, sizes: Tensor) -> Tensor:
            task = torch.arange(len(sizes)).repeat_interleave(sizes)
            return torch.zeros(len(sizes), 1, dtype=torch.float64).index_add(0, task, y.reshape(len(y), 1))

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 1).double()

    def support_encoder(self) -> mp.SupportEncoder:
        return self.Encoder()

    def forward(self, sky: Tensor, wind: Tensor, context: Tensor) -> Tensor:
        return self.layer(torch.cat([sky, wind, context.expand(len(sky), 1)], 1))


def test_a_context_as_an_argument_behind_the_inputs() -> None:
    def mean(form: str) -> Tensor:
        own = mp.MetaLearner(Reading(), mp.Gaussian(), adaptation=mp.Context(size=1))
        own.fit([task(number, form) for number in range(4)], epochs=1, tasks_per_epoch=4, meta_batch=2, progress=False)
        new = task(50, form)
        return own.adapt(new.support).predict(new.query.x).mean

    torch.testing.assert_close(mean("tuple"), mean("dict"), **CLOSE)

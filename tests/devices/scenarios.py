"""What the lane runs: each scenario is computed on a device and returns numbers, which are those of the CPU."""

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import xarray as xr
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import metaprior as mp
from metaprior.adaptation import descent
from metaprior.forecasts import Forecast, GaussianForecast
from metaprior.hierarchy.theta_inference import HMC, Variational
from metaprior.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from metaprior.metagrad import AmortizedELBO, Descent, QueryLoss, implicit, meta_gradient, mixed, planner
from metaprior.metagrad.memory import DeviceMemory
from metaprior.metagrad.problem import Engine
from metaprior.network import BayesianNetwork
from metaprior.runs import build, finish, learned
from metaprior.runs.folder import RunFolder
from metaprior.runs.sources import open_tasks
from metaprior.solar.maps.forecast_inputs import ForecastRequest
from metaprior.solar.maps.prediction import predict
from metaprior.solar.maps.run_scores import example_forecasts
from metaprior.solar.simulator import simulate, write_frames
from metaprior.tasks.task import Examples, Task
from metaprior.training.trainer import Trainer
from tests.devices.mirror import Events, watched
from tests.metagrad.problems import EVERY, Case, make_case, solved
from tests.runs import tiny
from tests.several_inputs import TwoInputs, examples, task
from tests.solar.maps import tiny_run
from tests.training.lines import lines, make_problem, make_trainer, network_module


@dataclass(frozen=True)
class Done:
    """Numbers to be compared, and what was recorded while they were computed."""

    result: Any
    events: Events


Scenario = Callable[[torch.device], Done]
SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str) -> Callable[[Callable[[torch.device], Any]], Callable[[torch.device], Any]]:
    """Add a function to the scenarios: all that it does is watched."""

    def add(function: Callable[[torch.device], Any]) -> Callable[[torch.device], Any]:
        def run(device: torch.device) -> Done:
            with watched() as events:
                result = function(device)
            return result if isinstance(result, Done) else Done(result, events)

        SCENARIOS[name] = run
        return function

    return add


def moved_task(task: Task, device: torch.device) -> Task:
    support, query = (Examples(*(value.to(device) for value in part)) for part in task[:2])
    return Task(support, query, task.name)


def moved(case: Case, device: torch.device) -> Case:
    network = case.problem.network
    own = BayesianNetwork(copy.deepcopy(network.module).to(device), network.stochastic)
    theta = case.theta.map(lambda value: value.to(device))
    return case.replace(problem=replace(case.problem, network=own), theta=theta, task=moved_task(case.task, device))


# --- what the lane itself must find -----------------------------------------------------------------------------------


@scenario("planted mix")
def planted_mix(device: torch.device) -> Tensor:
    return torch.ones(3, device=device) + torch.ones(3)


@scenario("planted mix in a backward pass")
def planted_mix_backward(device: torch.device) -> Tensor:
    class Mixing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
            return grad * torch.full((3,), 2.0)

    x = torch.ones(3, device=device, requires_grad=True)
    return torch.autograd.grad(Mixing.apply(x).sum(), x)[0]


@scenario("planted copies")
def planted_copies(device: torch.device) -> Any:
    x = torch.arange(3.0, device=device)
    return float(x.sum()), x.cpu(), torch.tensor([1.0, 2.0], device=device), x[x > 0], x[torch.tensor([0, 1])]


@scenario("planted .numpy()")
def planted_numpy(device: torch.device) -> Tensor:
    return torch.from_numpy(torch.ones(3, device=device).numpy())


@scenario("planted other numbers")
def planted_other_numbers(device: torch.device) -> Tensor:
    return torch.ones(3, device=device) * (1 if device.type == "cpu" else 2)


@scenario("a number of the CPU among operands")
def number_of_the_cpu(device: torch.device) -> Tensor:
    return torch.ones(3, device=device) * torch.tensor(2.0)


@scenario("planted failure")
def planted_failure(device: torch.device) -> float:
    return 1 / 0


# --- engines ----------------------------------------------------------------------------------------------------------

CASES: dict[str, Callable[[], Case]] = {
    "MLP": lambda: make_case(
        "tanh", Gaussian(), Descent(steps=3, lr=5e-3, learn_lr="per_tensor", momentum=0.5, samples=2)
    ),
    "fixed noise": lambda: make_case("conv", Gaussian(noise=(0.5, 0.9)), Descent(steps=3, lr=5e-3)),
    "U-Net with a trunk": lambda: make_case(
        "unet",
        Gaussian(per_channel=True),
        Descent(steps=2, lr=2e-4, adapt="(decoder2|output|likelihood).*", learn_lr="per_tensor"),
        AmortizedELBO(10),
        stochastic=r"decoder2\.block\.[03].*",
        micro_batch=2,
    ),
    "classes": lambda: make_case("conv", Categorical(), Descent(steps=2, lr=5e-3), QueryLoss(3, predictive=True)),
}
ENGINES: dict[str, Engine] = {**EVERY, "implicit": implicit}


def _engine_scenario(engine: Engine) -> Callable[[torch.device], Any]:
    def run(device: torch.device) -> Any:
        cases = {name: moved(make(), device) for name, make in CASES.items()}
        with watched() as events:
            found = {name: solved(engine, case) for name, case in cases.items()}
        return Done({n: (v.loss, v.grads.named(), v.terms, v.inner) for n, v in found.items()}, events)

    return run


for _name, _engine in ENGINES.items():
    scenario(f"engine {_name}")(_engine_scenario(_engine))


@scenario("stacked tasks")
def stacked_tasks(device: torch.device) -> Any:
    cases = [moved(CASES["MLP"](), device), moved(make_case("conv", Gaussian()), device)]
    found = []
    with watched() as events:
        for problem, theta, task, noise in cases:
            batch = meta_gradient(problem, theta, [task, task, task], noise, engine=mixed, stacked=True)
            assert not batch.failures
            found.append((batch.loss, batch.grads.named()))
    return Done(found, events)


@scenario("planner")
def planned(device: torch.device) -> Any:
    """The choices and what they cost; how much memory the operations need is measured on the device itself."""
    problem, theta, task, _ = moved(CASES["U-Net with a trunk"](), device)
    with patch.object(planner, "memory_of", lambda _: DeviceMemory(0.0, 2.0**40)):
        choices = planner.predict(problem, theta, task)
    assert all(choice.peak > 0 for choice in choices)
    return [(choice.cost, float(choice.micro_batch or 0)) for choice in choices]


# --- training ---------------------------------------------------------------------------------------------------------


def trainer_on(device: torch.device, *, likelihood: Likelihood | None = None, **settings: Any) -> Trainer:
    module, engine, stacked = network_module().to(device), settings.pop("engine", None), settings.pop("stacked", True)
    problem = make_problem(module=module, likelihood=likelihood)
    tasks = [moved_task(task, device) for task in lines(12)]
    return make_trainer(tasks, problem, engine=engine, stacked=stacked, meta_batch=3, **settings)


def third_step(trainer: Trainer) -> Done:
    """Return theta after three steps, and what the third one did: nothing is looked at for the first time there."""
    for _ in range(2):
        trainer.step()
    with watched() as events:
        report = trainer.step()
    assert not report.failures, report.failures
    return Done((trainer.theta.named(), report.loss, report.terms, report.grad_norms), events)


@scenario("meta-step, stacked")
def meta_step_stacked(device: torch.device) -> Done:
    return third_step(trainer_on(device, search_step_size=False))


@scenario("meta-step, one by one")
def meta_step_one_by_one(device: torch.device) -> Done:
    return third_step(trainer_on(device, search_step_size=False, stacked=False))


@scenario("pooled step")
def pooled_step(device: torch.device) -> Done:
    return third_step(trainer_on(device, warm_start=5, search_step_size=False))


@scenario("training from a warm start to the end")
def whole_training(device: torch.device) -> Any:
    descent.SEARCH_TASKS = 1
    trainer = trainer_on(device, warm_start=3, warm_start_average=0.5, epochs=1, tasks_per_epoch=9)
    while not trainer.done:
        trainer.step()
    again = trainer_on(device, warm_start=3, warm_start_average=0.5, epochs=1, tasks_per_epoch=9)
    again.restore({name: value.cpu() for name, value in trainer.tensors().items()}, trainer.progress)
    return trainer.theta.named(), again.theta.named()


# --- methods ----------------------------------------------------------------------------------------------------------


def forecast_numbers(forecast: Forecast, y: Tensor) -> dict[str, Tensor]:
    found = {name: getattr(forecast, name) for name in ("mean", "std", "epistemic", "aleatoric")}
    found |= {"quantile": forecast.quantile(0.3), "quantiles": forecast.quantile([0.1, 0.5, 0.9])}
    found |= {"log_prob": forecast.log_prob(y), "widened": forecast.widened(1.5).std}
    if isinstance(forecast, GaussianForecast):
        found |= {"interval": torch.stack(forecast.interval(0.8)), "cdf": forecast.cdf(y)}
        assert repr(forecast)
    return found


def loaded_mean(method: Any, device: torch.device) -> Tensor:
    """Return a forecast of the method from a file that it was saved to; without ``device=`` it is on the CPU."""
    x = torch.ones(1, 1, dtype=torch.float64)
    with tempfile.TemporaryDirectory() as folder:
        method.save(f"{folder}/saved")
        there, here = mp.load(f"{folder}/saved"), mp.load(f"{folder}/saved", device=device)
        assert there.predict(x, samples=2).mean.device.type == "cpu"
        mean: Tensor = here.predict(x, samples=2).mean
    assert mean.device.type == device.type
    return mean


def labelled(task: Task) -> Task:
    support, query = (Examples(part.x, (part.y[:, 0] > 0).long()) for part in task[:2])
    return Task(support, query, task.name)


def mlp(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return mp.MLP(1, [5], outputs).double()


def _learner_scenario(adaptation: Any, likelihood: Likelihood, *, calibrate: bool) -> Callable[[torch.device], Any]:
    def run(device: torch.device) -> Any:
        labels = isinstance(likelihood, Categorical)
        outputs = 3 if labels else likelihood.outputs_per_target
        tasks = [labelled(task) if labels else task for task in lines(8)]
        descent.SEARCH_TASKS = 1
        learner = mp.MetaLearner(mlp(outputs), likelihood, adaptation=adaptation, device=device)
        settings: dict[str, Any] = {"tasks_per_epoch": 6, "meta_batch": 3, "warm_start": 2, "progress": False}
        learner.fit(tasks, epochs=2, validation=tasks[:3], calibrate=calibrate, **settings)
        task = tasks[3]
        posterior, prior = learner.adapt(task.support), learner.prior_predictive()
        scores = learner.evaluate(tasks[:3], shots=(0, 2), samples=5, progress=False)
        assert posterior.predict(task.query.x.numpy(), samples=3).mean.shape  # NumPy in, NumPy out
        with tempfile.TemporaryDirectory() as folder:
            learner.save(f"{folder}/prior")
            there = mp.MetaLearner.load(f"{folder}/prior", mlp(outputs))  # on the CPU
            here = mp.MetaLearner.load(f"{folder}/prior", device=device)
        assert there.theta_.mu.device.type == "cpu"
        assert here.theta_.mu.device.type == device.type
        rows = [{k: v for k, v in row.items() if isinstance(v, float)} for row in scores.rows]
        return {
            "theta": learner.theta_.named(),
            "posterior": forecast_numbers(posterior.predict(task.query.x, samples=4), task.query.y),
            "prior": forecast_numbers(prior.predict(task.query.x, samples=4), task.query.y),
            "loaded": [one.adapt(task.support).predict(task.query.x, samples=4).mean for one in (there, here)],
            "scores": rows,
            "losses": [record.loss for record in learner.history_],
        }

    return run


LEARNERS: dict[str, tuple[Any, Likelihood]] = {
    "Descent": (Descent(steps=2, lr=0.02, learn_lr="per_tensor"), Gaussian()),
    "Descent, fixed noise": (Descent(steps=2, lr=0.02), Gaussian(noise=0.3)),
    "Descent, network gives the noise": (Descent(steps=2, lr=0.005), HeteroscedasticGaussian()),
    "Descent, classes": (Descent(steps=2, lr=0.02), Categorical()),
    "ClosedForm": (mp.ClosedForm(), Gaussian()),
    "ClosedForm, fixed noise": (mp.ClosedForm(component_noise=True, rank=2), Gaussian(noise=0.3)),
    "ClosedForm, classes": (mp.ClosedForm(), Categorical()),
    "Context": (mp.Context(size=4), HeteroscedasticGaussian()),
    "Context, classes": (mp.Context(size=4), Categorical()),
    "Context and ClosedForm": (mp.Context(size=4) + mp.ClosedForm(), Gaussian()),
    "Context and Descent": (mp.Context(size=4) + Descent(steps=1, lr=0.01), Gaussian()),
}
for _name, (_adaptation, _likelihood) in LEARNERS.items():
    _calibrate = _name in ("Descent", "Context, classes")  # which takes long here
    scenario(f"MetaLearner with {_name}")(_learner_scenario(_adaptation, _likelihood, calibrate=_calibrate))


@scenario("adaptations of images")
def images(device: torch.device) -> Any:
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(1)

    def task(name: str) -> Task:
        x, y = (torch.randn(5, channels, 8, 8, generator=draw, dtype=torch.float64) for channels in (2, 1))
        return Task(Examples(x[:3], y[:3]), Examples(x[3:], y[3:]), name)

    tasks = [task(f"task {number}") for number in range(4)]
    found = {}
    for kind in (mp.ClosedForm(), mp.Context(size=4), Descent(steps=1, lr=0.001)):
        torch.manual_seed(0)
        module = mp.UNet(2, 1, width=4, levels=2).double().to(device)
        learner = mp.MetaLearner(module, Gaussian(), adaptation=kind)
        learner.fit(tasks, epochs=1, tasks_per_epoch=4, meta_batch=2, warm_start=1, progress=False)
        forecast = learner.adapt(tasks[0].support).predict(tasks[0].query.x, samples=3)
        found[type(kind).__name__] = forecast.mean, forecast.std
    return found


@scenario("a loop of one's own")
def own_loop(device: torch.device) -> Any:
    tasks = lines(4)
    learner = mp.MetaLearner(mlp().to(device), Gaussian(), adaptation=Descent(steps=2, lr=0.02)).start(tasks)
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-2)
    record = mp.meta_train_one_epoch(learner, tasks, optimizer, meta_batch=2, progress=False)
    found = mp.meta_evaluate(learner, tasks[0])
    posterior = learner.adapt(tasks[0].support)
    return (
        record.loss,
        learner.theta_.named(),
        (found.mean, found.std),
        vars(learner.inner_loop_loss(posterior, tasks[0].support)),
        learner.outer_loop_loss(posterior, tasks[0]),
    )


def plain_data() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(30, 1, generator=draw, dtype=torch.float64)
    return x, x.sin() + 0.1 * torch.randn(30, 1, generator=draw, dtype=torch.float64)


@scenario("BayesByBackprop")
def bayes_by_backprop(device: torch.device) -> Any:
    x, y = plain_data()
    found = {}
    missing = y.clone()
    missing[:3] = torch.nan
    for name, likelihood, target in (
        ("numbers", Gaussian(), y),
        ("fixed noise", Gaussian(noise=0.2), missing),
        ("classes", Categorical(), (y[:, 0] > 0).long()),
    ):
        module = mlp(2 if isinstance(likelihood, Categorical) else 1)
        method = mp.BayesByBackprop(module, likelihood, prior=mp.ScaleMixturePrior(), device=device)
        method.fit(x, target, epochs=4, batch_size=10, validation=0.2, progress=False)
        found[name] = (
            forecast_numbers(method.predict(x, samples=4), target),
            [value for value in method.evaluate(x, target, samples=4).rows[0].values() if isinstance(value, float)],
            method.prune(0.3).predict(x, samples=3).mean,
            [record.loss for record in method.history_],
            loaded_mean(method, device),
        )
    return found


@scenario("several inputs")
def several_inputs(device: torch.device) -> Any:
    x, y = examples(20, 1, "dict")
    y[:2] = torch.nan
    method = mp.BayesByBackprop(TwoInputs(), Gaussian(), device=device)
    method.fit(x, y, epochs=3, batch_size=8, validation=0.2, progress=False)
    own, found = task(5, "tuple"), [method.predict(x, samples=3).mean]
    for kind in (Descent(steps=2, lr=0.02), mp.ClosedForm(), mp.Context(size=3)):
        learner = mp.MetaLearner(TwoInputs(), Gaussian(), adaptation=kind, device=device)
        tasks = [task(number, "tuple") for number in range(4)]
        learner.fit(tasks, epochs=1, tasks_per_epoch=4, meta_batch=2, search_step_size=False, progress=False)
        found.append(learner.adapt(own.support).predict(own.query.x, samples=3).mean)
    return found


@scenario("step of BayesByBackprop")
def step_of_bayes_by_backprop(device: torch.device) -> Any:
    x, y = (value.to(device) for value in plain_data())

    def run(epochs: int) -> Done:
        method = mp.BayesByBackprop(mlp().to(device), Gaussian())
        with watched() as events:
            method.fit(x, y, epochs=epochs, batch_size=30, progress=False)
        return Done(method.posterior_.weights.named(), events)

    few, many = run(5), run(15)  # ten steps more
    extra = list(many.events.found)
    for event in few.events.found:
        extra.remove(event)
    return Done(many.result, Events(extra))


@contextmanager
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        yield name


@scenario("HierarchicalVI")
def hierarchical_vi(device: torch.device) -> Any:
    data = {task.name: (task.support.x, task.support.y) for task in lines(4)}
    with folder() as store:
        method = mp.HierarchicalVI(mlp(), Gaussian(), store=store, device=device)
        method.fit(data, epochs=2, local_steps=2, progress=False)
        new = lines(6)[5]
        posterior = method.adapt(new.support)
        return (
            method.posterior("line 1").predict(new.query.x, samples=3).mean,
            forecast_numbers(posterior.predict(new.query.x, samples=4), new.query.y),
            [record.loss for record in method.history_],
            loaded_mean(method, device),
        )


def _collapsed(theta: Any) -> Callable[[torch.device], Any]:
    def run(device: torch.device) -> Any:
        data = {task.name: (task.support.x, task.support.y) for task in lines(4)}
        method = mp.HierarchicalVI(mlp(), Gaussian(), local="closed_form", theta=theta, device=device)
        method.fit(data, progress=False)
        new = lines(6)[5]
        posterior = method.adapt(new.support)
        return forecast_numbers(posterior.predict(new.query.x, samples=4), new.query.y), loaded_mean(method, device)

    return run


THETA = {
    "hmc": HMC(draws=3, trajectories=3, leapfrog=3, anchored_steps=20),
    "variational": Variational(draws=4, steps=20, samples=2),
}
for _name, _theta in THETA.items():
    scenario(f"HierarchicalVI in closed form, {_name}")(_collapsed(_theta))


# --- runs on disk -----------------------------------------------------------------------------------------------------


@contextmanager
def runs_on(device: torch.device) -> Iterator[None]:
    """Within the block, runs compute on the device, whatever their configuration says."""
    with (
        patch.object(build, "own_device", lambda kind: device),
        patch.object(learned, "own_device", lambda kind: device),
        patch.object(finish, "draw", lambda *_: []),
    ):
        yield


def prior_of(run: Path) -> dict[str, Tensor]:
    return mp.MetaLearner.load(run / "prior").theta_.named()


@scenario("a run on disk, stopped and resumed")
def run_on_disk(device: torch.device) -> Any:
    with folder() as name, runs_on(device):
        run, stop = Path(name) / "run", Trainer.step

        def stopping(trainer: Trainer) -> Any:
            if trainer.progress.step == 7:
                raise KeyboardInterrupt
            return stop(trainer)

        with patch.object(Trainer, "step", stopping), suppress(KeyboardInterrupt):
            tiny.run(run)
        tiny.run(run, resume=True)
        scores = finish.evaluate_run(run, tasks=2)
        losses = [line["loss"] for line in tiny.metrics(run) if "loss" in line]
        assert losses
        return prior_of(run), losses, [[v for v in row.values() if isinstance(v, float)] for row in scores.rows]


@scenario("a run of maps, and a forecast")
def run_of_maps(device: torch.device) -> Any:
    with folder() as name, runs_on(device):
        run, archive, out = (Path(name) / file for file in ("run", "june.nc", "now.nc"))
        write_frames(simulate(days=5, size=16, start="2025-06-01", progress=False), archive)
        tiny_run.run(run, archive)
        predict(ForecastRequest(run, archive, archive, out, samples=3, at="2025-06-02T11:30"), lambda _: None)
        with xr.open_dataset(out) as forecast:
            mean, std = (torch.from_numpy(forecast[part].values.copy()) for part in ("mean", "std"))
        scores = json.loads((run / "scores.json").read_text())
        config, learner = learned.learned(RunFolder(run))
        (example, *_) = example_forecasts(open_tasks(config.task_settings, progress=False), config, learner)
        pictures = [torch.from_numpy(values) for values in (example.mean, example.std, example.samples)]
        return prior_of(run), mean, std, pictures, [value for value in tree_leaves(scores) if isinstance(value, float)]

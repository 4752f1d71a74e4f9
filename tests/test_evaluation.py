import itertools
import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metaprior.evaluation import Adapt, Cell, Evaluation, evaluate, usual_shots
from metaprior.forecasts import CategoricalForecast
from metaprior.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from metaprior.network import BayesianNetwork
from metaprior.posterior import Posterior
from metaprior.scaling import TargetScale
from metaprior.scores import Reliability
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

NOISE = 0.5


def certain(weight: Tensor, likelihood: Likelihood, *, scalar_targets: bool = False) -> Posterior:
    """y = weight x without any doubt about the weight, so that a forecast's components are all the same."""
    network = BayesianNetwork(nn.Linear(weight.shape[1], weight.shape[0], bias=False).double())
    weights = WeightDistribution(weight.flatten(), torch.full((weight.numel(),), -torch.inf).double(), {})
    identity = TargetScale.identity(weight)
    return Posterior(network, likelihood, weights, target_scale=identity, input_axes=2, scalar_targets=scalar_targets)


def line(slope: float, *, scalar_targets: bool = False) -> Posterior:
    return certain(torch.tensor([[slope]], dtype=torch.float64), Gaussian(noise=NOISE), scalar_targets=scalar_targets)


def adapt_line(support: Examples | None, steps: int) -> Posterior:
    """Slope 0 before; afterwards the support's mean ratio, to which every step halves the distance."""
    target = 0.0 if support is None else (support.y / support.x).mean().item()
    return line(target * (1 - 0.5**steps))


def line_task(slope: float, name: str = "line", support: int = 4) -> Task:
    x = torch.arange(1.0, support + 1).double().unsqueeze(-1)
    query = torch.tensor([[-1.0], [1.0], [2.0]]).double()
    return Task(Examples(x, slope * x), Examples(query, slope * query), name)


def logits(support: Examples | None, steps: int) -> Posterior:
    """Three classes whose logits are the inputs."""
    return certain(torch.eye(3).double(), Categorical())


def label_tasks(count: int = 4, size: int = 25) -> list[Task]:
    generator = torch.Generator().manual_seed(0)
    tasks = []
    for number in range(count):
        x = 2 * torch.randn(size, 3, generator=generator).double()
        examples = Examples(x, torch.randint(0, 3, (size,), generator=generator))
        tasks.append(Task(examples, examples, f"labels {number}"))
    return tasks


def run(adapt: Adapt = adapt_line, tasks: Any = None, **settings: Any) -> Evaluation:
    return evaluate(adapt, [line_task(1.0), line_task(3.0)] if tasks is None else tasks, **settings)


def test_measures_of_a_known_forecast() -> None:
    """Slope s is forecast as s (1 - 2^-k): errors e = 2^-k s x, and a normal of known scale around each."""
    row = run(steps=[2]).row(steps=2)
    per_task = []
    for slope in (1.0, 3.0):
        e = 0.25 * slope * torch.tensor([-1.0, 1.0, 2.0]).double()
        z = e / NOISE
        inside = 2 * torch.special.ndtr(z.abs()) - 1
        density = torch.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        crps = NOISE * (z * (2 * torch.special.ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))
        mse = e.square().mean().item()
        per_task.append(
            {
                "mse": mse,
                "rmse": math.sqrt(mse),
                "nll": (0.5 * z**2 + math.log(NOISE) + 0.5 * math.log(2 * math.pi)).mean().item(),
                "crps": crps.mean().item(),
                "coverage_50": (inside <= 0.5).double().mean().item(),
                "coverage_90": (inside <= 0.9).double().mean().item(),
                "std": NOISE,
            }
        )
    for measure, first in per_task[0].items():
        second = per_task[1][measure]
        assert row[measure] == pytest.approx((first + second) / 2, rel=1e-7), measure
        assert row[f"{measure}_se"] == pytest.approx(abs(first - second) / 2, rel=1e-7, abs=1e-12), measure
    assert row["tasks"] == 2
    assert row["failed"] == 0


def test_cells_are_shots_times_steps_and_the_prior_once() -> None:
    seen: list[tuple[int | None, int]] = []

    def watched(support: Examples | None, steps: int) -> Posterior:
        seen.append((None if support is None else support.size, steps))
        return adapt_line(support, steps)

    result = run(watched, [line_task(2.0)], shots=[0, 1, None], steps=[0, 5])
    assert seen == [(None, 0), (1, 0), (1, 5), (4, 0), (4, 5)]
    assert [(row["shots"], row["steps"], row["support"]) for row in result.rows] == [
        (0, 0, 0),
        (1, 0, 1),
        (1, 5, 1),
        (None, 0, 4),
        (None, 5, 4),
    ]
    assert result.row(shots=0)["mse"] == pytest.approx(4 * 2.0)  # slope 2 unknown: 4 times the mean of x^2
    assert result.row(shots=1, steps=5)["mse"] == pytest.approx(8 / 4**5)


def test_shots_take_the_first_examples() -> None:
    x = torch.ones(4, 1).double()
    task = Task(Examples(x, torch.tensor([[1.0], [3.0], [8.0], [8.0]]).double()), Examples(x, 5 * x))
    result = run(tasks=[task], shots=[1, 2], steps=[60], examples_per_shot=2)
    assert result.row(shots=1)["mse"] == pytest.approx((5 - 2) ** 2)
    assert result.row(shots=2)["mse"] == pytest.approx(0, abs=1e-12)


def test_usual_shots_go_as_far_as_each_support_set() -> None:
    tasks = [line_task(2.0), line_task(1.0, support=13)]
    result = run(tasks=tasks, shots=None, steps=[3])
    found = {row["shots"]: (row["tasks"], row["support"]) for row in result.rows}
    assert found == {0: (2, 0), 1: (2, 1), 2: (2, 2), 5: (1, 5), 10: (1, 10), None: (2, 8.5)}
    assert [*found] == [0, 1, 2, 5, 10, None]
    by_twos = run(tasks=tasks, shots=None, steps=[3], examples_per_shot=2)
    assert [(row["shots"], row["tasks"], row["support"]) for row in by_twos.rows] == [
        (0, 2, 0),
        (1, 2, 2),
        (2, 1, 4),
        (5, 1, 10),
        (None, 2, 8.5),
    ]
    assert usual_shots(20) == [0, 1, 2, 5, 10, 20]
    assert usual_shots(-1) == usual_shots(0) == [0]


def test_too_many_shots() -> None:
    with pytest.raises(
        ValueError, match=r"task 'line' has 4 support examples, too few for 3 shots of 2 examples each\. Try"
    ):
        run(shots=[3], examples_per_shot=2)


@pytest.mark.parametrize("scalar_forecast", [True, False])
@pytest.mark.parametrize("scalar_targets", [True, False])
def test_targets_with_and_without_a_channel_axis(scalar_forecast: bool, scalar_targets: bool) -> None:
    task = line_task(3.0)
    query = Examples(task.query.x, task.query.y.squeeze(-1)) if scalar_targets else task.query
    result = run(lambda support, steps: line(0.0, scalar_targets=scalar_forecast), [task._replace(query=query)])
    assert result.row()["mse"] == pytest.approx(9 * 2.0)


def test_targets_of_another_shape_are_an_error_not_a_failure() -> None:
    task = line_task(1.0)
    wrong = task._replace(query=Examples(task.query.x, torch.zeros(3, 2)))
    with pytest.raises(ValueError, match=r"targets have shape \(3, 2\), but the predictions have \(3, 1\)"):
        run(tasks=[wrong])


def test_measures_of_labels() -> None:
    tasks = label_tasks()
    result = evaluate(logits, tasks)
    row = result.row()
    x, y = torch.cat([task.query.x for task in tasks]), torch.cat([task.query.y for task in tasks])
    p = x.softmax(1)
    assert row["error"] == pytest.approx((p.argmax(1) != y).double().mean().item())
    assert row["nll"] == pytest.approx(nn.functional.cross_entropy(x, y).item())
    assert row["confidence"] == pytest.approx(p.amax(1).mean().item())
    pooled = Reliability()
    pooled.add(CategoricalForecast(x.expand(2, *x.shape)), y)
    assert row["ece"] == pytest.approx(pooled.ece, abs=1e-6)
    assert "ece_se" not in row
    each = [row["error"] for row in result.per_task]
    assert row["error_se"] == pytest.approx(torch.tensor(each).double().std().item() / 2)
    counts = result.reliability[Cell(None, 10)]
    assert isinstance(counts, Reliability)
    assert counts.count == 100


def test_labels_of_zero_and_one() -> None:
    x = torch.tensor([[2.0], [-1.0], [0.5]]).double()
    task = Task(Examples(x, x > 0), Examples(x, torch.tensor([1.0, 1.0, 0.0])))
    row = evaluate(lambda support, steps: certain(torch.ones(1, 1).double(), Bernoulli()), [task]).row()
    assert row["error"] == pytest.approx(2 / 3)
    expected = nn.functional.binary_cross_entropy_with_logits(x.flatten(), task.query.y.double())
    assert row["nll"] == pytest.approx(expected.item())


def test_real_values_and_labels_are_not_averaged_together() -> None:
    kinds = iter([line(1.0), certain(torch.ones(3, 1).double(), Categorical())])
    task = line_task(1.0)
    labels = Task(task.support, Examples(task.query.x, torch.zeros(3, dtype=torch.long)), "labels")
    with pytest.raises(ValueError, match=r"task 'labels' has other measures \(error, nll, confidence\) than"):
        run(lambda support, steps: next(kinds), [task, labels])


def test_failures_are_listed_and_left_out_of_every_mean() -> None:
    """One task's adaptation gives up, one ends at weights that are not numbers, one at an overflowing density."""

    def adapt(support: Examples | None, steps: int) -> Posterior:
        slope = 0.0 if support is None else support.y[0, 0].item()
        if slope == 7.0:
            raise FloatingPointError("the nll became inf")
        return line({8.0: math.nan, 9.0: 1e200}.get(slope, slope))

    tasks = [line_task(slope, f"slope {slope:g}") for slope in (1.0, 7.0, 8.0, 2.0, 9.0)]
    result = run(adapt, tasks, shots=[0, None])
    row = result.row()
    assert (row["tasks"], row["failed"]) == (2, 3)
    assert row["mse"] == 0
    assert result.row(shots=0)["failed"] == 0
    assert [(failure.task, failure.index, failure.cell) for failure in result.failures] == [
        ("slope 7", 1, Cell(None, 10)),
        ("slope 8", 2, Cell(None, 10)),
        ("slope 9", 4, Cell(None, 10)),
    ]
    messages = [failure.message for failure in result.failures]
    assert messages[0] == "the nll became inf"
    assert messages[1].startswith("the network's output has 150 NaN or infinite values")
    assert messages[2] == "mse is inf"
    assert [row["task"] for row in result.per_task if row["shots"] is None] == ["slope 1", "slope 2"]
    assert "- failed: slope 7 (all shots, 10 steps): the nll became inf" in result.table()


def test_a_cell_in_which_everything_failed_is_not_known() -> None:
    def adapt(support: Examples | None, steps: int) -> Posterior:
        return line(math.nan if steps > 5 else 0.0)

    result = run(adapt, steps=[1, 10])
    assert result.row(steps=10)["tasks"] == 0
    assert "nll" not in result.row(steps=10)
    assert Cell(None, 10) not in result.reliability
    assert result.as_json()["rows"][1]["support"] is None


def test_a_table_spells_out_the_first_failures_only() -> None:
    def adapt(support: Examples | None, steps: int) -> Posterior:
        return line(0.0 if support is None else math.nan)

    notes = run(adapt, [line_task(1.0)] * 7, shots=[0, None]).table().splitlines()[4:]
    assert len(notes) == 6
    assert notes[-1] == "- and 2 more (all are in .failures)"


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(FloatingPointError, match=r"no task could be scored .* first of 2 failures was 'line' \(all sh"):
        run(lambda support, steps: line(math.nan))


def test_bad_data_are_an_error_not_a_failure() -> None:
    task = line_task(1.0)
    for part in ("support", "query"):
        broken = task._replace(**{part: Examples(getattr(task, part).x, getattr(task, part).y + torch.inf)})
        with pytest.raises(ValueError, match=f"{part} y of task 'line' has . infinite values"):
            run(tasks=[broken])
    with pytest.raises(ValueError, match="'line' has no query examples"):
        run(tasks=[task._replace(query=Examples(task.query.x[:0], task.query.y[:0]))])


def test_tasks_may_come_in_any_finite_way() -> None:
    class ByIndex:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Task:
            return line_task(float(index))  # never an IndexError

    class Endless:
        def __getitem__(self, index: int) -> Task:
            return line_task(float(index))

    assert run(tasks=ByIndex()).rows == run(tasks=(line_task(float(i)) for i in range(2))).rows
    assert run(tasks=itertools.islice(map(line_task, itertools.count()), 3)).row()["tasks"] == 3
    with pytest.raises(ValueError, match=r"Endless has no length; .* \[tasks\[i\] for i in range\(100\)\]"):
        run(tasks=Endless())
    with pytest.raises(ValueError, match="no tasks to evaluate on"):
        run(tasks=[])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shots": []}, "must not be empty"),
        ({"shots": [-1]}, "shots .*got -1"),
        ({"shots": [True]}, "shots .*got True"),
        ({"steps": [1.5]}, r"steps .*got 1\.5"),
        ({"samples": 1}, "samples .*got 1"),
        ({"examples_per_shot": 0}, "examples_per_shot .*got 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(**settings)


def test_looking_up_a_row() -> None:
    result = run(shots=[1], steps=[1, 2])
    with pytest.raises(ValueError, match="more than one row for 1 shots; there are: 1 shots, 1 steps; 1 shots, 2 ste"):
        result.row(shots=1)
    with pytest.raises(ValueError, match="no row for all shots, 3 steps; there are"):
        result.row(steps=3)


def test_one_task_has_no_standard_error() -> None:
    assert math.isnan(run(tasks=[line_task(1.0)]).row()["nll_se"])


def test_the_same_weights_are_drawn_again() -> None:
    posterior = line(1.0)
    doubtful = Posterior(
        posterior.network,
        posterior.likelihood,
        posterior.weights.replace(rho=torch.zeros(1).double()),
        target_scale=posterior.target_scale,
        input_axes=2,
    )
    first, second = (run(lambda support, steps: doubtful, steps=[1, 2]) for _ in range(2))
    assert first.rows == second.rows
    assert first.row(steps=1)["nll"] == first.row(steps=2)["nll"]  # cells share their draws, tasks do not
    assert first.per_task[0]["std"] != first.per_task[1]["std"]


def test_table_and_json() -> None:
    result = run(shots=[0, 2, None], tasks=[line_task(1.0)])
    lines = result.table().splitlines()
    assert lines[0].split()[:5] == ["shots", "steps", "support", "tasks", "mse"]  # nothing has failed
    assert [line.split()[0] for line in lines[2:]] == ["0", "2", "all"]
    assert "±" not in result.table()  # of one task there is no standard error
    assert "mse_se" not in lines[0]
    assert "10 ± 8" in run(shots=[0]).table()  # slopes 1 and 3: mean squares 2 and 18
    content = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert content["rows"][2]["shots"] is None
    assert content["rows"][0]["nll_se"] is None
    assert content["reliability"][0]["rows"][4]["level"] == 0.5
    assert len(content["per_task"]) == 3


def test_a_table_leaves_out_columns_that_say_nothing() -> None:
    def columns(**arguments: Any) -> list[str]:
        return run(**arguments).table().splitlines()[0].split()

    assert columns(shots=[0, 2], steps=[0])[:3] == ["shots", "tasks", "mse"]
    assert columns(shots=[0], steps=[0], tasks=[line_task(1.0)])[0] == "mse"
    assert columns(shots=[2], steps=[0], tasks=[line_task(1.0)])[0] == "shots"  # adapted to two examples


def test_an_evaluation_prints_its_table_and_a_posterior_what_it_is() -> None:
    result = run()
    assert repr(result) == result.table()
    assert repr(line(0.0)) == "Posterior(Linear, Gaussian, random weights: 1, mean sigma 0)"
    assert repr(line(0.0).widened(1.5)).endswith("spread times 1.5)")


def test_a_table_of_observations_of_several_values_has_the_nll_of_a_value() -> None:
    x = torch.tensor([[-1.0], [1.0], [2.0]]).double()

    def header(width: int) -> list[str]:
        copies = certain(torch.ones(width, 1).double(), Gaussian(noise=NOISE))
        task = Task(Examples(x, x.repeat(1, width)), Examples(x, x.repeat(1, width)), "copies")
        return run(lambda support, steps: copies, [task]).table().splitlines()[0].split()

    assert {"nll", "nll_per_value"} & set(header(1)) == {"nll"}
    assert {"nll", "nll_per_value"} & set(header(2)) == {"nll_per_value"}

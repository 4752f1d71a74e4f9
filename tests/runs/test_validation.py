import math
from pathlib import Path

import pytest
import torch

from metaprior.likelihoods import Categorical, Gaussian, Likelihood
from metaprior.metagrad.problem import Descent
from metaprior.methods.meta_learner import MetaLearner
from metaprior.models import MLP
from metaprior.runs import program
from metaprior.runs.config import Evaluate
from metaprior.runs.folder import RunFolder
from metaprior.runs.validation import Validation, Validator, error_of_a_constant
from metaprior.tasks import Examples, Sinusoids, Task
from metaprior.tasks.task import FirstTasks
from metaprior.team import Team
from tests.runs.tiny import run
from tests.team.fake import together

SETTINGS = Evaluate(tasks=3, samples=2)


def labels(*values: int) -> Task:
    y = torch.tensor(values)
    return Task(Examples(torch.zeros(len(y), 1), y), Examples(torch.zeros(len(y), 1), y))


def test_error_of_a_constant_by_hand() -> None:
    tasks = FirstTasks([labels(0, 1, 1), labels(0, 0, 0)], 2)
    assert error_of_a_constant(tasks, Categorical()) == pytest.approx(1 / 3)
    values = [
        Task(Examples(y, y), Examples(y, y)) for y in (torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]]))
    ]
    assert error_of_a_constant(FirstTasks(values, 2), Gaussian()) == pytest.approx(math.sqrt(5))


def test_error_of_a_constant_without_missing_targets() -> None:
    x = torch.zeros(2, 1)
    tasks = [Task(Examples(x, y), Examples(x, y)) for y in torch.tensor([[[1.0], [3.0]], [[5.0], [math.nan]]])]
    assert error_of_a_constant(FirstTasks(tasks, 2), Gaussian()) == pytest.approx(math.sqrt(8 / 3))
    assert error_of_a_constant(FirstTasks([labels(0, -100, 1, 1)], 1), Categorical()) == pytest.approx(1 / 3)
    none = Task(tasks[0].support, Examples(x, x * math.nan))
    with pytest.raises(ValueError, match="all of them are missing"):
        error_of_a_constant(FirstTasks([none], 1), Gaussian())


def test_a_forecast_of_the_mean_has_no_skill_and_a_perfect_one_has_skill_1() -> None:
    y = torch.tensor([[1.0], [-1.0]])
    task = Task(Examples(y, y), Examples(y, y))
    module = MLP(1, [], 1)
    learner = MetaLearner(
        module, Gaussian(noise=1.0), adaptation=Descent(steps=0, kl_weight=0), relative_sigma=0.0, standardize=False
    )
    for weight, skill in ((0.0, 0.0), (1.0, 1.0), (3.0, -1.0)):
        with torch.no_grad():
            module.layers[0].weight.fill_(weight)
            module.layers[0].bias.zero_()
        theta = learner.problem(1).network.initial(0.0)
        found = Validator(learner, FirstTasks([task], 1), SETTINGS, lambda: None)(theta)
        assert found.skill == pytest.approx(skill)
        expected = 0.5 * (weight - 1) ** 2 + 0.5 * math.log(2 * math.pi)
        assert found.score == pytest.approx(expected)
        assert found.measures["before"]["nll"] == found.measures["after"]["nll"] == pytest.approx(expected)


def test_skill_of_classes_is_by_chance() -> None:
    learner = MetaLearner(MLP(1, [], 2), Categorical(), adaptation=Descent(steps=0, kl_weight=0), relative_sigma=0.0)
    with torch.no_grad():
        for parameter in learner.network.module.parameters():
            parameter.zero_()
        learner.network.module.layers[0].bias[0] = 1.0  # always says class 0
    theta = learner.problem(1).network.initial(0.0)
    found = Validator(learner, FirstTasks([labels(0, 1, 0, 1)], 1), SETTINGS, lambda: None)(theta)
    assert found.skill == pytest.approx(0.0)


def test_failing_tasks_never_make_a_score_better() -> None:
    torch.manual_seed(0)  # with units that are all inactive nothing would overflow
    good, wild = Sinusoids()[0], Sinusoids()[1]
    wild = wild._replace(support=Examples(wild.support.x * 1e18, wild.support.y * 1e18))
    learner = MetaLearner(
        MLP(1, [4], 1), Gaussian(noise=1.0), adaptation=Descent(steps=3, lr=1e-3, kl_weight=0), standardize=False
    )
    theta = learner.problem(1).network.initial(0.01)
    alone = Validator(learner, FirstTasks([good], 1), SETTINGS, lambda: None)(theta)
    both = Validator(learner, FirstTasks([good, wild], 2), SETTINGS, lambda: None)(theta)
    assert both.measures["after"]["failed"] == 1
    assert (both.failed, both.score) == (1, pytest.approx(alone.score))
    none = Validator(learner, FirstTasks([wild], 1), SETTINGS, lambda: None)(theta)
    assert (none.failed, none.score) == (1, math.inf)


def test_a_constant_that_is_perfect_leaves_nothing_to_be_skilled_in() -> None:
    y = torch.ones(3, 1)
    learner = MetaLearner(
        MLP(1, [4], 1), Gaussian(noise=1.0), adaptation=Descent(steps=1, kl_weight=0), standardize=False
    )
    validate = Validator(learner, FirstTasks([Task(Examples(y, y), Examples(y, y))], 1), SETTINGS, lambda: None)
    found = validate(learner.problem(1).network.initial(0.01))
    assert math.isnan(found.skill)
    assert math.isfinite(found.score)


def test_a_damaged_validation_task_is_refused_before_training_begins() -> None:
    task = Sinusoids()[0]
    damaged = task._replace(query=Examples(task.query.x, task.query.y / 0), name="broken")
    learner = MetaLearner(MLP(1, [4], 1), Gaussian(noise=1.0), standardize=False)
    with pytest.raises(ValueError, match="query y of task 'broken' has 10 infinite"):
        Validator(learner, FirstTasks([task, damaged], 2), SETTINGS, lambda: None)


class Asked:
    """Tasks that remember which of them were asked for."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks, self.indices = tasks, list[int]()

    def __getitem__(self, index: int) -> Task:
        self.indices.append(index)
        return self.tasks[index]


def far_from_zero(count: int) -> list[Task]:
    """Of different sizes, with a mean that is large beside the spread: squares of values would lose all digits."""
    generator = torch.Generator().manual_seed(0)
    sizes = [3 + 2 * number for number in range(count)]
    values = [1e7 + number + torch.randn(size, 1, generator=generator).double() for number, size in enumerate(sizes)]
    return [Task(Examples(y, y), Examples(y, y)) for y in values]


@pytest.mark.parametrize("size", [2, 3, 6])
def test_the_error_of_a_constant_is_put_together_from_tasks_to_the_same_bits(size: int) -> None:
    kinds = (far_from_zero(5), Gaussian()), ([labels(0, 2), labels(1, 1, 5), labels(0, 1)], Categorical())
    for tasks, likelihood in kinds:
        alone = error_of_a_constant(FirstTasks(tasks, len(tasks)), likelihood)
        if likelihood.continuous:
            pooled = torch.cat([task.query.y for task in tasks])
            assert alone == pytest.approx(float(pooled.std(correction=0)), rel=1e-9)
        else:
            assert alone == 4 / 7

        def work(team: Team, tasks: list[Task] = tasks, likelihood: Likelihood = likelihood) -> tuple[float, bool]:
            asked = Asked(tasks)
            found = error_of_a_constant(FirstTasks(asked, len(tasks)), likelihood)
            return found, asked.indices == list(team.share(len(tasks)))

        assert together(size, work) == [(alone, True)] * size


def test_all_ranks_come_to_the_same_judgement() -> None:
    tasks = [Sinusoids()[number] for number in range(5)]
    wild = tasks[3]._replace(support=Examples(tasks[3].support.x * 1e18, tasks[3].support.y * 1e18))
    tasks[3] = wild
    learner = MetaLearner(
        MLP(1, [4], 1), Gaussian(noise=1.0), adaptation=Descent(steps=3, lr=1e-3, kl_weight=0), standardize=False
    )
    theta = learner.problem(1).network.initial(0.01)
    alone = Validator(learner, FirstTasks(tasks, 5), SETTINGS, lambda: None)(theta)
    assert alone.measures["after"]["failed"] == 1

    def work(team: Team) -> tuple[Validation, bool]:
        asked = Asked(tasks)
        found = Validator(learner, FirstTasks(asked, 5), SETTINGS, lambda: None)(theta)
        return found, asked.indices == 2 * list(team.share(5))  # for the error of a constant, and for the scores

    assert together(3, work) == [(alone, True)] * 3

    def nothing(team: Team) -> Validation:
        return Validator(learner, FirstTasks([wild] * 3, 3), SETTINGS, lambda: None)(theta)

    assert [found.score for found in together(2, nothing)] == [math.inf] * 2


def test_the_prior_of_a_run_is_calibrated_on_validation_tasks_unless_told_otherwise(tmp_path: Path) -> None:
    said = run(tmp_path / "run")
    found = MetaLearner.load(tmp_path / "run" / "prior").calibration_
    assert found is not None
    assert (found.examples, found.tasks) == ((0, 1, 2, 3), 2)
    assert f"calibrated: {found}" in said
    run(tmp_path / "plain", "evaluate.calibrate=false")
    assert MetaLearner.load(tmp_path / "plain" / "prior").calibration_ is None


def test_a_run_says_if_its_adaptation_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "JUDGED_FROM", 1)
    said = run(tmp_path / "idle", "adaptation.lr=1e-18", "meta.scale_lr=1e-9")
    (summary,) = [text for text in said if "note: adaptation changes nothing" in text]
    table, note = summary.rsplit("\n", 1)
    assert table.lstrip().startswith("shots")
    assert "the learned step sizes have vanished, the largest is 1e-18. If tasks are alike" in note
    assert RunFolder(tmp_path / "idle").notes == [note.removeprefix("note: ")]
    assert not [line for line in run(tmp_path / "run") if "adaptation" in line]

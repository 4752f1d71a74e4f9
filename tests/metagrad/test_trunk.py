"""What lies in front of everything that is adapted is run once for a task, and nobody can tell from the answer."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from metaprior.likelihoods import Categorical, Gaussian
from metaprior.metagrad import AmortizedELBO, Descent, adapt, keeping, meta_gradient, mixed, unrolled
from metaprior.metagrad.problem import Engine
from metaprior.metagrad.sweep import Sweep
from metaprior.models.unet import UNet
from metaprior.tasks.task import Examples, Task
from tests.metagrad.problems import ENGINES, Case, assert_same, assert_same_tensors, make_case, solved

SPLITTING = {name: engine for name, engine in ENGINES.items() if name != "checkpointed"}
engines = pytest.mark.parametrize("engine", SPLITTING.values(), ids=SPLITTING)
STILL = None


class Counting(nn.Module):
    """A layer that counts how often it is run, and on how many examples."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.calls = self.examples = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.examples += len(x)
        return self.layer(x)


class WithStages(nn.Module):
    """Says by itself where it splits; a tuple passes from the first stage to the second."""

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.layer(x).tanh(), x

    class Second(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 2)

        def forward(self, features: tuple[Tensor, Tensor]) -> Tensor:
            return self.layer(torch.cat(features, 1))

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = self.First(), self.Second()

    def stages(self) -> Sequence[nn.Module]:
        return [self.first, self.second]

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


class WithoutStages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())


def chain(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    for layer in layers:
        for part in layer.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
    return nn.Sequential(*layers).double()


def tied_chain() -> nn.Module:
    """The third linear layer has the first one's weight (and is not random); the last is."""
    module = chain(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    module[4].weight = module[0].weight
    return module


def frozen(module: nn.Module, *names: str) -> nn.Module:
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in names and "all" not in names)
    return module


def deep() -> nn.Module:
    return chain(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 2))


def head_case(module: nn.Module, stochastic: str, adapt: str | None = STILL, **rest: object) -> Case:
    inner = Descent(steps=3, lr=5e-3, learn_lr="per_tensor", momentum=0.5, samples=2, adapt=adapt)
    return make_case(module, Gaussian(), inner, AmortizedELBO(3), stochastic=stochastic, **rest)


CASES = {
    "learned trunk": (lambda: head_case(deep(), "4.*"), 4),
    "learned trunk, micro-batches": (lambda: head_case(deep(), "4.*", micro_batch=2, support=5, query=3), 4),
    "learned trunk, examples one by one": (lambda: head_case(deep(), "4.*", micro_batch=1), 4),
    "partially frozen trunk": (lambda: head_case(frozen(deep(), "0.weight", "0.bias"), "4.*"), 4),
    "frozen weight, learned bias": (lambda: head_case(frozen(deep(), "0.weight", "2.weight"), "4.*"), 4),
    "frozen trunk": (lambda: head_case(frozen(deep(), "0.weight", "0.bias", "2.weight", "2.bias"), "4.*"), 4),
    "frozen trunk, micro-batches": (
        lambda: head_case(frozen(deep(), "0.weight", "0.bias", "2.weight", "2.bias"), "4.*", micro_batch=2, support=5),
        4,
    ),
    "adapted plain layer before the random one": (lambda: head_case(deep(), "4.*", adapt="2.*"), 2),
    "fixed plain bias beside the random weight": (lambda: head_case(deep(), "4.weight"), 4),
    "fixed plain layer behind the random one": (lambda: head_case(deep(), "2.*"), 2),
    "random first layer": (lambda: head_case(deep(), "0.*"), 0),
    "weight shared between trunk and head": (lambda: head_case(tied_chain(), "2.*"), 2),
    "weight shared within the trunk": (lambda: head_case(tied_chain(), "6.*"), 6),
    "shared weight is random": (lambda: head_case(tied_chain(), r"0\.weight"), 0),
    "stages of its own, a tuple between them": (lambda: head_case(WithStages().double(), "second.*"), 1),
    "stages, micro-batches": (lambda: head_case(WithStages().double(), "second.*", micro_batch=2), 1),
    "no stages": (lambda: head_case(WithoutStages().double(), "second.*"), 0),
    "U-Net": (
        lambda: head_case(UNet(2, 2, width=2, levels=1).double(), "(decoder1|output).*", inputs=(2, 4, 4)),
        3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_split_lies_in_front_of_the_first_parameter_that_moves(name: str) -> None:
    make, stages = CASES[name]
    assert make().problem.trunk_stages == stages


@engines
@pytest.mark.parametrize("name", CASES)
def test_answer_is_that_of_unrolling_which_never_splits(engine: Engine, name: str) -> None:
    case = CASES[name][0]()
    result, expected = solved(engine, case), solved(unrolled, case)
    assert_same(result, expected, case.problem)
    learnable = {name for name, p in case.problem.network.module.named_parameters() if p.requires_grad}
    assert learnable <= {*case.problem.network.layout.names, *result.grads.plain}
    for parameter, grad in result.grads.plain.items():
        assert float(grad.norm()) > 0, f"{parameter} gets no gradient"


@pytest.mark.parametrize("engine", [mixed, keeping(1), keeping(9)])
@pytest.mark.parametrize("name", ["learned trunk", "weight shared between trunk and head", "U-Net"])
def test_a_stack_of_tasks_has_the_mean_of_their_gradients(engine: Engine, name: str) -> None:
    case = CASES[name][0]()
    turned = Task(*(Examples(part.x.flip(0) * 0.7, part.y.flip(0) + 0.1) for part in case.task[:2]), "turned")
    tasks = [case.task, turned]
    stacked = meta_gradient(case.problem, case.theta, tasks, case.noise, engine=engine, stacked=True)
    apart = meta_gradient(case.problem, case.theta, tasks, case.noise, engine=unrolled)
    assert_same_tensors(stacked.grads, apart.grads, case.problem)


@pytest.mark.parametrize(("engine", "runs"), [(mixed, 2), (keeping(1), 1)])
def test_a_stack_runs_its_trunk_for_all_tasks_together(engine: Engine, runs: int) -> None:
    module = chain(Counting(nn.Linear(2, 3)), nn.Tanh(), nn.Linear(3, 2))
    case = make_case(module, inner=Descent(steps=3, lr=5e-3, adapt=STILL), stochastic="2.*", support=5, query=3)
    module[0].calls = module[0].examples = 0
    meta_gradient(case.problem, case.theta, [case.task] * 4, case.noise, engine=engine, stacked=True)
    assert module[0].calls == 2 * runs, "support and query set"
    assert module[0].examples == 4 * (5 + 3) * runs


@engines
def test_a_single_number_in_a_trunk_that_is_not_learned(engine: Engine) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(1.5))

        def forward(self, x: Tensor) -> Tensor:
            return self.factor * x

    case = head_case(nn.Sequential(Scaled(), *chain(nn.Linear(2, 2))).double(), "1.*")
    still = case.replace(problem=replace(case.problem, learn_trunk=False))
    found = solved(engine, still).grads.plain["0.factor"]
    assert found.shape == ()


@engines
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize(("micro_batch", "support_runs", "query_runs"), [(None, 1, 1), (2, 3, 2), (1, 5, 3)])
def test_trunk_runs_once_for_each_example(
    engine: Engine, learned: bool, micro_batch: int | None, support_runs: int, query_runs: int
) -> None:
    module = chain(Counting(nn.Linear(2, 3)), nn.Tanh(), nn.Linear(3, 2))
    module[0].requires_grad_(learned)
    inner = Descent(steps=5, lr=5e-3, samples=2, adapt=STILL)
    case = make_case(module, inner=inner, stochastic="2.*", micro_batch=micro_batch, support=5, query=3)
    module[0].calls = module[0].examples = 0
    solved(engine, case)
    kept = isinstance(engine, Sweep) and engine.keep > 0
    times = 2 if learned and not kept else 1  # once more with a graph, at the very end
    assert module[0].calls == times * (support_runs + query_runs)
    assert module[0].examples == times * (5 + 3)


@engines
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_layers_that_work_in_place_leave_the_features_intact(
    engine: Engine, learned: bool, micro_batch: int | None
) -> None:
    """At the split (the head starts with one), at the end of the trunk, and at the very front."""
    module = chain(nn.ReLU(inplace=True), nn.Linear(2, 4), nn.SiLU(inplace=True), nn.Linear(4, 3), InPlaceHead())
    if not learned:
        for index in (1, 3):
            module[index].requires_grad_(False)
    inner = Descent(steps=4, lr=5e-3, samples=2, adapt=STILL)
    case = make_case(module, inner=inner, stochastic=r"4\..*", micro_batch=micro_batch)
    assert case.problem.trunk_stages == 4
    before = [tensor.clone() for part in case.task[:2] for tensor in part]
    assert_same(solved(engine, case), solved(unrolled, case), case.problem)
    for tensor, old in zip([tensor for part in case.task[:2] for tensor in part], before, strict=True):
        assert torch.equal(tensor, old), "an engine changed the data"


class InPlaceHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(nn.functional.relu(x, inplace=True))


@engines
def test_whole_numbers_go_through_an_embedding_in_the_trunk(engine: Engine) -> None:
    module = chain(nn.Embedding(5, 3), nn.Tanh(), nn.Linear(3, 2))
    case = make_case_of_words(module)
    assert case.problem.trunk_stages == 2
    assert_same(solved(engine, case), solved(unrolled, case), case.problem)


def make_case_of_words(module: nn.Module) -> Case:
    inner = Descent(steps=3, lr=5e-3, adapt=STILL)
    words = module[0]
    module[0] = nn.Linear(2, 3).double()  # to build the case, which draws real inputs
    case = make_case(module, Categorical(), inner, stochastic="2.*", support=4, query=3)
    module[0] = words
    problem = type(case.problem)(type(case.problem.network)(module, "2.*"), Categorical(), inner)
    task = case.task._replace(
        support=case.task.support._replace(x=torch.tensor([0, 3, 1, 3])),
        query=case.task.query._replace(x=torch.tensor([4, 2, 3])),
    )
    return case.replace(problem=problem, theta=problem.initial(task.support.y, 0.3), task=task)


@pytest.mark.parametrize("name", ["learned trunk", "frozen trunk, micro-batches", "no stages", "U-Net"])
def test_adaptation_alone_gives_the_same_weights_with_and_without_a_query_set(name: str) -> None:
    case = CASES[name][0]()
    adapted = adapt(case.problem, case.theta, case.task.support, case.noise)
    alone = adapt(case.problem, case.theta, case.task.support, case.noise, steps=0)
    assert torch.equal(alone.mu, case.theta.mu)
    kl = solved(unrolled, case).terms.kl
    from_adapted = case.theta.kl_from(adapted) / (case.task.support.size + case.task.query.size)
    torch.testing.assert_close(from_adapted, kl, rtol=1e-9, atol=0)

"""The door: what an engine would answer wrongly is refused, with what was found and what to do."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metaprior.likelihoods import NOISE_RHO, Gaussian
from metaprior.metagrad import Descent, NonFinite, Problem, adapt, checkpointed, mixed, plan, twice_reverse, unrolled
from metaprior.metagrad.problem import Engine
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.tasks.task import Examples, Task
from metaprior.weights import WeightDistribution

engines = pytest.mark.parametrize("engine", [unrolled, checkpointed, mixed, twice_reverse], ids=lambda e: e.name)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def examples(count: int) -> Examples:
    x = torch.randn(count, 2, dtype=torch.float64)
    return Examples(x, x[:, :1])


def given(
    module: nn.Module | None = None, stochastic: str = "2.*", **inner: object
) -> tuple[Problem, WeightDistribution, Task]:
    network = BayesianNetwork(module or net(), stochastic)
    problem = Problem(network, Gaussian(), Descent(2, 1e-3, **inner))  # type: ignore[arg-type]
    task = Task(examples(4), examples(3), "a task")
    return problem, problem.initial(task.support.y), task


class Forward(nn.Module):
    """A layer, and something else that happens in forward."""

    def __init__(self, also: str) -> None:
        super().__init__()
        self.layer, self.also = nn.Linear(2, 1), also
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if self.also == "noise":
            return F.dropout(y)
        self.calls += 1  # type: ignore[operator]
        return y + self.calls


@pytest.mark.parametrize(("also", "why"), [("noise", "draws random numbers"), ("state", "changes its buffers")])
def test_a_forward_that_is_not_repeatable(also: str, why: str) -> None:
    problem, _, task = given(Forward(also).double(), ".*")
    with pytest.raises(ValueError, match=f"two answers .* it {why}"):
        problem.check(task)


@engines
def test_dropout_switched_on_after_the_problem_was_made(engine: Engine) -> None:
    module = nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.5)).double().eval()
    problem, theta, task = given(module, ".*")
    module.train()
    with pytest.raises(ValueError, match="draws noise of its own"):
        engine(problem, theta, task, Noise())


@engines
def test_theta_has_what_the_problem_needs_and_nothing_else(engine: Engine) -> None:
    problem, theta, task = given(learn_lr=True)
    for name in ("0.bias", NOISE_RHO):
        less = theta.replace(plain={key: value for key, value in theta.plain.items() if key != name})
        with pytest.raises(ValueError, match=rf"theta.plain lacks \['{name}'\]"):
            engine(problem, less, task, Noise())
    more = theta.replace(plain={**theta.plain, "likelyhood.rho": torch.zeros(())})
    with pytest.raises(ValueError, match=r"has \['likelyhood.rho'\], which this problem does not know"):
        engine(problem, more, task, Noise())
    with pytest.raises(ValueError, match=r"theta.mu has shape \(3,\), this network needs \(4,\)"):
        engine(problem, theta.replace(mu=theta.mu[:3]), task, Noise())
    wrong = theta.replace(log_lr=torch.zeros(50, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"log_lr must have shape \(7,\) .*got \(50,\)"):
        engine(problem, wrong, task, Noise())
    with pytest.raises(ValueError, match=r"log_lr must have shape \(7,\) .*got None"):
        engine(problem, theta.replace(log_lr=None), task, Noise())


def test_order_of_names_in_theta_does_not_matter() -> None:
    problem, theta, task = given(learn_lr=True)
    theta = theta.replace(log_lr=torch.linspace(-8, -6, 7, dtype=torch.float64))
    backwards = theta.replace(plain=dict(reversed(theta.plain.items())))
    values = [mixed(problem, t, task, Noise()).or_raise() for t in (theta, backwards)]
    assert torch.equal(values[0].grads.log_lr, values[1].grads.log_lr)
    assert torch.equal(values[0].loss, values[1].loss)


@engines
def test_targets_are_never_broadcast_or_cut(engine: Engine) -> None:
    problem, theta, task = given()
    flat = task._replace(query=Examples(task.query.x, task.query.y[:, 0]))
    with pytest.raises(ValueError, match=r"targets must have the predictions' shape \(3, 1\), got \(3,\)"):
        engine(problem, theta, flat, Noise())
    longer = task._replace(support=Examples(task.support.x, task.support.y.repeat(2, 1)))
    with pytest.raises(ValueError, match=r"targets must have the predictions|4 inputs and 8 targets"):
        engine(problem, theta, longer, Noise())


def test_patterns_that_match_nothing() -> None:
    with pytest.raises(ValueError, match=r"adapt='0' matches none of the plain parameters, which are 0.weight, 0.bias"):
        given(adapt="0")
    assert given(adapt=None)[0].adapted_names == []
    assert given(adapt=r"0\.bias")[0].adapted_names == ["0.bias"]


def test_names_that_have_another_use() -> None:
    module = nn.Module()
    module.likelihood = nn.Module()
    module.likelihood.rho = nn.Parameter(torch.zeros(2))
    module.forward = lambda x: x * module.likelihood.rho
    with pytest.raises(ValueError, match=r"a parameter called 'likelihood.rho'"):
        Problem(BayesianNetwork(module), Gaussian())


class Named(nn.Module):
    """Parameters called mu and rho, one of them a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.mu, self.rho = nn.Linear(2, 1), nn.Parameter(torch.ones(3)), nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.rho + self.mu.sum()


@pytest.mark.parametrize("stochastic", ["layer.*", ".*"])
def test_any_name_and_any_shape(stochastic: str) -> None:
    problem, theta, task = given(Named().double(), stochastic)
    expected = unrolled(problem, theta, task, Noise()).or_raise()
    for engine in (checkpointed, mixed, twice_reverse):
        value = engine(problem, theta, task, Noise()).or_raise()
        torch.testing.assert_close(value.grads.mu, expected.grads.mu, rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(value.grads.plain, expected.grads.plain, rtol=1e-10, atol=1e-13)


class Flattening(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1)  # fails for no observations


def test_an_empty_query_set_never_reaches_the_trunk() -> None:
    module = nn.Sequential(Flattening(), nn.Linear(2, 1)).double()
    problem, theta, task = given(module, ".*")
    assert problem.trunk_stages == 1
    assert not isinstance(adapt(problem, theta, task.support, Noise()), NonFinite)
    assert plan(problem, theta, task, "64GiB").choice.peak > 0
    with pytest.raises(ValueError, match="steps must be an integer"):
        adapt(problem, theta, task.support, Noise(), steps=-3)


class Behind(nn.Module):
    """Its stages read a parameter that is not theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.scale = nn.Linear(2, 2), nn.Linear(2, 1), nn.Parameter(torch.ones(()))

    def stages(self) -> list[nn.Module]:
        return [self.first, self.second]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x))
        return y * self.scale


class Other(Behind):
    """Stages that are not what forward does."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x)).tanh()
        return y


def test_stages_that_are_not_the_module() -> None:
    with pytest.raises(ValueError, match=r"Behind.stages\(\) leaves out parameters: scale"):
        given(Behind().double(), "second.*", adapt=None)[0].trunk_stages  # noqa: B018
    other = Other().double()
    del other.scale
    problem, _, task = given(other, "second.*", adapt=None)
    with pytest.raises(ValueError, match=r"stages\(\) does not give what forward gives"):
        problem.check(task)


def test_a_layer_called_stages_is_no_method() -> None:
    module = net()
    module.stages = nn.Linear(1, 1).double()  # an attribute, as other libraries have it
    problem, _, _ = given(nn.Sequential(module, nn.Linear(1, 1).double()), "1.*", adapt=None)
    assert problem.trunk_stages == 1


def test_or_raise() -> None:
    problem, theta, task = given()
    bad = task._replace(query=Examples(task.query.x, task.query.y + torch.inf))
    with pytest.raises(FloatingPointError, match="a task: the nll_query became inf"):
        mixed(problem, theta, bad, Noise()).or_raise()

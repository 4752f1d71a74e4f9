"""Networks that return several tensors, with a likelihood of one's own that takes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import metaprior as mp
from metaprior.forecasts import GaussianForecast
from metaprior.likelihoods import Gaussian, Likelihood
from tests.several_inputs import examples, task


class TwoHeads(nn.Module):
    """A mean and a scale from a head each, as a tuple or a dictionary."""

    def __init__(self, named: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mean, self.scale, self.named = nn.Linear(5, 1).double(), nn.Linear(5, 1).double(), named

    def forward(self, x: Tensor) -> Any:
        mean, scale = self.mean(x), self.scale(x)
        return {"mean": mean, "scale": scale} if self.named else (mean, scale)


@dataclass(frozen=True)
class OfTwoHeads(Likelihood):
    """A Gaussian whose mean and scale are two outputs."""

    continuous: ClassVar[bool] = True
    several_outputs: ClassVar[bool] = True

    def elementwise_nll(self, outputs: Any, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        mean, rho = outputs.values() if isinstance(outputs, dict) else outputs
        scale = F.softplus(rho)
        return 0.5 * ((targets - mean) / scale) ** 2 + scale.log()

    def forecast(self, outputs: Any, parameters: Mapping[str, Tensor]) -> GaussianForecast:
        mean, rho = outputs.values() if isinstance(outputs, dict) else outputs
        return GaussianForecast(mean, F.softplus(rho))

    def check_targets(self, targets: Tensor, output_shape: Any) -> Tensor:
        mean, _ = output_shape.values() if isinstance(output_shape, dict) else output_shape
        return Gaussian().check_targets(targets, mean)


def of_tasks(method: mp.MetaLearner) -> Any:
    own = [task(number) for number in range(4)]
    method.fit(own, epochs=2, tasks_per_epoch=4, meta_batch=2, search_step_size=False, progress=False)
    return method.evaluate(own, progress=False).rows, method.adapt(own[0].support).predict(own[0].query.x)


def of_one_table(method: mp.BayesByBackprop) -> Any:
    data = examples(20, 1)
    method.fit(*data, epochs=3, batch_size=8, validation=0.2, progress=False)
    return method.evaluate(*data).rows, method.predict(data.x)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.layer(torch.cat([x, y], 1))


def learner(module: nn.Module, likelihood: Likelihood, adaptation: Any) -> Any:
    return of_tasks(mp.MetaLearner(module, likelihood, adaptation=adaptation))


METHODS: dict[str, Callable[[nn.Module, Likelihood], Any]] = {
    "BayesByBackprop": lambda *own: of_one_table(mp.BayesByBackprop(*own)),
    "Descent": lambda *own: learner(*own, mp.Descent(steps=2, lr=0.05)),
    "Context": lambda *own: learner(*own, mp.Context(size=4, encoder=Pair())),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_likelihood_of_ones_own_takes_several_outputs(method: str) -> None:
    (rows, forecast), (others, other) = (METHODS[method](TwoHeads(named), OfTwoHeads()) for named in (False, True))
    assert [row["nll"] for row in rows] == [row["nll"] for row in others]
    assert torch.equal(forecast.std, other.std)


@pytest.mark.parametrize("method", METHODS)
def test_other_likelihoods_refuse_several_outputs(method: str) -> None:
    with pytest.raises(TypeError, match="must return one tensor for this likelihood, got a tuple of 2"):
        METHODS[method](TwoHeads(named=False), mp.Gaussian())


def test_a_closed_form_refuses_several_outputs() -> None:
    with pytest.raises((TypeError, ValueError)):
        of_tasks(mp.MetaLearner(TwoHeads(named=False), mp.Gaussian(), adaptation=mp.ClosedForm()))


@pytest.mark.parametrize("named", [False, True])
def test_few_weight_samples_of_several_outputs(named: bool) -> None:
    method = mp.BayesByBackprop(TwoHeads(named), OfTwoHeads())
    data = examples(20, 1)
    weights = torch.arange(20.0, dtype=torch.float64) % 3
    method.fit(*data, sample_weight=weights, epochs=3, batch_size=8, progress=False)
    small = method.posterior_.compress(20, *data, candidates=200)
    assert small.loss.mean < 0.05
    assert abs(small.loss.nll) < 0.05

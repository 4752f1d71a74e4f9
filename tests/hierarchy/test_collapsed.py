"""The log evidence of tasks under a whitened theta, against dense Gaussians, finite differences and quadrature."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.func import functional_call

import metaprior as mp
from metaprior.hierarchy.collapsed import CollapsedModel, TaskStack
from metaprior.network import NOTHING_RANDOM

OUTPUTS = 2
LIKELIHOODS = [mp.Gaussian(noise=0.3), mp.Gaussian(noise=(0.2, 0.5)), mp.Gaussian(), mp.Gaussian(per_channel=True)]


def normals(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def some_tasks(sizes: tuple[int, ...] = (3, 1, 12)) -> list[mp.Examples]:
    return [mp.Examples(normals(i, n, 1), normals(10 + i, n, OUTPUTS)) for i, n in enumerate(sizes)]


def model_of(likelihood: mp.Likelihood, module: nn.Module | None = None, **prior: Any) -> CollapsedModel:
    torch.manual_seed(0)
    outputs = 2 * OUTPUTS if isinstance(likelihood, mp.HeteroscedasticGaussian) else OUTPUTS
    module = module or nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.LayerNorm(3), nn.Linear(3, outputs))
    network = mp.BayesianNetwork(module.double(), NOTHING_RANDOM)
    return CollapsedModel.of(network, likelihood, mp.CollapsedHyperprior(**{"rank": 2, **prior}))


def draws(model: CollapsedModel, count: int = 3) -> Tensor:
    return normals(7, count, model.whitening.dimension)


def dense_log_evidence(model: CollapsedModel, z: Tensor, task: mp.Examples) -> Tensor:
    """Return log p(D_i | theta) for one z: for each output the density of its targets under a Gaussian."""
    theta = model.whitening.theta(z[None])
    module = model.head.network.module
    front = {name: value[0] for name, value in theta.trunk.items()}
    features = functional_call(nn.Sequential(*list(module)[:-1]), front, (task.x,))  # type: ignore[call-overload]
    features = torch.cat([features, torch.ones(task.size, 1, dtype=torch.float64)], 1)
    scales = model.whitening.scales(theta, features[None])[0].expand(task.size, -1)
    total = torch.zeros((), dtype=torch.float64)
    for c in range(OUTPUTS):
        spread = features @ theta.factor[0, c]
        covariance = spread @ spread.T + torch.diag(scales[:, c] ** 2)
        total = total + MultivariateNormal(features @ theta.mean[0, c], covariance).log_prob(task.y[:, c])
    return total


@pytest.mark.parametrize("likelihood", [*LIKELIHOODS, mp.HeteroscedasticGaussian()])
def test_log_evidence_equals_dense_gaussians(likelihood: mp.Likelihood) -> None:
    model, tasks = model_of(likelihood), some_tasks()
    z = draws(model)
    expected = torch.stack(
        [sum((dense_log_evidence(model, row, task) for task in tasks), z.new_zeros(())) for row in z]
    )
    torch.testing.assert_close(model.log_evidence(z, TaskStack.of(tasks)), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("likelihood", [LIKELIHOODS[0], LIKELIHOODS[2], mp.HeteroscedasticGaussian()])
def test_gradients_agree_with_finite_differences(likelihood: mp.Likelihood) -> None:
    model, stack = model_of(likelihood), TaskStack.of(some_tasks())
    z = (0.5 * draws(model, 2)).requires_grad_()
    torch.autograd.gradcheck(lambda at: model.log_evidence(at, stack), (z,), rtol=1e-5, atol=1e-6)


def test_missing_targets_count_like_absent_ones() -> None:
    """NaN in one output of a row leaves the other; a NaN row leaves nothing."""
    model, (task, *_) = model_of(mp.Gaussian(noise=0.3)), some_tasks((5,))
    holes, z = task.y.clone(), draws(model)
    holes[1, 0], holes[3] = torch.nan, torch.nan
    found = model.log_evidence(z, TaskStack.of([mp.Examples(task.x, holes), *some_tasks((2,))]))
    alone = []
    for c, rows in ((0, [0, 2, 4]), (1, [0, 1, 2, 4])):
        only = torch.full((len(rows), OUTPUTS), torch.nan, dtype=torch.float64)
        only[:, c] = task.y[rows, c]
        alone.append(model.log_evidence(z, TaskStack.of([mp.Examples(task.x[rows], only)])))
    expected = alone[0] + alone[1] + model.log_evidence(z, TaskStack.of(some_tasks((2,))))
    torch.testing.assert_close(found, expected)


def test_posteriors_are_mixtures_over_the_sizes_of_tasks() -> None:
    """Every size is a prior whose factor is multiplied by it; weights are shares times evidence."""
    model, tasks = model_of(mp.Gaussian(noise=0.3)), TaskStack.of(some_tasks((4, 2)))
    theta = model.whitening.theta(draws(model))
    found = model.posterior(theta, tasks)
    evidence = [
        model.posterior(theta._replace(factor=size * theta.factor), tasks, sizes=False).log_evidence
        for size in (0.5, 1.0, 2.0)
    ]
    shares = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64).log()
    torch.testing.assert_close(found.log_weights, (torch.cat(evidence, -1) + shares).log_softmax(-1))


class Residual(nn.Module):
    """Adds its input to its last layer, which has no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1, 3), nn.Linear(3, OUTPUTS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x + self.last(self.first(x).tanh())  # type: ignore[no-any-return]


def test_what_a_network_adds_to_its_last_layer_is_subtracted_from_the_targets() -> None:
    model, (task, *_) = model_of(mp.Gaussian(noise=0.3), Residual()), some_tasks((4,))
    plain = nn.Sequential(model.head.network.module.first, nn.Tanh(), model.head.network.module.last)  # type: ignore[arg-type]
    other = model_of(mp.Gaussian(noise=0.3), plain)
    z = draws(model)
    assert model.whitening.features == other.whitening.features == 3
    moved = mp.Examples(task.x, task.y - 2 * task.x)
    torch.testing.assert_close(
        model.log_evidence(z, TaskStack.of([task])), other.log_evidence(z, TaskStack.of([moved]))
    )


def test_a_typical_theta_gives_outputs_of_order_one() -> None:
    model = model_of(mp.Gaussian(), mp.MLP(1, [20, 20], OUTPUTS, activation="tanh"))
    theta = model.whitening.theta(draws(model, 500))
    found = model.prior(theta).predict(model.features(theta, normals(1, 20, 1)).values.unsqueeze(1))
    std = (found.variance.mean() + found.mean.var()).sqrt()
    assert 0.3 < float(std) < 3


def test_head_must_be_a_layer_and_the_likelihood_gaussian() -> None:
    with pytest.raises(ValueError, match="Linear or Conv2d"):
        model_of(mp.Gaussian(), nn.Sequential(nn.LayerNorm(1)))
    for likelihood in (mp.Categorical(), mp.Bernoulli(), mp.CRPSGaussian()):
        with pytest.raises(TypeError, match=r'Gaussian\(\) or HeteroscedasticGaussian\(\).*Try local="explicit"'):
            model_of(likelihood)


@pytest.mark.parametrize(("name", "value"), [("rank", 0), ("floor", 0.0), ("log_scale_std", float("nan"))])
def test_invalid_hyperpriors_raise(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        mp.CollapsedHyperprior(**{name: value})  # type: ignore[arg-type]

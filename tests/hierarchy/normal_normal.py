r"""The normal-normal hierarchy with its exact answers, as a network of one weight.

$\mu \sim N(0, \kappa^2)$, $\phi_i \sim N(\mu, \tau^2)$, $y_{ij} \sim N(\phi_i, s^2)$: given the scales everything is
jointly Gaussian.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import metaprior as mp

KNOWN = 1e-6
"""Relative uncertainty of a scale that is as good as known."""


def one_weight(value: float = 0.5) -> nn.Module:
    module = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(module.weight, value)
    return module


@dataclass(frozen=True)
class NormalNormal:
    """Data drawn from the model, ``sizes[i]`` for task i."""

    sizes: tuple[int, ...]
    noise: float = 1.0
    tau: float = 0.7
    kappa: float = 3.0
    seed: int = 0

    @cached_property
    def y(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
        phis = 1.5 + self.tau * draw(len(self.sizes))
        return [phi + self.noise * draw(size) for phi, size in zip(phis, self.sizes, strict=True)]

    @property
    def tasks(self) -> dict[str, tuple[Tensor, Tensor]]:
        return {f"task {i}": (torch.ones(len(y), 1, dtype=torch.float64), y) for i, y in enumerate(self.y)}

    @property
    def means(self) -> Tensor:
        return torch.stack([y.mean() for y in self.y])

    @property
    def data_precision(self) -> Tensor:
        return torch.tensor(self.sizes, dtype=torch.float64) / self.noise**2

    @cached_property
    def precision(self) -> Tensor:
        """Of the exact posterior of (mu, phi_1, .., phi_M), the scale tau known."""
        count, held = len(self.sizes), self.tau**-2
        matrix = torch.diag(torch.cat([torch.tensor([count * held + self.kappa**-2]), self.data_precision + held]))
        matrix[0, 1:] = matrix[1:, 0] = -held
        return matrix

    @property
    def exact_means(self) -> Tensor:
        return torch.linalg.solve(self.precision, torch.cat([torch.zeros(1), self.data_precision * self.means]))

    @property
    def exact_variances(self) -> Tensor:
        return torch.linalg.inv(self.precision).diagonal()

    @property
    def mean_field_variances(self) -> Tensor:
        return 1 / self.precision.diagonal()

    @property
    def mean_field_gap(self) -> float:
        """By how much the best factorised Gaussian's bound falls short of the log evidence."""
        return 0.5 * float(self.precision.diagonal().log().sum() - torch.logdet(self.precision))

    def log_evidence(self, taus: Tensor) -> Tensor:
        """log p(D | tau) for every tau, mu and all phi integrated out."""
        owner = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))
        same = (owner[:, None] == owner).double()
        alike = self.kappa**2 + self.noise**2 * torch.eye(len(owner), dtype=torch.float64)
        covariance = taus.view(-1, 1, 1) ** 2 * same + alike
        return MultivariateNormal(torch.zeros(len(owner), dtype=torch.float64), covariance).log_prob(torch.cat(self.y))

    def with_known_scale(self) -> mp.GaussianHyperprior:
        return mp.GaussianHyperprior(mean_std=self.kappa, scale=self.tau, log_scale_std=KNOWN)

    def fitted(self, hyperprior: mp.GaussianHyperprior, **settings: Any) -> mp.HierarchicalVI:
        """Few steps with many samples, as fast as they go."""
        usual = {"epochs": 60, "local_steps": 3, "task_batch": 100, "lr": 0.1, "samples": 8, "kl_warmup": 0.0}
        hvi = mp.HierarchicalVI(one_weight(), mp.Gaussian(noise=self.noise), hyperprior=hyperprior, standardize=False)
        return hvi.fit(self.tasks, **{**usual, **settings}, progress=False)


def posteriors(hvi: mp.HierarchicalVI) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of all tasks' only weight."""
    weights = [hvi.posterior(name).weights for name in hvi.task_names_]
    return torch.cat([q.mu for q in weights]), torch.cat([q.sigma for q in weights])


def expected_elbo(model: NormalNormal, hvi: mp.HierarchicalVI) -> float:
    r"""The bound at the present psi and posteriors, $E_q$ of squares in closed form."""
    mu, sigma = posteriors(hvi)
    squares = torch.stack([((y - m) ** 2 + s**2).sum() for y, m, s in zip(model.y, mu, sigma, strict=True)]).sum()
    nll = float(0.5 * squares / model.noise**2) + sum(model.sizes) * math.log(model.noise * math.sqrt(2 * math.pi))
    kl = sum(float(hvi.psi_.kl_from(hvi.posterior(name).weights)) for name in hvi.task_names_)
    return -(nll + kl + hvi.psi_.kl_to(hvi.model.hyperprior))

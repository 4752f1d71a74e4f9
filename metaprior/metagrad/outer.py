"""The outer loss at lambda^(K), with its derivatives by lambda, by theta as a prior, and by what is fixed."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.hyperprior import NormalGammaHyperprior
from metaprior.metagrad.adaptation import Adaptation
from metaprior.metagrad.data_loss import FixedCotangent
from metaprior.metagrad.inner_step import add_kl_gradient, out_of_weight_space, parts, sample
from metaprior.metagrad.problem import PARTS, OuterTerms
from metaprior.metagrad.products import add_gradient
from metaprior.weights import Parameters, WeightDistribution


@dataclass
class Cotangents:
    """Derivatives of the outer loss by lambda at some step (v), by theta as a prior, and by what does not move."""

    v: Parameters
    fixed: FixedCotangent
    _theta: Parameters | None = None

    @property
    def theta(self) -> Parameters:
        """By theta as a prior; made when it is first asked for, because it is as large as v."""
        if self._theta is None:
            self._theta = self.v.zeros()
        return self._theta


def differentiate_outer_loss(run: Adaptation, state: Parameters) -> tuple[OuterTerms, Cotangents]:
    """Value (for each task of a stack) and cotangents at ``state``."""
    objective = run.problem.objective
    factors = objective.weights(run.data.observations("support"), run.data.observations("query"))
    zero = torch.zeros_like(state.mu[..., 0])
    cotangents = Cotangents(state.zeros(), run.data.fixed_cotangent())
    nll = {part: zero.clone() for part in PARTS}
    shares = _predictive_shares(run, state) if objective.predictive else None
    for number in range(objective.samples):
        noise = run.draw_outer(0, number)
        point, g = run.data.point(sample(state, noise), state.plain), torch.zeros_like(state.mu)
        for part in PARTS:
            factor = getattr(factors, part) / objective.samples
            if not factor:
                continue
            if shares is None:
                nll[part] += factor * _accumulate(run, part, point, factor, g, cotangents)
            else:
                factor = factor * objective.samples
                nll[part] = factor * shares[part].nll
                _accumulate(run, part, point, factor * shares[part].of_samples[number], g, cotangents)
        out_of_weight_space(state, cotangents.v, g, noise.mul_(g))
    kl = add_kl_gradient(state, run.theta, cotangents.v, cotangents.theta, factors.kl) if factors.kl else zero
    hyper = zero
    if factors.hyperprior and objective.hyperprior is not None:
        hyper = zero + _add_hyperprior(objective.hyperprior, run.theta, cotangents.theta, factors.hyperprior)
    return OuterTerms(nll["support"], nll["query"], kl, hyper), cotangents


def _accumulate(
    run: Adaptation, part: str, point: list[Tensor], factor: float | Tensor, g: Tensor, cotangents: Cotangents
) -> Tensor:
    """Add factor (one number, or one for each observation) times the gradient of one set's data term.

    Returns the term without the factor.
    """
    total, into = torch.zeros_like(g[..., 0]), run.data.point(g, cotangents.v.plain)
    for chunk in run.data.chunks(part):
        into_fixed = run.data.fixed_views(cotangents.fixed, part, chunk)
        own = factor if isinstance(factor, float) else factor[chunk.window]
        total += add_gradient(chunk, point, own, into, into_fixed)
    return total


class PredictiveShares(NamedTuple):
    r"""$-\log\frac1S\sum_s p(y_n|\phi_s)$ summed over observations, and each sample's share
    $p(y_n|\phi_s) / \sum_{s'} p(y_n|\phi_{s'})$ in it, shape (S, ..., N).

    The derivative of the first is that of the samples' own losses, weighted with their shares.
    """

    nll: Tensor
    of_samples: Tensor


def _predictive_shares(run: Adaptation, state: Parameters) -> dict[str, PredictiveShares]:
    """A first pass over the weight samples, without graphs: memory does not grow with their number."""
    factors = run.problem.objective.weights(run.data.observations("support"), run.data.observations("query"))
    samples, losses = run.problem.objective.samples, dict[str, list[Tensor]]()
    with torch.no_grad():
        for number in range(samples):
            point = run.data.point(sample(state, run.draw_outer(0, number)), state.plain)
            for part in PARTS:
                if getattr(factors, part):
                    pieces = [chunk.losses(point, chunk.fixed) for chunk in run.data.chunks(part)]
                    losses.setdefault(part, []).append(torch.cat(pieces, -1))
    log_p = {part: -torch.stack(values) for part, values in losses.items()}
    return {
        part: PredictiveShares((math.log(samples) - value.logsumexp(0)).sum(-1), value.softmax(0))
        for part, value in log_p.items()
    }


def _add_hyperprior(
    hyperprior: NormalGammaHyperprior, theta: WeightDistribution, into: Parameters, factor: float
) -> Tensor:
    """-factor * log p(theta), a sum over weights and so worked on in parts."""
    value = torch.zeros_like(theta.mu[0])
    for part in parts(theta.mu):
        mu, rho = (x[part].detach().requires_grad_() for x in (theta.mu, theta.rho))
        with torch.enable_grad():
            loss = -factor * hyperprior.log_prob(WeightDistribution(mu, rho))
        grads = torch.autograd.grad(loss, (mu, rho))
        into.mu[..., part] += grads[0]
        into.rho[..., part] += grads[1]
        value += loss.detach()
    return value

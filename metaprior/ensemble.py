"""Several networks as one that predicts: an ensemble of Bayesian networks."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import nn

from metaprior.forecasts import Forecast
from metaprior.inputs import Inputs
from metaprior.network import BayesianNetwork
from metaprior.noise import Noise
from metaprior.posterior import Posterior, Predictive
from metaprior.weights import WeightDistribution


@dataclass(frozen=True, repr=False)
class EnsemblePosterior(Predictive):
    r"""The even mixture of the posteriors of K networks: $p(y|x) = \frac1K \sum_k E_{q_k(w)}[p(y|x, w)]$.

    Members are in the network's units, each with a spread of its own; the samples of a forecast are divided evenly
    among them.
    """

    members: tuple[Posterior, ...]

    def _facts(self) -> list[str]:
        return [f"members: {len(self.members)}", *self.members[0]._facts()]

    def network_forecast(self, inputs: Inputs, samples: int, seed: int, batch_size: int | None) -> Forecast:
        """Return the mixture of the members' forecasts, each of at least two draws of its weights."""
        each = max(2, -(-samples // len(self.members)))
        seeds = [seed, *(Noise(seed).fork(f"member {k}").seed for k in range(1, len(self.members)))]
        forecasts = [
            member.network_forecast(inputs, each, own, batch_size)
            for member, own in zip(self.members, seeds, strict=True)
        ]
        spreads = [member.spread for member in self.members]
        return Forecast.mixture(
            [own.widened(spread) if spread != 1 else own for own, spread in zip(forecasts, spreads, strict=True)]
        )

    def pruned(self, fraction: float) -> "EnsemblePosterior":
        """Return the ensemble whose members are pruned (``Posterior.pruned``)."""
        return replace(self, members=tuple(member.pruned(fraction) for member in self.members))


def fresh_start(network: BayesianNetwork, relative_sigma: float, seed: int) -> WeightDistribution:
    """Return ``network.initial`` of the same module with learnable parameters drawn anew, as their layers draw them.

    They are drawn on the CPU, so that all devices have the same; torch's global generators are left as they are.
    """
    module = copy.deepcopy(network.module).cpu()
    before = {name: value.detach().clone() for name, value in module.named_parameters()}
    drawn = set[int]()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)
        for part in module.modules():
            if callable(getattr(part, "reset_parameters", None)):
                part.reset_parameters()  # type: ignore[operator]
                drawn |= {id(value) for value in part.parameters(recurse=False)}
        kept = [name for name, own in module.named_parameters() if own.requires_grad and id(own) not in drawn]
        if kept:
            raise ValueError(
                f"members must be 1 for a module whose parameters cannot be drawn anew, got {type(module).__name__} "
                f"with {kept[0]!r}. Try a method reset_parameters() on the part that holds them."
            )
        for name, own in module.named_parameters():
            if not own.requires_grad:
                own.copy_(before[name])
    return BayesianNetwork(nn.Module.to(module, network.device), network.stochastic).initial(relative_sigma)

"""Several networks as one that predicts: an ensemble of Bayesian networks."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from metaprior import checks
from metaprior.checks import ArrayLike, InputsLike
from metaprior.compression import CompressionLoss
from metaprior.exporting import exported
from metaprior.forecasts import Forecast
from metaprior.inputs import Inputs
from metaprior.network import BayesianNetwork, evaluation_mode
from metaprior.noise import Noise
from metaprior.posterior import CANDIDATES, DEFAULT_SAMPLES, Posterior, Predictive
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
        shares = zip(self.members, self._seeds(seed), strict=True)
        each = self._each(samples)
        return self._mixture([member.network_forecast(inputs, each, own, batch_size) for member, own in shares])

    def _each(self, samples: int) -> int:
        """Return the number of one member's weight samples."""
        return max(2, -(-samples // len(self.members)))

    def _seeds(self, seed: int) -> list[int]:
        """Return the seeds of the members."""
        return [seed, *(Noise(seed).fork(f"member {k}").seed for k in range(1, len(self.members)))]

    def _mixture(self, forecasts: Sequence[Forecast]) -> Forecast:
        """Return the mixture of the members' forecasts, each with its member's spread."""
        spreads = [member.spread for member in self.members]
        return Forecast.mixture(
            [own.widened(spread) if spread != 1 else own for own, spread in zip(forecasts, spreads, strict=True)]
        )

    def compress(
        self, k: int, x: InputsLike, y: ArrayLike | None = None, *, candidates: int = CANDIDATES, seed: int = 0
    ) -> "CompressedEnsemble":
        """Return the ensemble of compressed members, which have k weight samples together (``Posterior.compress``).

        Args:
            k: number of weight samples that are kept, divided evenly among the members: at least 2 of each.
            x: inputs like those that will be predicted, some hundreds.
            y: their targets, for the loss in log-likelihood.
            candidates: number of weight samples to choose from, divided in the same way.
            seed: the same seed gives the same candidates.
        """
        checks.check_integer("k (of an ensemble)", k, 2 * len(self.members))
        if candidates < k:
            raise ValueError(f"candidates must be at least k = {k}, got {candidates}. Try {10 * k}")
        own = [
            member.compress(self._each(k), x, candidates=self._each(candidates), seed=member_seed)
            for member, member_seed in zip(self.members, self._seeds(seed), strict=True)
        ]
        settings = {one.name: getattr(self, one.name) for one in fields(EnsemblePosterior)} | {"members": tuple(own)}
        small = CompressedEnsemble(**settings)
        full = self._forecast(x, candidates, seed)
        return replace(small, loss=CompressionLoss.between(full, small._forecast(x, k, seed), y))

    def export(
        self, path: str | Path | None, x: InputsLike, *, samples: int = DEFAULT_SAMPLES, seed: int = 0
    ) -> ExportedProgram:
        """Return inputs -> (mean, std) of the mixture as a program of torch's own operations (``Posterior.export``).

        Args:
            path: file to write, usually with the ending .pt2; None writes none.
            x: inputs, of which only the type and the shape of one observation count.
            samples: draws of the weights, divided evenly among the members: at least 2 of each.
            seed: the same seed gives the same draws.

        Raises:
            ValueError: torch cannot trace the network.
        """
        checks.check_integer("samples", samples, 2)
        draws = zip(self.members, self._seeds(seed), strict=True)
        each = range(self._each(samples))

        def forecast(x: Inputs, phis: Tensor) -> Forecast:
            own = zip(self.members, phis, strict=True)
            return self._in_user_units(self._mixture([member._forecast_with(x, some) for member, some in own]))

        phis = torch.stack([member._draw(member._noise(member_seed), each) for member, member_seed in draws])
        with evaluation_mode(self.network.module):
            return exported(forecast, phis, self._inputs(x), path)

    def pruned(self, fraction: float) -> "EnsemblePosterior":
        """Return the ensemble whose members are pruned (``Posterior.pruned``)."""
        return replace(self, members=tuple(member.pruned(fraction) for member in self.members))


@dataclass(frozen=True, repr=False)
class CompressedEnsemble(EnsemblePosterior):
    """An ensemble whose members predict with the same few weight samples, whatever number is asked for."""

    loss: CompressionLoss = field(default=CompressionLoss(math.nan, math.nan, None), kw_only=True)
    """The difference from the ensemble it was made of, measured on the inputs that the samples were chosen by."""


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

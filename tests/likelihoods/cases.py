"""One case for each likelihood of the package, for the contract that all of them keep."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

import metaprior as mp
from metaprior.likelihoods import NOISE_RHO, Likelihood
from metaprior.likelihoods.counts import DISPERSION_RHO, LOG_LEVEL
from metaprior.likelihoods.student import FREEDOM_RHO

SAMPLES = 3
"""Weight samples of a forecast."""
CHANNELS = 2
"""Numbers in one observation's target."""


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Case:
    """A likelihood with everything that its contract needs; targets are real numbers unless ``kind`` says otherwise."""

    likelihood: Likelihood
    kind: str = "real"
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    channels: int = CHANNELS
    atoms: tuple[float, ...] = ()
    trained_by_density: bool = True

    @property
    def num_outputs(self) -> int:
        """Outputs of a network for the case's targets."""
        return self.likelihood.num_outputs(3 if self.kind == "classes" else self.channels)

    def outputs(self, *shape: int, seed: int = 0, channels: int | None = None) -> Tensor:
        """Return outputs (*shape, ...) of a network."""
        count = self.num_outputs if channels is None else self.likelihood.num_outputs(channels)
        return normals(*shape, count, seed=seed)

    def targets(self, rows: int, seed: int = 1) -> Tensor:
        """Return valid targets, some of them at an atom."""
        if self.kind == "classes":
            return torch.arange(rows) % 3
        y = normals(rows, self.channels, seed=seed)
        if self.kind == "bits":
            return (y > 0).double()
        if self.kind == "counts":
            return (2 * y).exp().floor()
        if self.kind == "nonnegative":
            return y.clamp_min(0.0)
        return y.clamp(min(self.atoms), max(self.atoms)) if self.atoms else y


HALF = torch.tensor(0.5, dtype=torch.float64)
CASES = {
    "gaussian": Case(mp.Gaussian(), parameters={NOISE_RHO: HALF}),
    "fixed": Case(mp.Gaussian(noise=(0.4, 1.5))),
    "heteroscedastic": Case(mp.HeteroscedasticGaussian()),
    "crps": Case(mp.CRPSGaussian(), trained_by_density=False),
    "balanced": Case(mp.BalancedGaussian(), trained_by_density=False),
    "mixture": Case(mp.GaussianMixture(components=2), channels=1),
    "student": Case(mp.StudentT(), parameters={NOISE_RHO: HALF, FREEDOM_RHO: 12 * HALF}),
    "student_fixed": Case(mp.StudentT(noise=(0.4, 1.5), freedom=9.0)),
    "student_network": Case(mp.StudentT("network", freedom=9.0)),
    "censored": Case(mp.CensoredGaussian(lower=-0.6, upper=0.9), parameters={NOISE_RHO: HALF}, atoms=(-0.6, 0.9)),
    "censored_fixed": Case(mp.CensoredGaussian((0.4, 1.5), lower=-0.6, upper=(0.9, 0.9)), atoms=(-0.6, 0.9)),
    "censored_network": Case(mp.CensoredGaussian("network", lower=-0.6, upper=0.9), atoms=(-0.6, 0.9)),
    "zero_inflated": Case(mp.ZeroInflatedLogNormal(), kind="nonnegative", atoms=(0.0,)),
    "quantiles": Case(mp.Quantiles(), trained_by_density=False),
    "poisson": Case(mp.Poisson(), kind="counts", parameters={LOG_LEVEL: HALF}),
    "negative_binomial": Case(
        mp.NegativeBinomial(), kind="counts", parameters={DISPERSION_RHO: HALF, LOG_LEVEL: -HALF}
    ),
    "negative_binomial_fixed": Case(mp.NegativeBinomial(dispersion=0.3), kind="counts", parameters={LOG_LEVEL: HALF}),
    "categorical": Case(mp.Categorical(), kind="classes"),
    "bernoulli": Case(mp.Bernoulli(), kind="bits"),
}
NUMBERS = [name for name, case in CASES.items() if not case.likelihood.labels]
REAL = [name for name in NUMBERS if CASES[name].kind != "counts"]
COUNTS = [name for name in NUMBERS if CASES[name].kind == "counts"]
NEW = [name for name in NUMBERS if not isinstance(CASES[name].likelihood, mp.Gaussian | mp.HeteroscedasticGaussian)]

r"""How targets meet the last layer's Gaussian posterior: numbers are observed with noise, labels through codes.

Each kind of targets conditions the prior on a support set, scores query targets, and makes forecasts.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior import mixture
from metaprior.adaptation.closed_form import labels
from metaprior.adaptation.closed_form.conjugate import HeadPosterior, condition
from metaprior.adaptation.closed_form.head import Head, Split
from metaprior.adaptation.closed_form.labels import LabelScales
from metaprior.adaptation.closed_form.parameters import LOG_NOISE, RAW_SCALES, prior_of
from metaprior.adaptation.closed_form.rows import Rows
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, Forecast, GaussianForecast
from metaprior.likelihoods import (
    Bernoulli,
    Categorical,
    CRPSGaussian,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
)

Plain = Mapping[str, Tensor]


class Adapted(NamedTuple):
    """The posterior of T tasks (or of one, without that axis), and the scales of their labels."""

    head: HeadPosterior
    label_scales: LabelScales | None = None

    def mixed(self, log_densities: Tensor) -> Tensor:
        """Return the log density (..., n) of the mixture from those of its components, (..., K, n)."""
        return (self.head.log_weights.unsqueeze(-1) + log_densities).logsumexp(-2)


@dataclass(frozen=True)
class Targets(ABC):
    """A likelihood's targets at the outputs of a last layer."""

    likelihood: Likelihood
    head: Head

    @property
    def first_weights(self) -> Tensor:
        """First means of the last layer's weights, a row for every prior: (C, d), or (1, d) for one shared by all."""
        return self.head.weights

    @property
    def outputs(self) -> int:
        """C, the number of the last layer's outputs that have a posterior."""
        return self.head.outputs

    def initial(self) -> dict[str, Tensor]:
        """Return first values of the parameters that these targets need beside the prior."""
        return {}

    def variances(self, plain: Plain, rows: Rows) -> Tensor:
        """Return how much the outputs should vary around the prior's mean, and how much they do, as two sums."""
        nothing = condition(prior_of(plain), rows.features[:0, 0], rows.centre[:0, 0], rows.scale.new_ones(()))
        mean, variance = nothing.predict(rows.features.flatten(0, 1))
        spread = variance.mean(0) + mean.var(0, correction=0)
        return torch.stack([self._wanted_variance(mean.mean(0), rows.flat()), spread.sum()])

    def _wanted_variance(self, mean: Tensor, rows: Rows) -> Tensor:
        """Return the sum over flat rows; codes of labels vary by about one."""
        return mean.new_tensor(float(mean.numel()))

    def check_outputs(self, outputs: Tensor) -> None:
        """Raise if outputs of this shape have their channels where the last layer does not."""
        if outputs.ndim > 2 and isinstance(self.head.layer, torch.nn.Linear):
            raise ValueError(
                f"{type(self.likelihood).__name__} must find channels on axis 1 of the outputs, got shape "
                f"{tuple(outputs.shape)} of a Linear, which has them last. Try a Conv2d with kernel_size=1."
            )

    def codes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return targets (N, ...) and where they are present as rows, (N, P, C)."""
        return self.head.to_rows(y), self.head.to_rows(self.likelihood.present(y))

    @abstractmethod
    def centre_and_scale(self, plain: Plain, split: Split) -> tuple[Tensor, Tensor]:
        """Return what is added to the last layer's outputs, (N, P, C), and noise scales, (N, P, C) or ()."""

    @abstractmethod
    def adapt(self, plain: Plain, support: Rows, temperature: Tensor) -> Adapted:
        """Return the posterior given flat rows of support sets."""

    @abstractmethod
    def log_scores(self, plain: Plain, adapted: Adapted, query: Rows) -> Tensor:
        """Return the log score of each query observation, (T, n); zero where it has no target."""

    @abstractmethod
    def forecast(self, plain: Plain, adapted: Adapted, rows: Rows, like: Tensor) -> Forecast:
        """Return the forecast of one task for rows at the positions of outputs ``like``."""


class Numbers(Targets):
    """Real-valued targets with Gaussian noise, of one scale or of scales that the network gives."""

    @property
    def _heteroscedastic(self) -> bool:
        return isinstance(self.likelihood, HeteroscedasticGaussian)

    @property
    def first_weights(self) -> Tensor:
        """The last layer's own weights; of a layer that gives scales too, those of the means."""
        return self.head.weights.chunk(2)[0] if self._heteroscedastic else self.head.weights

    @property
    def outputs(self) -> int:
        """The number of outputs that are means."""
        return len(self.first_weights)

    def _wanted_variance(self, mean: Tensor, rows: Rows) -> Tensor:
        """Return the summed squares of what the prior's mean leaves open."""
        off = torch.where(rows.present, rows.targets.double() - rows.centre - mean, 0.0)
        return off.square().sum() * (off.numel() / rows.present.sum().clamp_min(1))

    def initial(self) -> dict[str, Tensor]:
        """Return the rows of the last layer that give scales."""
        return {RAW_SCALES: self.head.weights.chunk(2)[1].clone()} if self._heteroscedastic else {}

    def check_outputs(self, outputs: Tensor) -> None:
        """Raise if means and scales are not channels of the last layer."""
        if self._heteroscedastic:
            super().check_outputs(outputs)

    def centre_and_scale(self, plain: Plain, split: Split) -> tuple[Tensor, Tensor]:
        """Return the offset, and the likelihood's or the network's noise scales."""
        centre, likelihood = self.head.to_rows(split.offset), self.likelihood
        if isinstance(likelihood, HeteroscedasticGaussian):
            mean, raw = centre.chunk(2, -1)
            return likelihood.mean_and_scale(torch.cat([mean, raw + split.features @ plain[RAW_SCALES].mT], -1), -1)
        assert isinstance(likelihood, Gaussian)
        scale = likelihood.scale(split.offset.ndim, plain, centre)
        one = scale.numel() == 1
        return centre, scale.reshape(()) if one else self.head.to_rows(scale.expand_as(split.offset))

    def adapt(self, plain: Plain, support: Rows, temperature: Tensor) -> Adapted:
        """Return the exact posterior of the tempered Gaussian likelihood."""
        residual, weights = support.targets.double() - support.centre, support.present * temperature.double()
        return Adapted(condition(prior_of(plain), support.features, residual, self._scale(plain, support), weights))

    def log_scores(self, plain: Plain, adapted: Adapted, query: Rows) -> Tensor:
        """Return log densities under the weighted mixture, or minus the weighted CRPS of each target, summed."""
        flat = query.flat()
        mean, scale, _ = self._components(plain, adapted, flat)
        y = torch.where(flat.present, flat.targets, 0.0).double()
        if isinstance(self.likelihood, CRPSGaussian):
            components = [value.movedim(-3, 0) for value in (mean, scale.expand_as(mean))]
            weights = adapted.head.log_weights.exp().movedim(-1, 0)[..., None, None]
            crps = mixture.crps(components[0], components[1], y, weights)
            return -self.likelihood.weight * query.summed(crps.unsqueeze(-3)).squeeze(-2)
        return adapted.mixed(query.summed(mixture.component_log_density(mean, scale, y.unsqueeze(-3))))

    def forecast(self, plain: Plain, adapted: Adapted, rows: Rows, like: Tensor) -> Forecast:
        """Return the weighted mixture of Gaussians, whose scales have a task part."""
        parts = self._components(plain, adapted, rows.flat())
        shape = rows.features.shape[:2]
        means, scales, task = (self.head.from_rows(part.unflatten(-2, shape), like).to(like) for part in parts)
        return GaussianForecast(means, scales, weights=adapted.head.log_weights.exp(), task_scales=task)

    def _scale(self, plain: Plain, rows: Rows) -> Tensor:
        """Return the noise scales (..., K or 1, n, C) of flat rows."""
        scale = rows.scale.double()
        scale = scale.unsqueeze(-3) if scale.ndim else scale
        return scale * plain[LOG_NOISE].double().exp()[:, None, None] if LOG_NOISE in plain else scale

    def _components(self, plain: Plain, adapted: Adapted, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean, scale and the task's part of the scale of each component at flat rows, (..., K, n, C)."""
        found = adapted.head.predict(rows.features)
        noise = self._scale(plain, rows).square()
        mean = found.mean + rows.centre.double().unsqueeze(-3)
        return mean, (found.variance + noise).sqrt(), found.variance.clamp_min(0.0).sqrt()


class _Labels(Targets):
    """Labels, by regression on their codes."""

    def initial(self) -> dict[str, Tensor]:
        """Return the first scales of noise and logits."""
        return labels.initial(self.head.weights)

    def centre_and_scale(self, plain: Plain, split: Split) -> tuple[Tensor, Tensor]:
        """Return the offset of the logits; the noise scale of codes is that of their task."""
        centre = self.head.to_rows(split.offset)
        return centre, centre.new_ones(())

    @abstractmethod
    def coded(self, plain: Plain, rows: Rows) -> tuple[Tensor, Tensor, LabelScales]:
        """Return codes (..., n, C) of flat rows, where they are present, and the scales of the tasks."""

    def adapt(self, plain: Plain, support: Rows, temperature: Tensor) -> Adapted:
        """Return the exact posterior of the regression on codes."""
        codes, present, scales = self.coded(plain, support)
        noise = scales.noise[..., None, None, None]
        weights = present * temperature.double()
        return Adapted(condition(prior_of(plain), support.features, codes, noise, weights), scales)

    def logits(self, plain: Plain, adapted: Adapted, rows: Rows) -> Tensor:
        """Return calibrated logits (..., K, n, C) at flat rows."""
        found = adapted.head.predict(rows.features)
        assert adapted.label_scales is not None
        return adapted.label_scales.logits(*found, plain) + rows.centre.double().unsqueeze(-3)

    @abstractmethod
    def log_mass(self, logits: Tensor, query: Rows) -> Tensor:
        """Return the log probability of flat query labels, (..., K, n, 1 or C)."""

    def log_scores(self, plain: Plain, adapted: Adapted, query: Rows) -> Tensor:
        """Return log probabilities under the weighted mixture, summed over an observation's labels."""
        flat = query.flat()
        return adapted.mixed(query.summed(self.log_mass(self.logits(plain, adapted, flat), flat)))

    def forecast(self, plain: Plain, adapted: Adapted, rows: Rows, like: Tensor) -> Forecast:
        """Return the weighted mixture of the components' class probabilities."""
        logits: Tensor = self.logits(plain, adapted, rows.flat()).unflatten(-2, rows.features.shape[:2])
        outputs = self.head.from_rows(logits, like).to(like)
        kind = CategoricalForecast if isinstance(self.likelihood, Categorical) else BernoulliForecast
        return kind(outputs, weights=adapted.head.log_weights.exp())


@dataclass(frozen=True)
class Classes(_Labels):
    """Class labels; ``shared`` is one prior for all classes."""

    shared: bool = True

    @property
    def first_weights(self) -> Tensor:
        """Zeros for a shared prior; else the last layer's weights in units of codes."""
        weights = self.head.weights
        return torch.zeros_like(weights[:1]) if self.shared else weights / labels.FIRST_FACTOR

    def codes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return labels (N, ...) and where they are present as rows, (N, P, 1)."""
        rows = y.reshape(len(y), -1, 1)
        return rows, self.likelihood.present(rows)

    def coded(self, plain: Plain, rows: Rows) -> tuple[Tensor, Tensor, LabelScales]:
        """Return centred one-hot codes."""
        own = rows.targets.squeeze(-1).long(), rows.present.squeeze(-1)
        codes, scales = labels.class_codes(*own, self.head.outputs, plain, hide_unseen=self.shared)
        return codes, rows.present, scales

    def log_mass(self, logits: Tensor, query: Rows) -> Tensor:
        """Return the log softmax at the labels."""
        index = torch.where(query.present, query.targets, 0).long().unsqueeze(-3)
        return logits.log_softmax(-1).gather(-1, index.expand(*logits.shape[:-1], 1))


class Bits(_Labels):
    """Labels 0 or 1, independent for each output."""

    @property
    def first_weights(self) -> Tensor:
        """The last layer's weights in units of codes."""
        return self.head.weights / labels.FIRST_FACTOR

    def check_outputs(self, outputs: Tensor) -> None:
        """Accept outputs of any shape: every output is a logit."""

    def coded(self, plain: Plain, rows: Rows) -> tuple[Tensor, Tensor, LabelScales]:
        """Return codes -1 and 1."""
        codes, scales = labels.binary_codes(rows.targets, rows.present, plain)
        return codes, rows.present, scales

    def log_mass(self, logits: Tensor, query: Rows) -> Tensor:
        """Return the log sigmoid of the logit towards each label."""
        ones = query.targets.unsqueeze(-3) > 0.5
        return F.logsigmoid(torch.where(ones, logits, -logits))


def targets_of(likelihood: Likelihood, head: Head, *, shared_classes: bool) -> Targets:
    """Return the targets of a likelihood; raise TypeError for one that a closed form does not know."""
    if isinstance(likelihood, Gaussian | HeteroscedasticGaussian):
        return Numbers(likelihood, head)
    if isinstance(likelihood, Categorical):
        return Classes(likelihood, head, shared_classes)
    if isinstance(likelihood, Bernoulli):
        return Bits(likelihood, head)
    raise TypeError(
        "a closed form must have the likelihood Gaussian, HeteroscedasticGaussian, CRPSGaussian, Categorical or "
        f"Bernoulli, got {type(likelihood).__name__}. Try adaptation=Descent(...)."
    )

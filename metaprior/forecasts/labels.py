"""Forecasts of labels: one of several classes, or yes and no."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior import mixture
from metaprior.checks import ArrayLike
from metaprior.forecasts.forecast import Forecast, levels_of, log_mean_over_samples, targets_like
from metaprior.missing import present_labels


@dataclass(frozen=True, repr=False)
class _LabelForecast(Forecast):
    """A forecast of labels; ``logits`` are the network's outputs, one set for each weight sample."""

    _correction = 0
    logits: Tensor

    def widened(self, factor: float | Tensor) -> Self:
        """Return the forecast with its logits divided by a factor: a temperature, which keeps their order."""
        return replace(self, logits=self.logits / factor)

    @cached_property
    def aleatoric(self) -> Tensor:
        """Spread of the 0/1 outcome when the weights are known: root of the mean of p(1 - p)."""
        return mixture.average(self.samples * (1 - self.samples), self.weights).sqrt()

    def quantile(self, level: float | Sequence[float]) -> Tensor:
        """Return the quantile of the *probability* over weight samples (that of a 0/1 outcome is 0 or 1).

        Among weighted components it is the smallest probability at or below which their weights reach ``level``.
        """
        levels = levels_of(level)
        if self.weights is None:
            found = torch.stack([self.samples.quantile(one, dim=0) for one in levels])
        else:
            ordered, order = self.samples.sort(0)
            reached = self.weights.expand_as(self.samples).gather(0, order).cumsum(0)
            index = [(reached < one).sum(0, keepdim=True).clamp(max=len(reached) - 1) for one in levels]
            found = torch.cat([ordered.gather(0, one) for one in index])
        return found if isinstance(level, Sequence) else found[0]

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Raise TypeError: only real-valued targets have an interval."""
        raise TypeError(
            f"interval must be asked of a forecast of real-valued targets, got a {type(self).__name__}. Try "
            f"probabilities, and quantile({(1 - level) / 2:.3g}) and quantile({(1 + level) / 2:.3g}) of them"
        )

    @abstractmethod
    def _entropy(self, p: Tensor, class_axis: int) -> Tensor: ...

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of the predicted label in nats: total uncertainty."""
        return self._entropy(self.mean, 1)

    @cached_property
    def mutual_information(self) -> Tensor:
        """Mutual information of weights and label in nats: epistemic uncertainty."""
        weights = self.weights
        if weights is not None and weights.ndim > self.entropy.ndim + 1:
            weights = weights.squeeze(-1)
        return self.entropy - mixture.average(self._entropy(self.samples, 2), weights)


class CategoricalForecast(_LabelForecast):
    """Class probabilities; ``logits`` has shape (S, N, C, ...)."""

    @cached_property
    def samples(self) -> Tensor:
        """Class probabilities of each weight sample, shape (S, N, C, ...)."""
        return self.logits.softmax(2)

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities, shape (N, C, ...)."""
        return self.mean

    @property
    def labels(self) -> Tensor:
        """The most probable class."""
        return self.mean.argmax(1)

    def _entropy(self, p: Tensor, class_axis: int) -> Tensor:
        return torch.special.entr(p).sum(class_axis)  # type: ignore[no-any-return]

    def log_prob(self, targets: ArrayLike) -> Tensor:
        """Return the log probability of the labels of each observation."""
        labels = targets_like(targets, self.labels.shape, self.logits).long()
        classes, present = self.logits.shape[2], self.present(labels)
        labels = torch.where(present, labels, 0)
        if labels.min() < 0 or labels.max() >= classes:
            raise ValueError(f"labels must be 0..{classes - 1}, got {labels.min()} to {labels.max()}")
        index = labels.expand(len(self.logits), *labels.shape).unsqueeze(2)
        log_mass = self.logits.log_softmax(2).gather(2, index).squeeze(2)
        return log_mean_over_samples(log_mass, self.weights, present)

    @staticmethod
    def present(targets: Tensor) -> Tensor:
        """Return where labels are not -100."""
        return present_labels(targets)

    def squeezed(self) -> Self:
        """Return the forecast itself: labels have no trailing axis."""
        return self


class BernoulliForecast(_LabelForecast):
    """Probability of a one; ``logits`` has shape (S, N, ...)."""

    @cached_property
    def samples(self) -> Tensor:
        """Probability of a one of each weight sample, shape (S, N, ...)."""
        return self.logits.sigmoid()

    @property
    def probabilities(self) -> Tensor:
        """Probabilities of zero and of one, on a new last axis."""
        return torch.stack([1 - self.mean, self.mean], -1)

    @property
    def labels(self) -> Tensor:
        """The more probable of 0 and 1."""
        return (self.mean > 0.5).long()

    def _entropy(self, p: Tensor, class_axis: int) -> Tensor:
        return torch.special.entr(torch.stack([1 - p, p], -1)).sum(-1)  # type: ignore[no-any-return]

    def log_prob(self, targets: ArrayLike) -> Tensor:
        """Return the log probability of the labels of each observation."""
        labels = targets_like(targets, self.mean.shape, self.logits)
        log_mass = F.logsigmoid(torch.where(labels > 0.5, self.logits, -self.logits))
        return log_mean_over_samples(log_mass, self.weights, self.present(labels))

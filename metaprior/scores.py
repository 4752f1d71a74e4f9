"""Measures of a forecast against targets. Missing targets (NaN, for class labels -100) are not scored.

The two ``Reliability`` classes collect over many forecasts. They store counts, never forecasts, so their memory does
not grow.
"""

from typing import Self

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import check_counts
from metaprior.forecasts import BernoulliForecast, CategoricalForecast, GaussianForecast, MixtureForecast, check_shape
from metaprior.missing import present_numbers

COMPONENTS_AT_ONCE = 2**14
"""Components of mixtures whose CRPS is computed together: 128 KiB in double precision, which a core's cache holds."""


def mean_squared_error(prediction: Tensor, targets: Tensor) -> float:
    """Return the mean of the squared error over all targets."""
    check_shape(targets, prediction.shape)
    return mean_score((prediction - targets).double().square(), present_numbers(targets))


def mean_score(values: Tensor, present: Tensor) -> float:
    """Return the mean of the values whose targets are present (all of them: the plain mean), in double precision."""
    return float((values if bool(present.all()) else values[present]).double().mean())


def crps(forecast: GaussianForecast | MixtureForecast, targets: Tensor) -> Tensor:
    """Return the continuous ranked probability score of the mixture, in the targets' shape and units; lower is better.

    It is NaN for a missing target. That of Gaussians is in closed form, see ``mixture.crps``; others are integrated
    numerically, see ``MixtureForecast.crps``. Targets of Gaussians are worked on in parts, in double precision, so
    memory does not grow with them.
    """
    check_shape(targets, forecast.mean.shape)
    if isinstance(forecast, MixtureForecast):
        return forecast.crps(targets)
    components = forecast.components()
    observed = targets.to(components.means.device).flatten()
    score = torch.empty(len(observed), dtype=components.means.dtype, device=components.means.device)
    size = max(1, COMPONENTS_AT_ONCE // len(components.means))
    for start in range(0, len(score), size):
        part = slice(start, start + size)
        means, scales, weights = components.part(part)
        score[part] = mixture.crps(means, scales, observed[part].double(), weights)
    return score.reshape(forecast.mean.shape)


def confidence(forecast: CategoricalForecast | BernoulliForecast) -> Tensor:
    """Return the probability of the most probable class, in the labels' shape."""
    return forecast.probabilities.amax(1 if isinstance(forecast, CategoricalForecast) else -1)


def error_rate(forecast: CategoricalForecast | BernoulliForecast, labels: Tensor) -> float:
    """Return the share of labels whose most probable class is wrong."""
    check_shape(labels, forecast.labels.shape)
    return mean_score(forecast.labels != labels, forecast.present(labels))


def standard_error(values: Tensor) -> float:
    """Return the standard error of the mean of a vector; NaN for a single value."""
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else torch.nan


class Reliability:
    r"""Confidence against accuracy of class forecasts, collected over many of them.

    $\mathrm{ECE} = \sum_b \frac{n_b}{n}\,|\mathrm{accuracy}_b - \mathrm{confidence}_b|$ over equal-width bins of
    confidence, $low \le c < high$ (Guo et al. 2017). A confidence of exactly 1 has a bin of its own, as in
    torchmetrics, so ``ece`` is that of all the forecasts together.
    """

    def __init__(self, bins: int = 15) -> None:
        check_counts(bins=bins)
        self.bins = bins
        self.sums = torch.zeros(3, bins + 1, dtype=torch.float64)  # confidence, right answers, count

    def add(self, forecast: CategoricalForecast | BernoulliForecast, labels: Tensor) -> None:
        """Count the labels (N, ...) of one more forecast."""
        labels = labels.to(forecast.logits.device)
        check_shape(labels, forecast.labels.shape)
        present = forecast.present(labels)
        sure = confidence(forecast)[present]
        edges = torch.linspace(0, 1, self.bins + 1, dtype=sure.dtype, device=sure.device)
        index = (torch.bucketize(sure, edges, right=True) - 1).cpu()
        right = (forecast.labels == labels)[present]
        values = torch.stack([sure.double(), right.double(), torch.ones_like(sure, dtype=torch.float64)])
        self.sums.index_add_(1, index, values.cpu())

    def merge(self, other: Self) -> None:
        """Add the counts of another instance."""
        if other.bins != self.bins:
            raise ValueError(f"bins must be the same, got {self.bins} and {other.bins}")
        self.sums += other.sums

    @property
    def count(self) -> int:
        """Number of labels so far."""
        return int(self.sums[2].sum())

    @property
    def ece(self) -> float:
        """Expected calibration error; NaN without any label."""
        sure, right, count = self.sums
        return float((right - sure).abs().sum() / count.sum())

    @property
    def rows(self) -> list[dict[str, float]]:
        """The bins in order: ``low``, ``high``, mean ``confidence``, ``accuracy`` (both NaN if empty) and ``count``.

        The bin of confidence exactly 1 comes last, and only when something is in it.
        """
        rows = []
        for number, (sure, right, count) in enumerate(self.sums.T.tolist()):
            if number < self.bins or count:
                ends = {"low": number / self.bins, "high": min((number + 1) / self.bins, 1.0)}
                known = count or torch.nan
                rows.append({**ends, "confidence": sure / known, "accuracy": right / known, "count": int(count)})
        return rows


class IntervalReliability:
    r"""Share of targets inside central intervals, at several levels, collected over many forecasts.

    A target lies in the central interval of level $l$ if $F(y) \ge \frac{1 - l}{2}$ and $P(Y < y) \le \frac{1 + l}{2}$:
    its probability integral transform (Dawid 1984) is enough, without quantiles. Without atoms, as of counts, both are
    the same F(y), so $|F(y) - \frac12| \le \frac{l}{2}$.
    """

    LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)

    def __init__(self) -> None:
        self.count = 0
        self._inside = [0] * len(self.LEVELS)

    def add(self, forecast: GaussianForecast | MixtureForecast, targets: Tensor) -> None:
        """Count the targets of one more forecast."""
        reached = forecast.cdf(targets).double() - 0.5
        below = forecast.below(targets).double() - 0.5 if isinstance(forecast, MixtureForecast) else reached
        off_centre = torch.maximum(-reached, below)
        off_centre = off_centre[present_numbers(targets).to(off_centre.device)]
        for number, level in enumerate(self.LEVELS):
            self._inside[number] += int((off_centre <= level / 2).sum())
        self.count += off_centre.numel()

    def merge(self, other: Self) -> None:
        """Add the counts of another instance."""
        self.count += other.count
        self._inside = [mine + theirs for mine, theirs in zip(self._inside, other._inside, strict=True)]

    def coverage(self, level: float) -> float:
        """Return the share of targets inside the central interval of one of the LEVELS; NaN without any target."""
        if level not in self.LEVELS:
            raise ValueError(f"level must be one of {self.LEVELS}, got {level}")
        return self._inside[self.LEVELS.index(level)] / self.count if self.count else torch.nan

    @property
    def rows(self) -> list[dict[str, float]]:
        """For each level, the ``observed`` share of the ``count`` targets inside the central interval of that level."""
        return [{"level": level, "observed": self.coverage(level), "count": self.count} for level in self.LEVELS]

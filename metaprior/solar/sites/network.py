r"""The network of a plant's next hours, and the profile of the support days that it reads.

Adapting to a plant is a context (``adaptation/context``) with an encoder made for power: for every hour of the day the
mean, largest, smallest and latest power of the support days and their spread. The network looks the profile up at the
hour that it forecasts, at its neighbours and at the last hours, so it can tell how clear the sky has been,

$$r = \frac{\sum_j p_{t-j}}{\sum_j \max_d p_{d,\,h(t-j)}},$$

and what such a sky would give at the hour to come. One network serves all leads, with and without a place, a base
forecast, or any support day: what is missing is zero, and a flag says so.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metaprior.adaptation.context.encoder import SupportEncoder
from metaprior.likelihoods import GaussianMixture
from metaprior.solar.sites.rows import COLUMNS, RECENT, WIDTH
from metaprior.tasks.task import Examples

HOURS = 24
STATISTICS = ("mean", "largest", "smallest", "spread", "latest")
"""Of the power at an hour of the day, over the support days."""
TOTALS = ("days", "base_days", "base_scale", "base_error", "base_skill")
"""Days with power, and with a base forecast too, at the hour of the day that has most; factor, relative error and skill
of the base forecast."""
MEMORY = 3.0
"""Days after which a support day counts 1/e in the latest mean."""
TINY = 0.01
"""Share of capacity below which ratios of power say nothing."""
LIKELIHOOD = GaussianMixture(components=3, min_scale=0.004)


class SupportProfile(SupportEncoder):
    """Support hours -> statistics of the power by hour of the day; nothing in it is learned."""

    size = HOURS * len(STATISTICS) + len(TOTALS)

    def forward(self, x: Tensor, y: Tensor, sizes: Tensor) -> Tensor:
        """Return (tasks, size); hours without power, and tasks without hours, are zeros."""
        if not len(x):
            return x.new_zeros(len(sizes), self.size)
        present = ~y[:, 0].isnan()
        task = torch.arange(len(sizes), device=x.device).repeat_interleave(sizes.to(x.device))[present]
        x, y = x[present], y[present, 0]
        cell = task * HOURS + x[:, COLUMNS["hour"]][:, 0].long()
        by_hour = _statistics(cell, len(sizes) * HOURS, y, x[:, COLUMNS["age"]][:, 0])
        given, there = x[:, COLUMNS["base"]][:, 0], x[:, COLUMNS["base_there"]][:, 0]
        base = _base_quality(task, len(sizes), y, given, there)
        skill = _base_skill(task, cell, len(sizes), y, given, there)
        counted = torch.stack([torch.ones_like(y), there], 1)
        days = y.new_zeros(len(sizes) * HOURS, 2).index_add(0, cell, counted).unflatten(0, (-1, HOURS)).amax(1)
        return torch.cat([by_hour.reshape(len(sizes), -1), days, base, skill[:, None]], 1)


def base_quality(support: Examples) -> tuple[float, float, float]:
    """Return the days with power of one plant, those with a base forecast too, and its skill on them."""
    profile = SupportProfile()(support.x, support.y, torch.tensor([len(support.x)]))[0]
    days, base_days, skill = (
        float(profile[TOTALS.index(name) - len(TOTALS)]) for name in ("days", "base_days", "base_skill")
    )
    return days, base_days, skill


def _statistics(cell: Tensor, cells: int, y: Tensor, age: Tensor) -> Tensor:
    """Return the ``STATISTICS`` of the values in each cell, (cells, 5)."""
    weight = torch.exp(-age / MEMORY)
    sums = y.new_zeros(cells, 4).index_add(0, cell, torch.stack([torch.ones_like(y), y, weight, weight * y], 1))
    count, total, weights, weighted = sums.unbind(1)
    mean, latest = total / count.clamp_min(1.0), weighted / weights.clamp_min(1e-9)
    variance = y.new_zeros(cells).index_add(0, cell, (y - mean[cell]).square()) / count.clamp_min(1.0)
    zeros = y.new_zeros(cells)
    largest = zeros.scatter_reduce(0, cell, y, "amax", include_self=False)
    smallest = zeros.scatter_reduce(0, cell, y, "amin", include_self=False)
    return torch.stack([mean, largest, smallest, variance.sqrt(), latest], 1)


def _base_quality(task: Tensor, tasks: int, y: Tensor, base: Tensor, there: Tensor) -> Tensor:
    r"""Return (tasks, 2): the factor $a = \sum pb / \sum b^2$ of the base forecast, and its error on the support hours.

    The error is $\sum |p - ab| / \sum p$. Both are zero without a base forecast on the support days.
    """
    products = torch.stack([y * base * there, base.square() * there, y * there], 1)
    cross, square, total = y.new_zeros(tasks, 3).index_add(0, task, products).unbind(1)
    scale = (cross / square.clamp_min(1e-6)).clamp(0.0, 5.0)
    errors = y.new_zeros(tasks).index_add(0, task, (y - scale[task] * base).abs() * there)
    return torch.stack([scale, (errors / total.clamp_min(1e-6)).clamp(0.0, 2.0)], 1)


def _base_skill(task: Tensor, cell: Tensor, tasks: int, y: Tensor, base: Tensor, there: Tensor) -> Tensor:
    r"""Return (tasks,), the correlation of power and base forecast beyond what the hour of the day tells.

    Both count as differences from their means at the same hour of the day, so it is zero after a single day.
    """
    counted = torch.stack([there, there * y, there * base], 1)
    count, power, given = y.new_zeros(tasks * HOURS, 3).index_add(0, cell, counted).unbind(1)
    power, given = (
        there * (y - (power / count.clamp_min(1.0))[cell]),
        there * (base - (given / count.clamp_min(1.0))[cell]),
    )
    products = torch.stack([power * given, power.square(), given.square()], 1)
    cross, left, right = y.new_zeros(tasks, 3).index_add(0, task, products).unbind(1)
    return cross / (left * right).sqrt().clamp_min(1e-6)


class SiteNetwork(nn.Module):
    """Rows of ``Hours`` and the profile of the support days -> weights, means and scales of a mixture for the power.

    Args:
        width: Units of the three hidden layers, two of which add to their inputs.
        components: Gaussians of the forecast.
    """

    def __init__(self, width: int = 128, components: int = LIKELIHOOD.components) -> None:
        super().__init__()
        self.config = {"width": width, "components": components}
        read = self.features(torch.zeros(1, WIDTH), torch.zeros(SupportProfile.size)).shape[1]
        self.first = nn.Linear(read, width)
        self.second, self.third = nn.Linear(width, width), nn.Linear(width, width)
        self.output = nn.Linear(width, 3 * components)
        with torch.no_grad():
            self.output.bias[2 * components :] = -2.0  # a scale of 0.13 to begin with

    def support_encoder(self) -> SupportProfile:
        """Return the encoder of support days."""
        return SupportProfile()

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Return (N, 3 components) for rows x (N, WIDTH) and one profile, (size,), or one for each row."""
        return self.from_features(self.features(x, context))

    def from_features(self, features: Tensor) -> Tensor:
        """Return (N, 3 components) for what ``features`` returned, which does not depend on any weight."""
        hidden = F.silu(self.first(features))
        hidden = hidden + F.silu(self.second(hidden))
        hidden = hidden + F.silu(self.third(hidden))
        return self.output(hidden)  # type: ignore[no-any-return]

    def features(self, x: Tensor, context: Tensor) -> Tensor:
        """Return what the first layer reads, (N, features), each with a spread of about one."""
        profile = _Lookup(context, len(x))
        days, base_days, scale, error, skill = profile.totals.split(1, 1)
        lead, hour = x[:, COLUMNS["lead"]], x[:, COLUMNS["hour"]]
        recent, there = x[:, COLUMNS["recent"]], x[:, COLUMNS["recent_there"]]
        before = hour - lead - torch.arange(RECENT, device=x.device)  # hours of the day of recent power, (N, RECENT)
        past = profile.at(before)  # (N, RECENT, statistics)
        here = profile.at(hour)[:, 0]
        mean_past, largest_past = past[..., 0], past[..., 1]
        ratios = [_ratio(recent, other, there, last) for last in (1, 3, 6) for other in (mean_past, largest_past)]
        smart = [ratios[0] * here[:, :1], ratios[1] * here[:, 1:2], ratios[2] * here[:, :1], ratios[3] * here[:, 1:2]]
        day, day_there = x[:, COLUMNS["day"]].split(1, 1)
        whole = [(day + TINY) / (profile.means[:, which, None] + TINY) for which in (0, 1)]
        yesterday = [day_there * (days > 0) * value.clamp(max=3.0) for value in whole]
        clear, clear_past, place = x[:, COLUMNS["clear"]], x[:, COLUMNS["clear_recent"]], x[:, COLUMNS["place"]]
        sky = [place * _ratio(recent, clear_past, there, last) for last in (1, 3)]
        adapted = (days > 0).to(x)
        given, base_there = x[:, COLUMNS["base"]], x[:, COLUMNS["base_there"]]
        past_base = scale * x[:, COLUMNS["base_recent"]]
        now = _ratio(recent, past_base, there, 3)
        missed = there * (past_base > 0) * (recent - past_base)  # errors of the scaled base forecast in the last hours
        trusted = skill.clamp_min(0.0) * base_there * (scale * given - here[:, :1])
        base = [given, scale * given, (now * scale * given).clamp(max=1.5), here[:, :1] + trusted]
        powers = [
            profile.at(hour - 1)[:, 0],
            here,
            profile.at(hour + 1)[:, 0],
            recent,
            mean_past,
            largest_past,
            *[value.clamp(max=1.5) for value in smart],
            *[value * here[:, which, None] for which, value in enumerate(yesterday)],
            clear_past,
            clear,
            x[:, COLUMNS["clear_around"]],
            *[value * clear for value in sky],
            *base,
            missed,
        ]
        ratios_and_flags = [
            *ratios,
            *yesterday,
            x[:, COLUMNS["sun"]],
            *sky,
            there,
            adapted,
            place,
            error,
            skill,
            base_there,
        ]
        times = [lead / 6.0, torch.log1p(lead), (lead / 24.0).clamp(max=2.0), torch.log1p(days), torch.log1p(base_days)]
        return torch.cat([4.0 * torch.cat(powers, 1), 2.0 * torch.cat(ratios_and_flags, 1), *times], 1)


class _Lookup:
    """The profile of each row, by hour of the day."""

    def __init__(self, context: Tensor, rows: int) -> None:
        each = context.expand(rows, -1)
        self._table = each[:, : -len(TOTALS)].unflatten(1, (HOURS, len(STATISTICS)))
        self._row = torch.arange(rows, device=context.device)[:, None]
        self.means = self._table.mean(1)  # of each statistic over the hours of the day
        self.totals = each[:, -len(TOTALS) :]

    def at(self, hours: Tensor) -> Tensor:
        """Return the statistics at hours of the day (N, M) of any day, (N, M, statistics)."""
        found: Tensor = self._table[self._row, (hours % HOURS).long()]
        return found


def _ratio(power: Tensor, reference: Tensor, there: Tensor, last: int) -> Tensor:
    """Return the power of the last hours divided by a reference for them, (N, 1), one where both are tiny."""
    counted = there[:, :last]
    sums = [(value[:, :last] * counted).sum(1, keepdim=True) + TINY for value in (power, reference)]
    return (sums[0] / sums[1]).clamp(0.0, 3.0)

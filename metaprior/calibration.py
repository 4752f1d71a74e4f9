r"""One factor for the spread of forecasts, smooth in the number of examples that a task was adapted to.

A prior that is trained with several sizes of support sets still states too little uncertainty after few examples and
too much after many, or the other way round. With $b_n$, the logarithm of the factor after n examples, a forecast
becomes that of $\bar y + e^{b_n}(y - \bar y)$, with $\bar y$ its mean (labels: logits divided by $e^{b_n}$). On
validation tasks

$$\hat b = \arg\min_b \sum_n T_n\Big[\mathrm{NLL}_n(b_n) + w\,(\mathrm{coverage}_n(b_n) - 0.9)^2\Big]
+ \frac{b_{n_0}^2}{8} + \sum_n \frac{(b_{n'} - b_n)^2}{2\,(\log(1 + n') - \log(1 + n))}$$

where $T_n$ tasks have n examples, n' is the next larger number, and NLL and the coverage of the central 90 % interval
are means over single targets. The log score alone leaves coverages of .88 to .93, because forecasts have tails of other
shapes than errors; coverage alone ignores the rest of the distribution. The last two terms, a random walk in
log(1 + n), matter where validation tasks are few. Between the numbers n the logarithm is linear in log(1 + n), and
beyond them constant.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metaprior import mixture
from metaprior.checks import check_integer
from metaprior.evaluation import (
    Adapt,
    check_task,
    finite_forecast,
    for_each_task,
    shaped_targets,
    usual_shots,
    with_targets,
)
from metaprior.forecasts import Forecast, GaussianForecast
from metaprior.missing import present_numbers
from metaprior.posterior import DEFAULT_SAMPLES
from metaprior.tasks.task import Task, Tasks, as_tasks

LEVEL, COVERAGE_WEIGHT = 0.9, 20.0
"""The interval whose coverage is matched, and the weight w of its squared error, in nats."""
LOG_FACTORS = torch.linspace(-math.log(32), math.log(32), 129, dtype=torch.float64)
"""The values that a log factor can have: steps of 5 %."""
TARGETS_USED = 512
"""Targets of a task that are looked at; those of one task have much in common, so more of them would say little."""


@dataclass(frozen=True)
class CalibrationByShots:
    """The factor of a forecast's spread, by the number of examples adapted to.

    Args:
        examples: numbers of examples, ascending, at which factors were fitted.
        factors: the factors there.
        coverage: share of the validation targets inside the 90 % interval there, with the factors; none for labels.
        tasks: number of validation tasks.
    """

    examples: tuple[int, ...]
    factors: tuple[float, ...]
    coverage: tuple[float, ...] = ()
    tasks: int = 0

    def __post_init__(self) -> None:
        ascending = all(low < high for low, high in pairwise((-1, *self.examples)))
        if not self.examples or not ascending or len(self.examples) != len(self.factors):
            raise ValueError(
                "examples must be ascending numbers from 0, with a factor for each, got "
                f"{self.examples} and {self.factors}"
            )
        if not all(0 < factor < math.inf for factor in self.factors):
            raise ValueError(f"factors must be positive numbers, got {self.factors}")

    def factor(self, examples: int) -> float:
        """Return the factor after so many examples."""
        at = math.log1p(min(max(examples, self.examples[0]), self.examples[-1]))
        known = [(math.log1p(n), math.log(factor)) for n, factor in zip(self.examples, self.factors, strict=True)]
        for (low, start), (high, end) in pairwise(known):
            if at <= high:
                return math.exp(start + (end - start) * (at - low) / (high - low))
        return self.factors[-1]

    def as_json(self) -> dict[str, Any]:
        """Return numbers and lists for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "CalibrationByShots":
        """Return what ``as_json`` described."""
        lists = {name: tuple(content[name]) for name in ("examples", "factors", "coverage")}
        return cls(**lists, tasks=int(content["tasks"]))

    def __str__(self) -> str:
        """Return the factors, and the coverages where there are any, by number of examples."""
        shown = ", ".join(f"{n}: {factor:.2f}" for n, factor in zip(self.examples, self.factors, strict=True))
        covered = ", ".join(f"{n}: {share:.2f}" for n, share in zip(self.examples, self.coverage, strict=False))
        inside = f"; coverage of the 90 % interval on {self.tasks} validation tasks {covered}" if covered else ""
        return f"spread by examples {shown}{inside}"


class _Profile(NamedTuple):
    """Means over the targets of a task, for each of the ``LOG_FACTORS``: NLL, and share inside the 90 % interval."""

    nll: Tensor
    inside: Tensor | None


def fit_calibration(
    adapt: Adapt,
    tasks: Iterable[Task] | Tasks,
    *,
    shots: Sequence[int] | None = None,
    steps: int = 0,
    samples: int = DEFAULT_SAMPLES,
    examples_per_shot: int = 1,
    present: Callable[[Tensor], Tensor] = present_numbers,
    progress: bool = False,
) -> CalibrationByShots:
    """Return the factors that fit the forecasts of validation tasks' query sets; the ranks share the tasks.

    Args:
        adapt: returns the uncalibrated posterior of a support set (None: the prior), as in ``evaluate``.
        tasks: tasks that the prior was not learned from, with an end; about 100 give coverages right to .02.
        shots: numbers of shots to fit factors for; None takes 0, 1, 2, 5, 10, 20, ... as far as support sets go. A task
            with fewer support examples is left out of the larger ones.
        steps: number of adaptation steps.
        samples: weight samples of a forecast.
        examples_per_shot: support examples that make one shot.
        present: where targets are not missing; a likelihood's own ``present``.
        progress: show a progress bar.

    Raises:
        FloatingPointError: if no task had a finite forecast.
    """
    check_integer("samples", samples, 2)
    for count in shots or ():
        check_integer("shots", count, 0)

    def profiles(index: int, given: Task) -> dict[int, _Profile]:
        task, count = with_targets(check_task(given), present)
        found = dict[int, _Profile]()
        if count.missing == count.targets:
            return found
        for examples in _examples(shots, examples_per_shot, task.support.size):
            try:
                posterior = adapt(task.support.first(examples) if examples else None, steps)
                found[examples] = _profile(finite_forecast(posterior, task.query.x, samples, index), task.query.y)
            except FloatingPointError:  # as in ``evaluate``, such a forecast is in no mean
                continue
        return found

    found = for_each_task(profiles, as_tasks(tasks), progress)
    examples = sorted({n for own in found for n in own})
    if not examples:
        raise FloatingPointError(f"none of the {len(found)} validation tasks had a finite forecast to calibrate by")
    by_examples = [[own[n] for own in found if n in own] for n in examples]
    best = _smoothest(torch.stack([_cost(own) for own in by_examples]), [math.log1p(n) for n in examples])
    inside = [_mean_inside(own) for own in by_examples]
    return CalibrationByShots(
        examples=tuple(examples),
        factors=tuple(float(LOG_FACTORS[i].exp()) for i in best),
        coverage=tuple(float(share[i]) for share, i in zip(inside, best, strict=True) if share is not None),
        tasks=len(found),
    )


def _examples(shots: Sequence[int] | None, each: int, largest: int) -> list[int]:
    """Return the numbers of examples to adapt a task to that has ``largest``."""
    if shots is None:
        shots = sorted({*usual_shots(largest // each), largest // each})
    return [n * each for n in shots if n * each <= largest]


def _profile(forecast: Forecast, targets: Tensor) -> _Profile:
    """Return the profile of one task's forecast."""
    y = shaped_targets(forecast, targets)
    if not isinstance(forecast, GaussianForecast):
        losses = [-forecast.widened(math.exp(b)).log_prob(y).double().sum() for b in LOG_FACTORS.tolist()]
        return _Profile(torch.stack(losses).cpu() / int(forecast.present(y).sum()), None)
    present = forecast.present(y).flatten().nonzero()[:, 0]
    some = present[:: max(1, math.ceil(len(present) / TARGETS_USED))]
    components = forecast.components()
    means, scales = (part[:, None, some].double() for part in (components.means, components.scales))  # (S, 1, M)
    weights = components.weights
    if weights is not None:
        weights = weights[:, None, some if weights.shape[1] > 1 else slice(None)].double()
    centre, y = forecast.mean.flatten()[some].double(), y.flatten()[some].double()
    b = LOG_FACTORS[:, None].to(y.device)
    values = centre + (y - centre) * (-b).exp()  # (G, M): the wider density at y is e^-b times the density there
    nll = b - mixture.log_density(means, scales, values, weights)
    inside = (mixture.cumulative(means, scales, values, weights) - 0.5).abs() <= LEVEL / 2
    return _Profile(nll.mean(1).cpu(), inside.double().mean(1).cpu())


def _mean_inside(profiles: Sequence[_Profile]) -> Tensor | None:
    inside = [own.inside for own in profiles if own.inside is not None]
    return torch.stack(inside).mean(0) if inside else None


def _cost(profiles: Sequence[_Profile]) -> Tensor:
    """Return what each of the ``LOG_FACTORS`` costs at one number of examples, in nats: the bracket, times T."""
    cost, inside = torch.stack([own.nll for own in profiles]).mean(0), _mean_inside(profiles)
    if inside is not None:
        cost = cost + COVERAGE_WEIGHT * (inside - LEVEL).square()
    return len(profiles) * cost


def _smoothest(costs: Tensor, positions: Sequence[float]) -> list[int]:
    """Return the index of the best log factor at each position, by dynamic programming: the exact minimum.

    Args:
        costs: what each log factor costs at each position, (K, G).
        positions: log(1 + n), ascending.
    """
    jumps = (LOG_FACTORS[:, None] - LOG_FACTORS).square() / 2
    total, origins = costs[0] + LOG_FACTORS.square() / 8, list[Tensor]()
    for cost, (low, high) in zip(costs[1:], pairwise(positions), strict=True):
        best = (total[:, None] + jumps / (high - low)).min(0)
        total, origins = best.values + cost, [*origins, best.indices]
    path = [int(total.argmin())]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    return path[::-1]

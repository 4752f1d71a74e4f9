r"""Class labels by regression on their codes, as probabilities.

Draws of a prior need Gaussian noise, so labels are coded as numbers (-1 and 1, or one-hot vectors) and regressed on:
least-squares classification (Rasmussen & Williams 2006, section 6.5). The posterior mean m of an output becomes the
logit $a\,m$. A regression on -1 and 1 states the probability $(1 + m)/2$, whose logit is about $2m$: so a starts at 2.
It is fitted to labels that their own group's posterior has not seen; but the draws have, and favour a large one, so few
labels move it little.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metaprior.forecasts import CategoricalForecast, GaussianForecast
from metaprior.methods.method import TaskMethod
from metaprior.mixture import log_average
from metaprior.noise import Noise
from metaprior.sklearn.groups import folds
from metaprior.tasks.task import Examples

FOLDS = 4
MOST_GROUPS = 50
"""Groups whose left-out labels decide about a."""
STEPS = 50
FIRST_LOG_FACTOR = math.log(2)
STRENGTH = 10.0
"""Weight of the squared distance of log a from its first value, in nats."""


def codes(labels: Tensor, classes: int) -> Tensor:
    """Return -1 and 1 of two classes, (N, 1), or one-hot vectors, (N, C)."""
    if classes == 2:
        return (2.0 * labels - 1)[:, None].double()
    return torch.nn.functional.one_hot(labels, classes).double()


@dataclass(frozen=True)
class LabelScale:
    """The logarithm of a."""

    log_factor: float = FIRST_LOG_FACTOR

    def forecast(self, of_codes: GaussianForecast) -> CategoricalForecast:
        """Return the forecast of labels, given that of their codes."""
        weights = of_codes.weights
        logits = _logits(of_codes.means, torch.tensor(self.log_factor, dtype=of_codes.means.dtype))
        return CategoricalForecast(logits, weights=None if weights is None else weights.flatten(1))


def fitted_scale(learner: TaskMethod, groups: Sequence[Examples], labels: Sequence[Tensor], seed: int) -> LabelScale:
    """Return a of the largest likelihood of labels that are left out.

    Args:
        learner: draws of a prior over codes.
        groups: inputs and codes of the groups.
        labels: the labels of each group, 0 to C - 1.
        seed: which groups and parts of them are used.
    """
    order = torch.randperm(len(groups), generator=Noise(seed).fork("groups of the scale").generator()).tolist()
    parts: list[tuple[GaussianForecast, Tensor]] = []
    for number in order[:MOST_GROUPS]:
        group, own = groups[number], labels[number]
        for others, left_out in folds(group.size, FOLDS, seed):
            posterior = learner.adapt(group.rows(others))
            parts.append((posterior.predict(group.x[left_out]), own[left_out]))
    if not parts:
        return LabelScale()
    means = torch.cat([forecast.means for forecast, _ in parts], 1)
    weights = torch.cat([_weights_of_rows(forecast) for forecast, _ in parts], 1)
    return _largest_likelihood(means, weights, torch.cat([own for _, own in parts]))


def _weights_of_rows(forecast: GaussianForecast) -> Tensor:
    assert forecast.weights is not None, "the forecast is an exact mixture"
    return forecast.weights.flatten(1).expand(-1, forecast.means.shape[1])


def _largest_likelihood(means: Tensor, weights: Tensor, labels: Tensor) -> LabelScale:
    at = means.new_tensor(FIRST_LOG_FACTOR).requires_grad_()
    optimizer = torch.optim.LBFGS([at], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        log_mass = _logits(means, at).log_softmax(2)
        own = log_mass.gather(2, labels.expand(len(means), -1)[..., None]).squeeze(2)
        value = -log_average(own, weights).sum() + STRENGTH * (at - FIRST_LOG_FACTOR).square()
        value.backward()
        return value

    optimizer.step(loss)
    return LabelScale(float(at.detach()))


def _logits(means: Tensor, log_factor: Tensor) -> Tensor:
    """Return logits (S, N, C) of outputs (S, N, 1) or (S, N, C)."""
    logits = log_factor.exp() * means
    return torch.cat([torch.zeros_like(logits), logits], 2) if logits.shape[2] == 1 else logits

r"""Class labels by regression on their codes, as probabilities.

Draws of a prior need Gaussian noise, so labels are coded as numbers (-1 and 1, or one-hot vectors) and regressed on:
least-squares classification (Rasmussen & Williams 2006, section 6.5). An output with posterior mean m and variance v
because the group is not known becomes

$$\text{logit} = \frac{a\,m}{\sqrt{1 + c\,v}},$$

and a and c are those of the largest likelihood of labels that their own group's posterior has not seen.
"""

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
"""Groups whose left-out labels decide about a and c."""
STEPS = 50
FIRST_LOG_FACTOR, FIRST_LOG_SHRINKAGE = 1.0, 0.0
STRENGTH = 0.05
"""Weight of the squared distance from the first values, in nats: labels that are all foretold give no infinite a."""


def codes(labels: Tensor, classes: int) -> Tensor:
    """Return -1 and 1 of two classes, (N, 1), or one-hot vectors, (N, C)."""
    if classes == 2:
        return (2.0 * labels - 1)[:, None].double()
    return torch.nn.functional.one_hot(labels, classes).double()


@dataclass(frozen=True)
class LabelScale:
    """The logarithms of a and c."""

    log_factor: float = FIRST_LOG_FACTOR
    log_shrinkage: float = FIRST_LOG_SHRINKAGE

    def forecast(self, of_codes: GaussianForecast) -> CategoricalForecast:
        """Return the forecast of labels, given that of their codes."""
        assert of_codes.task_scales is not None, "the forecast is an exact mixture"
        at = torch.tensor([self.log_factor, self.log_shrinkage], dtype=of_codes.means.dtype)
        logits = _logits(of_codes.means, of_codes.task_scales.square(), at)
        weights = of_codes.weights
        return CategoricalForecast(logits, weights=None if weights is None else weights.flatten(1))


def fitted_scale(learner: TaskMethod, groups: Sequence[Examples], labels: Sequence[Tensor], seed: int) -> LabelScale:
    """Return a and c of the largest likelihood of labels that are left out.

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
        if len(groups) > 1:
            parts.append((learner.prior_predictive().predict(group.x), own))  # type: ignore[arg-type]
        for others, left_out in folds(group.size, FOLDS, seed):
            posterior = learner.adapt(group.rows(others))
            parts.append((posterior.predict(group.x[left_out]), own[left_out]))  # type: ignore[arg-type]
    if not parts:
        return LabelScale()
    means, variances, weights = (torch.cat(part, 1) for part in zip(*(_flat(own) for own, _ in parts), strict=True))
    return _largest_likelihood(means, variances, weights, torch.cat([own for _, own in parts]))


def _flat(forecast: GaussianForecast) -> tuple[Tensor, Tensor, Tensor]:
    assert forecast.task_scales is not None, "the forecast is an exact mixture"
    assert forecast.weights is not None, "the forecast is an exact mixture"
    weights = forecast.weights.flatten(1).expand(-1, forecast.means.shape[1])
    return forecast.means, forecast.task_scales.square(), weights


def _largest_likelihood(means: Tensor, variances: Tensor, weights: Tensor, labels: Tensor) -> LabelScale:
    first = means.new_tensor([FIRST_LOG_FACTOR, FIRST_LOG_SHRINKAGE])
    at = first.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([at], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        log_mass = _logits(means, variances, at).log_softmax(2)
        own = log_mass.gather(2, labels.expand(len(means), -1)[..., None]).squeeze(2)
        value = -log_average(own, weights).sum() + STRENGTH * (at - first).square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    factor, shrinkage = at.detach().tolist()
    return LabelScale(factor, shrinkage)


def _logits(means: Tensor, variances: Tensor, at: Tensor) -> Tensor:
    """Return logits (S, N, C) of outputs (S, N, 1) or (S, N, C)."""
    logits = at[0].exp() * means / (1 + at[1].exp() * variances).sqrt()
    return torch.cat([torch.zeros_like(logits), logits], 2) if logits.shape[2] == 1 else logits

r"""Ensembles whose members each leave a part of the data out, and a spread that these parts decide.

The rows are divided into K parts, and member k of K does not learn from part k. Its forecast of part k is then honest,
and all of them together decide on one factor f for the spread of every member's forecast around its own mean:

$$\hat f = \arg\max_f \sum_k \sum_{n \in \text{part } k} w_n \log p_k(y_n | x_n; f) - \tfrac12 (\log f)^2$$

The last term matters where rows are few. Copies of a row are always in the same part.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from metaprior.forecasts import Forecast
from metaprior.minibatches import WeightedExamples
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.tasks.task import Examples

SAMPLES, MOST_ROWS = 20, 20_000
"""Weight samples of the forecasts that decide on the spread, and about the most rows that they are made for."""
LOG_FACTORS = torch.linspace(-1.5, 1.5, 61, dtype=torch.float64)


def parts_of(data: WeightedExamples, count: int, noise: Noise) -> list[Tensor]:
    """Return the indices of the rows that each of ``count`` members leaves out, at random."""
    tensors = data.examples.tensors
    rows = torch.cat([one.reshape(len(one), -1).double() for one in tensors], 1)
    distinct, number = torch.unique(rows, dim=0, return_inverse=True)
    if len(distinct) < 2 * count:
        raise ValueError(
            f"cross_fit needs at least {2 * count} different observations for {count} members, got {len(distinct)}. "
            "Try cross_fit=False."
        )
    order = torch.randperm(len(distinct), generator=noise.fork("parts").generator()).to(number.device)
    return [(order[number] % count == k).nonzero()[:, 0] for k in range(count)]


def without_parts(data: WeightedExamples, parts: Sequence[Tensor]) -> tuple[list[Examples], Tensor | None]:
    """Return what each member learns from, of equal size, and the weights (K, N) of these observations.

    Shorter ones are filled up with observations that do not count; weights None are all one.
    """
    size = data.examples.size
    kept = [
        torch.ones(size, dtype=torch.bool, device=data.examples.y.device).index_fill(0, part, False) for part in parts
    ]
    longest = max(int(own.sum()) for own in kept)
    weights = torch.ones(size).to(data.examples.y.device) if data.weights is None else data.weights
    rows, counts = [], []
    for own in kept:
        index = own.nonzero()[:, 0]
        missing = longest - len(index)
        rows.append(torch.cat([index, index[:1].expand(missing)]))
        counts.append(torch.cat([weights[index], weights.new_zeros(missing)]))
    examples, stacked = [data.examples.rows(index) for index in rows], torch.stack(counts)
    return examples, None if bool((stacked == 1).all()) else stacked


def fitted_spread(members: Sequence[Posterior], data: WeightedExamples, parts: Sequence[Tensor]) -> float:
    """Return the factor for the spread of each member's forecasts; ``data`` are in the members' units."""
    thinned = [part[:: -(-data.examples.size // MOST_ROWS)] for part in parts]
    pieces = [data.rows(part) for part in thinned]
    pairs = list(zip(members, pieces, strict=True))
    forecasts = [member.network_forecast(piece.examples.x, SAMPLES, 0, None) for member, piece in pairs]
    return best_factor(forecasts, [piece.examples.y for piece in pieces], [piece.weights for piece in pieces])


@torch.no_grad()
def best_factor(forecasts: Sequence[Forecast], targets: Sequence[Tensor], weights: Sequence[Tensor | None]) -> float:
    """Return the factor of the forecasts' spread that makes the targets most likely."""

    def score(factor: float) -> float:
        total = 0.0
        for forecast, y, own in zip(forecasts, targets, weights, strict=True):
            log_prob = forecast.widened(factor).log_prob(y).double()
            total += float((log_prob if own is None else log_prob * own).sum())
        return total

    factors = LOG_FACTORS.exp().tolist()
    scores = torch.tensor([score(factor) for factor in factors], dtype=torch.float64) - LOG_FACTORS.square() / 2
    return float(factors[int(scores.argmax())])

r"""Ensembles whose members each leave a part of the data out, and a spread that these parts decide.

The rows are divided into K parts, and member k of K does not learn from part k. Its forecast of part k is then honest,
and all of them together decide on one factor f for the spread of every member's forecast around its own mean:

$$\hat f = \arg\max_f \sum_k \sum_{n \in \text{part } k} w_n \log p_k(y_n | x_n; f) - \tfrac12 (\log f)^2$$

The last term matters where rows are few. Copies of a row are always in the same part.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from metaprior.minibatches import WeightedExamples
from metaprior.noise import Noise
from metaprior.posterior import Posterior
from metaprior.tasks.task import Examples

SAMPLES, MOST_ROWS = 20, 20_000
"""Weight samples of the forecasts that decide on the spread, and about the most rows that they are made for."""
MIXING_STEPS = 200
LOG_FACTORS = torch.linspace(-1.5, 1.5, 61, dtype=torch.float64)


def parts_of(data: WeightedExamples, count: int, noise: Noise) -> list[Tensor]:
    """Return the indices of the rows that each of ``count`` members leaves out, at random."""
    x, y = data.examples
    rows = torch.cat([x.flatten(1).double(), y.reshape(len(y), -1).double()], 1)
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


class LeftOut(NamedTuple):
    """What the observations that members left out tell."""

    spread: float
    """The factor for the spread of each member's forecasts."""
    log_prob: Tensor
    """Log density of these observations with that spread, part after part, in the network's units, (N,)."""
    weights: Tensor | None
    """How many observations each one counts as, (N,); None: one."""


@torch.no_grad()
def judged(members: Sequence[Posterior], data: WeightedExamples, parts: Sequence[Tensor]) -> LeftOut:
    """Return what the parts tell about members that left them out; ``data`` are in the members' units."""
    step = -(-data.examples.size // MOST_ROWS)
    pieces = [data.rows(part[::step]) for part in parts]
    pairs = list(zip(members, pieces, strict=True))
    forecasts = [member.network_forecast(piece.examples.x, SAMPLES, 0, None) for member, piece in pairs]
    weights = None if data.weights is None else torch.cat([piece.weights for piece in pieces])  # type: ignore[misc]

    def log_prob(factor: float) -> Tensor:
        own = zip(forecasts, pieces, strict=True)
        return torch.cat([forecast.widened(factor).log_prob(piece.examples.y).double() for forecast, piece in own])

    def score(factor: float) -> float:
        found = log_prob(factor)
        return float((found if weights is None else found * weights).sum())

    scores = torch.tensor([score(factor) for factor in LOG_FACTORS.exp().tolist()], dtype=torch.float64)
    spread = float(LOG_FACTORS[int((scores - LOG_FACTORS.square() / 2).argmax())].exp())
    return LeftOut(spread, log_prob(spread), weights)


def mixing_weights(found: Sequence[LeftOut]) -> list[float]:
    r"""Return the weights of ensembles in a mixture that make what they left out most likely:

    $$\hat w = \arg\max_w \sum_n \log \sum_k w_k\, p_k(y_n | x_n),\qquad \sum_k w_k = 1$$

    (Stacking; Yao et al. 2018.) By expectation maximisation, which converges for this concave objective. The ensembles
    must have left the same parts out.
    """
    log_prob = torch.stack([own.log_prob for own in found])
    counts = torch.ones_like(log_prob[0]) if found[0].weights is None else found[0].weights.double()
    weights = torch.full((len(found),), 1 / len(found), dtype=torch.float64)
    for _ in range(MIXING_STEPS):
        shares = torch.softmax(log_prob + weights.log()[:, None], 0)
        weights = (shares * counts).sum(1) / counts.sum()
    return weights.tolist()

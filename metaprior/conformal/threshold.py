r"""The largest score that is inside: a quantile of scores in which the new observation counts as infinitely bad.

K tasks (or groups) with $N_k$ scores each, and one more that is new, have the same weight $1/(K+1)$:

$$q = \inf\Big\{t : \sum_{k=1}^K \frac{1}{(K+1) N_k} \sum_{i=1}^{N_k} 1[s_{ki} \le t] \ge \ell\Big\}.$$

This is hierarchical conformal prediction (Lee, Barber & Willett 2023). With one score in each task it is the
$\lceil(K+1)\,\ell\rceil$-th smallest one, split conformal prediction.
"""

import math
from fractions import Fraction

import torch
from torch import Tensor

FINEST = 2**40
"""Largest denominator of a score's weight. Weights are integers over a common denominator, so that sums are exact;
where that of all tasks' sizes is larger, weights are rounded down, which can only raise the threshold."""


def exact(level: float) -> Fraction:
    """Return the level as it is written: 0.9 is 9/10, so that (n + 1) times 0.9 is what it is on paper."""
    return Fraction(str(float(level)))


def check_level(name: str, value: float) -> None:
    """Raise ValueError unless a value lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")


def fewest(level: float) -> int:
    """Return the smallest number of observations (of tasks) with which a threshold can be finite."""
    return math.ceil(exact(level) / (1 - exact(level)))


def threshold(scores: Tensor, level: float, members: Tensor | None = None) -> Tensor:
    """Return the threshold of each target, of shape (...); infinite where there are too few scores for the level.

    Args:
        scores: (n, ...), NaN for a missing target.
        level: probability with which a new observation's score is at most the threshold.
        members: which task each of the n observations is of, (n,); None: each is exchangeable with all others.
    """
    columns = scores.flatten(1) if scores.ndim > 1 else scores[:, None]
    present = ~columns.isnan()
    members = torch.arange(len(scores)) if members is None else members
    names, own = members.unique(return_inverse=True)
    sizes = torch.zeros(len(names), columns.shape[1], dtype=torch.long).index_add(0, own, present.long())
    whole = min(math.lcm(*sizes.unique().clamp_min(1).tolist()), FINEST)  # the weight of a task, as an integer
    weights = present * (whole // sizes.clamp_min(1))[own]
    ordered, order = columns.sort(0)  # NaN is last
    reached = weights.gather(0, order).cumsum(0)
    needed = [math.ceil(exact(level) * (count + 1) * whole) for count in (sizes > 0).sum(0).tolist()]
    below = (reached < torch.tensor(needed)).sum(0, keepdim=True)
    infinity = columns.new_full((1, columns.shape[1]), math.inf)
    return torch.cat([ordered, infinity]).gather(0, below).reshape(scores.shape[1:])


def score_of_share(scores: Tensor, share: float) -> Tensor:
    """Return the smallest number that this share of a task's scores does not exceed, for each target, (1, ...).

    It is NaN for a target that is missing throughout.
    """
    part, count = exact(share), (~scores.isnan()).sum(0, keepdim=True)
    rank = -(-count * part.numerator // part.denominator)  # rounded up
    return scores.sort(0).values.gather(0, (rank - 1).clamp_min(0))

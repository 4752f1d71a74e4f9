r"""Class labels in a closed form: regression on their codes, with calibrated logits.

A class label is coded by its one-hot vector minus 1/ways, a label 0 or 1 by -1 or 1, and the codes are regressed on as
if they had Gaussian noise (R2-D2, Bertinetto et al. 2019). The posterior mean m and task variance v of an output become

$$\text{logit} = \frac{a\, m}{\sqrt{1 + c\, v}},$$

which shrinks where the task is not known. The noise scale s, a and c are learned by the score of the query labels;
their logarithms are linear in $(1, \log \text{ways}, \log(1 + \text{shots}))$, so that one head serves any number of
classes and examples. A class that the support set does not show has a learned logit instead. Posterior and evidence are
exact for the regression on codes; the logits are an approximation, made good by training.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

SCALES, UNSEEN = "head.labels", "head.unseen"
"""Names of the coefficients of (log s, log a, log c), shape (3, 3), and of the logit of a class without examples."""

FIRST_FACTOR = 6.0
FIRST_SCALES = (math.log(0.5), math.log(FIRST_FACTOR), math.log(0.5))
FIRST_UNSEEN = -8.0
"""So low that classes which a task does not have take no probability; where they occur in query sets, it is learned."""


def initial(like: Tensor) -> dict[str, Tensor]:
    """Return the first values: scales that depend on nothing yet."""
    scales = like.new_zeros(3, 3)
    scales[:, 0] = like.new_tensor(FIRST_SCALES)
    return {SCALES: scales, UNSEEN: like.new_full((), FIRST_UNSEEN)}


class LabelScales(NamedTuple):
    """Noise s, factor a and shrinkage c of tasks, each of shape (...); ``unseen`` classes, (..., C) or None."""

    noise: Tensor
    factor: Tensor
    shrinkage: Tensor
    unseen: Tensor | None

    def logits(self, mean: Tensor, variance: Tensor, plain: Mapping[str, Tensor]) -> Tensor:
        """Return the logits of outputs (..., K, n, C)."""
        factor, shrinkage = (value.double()[..., None, None, None] for value in (self.factor, self.shrinkage))
        logits = factor * mean / (1 + shrinkage * variance).sqrt()
        if self.unseen is None:
            return logits
        return torch.where(self.unseen[..., None, None, :], plain[UNSEEN].double(), logits)


def class_codes(
    labels: Tensor, present: Tensor, classes: int, plain: Mapping[str, Tensor], *, hide_unseen: bool
) -> tuple[Tensor, LabelScales]:
    """Return the codes (..., n, C) of class labels (..., n), and the scales of their tasks.

    ``hide_unseen`` gives classes that a support set does not show the learned logit, unless it shows none.
    """
    one_hot = F.one_hot(torch.where(present, labels, 0), classes).double() * present.unsqueeze(-1)
    counts = one_hot.sum(-2)
    seen = counts > 0
    ways = torch.where(seen.any(-1), seen.sum(-1), classes).double()
    codes = one_hot - 1 / ways[..., None, None]
    unseen = ~seen & seen.any(-1, keepdim=True)
    return codes, _scales(ways, counts.sum(-1) / ways, plain, unseen if hide_unseen else None)


def binary_codes(labels: Tensor, present: Tensor, plain: Mapping[str, Tensor]) -> tuple[Tensor, LabelScales]:
    """Return the codes (..., n, C) of labels 0 and 1 of the same shape, and the scales of their tasks."""
    shots = present.double().sum((-2, -1)) / (2 * present.shape[-1])
    return 2 * labels.double() - 1, _scales(torch.full_like(shots, 2), shots, plain, None)


def _scales(ways: Tensor, shots: Tensor, plain: Mapping[str, Tensor], unseen: Tensor | None) -> LabelScales:
    about = torch.stack([torch.ones_like(ways), ways.log(), shots.log1p()], -1)
    noise, factor, shrinkage = (about @ plain[SCALES].double().mT).exp().unbind(-1)
    return LabelScales(noise, factor, shrinkage, unseen)

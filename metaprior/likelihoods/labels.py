"""Labels: one of several classes, or yes and no."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from metaprior.forecasts import BernoulliForecast, CategoricalForecast
from metaprior.likelihoods.likelihood import Likelihood, match_continuous, refuse_broadcast, shape
from metaprior.missing import MISSING_LABEL, present_labels


@dataclass(frozen=True)
class Categorical(Likelihood):
    """Class labels 0..C-1; the network gives C logits on axis 1."""

    continuous: ClassVar[bool] = False
    labels: ClassVar[bool] = True

    def num_outputs(self, targets: int) -> int:
        """Return the number of logits; ``targets`` is the number of classes."""
        if targets < 2:
            raise ValueError(f"targets must be the number of classes, at least 2, got {targets}. Try targets=5.")
        return targets

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the cross-entropy of the logits."""
        return F.cross_entropy(outputs, targets, reduction="none")

    def present(self, targets: Tensor) -> Tensor:
        """Return where labels are not -100."""
        return present_labels(targets)

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> CategoricalForecast:
        """Return the forecast with the softmax of each weight sample's logits."""
        return CategoricalForecast(outputs)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return integer labels within the number of logits, or raise."""
        if targets.is_floating_point() or targets.dtype == torch.bool:
            raise TypeError(
                f"class labels must be integers 0..C-1, got {targets.dtype}. "
                "Try y.argmax(1) for one-hot codes, y.astype(int) for numbers."
            )
        if len(output_shape) < 2 or targets.shape[1:] != output_shape[2:]:
            raise ValueError(
                f"labels must have shape {shape((0, *output_shape[2:]))} for logits of shape {shape(output_shape)}, "
                f"got {tuple(targets.shape)}. Try y.argmax(1) for one-hot codes, y.ravel() for a single column."
            )
        labels = targets[self.present(targets)]
        low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, 0)
        if low < 0 or high >= output_shape[1]:
            raise ValueError(
                f"labels must be 0..{output_shape[1] - 1}, one for each logit, got {low} to {high}. Try a "
                f"network with as many outputs as classes, and {MISSING_LABEL} for a label that is missing."
            )
        return targets.long()


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Labels 0 or 1, independent for each output; the network gives one logit for each output."""

    continuous: ClassVar[bool] = False
    labels: ClassVar[bool] = True

    def elementwise_nll(self, outputs: Tensor, targets: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        r"""Return $\mathrm{softplus}(f) - y f$, the cross-entropy of a logit."""
        refuse_broadcast(targets, outputs)
        return F.softplus(outputs) - targets * outputs

    def forecast(self, outputs: Tensor, parameters: Mapping[str, Tensor]) -> BernoulliForecast:
        """Return the forecast with the sigmoid of each weight sample's logits."""
        return BernoulliForecast(outputs)

    def check_targets(self, targets: Tensor, output_shape: torch.Size) -> Tensor:
        """Return zeros and ones in the outputs' shape, or raise."""
        targets = match_continuous(targets, tuple(output_shape[1:]), "")
        labels = targets[self.present(targets)]
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise ValueError(
                f"labels must be 0 or 1, got {labels.min()} to {labels.max()}. Try NaN for a label that is missing."
            )
        return targets.double()

"""Context and closed form: the exact posterior of the last layer over features that read the same support set."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from metaprior.adaptation.closed_form.model import ClosedFormModel
from metaprior.adaptation.closed_form.settings import ClosedForm
from metaprior.adaptation.context.conditioning import Conditioning
from metaprior.adaptation.context.settings import Combination
from metaprior.adaptation.task_model import Binding
from metaprior.network import NOTHING_RANDOM
from metaprior.tasks.task import Examples
from metaprior.weights import WeightDistribution


def bind(combination: Combination, binding: Binding) -> "ContextClosedFormModel":
    """Return the task model of a closed form on a network that reads a context.

    The evidence is no objective here: its features have read the targets that it is the probability of.
    """
    conditioning = Conditioning(combination.context, binding, NOTHING_RANDOM, noise=False)
    return ContextClosedFormModel(combination.then, conditioning, binding.objective_name(("predictive",)))


class ContextClosedFormModel(ClosedFormModel):
    """A closed form whose trunk runs every row with the context of the row's task."""

    def __init__(self, settings: ClosedForm, conditioning: Conditioning, objective: str) -> None:
        super().__init__(settings, conditioning.network, conditioning.likelihood, objective)
        self._conditioning = conditioning

    def initial(self, targets: Tensor, relative_sigma: float = 0.1) -> WeightDistribution:
        """Return a first theta: that of the closed form, with an encoder in place of a context."""
        return self._conditioning.initial(super().initial(targets, relative_sigma))

    def given(
        self, theta: WeightDistribution, supports: Sequence[Examples], sizes: Sequence[int] | None = None
    ) -> Mapping[str, Tensor]:
        """Return the plain parameters with the contexts of ``sizes`` rows of each task, or of a single task."""
        contexts = self._conditioning.contexts(theta, supports)
        rows = contexts[0] if sizes is None else contexts.repeat_interleave(torch.tensor(sizes).to(contexts.device), 0)
        return self._conditioning.given(theta, rows).plain
